//! How a process ended that is nobody's child here.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use protocol::agent::ExitKind;

use super::super::proc::stat_of;
use super::pidfd::PidFd;
use super::reap::exit_kind;

/// PIDFD_INFO_EXIT (include/uapi/linux/pidfd.h), since Linux 6.15.
const EXIT: u64 = 1 << 3;
/// PIDFD_GET_INFO: `_IOWR(0xff, 11, struct pidfd_info)`, with the structure as it was at first.
const GET_INFO: u32 = 3 << 30 | (size_of::<Info>() as u32) << 16 | 0xff << 8 | 11;
/// How often it is asked: between the end and the moment when the parent has been told, neither way shows it.
const TRIES: usize = 20;
const MOMENT: Duration = Duration::from_millis(2);

/// struct pidfd_info
#[repr(C)]
#[derive(Default)]
struct Info {
    mask: u64,
    cgroup: u64,
    numbers: [u32; 11],
    exit_code: i32,
}

/// How a process of the caller's user ended that has just done so. Before Linux 6.15 that is known until its parent has
/// waited for it. `None`: nobody tells any more.
pub fn status(process: &PidFd) -> Option<ExitKind> {
    for _ in 0..TRIES {
        if let Some(status) = of_zombie(process).or_else(|| of_reaped(process)) {
            return exit_kind(status);
        }
        std::thread::sleep(MOMENT);
    }
    None
}

/// What /proc shows to those who may look into it (proc_pid_stat(5), exit_code).
fn of_zombie(process: &PidFd) -> Option<i32> {
    let stat = stat_of(process.pid()).ok().filter(|stat| stat.state == 'Z')?;
    // It is not another one's of the same number as long as nobody has waited for it.
    process.signal(0).ok()?;
    stat.exit_code
}

/// What the kernel keeps with the descriptor once somebody has waited for it (fs/pidfs.c, pidfs_exit()).
fn of_reaped(process: &PidFd) -> Option<i32> {
    let mut info = Info { mask: EXIT, ..Info::default() };
    let fd = process.as_fd().as_raw_fd();
    // SAFETY: the kernel writes no more than the size in the request's number into `info`, which lives across the call.
    let answer = unsafe { libc::ioctl(fd, GET_INFO as _, &mut info) };
    (answer == 0 && info.mask & EXIT != 0).then_some(info.exit_code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn ended(script: &str) -> (Child, PidFd) {
        let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let process = PidFd::open(child.id() as i32).unwrap();
        while !process.has_ended() {
            std::thread::yield_now();
        }
        (child, process)
    }

    #[test]
    fn tells_how_a_process_ended_whether_waited_for_or_not() {
        for (script, expected) in [
            ("exit 7", ExitKind::Exited(7)),
            ("kill -KILL $$", ExitKind::Signalled(libc::SIGKILL)),
            ("exit 0", ExitKind::Exited(0)),
        ] {
            let (mut child, process) = ended(script);
            assert_eq!(status(&process), Some(expected), "{script}");
            child.wait().unwrap();
            let kept = of_reaped(&process).and_then(exit_kind);
            // Kernels before 6.15 have forgotten it.
            assert!(kept.is_none() || kept == Some(expected), "{script}: {kept:?}");
            assert_eq!(of_zombie(&process), None);
        }
    }
}
