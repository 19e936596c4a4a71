//! A machine as plain data: the view that the store, the bus, the API, the docs and the tests share.
//!
//! Nothing here is generic and nothing here knows a particular machine. The typed enums of each
//! machine are made by [`machine!`](super::machine) from the same list that fills its [`Table`].

/// Who may raise an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// A person, through the API.
    User,
    /// A language model agent, through a tool or its own turn.
    Agent,
    /// One of Instar's services.
    System,
    /// A gate or approval policy that decides in a person's place.
    Policy,
}

impl By {
    pub const fn token(self) -> &'static str {
        match self {
            By::User => "user",
            By::Agent => "agent",
            By::System => "system",
            By::Policy => "policy",
        }
    }

    pub fn parse(token: &str) -> Option<By> {
        [By::User, By::Agent, By::System, By::Policy].into_iter().find(|by| by.token() == token)
    }
}

/// What a state means for the life of its entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Something is going on or awaited.
    Live,
    /// At rest, but a command may reopen it.
    Rest,
    /// Never left again.
    Terminal,
}

#[derive(Debug)]
pub struct StateInfo {
    pub token: &'static str,
    pub phase: Phase,
    pub doc: &'static str,
}

#[derive(Debug)]
pub struct EventInfo {
    pub token: &'static str,
    pub by: &'static [By],
    pub doc: &'static str,
}

/// How a row shows in the runelog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emit {
    /// Its own runes, in this order; the last one carries the move.
    Runes(&'static [&'static str]),
    /// Another machine's rune of the same commit carries the move.
    Via(&'static str),
    /// Any rune of the same commit carries the move.
    Silent,
}

/// A row of the specification: from these states, this event leads there.
#[derive(Debug)]
pub struct Row {
    /// The row's id in the specification, such as `T1`.
    pub id: &'static str,
    /// States it starts from; empty for a birth.
    pub from: &'static [u8],
    pub event: u8,
    /// Where it is for fewer than its event is: those.
    pub by: Option<&'static [By]>,
    /// `None`: the state stays, the row only records.
    pub to: Option<u8>,
    pub emit: Emit,
    /// Guard and meaning, for readers.
    pub when: &'static str,
}

/// A late or repeated event that is answered with success and changes nothing.
#[derive(Debug)]
pub struct Ignore {
    pub id: &'static str,
    pub from: &'static [u8],
    pub event: u8,
}

/// A refusal worth a sentence of its own.
#[derive(Debug)]
pub struct Refuse {
    pub id: &'static str,
    pub from: &'static [u8],
    pub event: u8,
    pub advice: &'static str,
}

/// A specification row that is kept by something other than a cell of this table.
#[derive(Debug)]
pub struct Rule {
    pub id: &'static str,
    pub kept_by: &'static str,
}

#[derive(Debug)]
pub struct Table {
    pub name: &'static str,
    /// Prefix of its row ids, such as `T`.
    pub prefix: &'static str,
    pub doc: &'static str,
    pub states: &'static [StateInfo],
    pub events: &'static [EventInfo],
    pub rows: &'static [Row],
    pub ignores: &'static [Ignore],
    pub refuses: &'static [Refuse],
    pub rules: &'static [Rule],
}

/// What a machine answers to an event in a state.
#[derive(Clone, Copy, Debug)]
pub enum Cell {
    Moves(&'static Row),
    Ignored(&'static Ignore),
    Refused(Option<&'static Refuse>),
}

impl Table {
    pub fn state(&self, token: &str) -> Option<u8> {
        self.states.iter().position(|s| s.token == token).map(|i| i as u8)
    }

    pub fn event(&self, token: &str) -> Option<u8> {
        self.events.iter().position(|e| e.token == token).map(|i| i as u8)
    }

    pub fn row(&self, id: &str) -> impl Iterator<Item = &'static Row> {
        let rows = self.rows;
        let id = id.to_owned();
        rows.iter().filter(move |r| r.id == id)
    }

    /// `from` is `None` for an entity that does not exist yet.
    pub fn cell(&self, from: Option<u8>, event: u8) -> Cell {
        let starts = |states: &[u8]| match from {
            Some(s) => states.contains(&s),
            None => states.is_empty(),
        };
        if let Some(row) = self.rows.iter().find(|r| r.event == event && starts(r.from)) {
            return Cell::Moves(row);
        }
        // An ignore or a refusal always names its states: nothing to ignore before birth.
        if let Some(state) = from {
            if let Some(i) = self.ignores.iter().find(|i| i.event == event && i.from.contains(&state)) {
                return Cell::Ignored(i);
            }
            if let Some(r) = self.refuses.iter().find(|r| r.event == event && r.from.contains(&state)) {
                return Cell::Refused(Some(r));
            }
        }
        Cell::Refused(None)
    }

    /// Events that would move an entity in this state, for this kind of caller.
    pub fn allowed(&self, from: Option<u8>, by: By) -> Vec<&'static str> {
        (0..self.events.len() as u8)
            .filter(|&e| matches!(self.cell(from, e), Cell::Moves(row) if self.raisers(row).contains(&by)))
            .map(|e| self.events[e as usize].token)
            .collect()
    }

    /// Who may have a row move.
    pub fn raisers(&self, row: &Row) -> &'static [By] {
        row.by.unwrap_or(self.events[row.event as usize].by)
    }

    /// States that rows without a source lead to.
    pub fn births(&self) -> impl Iterator<Item = &'static Row> {
        self.rows.iter().filter(|r| r.from.is_empty())
    }

    pub fn phase(&self, state: &str) -> Option<Phase> {
        self.state(state).map(|s| self.states[s as usize].phase)
    }
}
