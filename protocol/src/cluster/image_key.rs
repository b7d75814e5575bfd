//! Keys with which images of jobs are encrypted: what the coordinator hands to machines on which a job is placed.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The key of one job's images: whoever has it reads them all.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobKey([u8; 32]);

impl JobKey {
    /// That of these bytes.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKey(..)")
    }
}

impl From<JobKey> for String {
    fn from(key: JobKey) -> Self {
        blake3::Hash::from_bytes(key.0).to_hex().to_string()
    }
}

impl TryFrom<String> for JobKey {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let digits = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let known = (text.len() == 64 && text.bytes().all(digits)).then_some(text);
        let hash = known.and_then(|text| blake3::Hash::from_hex(text).ok());
        hash.map(|hash| Self(*hash.as_bytes()))
            .ok_or("a key is written as 64 lower-case hexadecimal digits")
    }
}

/// How new images are encrypted. Older ones are read as they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encryption {
    /// Equal content of a job is stored once. Whoever holds images sees which chunks of the job's images are equal.
    #[default]
    Shared,
    /// Each image has a key of its own: no two images of a job have anything in common, and every checkpoint stores all.
    Apart,
    /// Not at all.
    Off,
}

/// What a machine must know of a job's images.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageKeys {
    /// The job.
    pub job: String,
    /// Its key.
    pub key: JobKey,
    /// How new images are encrypted.
    #[serde(default)]
    pub encryption: Encryption,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_spelling_and_is_not_shown() {
        let key = JobKey::new([0xab; 32]);
        let text = serde_json::to_string(&key).unwrap();
        assert_eq!(text, format!("\"{}\"", "ab".repeat(32)));
        assert_eq!(serde_json::from_str::<JobKey>(&text).unwrap(), key);
        assert!(serde_json::from_str::<JobKey>(&text.to_uppercase()).is_err());
        assert!(serde_json::from_str::<JobKey>("\"ab\"").is_err());
        let keys = ImageKeys { job: "a".into(), key, encryption: Encryption::Shared };
        assert!(!format!("{keys:?}").contains("abab"));
    }
}
