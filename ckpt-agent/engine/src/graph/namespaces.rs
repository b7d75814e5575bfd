//! Namespaces that processes of a job have made for themselves (namespaces(7)).

use serde::{Deserialize, Serialize};

use super::super::sys::abi::CLONE_NEWTIME;
use super::{IpcObjects, OwnMount};

/// The file below /proc/PID/ns of the time namespace that a process's children will be in (time_namespaces(7)).
pub const TIME_OF_CHILDREN: &str = "time_for_children";

/// A namespace that is not the one of the job's init.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnNamespace {
    /// The user namespace that it belongs to, among those of the image; none: the job's. A user namespace may be within one
    /// that is the job's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
    /// What it is, and what it says.
    pub content: NamespaceContent,
}

/// What a namespace says, as far as that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub enum NamespaceContent {
    /// uts_namespaces(7)
    Uts {
        /// sethostname(2)
        host: String,
        /// setdomainname(2)
        domain: String,
    },
    /// Without any object in it (ipc_namespaces(7)).
    Ipc,
    /// With System V objects in it; its segments of shared memory are inodes of the image.
    OwnIpc {
        /// Semaphores and message queues.
        objects: IpcObjects,
    },
    /// With the loopback device alone (network_namespaces(7)).
    Network {
        /// The device is up.
        loopback_up: bool,
    },
    /// The same, with sockets in it: those are made before there are processes.
    OwnNetwork {
        /// The device is up.
        loopback_up: bool,
    },
    /// With the mounts of the job's (mount_namespaces(7)).
    Mounts,
    /// With other mounts than the job's.
    OwnMounts {
        /// What is mounted, where that is not as in the job's own.
        mounts: Vec<OwnMount>,
        /// The first of them is its root; nothing is in it but them.
        pivot: bool,
        /// Nothing that is mounted elsewhere comes to be mounted in it.
        private: bool,
    },
    /// cgroup_namespaces(7)
    Cgroup,
    /// pid_namespaces(7), within the job's. Who is in it, and by which numbers, the processes tell.
    Pid,
    /// time_namespaces(7)
    Time {
        /// CLOCK_MONOTONIC in it minus that of the job's init, ns.
        monotonic_ns: i64,
        /// CLOCK_BOOTTIME in it minus that of the job's init, ns.
        boottime_ns: i64,
        /// A process has been in it, which fixes its clocks.
        fixed: bool,
    },
    /// user_namespaces(7)
    User {
        /// uid_map
        uids: Vec<IdRange>,
        /// gid_map
        gids: Vec<IdRange>,
        /// setgroups(2) may be called in it.
        may_set_groups: bool,
    },
}
protocol::tagged!(NamespaceContent, "kind");

impl NamespaceContent {
    /// The flag of unshare(2) and setns(2).
    pub fn flag(&self) -> libc::c_int {
        match self {
            Self::Uts { .. } => libc::CLONE_NEWUTS,
            Self::Ipc | Self::OwnIpc { .. } => libc::CLONE_NEWIPC,
            Self::Network { .. } | Self::OwnNetwork { .. } => libc::CLONE_NEWNET,
            Self::Mounts | Self::OwnMounts { .. } => libc::CLONE_NEWNS,
            Self::Cgroup => libc::CLONE_NEWCGROUP,
            Self::Pid => libc::CLONE_NEWPID,
            Self::Time { .. } => CLONE_NEWTIME,
            Self::User { .. } => libc::CLONE_NEWUSER,
        }
    }

    /// Its file below /proc/PID/ns.
    pub fn file(&self) -> &'static str {
        match self {
            Self::Uts { .. } => "uts",
            Self::Ipc | Self::OwnIpc { .. } => "ipc",
            Self::Network { .. } | Self::OwnNetwork { .. } => "net",
            Self::Mounts | Self::OwnMounts { .. } => "mnt",
            Self::Cgroup => "cgroup",
            Self::Pid => "pid",
            Self::Time { .. } => "time",
            Self::User { .. } => "user",
        }
    }

    /// The semaphores and message queues of an IPC namespace.
    pub fn ipc_objects(&self) -> Option<&IpcObjects> {
        match self {
            Self::OwnIpc { objects } => Some(objects),
            _ => None,
        }
    }

    /// Whether other things are mounted in it than in the job's own.
    pub fn has_own_mounts(&self) -> bool {
        matches!(self, Self::OwnMounts { .. })
    }

    /// Whether it is a time namespace.
    pub fn is_time(&self) -> bool {
        matches!(self, Self::Time { .. })
    }

    /// Whether it is a user namespace.
    pub fn is_user(&self) -> bool {
        matches!(self, Self::User { .. })
    }
}

/// A line of uid_map or gid_map: first number inside, first number in the job's user namespace, how many. Of a namespace
/// within another one, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange(pub u32, pub u32, pub u32);

impl IdRange {
    /// Most lines of a map (user_namespaces(7)).
    pub const MOST: usize = 340;

    /// A line of a map.
    pub fn of_line(line: &str) -> Option<Self> {
        let mut numbers = line.split_whitespace().map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Self(next()?, next()?, next()?))
    }

    /// Whether it has a number inside.
    pub fn has(&self, number: u32) -> bool {
        number.wrapping_sub(self.0) < self.2
    }
}
