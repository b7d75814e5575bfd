//! Makes pairs, in a devpts of the job's own with the index that they had, and opens their slaves.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};

use nix::fcntl::OFlag;

use super::super::super::error::{EngineError, Result};
use super::super::super::job_init::World;
use super::super::super::sys::tty;
use super::buffered::{self, Buffered};
use super::status;
use super::{Object, Pair, RelayEnd, RelayKind, RestoreContext, Saved, Side, Terminal};

/// Indices that are tried: kernel.pty.max as the kernel sets it.
const MOST_PAIRS: usize = 4096;

/// Makes all pairs of the graph and parks their descriptions.
pub(super) fn restore(all: &[Saved<'_, Terminal>], context: &mut RestoreContext) -> Result<()> {
    let mut pairs: BTreeMap<u32, Vec<&Saved<'_, Terminal>>> = BTreeMap::new();
    let (gone, there): (Vec<_>, Vec<_>) =
        all.iter().partition(|saved| saved.object.side == Side::HungUp);
    for saved in there {
        pairs.entry(saved.object.index).or_default().push(saved);
    }
    let mut masters = take_indices(pairs.keys().copied().collect())?;
    // These keep an index for as long as they are open, whichever is free: those of the pairs are not any more.
    for saved in gone {
        context.park(saved.id, hung_up(saved.file.flags)?)?;
    }
    for (recorded, sides) in pairs {
        let Some((index, master)) = masters.remove(&recorded) else {
            return Err(EngineError::Damaged(format!("terminal {recorded} was not made")));
        };
        if index != recorded {
            context.warn(format!(
                "the job's terminal /dev/pts/{recorded} is /dev/pts/{index} from now on: another terminal has that number"
            ));
        }
        restore_pair((recorded, index), master, &sides, context)?;
    }
    Ok(())
}

/// Sides of one pair that are made here. `index`: its recorded one, and the one here.
fn restore_pair(
    (recorded, index): (u32, u32),
    master: OwnedFd,
    sides: &[&Saved<'_, Terminal>],
    context: &mut RestoreContext,
) -> Result<()> {
    let Some(first) = sides.first() else { return Ok(()) };
    let pair = pair_of(recorded, context)?;
    tty::set_locked(&master, false).map_err(|error| system("ioctl TIOCSPTLCK", index, error))?;
    let mut own_master = None;
    for side in sides {
        if side.object.side == Side::Master {
            own_master = Some(side.id);
            continue;
        }
        let flags = (side.file.flags & libc::O_ACCMODE) | libc::O_NOCTTY | libc::O_CLOEXEC;
        let fd = open_slave(&master, index, flags)?;
        context.park(side.id, fd)?;
    }
    let known: Vec<RelayEnd> = pair.relay.iter().cloned().collect();
    let (legs, _) = context.legs(first.id, &known);
    let divided = legs.iter().find(|leg| !known.contains(leg)).map(|leg| leg.kind);
    let pair = match divided {
        Some(RelayKind::TerminalSlave) => masters_half(pair),
        Some(_) => slaves_half(pair),
        None => pair.clone(),
    };
    let mut rest = Some(master);
    for leg in legs {
        if leg.kind == RelayKind::TerminalSlave {
            let Some(master) = &rest else { continue };
            let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
            let slave = open_slave(master, index, flags)?;
            context.hand_out(leg, slave)?;
        } else if let Some(master) = rest.take() {
            set_up(&master, index, &pair, context)?;
            context.hand_out(leg, master)?;
        }
    }
    let Some(master) = rest else { return Ok(()) };
    set_up(&master, index, &pair, context)?;
    match own_master {
        Some(id) => context.park(id, master),
        None if pair.console => {
            context.console.terminal = Some(context.lift(master)?);
            Ok(())
        }
        None => Err(EngineError::Damaged(format!("nobody holds the master of terminal {index}"))),
    }
}

/// What a pair is like: kept with one of its descriptions, which may be in another part.
fn pair_of<'g>(index: u32, context: &RestoreContext<'g>) -> Result<&'g Pair> {
    let pairs = context.graph.files.iter().filter_map(|file| match &file.object {
        Object::Terminal(terminal) if terminal.index == index => terminal.pair.as_ref(),
        _ => None,
    });
    let mut pairs = pairs;
    match (pairs.next(), pairs.next()) {
        (Some(pair), None) => Ok(pair),
        (None, _) => Err(EngineError::Damaged(format!("terminal {index} has no state"))),
        _ => Err(EngineError::Damaged(format!("terminal {index} has two states"))),
    }
}

/// The pair whose slave the agent holds: raw, or everything would be processed twice. What programs
/// have written is read here.
fn masters_half(pair: &Pair) -> Pair {
    let mut modes = libc::termios2::from(&pair.modes);
    // cfmakeraw(3).
    modes.c_iflag &= !(libc::IGNBRK
        | libc::BRKINT
        | libc::PARMRK
        | libc::ISTRIP
        | libc::INLCR
        | libc::IGNCR
        | libc::ICRNL
        | libc::IXON);
    modes.c_oflag &= !libc::OPOST;
    modes.c_lflag &= !(libc::ECHO | libc::ECHONL | libc::ICANON | libc::ISIG | libc::IEXTEN);
    modes.c_cflag = (modes.c_cflag & !(libc::CSIZE | libc::PARENB)) | libc::CS8;
    modes.c_cc[libc::VMIN] = 1;
    modes.c_cc[libc::VTIME] = 0;
    Pair {
        modes: modes.into(),
        stopped: false,
        stopped_by_call: false,
        input_stopped: false,
        slave_closed: false,
        exclusive: false,
        status: status::of_bytes(pair.status),
        fixed: None,
        input: Vec::new(),
        ..pair.clone()
    }
}

/// The pair whose master the agent holds.
fn slaves_half(pair: &Pair) -> Pair {
    Pair {
        packet: false,
        status: 0,
        locked: false,
        output: None,
        slave_closed: false,
        ..pair.clone()
    }
}

fn system(call: &'static str, index: u32, error: impl Into<std::io::Error>) -> EngineError {
    EngineError::system(call, format!("/dev/pts/{index}"), error)
}

/// Opens /dev/ptmx until every index has come. Those that came in between are closed at the end. Among the machine's terminals another
/// one may have an index: then that pair gets one that nobody has. The pairs by their recorded indices, each with that which it
/// has.
fn take_indices(mut wanted: BTreeSet<u32>) -> Result<BTreeMap<u32, (u32, OwnedFd)>> {
    let mut masters = BTreeMap::new();
    let mut others = Vec::new();
    while let Some(&next) = wanted.first() {
        let master = open_master().map_err(|error| system("make", next, error))?;
        let index =
            tty::master_index(&master).map_err(|error| system("ioctl TIOCGPTN", next, error))?;
        if wanted.remove(&index) {
            masters.insert(index, (index, master));
            continue;
        }
        others.push((index, master));
        if others.len() <= MOST_PAIRS && index < next {
            continue;
        }
        if World::of_this_init() == World::Own {
            return Err(EngineError::Unfit {
                what: format!("/dev/pts/{next} is taken by another terminal"),
                way_out: "restart the job when that terminal is closed".into(),
            });
        }
        wanted.remove(&next);
        // The one that has just come.
        masters.extend(others.pop().map(|other| (next, other)));
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

/// Gives the slave its owner and permissions, without opening it: the master would see that.
fn give_away(master: &OwnedFd, (user, group, mode): (u32, u32, u32)) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let slave = tty::open_peer(master, libc::O_PATH | libc::O_CLOEXEC)?;
    let path = format!("/proc/self/fd/{}", slave.as_raw_fd());
    let now = std::fs::metadata(&path)?;
    if (now.uid(), now.gid()) != (user, group) {
        std::os::unix::fs::chown(&path, Some(user), Some(group))?;
    }
    if now.mode() & 0o7777 != mode {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

fn set_up(master: &OwnedFd, index: u32, pair: &Pair, context: &mut RestoreContext) -> Result<()> {
    tty::set_modes(master, &(&pair.modes).into())
        .map_err(|error| system("ioctl TCSETS2", index, error))?;
    tty::set_window_size(master, pair.size)
        .map_err(|error| system("ioctl TIOCSWINSZ", index, error))?;
    let mut held = Buffered {
        stopped: pair.stopped,
        stopped_by_call: pair.stopped_by_call,
        input_stopped: pair.input_stopped,
        status: pair.status,
        ..Buffered::default()
    };
    if let Some(output) = pair.output {
        held.output = context.blob(output)?;
    }
    for line in &pair.input {
        held.input.push((context.blob(line.bytes)?, line.end));
    }
    if held != Buffered::default() || pair.slave_closed {
        buffered::fill(master.as_fd(), &held)?;
    }
    if let Some(wanted) = pair.owner {
        if give_away(master, wanted).is_err() {
            let (user, group, _) = wanted;
            context.warn(format!(
                "/dev/pts/{index} was user {user}'s and group {group}'s, which it cannot be here"
            ));
        }
    }
    if pair.packet {
        tty::set_packet_mode(master, true)
            .map_err(|error| system("ioctl TIOCPKT", index, error))?;
    }
    if pair.locked {
        tty::set_locked(master, true).map_err(|error| system("ioctl TIOCSPTLCK", index, error))?;
    }
    if let Some(fixed) = &pair.fixed {
        if tty::fix_modes(master, Some(&fixed.into())).is_err() {
            context.warn(format!(
                "modes of /dev/pts/{index} could not be changed (TIOCSLCKTRMIOS), and can be here"
            ));
        }
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
