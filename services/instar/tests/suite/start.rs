//! What starts, and what keeps it from starting.

use crate::kit::{Ended, command, ended};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(30);

fn run(folder: &Path, arguments: &[&str]) -> Ended {
    ended(command(folder, arguments).output().unwrap())
}

#[test]
fn every_problem_of_a_configuration_is_printed_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let refused = run(folder.path(), &["serve", "scheduler"]).with(1);
    for key in ["database.url", "nats.url", "auth.bootstrap_key_env"] {
        assert!(refused.stderr.contains(key), "{key}: {}", refused.stderr);
    }
    assert_eq!(refused.stdout, "");
    let refused = run(folder.path(), &["dev", "--config", "nowhere.toml"]).with(1);
    assert!(refused.stderr.contains("nowhere.toml: cannot be read"), "{}", refused.stderr);
}

#[test]
fn a_data_folder_in_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let lock = std::fs::File::create(data.join("lock")).unwrap();
    lock.lock().unwrap();
    let refused = run(folder.path(), &["dev", "--port", "0", "--data-dir", "data"]).with(1);
    assert!(refused.stderr.contains("is in use by another process"), "{}", refused.stderr);
    assert_eq!(refused.stdout, "");
}

#[test]
fn a_schema_is_made_and_the_doctor_finds_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("instar.toml");
    let url = folder.path().join("x.db");
    std::fs::write(&file, format!("[database]\nurl = \"sqlite://{}\"\n", url.display())).unwrap();
    let before = run(folder.path(), &["doctor"]).with(0);
    assert!(before.stdout.contains("not there yet"), "{}", before.stdout);
    assert_eq!(run(folder.path(), &["migrate"]).with(0).stdout, "the schema is up to date\n");
    let after = run(folder.path(), &["doctor", "-o", "json"]).with(0).json();
    let database = after.as_array().unwrap().iter().find(|finding| finding["check"] == "database").unwrap();
    assert_eq!(database["message"], "sqlite answers and has the schema");
}

#[test]
fn the_doctor_ends_with_1_when_something_fails() {
    let folder = tempfile::tempdir().unwrap();
    let model = "[[models]]\nname = \"m\"\nprovider = \"openai\"\nmodel = \"x\"\napi_key_env = \"INSTAR_NO_SUCH\"\n";
    std::fs::write(folder.path().join("instar.toml"), model).unwrap();
    let ended = run(folder.path(), &["doctor"]).with(1);
    assert!(ended.stdout.contains("FAIL") && ended.stdout.contains("INSTAR_NO_SUCH"), "{}", ended.stdout);
}

/// `instar dev` with its first line, killed if the test ends before it.
struct Dev {
    child: Child,
    ready: String,
}

impl Dev {
    fn start(folder: &Path, arguments: &[&str]) -> Dev {
        let mut command = command(folder, &[&["dev", "--port", "0"], arguments].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = instar_testkit::process::spawn(command).unwrap();
        let (tell, told) = mpsc::channel();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = lines.read_line(&mut line);
            let _ = tell.send(line);
            // Whatever else it prints must not fill the pipe.
            let _ = lines.read_to_string(&mut String::new());
        });
        let mut dev = Dev { child, ready: String::new() };
        dev.ready = told.recv_timeout(SOON).unwrap_or_default();
        if dev.ready.is_empty() {
            let _ = dev.child.kill();
            panic!("not ready: {}", dev.stderr());
        }
        dev
    }

    fn server(&self) -> &str {
        self.ready.trim_end().strip_prefix("ready ").unwrap()
    }

    fn stderr(&mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    /// Asks it to end; gives its code and what it wrote to standard error.
    fn end(mut self) -> (Option<i32>, String) {
        let told = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(told.success());
        let text = self.stderr();
        (self.child.wait().unwrap().code(), text)
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn dev_serves_and_ends_when_told() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path(), &[]);
    assert!(dev.server().starts_with("http://127.0.0.1:"), "{}", dev.ready);
    let run = |arguments: &[&str]| run(folder.path(), &[&["--server", dev.server()], arguments].concat());
    let session = run(&["session", "create", "--name", "one", "-o", "json"]).with(0).json();
    let session = session["id"].as_str().unwrap();
    let agent = run(&["agent", "create", session, "--name", "a", "--tool", "echo", "-o", "json"]).with(0).json();
    assert_eq!((&agent["model"], &agent["session_id"]), (&"default".into(), &session.into()));
    let events = run(&["events", session]).with(0);
    assert!(events.stdout.contains("session.created") && events.stdout.contains("a on default"), "{}", events.stdout);
    assert!(run(&["tool", "list"]).with(0).stdout.contains("echo"));
    run(&["session", "get", "ses_00000000000000000000000000000000"]).with(3);
    run(&["session", "resume", session]).with(4);
    let (code, stderr) = dev.end();
    assert_eq!(code, Some(0), "{stderr}");
    let key = std::fs::read_to_string(folder.path().join(".instar/api-key")).unwrap();
    assert!(stderr.contains(&format!("key {}", key.trim())), "{stderr}");
}

#[test]
fn dev_takes_the_key_it_is_given_and_keeps_none() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path(), &["--data-dir", "data", "--api-key", "mine"]);
    let list = ["session", "list", "--server", dev.server()];
    run(folder.path(), &list).with(1);
    run(folder.path(), &[&list[..], &["--key", "mine"]].concat()).with(0);
    let (code, stderr) = dev.end();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(!stderr.contains("mine") && !folder.path().join("data/api-key").exists(), "{stderr}");
}

#[test]
fn dev_answers_a_message_and_its_log_stands() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path(), &[]);
    let run = |arguments: &[&str]| run(folder.path(), &[&["--server", dev.server()], arguments].concat());
    let session = run(&["session", "create", "-o", "json"]).with(0).json();
    let session = session["id"].as_str().unwrap();
    let agent = run(&["agent", "create", session, "--name", "a", "--tool", "echo", "-o", "json"]).with(0).json();
    let answer = run(&["send", agent["id"].as_str().unwrap(), "hello there"]).with(0);
    assert_eq!(answer.stdout, "The tool said: hello there\n", "{}", answer.stderr);
    assert!(answer.stderr.contains("echo"), "{}", answer.stderr);
    run(&["verify", session]).with(0);
    run(&["replay", session]).with(0);
}
