//! How a zombie came to its end, and how to come to the same end.

/// A wait(2) status taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// exit(2) with this code.
    Exit(i32),
    /// Killed by this signal. That a core was dumped is not repeated.
    Signal(i32),
}

impl Ending {
    /// Takes a status apart; nothing for one that no end of a process gives (wait(2)).
    pub(super) fn of(status: i32) -> Option<Self> {
        let signal = status & 0x7f;
        match (status, signal) {
            (0..=0xffff, 0) if status & 0x80 == 0 => Some(Self::Exit(status >> 8)),
            (0..=0xff, 1..=64) if kills(signal) => Some(Self::Signal(signal)),
            _ => None,
        }
    }

    /// Whether the default action of a signal is to dump a core (signal(7)).
    pub(super) fn dumps_core(signal: i32) -> bool {
        [
            libc::SIGQUIT,
            libc::SIGILL,
            libc::SIGTRAP,
            libc::SIGABRT,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGSEGV,
            libc::SIGXCPU,
            libc::SIGXFSZ,
            libc::SIGSYS,
        ]
        .contains(&signal)
    }
}

/// Whether the default action of a signal ends the process (signal(7)).
fn kills(signal: i32) -> bool {
    ![
        libc::SIGCHLD,
        libc::SIGCONT,
        libc::SIGSTOP,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGURG,
        libc::SIGWINCH,
    ]
    .contains(&signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_taken_apart() {
        assert_eq!(Ending::of(0), Some(Ending::Exit(0)));
        assert_eq!(Ending::of(0xff00), Some(Ending::Exit(255)));
        assert_eq!(Ending::of(9), Some(Ending::Signal(9)));
        assert_eq!(Ending::of(0x8b), Some(Ending::Signal(11)), "the mark of a core is dropped");
        assert_eq!(Ending::of(64), Some(Ending::Signal(64)));
    }

    #[test]
    fn what_is_no_end_is_refused() {
        for status in [-1, 0x10000, 0x80, 0x7f, 0x137f, 0xffff, 17, 19, 65, 0x109] {
            assert_eq!(Ending::of(status), None, "{status:#x}");
        }
    }
}
