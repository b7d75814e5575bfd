//! Puts the user's terminal back where the launcher can't: when it was killed by SIGKILL.
//!
//! A small process of its own session, with the terminal and one end of a pipe. It is told in lines of JSON
//! how the terminal was before it was made raw and how it is now, or `null` when it was put back. The pipe's
//! end is the launcher's end, whatever the way.

use nix::sys::termios::{
    self, ControlFlags, InputFlags, LocalFlags, OutputFlags, SetArg, Termios, tcgetattr,
};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// The name under which the executable is that process.
pub const NAME: &str = "ckptd-terminal";

/// The longest line, in bytes.
const LINE: u64 = 4096;

/// A terminal's settings, but its speeds, which raw mode leaves alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Settings {
    flags: [u32; 4],
    characters: Vec<u8>,
}

impl Settings {
    fn of(termios: &Termios) -> Self {
        let flags = [
            termios.input_flags.bits(),
            termios.output_flags.bits(),
            termios.control_flags.bits(),
            termios.local_flags.bits(),
        ];
        Self { flags, characters: termios.control_chars.to_vec() }
    }

    fn apply(&self, termios: &mut Termios) {
        let [input, output, control, local] = self.flags;
        termios.input_flags = InputFlags::from_bits_retain(input);
        termios.output_flags = OutputFlags::from_bits_retain(output);
        termios.control_flags = ControlFlags::from_bits_retain(control);
        termios.local_flags = LocalFlags::from_bits_retain(local);
        for (into, from) in termios.control_chars.iter_mut().zip(&self.characters) {
            *into = *from;
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Change {
    before: Settings,
    raw: Settings,
}

/// The launcher's side.
#[derive(Debug)]
pub struct TerminalGuard {
    process: Child,
}

impl TerminalGuard {
    /// Starts the process for this terminal. None where that can't be done: then the terminal is as it was
    /// without.
    pub fn start(terminal: impl AsFd) -> Option<Self> {
        let terminal = terminal.as_fd().try_clone_to_owned().ok()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0(NAME).stdin(Stdio::piped()).stdout(terminal).stderr(Stdio::null());
        Some(Self { process: command.current_dir("/").spawn().ok()? })
    }

    /// Tells that the terminal, which was like that, is raw now, or changed otherwise.
    pub fn is_changed(&mut self, before: &Termios, raw: &Termios) {
        let change = Change { before: Settings::of(before), raw: Settings::of(raw) };
        self.tell(&Some(change));
    }

    /// Tells that the terminal was put back.
    pub fn is_back(&mut self) {
        self.tell(&None);
    }

    fn tell(&mut self, change: &Option<Change>) {
        if let (Some(pipe), Ok(mut line)) = (&mut self.process.stdin, serde_json::to_string(change))
        {
            line.push('\n');
            // Where it is not there any more, nobody is.
            let _ = pipe.write_all(line.as_bytes());
        }
    }
}

/// Is that process: returns when the launcher has ended and the terminal is as it should be.
pub fn keep() {
    // Out of the terminal's session: its keys and its hangup are not for this process, and it may change
    // the settings from the background (tty_check_change() in drivers/tty/tty_jobctrl.c).
    let _ = nix::unistd::setsid();
    let mut last = None;
    let mut lines = BufReader::new(std::io::stdin());
    loop {
        let mut line = String::new();
        match std::io::Read::take(&mut lines, LINE).read_line(&mut line) {
            Ok(1..) => match protocol::json::read::<Option<Change>>(line.as_bytes()) {
                Ok(change) => last = change,
                Err(_) => return,
            },
            _ => break,
        }
    }
    if let Some(change) = last {
        put_back(std::io::stdout().as_fd(), &change);
    }
}

/// Only if it still is as the launcher has left it: a shell may have put it back already.
fn put_back(terminal: BorrowedFd<'_>, change: &Change) {
    // A terminal that has hung up keeps no settings.
    let Ok(mut now) = tcgetattr(terminal) else { return };
    if Settings::of(&now) == change.raw {
        change.before.apply(&mut now);
        let _ = termios::tcsetattr(terminal, SetArg::TCSANOW, &now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::pty::openpty;

    #[test]
    fn only_what_was_left_raw_is_put_back() {
        let pair = openpty(None, None).unwrap();
        let before = tcgetattr(&pair.slave).unwrap();
        let mut raw = before.clone();
        termios::cfmakeraw(&mut raw);
        termios::tcsetattr(&pair.slave, SetArg::TCSANOW, &raw).unwrap();
        let raw = tcgetattr(&pair.slave).unwrap();
        let change = Change { before: Settings::of(&before), raw: Settings::of(&raw) };
        let text = serde_json::to_string(&Some(&change)).unwrap();
        assert!((text.len() as u64) < LINE);
        let change: Change = serde_json::from_str::<Option<Change>>(&text).unwrap().unwrap();
        put_back(pair.slave.as_fd(), &change);
        assert_eq!(tcgetattr(&pair.slave).unwrap(), before);
        let mut other = raw.clone();
        other.local_flags.insert(LocalFlags::ISIG);
        termios::tcsetattr(&pair.slave, SetArg::TCSANOW, &other).unwrap();
        let other = tcgetattr(&pair.slave).unwrap();
        put_back(pair.slave.as_fd(), &change);
        assert_eq!(tcgetattr(&pair.slave).unwrap(), other);
    }
}
