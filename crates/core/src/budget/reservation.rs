//! What a turn has set aside for its next provider call, kept in its row.

use super::{Kind, Price};
use crate::rune::payload::Usage;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// So much of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The limit.
    pub id: Uuid,
    pub kind: Kind,
    /// What is set aside; nothing of limits that are counted.
    pub n: i64,
}

/// Of every limit that the turn draws on, its agent's, its parents' and its session's. The price is that of the
/// moment at which it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    pub lines: Vec<Line>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
}

/// What a call really came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    pub usage: Usage,
    /// The part of the input that came from a cache.
    pub cached: u64,
    /// Tool calls that the answer asks for.
    pub calls: i64,
}

impl Spent {
    /// How much of a kind that is.
    pub fn of(&self, kind: Kind, price: Option<&Price>) -> i64 {
        let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let Usage { input_tokens, output_tokens } = self.usage;
        match kind {
            Kind::Tokens => whole(input_tokens.saturating_add(output_tokens)),
            Kind::Cost => price.map_or(0, |price| price.of(input_tokens, self.cached, output_tokens).0),
            Kind::ToolCalls => self.calls,
            Kind::WallTime => 0,
        }
    }
}

impl Reservation {
    /// For a call with such usage at the most, on these limits.
    pub fn estimate(limits: impl IntoIterator<Item = (Uuid, Kind)>, most: Usage, price: Option<Price>) -> Reservation {
        let most = Spent { usage: most, ..Spent::default() };
        let line = |(id, kind): (Uuid, Kind)| Line { id, kind, n: most.of(kind, price.as_ref()) };
        Reservation { lines: limits.into_iter().map(line).collect(), price }
    }

    /// Per limit what is used now, and what is no longer set aside.
    pub fn settled(&self, spent: Spent) -> impl Iterator<Item = (Line, i64)> + use<'_> {
        self.lines.iter().map(move |line| (*line, spent.of(line.kind, self.price.as_ref())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_reservation_settles_by_what_was_used_of_each_kind() {
        let ids: Vec<Uuid> = (1..=3).map(Uuid::from_u128).collect();
        let limits = ids.iter().copied().zip([Kind::Tokens, Kind::Cost, Kind::ToolCalls]);
        let price: Price = serde_json::from_value(json!({"input_per_mtok": "1", "output_per_mtok": "10"})).unwrap();
        let most = Usage { input_tokens: 1_000, output_tokens: 100 };
        let made = Reservation::estimate(limits, most, Some(price));
        assert_eq!(made.lines.iter().map(|line| line.n).collect::<Vec<_>>(), [1_100, 2_000, 0]);
        let kept: Reservation = serde_json::from_value(json!(made)).unwrap();
        assert_eq!(kept, made);
        let spent = Spent { usage: Usage { input_tokens: 500, output_tokens: 7 }, cached: 0, calls: 2 };
        assert_eq!(kept.settled(spent).map(|(_, used)| used).collect::<Vec<_>>(), [507, 570, 2]);
        assert!(kept.settled(Spent::default()).all(|(_, used)| used == 0), "a call that failed costs nothing");
    }
}
