//! Bytes as hexadecimal text, for registers and siginfo in JSON.

use super::super::error::{EngineError, Result};

/// Zeros are looked for in blocks of so many bytes, from the start.
const BLOCK: usize = 16;

/// Two lower-case digits a byte. Registers of thousands of threads are written like this while the job stands.
pub fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    push(&mut text, bytes);
    text
}

fn push(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        for half in [byte >> 4, byte & 15] {
            text.push(char::from(DIGITS[usize::from(half)]));
        }
    }
}

/// Like [`to_hex`], but blocks of zeros are counted: `7f(24)80` is 7f, 24 zeros, and 80. Registers of vectors and tiles
/// are mostly zeros, and an image has them of each thread.
pub fn to_sparse_hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut zeros = 0;
    for block in bytes.chunks(BLOCK) {
        if block == &[0; BLOCK][..block.len()] {
            zeros += block.len();
            continue;
        }
        count(&mut text, std::mem::take(&mut zeros));
        push(&mut text, block);
    }
    count(&mut text, zeros);
    text
}

fn count(text: &mut String, zeros: usize) {
    if zeros > 0 {
        *text += &format!("({zeros})");
    }
}

/// The bytes of [`to_sparse_hex`], or of [`to_hex`].
///
/// # Errors
/// [`EngineError::Damaged`] where the text is of neither form, or stands for more than `most` bytes.
pub fn from_sparse_hex(text: &str, most: usize) -> Result<Vec<u8>> {
    let damaged = |what: &str| EngineError::Damaged(what.to_owned());
    let mut bytes = Vec::new();
    let mut rest = text;
    loop {
        let (plain, after) = rest.split_once('(').map_or((rest, None), |(a, b)| (a, Some(b)));
        bytes.extend(from_hex(plain)?);
        let counted = after.map(|after| after.split_once(')').ok_or(after)).transpose();
        let counted = counted.map_err(|_| damaged("a number of zeros without an end"))?;
        let zeros = counted.map_or(Ok(0), |(zeros, _)| zeros.parse::<usize>());
        let zeros = zeros.map_err(|_| damaged("an odd number of zeros"))?;
        let length = bytes.len().checked_add(zeros).filter(|length| *length <= most);
        bytes.resize(length.ok_or_else(|| damaged("more bytes than there may be"))?, 0);
        match counted {
            Some((_, after)) => rest = after,
            None => return Ok(bytes),
        }
    }
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
    fn zeros_in_a_row_are_counted() {
        let zeros = |count: usize| vec![0; count];
        let cases = [
            (Vec::new(), ""),
            (zeros(20), "(20)"),
            (zeros(3), "(3)"),
            (vec![0, 0x7f, 0], "007f00"),
            ([vec![0x11; 16], zeros(48), vec![0x80]].concat(), &("11".repeat(16) + "(48)80")),
            (
                [zeros(16), vec![1; 16], zeros(8000)].concat(),
                &format!("(16){}(8000)", "01".repeat(16)),
            ),
        ];
        for (bytes, text) in cases {
            let told = to_sparse_hex(&bytes);
            assert_eq!(told, text, "of {bytes:?}");
            assert_eq!(from_sparse_hex(&told, bytes.len()).unwrap(), bytes, "{told}");
            assert!(bytes.is_empty() || from_sparse_hex(&told, bytes.len() - 1).is_err(), "{told}");
        }
        assert_eq!(from_sparse_hex("00ff00", 3).unwrap(), [0, 0xff, 0], "as images had it before");
    }

    #[test]
    fn damage_is_no_number_of_zeros() {
        for text in ["(", "(5", "5)", "(-1)", "(x)", "0(1)", "(18446744073709551616)", "((1))"] {
            assert!(from_sparse_hex(text, 100).is_err(), "{text}");
        }
        assert!(from_sparse_hex("ff(18446744073709551615)", usize::MAX).is_err());
        assert!(from_sparse_hex("(99)(99)", 100).is_err());
    }

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
