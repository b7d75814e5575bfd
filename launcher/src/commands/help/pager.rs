//! How long text is shown: by the user's pager on a terminal, else as it is.

use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::out::print;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::{Command, Stdio};

/// What is taken where $PAGER says nothing.
const USUAL: &str = "less";
/// What less is told unless the user tells it something: to end at once if all fits on the screen, to show colours, and to leave
/// the text there.
const LESS: &str = "FRX";
/// Letters of a line where there is no terminal.
const WIDTH: usize = 80;

/// Whether standard output is one.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Letters of a line of it.
pub fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 20).unwrap_or(WIDTH)
}

/// Shows a text.
pub fn show(text: &str) -> Result<(), Failure> {
    if !is_terminal() {
        return print(text);
    }
    let pager = std::env::var_os("PAGER").unwrap_or_else(|| OsString::from(USUAL));
    if pager.is_empty() || pager == "cat" {
        return print(text);
    }
    // $PAGER may have arguments, as in 'less -R'.
    let mut command = Command::new("sh");
    command.arg("-c").arg(&pager).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", LESS);
    }
    // Keys of the terminal are the pager's: less takes Ctrl-C for the end of what it is doing.
    let interrupts = Interrupts::hold()?;
    let Ok(mut shown) = interrupts.spawn(&mut command) else { return print(text) };
    if let Some(mut input) = shown.stdin.take() {
        // Whoever has read enough closes it.
        let _ = input.write_all(text.as_bytes());
    }
    match shown.wait() {
        // As a shell says that there is no such program, or that it can't be executed.
        Ok(status) if matches!(status.code(), Some(126 | 127)) => print(text),
        _ => Ok(()),
    }
}
