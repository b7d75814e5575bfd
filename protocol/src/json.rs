//! JSON that comes from others, or from files.
//!
//! serde's readers take a list of values for a structure, too, and code for that comes with every structure and every
//! deserializer: one that asks for objects only is stricter, and makes the executables smaller by a fortieth.

mod modest;
pub mod tagged;

pub use modest::modest;

use std::fmt::{self, Formatter};
use std::io::Write;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The value that a text is, to its end.
///
/// # Errors
/// Where it is none of that type.
pub fn read<'de, T: Deserialize<'de>>(text: &'de [u8]) -> serde_json::Result<T> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = T::deserialize(Strict(&mut reader))?;
    reader.end()?;
    Ok(value)
}

/// Writes a value. All that is written by this one shares its code, wherever it goes.
///
/// # Errors
/// Where it can't be written, or is no JSON.
pub fn write(to: &mut dyn Write, value: &impl Serialize) -> serde_json::Result<()> {
    serde_json::to_writer(to, value)
}

/// What a value is in JSON. It goes by its text: writers to and readers from [`Value`] are as much code again for every type.
///
/// # Errors
/// Where it is no JSON.
pub fn to_value(value: &impl Serialize) -> serde_json::Result<Value> {
    let mut text = Vec::new();
    write(&mut text, value)?;
    read(&text)
}

/// The value of a type that JSON is, likewise.
///
/// # Errors
/// Where it is none of that type.
pub fn of_value<T: DeserializeOwned>(value: &Value) -> serde_json::Result<T> {
    read(&serde_json::to_vec(value)?)
}

/// Passes everything on, wrapped likewise, and asks for an object where a structure is to be.
struct Strict<T>(T);

/// The fields of a variant.
struct Fields<V>(V);

macro_rules! ask {
    ($($method:ident($($argument:ident: $type:ty),*)),* $(,)?) => { $(
        fn $method<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method($($argument,)* Strict(visitor))
        }
    )* };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<D> {
    type Error = D::Error;

    ask! {
        deserialize_any(), deserialize_bool(),
        deserialize_i8(), deserialize_i16(), deserialize_i32(), deserialize_i64(), deserialize_i128(),
        deserialize_u8(), deserialize_u16(), deserialize_u32(), deserialize_u64(), deserialize_u128(),
        deserialize_f32(), deserialize_f64(), deserialize_char(),
        deserialize_str(), deserialize_string(), deserialize_bytes(), deserialize_byte_buf(),
        deserialize_option(), deserialize_unit(), deserialize_seq(), deserialize_map(),
        deserialize_identifier(), deserialize_ignored_any(),
        deserialize_unit_struct(name: &'static str),
        deserialize_newtype_struct(name: &'static str),
        deserialize_tuple(count: usize),
        deserialize_tuple_struct(name: &'static str, count: usize),
        deserialize_enum(name: &'static str, variants: &'static [&'static str]),
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Strict(visitor))
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

macro_rules! tell {
    ($($method:ident($type:ty)),* $(,)?) => { $(
        fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.0.$method(value)
        }
    )* };
}

macro_rules! tell_wrapped {
    ($($method:ident: $trait:ident),* $(,)?) => { $(
        fn $method<A: $trait<'de>>(self, access: A) -> Result<V::Value, A::Error> {
            self.0.$method(Strict(access))
        }
    )* };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Strict<V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        self.0.expecting(formatter)
    }

    tell! {
        visit_bool(bool), visit_char(char), visit_f32(f32), visit_f64(f64),
        visit_i8(i8), visit_i16(i16), visit_i32(i32), visit_i64(i64), visit_i128(i128),
        visit_u8(u8), visit_u16(u16), visit_u32(u32), visit_u64(u64), visit_u128(u128),
        visit_str(&str), visit_borrowed_str(&'de str), visit_string(String),
        visit_bytes(&[u8]), visit_borrowed_bytes(&'de [u8]), visit_byte_buf(Vec<u8>),
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    tell_wrapped! {
        visit_some: Deserializer,
        visit_newtype_struct: Deserializer,
        visit_seq: SeqAccess,
        visit_map: MapAccess,
        visit_enum: EnumAccess,
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Strict<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Strict(from))
    }
}

impl<'de, V: Visitor<'de>> DeserializeSeed<'de> for Fields<V> {
    type Value = V::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        from.deserialize_map(Strict(self.0))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Strict<A> {
    type Error = A::Error;

    // A key is a text or a number.
    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Strict<A> {
    type Error = A::Error;
    type Variant = Strict<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), A::Error> {
        self.0.variant_seed(seed).map(|(value, variant)| (value, Strict(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.0.newtype_variant_seed(Strict(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(count, Strict(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.newtype_variant_seed(Fields(visitor))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Inner {
        number: u8,
        #[serde(default)]
        text: Option<String>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Kind {
        Plain,
        New(Inner),
        Pair(u8, Inner),
        Named { inner: Inner },
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(tag = "kind")]
    enum Tagged {
        One { inner: Inner },
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Outer<'a> {
        borrowed: &'a str,
        list: Vec<Inner>,
        map: BTreeMap<u32, Inner>,
        kinds: Vec<Kind>,
        tuple: (u64, Inner),
        tagged: Tagged,
        any: serde_json::Value,
    }

    const TEXT: &str = r#" {"borrowed": "b", "list": [{"number": 1, "text": "x\ny"}], "map": {"7": {"number": 2, "text": null}},
        "kinds": ["plain", {"new": {"number": 3}}, {"pair": [4, {"number": 5}]}, {"named": {"inner": {"number": 6}}}],
        "tuple": [8, {"number": 9}], "tagged": {"inner": {"number": 10}, "kind": "One"}, "any": [1, {"a": -1.5}], "more": {}} "#;

    #[test]
    fn what_is_read_is_what_serde_json_reads() {
        let read: Outer<'_> = read(TEXT.as_bytes()).unwrap();
        assert_eq!(read, serde_json::from_str(TEXT).unwrap());
        assert_eq!(read.kinds.len(), 4);
    }

    #[test]
    fn a_list_is_no_structure() {
        for text in ["[1, null]", r#"{"number": 1"#, r#"{"number": 1} {}"#, "7", ""] {
            assert!(read::<Inner>(text.as_bytes()).is_err(), "{text}");
        }
        for text in [r#"{"named": [{"number": 1}]}"#, r#"{"new": [1, null]}"#, r#""named""#] {
            assert!(read::<Kind>(text.as_bytes()).is_err(), "{text}");
        }
        let error = read::<Inner>(b"[1, null]").unwrap_err().to_string();
        assert_eq!(error, "invalid type: sequence, expected struct Inner at line 1 column 0");
    }

    #[test]
    fn nesting_is_limited() {
        let deep = "[".repeat(100_000);
        assert!(read::<serde_json::Value>(deep.as_bytes()).is_err());
    }
}
