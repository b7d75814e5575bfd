//! Paths as an image has them: text, whatever bytes they are of.
//!
//! Bytes that are no UTF-8 are written as NUL and two hexadecimal digits. No path has a NUL, so that nothing else needs to be written
//! in another way, and every path of an older image is as it was.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Stands before the digits of a byte.
const MARK: char = '\0';

/// A path as text.
pub fn text(path: impl AsRef<OsStr>) -> String {
    of_bytes(path.as_ref().as_bytes())
}

/// The same of text from /proc that has paths in it.
pub fn of_bytes(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a string never fails.
            let _ = write!(text, "{MARK}{byte:02x}");
        }
    }
    text
}

/// The path that a text stands for. A NUL without digits stays one: no system call takes it.
pub fn path(text: &str) -> Cow<'_, Path> {
    match bytes(text) {
        Cow::Borrowed(bytes) => Cow::Borrowed(Path::new(OsStr::from_bytes(bytes))),
        Cow::Owned(bytes) => Cow::Owned(PathBuf::from(OsString::from_vec(bytes))),
    }
}

/// Its bytes.
pub fn bytes(text: &str) -> Cow<'_, [u8]> {
    if !text.contains(MARK) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split(MARK);
    bytes.extend(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        // What is UTF-8 is never written so.
        let byte = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte.filter(|byte| *byte >= 0x80) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend(&part.as_bytes()[2..]);
            }
            None => {
                bytes.push(0);
                bytes.extend(part.as_bytes());
            }
        }
    }
    Cow::Owned(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_comes_back() {
        let names: [&[u8]; 6] = [
            b"/plain",
            b"/\xff\xfe",
            b"/a\xe4b/\xc3\xa4",
            b"/\xf0\x9f",
            "/\u{10ffff}".as_bytes(),
            b"",
        ];
        for name in names {
            let text = text(OsStr::from_bytes(name));
            assert_eq!(path(&text).as_os_str().as_bytes(), name);
            assert_eq!(text.contains(MARK), std::str::from_utf8(name).is_err());
        }
    }

    #[test]
    fn what_no_dump_writes_leads_nowhere() {
        for odd in ["/a\0", "/a\0zz", "/a\x0041", "/a\0\u{e4}", "\0"] {
            assert!(path(odd).as_os_str().as_bytes().contains(&0), "{odd:?}");
        }
    }
}
