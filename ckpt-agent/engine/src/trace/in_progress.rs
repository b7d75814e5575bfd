//! The system call that a running thread sleeps in, as /proc/TID/syscall tells it.

use std::io::ErrorKind;

use super::super::arch::{Call, CallInProgress};
use super::super::proc::{read_text, state};

/// A running thread in a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeenAsleep {
    /// In this one.
    In(CallInProgress),
    /// In one that /proc shows to root alone (PR_SET_DUMPABLE).
    Hidden,
}

/// A thread that sleeps in a call. `None`: it runs, sleeps elsewhere, or the kernel does not tell (built without
/// CONFIG_HAVE_ARCH_TRACEHOOK).
pub fn asleep(tid: i32) -> Option<SeenAsleep> {
    match std::fs::read_to_string(format!("/proc/{tid}/syscall")) {
        Ok(text) => parse(&text).map(SeenAsleep::In),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let stat = read_text(&format!("/proc/{tid}/stat")).ok()??;
            (state(&stat) == Some('S')).then_some(SeenAsleep::Hidden)
        }
        Err(_) => None,
    }
}

/// Reads "NUMBER 0x.. 0x.. 0x.. 0x.. 0x.. 0x.. 0xSP 0xPC" (proc_pid_syscall(5)). Outside of a call there
/// are only -1, SP and PC; of a thread on a processor, the word "running".
fn parse(text: &str) -> Option<CallInProgress> {
    let mut words = text.split_ascii_whitespace();
    let number = words.next()?.parse().ok().filter(|number| *number >= 0)?;
    let mut next = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = next()?;
    }
    let (stack_pointer, program_counter) = (next()?, next()?);
    Some(CallInProgress { call: Call { number, arguments }, stack_pointer, program_counter })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_call() {
        let seen = parse("101 0x1 0x2 0x3 0x4 0x5 0x6 0xffffd0 0xffffaa14\n").unwrap();
        assert_eq!(seen.call, Call { number: 101, arguments: [1, 2, 3, 4, 5, 6] });
        assert_eq!((seen.stack_pointer, seen.program_counter), (0xffffd0, 0xffffaa14));
    }

    #[test]
    fn reads_nothing_into_other_answers() {
        for text in
            ["running\n", "-1 0x7ffc 0x401000\n", "", "101 0x1 0x2\n", "0 1 2 3 4 5 6 7 8\n"]
        {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn sees_a_sleeping_thread() {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            tell.send(nix::unistd::gettid().as_raw()).unwrap();
            let _ = ended.recv();
        });
        let tid = told.recv().unwrap();
        let seen = (0..1000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            asleep(tid)
        });
        let Some(SeenAsleep::In(seen)) = seen else { panic!("{seen:?}") };
        assert_eq!(seen.call.number, libc::SYS_futex);
        drop(end);
        sleeper.join().unwrap();
    }
}
