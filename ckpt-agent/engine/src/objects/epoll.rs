//! epoll(7): sets of registrations, each keyed by an open file description and the number that
//! it was registered under.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::FileId;
use super::super::sys::dup3::dup3;
use super::super::sys::poll::poll_one;
use super::super::sys::stat::identity;
use super::super::sys::{abi, kcmp};
use super::{DumpContext, Fate, Found, Object, ObjectKind, Probe, RestoreContext, Saved};

/// Limit of registrations in one set.
const LIMIT: usize = 1_000_000;

/// Bits that tell how events are reported, not which (fs/eventpoll.c, EP_PRIVATE_BITS). A one-shot
/// registration that has fired has no others left.
const PRIVATE_BITS: u32 =
    (libc::EPOLLWAKEUP | libc::EPOLLONESHOT | libc::EPOLLET | libc::EPOLLEXCLUSIVE) as u32;

/// Events of which at least one is true of almost any object.
const ANY_EVENT: u32 = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLPRI | libc::EPOLLRDHUP) as u32;

/// An epoll instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoll {
    /// Its registrations.
    pub registrations: Vec<Registration>,
    /// Nothing waits to be told: what is true of edge-triggered registrations was told before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quiet: bool,
    /// Busy polling, where the program has set it (EPIOCSPARAMS).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polling: Option<Polling>,
}

/// One registration: EPOLL_CTL_ADD.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// The number that the target was registered under. The descriptor may be closed since.
    pub fd: i32,
    /// EPOLL* events and flags.
    pub events: u32,
    /// The program's own word.
    pub data: u64,
    /// The target; known once all descriptions are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<FileId>,
    /// The target's inode number on this machine, while the dump looks for it.
    #[serde(skip)]
    inode: u64,
}

impl Registration {
    /// `4 events: 19 data: 4  pos:0 ino:348f sdev:f` (fs/eventpoll.c, ep_show_fdinfo): the
    /// number decimal, all else hexadecimal.
    fn parse(line: &str) -> Result<Self> {
        let odd = || EngineError::odd("a registration in fdinfo", line);
        let spaced = line.replace(':', " ");
        let mut words = spaced.split_whitespace();
        let fd = words.next().and_then(|word| word.parse().ok()).ok_or_else(odd)?;
        let mut found = Self { fd, events: 0, data: 0, target: None, inode: 0 };
        while let (Some(key), Some(value)) = (words.next(), words.next()) {
            let number = || u64::from_str_radix(value, 16).map_err(|_| odd());
            match key {
                "events" => found.events = u32::try_from(number()?).map_err(|_| odd())?,
                "data" => found.data = number()?,
                "ino" => found.inode = number()?,
                _ => {}
            }
        }
        Ok(found)
    }

    /// A one-shot registration that has fired and waits for EPOLL_CTL_MOD.
    fn is_disabled(&self) -> bool {
        self.events & !PRIVATE_BITS == 0
    }

    /// Edge-triggered, and it goes on telling.
    fn is_edge(&self) -> bool {
        let flags = (libc::EPOLLET | libc::EPOLLONESHOT) as u32;
        self.events & flags == libc::EPOLLET as u32
    }

    /// With which events one that has fired is made, so that it fires once more.
    pub fn fires_once_more(&self) -> Option<u32> {
        self.is_disabled().then_some(self.events | ANY_EVENT)
    }
}

impl ObjectKind for Epoll {
    fn recognise(probe: &Probe) -> bool {
        probe.is_anonymous("[eventpoll]")
    }

    fn dump(probe: &Probe, _context: &mut DumpContext) -> Result<Self> {
        let registrations: Result<Vec<_>> =
            probe.info.lines("tfd").take(LIMIT + 1).map(Registration::parse).collect();
        let registrations = registrations?;
        if registrations.len() > LIMIT {
            let what = format!("an epoll instance with more than {LIMIT} registrations");
            return Err(Refusal::new(what, "use several instances").into());
        }
        let ready = poll_one(&probe.copy, libc::POLLIN, Duration::ZERO)
            .map_err(|error| EngineError::system("poll", "an epoll instance", error))?;
        let edges = registrations.iter().any(Registration::is_edge);
        let quiet = edges && ready & libc::POLLIN == 0;
        Ok(Self { registrations, quiet, polling: Polling::of(probe.copy.as_fd()) })
    }

    fn finish(all: &mut [Found<'_, Self>], context: &mut DumpContext) -> Result<()> {
        let targets = Targets::of(context);
        for found in all {
            let probe = found.probe;
            let mut seen: BTreeMap<i32, u32> = BTreeMap::new();
            for registration in &mut found.object.registrations {
                let nth = seen.entry(registration.fd).or_insert(0);
                let target = targets.find(probe, registration, *nth);
                *nth += 1;
                let missing = || {
                    let what = format!(
                        "an epoll instance waits for what was registered as descriptor {}, \
                         which no process of the job holds any more",
                        registration.fd
                    );
                    let way_out = "remove it with EPOLL_CTL_DEL before it is closed";
                    EngineError::from(Refusal::new(what, way_out)).at(
                        probe.pid,
                        &probe.comm,
                        probe.fd,
                    )
                };
                registration.target = Some(target.ok_or_else(missing)?);
            }
        }
        Ok(())
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        for saved in all {
            // SAFETY: plain numbers; the answer is checked before it is used.
            let fd = Errno::result(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
                .map_err(|errno| EngineError::system("epoll_create1", "an instance", errno))?;
            // SAFETY: the kernel just made this descriptor for us alone.
            let made = unsafe { OwnedFd::from_raw_fd(fd) };
            if let Some(polling) = saved.object.polling {
                if let Err(errno) = polling.set(made.as_fd()) {
                    context.warn(format!("epoll: busy polling is not set again ({errno})"));
                }
            }
            context.park(saved.id, made)?;
        }
        Ok(())
    }

    fn wire(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        wire(all, context, Moment::Now)
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Again
    }
}

/// Edges that were told before are taken once more, so that nobody is told of them again. This is the last thing that is done
/// before the job goes on, when all is true of the targets that was. Only where every registration that
/// can be ready is edge-triggered nothing else could be lost by it.
///
/// # Errors
/// Failed system calls.
pub(super) fn quieten(all: &[Saved<'_, Epoll>], context: &RestoreContext<'_>) -> Result<()> {
    for saved in all.iter().filter(|saved| saved.object.quiet && context.needs(saved.id)) {
        let epoll = context.parked(saved.id)?;
        // One that fires once and has not fired would not fire any more.
        let once =
            |one: &Registration| one.events & libc::EPOLLONESHOT as u32 != 0 && !one.is_disabled();
        if saved.object.registrations.iter().any(once) {
            continue;
        }
        for _ in &saved.object.registrations {
            let mut told = libc::epoll_event { events: 0, u64: 0 };
            // SAFETY: the kernel stores at most one event, which outlives the call.
            let count = unsafe { libc::epoll_wait(epoll.as_raw_fd(), &raw mut told, 1, 0) };
            match Errno::result(count) {
                Ok(0) => break,
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(EngineError::system("epoll_wait", "edges", errno)),
            }
        }
    }
    Ok(())
}

/// struct epoll_params (include/uapi/linux/eventpoll.h), since Linux 6.9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Polling {
    /// Microseconds.
    pub microseconds: u32,
    /// Packets at once.
    pub budget: u16,
    /// Interrupts are put off meanwhile.
    pub preferred: bool,
}

/// EPIOCSPARAMS and EPIOCGPARAMS: eight bytes.
const SET_POLLING: u32 = 0x4008_8a01;
const GET_POLLING: u32 = 0x8008_8a02;

impl Polling {
    /// None: there is none, or the kernel has it not.
    fn of(epoll: BorrowedFd<'_>) -> Option<Self> {
        let mut bytes = [0u8; 8];
        // SAFETY: the kernel stores as many bytes, which outlive the call.
        let answer =
            unsafe { libc::ioctl(epoll.as_raw_fd(), GET_POLLING as _, bytes.as_mut_ptr()) };
        if answer != 0 || bytes == [0; 8] {
            return None;
        }
        let [a, b, c, d, low, high, preferred, _] = bytes;
        Some(Self {
            microseconds: u32::from_ne_bytes([a, b, c, d]),
            budget: u16::from_ne_bytes([low, high]),
            preferred: preferred != 0,
        })
    }

    fn set(self, epoll: BorrowedFd<'_>) -> nix::Result<()> {
        let mut bytes = [0u8; 8];
        bytes[..4].copy_from_slice(&self.microseconds.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.budget.to_ne_bytes());
        bytes[6] = u8::from(self.preferred);
        // SAFETY: the kernel reads as many bytes, which outlive the call.
        let answer =
            unsafe { libc::ioctl(epoll.as_raw_fd(), SET_POLLING as _, bytes.as_mut_ptr()) };
        Errno::result(answer).map(drop)
    }
}

/// When a registration is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// Once all descriptions are there.
    Now,
    /// Once all processes are: of those that refer to them.
    Later,
    /// By a process that holds it: of those that are about signals.
    ByHolder,
}

impl Moment {
    fn of(target: FileId, context: &RestoreContext<'_>) -> Self {
        match context.graph.object(target) {
            Some(Object::SignalReader(_)) => Self::ByHolder,
            Some(other) if other.is_made_late() => Self::Later,
            _ => Self::Now,
        }
    }
}

/// Registers what refers to processes.
///
/// # Errors
/// As [`ObjectKind::wire`].
pub(super) fn wire_late(all: &[Saved<'_, Epoll>], context: &RestoreContext<'_>) -> Result<()> {
    wire(all, context, Moment::Later)
}

/// A registration of a signal descriptor.
#[derive(Debug)]
pub struct OfSignals<'g> {
    /// The instance.
    pub epoll: FileId,
    /// The descriptor.
    pub target: FileId,
    /// How it is registered.
    pub registration: &'g Registration,
    /// The highest number that anything is registered under in the instance.
    pub highest: i32,
}

impl OfSignals<'_> {
    /// Makes it in this process, whose signals it listens to then.
    ///
    /// # Errors
    /// As [`ObjectKind::wire`].
    pub fn register_here(&self, context: &RestoreContext<'_>) -> Result<()> {
        register(self.epoll, self.registration, context)
    }
}

/// Registrations that are to be made by a holder.
pub(super) fn of_signals<'g>(
    all: &[Saved<'g, Epoll>],
    context: &RestoreContext<'_>,
) -> Vec<OfSignals<'g>> {
    let mut found = Vec::new();
    for saved in all {
        let registrations = &saved.object.registrations;
        let highest = registrations.iter().map(|one| one.fd).max().unwrap_or(0);
        for registration in registrations {
            let Some(target) = registration.target.filter(|target| context.needs(*target)) else {
                continue;
            };
            if Moment::of(target, context) == Moment::ByHolder {
                found.push(OfSignals { epoll: saved.id, target, registration, highest });
            }
        }
    }
    found
}

fn wire(all: &[Saved<'_, Epoll>], context: &RestoreContext<'_>, moment: Moment) -> Result<()> {
    for saved in all {
        // Disabled ones first: they have to fire once, and nothing else may fire with them.
        let (disabled, enabled): (Vec<_>, Vec<_>) =
            saved.object.registrations.iter().partition(|one| one.is_disabled());
        for registration in disabled.into_iter().chain(enabled) {
            // One that is elsewhere nobody here could tell from one that never is ready.
            let is_due =
                |target: FileId| context.needs(target) && Moment::of(target, context) == moment;
            if registration.target.is_none_or(is_due) {
                register(saved.id, registration, context)?;
            }
        }
    }
    Ok(())
}

/// Where the targets of registrations are looked for: the descriptors of the job.
struct Targets<'a> {
    context: &'a DumpContext,
    by_number: BTreeMap<i32, Vec<(i32, FileId)>>,
    one_of_each: BTreeMap<FileId, (i32, i32)>,
}

impl<'a> Targets<'a> {
    fn of(context: &'a DumpContext) -> Self {
        let mut by_number: BTreeMap<i32, Vec<(i32, FileId)>> = BTreeMap::new();
        let mut one_of_each = BTreeMap::new();
        for ((pid, fd), file) in &context.descriptors {
            by_number.entry(*fd).or_default().push((*pid, *file));
            one_of_each.entry(*file).or_insert((*pid, *fd));
        }
        Self { context, by_number, one_of_each }
    }

    /// The description that is registered `nth` under its number: most likely the one that the
    /// same process, or a relative, has under that number; else any.
    fn find(&self, probe: &Probe, registration: &Registration, nth: u32) -> Option<FileId> {
        let epoll = (probe.host_pid, probe.fd);
        let own = self.context.descriptors.get(&(probe.host_pid, registration.fd)).copied();
        let same_number = self.by_number.get(&registration.fd).into_iter().flatten();
        let candidates = own
            .map(|file| (probe.host_pid, registration.fd, file))
            .into_iter()
            .chain(same_number.map(|(pid, file)| (*pid, registration.fd, *file)))
            .chain(self.one_of_each.iter().map(|(file, (pid, fd))| (*pid, *fd, *file)));
        for (pid, fd, file) in candidates {
            let number = registration.fd as u32;
            match kcmp::is_epoll_target(epoll, number, nth, (pid, fd)) {
                Some(true) => return Some(file),
                Some(false) => {}
                None => return self.find_by_inode(probe, registration, own),
            }
        }
        None
    }

    /// Without kcmp(2): the descriptor of that number, if its inode is the registered one. Behind
    /// anonymous inodes, which all have one number, this may be another object; so only the
    /// process's own descriptors count for them.
    fn find_by_inode(
        &self,
        probe: &Probe,
        registration: &Registration,
        own: Option<FileId>,
    ) -> Option<FileId> {
        let inode_of = |pid: i32, fd: i32| {
            nix::sys::stat::stat(format!("/proc/{pid}/fd/{fd}").as_str())
                .ok()
                .map(|found| (identity(&found).1, found.st_mode & abi::S_IFMT == 0))
        };
        let (inode, _) = inode_of(probe.host_pid, registration.fd).unwrap_or((0, false));
        if own.is_some() && inode == registration.inode {
            return own;
        }
        self.one_of_each
            .iter()
            .find(|(_, (pid, fd))| inode_of(*pid, *fd) == Some((registration.inode, false)))
            .map(|(file, _)| *file)
    }
}

/// Adds a registration under its old number. Whatever holds that number in this process is put
/// aside and put back: the registration stays with the description, which is parked elsewhere.
fn register(epoll: FileId, wanted: &Registration, context: &RestoreContext) -> Result<()> {
    let target = wanted
        .target
        .ok_or_else(|| EngineError::Damaged("an epoll registration without target".into()))?;
    // Copies out of the number's way: it may be the very one that something is parked at.
    let above = context.first_free.max(wanted.fd.saturating_add(1));
    let epoll = copy_above(context.parked(epoll)?, above)?;
    let target = copy_above(context.parked(target)?, above)?;
    let number = Borrowed::take(wanted.fd, target.as_fd(), above)?;
    let added = if wanted.is_disabled() {
        add_disabled(epoll.as_fd(), wanted)
    } else {
        control(epoll.as_fd(), libc::EPOLL_CTL_ADD, wanted, wanted.events)
    };
    number.give_back()?;
    added.map_err(|errno| {
        EngineError::system("epoll_ctl", format!("descriptor {}", wanted.fd), errno)
    })
}

/// Lets a one-shot registration fire: only so do its events become empty, since the kernel adds
/// EPOLLERR and EPOLLHUP to whatever is asked for. Where nothing is true of the target, it stays
/// registered for those two.
fn add_disabled(epoll: BorrowedFd<'_>, wanted: &Registration) -> nix::Result<()> {
    control(epoll, libc::EPOLL_CTL_ADD, wanted, wanted.events | ANY_EVENT)?;
    let mut fired = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: the kernel stores at most one event, which outlives the call.
    let count = unsafe { libc::epoll_wait(epoll.as_raw_fd(), &raw mut fired, 1, 0) };
    if Errno::result(count)? == 0 {
        control(epoll, libc::EPOLL_CTL_MOD, wanted, wanted.events)?;
    }
    Ok(())
}

fn control(
    epoll: BorrowedFd<'_>,
    operation: i32,
    wanted: &Registration,
    events: u32,
) -> nix::Result<()> {
    let mut event = libc::epoll_event { events, u64: wanted.data };
    // SAFETY: the kernel reads the event, which outlives the call.
    let answer =
        unsafe { libc::epoll_ctl(epoll.as_raw_fd(), operation, wanted.fd, &raw mut event) };
    Errno::result(answer).map(drop)
}

fn copy_above(fd: BorrowedFd<'_>, above: i32) -> Result<OwnedFd> {
    let copy = fcntl(fd, FcntlArg::F_DUPFD_CLOEXEC(above))
        .map_err(|errno| EngineError::system("fcntl", format!("F_DUPFD from {above}"), errno))?;
    // SAFETY: fcntl just returned this number for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// A descriptor number that is used for a moment, with what it held before.
struct Borrowed {
    number: i32,
    before: Option<(OwnedFd, i32)>,
}

impl Borrowed {
    fn take(number: i32, content: BorrowedFd<'_>, above: i32) -> Result<Self> {
        if number < 0 {
            return Err(EngineError::Damaged(format!("an epoll target numbered {number}")));
        }
        // SAFETY: F_GETFD of any number touches nothing; EBADF tells that it is free.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
        let before = if flags < 0 {
            None
        } else {
            // SAFETY: the number is open in this single-threaded process, and it stays so for as
            // long as this borrow.
            let held = unsafe { BorrowedFd::borrow_raw(number) };
            Some((copy_above(held, above)?, flags))
        };
        duplicate(content, number, libc::FD_CLOEXEC)?;
        Ok(Self { number, before })
    }

    fn give_back(self) -> Result<()> {
        match &self.before {
            Some((fd, flags)) => duplicate(fd.as_fd(), self.number, *flags),
            None => {
                // SAFETY: `take` opened this number for us alone.
                drop(unsafe { OwnedFd::from_raw_fd(self.number) });
                Ok(())
            }
        }
    }
}

fn duplicate(from: BorrowedFd<'_>, to: i32, flags: i32) -> Result<()> {
    let cloexec = if flags & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
    // SAFETY: `to` is either free or put aside by `Borrowed`, which puts it back.
    unsafe { dup3(from, to, cloexec) }
        .map_err(|errno| EngineError::system("dup3", format!("to descriptor {to}"), errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel() {
        let line = "4 events: 80000019 data: ffffffffffffff04  pos:0 ino:348f sdev:f";
        let found = Registration::parse(line).unwrap();
        assert_eq!((found.fd, found.events), (4, 0x8000_0019));
        assert_eq!((found.data, found.inode), (0xffff_ffff_ffff_ff04, 0x348f));
        assert!(Registration::parse("x events: 1").is_err());
        assert!(Registration::parse("4 events: 100000000").is_err());
    }
}
