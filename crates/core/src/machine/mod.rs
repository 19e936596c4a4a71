//! The eleven machines. Only the tables below this module list states or events.

pub mod audit;
pub mod table;

pub mod agent_drive;
pub mod agent_lifecycle;
pub mod asset;
pub mod hop;
pub mod mission;
pub mod plan;
pub mod session;
pub mod task;
pub mod tool_call;
pub mod tool_step;
pub mod turn;

mod apply;
#[cfg(test)]
mod tests;

pub use apply::{Answer, Move, Refusal, apply, restore};
pub use table::{By, Cell, Emit, Phase, Row, Table};

/// Every machine there is; docs, checks, subjects and tests go through this list.
pub static ALL: [&Table; 11] = [
    &session::TABLE,
    &agent_lifecycle::TABLE,
    &agent_drive::TABLE,
    &turn::TABLE,
    &tool_call::TABLE,
    &mission::TABLE,
    &hop::TABLE,
    &tool_step::TABLE,
    &asset::TABLE,
    &plan::TABLE,
    &task::TABLE,
];

pub fn by_name(name: &str) -> Option<&'static Table> {
    ALL.iter().find(|t| t.name == name).copied()
}

/// The machine that a row id such as `ST5` belongs to.
pub fn by_row(row: &str) -> Option<&'static Table> {
    let prefix = row.trim_end_matches(|c: char| c.is_ascii_digit());
    ALL.iter().find(|t| t.prefix == prefix).copied()
}

macro_rules! emit {
    (emits [$($kind:literal),+]) => { $crate::machine::table::Emit::Runes(&[$($kind),+]) };
    (via $kind:literal) => { $crate::machine::table::Emit::Via($kind) };
    (silent ()) => { $crate::machine::table::Emit::Silent };
}
pub(crate) use emit;

macro_rules! only {
    () => {
        None
    };
    ($($by:ident)+) => {
        Some(&[$(By::$by),+])
    };
}
pub(crate) use only;

macro_rules! target {
    (stay) => {
        None
    };
    ($state:ident) => {
        Some(State::$state as u8)
    };
}
pub(crate) use target;

// Who may raise what. An event names everybody who may raise it in some state; a row that is for
// fewer says `by [..]`. Both follow the specification's actor column, but for these deliberate
// widenings:
// - Services write on an agent's behalf. A worker commits what the model said, so that the system may
//   raise T2 T3 T4 T24, C1, H1, H9, ST1, P2 and K3, which the specification gives to the agent; and it
//   carries out the interrupt that a person has asked for (T5, T10).
// - Policies decide in a person's place: C3, C13 and P4 are open to the policy that speaks there.
// - A consequence is raised by the system whoever caused it, so that D1, H24, H31, AS1 and P7 P12 P18
//   P19 P20 are open to it; and M15, which is a person's, proposes the new mission (M1) in his name.

/// One list yields the enums, their wire tokens, the [`Table`] and its compile-time audit.
macro_rules! machine {
    (
        name: $name:literal, prefix: $prefix:literal, doc: $doc:literal;
        states { $($state:ident $stoken:literal $phase:ident $sdoc:literal;)+ }
        events { $($event:ident $etoken:literal [$($by:ident)+] $edoc:literal;)+ }
        rows { $($id:literal [$($from:ident)*] $on:ident $(by [$($rby:ident)+])? => $to:ident $how:ident $what:tt $when:literal;)+ }
        ignores { $($iid:literal [$($ifrom:ident)+] $ion:ident;)* }
        refuses { $($rid:literal [$($rfrom:ident)+] $ron:ident $advice:literal;)* }
        rules { $($uid:literal $kept:literal;)* }
    ) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum State { $(#[doc = $sdoc] $state),+ }

        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Event { $(#[doc = $edoc] $event),+ }

        impl State {
            pub const ALL: &'static [State] = &[$(State::$state),+];
            pub const fn token(self) -> &'static str {
                match self { $(State::$state => $stoken),+ }
            }
            pub fn parse(token: &str) -> Option<State> {
                match token { $($stoken => Some(State::$state),)+ _ => None }
            }
        }

        impl Event {
            pub const ALL: &'static [Event] = &[$(Event::$event),+];
            pub const fn token(self) -> &'static str {
                match self { $(Event::$event => $etoken),+ }
            }
        }

        #[doc = $doc]
        pub static TABLE: $crate::machine::table::Table = {
            use $crate::machine::table::*;
            const T: Table = Table {
                name: $name,
                prefix: $prefix,
                doc: $doc,
                states: &[$(StateInfo { token: $stoken, phase: Phase::$phase, doc: $sdoc }),+],
                events: &[$(EventInfo { token: $etoken, by: &[$(By::$by),+], doc: $edoc }),+],
                rows: &[$(Row {
                    id: $id,
                    from: &[$(State::$from as u8),*],
                    event: Event::$on as u8,
                    by: $crate::machine::only!($($($rby)+)?),
                    to: $crate::machine::target!($to),
                    emit: $crate::machine::emit!($how $what),
                    when: $when,
                }),+],
                ignores: &[$(Ignore { id: $iid, from: &[$(State::$ifrom as u8),+], event: Event::$ion as u8 }),*],
                refuses: &[$(Refuse {
                    id: $rid, from: &[$(State::$rfrom as u8),+], event: Event::$ron as u8, advice: $advice,
                }),*],
                rules: &[$(Rule { id: $uid, kept_by: $kept }),*],
            };
            const _: () = $crate::machine::audit::audit(&T);
            T
        };
    };
}
pub(crate) use machine;
