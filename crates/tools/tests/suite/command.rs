//! Command tools that mean well.

use crate::kit::{PYTHON, Yard, call, code, run, text, tool};
use instar_core::rune::payload::ResultStatus;
use instar_tools::egress::SystemLookup;
use instar_tools::sandbox::{Kernel, Mode};
use instar_tools::{Invocation, Output, Runner, Settings, Sink, Spec, Workspace};
use serde_json::json;
use std::sync::Arc;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn arguments_come_in_and_the_result_goes_out() {
    let yard = Yard::plain();
    let spec = Spec { parameters: json!({"type": "object"}), ..yard.spec(&["cat"], 10_000) };
    let outcome = run(&yard.runner, call(tool(spec), json!({"a": [1, "é"]}))).await;
    assert_eq!(outcome.status, ResultStatus::Success, "{outcome:?}");
    assert_eq!(outcome.output, Output::Json(json!({"a": [1, "é"]})));
    assert!(outcome.began && !outcome.truncated);
}

#[tokio::test]
async fn both_outputs_are_progress_and_standard_error_the_last_words_of_a_failure() {
    let yard = Yard::plain();
    let script = "echo one >&2; echo two >&2; echo out; exit 3";
    let (sink, mut progress) = Sink::channel(16);
    let one = call(tool(yard.spec(&["sh", "-c", script], 10_000)), json!({}));
    let outcome = yard.runner.run(one, CancellationToken::new(), sink).await;
    assert_eq!((outcome.status, code(&outcome)), (ResultStatus::Error, "command_failed"));
    assert_eq!(text(&outcome).trim(), "out");
    assert_eq!(outcome.error.unwrap().message, "the command ended with status 3; it said: one\ntwo");
    let mut said = Vec::new();
    while let Some(line) = progress.recv().await {
        said.push((line.stream.unwrap().token(), line.text));
    }
    // Each output has its order; between the two there is none.
    said.sort();
    assert_eq!(said, [("stderr", "one".to_owned()), ("stderr", "two".to_owned()), ("stdout", "out".to_owned())]);
}

#[tokio::test]
async fn the_environment_is_only_what_was_meant() {
    let yard = Yard::plain();
    // Set by cargo for every test, so it stands for the runner's own.
    let spec = Spec { env: vec!["CARGO_PKG_NAME".into(), "NOT_THERE".into()], ..yard.spec(&["env"], 10_000) };
    let one = Invocation { traceparent: Some("00-a-b-01".into()), attempt: 2, ..call(tool(spec), json!({})) };
    let id = one.call_id.to_string();
    let outcome = run(&yard.runner, one).await;
    let found = text(&outcome);
    let mut names: Vec<_> = found.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.sort_unstable();
    let expected = [
        "CARGO_PKG_NAME",
        "HOME",
        "INSTAR_ATTEMPT",
        "INSTAR_CALL_ID",
        "INSTAR_IDEMPOTENCY_KEY",
        "LANG",
        "PATH",
        "TMPDIR",
        "TRACEPARENT",
    ];
    assert_eq!(names, expected);
    assert!(found.contains(&format!("INSTAR_CALL_ID={id}")) && found.contains(&format!("INSTAR_IDEMPOTENCY_KEY={id}")));
    assert!(found.contains("INSTAR_ATTEMPT=2") && found.contains("CARGO_PKG_NAME=instar-tools"));
}

#[tokio::test]
async fn the_workspace_is_read_or_written_as_the_spec_says() {
    let (yard, folder) = (Yard::plain(), TempDir::new().unwrap());
    std::fs::write(folder.path().join("in"), "given").unwrap();
    let script = "cat $INSTAR_WORKSPACE/in; echo made > $INSTAR_WORKSPACE/out && echo wrote; echo x > here && pwd";
    let with = |workspace| Spec { workspace, ..yard.spec(&["sh", "-c", script], 10_000) };
    let go = |spec: Spec, given: bool| {
        let workspace = given.then(|| folder.path().to_owned());
        run(&yard.runner, Invocation { workspace, ..call(tool(spec), json!({})) })
    };
    let read = go(with(Workspace::Read), true).await;
    assert!(text(&read).contains("given") && !text(&read).contains("wrote"), "{read:?}");
    assert!(!folder.path().join("out").exists());
    let write = go(with(Workspace::Write), true).await;
    assert!(text(&write).contains("given") && text(&write).contains("wrote"), "{write:?}");
    assert_eq!(std::fs::read_to_string(folder.path().join("out")).unwrap(), "made\n");
    let none = go(with(Workspace::Write), false).await;
    assert_eq!((none.status, code(&none), none.began), (ResultStatus::Error, "workspace_missing", false));
    let unseen = go(
        Spec { command: vec!["cat".into(), folder.path().join("in").display().to_string()], ..with(Workspace::None) },
        true,
    );
    assert_eq!(unseen.await.status, ResultStatus::Error);
}

#[tokio::test]
async fn a_program_that_is_not_there_is_an_error_before_anything_began() {
    let outcome = Yard::plain().run(&["no-such-program"], 5_000).await;
    assert_eq!((outcome.status, code(&outcome), outcome.began), (ResultStatus::Error, "command_not_started", false));
    let outcome = Yard::plain().run(&["/etc/passwd"], 5_000).await;
    assert_eq!((code(&outcome), outcome.began), ("command_not_started", false));
}

#[tokio::test]
async fn without_a_sandbox_nothing_runs_unless_the_operator_said_so() {
    let full = Kernel { landlock_abi: 7, seccomp: true, pid_namespaces: false };
    for kernel in [Kernel { landlock_abi: 0, ..full }, Kernel { seccomp: false, ..full }] {
        let yard = Yard::plain();
        let settings = |mode| {
            let mut settings = Settings::default();
            (settings.sandbox.sandbox, settings.sandbox.scratch) = (mode, yard.scratch.path().to_owned());
            settings
        };
        assert!(settings(Mode::Required).sandbox.check(kernel).is_err());
        let runner = Runner::with(settings(Mode::Required), Arc::new(SystemLookup), kernel).unwrap();
        let outcome = run(&runner, call(tool(yard.spec(&["true"], 5_000)), json!({}))).await;
        assert_eq!(
            (outcome.status, code(&outcome), outcome.began),
            (ResultStatus::Error, "sandbox_unavailable", false)
        );
        let runner = Runner::with(settings(Mode::Off), Arc::new(SystemLookup), kernel).unwrap();
        let outcome = run(&runner, call(tool(yard.spec(&["true"], 5_000)), json!({}))).await;
        assert_eq!(outcome.status, ResultStatus::Success, "{outcome:?}");
    }
    assert_eq!(serde_json::to_value(Mode::Off).unwrap(), "off");
}

#[tokio::test]
async fn ordinary_programs_work_behind_the_walls() {
    let yard = Yard::plain();
    let script = "mkdir d && cd d && printf 'b\\na\\n' | sort > f && chmod 755 f && cat f | tr a-z A-Z && rm -r ../d && date > /dev/null && (sleep 0.01 & wait) && mktemp > /dev/null && echo done";
    let outcome = yard.run(&["bash", "-c", script], 10_000).await;
    assert_eq!(text(&outcome), "A\nB\ndone\n", "{outcome:?}");
    if std::path::Path::new(PYTHON).exists() {
        let script = "import json,subprocess,threading,tempfile,hashlib,socket\n\
            t=threading.Thread(target=print,args=('thread',)); t.start(); t.join()\n\
            a,b=socket.socketpair(); a.send(b'x'); print(b.recv(1))\n\
            print(subprocess.run(['echo','child'],capture_output=True).stdout)";
        let outcome = yard.run(&[PYTHON, "-c", script], 10_000).await;
        assert!(text(&outcome).contains("thread") && text(&outcome).contains("child"), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_command_that_may_use_the_network_reaches_it() {
    let server = crate::kit::Server::start(crate::kit::ok("x")).await;
    let yard = Yard::plain();
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{} && echo reached", server.port);
    let with = |network| Spec { network, ..yard.spec(&["bash", "-c", &script], 10_000) };
    assert_eq!(text(&yard.run_spec(with(true)).await).trim(), "reached");
    assert_eq!(text(&yard.run_spec(with(false)).await).trim(), "");
}
