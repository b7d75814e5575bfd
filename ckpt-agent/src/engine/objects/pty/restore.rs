//! Makes pairs with the index that they had, and opens their slaves.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};

use nix::fcntl::OFlag;

use super::super::super::error::{EngineError, Result};
use super::super::super::sys::tty;
use super::buffered::{self, Buffered};
use super::{Pair, RestoreContext, Saved, Side, Terminal};

/// Indices that are tried: kernel.pty.max as the kernel sets it.
const MOST_PAIRS: usize = 4096;

/// Makes all pairs of the graph and parks their descriptions.
pub(super) fn restore(all: &[Saved<'_, Terminal>], context: &mut RestoreContext) -> Result<()> {
    let wanted: BTreeSet<u32> = all
        .iter()
        .filter(|saved| saved.object.pair.is_some())
        .map(|saved| saved.object.index)
        .collect();
    let mut masters = take_indices(wanted)?;
    for saved in all.iter().filter(|saved| saved.object.side == Side::HungUp) {
        let slave = hung_up(saved.file.flags)?;
        context.park(saved.id, slave)?;
    }
    for saved in all {
        let Some(pair) = &saved.object.pair else { continue };
        let index = saved.object.index;
        let Some(master) = masters.remove(&index) else {
            return Err(EngineError::Damaged(format!("terminal {index} has two states")));
        };
        tty::set_locked(&master, false)
            .map_err(|error| system("ioctl TIOCSPTLCK", index, error))?;
        for slave in all
            .iter()
            .filter(|other| other.object.index == index && other.object.side == Side::Slave)
        {
            let flags = (slave.file.flags & libc::O_ACCMODE) | libc::O_NOCTTY | libc::O_CLOEXEC;
            let fd = open_slave(&master, index, flags)?;
            context.park(slave.id, fd)?;
        }
        set_up(&master, index, pair, context)?;
        if pair.console {
            context.console.terminal = Some(context.lift(master)?);
        } else {
            context.park(saved.id, master)?;
        }
    }
    Ok(())
}

fn system(call: &'static str, index: u32, error: impl Into<std::io::Error>) -> EngineError {
    EngineError::system(call, format!("/dev/pts/{index}"), error)
}

/// Opens /dev/ptmx until every index has come. Those that came in between are closed at the end.
fn take_indices(mut wanted: BTreeSet<u32>) -> Result<BTreeMap<u32, OwnedFd>> {
    let mut masters = BTreeMap::new();
    let mut others = Vec::new();
    while let Some(&next) = wanted.first() {
        let master = open_master().map_err(|error| system("make", next, error))?;
        let index =
            tty::master_index(&master).map_err(|error| system("ioctl TIOCGPTN", next, error))?;
        if wanted.remove(&index) {
            masters.insert(index, master);
        } else {
            others.push(master);
        }
        if others.len() > MOST_PAIRS || index > next {
            return Err(EngineError::Unfit {
                what: format!("/dev/pts/{next} is taken by another terminal"),
                way_out: "restart the job when that terminal is closed".into(),
            });
        }
    }
    Ok(masters)
}

pub(super) fn open_master() -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    nix::fcntl::open("/dev/ptmx", flags, nix::sys::stat::Mode::empty())
}

fn open_slave(master: &OwnedFd, index: u32, flags: i32) -> Result<OwnedFd> {
    let path = format!("/dev/pts/{index}");
    let mode = nix::sys::stat::Mode::empty();
    let by_path = nix::fcntl::open(path.as_str(), OFlag::from_bits_truncate(flags), mode);
    match by_path {
        // Another mount of devpts may be in front of the master's own.
        Ok(slave) if same_pair(master, &slave) => Ok(slave),
        _ => tty::open_peer(master, flags).map_err(|error| system("open", index, error)),
    }
}

fn same_pair(master: &OwnedFd, slave: &OwnedFd) -> bool {
    let probe = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    let Ok(peer) = tty::open_peer(master, probe) else { return false };
    match (nix::sys::stat::fstat(&peer), nix::sys::stat::fstat(slave)) {
        (Ok(peer), Ok(slave)) => (peer.st_dev, peer.st_ino) == (slave.st_dev, slave.st_ino),
        _ => false,
    }
}

/// A slave whose master is gone.
fn hung_up(flags: i32) -> Result<OwnedFd> {
    let master = open_master().map_err(|error| system("make", 0, error))?;
    let call = "set up a hung-up terminal";
    tty::set_locked(&master, false).map_err(|error| system(call, 0, error))?;
    let flags = (flags & libc::O_ACCMODE) | libc::O_NOCTTY | libc::O_CLOEXEC;
    tty::open_peer(&master, flags).map_err(|error| system(call, 0, error))
}

fn set_up(master: &OwnedFd, index: u32, pair: &Pair, context: &mut RestoreContext) -> Result<()> {
    tty::set_modes(master, &(&pair.modes).into())
        .map_err(|error| system("ioctl TCSETS2", index, error))?;
    tty::set_window_size(master, pair.size)
        .map_err(|error| system("ioctl TIOCSWINSZ", index, error))?;
    let mut held = Buffered { stopped: pair.stopped, ..Buffered::default() };
    if let Some(output) = pair.output {
        held.output = context.blob(output)?;
    }
    for line in &pair.input {
        held.input.push((context.blob(line.bytes)?, line.end));
    }
    if held != Buffered::default() || pair.slave_closed {
        buffered::fill(master.as_fd(), &held)?;
    }
    if pair.packet {
        tty::set_packet_mode(master, true)
            .map_err(|error| system("ioctl TIOCPKT", index, error))?;
    }
    if pair.locked {
        tty::set_locked(master, true).map_err(|error| system("ioctl TIOCSPTLCK", index, error))?;
    }
    if pair.exclusive {
        // The flag is the slave's; later opens fail, so it comes last.
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        tty::open_peer(master, flags)
            .and_then(tty::set_exclusive)
            .map_err(|error| system("ioctl TIOCEXCL", index, error))?;
    }
    Ok(())
}
