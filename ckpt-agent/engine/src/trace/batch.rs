//! A table of system calls that a tracee runs in one go: 0.1 us a call instead of the 15 us of
//! two context switches.

use super::super::arch::{Architecture, Call, Current};

/// Bytes of one record: number, six arguments, result.
pub const RECORD: usize = 64;

/// Which call of a [`Batch`] a result belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(pub usize);

/// Calls to be run in this order.
#[derive(Debug, Default)]
pub struct Batch {
    calls: Vec<Call>,
}

impl Batch {
    /// No calls yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a call; missing arguments are 0.
    pub fn add(&mut self, number: impl Into<i64>, arguments: &[u64]) -> Ticket {
        let mut six = [0; 6];
        for (slot, argument) in six.iter_mut().zip(arguments) {
            *slot = *argument;
        }
        self.calls.push(Call::of(number, six));
        Ticket(self.calls.len() - 1)
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// The calls.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }
}

/// The table as the stub reads it.
pub fn encode(calls: &[Call]) -> Vec<u8> {
    let mut table = Vec::with_capacity(calls.len() * RECORD);
    for call in calls {
        table.extend(call.number.to_ne_bytes());
        for argument in call.arguments {
            table.extend(argument.to_ne_bytes());
        }
        table.extend(0u64.to_ne_bytes());
    }
    Current::finish_table(&mut table, calls.len());
    table
}

/// The results out of a table that has been run.
pub fn results(table: &[u8]) -> Vec<i64> {
    table
        .chunks_exact(RECORD)
        .map(|record| {
            let mut word = [0; 8];
            word.copy_from_slice(&record[RECORD - 8..]);
            Current::stored_result(u64::from_ne_bytes(word))
        })
        .collect()
}
