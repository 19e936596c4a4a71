//! What became of a commit.

use instar_core::rune::Rune;
use uuid::Uuid;

/// A commit that landed.
#[derive(Debug)]
pub struct Landed {
    /// Its runes, numbered: what is published next.
    pub runes: Vec<Rune>,
    /// What counters came to, by row.
    pub counters: Vec<(Uuid, i64)>,
}

impl Landed {
    pub fn first_seq(&self) -> i64 {
        self.runes.first().map_or(0, |r| r.seq)
    }
    pub fn head_seq(&self) -> i64 {
        self.runes.last().map_or(0, |r| r.seq)
    }
    pub fn counter(&self, id: impl Into<Uuid>) -> Option<i64> {
        let id = id.into();
        self.counters.iter().find(|(row, _)| *row == id).map(|(_, n)| *n)
    }
}

/// A row that was not as the commit expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub table: &'static str,
    pub id: Uuid,
    /// Its states, in the order of the table's machines.
    pub states: Vec<String>,
    pub epoch: i64,
    pub version: i64,
}

/// The three answers to a commit. Anything but `Moved` wrote nothing.
#[derive(Debug)]
pub enum Answer {
    Moved(Landed),
    /// At least one row is in another state, epoch or version.
    Found(Vec<Found>),
    /// A row that it names does not exist in this session.
    Absent {
        table: &'static str,
        id: Uuid,
    },
}

impl Answer {
    pub fn landed(self) -> Option<Landed> {
        match self {
            Answer::Moved(landed) => Some(landed),
            _ => None,
        }
    }
}
