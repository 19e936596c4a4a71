//! What a process is, since that decides what its configuration must hold.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Everything in one process, on the embedded backends unless told otherwise.
    Dev,
    Api,
    Scheduler,
    AgentWorker,
    ToolRunner,
    /// Brings the schema up to date and ends.
    Migrate,
}

impl Role {
    pub const ALL: [Role; 6] =
        [Role::Dev, Role::Api, Role::Scheduler, Role::AgentWorker, Role::ToolRunner, Role::Migrate];

    /// As `instar serve` and the `ready` line spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Dev => "dev",
            Role::Api => "api",
            Role::Scheduler => "scheduler",
            Role::AgentWorker => "agent-worker",
            Role::ToolRunner => "tool-runner",
            Role::Migrate => "migrate",
        }
    }

    /// One of several processes that meet only in the database and on the bus.
    pub fn is_distributed(self) -> bool {
        matches!(self, Role::Api | Role::Scheduler | Role::AgentWorker | Role::ToolRunner)
    }

    /// Where its pages for probes are served if nobody says otherwise; the API has them on its own port.
    pub fn health_port(self) -> Option<u16> {
        match self {
            Role::Scheduler => Some(7701),
            Role::AgentWorker => Some(7702),
            Role::ToolRunner => Some(7703),
            Role::Dev | Role::Api | Role::Migrate => None,
        }
    }

    /// Model keys are given only to those who call models: other services run without them.
    pub(super) fn calls_models(self) -> bool {
        matches!(self, Role::Dev | Role::AgentWorker)
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
