//! Money without floats: millionths of a currency, whichever it is.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

const MICROS: i64 = 1_000_000;
const PLACES: usize = 6;
/// Tokens that prices are given for.
const MTOK: i128 = 1_000_000;

/// An amount; as text a decimal number with six places at the most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(pub i64);

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, micros) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        let (whole, part) = (micros / MICROS as u64, micros % MICROS as u64);
        if part == 0 {
            return write!(f, "{sign}{whole}");
        }
        let part = format!("{part:06}");
        write!(f, "{sign}{whole}.{}", part.trim_end_matches('0'))
    }
}

impl FromStr for Cost {
    type Err = String;

    fn from_str(text: &str) -> Result<Cost, String> {
        let wrong = || format!("must be an amount such as \"2.50\", with {PLACES} decimal places at the most");
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > PLACES {
            return Err(wrong());
        }
        let part: i64 = format!("{part:0<PLACES$}").parse().map_err(|_| wrong())?;
        let whole: i64 = whole.parse().map_err(|_| wrong())?;
        whole.checked_mul(MICROS).and_then(|micros| micros.checked_add(part)).map(Cost).ok_or_else(wrong)
    }
}

impl Serialize for Cost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cost, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// What a model costs, per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    pub input_per_mtok: Cost,
    pub output_per_mtok: Cost,
    /// Of input that the provider had in its cache; the same as other input if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input_per_mtok: Option<Cost>,
}

impl Price {
    /// What a call costs; `cached` is the part of `input` that came from a cache. A millionth that is begun counts.
    pub fn of(&self, input: u64, cached: u64, output: u64) -> Cost {
        let cached = cached.min(input);
        let parts = [
            (input - cached, self.input_per_mtok),
            (cached, self.cached_input_per_mtok.unwrap_or(self.input_per_mtok)),
            (output, self.output_per_mtok),
        ];
        let sum: i128 = parts.iter().map(|(tokens, price)| i128::from(*tokens) * i128::from(price.0)).sum();
        Cost(i64::try_from((sum + MTOK - 1) / MTOK).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_amount_is_read_as_it_is_written() {
        for (text, micros) in [("0", 0), ("2.50", 2_500_000), ("0.000001", 1), ("12", 12_000_000), ("7.1", 7_100_000)] {
            assert_eq!(text.parse(), Ok(Cost(micros)), "{text}");
        }
        for text in ["", "-1", "1.", ".5", "1.1234567", "1e3", "1,5", "+1", "9999999999999999999", " 1"] {
            assert!(text.parse::<Cost>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_call_costs_what_its_tokens_do() {
        let micros = |text: &str| text.parse::<Cost>().unwrap();
        let price = Price { input_per_mtok: micros("3"), output_per_mtok: micros("15"), cached_input_per_mtok: None };
        assert_eq!(price.of(1_000, 0, 100).to_string(), "0.0045");
        assert_eq!(price.of(1, 1, 0), Cost(3), "without a price of its own, cached input is input");
        let price = Price { cached_input_per_mtok: Some(micros("0.30")), ..price };
        assert_eq!(price.of(1_000_000, 400_000, 0).to_string(), "1.92");
        assert_eq!(price.of(1, 1, 0), Cost(1), "a part of a millionth counts as one");
        assert_eq!(price.of(u64::MAX, 0, u64::MAX), Cost(i64::MAX));
    }

    proptest! {
        #[test]
        fn every_amount_survives_its_text(micros in 0..i64::MAX) {
            prop_assert_eq!(Cost(micros).to_string().parse(), Ok(Cost(micros)));
        }

        #[test]
        fn more_tokens_never_cost_less(a in 0u64..1 << 40, b in 0u64..1 << 40, more in 0u64..1 << 20, unit in 0i64..1 << 40) {
            let price = Price { input_per_mtok: Cost(unit), output_per_mtok: Cost(unit / 2), cached_input_per_mtok: None };
            prop_assert!(price.of(a, 0, b) <= price.of(a + more, 0, b));
            prop_assert!(price.of(a, 0, b) <= price.of(a, 0, b + more));
        }
    }
}
