//! The key-value store: databases by name, in each of them values by key.

use super::wire::{Message, Operation, StoreResult};
use std::collections::HashMap;

/// The most bytes of keys and values, so that a worker out of its mind does not take the machine with it.
pub const MAX_BYTES: usize = 1024 * 1024 * 1024;

/// What a value is counted at beside its bytes.
const OVERHEAD: usize = 64;

/// A database: values by key.
type Values = HashMap<Box<[u8]>, Box<[u8]>>;

/// The store.
#[derive(Debug, Default)]
pub struct Store {
    databases: HashMap<Box<str>, Values>,
    bytes: usize,
}

/// What an operation found: what is told to the worker, and the value before.
pub type Found = Result<Vec<u8>, StoreResult>;

/// An operation, taken out of its message.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// What is to be done.
    pub operation: Operation,
    /// In which database.
    pub database: &'a str,
    /// With which key, without its NUL.
    pub key: &'a [u8],
    /// And which value, without its NUL.
    pub value: &'a [u8],
}

impl<'a> Request<'a> {
    /// The operation of a message; None where its sizes are wrong or there is no such operation.
    #[must_use]
    pub fn of(message: &'a Message) -> Option<Self> {
        let operation = Operation::of(message.store_code)?;
        let key_length = usize::try_from(message.key_length).ok()?;
        let value_length = usize::try_from(message.value_length).ok()?;
        let payload = &message.payload;
        if key_length == 0
            || value_length == 0
            || key_length.checked_add(value_length) != Some(payload.len())
        {
            return None;
        }
        let (key, value) = payload.split_at(key_length);
        Some(Self {
            operation,
            database: &message.name,
            key: key.strip_suffix(b"\0")?,
            value: value.strip_suffix(b"\0")?,
        })
    }
}

impl Store {
    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The value of a key.
    ///
    /// # Errors
    /// Where there is no such database or key.
    pub fn get(&self, database: &str, key: &[u8]) -> Found {
        let values = self.databases.get(database).ok_or(StoreResult::DatabaseNotFound)?;
        values.get(key).map(|value| value.to_vec()).ok_or(StoreResult::KeyNotFound)
    }

    /// Does an operation. All but get answer the value before, "0" where there was none; where there was none,
    /// each of them sets the value that it is given.
    ///
    /// # Errors
    /// What is told to the worker instead of a value.
    pub fn perform(&mut self, request: &Request<'_>) -> Found {
        let before = self.get(request.database, request.key);
        if request.operation == Operation::Get {
            return before;
        }
        let value = match &before {
            Ok(before) if request.operation != Operation::Set => {
                let (old, new) = (number(before), number(request.value));
                combine(request.operation, old, new).to_string().into_bytes()
            }
            _ => request.value.to_vec(),
        };
        self.set(request.database, request.key, value).ok_or(StoreResult::InvalidRequest)?;
        Ok(before.unwrap_or_else(|_| b"0".to_vec()))
    }

    fn set(&mut self, database: &str, key: &[u8], value: Vec<u8>) -> Option<()> {
        if !self.databases.contains_key(database) {
            self.bytes = self.grown(database.len())?;
            self.databases.insert(database.into(), Values::new());
        }
        let room = self.bytes;
        let values = self.databases.get_mut(database)?;
        let kept = values.get(key).map_or(0, |old| old.len() + key.len() + OVERHEAD);
        let bytes = (room - kept).checked_add(value.len() + key.len() + OVERHEAD)?;
        if bytes > MAX_BYTES {
            return None;
        }
        values.insert(key.into(), value.into_boxed_slice());
        self.bytes = bytes;
        Some(())
    }

    fn grown(&self, by: usize) -> Option<usize> {
        self.bytes.checked_add(by + OVERHEAD).filter(|bytes| *bytes <= MAX_BYTES)
    }

    /// The values of a database.
    pub fn values(&self, database: &str) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.databases
            .get(database)
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.as_ref(), value.as_ref()))
    }
}

/// The number that a value begins with, 0 for none, as C's strtoll(3) reads it.
fn number(value: &[u8]) -> i64 {
    let text = String::from_utf8_lossy(value);
    let text = text.trim_start();
    let end = text
        .char_indices()
        .find(|(at, c)| !(c.is_ascii_digit() || (*at == 0 && matches!(c, '-' | '+'))))
        .map_or(text.len(), |(at, _)| at);
    match text[..end].parse::<i64>() {
        Ok(number) => number,
        // Digits that are too many stop at the limit.
        Err(_) if end > 1 && text.starts_with('-') => i64::MIN,
        Err(_) if end > 1 => i64::MAX,
        Err(_) => 0,
    }
}

fn combine(operation: Operation, old: i64, new: i64) -> i64 {
    match operation {
        Operation::Get | Operation::Set => new,
        Operation::IncrementBy => old.wrapping_add(new),
        Operation::And => old & new,
        Operation::Or => old | new,
        Operation::Xor => old ^ new,
        Operation::Min => old.min(new),
        Operation::Max => old.max(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Kind;

    fn message(operation: u32, key: &[u8], value: &[u8]) -> Message {
        let mut message = Message::new(Kind::StoreRequest);
        message.name = "/db".into();
        message.store_code = operation;
        message.key_length = key.len() as u32;
        message.value_length = value.len() as u32;
        message.payload = [key, value].concat();
        message
    }

    fn perform(store: &mut Store, operation: Operation, value: &str) -> String {
        let message = message(operation.number(), b"k\0", format!("{value}\0").as_bytes());
        let found = store.perform(&Request::of(&message).unwrap()).unwrap();
        String::from_utf8(found).unwrap()
    }

    #[test]
    fn operations_answer_the_value_before() {
        let mut store = Store::default();
        for (operation, value, before) in [
            (Operation::IncrementBy, "7", "0"),
            (Operation::IncrementBy, "5", "7"),
            (Operation::And, "10", "12"),
            (Operation::Or, "3", "8"),
            (Operation::Xor, "1", "11"),
            (Operation::Min, "-4", "10"),
            (Operation::Max, "6", "-4"),
            (Operation::Set, "text", "6"),
            (Operation::IncrementBy, "2", "text"),
            (Operation::Get, "", "2"),
        ] {
            assert_eq!(perform(&mut store, operation, value), before, "{operation:?}");
        }
    }

    #[test]
    fn what_is_not_there_is_said() {
        let mut store = Store::default();
        let get = message(0, b"k\0", b"\0");
        let request = Request::of(&get).unwrap();
        assert_eq!(store.perform(&request), Err(StoreResult::DatabaseNotFound));
        let other = message(1, b"other\0", b"1\0");
        store.perform(&Request::of(&other).unwrap()).unwrap();
        assert_eq!(store.perform(&request), Err(StoreResult::KeyNotFound));
    }

    #[test]
    fn wrong_sizes_are_no_request() {
        assert!(Request::of(&message(1, b"", b"1\0")).is_none());
        assert!(Request::of(&message(1, b"k\0", b"")).is_none());
        assert!(Request::of(&message(1, b"k", b"1\0")).is_none());
        assert!(Request::of(&message(8, b"k\0", b"1\0")).is_none());
        let mut wrong = message(1, b"k\0", b"1\0");
        wrong.key_length = u32::MAX;
        assert!(Request::of(&wrong).is_none());
    }

    #[test]
    fn numbers_are_read_as_c_does() {
        for (text, expected) in [
            ("", 0),
            ("x", 0),
            ("-", 0),
            (" 12x", 12),
            ("-3", -3),
            ("99999999999999999999", i64::MAX),
        ] {
            assert_eq!(number(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn the_limit_holds() {
        let mut store = Store { bytes: MAX_BYTES - 300, ..Store::default() };
        let big = message(1, b"k\0", &[&[b'x'; 200][..], b"\0"].concat());
        assert_eq!(store.perform(&Request::of(&big).unwrap()), Err(StoreResult::InvalidRequest));
        let small = message(1, b"k\0", b"1\0");
        store.perform(&Request::of(&small).unwrap()).unwrap();
    }
}
