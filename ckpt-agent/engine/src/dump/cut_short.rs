//! Calls that a stop has cut short: a write into a full pipe, of which a part had been taken, returns that part when its
//! thread is stopped, as it does after a signal handler. A program that has no handler never sees such an answer, and may
//! take it for an error. So its thread makes the rest of the call when it goes on, and hears of both parts as one answer.
//! The same goes for what waits for all of its bytes (MSG_WAITALL).
//!
//! Only what is surely not whole is gone on with: of pipes and of sockets that are streams, without a time limit. The code
//! waits by poll(2) first, which a handler ends whatever it is installed with, so that the part is the answer then, as it
//! is without ckptd; and what poll says of an error or of a peer that has gone is left for the program's next call.
//!
//! That takes code in the process: the call, the sum, and a jump to where the thread would have gone on, with all
//! registers as they would have been. It lies in memory of ours, a page of code and one of what the code's calls read and
//! write besides the program's buffers, which stays: a handler may interrupt the rest of the call, and return to it at any
//! time later. Where the next checkpoint cuts that short, too, the rest of the rest has code of
//! its own, which goes on in this one.

use std::os::fd::OwnedFd;

use procfs::process::Status;

use super::super::arch::words::{WORD, from_words, to_words};
use super::super::arch::{Architecture, Call, Current, calls};
use super::super::error::{EngineError, Result};
use super::super::freeze::StoppedProcess;
use super::super::graph::Protection;
use super::super::proc::Mapping;
use super::super::sys::page::page_size;
use super::super::sys::pidfd::PidFd;
use super::super::sys::sockopt;
use super::super::trace::{ProcessMemory, StoppedThread};

/// What memory of ours begins with: the name, and a word that says how far it is used.
const NAME: &[u8; 24] = b"ckptd: rests of calls\0\0\0";
/// Where the first piece of code lies.
const FIRST: u64 = 32;
/// Pieces of code begin at multiples of this.
const ALIGNMENT: u64 = 16;
/// Mappings of code without a file are searched for memory of ours if they are no larger: others are a compiler's.
const LARGEST: u64 = 1 << 20;
/// Buffers of a call that are looked at.
const MANY_BUFFERS: u64 = 128;
/// So many pages of code a process gets at most.
const MOST_PAGES: usize = 16;
/// struct pollfd, in which the last 16 bits are what poll(2) tells; calls' own data comes behind it.
const POLL: u64 = 16;
const TOLD: u64 = 6;

/// What is left of a call, and what it reads, and may write, one page behind its code.
#[derive(Debug, PartialEq, Eq)]
struct Rest {
    call: Call,
    data: Vec<u8>,
}

/// Has threads make the rest of calls that their stop has cut short, both where they go on and in the image. A process
/// that may not have more code is left as it is, and hears of the first part.
///
/// # Errors
/// [`EngineError::Gone`].
pub fn go_on(
    process: &mut StoppedProcess,
    mappings: &mut Vec<Mapping>,
    statuses: &[Status],
    entry_point: u64,
) -> Result<()> {
    let cut: Vec<usize> = process
        .threads
        .iter()
        .zip(statuses)
        .enumerate()
        .filter(|(_, (thread, status))| is_cut(thread) && !is_to_handle(status))
        .map(|(place, _)| place)
        .collect();
    if cut.is_empty() {
        return Ok(());
    }
    let Ok(own) = PidFd::open(process.leader) else { return Ok(()) };
    for place in cut {
        if !go_on_thread(process, place, (mappings, &own), entry_point)? {
            break;
        }
    }
    Ok(())
}

/// Whether what a thread was doing can have been cut short. What it reads is not looked at yet.
fn is_cut(thread: &StoppedThread) -> bool {
    let mut memory = ProcessMemory::of(thread.tid());
    Current::answered(thread.entry())
        .is_some_and(|(call, done)| rest_of(&call, done, 0, &mut memory).is_some())
}

/// Whether a signal waits for its handler, which cuts such a call short without ckptd.
fn is_to_handle(status: &Status) -> bool {
    (status.sigpnd | status.shdpnd) & !status.sigblk & status.sigcgt != 0
}

/// Whether there is room for the rests of other calls, too.
fn go_on_thread(
    process: &mut StoppedProcess,
    place: usize,
    (mappings, own): (&mut Vec<Mapping>, &PidFd),
    entry_point: u64,
) -> Result<bool> {
    let gone = EngineError::Gone(process.host_pid);
    let thread = process.threads.get_mut(place).ok_or(gone)?;
    thread.keep_from_calls()?;
    let (entry, mut memory) = (*thread.entry(), ProcessMemory::of(thread.tid()));
    let Some((call, done)) = Current::answered(&entry) else { return Ok(true) };
    let Some(poll) = Current::POLL else { return Ok(false) };
    let Some(wait) = Wait::of(&call, own) else { return Ok(true) };
    if thread.dispatch().is_some() {
        // It would have the call sent back to itself.
        return Ok(true);
    }
    let Some(Rest { data, .. }) = rest_of(&call, done, 0, &mut memory) else { return Ok(true) };
    // As long as it is with other numbers.
    let Some(code) = Current::code_of_rest(&entry, done, &call, (0, wait.given_up)) else {
        return Ok(true);
    };
    let needed = (code.len() as u64).max(POLL + data.len() as u64).next_multiple_of(ALIGNMENT);
    let room = match find_room(mappings, needed, &mut memory)? {
        Room::Here(page, at) => Some((page, at)),
        Room::Needed => make_room(process, mappings, entry_point)?,
        Room::Exhausted => None,
    };
    let Some((page, at)) = room else { return Ok(false) };
    let data_at = at + page_size();
    let Some(Rest { call, data }) = rest_of(&call, done, data_at + POLL, &mut memory) else {
        return Ok(true);
    };
    let told = (data_at + TOLD, wait.given_up);
    let Some(code) = Current::code_of_rest(&entry, done, &call, told) else { return Ok(true) };
    let used = (at + needed - page).to_ne_bytes();
    let written = memory
        .write(data_at, &[&wait.asked()[..], &data].concat())
        .and_then(|()| memory.write(at, &code))
        .and_then(|()| memory.write(page + NAME.len() as u64, &used));
    if written.is_err() {
        // A kernel that lets nobody write to code (proc_mem.force_override).
        return Ok(false);
    }
    let mut registers = entry;
    let without_end = u64::MAX;
    let poll = Call::of(poll, [data_at, 1, without_end, 0, 0, 0]);
    Current::prepare_call(&mut registers, at, poll);
    if let Some(thread) = process.threads.get_mut(place) {
        thread.go_on_with(registers);
    }
    Ok(true)
}

/// Where there is room for code.
enum Room {
    /// In memory of ours: its beginning, and the first free byte.
    Here(u64, u64),
    /// There is to be more memory.
    Needed,
    /// The process has as much as it gets.
    Exhausted,
}

/// Looks for room in memory of ours.
fn find_room(mappings: &[Mapping], needed: u64, memory: &mut ProcessMemory) -> Result<Room> {
    let page = page_size();
    let could_be = |mapping: &&Mapping| {
        mapping.protection.0 == Protection::READ | Protection::EXEC
            && mapping.inode == 0
            && !mapping.shared
            && !mapping.is_kernel()
            && mapping.length() <= LARGEST
    };
    let mut pages = 0;
    for mapping in mappings.iter().filter(could_be) {
        for start in (mapping.start..mapping.end).step_by(page as usize) {
            let mut head = [0; FIRST as usize];
            if memory.read(start, &mut head).is_err() || !head.starts_with(NAME) {
                continue;
            }
            pages += 1;
            let mut used = [0; 8];
            used.copy_from_slice(&head[NAME.len()..]);
            let used = u64::from_ne_bytes(used);
            if (FIRST..=page).contains(&used) && needed <= page - used {
                return Ok(Room::Here(start, start + used));
            }
        }
    }
    Ok(if pages < MOST_PAGES { Room::Needed } else { Room::Exhausted })
}

/// New memory of ours: its beginning, and the first free byte. `None`: the process may not have it.
fn make_room(
    process: &mut StoppedProcess,
    mappings: &mut Vec<Mapping>,
    entry_point: u64,
) -> Result<Option<(u64, u64)>> {
    let page = page_size();
    let protection = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let map = calls::map(0, 2 * page, protection, flags, u64::MAX, 0);
    let start = {
        let mut remote = process.lend(entry_point)?;
        let answer = remote.raw(map.number, &map.arguments)?;
        let mut start = remote.checked("mmap", answer).ok();
        if let Some(mapped) = start {
            let writable = (libc::PROT_READ | libc::PROT_WRITE) as u64;
            if remote.raw(libc::SYS_mprotect, &[mapped + page, page, writable])? != 0 {
                remote.call("munmap", libc::SYS_munmap, &[mapped, 2 * page])?;
                start = None;
            }
        }
        start
    };
    // What a later look at the process takes for memory of its own must not be the scratch area.
    process.put_scratch_away()?;
    let Some(start) = start else { return Ok(None) };
    let mut memory = ProcessMemory::of(process.host_pid);
    let head = [&NAME[..], &FIRST.to_ne_bytes()].concat();
    let written = memory.write(start, &head);
    let place = mappings.partition_point(|mapping| mapping.start < start);
    let (code, data) = (Protection::READ | Protection::EXEC, Protection::READ | Protection::WRITE);
    let own = [(start, code), (start + page, data)]
        .map(|(start, bits)| Mapping::anonymous(start, start + page, Protection(bits)));
    mappings.splice(place..place, own);
    Ok(written.is_ok().then_some((start, start + FIRST)))
}

/// The rest of a call of which `done` bytes are done, if it is one that a stop can cut short. What it reads besides its
/// buffers is to lie at `place`.
fn rest_of(call: &Call, done: u64, place: u64, memory: &mut ProcessMemory) -> Option<Rest> {
    let numbers = [
        libc::SYS_write,
        libc::SYS_sendto,
        libc::SYS_recvfrom,
        libc::SYS_sendfile,
        libc::SYS_writev,
        libc::SYS_sendmsg,
        libc::SYS_recvmsg,
    ];
    let [write, sendto, recvfrom, sendfile, writev, sendmsg, recvmsg] = numbers.map(i64::from);
    let mut rest = *call;
    let [_, buffer, length, count, ..] = &mut rest.arguments;
    let data = match call.number {
        number if number == write || number == sendto && is_plain(*count) => {
            *length = less(*length, done)?;
            *buffer += done;
            Vec::new()
        }
        number if number == recvfrom && waits_for_all(*count) => {
            *length = less(*length, done)?;
            *buffer += done;
            // Who has sent it, it has said already.
            rest.arguments[4..].fill(0);
            Vec::new()
        }
        number if number == sendfile => {
            *count = less(*count, done)?;
            Vec::new()
        }
        number if number == writev => {
            let buffers = rest_of_buffers(*buffer, *length, done, memory)?;
            (*buffer, *length) = (place, (buffers.len() / (2 * WORD)) as u64);
            buffers
        }
        number
            if number == sendmsg && is_plain(*length)
                || number == recvmsg && waits_for_all(*length) =>
        {
            // struct msghdr: name, its length, buffers, how many, control data, its length, flags.
            let mut message = [0; 7 * WORD];
            memory.read(*buffer, &mut message).ok()?;
            let [_, _, buffers, count, ..] = *from_words(&message) else { return None };
            let buffers = rest_of_buffers(buffers, count, done, memory)?;
            let count = (buffers.len() / (2 * WORD)) as u64;
            *buffer = place;
            let place = place + message.len() as u64;
            [to_words(&[0, 0, place, count, 0, 0, 0]), buffers].concat()
        }
        _ => return None,
    };
    Some(Rest { call: rest, data })
}

/// Whether a call that sends with these flags is one call in two parts as well as in one, and waits.
fn is_plain(flags: u64) -> bool {
    flags & (libc::MSG_ZEROCOPY | libc::MSG_OOB | libc::MSG_DONTWAIT) as u64 == 0
}

/// What is waited for before the rest of a call is made.
#[derive(Debug, Clone, Copy)]
struct Wait {
    fd: i32,
    events: i16,
    /// Where poll(2) tells of any of these, the part is the answer.
    given_up: u16,
}

impl Wait {
    /// `None`: the part of the call may be all that was to come.
    fn of(call: &Call, own: &PidFd) -> Option<Self> {
        let [from, message] = [libc::SYS_recvfrom, libc::SYS_recvmsg].map(i64::from);
        let receives = [from, message].contains(&call.number);
        let fd = i32::try_from(call.arguments[0]).ok()?;
        let copy = own.descriptor(fd).ok()?;
        let kind = nix::sys::stat::fstat(&copy).ok()?.st_mode & libc::S_IFMT;
        let fits = match kind {
            libc::S_IFIFO => !receives,
            libc::S_IFSOCK => is_stream(&copy, receives, call.number == message),
            _ => false,
        };
        let (error, gone) = ((libc::POLLERR | libc::POLLNVAL) as u16, libc::POLLHUP as u16);
        let (events, given_up) =
            if receives { (libc::POLLIN, error) } else { (libc::POLLOUT, error | gone) };
        fits.then_some(Self { fd, events, given_up })
    }

    /// struct pollfd
    fn asked(self) -> [u8; POLL as usize] {
        let mut bytes = [0; POLL as usize];
        bytes[..4].copy_from_slice(&self.fd.to_ne_bytes());
        bytes[4..TOLD as usize].copy_from_slice(&self.events.to_ne_bytes());
        bytes
    }
}

/// Whether what a socket takes or gives in two parts is the same in one, and waits for as long as it takes. A stream of the
/// Unix domain ends a call where descriptors come along, or another sender.
fn is_stream(socket: &OwnedFd, receives: bool, with_more: bool) -> bool {
    let option = |name| sockopt::get_int(socket, libc::SOL_SOCKET, name).ok();
    let is_local = option(libc::SO_DOMAIN) == Some(libc::AF_UNIX);
    let is_told_who = option(libc::SO_PASSCRED) != Some(0);
    let limit = if receives { libc::SO_RCVTIMEO } else { libc::SO_SNDTIMEO };
    let time = sockopt::get_bytes(socket, libc::SOL_SOCKET, limit, size_of::<libc::timeval>());
    option(libc::SO_TYPE) == Some(libc::SOCK_STREAM)
        && time.is_ok_and(|time| time.iter().all(|byte| *byte == 0))
        && !(receives && is_local && (with_more || is_told_who))
}

/// What is left, if anything is.
fn less(whole: u64, done: u64) -> Option<u64> {
    whole.checked_sub(done).filter(|left| *left > 0)
}

/// Whether these flags of a call that receives have it wait for as much as it asks for.
fn waits_for_all(flags: u64) -> bool {
    let (all, others) = (libc::MSG_WAITALL, libc::MSG_PEEK | libc::MSG_ERRQUEUE | libc::MSG_TRUNC);
    flags & all as u64 != 0 && flags & others as u64 == 0
}

/// An array of struct iovec without what is done, if anything is left.
fn rest_of_buffers(at: u64, count: u64, done: u64, memory: &mut ProcessMemory) -> Option<Vec<u8>> {
    if count > MANY_BUFFERS {
        return None;
    }
    let mut bytes = vec![0; count as usize * 2 * WORD];
    memory.read(at, &mut bytes).ok()?;
    let (mut rest, mut done) = (Vec::new(), done);
    for buffer in from_words(&bytes).chunks_exact(2) {
        let &[base, length] = buffer else { continue };
        let skipped = length.min(done);
        done -= skipped;
        if length > skipped {
            rest.extend([base + skipped, length - skipped]);
        }
    }
    (!rest.is_empty()).then(|| to_words(&rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(number: libc::c_long, arguments: [u64; 6], done: u64) -> Option<Rest> {
        let mut memory = ProcessMemory::of(std::process::id() as i32);
        rest_of(&Call::of(number, arguments), done, 0x9000, &mut memory)
    }

    #[test]
    fn a_write_goes_on_behind_what_is_written() {
        let found = rest(libc::SYS_write, [1, 0x1000, 100, 7, 8, 9], 30).unwrap();
        assert_eq!(found.call.arguments, [1, 0x101e, 70, 7, 8, 9]);
        assert_eq!(rest(libc::SYS_write, [1, 0x1000, 100, 0, 0, 0], 100), None);
        let flags = libc::MSG_ZEROCOPY as u64;
        assert_eq!(rest(libc::SYS_sendto, [1, 0x1000, 100, flags, 0, 0], 30), None);
        assert_eq!(rest(libc::SYS_read, [1, 0x1000, 100, 0, 0, 0], 30), None);
    }

    #[test]
    fn what_receives_goes_on_where_it_waits_for_all() {
        let all = libc::MSG_WAITALL as u64;
        let found = rest(libc::SYS_recvfrom, [1, 0x1000, 100, all, 8, 9], 30).unwrap();
        assert_eq!(found.call.arguments, [1, 0x101e, 70, all, 0, 0]);
        assert_eq!(rest(libc::SYS_recvfrom, [1, 0x1000, 100, 0, 0, 0], 30), None);
        let looks = all | libc::MSG_PEEK as u64;
        assert_eq!(rest(libc::SYS_recvfrom, [1, 0x1000, 100, looks, 0, 0], 30), None);
    }

    #[test]
    fn buffers_go_on_in_the_midst_of_one() {
        let buffers = to_words(&[0x1000, 10, 0x2000, 20, 0x3000, 30]);
        let at = buffers.as_ptr() as u64;
        let found = rest(libc::SYS_writev, [1, at, 3, 0, 0, 0], 15).unwrap();
        assert_eq!(found.call.arguments, [1, 0x9000, 2, 0, 0, 0]);
        assert_eq!(from_words(&found.data), [0x2005, 15, 0x3000, 30]);
        let message = to_words(&[0x5000, 16, at, 3, 0x6000, 24, 1]);
        let message = message.as_ptr() as u64;
        let found = rest(libc::SYS_sendmsg, [1, message, 0, 0, 0, 0], 10).unwrap();
        assert_eq!(found.call.arguments, [1, 0x9000, 0, 0, 0, 0]);
        let header = 0x9000 + 7 * WORD as u64;
        let words = [0, 0, header, 2, 0, 0, 0, 0x2000, 20, 0x3000, 30];
        assert_eq!(from_words(&found.data), words);
        assert_eq!(rest(libc::SYS_writev, [1, at, 3, 0, 0, 0], 60), None);
    }
}
