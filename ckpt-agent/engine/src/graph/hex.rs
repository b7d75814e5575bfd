//! Bytes as hexadecimal text, for registers and siginfo in JSON.

use super::super::error::{EngineError, Result};

/// Two lower-case digits a byte. Registers of thousands of threads are written like this while the job stands.
pub fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |number: u8| char::from(DIGITS[usize::from(number & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// The bytes of [`to_hex`].
///
/// # Errors
/// [`EngineError::Damaged`] where the text is not of that form.
pub fn from_hex(text: &str) -> Result<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16);
    let bytes = text.as_bytes();
    if bytes.len() % 2 != 0 {
        return Err(EngineError::Damaged("an odd number of hexadecimal digits".into()));
    }
    bytes
        .chunks_exact(2)
        .map(|pair| match (digit(pair[0]), digit(pair[1])) {
            (Some(high), Some(low)) => Ok((high * 16 + low) as u8),
            _ => Err(EngineError::Damaged("text that is not hexadecimal".into())),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&all)).unwrap(), all);
        assert_eq!(to_hex(&[0, 0x0f, 0xa5, 0xff]), "000fa5ff");
        assert!(from_hex("0").is_err());
        assert!(from_hex("0g").is_err());
        assert!(from_hex("é0").is_err());
    }
}
