//! A task as it was submitted: a program and its arguments, where, and with what environment.

use crate::farm::quoting::in_quotes;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// The most bytes of all words, and of an environment: the kernel takes no more for both (execve(2)).
pub const MOST: usize = 2 * 1024 * 1024;

/// A task as it was submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// The working directory.
    pub directory: PathBuf,
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// The environment.
    pub environment: Vec<(OsString, OsString)>,
}

/// The same on the disk: words that each end with a NUL, which none of them can hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The name of the environment, the working directory, the words.
    pub task: Vec<u8>,
    /// The name of the environment: its hash, so that one that many tasks share is there once.
    pub name: String,
    /// What is in it.
    pub environment: Vec<u8>,
}

impl Submission {
    /// As bytes; None: it is too large, or no program can have it.
    pub fn write(&self) -> Option<Written> {
        let mut environment = Vec::new();
        for (name, value) in &self.environment {
            environment.extend_from_slice(name.as_bytes());
            environment.push(b'=');
            end_word(&mut environment, value.as_bytes())?;
        }
        let name = blake3::hash(&environment).to_hex().to_string();
        let mut task = Vec::new();
        end_word(&mut task, name.as_bytes())?;
        end_word(&mut task, self.directory.as_os_str().as_bytes())?;
        for word in &self.words {
            end_word(&mut task, word.as_bytes())?;
        }
        let fits = task.len() <= MOST && environment.len() <= MOST && !self.words.is_empty();
        fits.then_some(Written { task, name, environment })
    }

    /// The name of the environment that a task has.
    ///
    /// # Errors
    /// Where it is none.
    pub fn name_of(task: &[u8]) -> io::Result<&str> {
        let name = words(task).next().and_then(|name| std::str::from_utf8(name).ok());
        let is_name =
            |name: &&str| name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        name.filter(is_name).ok_or_else(damaged)
    }

    /// What was written.
    ///
    /// # Errors
    /// Where it was not.
    pub fn read(task: &[u8], environment: &[u8]) -> io::Result<Self> {
        let mut all = words(task).skip(1).map(own);
        let directory = PathBuf::from(all.next().ok_or_else(damaged)?);
        let words_of_task: Vec<OsString> = all.collect();
        if words_of_task.is_empty() {
            return Err(damaged());
        }
        let environment = words(environment).filter_map(|entry| {
            // A name may begin with '='.
            let at = 1 + entry.get(1..)?.iter().position(|byte| *byte == b'=')?;
            Some((own(&entry[..at]), own(&entry[at + 1..])))
        });
        Ok(Self { directory, words: words_of_task, environment: environment.collect() })
    }

    /// The words of a task, as they would be written for the shell.
    pub fn shown(task: &[u8]) -> Vec<u8> {
        let quoted: Vec<Vec<u8>> = words(task).skip(2).map(for_shell).collect();
        quoted.join(&b' ')
    }
}

/// What is read is not what was written.
pub fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is damaged")
}

fn end_word(into: &mut Vec<u8>, word: &[u8]) -> Option<()> {
    if word.contains(&0) || into.len() + word.len() > MOST {
        return None;
    }
    into.extend_from_slice(word);
    into.push(0);
    Some(())
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == 0).map(|word| word.strip_suffix(&[0]).unwrap_or(word))
}

fn own(word: &[u8]) -> OsString {
    OsString::from_vec(word.to_vec())
}

fn for_shell(word: &[u8]) -> Vec<u8> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(byte);
    if !word.is_empty() && word.iter().all(is_plain) {
        return word.to_vec();
    }
    in_quotes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn os(text: &[u8]) -> OsString {
        OsString::from_vec(text.to_vec())
    }

    #[test]
    fn any_bytes_come_back() {
        let submission = Submission {
            directory: PathBuf::from(os(b"/a b/\xff")),
            words: vec![os(b"prog"), os(b""), os(b"it's\n\xfe"), os(b"-n"), os(b"")],
            environment: vec![
                (os(b"A"), os(b"")),
                (os(b"=B"), os(b"x=y")),
                (os(b"N"), os(b"\n\xff")),
            ],
        };
        let written = submission.write().unwrap();
        assert_eq!(Submission::name_of(&written.task).unwrap(), written.name);
        assert_eq!(Submission::read(&written.task, &written.environment).unwrap(), submission);
        assert_eq!(Submission::shown(&written.task), b"prog '' 'it'\\''s\n\xfe' -n ''");
    }

    #[test]
    fn what_no_program_can_have_is_refused() {
        let of = |words: Vec<OsString>| Submission {
            directory: "/".into(),
            words,
            environment: Vec::new(),
        };
        assert_eq!(of(Vec::new()).write(), None);
        assert_eq!(of(vec![os(b"a\0b")]).write(), None);
        assert_eq!(of(vec![os(&vec![b'x'; MOST + 1])]).write(), None);
        for damaged in [&b""[..], b"../../etc/passwd\0/\0true\0"] {
            assert!(Submission::name_of(damaged).is_err());
        }
        assert!(Submission::read(b"name\0/\0", b"").is_err());
    }
}
