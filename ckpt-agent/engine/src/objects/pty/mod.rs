//! Pseudoterminals (pty(7)): masters, slaves, and /dev/tty, which is another name of a slave.
//!
//! * `console`: the terminal that the job was started from;
//! * `buffered`: bytes on their way between the two sides;
//! * `full`: bytes into a pair that they fill;
//! * `controlling`: sessions and foreground process groups;
//! * `modes`: termios as the graph keeps it;
//! * `status`: what a master is told in packet mode;
//! * `restore`: pairs with the same index, in the job's own devpts.

mod buffered;
mod console;
mod controlling;
mod full;
mod modes;
mod restore;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::{BlobId, Pid, RelayEnd, RelayKind};
use super::super::sys::tty::{self, SLAVE_MAJORS, WindowSize};
use super::super::sys::{abi, stat};
use super::{DumpContext, Fate, Found, Object, ObjectKind, Probe, RestoreContext, Saved};

pub use controlling::{ControllingTerminal, controlling_terminals};
pub use modes::Modes;

/// Device number of /dev/ptmx (Documentation/admin-guide/devices.txt).
const PTMX: (u64, u64) = (5, 2);
/// Device number of /dev/tty.
const TTY: (u64, u64) = (5, 0);

/// An open file description of one side of a pseudoterminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    /// N of /dev/pts/N.
    pub index: u32,
    /// Which side.
    pub side: Side,
    /// What the pair is like; kept with one description of each pair, its master if the job has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair: Option<Pair>,
}

/// A side of a pseudoterminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The side of the terminal emulator, /dev/ptmx.
    Master,
    /// The side of programs, /dev/pts/N.
    Slave,
    /// A slave whose master is gone: reads find the end, writes fail with EIO.
    HungUp,
}

/// State of a pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The launcher holds the master: the terminal that the job was started from.
    #[serde(default)]
    pub console: bool,
    /// The agent holds a side for another instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<RelayEnd>,
    /// termios
    pub modes: Modes,
    /// Size in characters and pixels.
    pub size: WindowSize,
    /// The slave can't be opened (unlockpt(3) was not called).
    pub locked: bool,
    /// Packet mode (TIOCPKT).
    pub packet: bool,
    /// What the master is told next in packet mode (TIOCPKT_*), besides bytes.
    #[serde(default, skip_serializing_if = "is_none")]
    pub status: u8,
    /// Modes that can't be changed (TIOCSLCKTRMIOS).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed: Option<Modes>,
    /// Exclusive mode (TIOCEXCL).
    pub exclusive: bool,
    /// Output is stopped (^S).
    pub stopped: bool,
    /// It is stopped by tcflow(3), TCOOFF, which only TCOON ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped_by_call: bool,
    /// What the master writes is stopped (TCOOFF on the master).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub input_stopped: bool,
    /// The slave has been open and is not any more: the master reads EIO.
    pub slave_closed: bool,
    /// Bytes that programs wrote and the master has not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<BlobId>,
    /// Bytes that the master wrote and programs have not read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input: Vec<Line>,
    /// The session that it controls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Pid>,
    /// The foreground process group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreground: Option<Pid>,
    /// User and group of the slave, and its permission bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<(u32, u32, u32)>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_none(status: &u8) -> bool {
    *status == 0
}

/// Input of a terminal up to the place where a read stops.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Its bytes, with the newline if it has one.
    pub bytes: BlobId,
    /// How it ends.
    pub end: LineEnd,
}

/// What ends a line of terminal input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineEnd {
    /// Its own last byte (newline, EOL).
    Itself,
    /// The end-of-file character, which is not among the bytes.
    EndOfFile,
    /// Nothing yet: the line is being typed, or lines do not count.
    Open,
}

/// The index behind a descriptor of either side, or of /dev/tty.
fn index(probe: &Probe) -> Result<Option<u32>> {
    if is_device(probe, PTMX) {
        let index = tty::master_index(&probe.copy)
            .map_err(|error| EngineError::system("ioctl TIOCGPTN", probe.link.clone(), error))?;
        return Ok(Some(index));
    }
    if is_slave(probe) {
        // The device number of the inode tells it, for a terminal that has hung up too.
        return Ok(Some(stat::minor(probe.stat.st_rdev)));
    }
    // /dev/tty: the terminal that was the opener's controlling one.
    let (major, minor) = tty::device(&probe.copy)
        .map_err(|error| EngineError::system("ioctl TIOCGDEV", probe.link.clone(), error))?;
    Ok(SLAVE_MAJORS.contains(&major).then_some(minor))
}

fn is_device(probe: &Probe, (major, minor): (u64, u64)) -> bool {
    let device = probe.stat.st_rdev;
    probe.file_type() == abi::S_IFCHR
        && u64::from(stat::major(device)) == major
        && u64::from(stat::minor(device)) == minor
        // O_PATH does not open the device.
        && probe.flags & libc::O_PATH == 0
}

fn is_slave(probe: &Probe) -> bool {
    probe.file_type() == abi::S_IFCHR
        && SLAVE_MAJORS.contains(&stat::major(probe.stat.st_rdev))
        && probe.flags & libc::O_PATH == 0
}

impl ObjectKind for Terminal {
    fn recognise(probe: &Probe) -> bool {
        is_device(probe, PTMX) || is_device(probe, TTY) || is_slave(probe)
    }

    fn dump(probe: &Probe, _context: &mut DumpContext) -> Result<Self> {
        let Some(index) = index(probe)? else {
            return Err(Refusal::new(
                format!("{} is a terminal of the machine's own", probe.link),
                "start the job from a pseudoterminal (ssh, screen, an xterm)",
            )
            .into());
        };
        let side = if is_device(probe, PTMX) {
            Side::Master
        } else if tty::modes(&probe.copy)
            .is_err_and(|error| error.raw_os_error() == Some(libc::EIO))
        {
            // drivers/tty/tty_io.c, hung_up_tty_fops.
            Side::HungUp
        } else {
            Side::Slave
        };
        Ok(Self { index, side, pair: None })
    }

    fn finish(all: &mut [Found<'_, Self>], context: &mut DumpContext) -> Result<()> {
        let mut pairs: BTreeMap<u32, (Option<usize>, Vec<usize>)> = BTreeMap::new();
        for (place, found) in all.iter().enumerate() {
            let (master, slaves) = pairs.entry(found.object.index).or_default();
            match found.object.side {
                Side::Master if master.is_some() => {
                    return Err(two_devpts(found));
                }
                Side::Master => *master = Some(place),
                Side::Slave => slaves.push(place),
                Side::HungUp => {}
            }
        }
        for (index, (master, slaves)) in pairs {
            let Some(place) = master.or_else(|| slaves.first().copied()) else { continue };
            let pair = dump_pair(all, index, master, &slaves, context)?;
            all[place].object.pair = Some(pair);
        }
        Ok(())
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        restore::restore(all, context)
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        match self.side {
            Side::Master => Fate::Undivided,
            Side::Slave | Side::HungUp => Fate::Again,
        }
    }
}

fn two_devpts(found: &Found<'_, Terminal>) -> EngineError {
    EngineError::from(Refusal::new(
        format!("two terminals /dev/pts/{} of different mounts of devpts", found.object.index),
        "run the program without a devpts of its own",
    ))
    .at(found.probe.pid, &found.probe.comm, found.probe.fd)
}

fn dump_pair(
    all: &[Found<'_, Terminal>],
    index: u32,
    master: Option<usize>,
    slaves: &[usize],
    context: &mut DumpContext,
) -> Result<Pair> {
    let system = |call, error| EngineError::system(call, format!("/dev/pts/{index}"), error);
    if master.is_none() && context.terminal_relay(index).is_none() {
        if let Some(pair) = console::strangers(all, slaves, context)? {
            return Ok(pair);
        }
    }
    let held = context.terminal_relay(index);
    let relay = held.map(|held| held.end.clone());
    let console = master.is_none() && relay.is_none();
    let copy = match (master, slaves.first()) {
        (Some(place), _) => all[place].probe.copy.as_fd().try_clone_to_owned(),
        (None, Some(&slave)) => {
            let probe = all[slave].probe;
            let relayed = held.filter(|held| held.end.kind == RelayKind::TerminalMaster);
            let relayed = relayed.and_then(|held| held.terminal.as_ref());
            match relayed.or_else(|| console::launchers(&all[slave], context)) {
                Some(master) => master.try_clone(),
                None => {
                    return Err(EngineError::from(Refusal::new(
                        format!("the other side of {} is held outside of the job", probe.link),
                        "start the job with its input and output redirected from it",
                    ))
                    .at(probe.pid, &probe.comm, probe.fd));
                }
            }
        }
        (None, None) => {
            return Err(EngineError::Damaged(format!("terminal {index} without a side")));
        }
    }
    .map_err(|error| system("dup", error))?;

    let agents = match held {
        Some(held) if held.end.kind == RelayKind::TerminalSlave => held.terminal.as_ref(),
        _ => None,
    };
    let agents = agents.map(|slave| slave.try_clone()).transpose();
    let agents = agents.map_err(|error| system("dup", error))?;
    let slave = slaves.first().map(|&place| all[place].probe.copy.as_fd());
    let slave = slave.or(agents.as_ref().map(AsFd::as_fd));
    let discipline = slave.map_or(Ok(0), tty::discipline);
    let discipline = discipline.map_err(|error| system("ioctl TIOCGETD", error))?;
    if discipline != 0 {
        // Others than N_TTY throw away what it holds when it gives way to them, and can't be read from.
        let what = format!("a pseudoterminal with the line discipline {discipline} (TIOCSETD)");
        let way_out = "give it back its usual one, N_TTY, while checkpoints are taken";
        let refusal = EngineError::from(Refusal::new(what, way_out));
        return Err(match master.or(slaves.first().copied()).map(|place| all[place].probe) {
            Some(probe) => refusal.at(probe.pid, &probe.comm, probe.fd),
            None => refusal,
        });
    }
    let buffered = buffered::take_and_put_back(copy.as_fd(), slave, index)?;
    let (session, foreground) = controlling::foreground(copy.as_fd(), context)?;
    let lines = buffered
        .input
        .into_iter()
        .map(|(bytes, end)| Line { bytes: context.keep(bytes), end })
        .collect();
    Ok(Pair {
        console,
        relay,
        modes: Modes::from(tty::modes(&copy).map_err(|error| system("ioctl TCGETS2", error))?),
        size: tty::window_size(&copy).map_err(|error| system("ioctl TIOCGWINSZ", error))?,
        locked: tty::locked(&copy).map_err(|error| system("ioctl TIOCGPTLCK", error))?,
        packet: tty::packet_mode(&copy).map_err(|error| system("ioctl TIOCGPKT", error))?,
        status: buffered.status,
        fixed: tty::fixed_modes(&copy)
            .map_err(|error| system("ioctl TIOCGLCKTRMIOS", error))?
            .map(Modes::from),
        exclusive: slave.is_some_and(|slave| tty::exclusive(slave).unwrap_or(false)),
        stopped: buffered.stopped,
        stopped_by_call: buffered.stopped_by_call,
        input_stopped: buffered.input_stopped,
        slave_closed: buffered.slave_closed,
        output: (!buffered.output.is_empty()).then(|| context.keep(buffered.output)),
        input: lines,
        session,
        foreground,
        owner: owner(all, index, master, slaves),
    })
}

/// Whose the slave is: through a descriptor of it, else by its name where the master's holder is.
fn owner(
    all: &[Found<'_, Terminal>],
    index: u32,
    master: Option<usize>,
    slaves: &[usize],
) -> Option<(u32, u32, u32)> {
    let mut open = slaves.iter().map(|&place| all[place].probe).filter(|probe| is_slave(probe));
    let stat = open.next().map(|probe| probe.stat).or_else(|| {
        let path = format!("/proc/{}/root/dev/pts/{index}", all[master?].probe.host_pid);
        let stat = nix::sys::stat::stat(path.as_str()).ok()?;
        let is_it =
            SLAVE_MAJORS.contains(&stat::major(stat.st_rdev)) && stat::minor(stat.st_rdev) == index;
        is_it.then_some(stat)
    })?;
    Some((stat.st_uid, stat.st_gid, stat.st_mode & 0o7777))
}
