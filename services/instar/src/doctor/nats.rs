//! Whether a NATS server answers, is new enough and has JetStream.
//!
//! Reads no more than the line that every server says first: nothing is made, no right is needed.

use instar_runtime::config::Config;
use serde_json::Value;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpStream;

const WITHIN: Duration = Duration::from_secs(5);
const LINE_BYTES_MAX: u64 = 64 << 10;
const OLDEST: (u64, u64) = (2, 10);

/// What is wrong with it.
pub(super) enum Trouble {
    /// Nobody answers: services start and work without, slower.
    Away(String),
    /// What answers keeps them from starting.
    Unfit(String),
}

pub(super) async fn check(config: &Config) -> Result<String, Trouble> {
    let Some(urls) = &config.nats.url else { return Ok("not configured: the bus inside the process".into()) };
    let mut good = Vec::new();
    for url in urls.expose().split(',') {
        let address = address(url.trim());
        let outcome = tokio::time::timeout(WITHIN, greet(&address)).await;
        let line = outcome.unwrap_or_else(|_| Err("no answer".into()));
        let away = |why| {
            let meanwhile = "services start without it and look for work in the database, slower";
            Trouble::Away(format!("the bus is missing: {address}: {why}: start it, or correct nats.url; {meanwhile}"))
        };
        let judged = judge(&line.map_err(away)?).map_err(|why| Trouble::Unfit(format!("{address}: {why}")));
        good.push(format!("{address} {}", judged?));
    }
    Ok(good.join(", "))
}

/// Host and port, without user and password.
fn address(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host).trim_end_matches('/');
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { host.to_owned() } else { format!("{host}:4222") }
}

async fn greet(address: &str) -> Result<String, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let mut line = String::new();
    let mut reader = BufReader::new(stream.take(LINE_BYTES_MAX));
    reader.read_line(&mut line).await.map_err(|error| error.to_string())?;
    Ok(line)
}

fn judge(line: &str) -> Result<String, String> {
    let info = line.trim().strip_prefix("INFO ").and_then(|text| serde_json::from_str::<Value>(text).ok());
    let info = info.ok_or("this is no NATS server")?;
    let version = info["version"].as_str().unwrap_or_default();
    let mut numbers = version.trim_start_matches('v').split(['.', '-']).map_while(|part| part.parse::<u64>().ok());
    let found = numbers.next().zip(numbers.next());
    if found.is_none_or(|found| found < OLDEST) {
        return Err(format!("NATS {version:?} is too old: install 2.12.7 or later (2.10.0 is the oldest accepted)"));
    }
    if info["jetstream"] != Value::Bool(true) {
        return Err(format!("NATS {version} runs without JetStream: start it with --jetstream"));
    }
    Ok(format!("NATS {version} with JetStream"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_judged_by_its_first_line() {
        let line = |version: &str, jetstream: bool| {
            format!("INFO {{\"server_id\":\"x\",\"version\":\"{version}\",\"jetstream\":{jetstream}}} \r\n")
        };
        assert_eq!(judge(&line("2.12.7", true)).unwrap(), "NATS 2.12.7 with JetStream");
        assert!(judge(&line("2.10.0-RC.1", true)).is_ok());
        assert!(judge(&line("2.9.25", true)).unwrap_err().contains("too old"));
        assert!(judge(&line("2.12.7", false)).unwrap_err().contains("--jetstream"));
        assert!(judge("HTTP/1.1 400").unwrap_err().contains("no NATS"));
    }

    #[test]
    fn an_address_has_no_password_and_always_a_port() {
        assert_eq!(address("nats://me:secret@host:1/"), "host:1");
        assert_eq!(address("tls://host"), "host:4222");
    }
}
