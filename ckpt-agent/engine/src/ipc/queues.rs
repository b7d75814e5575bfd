//! SysV message queues: their messages, looked at in their places (msgrcv(2), MSG_COPY), and put in again.

use nix::errno::Errno;

use super::super::arch::calls;
use super::super::arch::words::{WORD, from_words};
use super::super::error::{EngineError, Result};
use super::super::graph::{IpcIdentity, SysvQueue};
use super::super::objects::{DumpContext, RestoreContext};
use super::super::sys::sysv;
use super::super::trace::Remote;
use super::number::{Kind, create};

const KIND: Kind =
    Kind { name: "message queue", call: "msgget", next: "/proc/sys/kernel/msg_next_id" };
/// IPC_STAT
const STAT: u64 = calls::ipc_command(2) as u64;
/// Flags of msgrcv(2): a copy of the message in this place, without waiting; a longer one is cut.
const COPY: u64 = 0o40_000 | libc::IPC_NOWAIT as u64;
/// The longest message that is read: MSGMAX may be higher, but the scratch area is not.
const LONGEST: usize = 96 << 10;

/// Whether this kernel shows messages without taking them: CONFIG_CHECKPOINT_RESTORE.
pub(super) fn can_be_looked_into() -> bool {
    sysv::copy_of_nothing() != Errno::ENOSYS
}

/// Asks a process. `None`: it may not read it.
///
/// # Errors
/// A message that is too long; failed calls.
pub fn read(
    remote: &mut Remote<'_>,
    context: &mut DumpContext,
    (identity, count, bytes): (IpcIdentity, u64, u64),
) -> Result<Option<SysvQueue>> {
    let scratch = remote.scratch().ok_or_else(|| EngineError::odd("scratch area", "missing"))?;
    let (at, number) = (scratch.data(), identity.number as u64);
    let answer = remote.raw(calls::MSGCTL, &[number, STAT, at])?;
    if answer == -i64::from(libc::EACCES) {
        return Ok(None);
    }
    remote.checked("msgctl", answer)?;
    let mut description = [0; sysv::QUEUE_SIZE];
    remote.memory().read(at, &mut description)?;
    let capacity = from_words(&description[sysv::QUEUE_CAPACITY..]).first().copied();
    let (mut messages, mut content) = (Vec::new(), Vec::new());
    for place in 0..count {
        let arguments = [number, at, LONGEST as u64, place, COPY];
        let answer = remote.raw(calls::MSGRCV, &arguments)?;
        if answer == -i64::from(libc::E2BIG) {
            return Err(EngineError::odd(
                format!("message queue {number}"),
                format!("a message of more than {LONGEST} bytes"),
            ));
        }
        let length = remote.checked("msgrcv", answer)? as usize;
        let mut message = vec![0; WORD + length.min(LONGEST)];
        remote.memory().read(at, &mut message)?;
        let (kind, text) = message.split_at(WORD);
        messages.push((from_words(kind)[0] as isize as i64, length as u32));
        content.extend(text);
    }
    if content.len() as u64 != bytes {
        return Err(EngineError::odd(format!("message queue {number}"), "it changes"));
    }
    let capacity = capacity.unwrap_or(bytes);
    Ok(Some(SysvQueue { identity, capacity, messages, content: context.keep(content) }))
}

/// Makes a queue with its messages.
pub(super) fn make(queue: &SysvQueue, context: &mut RestoreContext<'_>) -> Result<()> {
    let identity = &queue.identity;
    create(KIND, identity, || sysv::make_queue(identity.key), sysv::remove_queue)?;
    // A larger one than the machine's default needs privilege: without, it has the default.
    let described = sysv::describe_queue(identity, queue.capacity);
    if let Err(errno) = described {
        let number = identity.number;
        context.warn(format!("message queue {number} has this machine's size ({})", errno.desc()));
    }
    let bytes = context.blob(queue.content)?;
    let mut rest = bytes.as_slice();
    for (kind, length) in &queue.messages {
        let Some((text, others)) = rest.split_at_checked(*length as usize) else {
            return Err(EngineError::Damaged(format!("messages of queue {}", identity.number)));
        };
        sysv::send(identity.number, *kind, text).map_err(|errno| match errno {
            Errno::EAGAIN => EngineError::Unfit {
                what: format!("message queue {} may not be as large here", identity.number),
                way_out: "raise kernel.msgmnb, or restart it as root".into(),
            },
            errno => {
                EngineError::system("msgsnd", format!("message queue {}", identity.number), errno)
            }
        })?;
        rest = others;
    }
    Ok(())
}
