//! Budgets: what agents and sessions may use up, in whole numbers.
//!
//! A limit is a number ([`Meter`]): before a provider call an estimate is set aside, after it what was really used
//! is booked. A call is let in while anything is left, and sets its whole estimate aside: so what is used and what
//! is set aside together never exceed the limit by more than one estimate, however many call at once. Where the
//! numbers are kept, and what happens to who has used up his, is not known here.

mod limit;
mod meter;
mod money;
mod reservation;

pub use limit::{Limits, ON_BUDGET, known, shown};
pub use meter::{Meter, Room};
pub use money::{Cost, Price};
pub use reservation::{Line, Reservation, Spent};

/// What can be limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Of the provider, in and out.
    Tokens,
    /// Millionths of the currency in which prices are configured.
    Cost,
    ToolCalls,
    /// Milliseconds since the limit was set, less those in which the session was held.
    WallTime,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Tokens, Kind::Cost, Kind::ToolCalls, Kind::WallTime];

    pub const fn token(self) -> &'static str {
        match self {
            Kind::Tokens => "tokens",
            Kind::Cost => "cost",
            Kind::ToolCalls => "tool_calls",
            Kind::WallTime => "wall_time",
        }
    }

    /// The field of a budget that sets the limit.
    pub const fn field(self) -> &'static str {
        match self {
            Kind::Tokens => "max_tokens",
            Kind::Cost => "max_cost",
            Kind::ToolCalls => "max_tool_calls",
            Kind::WallTime => "max_wall_time_ms",
        }
    }

    pub fn parse(token: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.token() == token)
    }
}
