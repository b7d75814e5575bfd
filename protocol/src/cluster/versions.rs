//! Which versions of the conversations an executable speaks.

use std::fmt::{self, Formatter};

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What this executable speaks, in all conversations of a cluster.
///
/// What may change from one to the next, and when the oldest is given up: docs/src/internals/formats.md.
pub const VERSIONS: Versions = Versions { oldest: 6, newest: 6 };

/// All versions from one to another. Whoever connects names them in its first message: as a number where it is one, else as a
/// list of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    oldest: u32,
    newest: u32,
}

impl Versions {
    /// Of those that do not name theirs.
    #[must_use]
    pub fn first() -> Self {
        Self { oldest: 6, newest: 6 }
    }

    /// From `oldest` to `newest`; `None`: there is nothing between them.
    #[must_use]
    pub fn between(oldest: u32, newest: u32) -> Option<Self> {
        (oldest <= newest).then_some(Self { oldest, newest })
    }

    /// The newest that both sides speak: neither says anything to the other that this version has not.
    #[must_use]
    pub fn common(self, other: Self) -> Option<u32> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { oldest, newest } = self;
        if oldest == newest { write!(f, "{newest}") } else { write!(f, "{oldest} to {newest}") }
    }
}

impl Serialize for Versions {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { oldest, newest } = self;
        if oldest == newest { newest.serialize(to) } else { [oldest, newest].serialize(to) }
    }
}

impl<'de> Deserialize<'de> for Versions {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(OneOrTwo)
    }
}

struct OneOrTwo;

impl<'de> Visitor<'de> for OneOrTwo {
    type Value = Versions;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("a version (one u32 or a list of the oldest and the newest)")
    }

    fn visit_u64<E: Error>(self, version: u64) -> Result<Versions, E> {
        let version = u32::try_from(version).map_err(|_| E::custom("there is no such version"))?;
        Ok(Versions { oldest: version, newest: version })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Versions, A::Error> {
        let wrong = || A::Error::custom("they are not two versions in order");
        let oldest = list.next_element()?.ok_or_else(wrong)?;
        let newest = list.next_element()?.ok_or_else(wrong)?;
        if list.next_element::<u32>()?.is_some() {
            return Err(wrong());
        }
        Versions::between(oldest, newest).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::client::Ask;
    use crate::json;

    fn versions(oldest: u32, newest: u32) -> Versions {
        Versions::between(oldest, newest).expect("in order")
    }

    #[test]
    fn two_that_are_one_version_apart_speak_the_older_ones() {
        // The older one has given up what was before it, the newer one speaks what the older one does.
        for (mine, its, common) in [
            (versions(6, 6), versions(6, 6), Some(6)),
            (versions(6, 6), versions(6, 7), Some(6)),
            (versions(6, 7), versions(7, 8), Some(7)),
            (versions(5, 9), versions(6, 7), Some(7)),
            (versions(6, 6), versions(7, 8), None),
            (versions(6, 7), versions(8, 9), None),
        ] {
            assert_eq!(mine.common(its), common, "{mine}; {its}");
            assert_eq!(its.common(mine), common, "{its}; {mine}");
        }
        assert_eq!(Versions::between(7, 6), None);
    }

    #[test]
    fn one_version_is_a_number_as_it_always_was() {
        for (mine, text) in [
            (versions(6, 6), r#"{"ask":"hello","version":6}"#),
            (versions(6, 7), r#"{"ask":"hello","version":[6,7]}"#),
        ] {
            let ask = Ask::Hello { version: mine };
            assert_eq!(serde_json::to_string(&ask).expect("JSON"), text);
            assert_eq!(json::read::<Ask>(text.as_bytes()).expect("a message"), ask);
        }
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for version in
            ["-1", "4294967296", "[]", "[6]", "[7,6]", "[6,7,8]", "\"6\"", "null", "6.5", "{}"]
        {
            let text = format!(r#"{{"ask":"hello","version":{version}}}"#);
            assert!(json::read::<Ask>(text.as_bytes()).is_err(), "{version}");
        }
    }
}
