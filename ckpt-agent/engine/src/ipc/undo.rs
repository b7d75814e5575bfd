//! What a process gives back to semaphores at its end (semop(2), SEM_UNDO). No call tells it, but semop(2) fails with ERANGE
//! where the sum would leave the range of 16 bits (ipc/sem.c, perform_atomic_semop_slow), and with EAGAIN where a later
//! operation of the same call would have to wait; either way nothing is changed. So the sum is found by asking, operation
//! by operation, how much of the range is left.

use super::super::arch::calls;
use super::super::error::{EngineError, Result};
use super::super::graph::{IpcObjects, SemaphoreSet, SemaphoreUndo};
use super::super::trace::{Batch, Remote, Scratch};

/// SEM_UNDO
const UNDO: i16 = 0x1000;
/// The highest value (SEMVMX), and the highest adjustment (SEMAEM).
const HIGHEST: i32 = 32_767;
/// Semaphores asked at a time: two calls each, whose operations fit into the scratch area.
const AT_A_TIME: usize = 512;
/// struct sembuf
const OPERATION: usize = 6;
/// Room for the operations of one question.
const ROOM: u64 = 64;

/// A semaphore and its value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) set: i32,
    pub(super) index: u16,
    pub(super) value: u16,
}

impl Place {
    fn operation(self, change: i32, flags: i16) -> [u8; OPERATION] {
        let mut bytes = [0; OPERATION];
        bytes[..2].copy_from_slice(&self.index.to_ne_bytes());
        bytes[2..4].copy_from_slice(&(change as i16).to_ne_bytes());
        bytes[4..].copy_from_slice(&flags.to_ne_bytes());
        bytes
    }

    /// Operations that change what is owed by -`amount` or +`amount`, and leave the value as it is: there and back, on the
    /// side where there is room.
    fn there_and_back(self, sign: i32, amount: i32) -> Vec<[u8; OPERATION]> {
        let value = i32::from(self.value);
        let up = HIGHEST - value >= value;
        let step = value.max(HIGHEST - value);
        let (mut left, mut operations) = (amount, Vec::new());
        while left > 0 {
            let part = left.min(step);
            // Adding to the value takes from what is owed.
            let owing = -sign * part;
            let pair = [self.operation(owing, UNDO), self.operation(-owing, 0)];
            let first_is_up = owing > 0;
            match first_is_up == up {
                true => operations.extend(pair),
                false => operations.extend(pair.into_iter().rev()),
            }
            left -= part;
        }
        operations
    }

    /// The question whether what is owed could change so far; as bytes, and how many operations.
    fn question(self, sign: i32, amount: i32) -> (Vec<u8>, usize) {
        let mut operations = self.there_and_back(sign, amount);
        // More than there is: it would have to wait.
        operations.push(self.operation(-i32::from(self.value) - 1, libc::IPC_NOWAIT as i16));
        (operations.concat(), operations.len())
    }
}

fn all_places(set: &SemaphoreSet) -> impl Iterator<Item = Place> {
    let number = set.identity.number;
    let values = set.values.iter().enumerate();
    values.map(move |(index, value)| Place { set: number, index: index as u16, value: *value })
}

/// Asks a process what it owes.
///
/// # Errors
/// Failed calls.
pub fn ask(remote: &mut Remote<'_>, objects: &IpcObjects) -> Result<Vec<SemaphoreUndo>> {
    let scratch = remote.scratch().ok_or_else(|| EngineError::odd("scratch area", "missing"))?;
    let places: Vec<Place> = objects.semaphores.iter().flat_map(all_places).collect();
    let mut owed = Vec::new();
    for some in places.chunks(AT_A_TIME) {
        let mut batch = Batch::new();
        let mut bytes = Vec::new();
        for (place, sign, amount) in
            some.iter().flat_map(|place| [(place, 1, HIGHEST), (place, -1, HIGHEST + 1)])
        {
            let (question, count) = place.question(sign, amount);
            let at = scratch.data() + bytes.len() as u64;
            bytes.extend(&question);
            bytes.resize(bytes.len().next_multiple_of(ROOM as usize), 0);
            batch.add(calls::SEMOP, &[place.set as u64, at, count as u64, 0]);
        }
        remote.memory().write(scratch.data(), &bytes)?;
        let answers = remote.run(&batch)?;
        for (place, pair) in some.iter().zip(answers.chunks_exact(2)) {
            let adjustment = match (is_out_of_range(pair[0])?, is_out_of_range(pair[1])?) {
                (true, _) => HIGHEST - most(remote, scratch, *place, 1, HIGHEST)?,
                (_, true) => most(remote, scratch, *place, -1, HIGHEST + 1)? - HIGHEST - 1,
                (false, false) => continue,
            };
            owed.push(SemaphoreUndo {
                set: place.set,
                index: place.index,
                adjustment: adjustment as i16,
            });
        }
    }
    Ok(owed)
}

/// Whether the range would be left. Who may not change a semaphore owes it nothing that could be told.
fn is_out_of_range(answer: i64) -> Result<bool> {
    let is = |errno: i32| answer == -i64::from(errno);
    match () {
        () if is(libc::ERANGE) => Ok(true),
        () if is(libc::EAGAIN) || is(libc::EACCES) => Ok(false),
        () => Err(EngineError::odd("semop", format!("answer {answer}"))),
    }
}

/// By how much what is owed could change at most, less than `too_much`.
fn most(
    remote: &mut Remote<'_>,
    scratch: Scratch,
    place: Place,
    sign: i32,
    too_much: i32,
) -> Result<i32> {
    let (mut possible, mut impossible) = (0, too_much);
    while impossible - possible > 1 {
        let amount = possible + (impossible - possible) / 2;
        let (question, count) = place.question(sign, amount);
        remote.memory().write(scratch.data(), &question)?;
        let arguments = [place.set as u64, scratch.data(), count as u64, 0];
        let answer = remote.raw(calls::SEMOP, &arguments)?;
        match is_out_of_range(answer)? {
            true => impossible = amount,
            false => possible = amount,
        }
    }
    Ok(possible)
}

fn perform(
    remote: &mut Remote<'_>,
    scratch: Scratch,
    place: Place,
    operations: &[[u8; OPERATION]],
) -> Result<()> {
    remote.memory().write(scratch.data(), &operations.concat())?;
    let arguments = [place.set as u64, scratch.data(), operations.len() as u64, 0];
    remote.call("semop", calls::SEMOP, &arguments).map(drop)
}

/// Lets a process owe what it owed. The semaphores have their values.
///
/// # Errors
/// Semaphores that are none; failed calls.
pub fn owe(
    remote: &mut Remote<'_>,
    scratch: Scratch,
    objects: &IpcObjects,
    owed: &[SemaphoreUndo],
) -> Result<()> {
    for undo in owed {
        let set = objects.semaphores.iter().find(|set| set.identity.number == undo.set);
        let value = set.and_then(|set| set.values.get(usize::from(undo.index)));
        let value = *value.ok_or_else(|| {
            EngineError::Damaged(format!("semaphore {} of set {}", undo.index, undo.set))
        })?;
        let place = Place { set: undo.set, index: undo.index, value };
        let amount = i32::from(undo.adjustment);
        perform(remote, scratch, place, &place.there_and_back(amount.signum(), amount.abs()))?;
    }
    Ok(())
}

/// Changes a semaphore and changes it back.
pub(super) fn touch(remote: &mut Remote<'_>, scratch: Scratch, place: Place) -> Result<()> {
    let first = if place.value == 0 { 1 } else { -1 };
    perform(remote, scratch, place, &[place.operation(first, 0), place.operation(-first, 0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel does them: the value afterwards and the change of what is owed.
    fn done(place: Place, operations: &[[u8; OPERATION]]) -> Option<(i32, i32)> {
        let (mut value, mut owed) = (i32::from(place.value), 0);
        for operation in operations {
            let word = |at: usize| i16::from_ne_bytes([operation[at], operation[at + 1]]);
            value += i32::from(word(2));
            if word(4) & UNDO != 0 {
                owed -= i32::from(word(2));
            }
            if !(0..=HIGHEST).contains(&value) {
                return None;
            }
        }
        Some((value, owed))
    }

    #[test]
    fn there_and_back_changes_what_is_owed_alone() {
        for value in [0, 1, 16_383, 16_384, 20_000, 32_766, 32_767] {
            let place = Place { set: 0, index: 3, value };
            for amount in [1, 2, 16_384, 32_767, 32_768] {
                for sign in [1, -1] {
                    let operations = place.there_and_back(sign, amount);
                    let expected = Some((i32::from(value), sign * amount));
                    assert_eq!(done(place, &operations), expected, "{value} {amount} {sign}");
                    assert!((operations.len() + 1) * OPERATION <= ROOM as usize);
                }
            }
        }
    }
}
