//! SysV semaphores and message queues: the calls themselves, since the libc crate lacks the functions for Android.

use nix::errno::Errno;

use super::super::arch::calls;
use super::super::arch::words::to_words;
use super::super::graph::IpcIdentity;
use super::abi;

/// sizeof(struct msqid64_ds) and of struct semid64_ds, or more (include/uapi/asm-generic/msgbuf.h, sembuf.h).
pub const QUEUE_SIZE: usize = 128;
/// Offset of msg_qbytes.
pub const QUEUE_CAPACITY: usize = if cfg!(target_pointer_width = "64") { 88 } else { 68 };
/// Offsets of user, group and mode in struct ipc64_perm (ipcbuf.h), with which both begin.
const USER: usize = 4;
const GROUP: usize = 8;
const MODE: usize = 20;
/// SETALL of semctl(2).
const SETALL: i32 = calls::ipc_command(17);
/// GETPID of semctl(2).
const GETPID: i32 = calls::ipc_command(11);
/// MSG_COPY of msgrcv(2).
const MSG_COPY: i32 = 0o40_000;

/// Makes a set for a key that has none yet (semget(2)); its number.
///
/// # Errors
/// As semget(2).
pub fn make_semaphores(key: i32, count: i32) -> nix::Result<i32> {
    let flags = abi::IPC_CREAT | abi::IPC_EXCL | 0o600;
    // SAFETY: takes numbers only.
    Errno::result(unsafe { libc::syscall(calls::SEMGET, key, count, flags) })
        .map(|number| number as i32)
}

/// Sets all values (SETALL).
///
/// # Errors
/// As semctl(2).
pub fn set_semaphores(number: i32, values: &[u16]) -> nix::Result<()> {
    // SAFETY: the kernel reads a value for each semaphore of the set, which was made with as many as the slice has.
    let done = unsafe { libc::syscall(calls::SEMCTL, number, 0, SETALL, values.as_ptr()) };
    Errno::result(done).map(drop)
}

/// Owner and permissions of a set.
///
/// # Errors
/// As semctl(2).
pub fn describe_semaphores(identity: &IpcIdentity) -> nix::Result<()> {
    let bytes = description(identity);
    let command = calls::ipc_command(abi::IPC_SET);
    // SAFETY: IPC_SET reads a struct semid64_ds, which is shorter than the buffer.
    let done = unsafe { libc::syscall(calls::SEMCTL, identity.number, 0, command, bytes.as_ptr()) };
    Errno::result(done).map(drop)
}

/// The process that last changed a semaphore (GETPID); 0: none has.
///
/// # Errors
/// As semctl(2).
pub fn last_process(number: i32, index: i32) -> nix::Result<i32> {
    // SAFETY: the command takes numbers only.
    Errno::result(unsafe { libc::syscall(calls::SEMCTL, number, index, GETPID) })
        .map(|pid| pid as i32)
}

/// Removes a set.
///
/// # Errors
/// As semctl(2).
pub fn remove_semaphores(number: i32) -> nix::Result<()> {
    let none: usize = 0;
    let command = calls::ipc_command(abi::IPC_RMID);
    // SAFETY: the command takes numbers only.
    Errno::result(unsafe { libc::syscall(calls::SEMCTL, number, 0, command, none) }).map(drop)
}

/// Makes a queue for a key that has none yet (msgget(2)); its number.
///
/// # Errors
/// As msgget(2).
pub fn make_queue(key: i32) -> nix::Result<i32> {
    let flags = abi::IPC_CREAT | abi::IPC_EXCL | 0o600;
    // SAFETY: takes numbers only.
    Errno::result(unsafe { libc::syscall(calls::MSGGET, key, flags) }).map(|number| number as i32)
}

/// Owner, permissions and capacity of a queue.
///
/// # Errors
/// As msgctl(2).
pub fn describe_queue(identity: &IpcIdentity, capacity: u64) -> nix::Result<()> {
    let mut bytes = description(identity);
    let capacity = to_words(&[capacity]);
    bytes[QUEUE_CAPACITY..QUEUE_CAPACITY + capacity.len()].copy_from_slice(&capacity);
    let command = calls::ipc_command(abi::IPC_SET);
    // SAFETY: IPC_SET reads a struct msqid64_ds, which is shorter than the buffer.
    let done = unsafe { libc::syscall(calls::MSGCTL, identity.number, command, bytes.as_ptr()) };
    Errno::result(done).map(drop)
}

/// Removes a queue.
///
/// # Errors
/// As msgctl(2).
pub fn remove_queue(number: i32) -> nix::Result<()> {
    let none: usize = 0;
    let command = calls::ipc_command(abi::IPC_RMID);
    // SAFETY: the command takes numbers only.
    Errno::result(unsafe { libc::syscall(calls::MSGCTL, number, command, none) }).map(drop)
}

/// Puts a message into a queue, without waiting (msgsnd(2)).
///
/// # Errors
/// As msgsnd(2).
pub fn send(number: i32, kind: i64, text: &[u8]) -> nix::Result<()> {
    let message = [to_words(&[kind as u64]), text.to_vec()].concat();
    let nowait = libc::IPC_NOWAIT;
    // SAFETY: the kernel reads a word and `text.len()` bytes, which the buffer has.
    let done =
        unsafe { libc::syscall(calls::MSGSND, number, message.as_ptr(), text.len(), nowait) };
    Errno::result(done).map(drop)
}

/// Why a copy of a message of queue 0 can't be had with no room for it: ENOSYS if there are no copies.
pub fn copy_of_nothing() -> Errno {
    let none: usize = 0;
    let flags = MSG_COPY | libc::IPC_NOWAIT;
    // SAFETY: with room for no byte the kernel writes none; it fails, or has nothing to write.
    let answer = unsafe { libc::syscall(calls::MSGRCV, 0, none, 0usize, 0usize, flags) };
    Errno::result(answer).err().unwrap_or(Errno::UnknownErrno)
}

fn description(identity: &IpcIdentity) -> [u8; QUEUE_SIZE] {
    let mut bytes = [0; QUEUE_SIZE];
    let (user, group) = identity.owner;
    for (at, word) in [(USER, user), (GROUP, group), (MODE, identity.mode)] {
        bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}
