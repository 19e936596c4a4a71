//! Calls, a server that says what it is told, and a look for what was left behind.

use instar_core::id::CallId;
use instar_tools::egress::{Policy, SystemLookup};
use instar_tools::sandbox::Kernel;
use instar_tools::{Invocation, Kind, Origin, Outcome, Output, Runner, Settings, Sink, Spec, Tool};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub(crate) const PYTHON: &str = "/usr/bin/python3";

pub(crate) fn tool(spec: Spec) -> Arc<Tool> {
    Arc::new(Tool::new(spec, Origin::Operator).unwrap())
}

pub(crate) fn call(tool: Arc<Tool>, arguments: Value) -> Invocation {
    Invocation {
        tool,
        arguments,
        call_id: CallId::from(uuid::Uuid::now_v7()),
        attempt: 1,
        deadline: None,
        workspace: None,
        traceparent: None,
        account: None,
    }
}

pub(crate) async fn run(runner: &Runner, call: Invocation) -> Outcome {
    runner.run(call, CancellationToken::new(), Sink::none()).await
}

pub(crate) fn code(outcome: &Outcome) -> &'static str {
    outcome.error.as_ref().map_or("", |error| error.code)
}

pub(crate) fn text(outcome: &Outcome) -> String {
    match &outcome.output {
        Output::Nothing => String::new(),
        Output::Text(text) => text.clone(),
        Output::Json(value) => value.to_string(),
    }
}

/// Commands with a scratch folder of their own, to see that it is empty afterwards.
pub(crate) struct Yard {
    pub(crate) runner: Runner,
    pub(crate) scratch: TempDir,
}

impl Yard {
    pub(crate) fn new(change: impl FnOnce(&mut Settings)) -> Self {
        Self::on(Kernel::probe(), change)
    }

    /// On a machine that does not let the runner make name spaces, as most containers do not.
    pub(crate) fn without_namespaces(change: impl FnOnce(&mut Settings)) -> Self {
        Self::on(Kernel { pid_namespaces: false, ..Kernel::probe() }, change)
    }

    /// With both ways to end a call's processes, or one where this machine has only one.
    pub(crate) fn both_ways(change: impl Fn(&mut Settings)) -> Vec<Self> {
        let mut yards = vec![Self::without_namespaces(&change)];
        yards.extend(Kernel::probe().pid_namespaces.then(|| Self::new(&change)));
        yards
    }

    fn on(kernel: Kernel, change: impl FnOnce(&mut Settings)) -> Self {
        let scratch = TempDir::new().unwrap();
        // Commands may run as another user, who has to get through.
        open_to_all(scratch.path());
        let mut settings = Settings::default();
        settings.sandbox.scratch = scratch.path().to_owned();
        settings.sandbox.kill_grace_ms = 500;
        change(&mut settings);
        let runner = Runner::with(settings, Arc::new(SystemLookup), kernel).unwrap();
        Self { runner, scratch }
    }

    pub(crate) fn plain() -> Self {
        Self::new(|_| ())
    }

    /// Runs a command that has no side effects, and sees that it left nothing.
    pub(crate) async fn run(&self, command: &[&str], timeout_ms: u64) -> Outcome {
        self.run_spec(self.spec(command, timeout_ms)).await
    }

    pub(crate) fn spec(&self, command: &[&str], timeout_ms: u64) -> Spec {
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        Spec { command, timeout_ms, side_effects: false, ..Spec::new("probe", Kind::Command) }
    }

    pub(crate) async fn run_spec(&self, spec: Spec) -> Outcome {
        let limit = Duration::from_millis(spec.timeout_ms) + Duration::from_secs(2);
        let call = call(tool(spec), json!({}));
        let id = call.call_id;
        let outcome = run(&self.runner, call).await;
        assert!(outcome.duration < limit, "{:?}", outcome.duration);
        assert_eq!(left_behind(id), Vec::<u32>::new(), "processes left behind");
        assert_eq!(std::fs::read_dir(self.scratch.path()).unwrap().count(), 0, "folders left behind");
        outcome
    }
}

pub(crate) fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Processes that carry the id of the call in their environment, zombies not counted.
pub(crate) fn left_behind(id: CallId) -> Vec<u32> {
    let id = id.to_string();
    let carries = |pid: &u32| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.windows(id.len()).any(|window| window == id.as_bytes())
    };
    let names = std::fs::read_dir("/proc").unwrap().flatten();
    names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(carries).collect()
}

/// Answers every request with the same bytes and counts them.
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) requests: Arc<std::sync::Mutex<Vec<String>>>,
}

impl Server {
    pub(crate) async fn start(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::with(move |_| answer.clone()).await
    }

    pub(crate) async fn with(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (seen, answer) = (requests.clone(), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (seen, answer) = (seen.clone(), answer.clone());
                tokio::spawn(async move {
                    let (mut text, mut chunk) = (Vec::new(), [0; 4096]);
                    while !text.windows(4).any(|end| end == b"\r\n\r\n") {
                        match stream.read(&mut chunk).await {
                            Ok(length @ 1..) => text.extend_from_slice(&chunk[..length]),
                            _ => return,
                        }
                    }
                    let text = String::from_utf8_lossy(&text).into_owned();
                    let bytes = answer(&text);
                    seen.lock().unwrap().push(text);
                    let _ = stream.write_all(&bytes).await;
                    let _ = stream.shutdown().await;
                });
            }
        });
        Self { port, requests }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(crate) fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

pub(crate) fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\ncontent-type: text/plain\r\n\r\n{body}", body.len()).into_bytes()
}

pub(crate) fn moved(to: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n").into_bytes()
}

/// A runner whose guard lets it reach this machine at one port.
pub(crate) fn local_policy(port: u16) -> Policy {
    Policy::public().allow("127.0.0.1/32").unwrap().ports([port])
}
