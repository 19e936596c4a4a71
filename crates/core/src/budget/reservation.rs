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
    /// The part of it that is for a summary of the conversation, which is made before the call itself.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub summary: i64,
}

fn is_nothing(n: &i64) -> bool {
    *n == 0
}

/// Of every limit that the turn draws on, its agent's, its parents' and its session's. The price is that of the
/// moment at which it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    pub lines: Vec<Line>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// Tokens that could be sent: what a call is taken to have used whose end nobody heard.
    #[serde(default)]
    pub input: u64,
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
    /// Both.
    pub fn and(self, more: Spent) -> Spent {
        let Usage { input_tokens, output_tokens } = more.usage;
        Spent {
            usage: Usage {
                input_tokens: self.usage.input_tokens.saturating_add(input_tokens),
                output_tokens: self.usage.output_tokens.saturating_add(output_tokens),
            },
            cached: self.cached.saturating_add(more.cached),
            calls: self.calls.saturating_add(more.calls),
        }
    }

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
        let input = most.input_tokens;
        let most = Spent { usage: most, ..Spent::default() };
        let line = |(id, kind): (Uuid, Kind)| Line { id, kind, n: most.of(kind, price.as_ref()), summary: 0 };
        Reservation { lines: limits.into_iter().map(line).collect(), price, input }
    }

    /// The same with what a summary may come to set aside as well; nothing more where that is so already.
    pub fn with_summary(&self, most: Usage) -> Reservation {
        let most = Spent { usage: most, ..Spent::default() };
        let line = |line: &Line| match line.kind {
            Kind::Tokens | Kind::Cost if line.summary == 0 => {
                let summary = most.of(line.kind, self.price.as_ref());
                Line { n: line.n.saturating_add(summary), summary, ..*line }
            }
            _ => *line,
        };
        Reservation { lines: self.lines.iter().map(line).collect(), ..self.clone() }
    }

    /// The same when there is a summary, or will be none.
    pub fn without_summary(&self) -> Reservation {
        let line = |line: &Line| Line { n: line.n - line.summary, summary: 0, ..*line };
        Reservation { lines: self.lines.iter().map(line).collect(), ..self.clone() }
    }

    /// What a call has used whose end nobody heard, because its worker died or somebody else ended the turn: all
    /// that could be sent.
    pub fn unheard(&self) -> Spent {
        Spent { usage: Usage { input_tokens: self.input, output_tokens: 0 }, ..Spent::default() }
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
        assert!(kept.settled(Spent::default()).all(|(_, used)| used == 0), "a call that was refused costs nothing");
        assert_eq!(kept.settled(kept.unheard()).map(|(_, used)| used).collect::<Vec<_>>(), [1_000, 1_000, 0]);
    }

    #[test]
    fn what_is_set_aside_for_a_summary_is_so_once_and_given_back_apart() {
        let limits = [(Uuid::from_u128(1), Kind::Tokens), (Uuid::from_u128(2), Kind::ToolCalls)];
        let made = Reservation::estimate(limits, Usage { input_tokens: 100, output_tokens: 10 }, None);
        let most = Usage { input_tokens: 50, output_tokens: 20 };
        let more = made.with_summary(most);
        assert_eq!(more.lines.iter().map(|line| (line.n, line.summary)).collect::<Vec<_>>(), [(180, 70), (0, 0)]);
        assert_eq!(more.with_summary(most), more);
        assert_eq!(more.without_summary(), made);
        assert_eq!(serde_json::from_value::<Reservation>(json!(more)).unwrap(), more);
    }
}
