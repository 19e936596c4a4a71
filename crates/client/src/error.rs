//! What can go wrong between a caller and the server.

use crate::problem::Problem;

#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// The server said no, and why.
    #[error("{problem}")]
    Problem { status: u16, problem: Box<Problem> },
    #[error("{server} cannot be reached ({reason}): start it, or name another one with --server or INSTAR_SERVER")]
    Unreachable { server: String, reason: String },
    /// Something answered, but not in this protocol.
    #[error("{0}")]
    Protocol(String),
}

impl ClientError {
    /// As the command line ends: 3 not found, 4 refused by the machine, 5 not reachable, 1 otherwise.
    pub fn exit_code(&self) -> u8 {
        match self {
            ClientError::Problem { status: 404, .. } => 3,
            ClientError::Problem { status: 409, .. } => 4,
            ClientError::Unreachable { .. } => 5,
            ClientError::Problem { .. } | ClientError::Protocol(_) => 1,
        }
    }

    pub fn status(&self) -> Option<u16> {
        match self {
            ClientError::Problem { status, .. } => Some(*status),
            _ => None,
        }
    }

    pub(crate) fn refused(status: u16, body: &[u8]) -> ClientError {
        ClientError::Problem { status, problem: Box::new(Problem::read(status, body)) }
    }
}

/// The whole chain of causes: the outermost alone says little more than "error sending request".
pub(crate) fn reason(error: &reqwest::Error) -> String {
    let mut source = std::error::Error::source(error);
    let mut last = error.to_string();
    while let Some(cause) = source {
        last = cause.to_string();
        source = cause.source();
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_the_exit_code_of_the_contract() {
        let codes = [404, 409, 401, 422, 500].map(|status| ClientError::refused(status, b"").exit_code());
        assert_eq!(codes, [3, 4, 1, 1, 1]);
        assert_eq!(ClientError::Unreachable { server: "x".into(), reason: "y".into() }.exit_code(), 5);
        assert_eq!(ClientError::Protocol("z".into()).exit_code(), 1);
    }
}
