//! POSIX message queues (mq_overview(7)): attributes, and messages with their priorities. A queue lives in the
//! instance's IPC namespace, so its name is the job's alone; queues that no process has open travel, too, where the
//! init could mount their file system.
//!
//! The kernel shows no message without taking it out. So a dump takes all of them and puts them back in the same order
//! while every process stands still; threads that wait for messages or for room wait by their own calls, which they
//! make again afterwards.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::stat::Mode;
use nix::sys::statfs::{FsType, fstatfs};
use nix::unistd::{Gid, Uid};
use serde::{Deserialize, Serialize};

use super::super::arch::words::WORD;
use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::{BlobId, Pid};
use super::super::sys::abi;
use super::super::sys::mqueue::{self, Attributes, HIGHEST_PRIORITY, Message};
use super::super::sys::stat::links;
use super::super::trace::Remote;
use super::{DumpContext, Fate, Found, ObjectKind, Probe, RestoreContext, Saved, paths, reopen};

/// Most bytes of messages of one queue in an image: they are held in memory while the job stands still.
const MOST_BYTES: u64 = 256 << 20;
/// How long a queue of the job's last life may still count against its user's limit: the kernel puts IPC namespaces
/// away some time after their last process (free_ipc_work).
const AFTERLIFE: Duration = Duration::from_secs(10);
const LOOKS_AGAIN: Duration = Duration::from_millis(20);

/// A description of a message queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageQueue {
    /// Descriptions with one number are of one queue.
    pub queue: u32,
    /// Its name, with the slash.
    pub name: String,
    /// Unlinked while it was open.
    #[serde(default)]
    pub deleted: bool,
    /// Permission bits.
    pub mode: u32,
    /// User and group that own it.
    pub owner: (u32, u32),
    /// Most messages.
    pub most_messages: i64,
    /// Bytes that a message may have.
    pub message_size: i64,
    /// Priority and length of each message, in the order in which they come out; kept with one description of each
    /// queue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<(u32, u32)>,
    /// The bytes of all messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<BlobId>,
    /// Who is told of the next message; kept with one description of each queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notification: Option<Notification>,
}

/// A process that is told once when a message comes into the empty queue (mq_notify(3)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notification {
    /// The process.
    pub process: Pid,
    /// By which signal; 0: by none, only others can't ask to be told. `None`: so it has asked (SIGEV_NONE).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// What the signal says besides (sigev_value).
    #[serde(default)]
    pub value: u64,
}

impl Notification {
    /// Has a process ask for it, which has the queue under this number.
    ///
    /// # Errors
    /// The call's failure.
    pub fn ask(&self, remote: &mut Remote<'_>, number: i32) -> Result<()> {
        let (kind, signal) = match self.signal {
            None => (libc::SIGEV_NONE, 0),
            Some(signal) => (libc::SIGEV_SIGNAL, signal),
        };
        let at = remote.scratch_data()?;
        // struct sigevent: value, signal, kind.
        let mut event = [0; SIGEVENT];
        event[..WORD].copy_from_slice(&self.value.to_ne_bytes()[..WORD]);
        event[WORD..WORD + 4].copy_from_slice(&signal.to_ne_bytes());
        event[WORD + 4..WORD + 8].copy_from_slice(&kind.to_ne_bytes());
        remote.memory().write(at, &event)?;
        remote.call("mq_notify", libc::SYS_mq_notify, &[number as u64, at]).map(drop)
    }
}

/// Bytes of struct sigevent.
const SIGEVENT: usize = 64;

/// Signals that do more than wait until they are taken (kernel/signal.c, prepare_signal), and the one by which calls are
/// injected.
const NOT_TRIED: [i32; 7] = [
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGCONT,
    libc::SIGTRAP,
];

impl ObjectKind for MessageQueue {
    fn recognise(probe: &Probe) -> bool {
        // Asked of few descriptions only: the kernel shows a queue as a file in the root of its file system.
        probe.flags & libc::O_PATH == 0
            && probe.file_type() == abi::S_IFREG
            && probe.link.starts_with('/')
            && fstatfs(&probe.copy)
                .is_ok_and(|found| found.filesystem_type() == FsType(mqueue::MAGIC as _))
    }

    #[allow(clippy::useless_conversion, reason = "a long has 32 bits on some machines")]
    fn dump(probe: &Probe, context: &mut DumpContext) -> Result<Self> {
        if context.shares_ipc {
            return Err(Refusal::new(
                format!("the message queue {} is the machine's", probe.link),
                "run the job where it has an IPC namespace of its own",
            )
            .into());
        }
        let found = mqueue::attributes(&probe.copy)
            .map_err(|errno| EngineError::system("mq_getattr", &probe.link, errno))?;
        // A name may end as the mark of deleted ones does.
        let deleted = links(&probe.stat) == 0;
        let path = if deleted { paths::without_mark(&probe.link) } else { &probe.link };
        let name = path.rsplit('/').next().unwrap_or_default();
        Ok(Self {
            queue: 0,
            name: format!("/{name}"),
            deleted,
            mode: probe.stat.st_mode & 0o7777,
            owner: (probe.stat.st_uid, probe.stat.st_gid),
            most_messages: found.most_messages.into(),
            message_size: found.message_size.into(),
            messages: Vec::new(),
            content: None,
            notification: None,
        })
    }

    fn finish(all: &mut [Found<'_, Self>], context: &mut DumpContext) -> Result<()> {
        let mut numbers: BTreeMap<(u64, u64), u32> = BTreeMap::new();
        for found in all {
            let next = numbers.len() as u32;
            found.object.queue = *numbers.entry(found.probe.inode()).or_insert(next);
            if found.object.queue != next {
                continue;
            }
            let probe = found.probe;
            let (messages, notification) = read(probe, found.object, context)
                .map_err(|error| error.at(probe.pid, &probe.comm, probe.fd))?;
            found.object.notification = notification;
            if !messages.is_empty() {
                let lengths =
                    messages.iter().map(|(priority, bytes)| (*priority, bytes.len() as u32));
                found.object.messages = lengths.collect();
                let bytes = messages.into_iter().flat_map(|(_, bytes)| bytes).collect();
                found.object.content = Some(context.keep(bytes));
            }
        }
        Ok(())
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        let mut queues: BTreeMap<u32, Vec<&Saved<'_, Self>>> = BTreeMap::new();
        for saved in all {
            queues.entry(saved.object.queue).or_default().push(saved);
        }
        // A name that is free again may belong to a later queue.
        let (deleted, named): (Vec<_>, Vec<_>) = queues
            .into_values()
            .partition(|descriptions| descriptions.iter().any(|saved| saved.object.deleted));
        for descriptions in deleted.into_iter().chain(named) {
            restore_one(&descriptions, context)?;
        }
        Ok(())
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Undivided
    }
}

/// A description of a queue for both directions, which does not wait.
///
/// # Errors
/// Without the right to that.
pub fn both_ways(probe: &Probe) -> Result<OwnedFd> {
    reopen::reopen(&probe.copy, libc::O_RDWR | libc::O_NONBLOCK)
        .map_err(|errno| EngineError::system("open", &probe.link, errno))
}

/// All messages of a queue, which has them again when this returns, and who is told of the next one.
fn read(
    probe: &Probe,
    queue: &MessageQueue,
    context: &DumpContext,
) -> Result<(Vec<Message>, Option<Notification>)> {
    let failed = |call: &'static str| move |errno| EngineError::system(call, &probe.link, errno);
    let both = both_ways(probe)?;
    let mut text = [0; 256];
    let length = nix::unistd::read(&both, &mut text).map_err(failed("read"))?;
    let state = String::from_utf8_lossy(&text[..length]).into_owned();
    // Written by mqueue_read_file() in ipc/mqueue.c.
    let number = |key: &str| {
        let word = state.split_whitespace().find_map(|word| word.strip_prefix(key));
        word.and_then(|word| word.strip_prefix(':')).and_then(|digits| digits.parse::<u64>().ok())
    };
    let (Some(bytes), Some(told)) = (number("QSIZE"), number("NOTIFY_PID")) else {
        return Err(EngineError::odd(&probe.link, state));
    };
    if told != 0 {
        // Any message that came back would be told of.
        let held = mqueue::attributes(&both).map_err(failed("mq_getattr"))?.messages;
        let how = (number("NOTIFY").unwrap_or(u64::MAX), number("SIGNO").unwrap_or(u64::MAX));
        let told = i32::try_from(told).ok().and_then(|told| context.pids.get(&told));
        return notification(queue, held > 0, told.copied(), how)
            .map(|one| (Vec::new(), Some(one)));
    }
    if bytes > MOST_BYTES {
        return Err(Refusal::passing(
            format!("the message queue {} holds {bytes} bytes", queue.name),
            "let its readers come first",
        )
        .into());
    }
    let mut messages = Vec::new();
    let taken = loop {
        match mqueue::receive(&both, queue.message_size as usize) {
            Ok(message) => messages.push(message),
            Err(Errno::EAGAIN) => break Ok(()),
            Err(Errno::EINTR) => {}
            Err(errno) => break Err(errno),
        }
    };
    put_back(both.as_fd(), &messages).map_err(failed("mq_send"))?;
    taken.map_err(failed("mq_receive"))?;
    Ok((messages, None))
}

/// Who is told of the next message, its value still unknown. `how`: what of struct sigevent the kernel shows.
fn notification(
    queue: &MessageQueue,
    has_messages: bool,
    process: Option<Pid>,
    (kind, signal): (u64, u64),
) -> Result<Notification> {
    let refuse = |what: &str| {
        let what =
            format!("a process waits to be told of messages in the queue {}{what}", queue.name);
        Refusal::new(what, "cancel that while checkpoints are taken: mq_notify(queue, NULL)")
    };
    let Some(process) = process else { return Err(refuse(" and is none of the job's").into()) };
    if has_messages {
        let refusal = refuse(", in which there are some (mq_notify)");
        return Err(Refusal {
            way_out: "let its readers come first".into(),
            passes: true,
            ..refusal
        }
        .into());
    }
    let signal = match (i32::try_from(kind), i32::try_from(signal)) {
        (Ok(libc::SIGEV_NONE), _) => None,
        (Ok(libc::SIGEV_SIGNAL), Ok(signal)) if NOT_TRIED.contains(&signal) || signal > 64 => {
            return Err(refuse(&format!(" by signal {signal} (mq_notify)")).into());
        }
        (Ok(libc::SIGEV_SIGNAL), Ok(signal)) => Some(signal),
        _ => return Err(refuse(" in a thread (mq_notify, SIGEV_THREAD)").into()),
    };
    Ok(Notification { process, signal, value: 0 })
}

/// Puts messages into a queue that has room for them. For want of memory it tries again for a while: in a live job
/// there is no other place for them.
fn put_back(queue: BorrowedFd<'_>, messages: &[Message]) -> nix::Result<()> {
    let until = Instant::now() + AFTERLIFE;
    for (priority, bytes) in messages {
        loop {
            match mqueue::send(queue, *priority, bytes) {
                Ok(()) => break,
                Err(Errno::EINTR) => {}
                Err(Errno::ENOMEM) if Instant::now() < until => std::thread::sleep(LOOKS_AGAIN),
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(())
}

fn restore_one(all: &[&Saved<'_, MessageQueue>], context: &mut RestoreContext) -> Result<()> {
    let first = all.first().expect("a queue is there by its descriptions");
    let queue = first.object;
    let both = make(queue)?;
    let full = all.iter().find(|saved| saved.object.content.is_some());
    let messages = full.map_or_else(|| Ok(Vec::new()), |saved| messages(saved.object, context))?;
    put_back(both.as_fd(), &messages)
        .map_err(|errno| EngineError::system("mq_send", &queue.name, errno))?;
    for saved in all {
        let flags = saved.file.flags & (libc::O_ACCMODE | libc::O_NONBLOCK);
        let fd = reopen::reopen(&both, flags)
            .map_err(|errno| EngineError::system("mq_open", &queue.name, errno))?;
        context.park(saved.id, fd)?;
    }
    if queue.deleted {
        mqueue::unlink(&queue.name)
            .map_err(|errno| EngineError::system("mq_unlink", &queue.name, errno))?;
    }
    Ok(())
}

/// The messages of an image.
fn messages(queue: &MessageQueue, context: &RestoreContext) -> Result<Vec<Message>> {
    let damaged = || EngineError::Damaged(format!("messages of the queue {}", queue.name));
    let bytes = queue.content.map_or_else(|| Ok(Vec::new()), |content| context.blob(content))?;
    let mut rest = bytes.as_slice();
    let mut messages = Vec::with_capacity(queue.messages.len());
    for (priority, length) in &queue.messages {
        let (message, behind) = rest.split_at_checked(*length as usize).ok_or_else(damaged)?;
        if *priority > HIGHEST_PRIORITY {
            return Err(damaged());
        }
        messages.push((*priority, message.to_vec()));
        rest = behind;
    }
    Ok(messages)
}

#[allow(clippy::useless_conversion, reason = "a long has 32 bits on some machines")]
/// Makes a queue with its mode and owner. The descriptor is for both directions.
fn make(queue: &MessageQueue) -> Result<OwnedFd> {
    let failed = |call: &'static str| {
        let name = queue.name.clone();
        move |errno| EngineError::system(call, name, errno)
    };
    let size = |number: i64| {
        number
            .try_into()
            .map_err(|_| EngineError::Damaged(format!("size of the queue {}", queue.name)))
    };
    let attributes = Attributes::sized(size(queue.most_messages)?, size(queue.message_size)?);
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_NONBLOCK;
    let until = Instant::now() + AFTERLIFE;
    let fd = loop {
        match mqueue::open(&queue.name, flags, queue.mode, attributes) {
            Err(Errno::EMFILE) if Instant::now() < until => std::thread::sleep(LOOKS_AGAIN),
            Err(errno @ (Errno::EMFILE | Errno::EINVAL)) => {
                return Err(EngineError::Unfit {
                    what: format!(
                        "the message queue {} of {} messages of {} bytes can't be made ({})",
                        queue.name,
                        queue.most_messages,
                        queue.message_size,
                        errno.desc()
                    ),
                    way_out: "raise RLIMIT_MSGQUEUE (ulimit -q) or fs.mqueue's limits".into(),
                });
            }
            other => break other.map_err(failed("mq_open"))?,
        }
    };
    // The umask of whoever restores must not count.
    let mode = Mode::from_bits_truncate(queue.mode as libc::mode_t);
    nix::sys::stat::fchmod(&fd, mode).map_err(failed("fchmod"))?;
    let made = nix::sys::stat::fstat(&fd).map_err(failed("fstat"))?;
    if (made.st_uid, made.st_gid) != queue.owner {
        let (user, group) = queue.owner;
        nix::unistd::fchown(&fd, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))
            .map_err(failed("fchown"))?;
    }
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> MessageQueue {
        MessageQueue {
            queue: 0,
            name: "/q".to_owned(),
            deleted: false,
            mode: 0o600,
            owner: (0, 0),
            most_messages: 1,
            message_size: 8,
            messages: Vec::new(),
            content: None,
            notification: None,
        }
    }

    #[test]
    fn what_can_be_asked_again_is_kept() {
        let found = |how| notification(&queue(), false, Some(7), how).unwrap();
        let by = |signal| Notification { process: 7, signal, value: 0 };
        assert_eq!(found((libc::SIGEV_SIGNAL as u64, 10)), by(Some(10)));
        assert_eq!(found((libc::SIGEV_SIGNAL as u64, 0)), by(Some(0)));
        assert_eq!(found((libc::SIGEV_NONE as u64, 0)), by(None));
    }

    #[test]
    fn what_can_not_is_refused() {
        let signal = libc::SIGEV_SIGNAL as u64;
        let refused = |messages, process, how| {
            let error = notification(&queue(), messages, process, how).unwrap_err();
            (error.passes(), error.to_string())
        };
        for (messages, process, how, passes, words) in [
            (false, Some(7), (libc::SIGEV_THREAD as u64, 0), false, "SIGEV_THREAD"),
            (false, Some(7), (signal, libc::SIGCONT as u64), false, "by signal 18"),
            (false, Some(7), (signal, 65), false, "by signal 65"),
            (false, Some(7), (u64::MAX, 0), false, "SIGEV_THREAD"),
            (false, None, (signal, 10), false, "none of the job's"),
            (true, Some(7), (signal, 10), true, "there are some"),
        ] {
            let (passing, text) = refused(messages, process, how);
            assert!(passing == passes && text.contains(words) && text.contains("/q"), "{text}");
        }
    }
}
