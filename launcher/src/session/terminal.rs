//! The user's terminal: raw while a job has its own in the foreground, and put back on every way
//! out.

use super::terminal_guard::TerminalGuard;
use nix::sys::termios::{self, LocalFlags, SetArg, SpecialCharacterIndices, Termios};
use nix::unistd::{getpgrp, tcgetpgrp};
use protocol::launch::WindowSize;
use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ctrl-\, as a character.
pub const QUIT_KEY: u8 = 0x1c;

/// A special character that no key is (`_POSIX_VDISABLE` of Linux).
const DISABLED: u8 = 0;

/// Control characters of the kernel's `struct termios` on every architecture but alpha, mips,
/// powerpc and sparc (asm-generic/termbits.h).
const KERNEL_CONTROL_CHARACTERS: usize = 19;

/// A terminal that is not as it was.
struct Changed {
    terminal: OwnedFd,
    /// What is put back.
    before: Termios,
    is_raw: bool,
}

static CHANGED: Mutex<Option<Changed>> = Mutex::new(None);

/// Puts the terminal back if this process is killed; started when it is first made raw.
static GUARD: Mutex<Option<TerminalGuard>> = Mutex::new(None);

fn guard() -> MutexGuard<'static, Option<TerminalGuard>> {
    GUARD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn changed() -> MutexGuard<'static, Option<Changed>> {
    CHANGED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this process is in the foreground of that terminal.
pub fn is_foreground(terminal: impl AsFd) -> bool {
    tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp())
}

/// Makes the terminal raw, if this process is in its foreground and it is not changed already.
pub fn enter_raw(terminal: impl AsFd) {
    change(terminal, true, |settings| {
        termios::cfmakeraw(settings);
        true
    });
}

/// Has Ctrl-\ come as a character among the others, in their order, where the terminal would make SIGQUIT of it, which
/// may overtake them. If this process is in its foreground and it is not changed already; [`leave_raw`] puts it back.
pub fn take_quit_key(terminal: impl AsFd) {
    change(terminal, false, |settings| {
        let key = &mut settings.control_chars[SpecialCharacterIndices::VQUIT as usize];
        let is_meant = *key == QUIT_KEY;
        if is_meant {
            *key = DISABLED;
        }
        is_meant
    });
}

/// Changes a terminal; not where `to` says that there is nothing to be changed.
fn change(terminal: impl AsFd, is_raw: bool, to: impl FnOnce(&mut Termios) -> bool) {
    let mut changed = changed();
    if changed.is_some() || !is_foreground(&terminal) {
        return;
    }
    // A terminal that has hung up stays as it is.
    let Ok(before) = termios::tcgetattr(&terminal) else { return };
    let Ok(own) = terminal.as_fd().try_clone_to_owned() else { return };
    let mut after = before.clone();
    if !to(&mut after) {
        return;
    }
    let mut guard = guard();
    if guard.is_none() {
        *guard = TerminalGuard::start(&own);
    }
    if termios::tcsetattr(&terminal, SetArg::TCSADRAIN, &after).is_ok() {
        if let (Some(guard), Ok(after)) = (guard.as_mut(), termios::tcgetattr(&terminal)) {
            guard.is_changed(&before, &after);
        }
        *changed = Some(Changed { terminal: own, before, is_raw });
    }
}

/// Puts the terminal back, if it was changed. In the background it is left alone: it is the shell's
/// by then, and touching it would stop this process (SIGTTOU).
pub fn leave_raw() {
    if let Some(Changed { terminal, before, is_raw }) = changed().take() {
        if is_foreground(&terminal) {
            put_back(&terminal, &before, is_raw);
        }
        if let Some(guard) = guard().as_mut() {
            guard.is_back();
        }
    }
}

fn put_back(terminal: &OwnedFd, before: &Termios, is_raw: bool) {
    if is_raw {
        let _ = termios::tcsetattr(terminal, SetArg::TCSADRAIN, before);
        return;
    }
    // Other programs on it may have changed the rest meanwhile, such as a pager.
    let Ok(mut now) = termios::tcgetattr(terminal) else { return };
    let key = SpecialCharacterIndices::VQUIT as usize;
    if now.control_chars[key] == DISABLED {
        now.control_chars[key] = before.control_chars[key];
        let _ = termios::tcsetattr(terminal, SetArg::TCSANOW, &now);
    }
}

/// Whether [`enter_raw`] has made the terminal raw.
pub fn is_raw() -> bool {
    changed().as_ref().is_some_and(|changed| changed.is_raw)
}

/// Puts the terminal back when it falls out of scope, and before the message of a panic.
#[derive(Debug)]
pub struct RawGuard(());

impl RawGuard {
    /// The guard; made once in the life of a process.
    pub fn new() -> Self {
        let inner = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave_raw();
            inner(panic);
        }));
        Self(())
    }
}

impl Drop for RawGuard {
    fn drop(&mut self) {
        leave_raw();
    }
}

/// The terminal's size.
pub fn size(terminal: impl AsFd) -> Option<WindowSize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    Some(WindowSize {
        rows: size.ws_row,
        columns: size.ws_col,
        x_pixels: size.ws_xpixel,
        y_pixels: size.ws_ypixel,
    })
}

/// Gives a terminal that size; its foreground gets SIGWINCH from the kernel if it is another.
pub fn set_size(terminal: impl AsFd, size: WindowSize) {
    let size = rustix::termios::Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: size.x_pixels,
        ws_ypixel: size.y_pixels,
    };
    let _ = rustix::termios::tcsetwinsize(terminal, size);
}

/// The terminal's settings in the form of the kernel's `struct termios`.
///
/// Where the user's terminal is not to be made raw (`pass_through`), it goes on translating what
/// is written to it, so the job's terminal must not translate as well.
pub fn kernel_settings(terminal: impl AsFd, pass_through: bool) -> Option<Vec<u8>> {
    let settings = termios::tcgetattr(terminal).ok()?;
    let mut output = settings.output_flags;
    if pass_through {
        output.remove(termios::OutputFlags::OPOST);
    }
    let mut bytes = Vec::with_capacity(36);
    for word in [
        settings.input_flags.bits(),
        output.bits(),
        settings.control_flags.bits(),
        settings.local_flags.bits(),
    ] {
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    // The line discipline: N_TTY.
    bytes.push(0);
    bytes.extend(settings.control_chars.iter().take(KERNEL_CONTROL_CHARACTERS));
    bytes.resize(36, 0);
    Some(bytes)
}

/// What a key means to the job's terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// It sends this signal to the foreground (SIGINT or SIGQUIT).
    Signal(i32),
    /// It suspends the foreground.
    Suspend,
    /// Any other.
    Plain,
}

/// The keys that mean something to a job's terminal; asked through its master side, which shows
/// the settings of the other (drivers/tty/tty_ioctl.c).
#[derive(Debug, Clone, Copy)]
pub struct Keys {
    interrupt: u8,
    quit: u8,
    suspend: u8,
}

impl Keys {
    /// The keys as they are now; None where no key means a signal.
    pub fn of(master: BorrowedFd<'_>) -> Option<Self> {
        let settings = termios::tcgetattr(master).ok()?;
        let character = |index: SpecialCharacterIndices| settings.control_chars[index as usize];
        settings.local_flags.contains(LocalFlags::ISIG).then(|| Self {
            interrupt: character(SpecialCharacterIndices::VINTR),
            quit: character(SpecialCharacterIndices::VQUIT),
            suspend: character(SpecialCharacterIndices::VSUSP),
        })
    }

    /// What a byte means.
    pub fn meaning(&self, byte: u8) -> Key {
        match byte {
            // A key that is set to 0 is disabled (termios(3)).
            0 => Key::Plain,
            byte if byte == self.interrupt => Key::Signal(nix::libc::SIGINT),
            byte if byte == self.quit => Key::Signal(nix::libc::SIGQUIT),
            byte if byte == self.suspend => Key::Suspend,
            _ => Key::Plain,
        }
    }
}

/// Whether the foreground of the job's terminal is the group of its session's leader: the job
/// itself, and not something that a shell in the job runs.
pub fn leader_is_foreground(master: BorrowedFd<'_>) -> bool {
    match (tcgetpgrp(master), termios::tcgetsid(master)) {
        (Ok(group), Ok(session)) => group == session,
        _ => true,
    }
}

/// Whether a stream is a terminal.
pub fn is_terminal(stream: impl AsFd) -> bool {
    stream.as_fd().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::pty::openpty;

    #[test]
    fn settings_take_the_kernels_form() {
        let pty = openpty(None, None).unwrap();
        let bytes = kernel_settings(&pty.slave, false).unwrap();
        assert_eq!(bytes.len(), 36);
        // VINTR is Ctrl-C on a fresh terminal.
        assert_eq!(bytes[17], 3);
        let output = u32::from_ne_bytes(bytes[4..8].try_into().unwrap());
        assert_eq!(output & 1, 1, "OPOST");
        let bytes = kernel_settings(&pty.slave, true).unwrap();
        let output = u32::from_ne_bytes(bytes[4..8].try_into().unwrap());
        assert_eq!(output & 1, 0, "OPOST");
    }

    #[test]
    fn keys_follow_the_settings() {
        let pty = openpty(None, None).unwrap();
        let keys = Keys::of(pty.master.as_fd()).unwrap();
        assert_eq!(keys.meaning(3), Key::Signal(nix::libc::SIGINT));
        assert_eq!(keys.meaning(0x1a), Key::Suspend);
        assert_eq!(keys.meaning(b'x'), Key::Plain);
        let mut raw = termios::tcgetattr(&pty.slave).unwrap();
        termios::cfmakeraw(&mut raw);
        termios::tcsetattr(&pty.slave, SetArg::TCSANOW, &raw).unwrap();
        assert!(Keys::of(pty.master.as_fd()).is_none());
    }

    #[test]
    fn sizes_reach_the_other_side() {
        let pty = openpty(None, None).unwrap();
        let wanted = WindowSize { rows: 33, columns: 77, x_pixels: 0, y_pixels: 0 };
        set_size(&pty.master, wanted);
        assert_eq!(size(&pty.slave), Some(wanted));
    }
}
