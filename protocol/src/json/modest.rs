//! Values of any form, from others: a text of a few kilobytes could otherwise take gigabytes of memory.

use std::cell::Cell;
use std::fmt::{self, Formatter};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// What one may take in memory, in bytes.
const MOST: usize = 16 << 20;
/// What each value in it takes, with what its list has in reserve.
const OF_VALUE: usize = 2 * size_of::<Value>();
/// What an object takes: the standard library's tree makes place for 11 entries at once.
const OF_OBJECT: usize = 11 * (size_of::<Value>() + size_of::<String>());

/// Reads a value that takes 16 MiB of memory at most. For fields: `#[serde(deserialize_with = "…")]`.
///
/// # Errors
/// Where it would take more.
pub fn modest<'de, D: Deserializer<'de>>(from: D) -> Result<Value, D::Error> {
    Within(&Cell::new(MOST)).deserialize(from)
}

/// A value within what is left.
#[derive(Clone, Copy)]
struct Within<'a>(&'a Cell<usize>);

impl Within<'_> {
    fn take<E: Error>(self, bytes: usize) -> Result<(), E> {
        let left = self.0.get().checked_sub(bytes);
        self.0.set(left.ok_or_else(|| E::custom("it is larger than any that is written"))?);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Within<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        self.take(OF_VALUE)?;
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Within<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.take(value.len())?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(self)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        self.take(OF_OBJECT)?;
        let mut values = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            self.take(name.len() + size_of::<String>())?;
            values.insert(name, map.next_value_seed(self)?);
        }
        Ok(Value::Object(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize)]
    struct Holder {
        #[serde(deserialize_with = "modest")]
        value: Value,
    }

    fn read(value: &str) -> Result<Value, String> {
        let text = format!(r#"{{"value": {value}}}"#);
        let read = crate::json::read::<Holder>(text.as_bytes());
        read.map(|holder| holder.value).map_err(|error| error.to_string())
    }

    #[test]
    fn a_value_of_the_usual_size_is_read_as_serde_json_reads_it() {
        let text = r#"{"a": [1, -2, 3.5, null, true, "x\ny", {}, []], "b": {"c": ""}, "a": 4}"#;
        assert_eq!(read(text).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        let long = format!("{:?}", "x".repeat(8 << 20));
        assert_eq!(read(&long).unwrap().as_str().unwrap().len(), 8 << 20);
    }

    #[test]
    fn short_texts_of_large_values_are_refused() {
        let many = |one: &str| format!("[{}0]", format!("{one},").repeat(1 << 20));
        for text in [many("0"), many(r#"{"a":0}"#), many("[]"), format!("{:?}", "x".repeat(MOST))] {
            let error = read(&text).unwrap_err();
            assert!(error.contains("larger than any"), "{error}");
        }
    }
}
