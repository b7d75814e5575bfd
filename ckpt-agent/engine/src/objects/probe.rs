//! What a dump sees of one open file description.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::fcntl::{FcntlArg, fcntl};

use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::Pid;
use super::super::names;
use super::super::sys::abi;
use super::super::sys::pidfd::PidFd;
use super::super::sys::stat::identity;
use super::{families, interconnect, other_name};

/// An open file description as found under the first descriptor that refers to it.
#[derive(Debug)]
pub struct Probe {
    /// The process that holds it, as this machine numbers it (for /proc).
    pub host_pid: i32,
    /// The same process as the job numbers it.
    pub pid: Pid,
    /// Its name, as /proc/PID/comm has it.
    pub comm: String,
    /// The descriptor in that process.
    pub fd: i32,
    /// A working copy of the descriptor (pidfd_getfd(2)): the same open file description.
    pub copy: OwnedFd,
    /// Access mode and status flags.
    pub flags: i32,
    /// fstat(2) of it.
    pub stat: nix::sys::stat::FileStat,
    /// Target of /proc/PID/fd/N; of a file that has lost that name, another one in the same folder. Where processes have
    /// mounts of their own, it is told as the job's own mounts show it.
    pub link: String,
    /// That target as /proc shows it: the same for all descriptors of a description.
    pub shown: String,
    /// The folder from which this process reaches what the link leads to.
    pub root: String,
    /// It lies in a file system in memory of its process's own, which the image has with its mount.
    pub is_in_memory: bool,
    /// /proc/PID/fdinfo/N.
    pub info: FdInfo,
}

impl Probe {
    /// Looks at one descriptor of a process: `host_pid` as this machine numbers it, `pid` as the
    /// job does.
    ///
    /// # Errors
    /// Failed system calls: ESRCH and ENOENT where process or descriptor is gone, EPERM where the
    /// process may not be traced.
    pub fn of(host_pid: i32, pid: Pid, comm: &str, fd: i32) -> Result<Self> {
        Self::through(&PidFd::open(host_pid)?, pid, comm, fd)
    }

    /// Like [`Probe::of`], for many descriptors of one process.
    ///
    /// # Errors
    /// As [`Probe::of`].
    pub fn through(process: &PidFd, pid: Pid, comm: &str, fd: i32) -> Result<Self> {
        let host_pid = process.pid();
        let copy = process.descriptor(fd)?;
        let what = || format!("descriptor {fd} of process {host_pid}");
        let flags = fcntl(&copy, FcntlArg::F_GETFL)
            .map_err(|errno| EngineError::system("fcntl", what(), errno))?;
        let stat = nix::sys::stat::fstat(&copy)
            .map_err(|errno| EngineError::system("fstat", what(), errno))?;
        let path = format!("/proc/{host_pid}/fd/{fd}");
        let link = std::fs::read_link(&path).map_err(|error| match error.raw_os_error() {
            // No call takes such a path (PATH_MAX), and /proc does not tell it.
            Some(libc::ENAMETOOLONG) => EngineError::from(Refusal::new(
                "a file whose path has more than 4095 bytes",
                "close it while checkpoints are taken, or have it nearer to the root",
            )),
            _ => EngineError::system("readlink", path, error),
        })?;
        let link = names::text(link);
        let root = format!("/proc/{host_pid}/root");
        let shown = link.clone();
        let link = other_name::find(&root, &link, &stat).unwrap_or(link);
        let info = FdInfo::read(&format!("/proc/{host_pid}/fdinfo/{fd}"))?;
        let comm = comm.to_owned();
        let is_in_memory = false;
        Ok(Self {
            host_pid,
            pid,
            comm,
            fd,
            copy,
            flags,
            stat,
            link,
            shown,
            root,
            is_in_memory,
            info,
        })
    }

    /// Changes the link to one that leads to the file from another folder.
    pub fn is_seen_at(&mut self, link: String, root: String) {
        self.link = other_name::find(&root, &link, &self.stat).unwrap_or(link);
        self.root = root;
    }

    /// S_IFMT part of the mode.
    pub fn file_type(&self) -> u32 {
        self.stat.st_mode & abi::S_IFMT
    }

    /// Whether the link names an anonymous inode of this kind (`[eventfd]`).
    pub fn is_anonymous(&self, name: &str) -> bool {
        self.link.strip_prefix("anon_inode:") == Some(name)
    }

    /// The refusal of a kind that no room knows.
    pub fn unknown(&self) -> Refusal {
        let what = match self.file_type() {
            abi::S_IFSOCK => families::name(&self.copy),
            _ => None,
        };
        let what = what.as_ref().unwrap_or(&self.link);
        if self.is_anonymous("[perf_event]") {
            let what = "is a perf event (perf_event_open): the kernel does not tell what it counts";
            return Refusal::new(what, "close it while checkpoints are taken, or run without it");
        }
        Refusal::new(
            format!("{what} cannot be checkpointed"),
            interconnect::way_out(what)
                .unwrap_or("close it while checkpoints are taken, or run without it"),
        )
    }

    /// The same inode of the same file system: two ends of one pipe, two opens of one file.
    pub fn inode(&self) -> (u64, u64) {
        identity(&self.stat)
    }
}

/// Fields of /proc/PID/fdinfo/N (proc_pid_fdinfo(5)).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FdInfo {
    text: String,
}

impl FdInfo {
    /// From /proc.
    ///
    /// # Errors
    /// Failed read.
    pub fn read(path: &str) -> Result<Self> {
        std::fs::read(path)
            .map(|bytes| Self::parse(names::of_bytes(&bytes)))
            .map_err(|error| EngineError::system("read", path, error))
    }

    /// Of a descriptor of this process.
    ///
    /// # Errors
    /// Failed read.
    pub fn of_own(fd: BorrowedFd<'_>) -> Result<Self> {
        Self::read(&format!("/proc/self/fdinfo/{}", fd.as_fd().as_raw_fd()))
    }

    /// From the file's text.
    pub fn parse(text: String) -> Self {
        Self { text }
    }

    /// The rest of the first line that begins with `key:`, trimmed.
    pub fn get<'a>(&'a self, key: &'a str) -> Option<&'a str> {
        self.lines(key).next()
    }

    /// The rest of every line that begins with `key:`.
    pub fn lines<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.text.lines().filter_map(move |line| {
            line.strip_prefix(key).and_then(|rest| rest.strip_prefix(':')).map(str::trim)
        })
    }

    /// The rest of every line that begins so, trimmed.
    pub fn beginning<'a>(&'a self, start: &'a str) -> impl Iterator<Item = &'a str> {
        self.text.lines().filter_map(move |line| line.strip_prefix(start).map(str::trim))
    }

    /// The indented lines right below the one that begins with `key:`, trimmed.
    pub fn below<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        let is_head =
            move |line: &&str| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(':'));
        let lines = self.text.lines().skip_while(move |line| !is_head(line)).skip(1);
        lines.take_while(|line| line.is_empty() || line.starts_with(' ')).map(str::trim)
    }

    /// Like [`FdInfo::get`], an error where the kernel does not tell it.
    ///
    /// # Errors
    /// [`EngineError::NotUnderstood`].
    pub fn need<'a>(&'a self, key: &'a str) -> Result<&'a str> {
        self.get(key)
            .ok_or_else(|| EngineError::odd(format!("fdinfo without {key}"), self.text.clone()))
    }

    /// A number in the given radix.
    ///
    /// # Errors
    /// [`EngineError::NotUnderstood`].
    pub fn number(&self, key: &str, radix: u32) -> Result<u64> {
        let text = self.need(key)?;
        u64::from_str_radix(text.trim_start_matches("0x"), radix)
            .map_err(|_| EngineError::odd(format!("fdinfo field {key}"), text))
    }

    /// File offset (`pos:`), bytes.
    ///
    /// # Errors
    /// [`EngineError::NotUnderstood`].
    pub fn position(&self) -> Result<u64> {
        // Signed (fs/proc/fd.c): of memory an offset may be in the upper half of all addresses.
        match self.need("pos")?.parse::<i64>() {
            Ok(offset) => Ok(offset as u64),
            Err(_) => self.number("pos", 10),
        }
    }
}
