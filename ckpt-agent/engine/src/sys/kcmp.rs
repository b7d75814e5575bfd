//! kcmp(2): whether two descriptors, of any two processes, refer to one open file description.
//!
//! The call needs CONFIG_KCMP and the right to trace both processes, and no sandbox may forbid it; where one is missing
//! every function here answers `None`, and the caller compares by what /proc says.

use std::cmp::Ordering;

use super::trial::Call;

// include/uapi/linux/kcmp.h
const KCMP_FILE: libc::c_int = 0;
const KCMP_EPOLL_TFD: libc::c_int = 7;

/// What two processes may share beside their files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// The address space (CLONE_VM).
    Memory = 1,
    /// The table of descriptors (CLONE_FILES).
    Descriptors = 2,
    /// Root and working directory, and the file mode creation mask (CLONE_FS).
    Directories = 3,
    /// Signal actions (CLONE_SIGHAND).
    Actions = 4,
}

/// Whether two processes share a resource. `None`: this kernel cannot tell.
pub fn share(left: i32, right: i32, resource: Resource) -> Option<bool> {
    if !Call::Kcmp.may_be_made() {
        return None;
    }
    // SAFETY: these comparisons take numbers only.
    let answer = unsafe { libc::syscall(libc::SYS_kcmp, left, right, resource as i32, 0, 0) };
    match answer {
        0 => Some(true),
        1.. => Some(false),
        _ => None,
    }
}

/// An order over what processes have of a resource, the same for as long as they live: equal is shared. `None`: this kernel
/// cannot tell.
pub fn compare(left: i32, right: i32, resource: Resource) -> Option<Ordering> {
    if !Call::Kcmp.may_be_made() {
        return None;
    }
    // SAFETY: these comparisons take numbers only.
    order(unsafe { libc::syscall(libc::SYS_kcmp, left, right, resource as i32, 0, 0) })
}

/// What the kernel's answer says (kcmp(2)).
fn order(answer: libc::c_long) -> Option<Ordering> {
    match answer {
        0 => Some(Ordering::Equal),
        1 => Some(Ordering::Less),
        2 => Some(Ordering::Greater),
        _ => None,
    }
}

/// A descriptor of a process: (process as this machine numbers it, descriptor).
pub type Holder = (i32, i32);

/// struct kcmp_epoll_slot
#[repr(C)]
struct EpollSlot {
    efd: u32,
    tfd: u32,
    toff: u32,
}

/// Whether two descriptors share one open file description. `None`: this kernel cannot tell.
pub fn same_file(left: Holder, right: Holder) -> Option<bool> {
    compare_files(left, right).map(Ordering::is_eq)
}

/// An order over open file descriptions, the same for as long as they live: equal is shared.
/// `None`: this kernel cannot tell, or a process or descriptor is gone.
pub fn compare_files(left: Holder, right: Holder) -> Option<Ordering> {
    if !Call::Kcmp.may_be_made() {
        return None;
    }
    // SAFETY: KCMP_FILE takes two descriptor numbers and touches no memory of ours.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            left.0,
            right.0,
            KCMP_FILE,
            left.1 as libc::c_ulong,
            right.1 as libc::c_ulong,
        )
    };
    order(answer)
}

/// Whether `file` is the open file description that `epoll` has registered as descriptor
/// `number`; `nth` counts registrations under one number in the order of fdinfo's `tfd:` lines.
/// `None`: this kernel cannot tell. Source: fs/eventpoll.c, get_epoll_tfile_raw_ptr.
pub fn is_epoll_target(epoll: Holder, number: u32, nth: u32, file: Holder) -> Option<bool> {
    if !Call::Kcmp.may_be_made() {
        return None;
    }
    let slot = EpollSlot { efd: epoll.1 as u32, tfd: number, toff: nth };
    // SAFETY: the kernel only reads the slot, which outlives the call.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            file.0,
            epoll.0,
            KCMP_EPOLL_TFD,
            file.1 as libc::c_ulong,
            &raw const slot,
        )
    };
    match answer {
        0 => Some(true),
        1.. => Some(false),
        _ => match nix::errno::Errno::last() {
            nix::errno::Errno::EBADF | nix::errno::Errno::ENOENT => Some(false),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn dup_is_equal_and_open_is_not() {
        let me = std::process::id() as i32;
        let first = std::fs::File::open("/dev/null").unwrap();
        let dup = first.try_clone().unwrap();
        let other = std::fs::File::open("/dev/null").unwrap();
        let Some(same) = same_file((me, first.as_raw_fd()), (me, dup.as_raw_fd())) else {
            return;
        };
        assert!(same);
        let forth = compare_files((me, first.as_raw_fd()), (me, other.as_raw_fd())).unwrap();
        let back = compare_files((me, other.as_raw_fd()), (me, first.as_raw_fd())).unwrap();
        assert!(forth.is_ne());
        assert_eq!(forth, back.reverse());
        assert_eq!(compare_files((me, first.as_raw_fd()), (me, 1 << 20)), None);
    }
}
