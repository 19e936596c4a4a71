//! The private servers: they start, crash, come back, and leave nothing behind.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use instar_testkit::{Nats, Postgres, binary, nats, postgres, process, wait};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const BOUND: Duration = Duration::from_secs(20);
const VICTIM: &str = "INSTAR_TESTKIT_VICTIM";

/// One statement through psql; what it printed.
fn query(server: &Postgres, url: &str, statement: &str) -> anyhow::Result<String> {
    let psql = server.bin("psql").expect("psql belongs to the installation");
    let output = Command::new(psql).args(["-X", "-A", "-t", "-q", "-d", url, "-c", statement]).output()?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// One request in the NATS protocol; the reply's payload.
async fn request(url: &str, subject: &str, body: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(url.trim_start_matches("nats://")).await?;
    let sent = format!(
        "CONNECT {{\"verbose\":false,\"headers\":true,\"no_responders\":true}}\r\nSUB _INBOX.t 1\r\n\
         PUB {subject} _INBOX.t {}\r\n{body}\r\n",
        body.len()
    );
    stream.write_all(sent.as_bytes()).await?;
    let mut seen = Vec::new();
    loop {
        let mut part = [0; 4096];
        let n = tokio::time::timeout(BOUND, stream.read(&mut part)).await??;
        anyhow::ensure!(n > 0, "the server closed the connection");
        seen.extend_from_slice(&part[..n]);
        let text = String::from_utf8_lossy(&seen);
        if let Some((_, reply)) = text.split_once("MSG _INBOX.t")
            && reply.trim_end().ends_with(['}', '3'])
        {
            return Ok(reply.to_owned());
        }
    }
}

#[tokio::test]
async fn a_durable_postgres_keeps_committed_rows_through_kill_9() {
    let server = Postgres::start().await.unwrap();
    let url = server.create_database().await.unwrap();
    query(&server, &url, "create table t (n int)").unwrap();
    query(&server, &url, "insert into t select generate_series(1, 1000)").unwrap();
    assert_eq!(query(&server, &url, "show fsync").unwrap(), "on");
    assert_eq!(query(&server, &url, "show max_connections").unwrap(), "300");

    let before = server.pid().unwrap();
    server.kill9().await.unwrap();
    assert_eq!(server.pid(), None);
    assert!(process::inside(&server.dir()).is_empty());
    query(&server, &url, "select 1").unwrap_err();

    server.restart().await.unwrap();
    assert_ne!(server.pid().unwrap(), before);
    assert_eq!(query(&server, &url, "select count(*) from t").unwrap(), "1000");
}

#[tokio::test]
async fn a_restart_keeps_port_and_data_and_a_drop_leaves_nothing() {
    let server = Postgres::start_fast().await.unwrap();
    let url = server.create_database().await.unwrap();
    assert_eq!(query(&server, &url, "show fsync").unwrap(), "off");
    query(&server, &url, "create table kept ()").unwrap();
    server.restart().await.unwrap();
    assert_eq!(query(&server, &url, "select count(*) from kept").unwrap(), "0");
    server.stop().await.unwrap();
    query(&server, &url, "select 1").unwrap_err();
    server.restart().await.unwrap();

    let dir = server.dir();
    assert!(!process::inside(&dir).is_empty());
    drop(server);
    assert!(process::inside(&dir).is_empty());
    assert!(!dir.exists());
}

#[tokio::test]
async fn each_shared_database_is_fresh() {
    let (a, b) = tokio::join!(postgres::shared(), postgres::shared());
    assert_ne!(a.unwrap(), b.unwrap());
}

#[tokio::test]
async fn nats_keeps_a_stream_through_kill_9_and_loses_it_when_wiped() {
    let server = Nats::start().await.unwrap();
    let create = r#"{"name":"S","subjects":["s.>"],"storage":"file"}"#;
    let made = request(server.url(), "$JS.API.STREAM.CREATE.S", create).await.unwrap();
    assert!(made.contains("\"did_create\":true"), "{made}");

    server.kill9().await.unwrap();
    request(server.url(), "$JS.API.INFO", "").await.unwrap_err();
    server.restart().await.unwrap();
    let kept = request(server.url(), "$JS.API.STREAM.NAMES", "").await.unwrap();
    assert!(kept.contains("\"streams\":[\"S\"]"), "{kept}");

    server.wipe_and_restart().await.unwrap();
    let lost = request(server.url(), "$JS.API.STREAM.NAMES", "").await.unwrap();
    assert!(lost.contains("\"total\":0"), "{lost}");
}

#[tokio::test]
async fn a_given_data_folder_stays_after_nats_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let server = Nats::start_in(dir.path()).await.unwrap();
    assert!(nats::shared().await.unwrap().starts_with("nats://127.0.0.1:"));
    drop(server);
    assert!(dir.path().join("jetstream").is_dir());
}

#[tokio::test]
async fn the_fetched_binaries_run_though_their_cache_is_closed_to_others() {
    let fetched = binary::postgres_of_cache().unwrap();
    let closed = tempfile::tempdir().unwrap();
    std::fs::set_permissions(closed.path(), PermissionsExt::from_mode(0o700)).unwrap();
    let root = closed.path().join("cache");
    let copied = Command::new("cp").arg("-r").arg(&fetched.root).arg(&root).status().unwrap();
    assert!(copied.success());
    let bin = root.join(fetched.bin.strip_prefix(&fetched.root).unwrap());

    let install = binary::PostgresBin { bin, root };
    let server = Postgres::start_with(install).await.unwrap();
    let url = server.create_database().await.unwrap();
    assert_eq!(query(&server, &url, "select 1").unwrap(), "1");
    assert!(server.bin("pgbench").is_some());
}

/// Not a test by itself: the process that the next test kills.
#[tokio::test]
#[ignore = "started by the test of kill -9"]
async fn victim() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    let server = Postgres::start().await.unwrap();
    let crashed = Postgres::start_fast().await.unwrap();
    crashed.kill9().await.unwrap();
    let bus = Nats::start().await.unwrap();
    let shared = postgres::shared().await.unwrap();
    println!("\npids {} {}", server.pid().unwrap(), bus.pid().unwrap());
    println!("dir {}", server.dir().display());
    println!("dir {}", crashed.dir().display());
    println!("dir {}", bus.store().parent().unwrap().display());
    println!("ready {shared}");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_test_process_killed_with_9_leaves_no_server_and_no_folder() {
    let here = std::env::current_exe().unwrap();
    // A temporary folder of its own, open to the account of Postgres, to see that it is empty
    // again.
    let tmp = tempfile::tempdir().unwrap();
    std::fs::set_permissions(tmp.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = Command::new(here);
    process::bind(&mut command);
    let mut victim = command
        .args(["victim", "--exact", "--ignored", "--nocapture"])
        .env(VICTIM, "1")
        .env("TMPDIR", tmp.path())
        .env_remove(postgres::URL_VARIABLE)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut dirs: Vec<PathBuf> = Vec::new();
    let mut pids: Vec<u32> = Vec::new();
    for line in BufReader::new(victim.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        match line.split_once(' ') {
            Some(("pids", rest)) => pids.extend(rest.split(' ').map(|pid| pid.parse::<u32>().unwrap())),
            Some(("dir", dir)) => dirs.push(dir.into()),
            Some(("ready", _)) => break,
            _ => {}
        }
    }
    assert_eq!((pids.len(), dirs.len()), (2, 3));
    let tmp_dir = tmp.path().canonicalize().unwrap();
    assert!(process::inside(&tmp_dir).len() > 3);
    let segments: BTreeSet<String> = dirs.iter().filter_map(|dir| segment_of(dir)).collect();
    assert_eq!(segments.len(), 2, "each Postgres has a segment, also the one that was killed");
    assert!(segments.is_subset(&segments_of_machine()));

    victim.kill().unwrap();
    victim.wait().unwrap();
    wait::until(BOUND, || async { process::inside(&tmp_dir).is_empty() }).await;
    wait::until(BOUND, || async { std::fs::read_dir(&tmp_dir).unwrap().next().is_none() }).await;
    assert!(pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}/cwd")).exists()));
    assert!(dirs.iter().all(|dir| !dir.exists()));
    assert!(segments.is_disjoint(&segments_of_machine()));
}

/// The number of the System V shared memory segment that a Postgres notes in its pid file.
fn segment_of(dir: &Path) -> Option<String> {
    let text = std::fs::read_to_string(dir.join("data/postmaster.pid")).ok()?;
    text.lines().nth(6)?.split_whitespace().nth(1).map(str::to_owned)
}

fn segments_of_machine() -> BTreeSet<String> {
    let text = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
    text.lines().skip(1).filter_map(|line| Some(line.split_whitespace().nth(1)?.to_owned())).collect()
}

/// Not a test by itself: a chore that runs a program whose children are not bound to it.
#[test]
#[ignore = "started by the test that kills it"]
fn chore() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    let mut command = Command::new("sh");
    command.args(["-c", "sh -c 'sleep 1000; true' & echo begun; sleep 1000; true"]);
    let group = process::Group::spawn(command).unwrap();
    group.wait().unwrap();
}

#[tokio::test]
async fn a_chore_that_is_stopped_in_any_way_takes_along_what_it_runs() {
    for signal in [2, 9, 15] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["chore", "--exact", "--ignored", "--nocapture"]).env(VICTIM, "1").stdout(Stdio::piped());
        process::bind(&mut command);
        let mut chore = command.spawn().unwrap();
        let mut lines = BufReader::new(chore.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.ends_with("begun")));
        let sleepers = || process::descendants(chore.id()).iter().filter(|seen| seen.name == "sleep").count();
        wait::until(BOUND, || async { sleepers() == 2 }).await;
        let started = process::descendants(chore.id());
        process::signal(chore.id(), signal).unwrap();
        chore.wait().unwrap();
        wait::until(BOUND, || async { !started.iter().any(process::Seen::lives) }).await;
    }
}

#[tokio::test]
async fn what_is_left_of_a_group_whose_first_process_has_ended_is_ended() {
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 1000 & echo $!"]).stdout(Stdio::piped());
    let mut group = process::Group::spawn(command).unwrap();
    let mut said = String::new();
    BufReader::new(group.child().stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert!(group.wait().unwrap().success());
    let status = || std::fs::read_to_string(format!("/proc/{}/stat", said.trim())).unwrap_or_default();
    let gone = |status: String| status.is_empty() || status.contains(") Z ") || status.contains(") X ");
    wait::until(BOUND, || async { gone(status()) }).await;
}
