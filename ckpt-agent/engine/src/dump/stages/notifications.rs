//! What the signal will say that tells a process of the next message in a queue (mq_notify(3), sigev_value): the kernel shows
//! it in the signal alone. So the process is told once, while it stands and blocks all signals, takes the signal, and asks to
//! be told again.

use std::os::fd::{AsFd, BorrowedFd};

use super::Quiesced;
use crate::arch::words::WORD;
use crate::doing::{self, Thing};
use crate::dump::snapshot_processes::Reading;
use crate::error::{EngineError, Refusal, Result};
use crate::freeze::StoppedProcess;
use crate::graph::Pid;
use crate::objects::{Notification, Object, both_ways};
use crate::proc::{pending_signals, read_text};
use crate::sys::mqueue;
use crate::trace::{Remote, SIGINFO};

/// SI_MESGQ (include/uapi/asm-generic/siginfo.h).
const BY_QUEUE: i32 = -3;
/// SI_QUEUE: sent by sigqueue(3).
const BY_PROCESS: i32 = -1;
/// What a signal says that is sent for a trial.
const TRIAL: u64 = 0x636b_7074;
/// Signals that are taken before one is given up: what others send meanwhile.
const MOST_FOREIGN: usize = 64;
/// Where si_code lies in siginfo_t.
const CODE_AT: usize = 8;
/// Where si_pid and si_uid do.
const SENDER_AT: usize = if WORD == 8 { 16 } else { 12 };
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
            let signal = notification.signal.unwrap_or_default();
            let (name, message_size, queue) = (queue.name.clone(), queue.message_size, queue.queue);
            Some(Wanted { file, notification, queue, name, message_size, signal })
        });
        for wanted in wanted.collect::<Vec<_>>() {
            let number = self.asks_by(&wanted, processes)?;
            if wanted.signal == 0 {
                continue;
            }
            let completed = self.ask_to_be_told(&wanted, number, processes, readings)?;
            if let Object::MessageQueue(queue) = &mut self.collected.files[wanted.file].object {
                queue.notification = Some(completed);
            }
        }
        Ok(())
    }

    /// The descriptor by which a process can ask again, here and after a restart.
    fn asks_by(&self, wanted: &Wanted, processes: &[StoppedProcess]) -> Result<i32> {
        let pid = wanted.notification.process;
        let is_it = |process: &&StoppedProcess| self.is_process(process, pid);
        let process = processes.iter().find(is_it).ok_or(EngineError::Gone(pid))?;
        if process.leader != process.host_pid {
            return Err(self.cannot_tell(wanted, "which has ended its main thread"));
        }
        let number = self.number_of(wanted.queue, process.host_pid);
        number.ok_or_else(|| self.cannot_tell(wanted, "without a descriptor of it"))
    }

    fn is_process(&self, process: &StoppedProcess, pid: Pid) -> bool {
        self.nodes.get(&process.host_pid).is_some_and(|node| node.pid == pid)
    }

    fn ask_to_be_told(
        &self,
        wanted: &Wanted,
        number: i32,
        processes: &mut [StoppedProcess],
        readings: &[Reading],
    ) -> Result<Notification> {
        let pid = wanted.notification.process;
        doing::begin("asking", Thing::Process(pid));
        let is_it = |(process, _): &(&mut StoppedProcess, &Reading)| self.is_process(process, pid);
        let found = processes.iter_mut().zip(readings).find(is_it);
        let (process, reading) = found.ok_or(EngineError::Gone(pid))?;
        let probe = &self.collected.probes[wanted.file];
        let queue = both_ways(probe)?;
        let host_pid = process.host_pid;
        let mut remote = process.lend(reading.entry_point)?;
        // Without touching anything.
        if is_pending(&remote, host_pid, wanted.signal)? {
            return Err(self.with_signals(wanted));
        }
        let mut signals = Signals::of(&mut remote, wanted.signal)?;
        if !signals.try_out()? {
            return Err(self.with_signals(wanted));
        }
        let fired = fire(&mut signals, queue.as_fd(), number, wanted)?;
        fired.ok_or_else(|| self.with_signals(wanted))
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
        let what =
            format!("is to be told of messages in the queue {} (mq_notify), {which}", wanted.name);
        self.refused(wanted, Refusal::new(what, "cancel that while checkpoints are taken"))
    }

    fn with_signals(&self, wanted: &Wanted) -> EngineError {
        let what = format!(
            "is to be told of messages in the queue {} (mq_notify) by signal {}, and others by it are not taken yet, or too \
             many",
            wanted.name, wanted.signal
        );
        self.refused(wanted, Refusal::passing(what, "try again"))
    }

    fn refused(&self, wanted: &Wanted, refusal: Refusal) -> EngineError {
        let pid = wanted.notification.process;
        let node = self.nodes.values().find(|node| node.pid == pid);
        EngineError::from(refusal).of(pid, node.map_or("", |node| node.comm.as_str()))
    }
}

/// Whether a signal of that number waits to be taken: also one of which the kernel has kept the number alone, which it does not show
/// among the others (kernel/signal.c, __send_signal_locked()).
fn is_pending(remote: &Remote<'_>, host_pid: i32, signal: i32) -> Result<bool> {
    let mut pending = remote.thread().pending(true)?;
    pending.extend(remote.thread().pending(false)?);
    let number = |info: &[u8; SIGINFO]| i32::from_ne_bytes([info[0], info[1], info[2], info[3]]);
    let status =
        read_text(&format!("/proc/{host_pid}/status"))?.ok_or(EngineError::Gone(host_pid))?;
    let all = pending_signals(&status);
    let all = all.ok_or_else(|| EngineError::odd("/proc/PID/status", "no pending signals"))?;
    Ok(all & 1 << (signal - 1) != 0 || pending.iter().any(|info| number(info) == signal))
}

/// Whether that is a signal of which the kernel had no room to keep more than its number: it comes as one of nobody's.
fn is_number_alone(info: &[u8; SIGINFO]) -> bool {
    // si_code SI_USER, si_pid, si_uid.
    code(info) == 0 && info[SENDER_AT..SENDER_AT + 8] == [0; 8]
}

/// Signals of one number to a process that stands and blocks all of them.
struct Signals<'a, 'b> {
    remote: &'a mut Remote<'b>,
    /// Its room for data.
    at: u64,
    signal: i32,
    /// Its own number, as it knows it.
    own: u64,
    /// Those that were taken and are none of ours: they are sent again, by the process to itself, which may send any
    /// (kernel/signal.c, do_rt_sigqueueinfo()).
    foreign: Vec<[u8; SIGINFO]>,
}

impl<'a, 'b> Signals<'a, 'b> {
    fn of(remote: &'a mut Remote<'b>, signal: i32) -> Result<Self> {
        let at = remote.scratch_data()?;
        let own = remote.raw(libc::SYS_getpid, &[])? as u64;
        Ok(Self { remote, at, signal, own, foreign: Vec::new() })
    }

    /// Whether a signal that is sent now comes, with all that it says: one that is pending would keep it out or come first, and
    /// where too many wait the kernel sends a number alone or nothing (RLIMIT_SIGPENDING, also of the namespaces above). Nothing is
    /// lost by that.
    fn try_out(&mut self) -> Result<bool> {
        let mut trial = [0; SIGINFO];
        trial[..4].copy_from_slice(&self.signal.to_ne_bytes());
        trial[CODE_AT..CODE_AT + 4].copy_from_slice(&BY_PROCESS.to_ne_bytes());
        trial[VALUE_AT..VALUE_AT + WORD].copy_from_slice(&TRIAL.to_ne_bytes()[..WORD]);
        if self.send(&trial)? < 0 {
            return Ok(false);
        }
        let came = self.take_until(|info| code(info) == BY_PROCESS && value(info) == TRIAL);
        let is_clear = self.foreign.is_empty();
        if matches!(came, Ok(None)) {
            // It has lost what it says, as there is no room: none of that number was there before it.
            self.foreign.retain(|info| !is_number_alone(info));
        }
        self.give_back()?;
        Ok(came?.is_some() && is_clear)
    }

    fn send(&mut self, info: &[u8; SIGINFO]) -> Result<i64> {
        self.remote.memory().write(self.at + INFO_AT, info)?;
        let arguments = [self.own, self.signal as u64, self.at + INFO_AT];
        self.remote.raw(libc::SYS_rt_sigqueueinfo, &arguments)
    }

    /// Takes signals until one is that one. `None`: no more is pending.
    fn take_until(
        &mut self,
        is_it: impl Fn(&[u8; SIGINFO]) -> bool,
    ) -> Result<Option<[u8; SIGINFO]>> {
        while self.foreign.len() < MOST_FOREIGN {
            let mut room = [0; INFO_AT as usize];
            room[..8].copy_from_slice(&(1u64 << (self.signal - 1)).to_ne_bytes());
            self.remote.memory().write(self.at, &room)?;
            let arguments = [self.at, self.at + INFO_AT, self.at + TIME_AT, 8];
            let came = self.remote.raw(libc::SYS_rt_sigtimedwait, &arguments)?;
            if came == -i64::from(libc::EAGAIN) {
                return Ok(None);
            }
            self.remote.checked("rt_sigtimedwait", came)?;
            let mut info = [0; SIGINFO];
            self.remote.memory().read(self.at + INFO_AT, &mut info)?;
            if is_it(&info) {
                return Ok(Some(info));
            }
            self.foreign.push(info);
        }
        Ok(None)
    }

    /// Sends those again that are none of ours.
    fn give_back(&mut self) -> Result<()> {
        let mut all = Ok(());
        for info in std::mem::take(&mut self.foreign) {
            let sent = self.send(&info);
            let sent = sent.and_then(|sent| self.remote.checked("rt_sigqueueinfo", sent).map(drop));
            all = all.and(sent);
        }
        all
    }
}

/// Tells the process, which is to be told again as it was. `None`: another signal has come in the place of that one, so that what
/// it says is lost; the process is to be told without.
fn fire(
    signals: &mut Signals<'_, '_>,
    queue: BorrowedFd<'_>,
    number: i32,
    wanted: &Wanted,
) -> Result<Option<Notification>> {
    let failed = |call| move |errno| EngineError::system(call, &wanted.name, errno);
    mqueue::send(queue, 0, &[]).map_err(failed("mq_send"))?;
    // From here on everything is given back before any failure counts.
    let came = signals.take_until(|info| code(info) == BY_QUEUE);
    // What was there was nothing.
    let received = mqueue::receive(queue, usize::try_from(wanted.message_size).unwrap_or_default());
    let disturbed = !signals.foreign.is_empty();
    let given_back = signals.give_back();
    let mut told = wanted.notification.clone();
    let is_lost = match &came {
        Ok(Some(info)) => {
            told.value = value(info);
            false
        }
        // It has executed another program since it has asked, which is told nothing (ipc/mqueue.c, __do_notify).
        Ok(None) if !disturbed => {
            told.signal = Some(0);
            false
        }
        Ok(None) | Err(_) => true,
    };
    let asked = told.ask(signals.remote, number);
    came?;
    given_back?;
    asked?;
    received.map_err(failed("mq_receive"))?;
    if is_lost {
        tracing::error!(
            "the next signal {} about the queue {} comes without its value: another came in between",
            wanted.signal,
            wanted.name
        );
    }
    Ok((!is_lost).then_some(told))
}

fn code(info: &[u8; SIGINFO]) -> i32 {
    let mut code = [0; 4];
    code.copy_from_slice(&info[CODE_AT..CODE_AT + 4]);
    i32::from_ne_bytes(code)
}

fn value(info: &[u8; SIGINFO]) -> u64 {
    let mut value = [0; 8];
    value[..WORD].copy_from_slice(&info[VALUE_AT..VALUE_AT + WORD]);
    u64::from_ne_bytes(value)
}
