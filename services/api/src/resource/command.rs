//! A person's event on a machine, with everything that it causes.

use crate::call::Call;
use crate::idempotency::Shown;
use instar_core::id::{Entity, SessionId};
use instar_core::machine::Table;
use instar_runtime::Act;

pub(crate) struct Command<'a> {
    pub(crate) call: &'a Call,
    pub(crate) session: SessionId,
    pub(crate) entity: Entity,
    pub(crate) machine: &'static Table,
    pub(crate) event: &'a str,
}

impl<'a> Command<'a> {
    pub(crate) fn act(self) -> Act<'a> {
        let shown = Shown::ok(self.entity);
        self.answering(shown)
    }

    pub(crate) fn answering(self, shown: Shown) -> Act<'a> {
        let mut act = Act::new(self.session, self.entity, self.machine, self.event, self.call.actor());
        act.traceparent = self.call.traceparent.clone();
        match self.call.carried_out() {
            Some(_) => act.done(),
            None => self.call.mark(act, self.session, shown),
        }
    }
}
