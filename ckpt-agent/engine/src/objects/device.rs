//! Character devices without a state: /dev/null and its kin.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use nix::sys::stat::{FileStat, Mode, SFlag, fstat, mknod};
use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Result};
use super::super::names;
use super::super::sys::abi;
use super::super::sys::stat::{identity, major, minor};
use super::{DumpContext, Fate, ObjectKind, Probe, RestoreContext, Saved, paths, reopen};

/// Major number of the memory devices (Documentation/admin-guide/devices.txt).
const MEMORY_DEVICES: u64 = 1;

/// (minor number, path) of those that can be opened anywhere.
const KNOWN: [(u64, &str); 5] =
    [(3, "/dev/null"), (5, "/dev/zero"), (7, "/dev/full"), (8, "/dev/random"), (9, "/dev/urandom")];

/// A device that is the same on every machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The path that it was opened by.
    pub path: String,
    /// Its number below the memory devices.
    pub minor: u64,
    /// Of a node that was deleted while it was open: itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<Node>,
}

/// A node of a device that has no name any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Descriptions with one number are of one node.
    pub number: u64,
    /// Permission bits.
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
}

impl Node {
    fn of(stat: &FileStat) -> Option<Self> {
        (stat.st_nlink == 0).then(|| Self {
            number: identity(stat).1,
            mode: stat.st_mode & 0o7777,
            owner: (stat.st_uid, stat.st_gid),
        })
    }

    /// Whether another one looks like it.
    fn is_like(&self, stat: &FileStat) -> bool {
        (stat.st_mode & 0o7777, (stat.st_uid, stat.st_gid)) == (self.mode, self.owner)
    }
}

impl Device {
    fn number(mode: u32, device: u64) -> Option<u64> {
        let known =
            mode & abi::S_IFMT == abi::S_IFCHR && u64::from(major(device)) == MEMORY_DEVICES;
        let number = minor(device).into();
        (known && KNOWN.iter().any(|(minor, _)| *minor == number)).then_some(number)
    }

    fn open(&self, flags: i32) -> Result<OwnedFd> {
        let path = self.path()?;
        reopen::open(path, flags).map_err(|errno| EngineError::system("open", path, errno))
    }

    /// The recorded path where it leads to the device, else the usual one.
    fn path(&self) -> Result<&str> {
        let there = nix::sys::stat::stat(&*names::path(&self.path))
            .is_ok_and(|found| Self::number(found.st_mode, found.st_rdev) == Some(self.minor));
        if there {
            return Ok(&self.path);
        }
        KNOWN.iter().find(|(minor, _)| *minor == self.minor).map(|(_, path)| *path).ok_or_else(
            || EngineError::Damaged(format!("device 1:{} of {}", self.minor, self.path)),
        )
    }
}

/// A node without a name where the old one was (O_PATH).
fn make_node(device: &Device, node: &Node) -> nix::Result<OwnedFd> {
    let number = libc::makedev(MEMORY_DEVICES as _, device.minor as _);
    let make = |path: &str| mknod(path, SFlag::S_IFCHR, Mode::empty(), number);
    let (path, ()) = paths::first_free(paths::without_mark(&device.path), make)?;
    reopen::without_name(&path, Some(node.owner), node.mode)
}

/// Opens a deleted node made again; where that can't be, the usual one stands for it, and a line says so.
fn open_deleted(
    device: &Device,
    node: &Node,
    flags: i32,
    made: &mut BTreeMap<u64, nix::Result<OwnedFd>>,
    context: &mut RestoreContext,
) -> Result<OwnedFd> {
    let first = !made.contains_key(&node.number);
    let anchor = made.entry(node.number).or_insert_with(|| make_node(device, node));
    let why = match anchor.as_ref().map_err(|errno| *errno) {
        Ok(anchor) => match reopen::reopen(anchor, flags) {
            Ok(fd) => return Ok(fd),
            Err(errno) => errno,
        },
        Err(errno) => errno,
    };
    let fd = device.open(flags)?;
    if first && !context.rehearsal && !fstat(&fd).is_ok_and(|found| node.is_like(&found)) {
        context.warn(format!(
            "the deleted device node {} cannot be made again ({}): another one stands for it, of another owner or mode",
            paths::without_mark(&device.path),
            why.desc()
        ));
    }
    Ok(fd)
}

impl ObjectKind for Device {
    fn recognise(probe: &Probe) -> bool {
        Self::number(probe.stat.st_mode, probe.stat.st_rdev).is_some()
    }

    fn dump(probe: &Probe, _context: &mut DumpContext) -> Result<Self> {
        let deleted = Node::of(&probe.stat);
        Ok(Self { path: probe.link.clone(), minor: minor(probe.stat.st_rdev).into(), deleted })
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        let mut made = BTreeMap::new();
        for saved in all {
            let (device, flags) = (saved.object, saved.file.flags);
            let fd = match &device.deleted {
                Some(node) => open_deleted(device, node, flags, &mut made, context)?,
                None => device.open(flags)?,
            };
            context.park(saved.id, fd)?;
        }
        Ok(())
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Again
    }
}
