//! What a dump makes of the terminal that a job was started from.

use std::os::fd::OwnedFd;

use super::super::super::error::{EngineError, Result};
use super::super::super::sys::tty;
use super::super::StdioRole;
use super::super::console_terminal::ConsoleTerminal;
use super::{DumpContext, Found, Modes, Pair, TTY, Terminal, is_device, owner};

/// The launcher's copy of the master of this slave, if it is the console's.
pub(super) fn launchers<'c>(
    slave: &Found<'_, Terminal>,
    context: &'c DumpContext,
) -> Option<&'c OwnedFd> {
    let Some(ConsoleTerminal::Launchers(master)) = &context.terminal else { return None };
    let by_inode = context.stdio.get(&slave.probe.inode()) == Some(&StdioRole::Terminal);
    // /dev/tty has another inode than the slave that it stands for.
    let is_it = by_inode
        || (is_device(slave.probe, TTY)
            && tty::master_index(master).ok() == Some(slave.object.index));
    is_it.then_some(master)
}

/// The console of a stranger, as far as its slaves tell. What is under way in it stays there: output is read by whoever
/// holds the master, input that has been typed and is not read yet is lost to a restart.
///
/// # Errors
/// Failed ioctls.
pub(super) fn strangers(
    all: &[Found<'_, Terminal>],
    slaves: &[usize],
    context: &mut DumpContext,
) -> Result<Option<Pair>> {
    let Some(ConsoleTerminal::Strangers(terminal)) = context.terminal else { return Ok(None) };
    let Some(slave) = slaves.first().map(|&place| &all[place]) else { return Ok(None) };
    if slave.object.index != terminal.index {
        return Ok(None);
    }
    let failed = |call| {
        move |error| EngineError::system(call, format!("/dev/pts/{}", terminal.index), error)
    };
    let copy = &slave.probe.copy;
    if tty::unread(copy).map_err(failed("ioctl TIOCINQ"))? > 0 {
        context.warn(format!(
            "what was typed on /dev/pts/{} and is not read yet is not in the image",
            terminal.index
        ));
    }
    Ok(Some(Pair {
        console: true,
        relay: None,
        modes: Modes::from(tty::modes(copy).map_err(failed("ioctl TCGETS2"))?),
        size: tty::window_size(copy).map_err(failed("ioctl TIOCGWINSZ"))?,
        locked: false,
        packet: false,
        status: 0,
        fixed: None,
        exclusive: tty::exclusive(copy).unwrap_or(false),
        stopped: false,
        stopped_by_call: false,
        input_stopped: false,
        slave_closed: false,
        output: None,
        input: Vec::new(),
        session: terminal.session,
        foreground: terminal.foreground,
        owner: owner(all, terminal.index, None, slaves),
    }))
}
