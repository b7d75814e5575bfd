//! Framing: one JSON value a line, each under a limit.

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Why a value could not be framed or read.
#[derive(Debug, Error)]
pub enum FrameError {
    /// The line exceeds its limit.
    #[error("message of {length} bytes exceeds the limit of {limit}")]
    TooLong {
        /// Length of the line.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// The line is not the JSON form of the message that is expected here.
    #[error("malformed message: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// The line of a value, without the newline.
///
/// # Errors
/// [`FrameError::TooLong`] where the line exceeds `limit` bytes.
pub fn encode<T: Serialize>(value: &T, limit: usize) -> Result<String, FrameError> {
    let line = serde_json::to_string(value)?;
    if line.len() > limit {
        return Err(FrameError::TooLong { length: line.len(), limit });
    }
    Ok(line)
}

/// The value of a line.
///
/// # Errors
/// [`FrameError`] where the line is too long or not of that type.
pub fn decode<T: DeserializeOwned>(line: &str, limit: usize) -> Result<T, FrameError> {
    if line.len() > limit {
        return Err(FrameError::TooLong { length: line.len(), limit });
    }
    Ok(crate::json::read(line.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::client::{Ask, MAX_ASK};

    #[test]
    fn a_line_over_the_limit_is_refused_on_both_sides() {
        let text = "x".repeat(100);
        assert!(matches!(encode(&text, 50), Err(FrameError::TooLong { length: 102, limit: 50 })));
        assert!(matches!(
            decode::<String>(&format!("{text:?}"), 50),
            Err(FrameError::TooLong { length: 102, limit: 50 })
        ));
    }

    #[test]
    fn a_request_survives_the_way() {
        let ask = Ask::Stop { job: "fold".into(), checkpoint: true };
        let line = encode(&ask, MAX_ASK).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(decode::<Ask>(&line, MAX_ASK).unwrap(), ask);
        assert!(decode::<Ask>("{\"ask\":1}", MAX_ASK).is_err());
    }
}
