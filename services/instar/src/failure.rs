//! How a command ends badly: a code for scripts, a sentence for people.

use instar_client::ClientError;
use std::process::ExitCode;

pub(crate) const FAILED: u8 = 1;
pub(crate) const USAGE: u8 = 2;
pub(crate) const NOT_FOUND: u8 = 3;

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// Lines for standard error; nothing when all was said already.
    pub(crate) lines: Vec<String>,
}

impl Failure {
    pub(crate) fn new(code: u8, line: impl Into<String>) -> Failure {
        Failure { code, lines: vec![line.into()] }
    }

    pub(crate) fn usage(line: impl Into<String>) -> Failure {
        Failure::new(USAGE, line)
    }

    pub(crate) fn said(code: u8) -> Failure {
        Failure { code, lines: Vec::new() }
    }

    /// Every problem of a start, one line each.
    pub(crate) fn problems(problems: impl IntoIterator<Item = impl ToString>) -> Failure {
        Failure { code: FAILED, lines: problems.into_iter().map(|problem| problem.to_string()).collect() }
    }

    pub(crate) fn report(self) -> ExitCode {
        use std::io::Write;
        let mut stderr = std::io::stderr().lock();
        for line in self.lines {
            // There is nobody left to tell if this fails.
            let _ = writeln!(stderr, "instar: {line}");
        }
        ExitCode::from(self.code)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        let mut failure = Failure::new(error.exit_code(), error.to_string());
        if error.status() == Some(401) {
            failure.lines.push("give a key with --key or INSTAR_API_KEY".into());
        }
        failure
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::new(FAILED, format!("{error:#}"))
    }
}

impl From<std::io::Error> for Failure {
    /// A reader that has seen enough (`instar events … | head`) is no failure.
    fn from(error: std::io::Error) -> Failure {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Failure::said(0),
            _ => Failure::new(FAILED, error.to_string()),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Failure {
        if error.io_error_kind() == Some(std::io::ErrorKind::BrokenPipe) {
            return Failure::said(0);
        }
        Failure::new(FAILED, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_no_failure_and_other_errors_are() {
        let closed = Failure::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!((closed.code, closed.lines.len()), (0, 0));
        assert_eq!(Failure::from(std::io::Error::other("x")).code, FAILED);
        let gone = ClientError::Unreachable { server: "http://x".into(), reason: "refused".into() };
        assert_eq!(Failure::from(gone).code, 5);
    }
}
