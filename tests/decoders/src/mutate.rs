//! Valid bytes made wrong.

use crate::random::Random;

/// Numbers at the edges of types.
const EDGES: [&str; 14] = [
    "0",
    "-1",
    "1",
    "255",
    "65535",
    "65536",
    "2147483647",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "1e308",
    "-0.0",
];

/// Pieces of JSON that belong somewhere else.
const PIECES: [&str; 12] = [
    "null",
    "[]",
    "{}",
    "\"\"",
    "true",
    "[[[[[[[[",
    "\"../../x\"",
    "\"\\u0000\"",
    "{\"a\":",
    "[null,null]",
    "\u{fffd}",
    "\n",
];

/// A copy of `seed` with up to a dozen changes, at most 64 KiB longer; `other` gives what is spliced in.
#[must_use]
pub fn mutated(seed: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(12) {
        change(&mut bytes, other, random);
        bytes.truncate(seed.len() + 65_536);
    }
    bytes
}

fn change(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    let to = (at + random.below(24)).min(bytes.len());
    match random.below(10) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = *random.pick(&[0, 1, 0x7f, 0x80, 0xff, b'"', b'{', b'[']).unwrap_or(&0);
            }
        }
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at..to)),
        4 => {
            let again = bytes[at..to].to_vec();
            bytes.splice(at..at, again);
        }
        5 => {
            let from = random.below(other.len() + 1);
            let until = (from + random.below(200)).min(other.len());
            bytes.splice(at..to, other[from..until].iter().copied());
        }
        6 => number(bytes, at, random),
        7 => {
            let piece = random.pick(&PIECES).unwrap_or(&"");
            bytes.splice(at..to, piece.bytes());
        }
        8 => {
            // A length, as frames have it.
            let length = random.pick(&[0, 1, 0xff, 0xffff, 1 << 24, u32::MAX]).unwrap_or(&0);
            for (byte, new) in bytes.iter_mut().skip(4 * random.below(3)).zip(length.to_be_bytes())
            {
                *byte = new;
            }
        }
        _ => {
            let from = random.below(bytes.len() + 1);
            let until = (from + random.below(64)).min(bytes.len());
            let moved = bytes[from..until].to_vec();
            let at = at.min(bytes.len());
            bytes.splice(at..at, moved);
        }
    }
}

/// Puts another number in the place of the first one behind `at`.
fn number(bytes: &mut Vec<u8>, at: usize, random: &mut Random) {
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let Some(start) = bytes[at..].iter().position(is_digit).map(|found| at + found) else { return };
    let length = bytes[start..].iter().take_while(|byte| is_digit(byte)).count();
    let edge = random.pick(&EDGES).unwrap_or(&"0");
    bytes.splice(start..start + length, edge.bytes());
}
