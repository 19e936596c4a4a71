//! A JSON value in which no object has a field twice: which of the two was meant is not for us to
//! guess, and others on the way may have read the other one.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt::{Formatter, Result as Shown};

pub(crate) struct Strict(pub(crate) Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Strict, D::Error> {
        deserializer.deserialize_any(Reader).map(Strict)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut Formatter<'_>) -> Shown {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let Strict(value) = fields.next_value()?;
            if map.contains_key(&name) {
                let shown: String = name.chars().take(80).collect();
                return Err(A::Error::custom(format!("the field {shown:?} is there twice")));
            }
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_clear_is_read_as_ever_and_a_field_given_twice_is_not() {
        let text = r#"{"a": [1, -2, 0.5, null, true, "\u00e9", {"b": {}}], "c": 18446744073709551615}"#;
        let read = serde_json::from_str::<Strict>(text).unwrap().0;
        assert_eq!(read, serde_json::from_str::<Value>(text).unwrap());
        for twice in [r#"{"a": 1, "a": 1}"#, r#"[{"x": {"a": 1, "b": 2, "a": 3}}]"#, r#"{"a": 1, "\u0061": 2}"#] {
            let no = serde_json::from_str::<Strict>(twice).err().unwrap().to_string();
            assert!(no.contains("the field \"a\" is there twice"), "{no}");
        }
        assert!(serde_json::from_str::<Strict>(&"[".repeat(1_000)).is_err());
    }
}
