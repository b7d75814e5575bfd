//! Doing without some of root's capabilities for a while.

use std::cell::Cell;

use nix::errno::Errno;

use super::super::error::{EngineError, Result};

/// _LINUX_CAPABILITY_VERSION_3 (include/uapi/linux/capability.h): sets of 64 capabilities.
pub const CAPABILITY_VERSION: u32 = 0x2008_0522;
/// By their numbers (include/uapi/linux/capability.h).
/// Reading and writing any file.
pub const DAC_OVERRIDE: u32 = 1;
/// Becoming any group.
pub const SETGID: u32 = 6;
/// Becoming any user.
pub const SETUID: u32 = 7;
const NET_BIND_SERVICE: u32 = 10;
const NET_ADMIN: u32 = 12;
/// Raw sockets and packet sockets.
pub const NET_RAW: u32 = 13;
const SYS_RAWIO: u32 = 17;
const SYS_PTRACE: u32 = 19;
/// What an administrator does.
pub const SYS_ADMIN: u32 = 21;
const SYS_NICE: u32 = 23;
const SYS_RESOURCE: u32 = 24;
const AUDIT_READ: u32 = 37;

/// What a user has no right to when files and sockets are made for them: ports that are root's, ports of the hardware,
/// and what /proc shows of processes to those alone who may trace them.
pub const OVER_OBJECTS: &[u32] = &[NET_BIND_SERVICE, SYS_RAWIO, SYS_PTRACE];
/// What a user has no right to besides when their sockets get options and groups: marks that a firewall knows, and what
/// netlink tells to root alone. Making the sockets may need these: TCP_REPAIR does.
pub const OVER_SOCKET_OPTIONS: &[u32] = &[NET_ADMIN, NET_RAW, AUDIT_READ];
/// What nothing in an agent of root's needs: see the guide to clusters, which names what is left.
pub const NEEDLESS: &[u32] = &[
    9,  // LINUX_IMMUTABLE
    11, // NET_BROADCAST
    14, // IPC_LOCK
    16, // SYS_MODULE
    SYS_RAWIO, 20, // SYS_PACCT
    22, // SYS_BOOT
    25, // SYS_TIME
    26, // SYS_TTY_CONFIG
    28, // LEASE
    29, // AUDIT_WRITE
    30, // AUDIT_CONTROL
    31, // SETFCAP
    32, // MAC_OVERRIDE
    33, // MAC_ADMIN
    34, // SYSLOG
    35, // WAKE_ALARM
    36, // BLOCK_SUSPEND
    38, // PERFMON
    39, // BPF
];
/// What a user has no right to when files are opened and made for them. The kernel takes them away from root that acts
/// on files as another user, and from nobody else (capabilities(7)).
pub const OVER_FILES: &[u32] = &[
    0, // CHOWN
    DAC_OVERRIDE,
    2,  // DAC_READ_SEARCH
    3,  // FOWNER
    4,  // FSETID
    27, // MKNOD
];
/// What a user has no right to when their processes are told how they are scheduled.
pub const OVER_PRIORITIES: &[u32] = &[SYS_NICE, SYS_RESOURCE];

/// While this lives, the calling thread does not use some capabilities, so that the kernel refuses what only they
/// allow. Other threads are not touched.
#[derive(Debug)]
pub struct Restrained {
    before: Sets,
}

thread_local! {
    /// How many guards of this thread live.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// struct __user_cap_data_struct: capabilities 0 to 31 and 32 to 63.
type Sets = [Half; 2];

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Half {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// struct __user_cap_header_struct
#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

impl Restrained {
    /// Begins to do without those.
    ///
    /// # Errors
    /// Failed system calls.
    pub fn begin(without: &[u32]) -> Result<Self> {
        let failed = |call| move |errno| EngineError::system(call, "this thread", errno);
        let before = get().map_err(failed("capget"))?;
        let mut sets = before;
        for capability in without {
            sets[(capability / 32) as usize].effective &= !(1 << (capability % 32));
        }
        set(&sets).map_err(failed("capset"))?;
        DEPTH.set(DEPTH.get() + 1);
        Ok(Self { before })
    }

    /// Does without those as well, where this thread does without others already: else it works for nobody but itself.
    ///
    /// # Errors
    /// Failed system calls.
    pub fn further(without: &[u32]) -> Result<Option<Self>> {
        if DEPTH.get() == 0 { Ok(None) } else { Self::begin(without).map(Some) }
    }
}

impl Drop for Restrained {
    fn drop(&mut self) {
        // They are still permitted, so they can be had back.
        let _ = set(&self.before);
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Gives those up for good, for the calling thread and all that it makes. A program that root executes has them again, as
/// those of jobs and their inits are to.
///
/// # Errors
/// Failed system calls.
pub fn give_up(capabilities: &[u32]) -> Result<()> {
    let failed = |call| move |errno| EngineError::system(call, "this thread", errno);
    let mut sets = get().map_err(failed("capget"))?;
    for capability in capabilities {
        let (half, bit) = (&mut sets[(capability / 32) as usize], 1 << (capability % 32));
        half.effective &= !bit;
        half.permitted &= !bit;
        half.inheritable &= !bit;
    }
    set(&sets).map_err(failed("capset"))
}

/// Whether the calling thread has all of those.
///
/// # Errors
/// Failed capget(2).
pub fn has(capabilities: &[u32]) -> nix::Result<bool> {
    let sets = get()?;
    let one =
        |capability: &u32| sets[(capability / 32) as usize].effective >> (capability % 32) & 1;
    Ok(capabilities.iter().all(|capability| one(capability) == 1))
}

/// Takes those away from what the calling thread uses; what [`give_back`] gives it again: those that it had.
///
/// # Errors
/// Failed system calls.
pub fn take_away(capabilities: &[u32]) -> nix::Result<[u32; 2]> {
    let mut sets = get()?;
    let mut taken = [0; 2];
    for capability in capabilities {
        let (index, bit) = ((capability / 32) as usize, 1 << (capability % 32));
        taken[index] |= sets[index].effective & bit;
        sets[index].effective &= !bit;
    }
    set(&sets).map(|()| taken)
}

/// Gives back what [`take_away`] took.
///
/// # Errors
/// Failed system calls.
pub fn give_back(taken: [u32; 2]) -> nix::Result<()> {
    let mut sets = get()?;
    for (half, taken) in sets.iter_mut().zip(taken) {
        half.effective |= taken;
    }
    set(&sets)
}

/// Has the programs that this process executes from now on have what it has, though it is not root: they inherit it.
///
/// # Errors
/// Failed system calls.
pub fn hand_on() -> nix::Result<()> {
    let mut sets = get()?;
    for half in &mut sets {
        half.inheritable = half.permitted;
    }
    set(&sets)?;
    for capability in 0..64_u32 {
        if sets[(capability / 32) as usize].permitted >> (capability % 32) & 1 == 1 {
            ambient(libc::PR_CAP_AMBIENT_RAISE, capability)?;
        }
    }
    Ok(())
}

/// Gives up all of them, for the calling thread and all that it makes.
///
/// # Errors
/// Failed system calls.
pub fn give_up_all() -> nix::Result<()> {
    set(&Sets::default())
}

/// The programs that this process executes from now on inherit nothing any more.
///
/// # Errors
/// Failed system calls.
pub fn hand_on_nothing() -> nix::Result<()> {
    match ambient(libc::PR_CAP_AMBIENT_CLEAR_ALL, 0) {
        // Before Linux 4.3 there are none.
        Err(Errno::EINVAL) | Ok(()) => {}
        Err(errno) => return Err(errno),
    }
    let mut sets = get()?;
    if sets.iter().all(|half| half.inheritable == 0) {
        return Ok(());
    }
    for half in &mut sets {
        half.inheritable = 0;
    }
    set(&sets)
}

fn ambient(what: libc::c_int, capability: u32) -> nix::Result<()> {
    // SAFETY: takes numbers only.
    let answer = unsafe {
        libc::prctl(libc::PR_CAP_AMBIENT, what as libc::c_ulong, capability as libc::c_ulong, 0, 0)
    };
    Errno::result(answer).map(drop)
}

fn get() -> std::result::Result<Sets, Errno> {
    let mut header = Header { version: CAPABILITY_VERSION, pid: 0 };
    let mut sets = Sets::default();
    // SAFETY: the kernel writes a version to the header, and of version 3 two structures to `sets`, which has two.
    let answer = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) };
    Errno::result(answer).map(|_| sets)
}

fn set(sets: &Sets) -> std::result::Result<(), Errno> {
    let mut header = Header { version: CAPABILITY_VERSION, pid: 0 };
    // SAFETY: the kernel reads the header and, of version 3, two structures, which `sets` has.
    let answer = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) };
    Errno::result(answer).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_without_comes_back() {
        let effective = || get().unwrap().map(|half| half.effective);
        let before = effective();
        {
            let _restrained = Restrained::begin(&[SYS_NICE, SYS_PTRACE]).unwrap();
            let [low, high] = effective();
            assert_eq!(low, before[0] & !(1 << SYS_NICE | 1 << SYS_PTRACE));
            assert_eq!(high, before[1]);
            let _further = Restrained::further(&[NET_ADMIN]).unwrap().unwrap();
            assert_eq!(effective()[0], low & !(1 << NET_ADMIN));
        }
        assert!(Restrained::further(&[NET_ADMIN]).unwrap().is_none());
        assert_eq!(effective(), before);
    }

    #[test]
    fn what_was_taken_away_is_given_back_and_nothing_else() {
        let effective = || get().unwrap().map(|half| half.effective);
        let before = effective();
        let taken = take_away(OVER_FILES).unwrap();
        let [low, high] = effective();
        assert_eq!((low & 0x800_001f, high), (0, before[1]));
        assert!(!has(&[DAC_OVERRIDE]).unwrap());
        give_back(taken).unwrap();
        assert_eq!(effective(), before);
    }

    #[test]
    fn what_is_given_up_stays_away_from_that_thread_alone() {
        let before = get().unwrap();
        let after = std::thread::spawn(|| {
            give_up(NEEDLESS).unwrap();
            get().unwrap()
        });
        let after = after.join().unwrap();
        for capability in 0..64 {
            let (half, bit) = ((capability / 32) as usize, 1u32 << (capability % 32));
            let kept = !NEEDLESS.contains(&capability);
            for of in [|half: &Half| half.effective, |half: &Half| half.permitted] {
                let (was, is) = (of(&before[half]) & bit != 0, of(&after[half]) & bit != 0);
                assert_eq!(is, was && kept, "capability {capability}");
            }
        }
        assert_eq!(get().unwrap()[0].effective, before[0].effective);
    }
}
