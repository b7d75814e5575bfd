//! What the signal will say that tells a process of the next message in a queue (mq_notify(3), sigev_value): the kernel shows
//! it in the signal alone. So the process is told once, while it stands and blocks all signals, takes the signal, and asks to
//! be told again.

use std::os::fd::{AsFd, BorrowedFd};

use procfs::process::Status;

use super::Quiesced;
use crate::arch::words::WORD;
use crate::doing::{self, Thing};
use crate::dump::snapshot_processes::Reading;
use crate::error::{EngineError, Refusal, Result};
use crate::freeze::StoppedProcess;
use crate::graph::Pid;
use crate::objects::{Notification, Object, both_ways};
use crate::sys::mqueue;
use crate::trace::{Remote, SIGINFO};

/// SI_MESGQ (include/uapi/asm-generic/siginfo.h).
const BY_QUEUE: i32 = -3;
/// Where si_code lies in siginfo_t.
const CODE_AT: usize = 8;
/// Where si_value does, of a signal that a process sends.
const VALUE_AT: usize = if WORD == 8 { 24 } else { 20 };
/// Where the room for data has the signals that are waited for, the time, and what comes.
const TIME_AT: u64 = 16;
const INFO_AT: u64 = 64;

/// One that is not complete yet.
struct Wanted {
    /// The description in whose object it is.
    file: usize,
    notification: Notification,
    /// Which queue.
    queue: u32,
    name: String,
    message_size: i64,
    signal: i32,
}

impl Quiesced {
    /// Completes what is known of who is told of messages.
    ///
    /// # Errors
    /// Refusals before anything is touched; failed calls.
    pub(super) fn read_notifications(
        &mut self,
        processes: &mut [StoppedProcess],
        readings: &[Reading],
    ) -> Result<()> {
        let files = self.collected.files.iter().enumerate();
        let wanted = files.filter_map(|(file, found)| {
            let Object::MessageQueue(queue) = &found.object else { return None };
            let notification = queue.notification.clone()?;
            let signal = notification.signal.filter(|signal| *signal != 0)?;
            let (name, message_size, queue) = (queue.name.clone(), queue.message_size, queue.queue);
            Some(Wanted { file, notification, queue, name, message_size, signal })
        });
        for wanted in wanted.collect::<Vec<_>>() {
            let completed = self.ask_to_be_told(&wanted, processes, readings)?;
            if let Object::MessageQueue(queue) = &mut self.collected.files[wanted.file].object {
                queue.notification = Some(completed);
            }
        }
        Ok(())
    }

    fn ask_to_be_told(
        &self,
        wanted: &Wanted,
        processes: &mut [StoppedProcess],
        readings: &[Reading],
    ) -> Result<Notification> {
        let pid = wanted.notification.process;
        doing::begin("asking", Thing::Process(pid));
        let is_it = |(process, _): &(&mut StoppedProcess, &Reading)| {
            self.nodes.get(&process.host_pid).is_some_and(|node| node.pid == pid)
        };
        let found = processes.iter_mut().zip(readings).find(is_it);
        let (process, reading) = found.ok_or(EngineError::Gone(pid))?;
        let number = self.number_of(wanted.queue, process.host_pid);
        let number =
            number.ok_or_else(|| self.cannot_tell(wanted, "without a descriptor of it"))?;
        if process.leader != process.host_pid {
            return Err(self.cannot_tell(wanted, "which has ended its main thread"));
        }
        let probe = &self.collected.probes[wanted.file];
        let queue = both_ways(probe)?;
        let mut remote = process.lend(reading.entry_point)?;
        if !is_clear(&remote, &reading.status, wanted.signal)? {
            return Err(self.cannot_tell(wanted, "which has signals that are not taken yet"));
        }
        fire(&mut remote, queue.as_fd(), number, wanted)
    }

    /// A number under which a process has a queue.
    fn number_of(&self, queue: u32, host_pid: i32) -> Option<i32> {
        let own = self.collected.descriptors.get(&host_pid)?;
        let is_it = |file: &Object| matches!(file, Object::MessageQueue(one) if one.queue == queue);
        let file = |id: usize| self.collected.files.get(id);
        let found =
            own.iter().find(|one| file(one.file.0 as usize).is_some_and(|f| is_it(&f.object)));
        found.map(|one| one.fd)
    }

    fn cannot_tell(&self, wanted: &Wanted, which: &str) -> EngineError {
        let pid: Pid = wanted.notification.process;
        let node = self.nodes.values().find(|node| node.pid == pid);
        let comm = node.map_or("", |node| node.comm.as_str());
        let what =
            format!("is to be told of messages in the queue {} (mq_notify), {which}", wanted.name);
        EngineError::from(Refusal::passing(what, "try again")).of(pid, comm)
    }
}

/// Whether a signal that is sent now is the only one of its kind, and comes with all that it says: one that is pending would
/// keep it out or come first, and where too many wait the kernel sends a number alone (RLIMIT_SIGPENDING).
fn is_clear(remote: &Remote<'_>, status: &Status, signal: i32) -> Result<bool> {
    let mut pending = remote.thread().pending(true)?;
    pending.extend(remote.thread().pending(false)?);
    let number = |info: &[u8; SIGINFO]| i32::from_ne_bytes([info[0], info[1], info[2], info[3]]);
    let (queued, limit) = status.sigq;
    Ok(!pending.iter().any(|info| number(info) == signal) && queued.saturating_add(2) < limit)
}

/// Tells the process, which is to be told again as it was.
fn fire(
    remote: &mut Remote<'_>,
    queue: BorrowedFd<'_>,
    number: i32,
    wanted: &Wanted,
) -> Result<Notification> {
    let failed = |call| move |errno| EngineError::system(call, &wanted.name, errno);
    let at = remote.scratch_data()?;
    let mut room = [0; INFO_AT as usize + SIGINFO];
    room[..8].copy_from_slice(&(1u64 << (wanted.signal - 1)).to_ne_bytes());
    remote.memory().write(at, &room)?;
    mqueue::send(queue, 0, &[]).map_err(failed("mq_send"))?;
    let arguments = [at, at + INFO_AT, at + TIME_AT, 8];
    let came = remote.raw(libc::SYS_rt_sigtimedwait, &arguments);
    // What was there was nothing.
    mqueue::receive(queue, usize::try_from(wanted.message_size).unwrap_or_default())
        .map_err(failed("mq_receive"))?;
    let mut info = [0; SIGINFO];
    remote.memory().read(at + INFO_AT, &mut info)?;
    let word = |at: usize| i32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    let mut told = wanted.notification.clone();
    match came? == i64::from(wanted.signal) && word(CODE_AT) == BY_QUEUE {
        true => {
            let mut value = [0; 8];
            value[..WORD].copy_from_slice(&info[VALUE_AT..VALUE_AT + WORD]);
            told.value = u64::from_ne_bytes(value);
        }
        // It has executed another program since it has asked, which is told nothing (ipc/mqueue.c, __do_notify).
        false => told.signal = Some(0),
    }
    told.ask(remote, number)?;
    Ok(told)
}
