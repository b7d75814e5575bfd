//! Enums whose variant is named by a field among the variant's own: `{"ask":"hello","version":2}`.
//!
//! serde has these too (`tag = "ask"`), but reads each of them into a tree first and then the tree into the enum, with code
//! for that for every type below. What ckptd writes has the tag in front, so it is read as it comes; what others write may
//! have it anywhere, and is put in order first.

use std::fmt::{self, Formatter};
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IgnoredAny, MapAccess, VariantAccess, Visitor,
};
use serde::ser::{Error as _, Impossible, Serialize, SerializeStruct, Serializer};
use serde_json::{Map, Value};

use super::Strict;

/// An enum that [`crate::tagged!`] was said of.
pub trait Tagged: Sized {
    /// Its name in Rust, for errors.
    const NAME: &'static str;
    /// The field that names the variant.
    const TAG: &'static str;

    /// Reads it as serde reads an enum by itself.
    ///
    /// # Errors
    /// Those of the deserializer.
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error>;
}

/// Makes an enum of unit, struct and newtype variants (of structures, or of such enums again) internally tagged. It derives
/// Serialize and Deserialize with `#[serde(remote = "Self")]`, by which the derived functions are its own, not the traits'.
#[macro_export]
macro_rules! tagged {
    ($type:ident, $tag:literal) => {
        impl ::serde::Serialize for $type {
            fn serialize<S: ::serde::Serializer>(
                &self,
                to: S,
            ) -> ::std::result::Result<S::Ok, S::Error> {
                $type::serialize(self, $crate::json::tagged::Writer::new($tag, to))
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $type {
            fn deserialize<D: ::serde::Deserializer<'de>>(
                from: D,
            ) -> ::std::result::Result<Self, D::Error> {
                from.deserialize_map($crate::json::tagged::Reader::new())
            }
        }

        impl $crate::json::tagged::Tagged for $type {
            const NAME: &'static str = stringify!($type);
            const TAG: &'static str = $tag;

            fn read<'de, D: ::serde::Deserializer<'de>>(
                from: D,
            ) -> ::std::result::Result<Self, D::Error> {
                $type::deserialize(from)
            }
        }
    };
}

/// Reads a [`Tagged`] enum out of an object.
pub struct Reader<T>(PhantomData<T>);

impl<T> Reader<T> {
    /// One for the enum.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "the macro names it")]
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

impl<'de, T: Tagged> Visitor<'de> for Reader<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "internally tagged enum {}", T::NAME)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<T, A::Error> {
        match fields.next_key_seed(KeyOf(T::TAG))? {
            None => Err(Error::missing_field(T::TAG)),
            Some(Key::Tag) => T::read(AtTag(fields)),
            Some(Key::Other(first)) => in_order(first, fields),
        }
    }
}

/// Reads fields among which the tag is not the first.
fn in_order<'de, T: Tagged, A: MapAccess<'de>>(
    first: String,
    mut fields: A,
) -> Result<T, A::Error> {
    let mut all = Map::new();
    all.insert(first, fields.next_value()?);
    while let Some((key, value)) = fields.next_entry::<String, Value>()? {
        all.insert(key, value);
    }
    let tag = all.remove(T::TAG).ok_or_else(|| Error::missing_field(T::TAG))?;
    let mut text = format!("{{{}:{tag}", Value::from(T::TAG));
    for (key, value) in all {
        text += &format!(",{}:{value}", Value::from(key));
    }
    text.push('}');
    // Of the same kind as the reader of all texts: another is as much code again for every type.
    let mut reader = serde_json::Deserializer::from_slice(text.as_bytes());
    Strict(&mut reader).deserialize_map(Reader::new()).map_err(|error| {
        let said = error.to_string();
        // Nobody has seen the text in which that place is.
        Error::custom(said.rsplit_once(" at line ").map_or(said.as_str(), |(what, _)| what))
    })
}

/// What a key is.
enum Key {
    Tag,
    Other(String),
}

/// Tells the tag from other keys.
struct KeyOf(&'static str);

impl<'de> DeserializeSeed<'de> for KeyOf {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Key, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyOf {
    type Value = Key;

    fn expecting(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Key, E> {
        Ok(if key == self.0 { Key::Tag } else { Key::Other(key.to_owned()) })
    }
}

/// An object of which the tag was read, but not yet the variant's name, which is its value.
struct AtTag<A>(A);

impl<'de, A: MapAccess<'de>> Deserializer<'de> for AtTag<A> {
    type Error = A::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, A::Error> {
        visitor.visit_enum(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, A: MapAccess<'de>> EnumAccess<'de> for AtTag<A> {
    type Error = A::Error;
    type Variant = Fields<A>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        mut self,
        seed: S,
    ) -> Result<(S::Value, Fields<A>), A::Error> {
        let variant = self.0.next_value_seed(seed)?;
        Ok((variant, Fields(self.0)))
    }
}

/// The fields after the tag: of a variant while reading, of a structure while writing.
pub struct Fields<A>(A);

impl<'de, A: MapAccess<'de>> VariantAccess<'de> for Fields<A> {
    type Error = A::Error;

    fn unit_variant(mut self) -> Result<(), A::Error> {
        while self.0.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        seed.deserialize(MapAccessDeserializer::new(self.0))
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        _count: usize,
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        Err(Error::invalid_type(serde::de::Unexpected::Map, &visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        visitor.visit_map(self.0)
    }
}

/// What an enum with its tag inside can't be.
const NO_OBJECT: &str = "a variant with its tag inside is an object";

macro_rules! refuse {
    ($($method:ident($($type:ty),*) -> $made:ty),* $(,)?) => { $(
        fn $method(self, $(_: $type),*) -> Result<$made, S::Error> {
            Err(S::Error::custom(NO_OBJECT))
        }
    )* };
}

/// All of a serializer that only knows objects, but for those.
macro_rules! objects_only {
    () => {
        type Ok = S::Ok;
        type Error = S::Error;
        type SerializeSeq = Impossible<S::Ok, S::Error>;
        type SerializeTuple = Impossible<S::Ok, S::Error>;
        type SerializeTupleStruct = Impossible<S::Ok, S::Error>;
        type SerializeTupleVariant = Impossible<S::Ok, S::Error>;
        type SerializeMap = Impossible<S::Ok, S::Error>;

        refuse! {
            serialize_bool(bool) -> S::Ok,
            serialize_i8(i8) -> S::Ok,
            serialize_i16(i16) -> S::Ok,
            serialize_i32(i32) -> S::Ok,
            serialize_i64(i64) -> S::Ok,
            serialize_u8(u8) -> S::Ok,
            serialize_u16(u16) -> S::Ok,
            serialize_u32(u32) -> S::Ok,
            serialize_u64(u64) -> S::Ok,
            serialize_f32(f32) -> S::Ok,
            serialize_f64(f64) -> S::Ok,
            serialize_char(char) -> S::Ok,
            serialize_str(&str) -> S::Ok,
            serialize_bytes(&[u8]) -> S::Ok,
            serialize_none() -> S::Ok,
            serialize_unit() -> S::Ok,
            serialize_unit_struct(&'static str) -> S::Ok,
            serialize_seq(Option<usize>) -> Self::SerializeSeq,
            serialize_tuple(usize) -> Self::SerializeTuple,
            serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct,
            serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Self::SerializeTupleVariant,
            serialize_map(Option<usize>) -> Self::SerializeMap,
        }

        fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<S::Ok, S::Error> {
            Err(S::Error::custom(NO_OBJECT))
        }

        fn serialize_newtype_struct<T: Serialize + ?Sized>(
            self,
            _: &'static str,
            value: &T,
        ) -> Result<S::Ok, S::Error> {
            value.serialize(self)
        }
    };
}

/// Writes an enum as an object with the tag in front.
pub struct Writer<S> {
    tag: &'static str,
    to: S,
}

impl<S: Serializer> Writer<S> {
    /// One that writes with this tag to a serializer.
    pub fn new(tag: &'static str, to: S) -> Self {
        Self { tag, to }
    }
}

impl<S: Serializer> Serializer for Writer<S> {
    type SerializeStruct = Impossible<S::Ok, S::Error>;
    type SerializeStructVariant = Fields<S::SerializeStruct>;

    objects_only!();

    refuse! { serialize_struct(&'static str, usize) -> Self::SerializeStruct }

    fn serialize_unit_variant(
        self,
        name: &'static str,
        _index: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        Variant { tag: self.tag, variant, to: self.to }.serialize_struct(name, 0)?.end()
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        value.serialize(Variant { tag: self.tag, variant, to: self.to })
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        _index: u32,
        variant: &'static str,
        count: usize,
    ) -> Result<Fields<S::SerializeStruct>, S::Error> {
        Variant { tag: self.tag, variant, to: self.to }.serialize_struct(name, count).map(Fields)
    }
}

/// Writes the structure of a variant: its fields after the tag.
struct Variant<S> {
    tag: &'static str,
    variant: &'static str,
    to: S,
}

impl<S: Serializer> Serializer for Variant<S> {
    type SerializeStruct = S::SerializeStruct;
    type SerializeStructVariant = Impossible<S::Ok, S::Error>;

    objects_only!();

    refuse! {
        serialize_unit_variant(&'static str, u32, &'static str) -> S::Ok,
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Self::SerializeStructVariant,
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom(NO_OBJECT))
    }

    fn serialize_struct(
        self,
        name: &'static str,
        count: usize,
    ) -> Result<S::SerializeStruct, S::Error> {
        let mut fields = self.to.serialize_struct(name, count + 1)?;
        fields.serialize_field(self.tag, self.variant)?;
        Ok(fields)
    }
}

impl<F: SerializeStruct> serde::ser::SerializeStructVariant for Fields<F> {
    type Ok = F::Ok;
    type Error = F::Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), F::Error> {
        self.0.serialize_field(key, value)
    }

    fn skip_field(&mut self, key: &'static str) -> Result<(), F::Error> {
        self.0.skip_field(key)
    }

    fn end(self) -> Result<F::Ok, F::Error> {
        self.0.end()
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::super::read;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Inner {
        number: u8,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        more: Option<Box<Inner>>,
    }

    /// The same twice: with this module, and as serde has it.
    macro_rules! both {
        ($({ $($name:ident)* })*) => { $( both!(@ $($name)*); )* };
        (@ $ours:ident $theirs:ident $inner_ours:ident $inner_theirs:ident) => {
            #[derive(Debug, PartialEq, Serialize, Deserialize)]
            #[serde(remote = "Self", rename_all = "kebab-case")]
            enum $inner_ours { Plain, In { text: String } }
            crate::tagged!($inner_ours, "inside");

            #[derive(Debug, PartialEq, Serialize, Deserialize)]
            #[serde(remote = "Self", rename_all = "kebab-case")]
            enum $ours {
                Nothing,
                Named { inner: Inner, #[serde(default, skip_serializing_if = "Vec::is_empty")] list: Vec<$ours> },
                New(Box<Inner>),
                Nested($inner_ours),
            }
            crate::tagged!($ours, "kind");

            #[derive(Debug, PartialEq, Serialize, Deserialize)]
            #[serde(tag = "inside", rename_all = "kebab-case")]
            enum $inner_theirs { Plain, In { text: String } }

            #[derive(Debug, PartialEq, Serialize, Deserialize)]
            #[serde(tag = "kind", rename_all = "kebab-case")]
            enum $theirs {
                Nothing,
                Named { inner: Inner, #[serde(default, skip_serializing_if = "Vec::is_empty")] list: Vec<$theirs> },
                New(Box<Inner>),
                Nested($inner_theirs),
            }
        };
    }
    both! { { Ours Theirs OursInside TheirsInside } }

    const TEXTS: [&str; 9] = [
        r#"{"kind":"nothing"}"#,
        r#"{"kind":"nothing","unknown":[1]}"#,
        r#"{"unknown":{"a":1.5},"kind":"nothing"}"#,
        r#"{"kind":"named","inner":{"number":1},"list":[{"kind":"nothing"}]}"#,
        r#"{"inner":{"number":1,"more":{"number":2}},"list":[{"number":3,"kind":"new"}],"kind":"named"}"#,
        r#"{"kind":"new","number":4,"more":{"number":5}}"#,
        r#"{"kind":"nested","inside":"plain"}"#,
        r#"{"inside":"in","text":"a\"\nb","kind":"nested"}"#,
        r#"{"kind":"nested","text":"t","inside":"in"}"#,
    ];

    #[test]
    fn what_is_read_and_written_is_what_serde_reads_and_writes() {
        for text in TEXTS {
            let (ours, theirs): (Ours, Theirs) =
                (read(text.as_bytes()).unwrap(), serde_json::from_str(text).unwrap());
            assert_eq!(format!("{ours:?}").replace("Ours", "Theirs"), format!("{theirs:?}"));
            let written = serde_json::to_string(&ours).unwrap();
            assert_eq!(written, serde_json::to_string(&theirs).unwrap());
            assert_eq!(read::<Ours>(written.as_bytes()).unwrap(), ours);
        }
    }

    #[test]
    fn what_is_no_such_enum_is_refused() {
        for (text, why) in [
            ("{}", "missing field `kind`"),
            (r#"{"number":1}"#, "missing field `kind`"),
            (r#"{"kind":"other"}"#, "unknown variant `other`, expected one of"),
            (r#"{"number":1,"kind":"other"}"#, "unknown variant `other`, expected one of"),
            (r#"{"kind":7}"#, "invalid type: integer `7`, expected variant identifier"),
            (r#"{"kind":"named"}"#, "missing field `inner`"),
            (r#"["nothing"]"#, "invalid type: sequence, expected internally tagged enum Ours"),
            (
                r#""nothing""#,
                "invalid type: string \"nothing\", expected internally tagged enum Ours",
            ),
        ] {
            let error = read::<Ours>(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(why), "{text}: {error}");
            assert!(serde_json::from_str::<Theirs>(text).is_err() || text.starts_with('['));
        }
    }
}
