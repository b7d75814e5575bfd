//! The filter that sends the calls in question to the init (seccomp(2), bpf(2)).

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};

use super::super::arch::{Architecture, Current, calls};
use super::super::error::{EngineError, Result};
use super::super::proc::read_text;
use super::super::sys::{abi, prctl};
use super::interfaces;
use super::notify::Listener;

/// struct seccomp_data (linux/seccomp.h): offsets.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;
/// The argument that no call in question has, where the init's own calls carry the word.
const WORD: u32 = 5;

/// A random word in a register that the calls in question do not use: a call that carries it passes the filter. It
/// keeps the init out of its own filter, and nobody else from anything.
#[derive(Debug, Clone, Copy)]
pub struct Pass(u64);

impl Pass {
    /// For a process without the filter: no call reads it.
    pub(super) fn unneeded() -> Self {
        Self(0)
    }

    /// The word, as the sixth argument.
    pub fn word(self) -> libc::c_long {
        self.0 as libc::c_long
    }
}

/// The filter is in force for this thread and for every thread and process that it makes from now on.
#[derive(Debug)]
pub struct Installed {
    pub(super) listener: Listener,
    pub(super) pass: Pass,
}

impl Installed {
    /// The word that a call carries as its sixth argument to pass, for one that is made in a process's name before it runs.
    pub fn word(&self) -> u64 {
        self.pass.0
    }
}

/// Puts this thread under the filter. It must not make one of the calls in question before somebody
/// answers them.
///
/// # Errors
/// A kernel before 5.9; somebody else answers calls of this process.
fn install() -> Result<Installed> {
    let mut word = [0; size_of::<libc::c_long>()];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut word))
        .map_err(|error| EngineError::system("read", "/dev/urandom", error))?;
    // As wide as a register.
    let pass = Pass(usize::from_ne_bytes(word) as u64);
    let mut program = program(pass);
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap_or(u16::MAX),
        filter: program.as_mut_ptr(),
    };
    prctl::set_no_new_privs()
        .map_err(|errno| EngineError::system("prctl", "PR_SET_NO_NEW_PRIVS", errno))?;
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: the program lives across the call, which copies it.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::c_ulong::from(libc::SECCOMP_SET_MODE_FILTER),
            flags,
            &raw const filter,
        )
    };
    if fd < 0 {
        return Err(EngineError::last_os("seccomp", "late connections"));
    }
    // SAFETY: the kernel just made this descriptor for us alone, close-on-exec.
    let listener = Listener::new(unsafe { OwnedFd::from_raw_fd(fd as i32) });
    Ok(Installed { listener, pass })
}

/// Does so, or says why it can't be: then the job runs without.
pub fn install_or_say(warnings: &mut Vec<String>) -> Option<Installed> {
    match install() {
        Ok(installed) => Some(installed),
        Err(error) => {
            warnings.push(format!(
                "connections that the job makes after a move will not find their peers: {error}"
            ));
            None
        }
    }
}

/// How many filters a thread is under (proc(5), Seccomp_filters); `None`: it has ended, or the kernel does not tell.
///
/// # Errors
/// Where /proc cannot be read.
pub fn filters_of(pid: i32, tid: i32) -> Result<Option<u32>> {
    let text = read_text(&format!("/proc/{pid}/task/{tid}/status"))?.unwrap_or_default();
    Ok(text
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp_filters:"))
        .and_then(|count| count.trim().parse().ok()))
}

fn load(offset: u32) -> libc::sock_filter {
    libc::sock_filter { code: abi::FILTER_LOAD, jt: 0, jf: 0, k: offset }
}

fn equal(value: u32, yes: u8, no: u8) -> libc::sock_filter {
    libc::sock_filter { code: abi::FILTER_IF_EQUAL, jt: yes, jf: no, k: value }
}

fn answer(verdict: u32) -> libc::sock_filter {
    libc::sock_filter { code: abi::FILTER_ANSWER, jt: 0, jf: 0, k: verdict }
}

/// Offsets of an argument's low and high halves.
fn halves(argument: u32) -> [u32; 2] {
    let at = ARGUMENTS + 8 * argument;
    if cfg!(target_endian = "little") { [at, at + 4] } else { [at + 4, at] }
}

/// Calls of other architectures' tables pass: such programs are left alone.
fn program(pass: Pass) -> Vec<libc::sock_filter> {
    let [address_low, address_high] = halves(1);
    let [word_low, word_high] = halves(WORD);
    let number = |call: libc::c_long| call as u32;
    // Jumps count the instructions that they leave out.
    vec![
        /* 0 */ load(ARCHITECTURE),
        /* 1 */ equal(Current::AUDIT_ARCH, 0, 21),
        /* 2 */ load(NUMBER),
        /* 3 */ equal(number(libc::SYS_bind), 14, 0),
        /* 4 */ equal(number(libc::SYS_connect), 13, 0),
        /* 5 */ equal(number(libc::SYS_listen), 12, 0),
        /* 6 */ equal(number(libc::SYS_getsockname), 11, 0),
        /* 7 */ equal(number(libc::SYS_getpeername), 10, 0),
        /* 8 */ equal(number(calls::ACCEPT), 5, 0),
        /* 9 */ equal(number(libc::SYS_accept4), 4, 0),
        /* 10 */ equal(number(libc::SYS_ioctl), 0, 12),
        // The kernel reads no more of a request.
        /* 11 */
        load(address_low),
        /* 12 */ equal(interfaces::LIST, 5, 0),
        /* 13 */ equal(interfaces::ADDRESS, 4, 9),
        // Who does not ask for the address needs no answer.
        /* 14 */
        load(address_low),
        /* 15 */ equal(0, 0, 2),
        /* 16 */ load(address_high),
        /* 17 */ equal(0, 5, 0),
        /* 18 */ load(word_low),
        /* 19 */ equal(pass.0 as u32, 0, 2),
        /* 20 */ load(word_high),
        /* 21 */ equal((pass.0 >> 32) as u32, 1, 0),
        /* 22 */ answer(libc::SECCOMP_RET_USER_NOTIF),
        /* 23 */ answer(libc::SECCOMP_RET_ALLOW),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The instructions that the filter is made of (bpf(2), classic).
    fn run(program: &[libc::sock_filter], data: &[u8]) -> u32 {
        let (mut at, mut word) = (0, 0);
        loop {
            let step = program[at];
            at += 1;
            match step.code {
                abi::FILTER_LOAD => {
                    let offset = step.k as usize;
                    word = u32::from_ne_bytes(data[offset..offset + 4].try_into().unwrap());
                }
                abi::FILTER_IF_EQUAL => {
                    at += usize::from(if word == step.k { step.jt } else { step.jf });
                }
                abi::FILTER_ANSWER => return step.k,
                code => panic!("instruction {code:#x}"),
            }
        }
    }

    fn verdict(number: libc::c_long, architecture: u32, arguments: [u64; 6]) -> u32 {
        let mut data = Vec::new();
        data.extend((number as u32).to_ne_bytes());
        data.extend(architecture.to_ne_bytes());
        data.extend(0u64.to_ne_bytes());
        arguments.iter().for_each(|argument| data.extend(argument.to_ne_bytes()));
        run(&program(Pass(0x1234_5678_9abc_def0)), &data)
    }

    #[test]
    fn the_right_calls_are_sent_to_the_init() {
        let own = Current::AUDIT_ARCH;
        let (ask, allow) = (libc::SECCOMP_RET_USER_NOTIF, libc::SECCOMP_RET_ALLOW);
        for call in [
            libc::SYS_bind,
            libc::SYS_connect,
            libc::SYS_listen,
            libc::SYS_getsockname,
            libc::SYS_getpeername,
        ] {
            assert_eq!(verdict(call, own, [3, 0, 0, 0, 0, 0]), ask);
            assert_eq!(verdict(call, own, [3, 0, 0, 0, 0, 0x1234_5678_9abc_def0]), allow);
            assert_eq!(verdict(call, own, [3, 0, 0, 0, 0, 0x1234_5678_0000_0000]), ask);
            assert_eq!(verdict(call, own, [3, 0, 0, 0, 0, 0x9abc_def0]), ask);
            assert_eq!(verdict(call, own ^ 1, [3, 0, 0, 0, 0, 0]), allow);
        }
        for call in [calls::ACCEPT, libc::SYS_accept4] {
            assert_eq!(verdict(call, own, [3, 0, 0, 0, 0, 0]), allow);
            assert_eq!(verdict(call, own, [3, 1, 0, 0, 0, 0]), ask);
            assert_eq!(verdict(call, own, [3, 1 << 32, 0, 0, 0, 0]), ask);
            assert_eq!(verdict(call, own, [3, 1, 0, 0, 0, 0x1234_5678_9abc_def0]), allow);
        }
        let device = |request: u32| verdict(libc::SYS_ioctl, own, [3, request.into(), 1, 0, 0, 0]);
        assert_eq!(device(interfaces::LIST), ask);
        assert_eq!(device(interfaces::ADDRESS), ask);
        assert_eq!(device(libc::TIOCGWINSZ as u32), allow);
        let own_word = [3, interfaces::LIST.into(), 1, 0, 0, 0x1234_5678_9abc_def0];
        assert_eq!(verdict(libc::SYS_ioctl, own, own_word), allow);
        for call in [libc::SYS_read, libc::SYS_socket, libc::SYS_sendto, libc::SYS_ppoll] {
            assert_eq!(verdict(call, own, [3, 1, 1, 1, 1, 1]), allow);
        }
    }
}
