//! Leaving alone a provider that is down or wants no more: after some failures in a row nobody calls it for a while,
//! then one call is let through to see.
//!
//! What a provider does to whoever calls (no connection, a status of its own, no capacity) counts each time. What may lie
//! with one conversation (an answer that cannot be read or does not come, a refusal) counts once per caller, so that
//! one who fails again and again keeps nobody else from calling.
//!
//! Two circuits stand before each model: its own, and that of its credential, which all models share that are
//! called with the same one; money and quota belong to the latter. A process keeps them in memory: what they
//! save is calls, and a new process may make its own few.
//!
//! Must not know: HTTP, and what the caller does meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use instar_core::id::AgentId;
use tokio::time::Instant;

use crate::error::{Class, ModelError};
use crate::retry::chance;

/// The code of an error that stands for a call that was not made.
pub(crate) const OPEN: &str = "circuit_open";
/// The code of an error that stands for a call which the provider could not be given.
pub(crate) const UNREACHABLE: &str = "connection";
/// However often it was tried in vain, it is tried again after this.
const LONGEST: Duration = Duration::from_secs(300);
/// How soon those ask again who came while somebody tries.
const WHILE_TRIED: Duration = Duration::from_secs(5);

/// For whom a call is made; those that do not say it are one.
pub(crate) type Caller = Option<AgentId>;

/// When a circuit opens, and for how long at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Failures in a row, those that may lie with a caller once for each; 0: never.
    pub(crate) failures: u32,
    pub(crate) first: Duration,
}

#[derive(Default)]
struct State {
    failures: u32,
    /// Whose failures are counted already, and until when each leaves it to others to try.
    callers: Vec<(Caller, Instant)>,
    /// How often it was opened since it was last closed.
    opened: u32,
    open: Option<Open>,
}

struct Open {
    until: Instant,
    /// Somebody tries.
    tried: bool,
    why: ModelError,
}

impl State {
    fn count(&mut self, caller: Caller, surely: bool, until: Instant) {
        let known = self.callers.iter_mut().find(|(one, _)| *one == caller).filter(|_| !surely);
        match known {
            Some((_, left)) => *left = until,
            None => {
                self.failures = self.failures.saturating_add(1);
                if !surely {
                    self.callers.push((caller, until));
                }
            }
        }
    }
}

#[derive(Default)]
pub(crate) struct Circuit(Mutex<State>);

impl Circuit {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the call is the one that tries; an error if none is to be made.
    fn enter(&self, caller: Caller) -> Result<bool, ModelError> {
        let mut state = self.state();
        let State { open: Some(open), callers, .. } = &mut *state else { return Ok(false) };
        let now = Instant::now();
        let own = callers.iter().find(|(one, _)| *one == caller).map(|(_, until)| *until);
        let until = own.map_or(open.until, |own| own.max(open.until));
        let wait = match until.saturating_duration_since(now) {
            Duration::ZERO if !open.tried => {
                open.tried = true;
                return Ok(true);
            }
            Duration::ZERO => WHILE_TRIED,
            left => left,
        };
        // Those who wait do not all come back at once.
        let wait = wait.mul_f64(1.0 + 0.25 * chance());
        Err(untried(&open.why, wait))
    }

    fn closed(&self) -> bool {
        let mut state = self.state();
        let was_open = state.open.is_some();
        *state = State::default();
        was_open
    }

    /// True if it is open now and was not before.
    fn failed(&self, error: &ModelError, caller: Caller, policy: Policy, at_once: bool) -> bool {
        let mut state = self.state();
        let tried = state.open.as_ref().is_some_and(|open| open.tried);
        // Of calls that were under way when it opened, none is news.
        if policy.failures == 0 || (state.open.is_some() && !tried) {
            return false;
        }
        let surely = at_once || error.is_providers_own();
        state.count(caller, surely, Instant::now() + policy.first);
        if !(at_once || (tried && surely) || state.failures >= policy.failures) {
            // Whoever tried has learnt nothing about the provider: somebody else may.
            state.open.iter_mut().for_each(|open| open.tried = false);
            return false;
        }
        let was_open = state.open.is_some();
        let grown = policy.first.saturating_mul(1u32.checked_shl(state.opened).unwrap_or(u32::MAX)).min(LONGEST);
        let open_for = error.wait().map_or(grown, |told| told.min(LONGEST));
        let open = Open { until: Instant::now() + open_for, tried: false, why: error.clone() };
        *state = State { opened: state.opened + 1, open: Some(open), ..State::default() };
        !was_open
    }

    /// Whoever tried was called off: the next one may.
    fn abandoned(&self) {
        if let Some(open) = &mut self.state().open {
            open.tried = false;
        }
    }
}

fn untried(why: &ModelError, wait: Duration) -> ModelError {
    let text = format!("not tried, since the provider failed just before: {}", why.said());
    let mut error = ModelError::new(why.class, text).with_code(OPEN);
    error.status = why.status;
    error.retry_after = Some(wait);
    error
}

/// What stands before a model.
#[derive(Clone)]
pub(crate) struct Gate {
    name: Arc<str>,
    model: Arc<Circuit>,
    credential: Arc<Circuit>,
    policy: Policy,
    /// What whoever watches was told last.
    shown: Arc<AtomicBool>,
}

impl Gate {
    pub(crate) fn new(name: &str, credential: Arc<Circuit>, policy: Policy) -> Gate {
        Gate { name: name.into(), model: Arc::default(), credential, policy, shown: Arc::default() }
    }

    /// Before each call.
    pub(crate) fn enter(&self, caller: Caller) -> Result<Pass<'_>, ModelError> {
        let tries_credential = self.credential.enter(caller).inspect_err(|_| self.show(true))?;
        let tries_model = self.model.enter(caller).inspect_err(|_| {
            self.show(true);
            if tries_credential {
                self.credential.abandoned();
            }
        })?;
        Ok(Pass { gate: self, caller, tries_credential, tries_model, told: false })
    }

    /// To whoever watches; each model says what it last met, since a sibling may have opened or closed a circuit.
    fn show(&self, open: bool) {
        if self.shown.swap(open, Ordering::Relaxed) != open {
            let value = if open { 1.0 } else { 0.0 };
            metrics::gauge!("instar.llm.circuit.open", "model" => self.name.to_string()).set(value);
        }
    }

    /// What a call came to, or a stream that had begun well.
    pub(crate) fn failed(&self, error: &ModelError, caller: Caller) {
        let opened = match error.class {
            Class::QuotaExhausted => self.credential.failed(error, caller, self.policy, true),
            Class::RateLimited | Class::SlowDown | Class::Overloaded | Class::Transient => {
                self.model.failed(error, caller, self.policy, false)
            }
            // The provider is there, and says what is wrong with this one request.
            Class::ContextOverflow | Class::Permanent => return self.succeeded(),
        };
        if opened {
            self.show(true);
            // Not its words, which may repeat what was said.
            tracing::warn!(model = %self.name, class = error.class.as_str(), "the provider is left alone for a while");
        }
    }

    pub(crate) fn succeeded(&self) {
        // Both, whatever was open.
        self.show(false);
        if self.model.closed() | self.credential.closed() {
            tracing::info!(model = %self.name, "the provider answers again");
        }
    }
}

/// The right to make one call; what it came to must be said, or somebody else may try.
pub(crate) struct Pass<'a> {
    gate: &'a Gate,
    caller: Caller,
    tries_credential: bool,
    tries_model: bool,
    told: bool,
}

impl Pass<'_> {
    pub(crate) fn told<T>(mut self, outcome: &Result<T, ModelError>) {
        match outcome {
            Ok(_) => self.gate.succeeded(),
            Err(error) => {
                self.gate.failed(error, self.caller);
                // The one that tried on behalf of the other circuit has learnt nothing about it.
                self.let_go(error.class);
            }
        }
        self.told = true;
    }

    fn let_go(&self, class: Class) {
        if self.tries_credential && class != Class::QuotaExhausted {
            self.gate.credential.abandoned();
        }
        if self.tries_model && class == Class::QuotaExhausted {
            self.gate.model.abandoned();
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.told {
            return;
        }
        if self.tries_credential {
            self.gate.credential.abandoned();
        }
        if self.tries_model {
            self.gate.model.abandoned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> Gate {
        Gate::new("m", Arc::default(), Policy { failures: 3, first: Duration::from_secs(30) })
    }

    fn call(gate: &Gate, outcome: Result<(), ModelError>) -> Result<(), ModelError> {
        call_of(None, gate, outcome)
    }

    fn call_of(caller: Caller, gate: &Gate, outcome: Result<(), ModelError>) -> Result<(), ModelError> {
        gate.enter(caller)?.told(&outcome);
        outcome
    }

    fn callers<const N: usize>() -> [Caller; N] {
        std::array::from_fn(|n| format!("agt_{n:032x}").parse().ok())
    }

    fn down() -> Result<(), ModelError> {
        Err(ModelError::transient("down").with_code(UNREACHABLE))
    }

    fn unreadable() -> Result<(), ModelError> {
        Err(ModelError::transient("not JSON").with_code("malformed_event"))
    }

    fn is_untried(outcome: &Result<(), ModelError>) -> bool {
        outcome.as_ref().is_err_and(ModelError::is_untried)
    }

    #[tokio::test(start_paused = true)]
    async fn after_some_failures_in_a_row_nobody_calls_and_then_one_does() {
        let gate = gate();
        // A success in between starts the count anew.
        for outcome in [down(), down(), Ok(()), down(), down(), down()] {
            assert!(!is_untried(&call(&gate, outcome)));
        }
        let refused = gate.enter(None).err().unwrap();
        assert!(refused.is_untried() && refused.retryable(), "{refused}");
        assert!(refused.wait().is_some_and(|wait| (30.0..=37.5).contains(&wait.as_secs_f64())), "{refused:?}");
        tokio::time::advance(Duration::from_secs(31)).await;
        let pass = gate.enter(None).unwrap();
        assert!(gate.enter(None).is_err(), "one tries, the others wait");
        pass.told(&Ok(()));
        assert!(!is_untried(&call(&gate, Ok(()))) && gate.enter(None).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_trial_in_vain_makes_the_next_wait_longer_up_to_a_limit() {
        let gate = gate();
        for _ in 0..3 {
            let _ = call(&gate, down());
        }
        let mut waits = Vec::new();
        for _ in 0..6 {
            let began = Instant::now();
            while gate.enter(None).map(|pass| pass.told(&down())).is_err() {
                tokio::time::advance(Duration::from_secs(1)).await;
            }
            waits.push(began.elapsed().as_secs());
        }
        assert_eq!(waits, [30, 60, 120, 240, 300, 300]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_fails_again_and_again_with_its_own_conversation_keeps_nobody_from_calling() {
        let (gate, [one, two, three, four]) = (gate(), callers());
        for _ in 0..9 {
            assert!(!is_untried(&call_of(one, &gate, unreadable())));
        }
        // The same of three is the provider's.
        for caller in [two, three] {
            assert!(!is_untried(&call_of(caller, &gate, unreadable())));
        }
        assert!(is_untried(&call_of(four, &gate, Ok(()))));
        // One that tries and learns nothing about the provider leaves it to the others, and waits itself.
        tokio::time::advance(Duration::from_secs(31)).await;
        assert!(!is_untried(&call_of(one, &gate, unreadable())) && is_untried(&call_of(one, &gate, Ok(()))));
        assert!(call_of(four, &gate, Ok(())).is_ok() && call_of(one, &gate, Ok(())).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_alone_tries_again_by_itself() {
        let (gate, [one]) = (gate(), callers());
        for _ in 0..3 {
            let _ = call_of(one, &gate, down());
        }
        for _ in 0..4 {
            tokio::time::advance(Duration::from_secs(31)).await;
            assert!(!is_untried(&call_of(one, &gate, unreadable())));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_called_off_while_it_tries_leaves_that_to_the_next() {
        let gate = gate();
        for _ in 0..3 {
            let _ = call(&gate, down());
        }
        tokio::time::advance(Duration::from_secs(31)).await;
        drop(gate.enter(None).unwrap());
        assert!(gate.enter(None).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_no_money_left_for_one_model_has_none_for_its_sibling() {
        let (one, poor) = (gate(), || ModelError::new(Class::QuotaExhausted, "no credit"));
        let sibling = Gate::new("n", one.credential.clone(), one.policy);
        let _ = call(&one, Err(poor()));
        let refused = sibling.enter(None).err().unwrap();
        assert_eq!((refused.class, refused.is_untried(), refused.retryable()), (Class::QuotaExhausted, true, true));
        tokio::time::advance(Duration::from_secs(31)).await;
        // Who tries for the credential and learns something else leaves it open.
        let _ = call(&sibling, down());
        let _ = call(&one, Err(poor()));
        assert!(is_untried(&call(&sibling, Ok(()))));
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(call(&sibling, Ok(())).is_ok() && call(&one, Ok(())).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_wrong_says_nothing_against_the_provider() {
        let gate = gate();
        for _ in 0..9 {
            let _ = call(&gate, Err(ModelError::permanent("no such model")));
        }
        assert!(gate.enter(None).is_ok());
        let never = Gate { policy: Policy { failures: 0, ..gate.policy }, ..gate };
        for _ in 0..9 {
            assert!(!is_untried(&call(&never, down())));
        }
    }
}
