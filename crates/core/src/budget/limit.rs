//! The limits of an agent or a session, as people write them.

use super::{Cost, Kind};
use crate::decide::OnBudget;
use serde_json::{Map, Value, json};

/// The field that says what becomes of an agent that has used up a limit.
pub const ON_BUDGET: &str = "on_budget";
/// So large that nothing reaches it, and so small that sums do not overflow.
const MAX: i64 = 1_000_000_000_000_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub tokens: Option<i64>,
    pub cost: Option<Cost>,
    pub tool_calls: Option<i64>,
    pub wall_time_ms: Option<i64>,
    pub on_budget: Option<OnBudget>,
}

impl Limits {
    /// Everything that is wrong with it at once, by field.
    pub fn parse(budget: &Map<String, Value>) -> Result<Limits, Vec<(String, String)>> {
        let mut limits = Limits::default();
        let mut wrong = Vec::new();
        for (name, value) in budget.iter().filter(|(_, value)| !value.is_null()) {
            let read = match Kind::ALL.into_iter().find(|kind| kind.field() == name) {
                Some(Kind::Tokens) => whole(value).map(|n| limits.tokens = Some(n)),
                Some(Kind::ToolCalls) => whole(value).map(|n| limits.tool_calls = Some(n)),
                Some(Kind::WallTime) => whole(value).map(|n| limits.wall_time_ms = Some(n)),
                Some(Kind::Cost) => amount(value).map(|n| limits.cost = Some(n)),
                None if name == ON_BUDGET => on_budget(value).map(|word| limits.on_budget = Some(word)),
                None => Err(format!("there is no such limit; known are: {}", known().join(", "))),
            };
            if let Err(why) = read {
                wrong.push((name.clone(), why));
            }
        }
        if wrong.is_empty() { Ok(limits) } else { Err(wrong) }
    }

    /// Of what was checked when it came in; what cannot be read limits nothing.
    pub fn of(budget: &Value) -> Limits {
        let read =
            |(name, value): (&String, &Value)| Limits::parse(&Map::from_iter([(name.clone(), value.clone())])).ok();
        let Some(fields) = budget.as_object() else { return Limits::default() };
        fields.iter().filter_map(read).fold(Limits::default(), |all, one| Limits {
            tokens: one.tokens.or(all.tokens),
            cost: one.cost.or(all.cost),
            tool_calls: one.tool_calls.or(all.tool_calls),
            wall_time_ms: one.wall_time_ms.or(all.wall_time_ms),
            on_budget: one.on_budget.or(all.on_budget),
        })
    }

    pub fn get(&self, kind: Kind) -> Option<i64> {
        match kind {
            Kind::Tokens => self.tokens,
            Kind::Cost => self.cost.map(|cost| cost.0),
            Kind::ToolCalls => self.tool_calls,
            Kind::WallTime => self.wall_time_ms,
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (Kind, i64)> + use<'_> {
        Kind::ALL.into_iter().filter_map(|kind| self.get(kind).map(|cap| (kind, cap)))
    }

    /// Whether a budget limits anything, without reading it.
    pub fn any(budget: &Value) -> bool {
        Kind::ALL.iter().any(|kind| budget.get(kind.field()).is_some_and(|limit| !limit.is_null()))
    }
}

/// Every field that a budget may have.
pub fn known() -> Vec<&'static str> {
    Kind::ALL.iter().map(|kind| kind.field()).chain([ON_BUDGET]).collect()
}

/// An amount of a kind, as people read it.
pub fn shown(kind: Kind, n: i64) -> Value {
    match kind {
        Kind::Cost => json!(Cost(n)),
        _ => json!(n),
    }
}

fn whole(value: &Value) -> Result<i64, String> {
    let n = value.as_i64().filter(|n| (1..=MAX).contains(n));
    n.ok_or_else(|| format!("must be a whole number above zero, {MAX} at the most"))
}

fn amount(value: &Value) -> Result<Cost, String> {
    let read = match value {
        Value::String(text) => text.parse::<Cost>().ok(),
        other => other.as_i64().and_then(|n| n.checked_mul(1_000_000)).map(Cost),
    };
    let above = read.filter(|cost| (1..=MAX).contains(&cost.0));
    above.ok_or_else(|| {
        "must be an amount above zero: a text such as \"2.50\" with six decimal places at the most, or a whole number"
            .to_owned()
    })
}

fn on_budget(value: &Value) -> Result<OnBudget, String> {
    serde_json::from_value(value.clone()).map_err(|_| "must be one of: stop, terminate".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(value: Value) -> Result<Limits, Vec<(String, String)>> {
        Limits::parse(value.as_object().unwrap())
    }

    #[test]
    fn limits_are_read_and_what_is_wrong_is_named_all_at_once() {
        let good = json!({"max_tokens": 5, "max_cost": "2.5", "max_tool_calls": 3, "max_wall_time_ms": 9,
            "on_budget": "terminate"});
        let limits = parse(good).unwrap();
        assert_eq!(limits.iter().map(|(_, cap)| cap).collect::<Vec<_>>(), [5, 2_500_000, 3, 9]);
        assert_eq!(limits.on_budget, Some(OnBudget::Terminate));
        assert_eq!(parse(json!({"max_cost": 2})).unwrap().cost, Some(Cost(2_000_000)));
        assert_eq!(parse(json!({"max_tokens": null})).unwrap(), Limits::default());
        let bad = json!({"max_tokens": -1, "max_tool_calls": 1.5, "max_wall_time_ms": 0, "max_cost": 1.5,
            "on_budget": "explode", "max_usd": 1});
        let wrong = parse(bad).unwrap_err();
        assert_eq!(wrong.len(), 6, "{wrong:?}");
        for value in [json!("5"), json!(true), json!(i64::MAX), json!([]), json!(u64::MAX)] {
            assert!(parse(json!({"max_tokens": value})).is_err(), "{value}");
        }
        for value in ["0", "-1", "1.2345678", "x", "1e9", "9999999999999"] {
            assert!(parse(json!({"max_cost": value})).is_err(), "{value}");
        }
    }

    #[test]
    fn what_cannot_be_read_limits_nothing_and_hides_nothing() {
        let limits = Limits::of(&json!({"max_tokens": "plenty", "max_tool_calls": 2}));
        assert_eq!((limits.tokens, limits.tool_calls), (None, Some(2)));
        assert!(Limits::any(&json!({"max_cost": "1"})) && !Limits::any(&json!({"on_budget": "stop"})));
    }
}
