//! The head of an encrypted archive. What parses it reads it again and again as it grows, without a limit: it is given
//! a head that is whole, and no longer than that of as many recipients as an export takes.

use super::KeyError;
use super::keys::MOST_RECIPIENTS;
use std::io::{BufRead, Read};

/// The longest head, in bytes: keys of RSA with 16384 bits take 2.8 KB each.
const LONGEST: u64 = 256 << 10;
/// The first line, which names the version.
const FIRST: &[u8] = b"age-encryption.org/v1\n";
/// What begins the lines of a recipient.
const STANZA: &[u8] = b"-> ";
/// What begins the last line.
const LAST: &[u8] = b"---";

/// The bytes of the head, up to the end of its last line.
pub fn read(from: &mut impl BufRead) -> Result<Vec<u8>, KeyError> {
    let mut head = Vec::new();
    let mut from = from.take(LONGEST);
    let mut stanzas = 0;
    loop {
        let start = head.len();
        from.read_until(b'\n', &mut head)?;
        let line = &head[start..];
        if !line.ends_with(b"\n") {
            return Err(KeyError::Head);
        }
        if start == 0 && line != FIRST {
            return Err(KeyError::Newer);
        }
        stanzas += usize::from(line.starts_with(STANZA));
        // Programs of age add a recipient that is none, so that readers bear what they don't know.
        if stanzas > 2 * MOST_RECIPIENTS {
            return Err(KeyError::Head);
        }
        if line.starts_with(LAST) {
            return Ok(head);
        }
    }
}
