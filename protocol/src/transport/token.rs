//! Join tokens: what a machine must know to become a member.

use super::{Fingerprint, random};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

const PREFIX: &str = "ckptd1.";

/// The longest token that is read, in characters.
const LONGEST: usize = 4096;

/// Bytes of a secret.
const SECRET: usize = 16;

/// What proves that somebody was given a token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// A fresh one.
    ///
    /// # Errors
    /// Where the system has no randomness.
    pub fn generate() -> Result<Self, rustls::Error> {
        let mut bytes = [0; SECRET];
        random(&mut bytes)?;
        Ok(Self(URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// One that somebody claims to know.
    #[must_use]
    pub fn claimed(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Its text.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What a coordinator keeps in its place.
    #[must_use]
    pub fn hash(&self) -> String {
        blake3::derive_key("ckptd 2026 join token secret", self.0.as_bytes())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A join token: `ckptd1.` and base64 of its JSON form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Where the coordinator may be found, HOST:PORT, best first.
    #[serde(rename = "a")]
    pub addresses: Vec<String>,
    /// The authority's fingerprint.
    #[serde(rename = "f")]
    pub authority: Fingerprint,
    /// The secret.
    #[serde(rename = "s")]
    pub secret: Secret,
}

/// Why a text is no token.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TokenError {
    /// It does not begin as tokens do.
    #[error("it is no join token: one begins with {PREFIX:?} and is made by 'ckptd token'")]
    Foreign,
    /// It is damaged.
    #[error("the join token is damaged: copy it whole, or make another by 'ckptd token'")]
    Damaged,
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let rest = text.trim().strip_prefix(PREFIX).ok_or(TokenError::Foreign)?;
        if rest.len() > LONGEST {
            return Err(TokenError::Damaged);
        }
        let bytes = URL_SAFE_NO_PAD.decode(rest).map_err(|_| TokenError::Damaged)?;
        let token: Self = crate::json::read(&bytes).map_err(|_| TokenError::Damaged)?;
        if token.addresses.is_empty() {
            return Err(TokenError::Damaged);
        }
        Ok(token)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = serde_json::to_vec(self).map_err(|_| fmt::Error)?;
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(json))
    }
}
