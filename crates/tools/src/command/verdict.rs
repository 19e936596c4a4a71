//! What the end of a command says about its call.

use crate::outcome::{Failure, Outcome, code};
use instar_core::decide::Effect;
use instar_core::rune::payload::ResultStatus;

/// From a wait status as the kernel gives it; none when the supervisor was killed itself.
pub(super) fn of(status: Option<i32>, effect: Effect, said: &str) -> Outcome {
    let Some(status) = status else { return killed(effect, "its supervisor was killed", said) };
    if libc::WIFSIGNALED(status) {
        return killed(effect, &signal_words(libc::WTERMSIG(status)), said);
    }
    match libc::WEXITSTATUS(status) {
        0 => Outcome::of(ResultStatus::Success).began(),
        // A shell says so when the program it ran was killed.
        exit @ 129..=159 => killed(effect, &signal_words(exit - 128), said),
        exit => {
            let failure =
                Failure::new(code::COMMAND_FAILED, format!("the command ended with status {exit}{}", quoted(said)));
            Outcome::failed(ResultStatus::Error, failure).began()
        }
    }
}

pub(super) fn too_many(effect: Effect, most: u64) -> Outcome {
    let outcome = killed(effect, &format!("it had more than {most} processes"), "");
    let error = outcome.error.map(|error| Failure { code: code::PROCESS_LIMIT, retryable: false, ..error });
    Outcome { error, ..outcome }
}

/// It did not end by its own decision: what it had done by then is its secret.
fn killed(effect: Effect, why: &str, said: &str) -> Outcome {
    let (status, perhaps) = match effect {
        Effect::AtMostOnce => (ResultStatus::Unknown, "; it may have taken effect or not"),
        Effect::ReadOnly | Effect::Idempotent => (ResultStatus::Error, ""),
    };
    let failure = Failure::new(code::COMMAND_KILLED, format!("the command was killed: {why}{perhaps}{}", quoted(said)));
    Outcome::failed(status, Failure { retryable: effect.repeatable(), ..failure }).began()
}

fn quoted(said: &str) -> String {
    let said = said.trim();
    if said.is_empty() { String::new() } else { format!("; it said: {said}") }
}

fn signal_words(signal: i32) -> String {
    let meaning = match signal {
        libc::SIGXCPU => "it used up its computing time",
        libc::SIGXFSZ => "it wrote a file beyond the limit",
        libc::SIGKILL => "by the system or another process, often for want of memory",
        libc::SIGSEGV | libc::SIGBUS => "it reached for memory that is not its own",
        libc::SIGSYS => "it made a system call of another architecture",
        libc::SIGABRT => "it gave up by itself",
        _ => "by a signal",
    };
    format!("{meaning} (signal {signal})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use Effect::*;
    use ResultStatus::*;

    #[test]
    fn only_a_command_that_decided_to_fail_has_failed() {
        let exit = |code: i32| Some(code << 8);
        let cases = [
            (exit(0), AtMostOnce, Success),
            (exit(1), AtMostOnce, Error),
            (exit(127), AtMostOnce, Error),
            (exit(200), AtMostOnce, Error),
            (exit(137), AtMostOnce, Unknown),
            (exit(143), Idempotent, Error),
            (Some(libc::SIGKILL), AtMostOnce, Unknown),
            (Some(libc::SIGSEGV), ReadOnly, Error),
            (None, AtMostOnce, Unknown),
            (None, ReadOnly, Error),
        ];
        for (status, effect, expected) in cases {
            let outcome = of(status, effect, "");
            assert_eq!(outcome.status, expected, "{status:?} {effect:?}");
            assert!(outcome.began);
            assert_eq!(outcome.error.is_none(), expected == Success);
        }
        assert_eq!(too_many(AtMostOnce, 3).status, Unknown);
        assert_eq!(too_many(ReadOnly, 3).error.unwrap().code, code::PROCESS_LIMIT);
    }

    #[test]
    fn the_last_words_of_a_command_are_in_the_error() {
        let error = of(Some(2 << 8), ReadOnly, " no such account\n").error.unwrap();
        assert_eq!(error.message, "the command ended with status 2; it said: no such account");
    }
}
