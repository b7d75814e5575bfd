//! Constants of the kernel's interface that the libc crate lacks for some targets (Android's, with bionic, above all), in the
//! types that the engine needs. From the kernel's own headers as the crate linux-raw-sys has them, and by hand where it has not.

use libc::{c_int, c_long};
use linux_raw_sys::{general, ioctl, net, ptrace};

/// What the C library calls a request of ptrace(2).
#[cfg(target_env = "gnu")]
pub type PtraceRequest = libc::c_uint;
/// What the C library calls a request of ptrace(2).
#[cfg(not(target_env = "gnu"))]
pub type PtraceRequest = c_int;

/// ptrace(2)
pub const PTRACE_SEIZE: PtraceRequest = ptrace::PTRACE_SEIZE as PtraceRequest;
/// ptrace(2)
pub const PTRACE_INTERRUPT: PtraceRequest = ptrace::PTRACE_INTERRUPT as PtraceRequest;
/// ptrace(2)
pub const PTRACE_PEEKSIGINFO: PtraceRequest = ptrace::PTRACE_PEEKSIGINFO as PtraceRequest;

/// mmap(2)
pub const MAP_FIXED_NOREPLACE: c_int = general::MAP_FIXED_NOREPLACE as c_int;
/// mremap(2): to where the last argument says.
pub const MREMAP_TO: u64 = (general::MREMAP_MAYMOVE | general::MREMAP_FIXED) as u64;
/// CLONE_NEWTIME (time_namespaces(7)), since Linux 5.6.
pub const CLONE_NEWTIME: c_int = general::CLONE_NEWTIME as c_int;
/// rseq(2)
pub const SYS_RSEQ: c_long = general::__NR_rseq as c_long;
/// mmap(2), instead of MAP_PRIVATE (include/uapi/linux/mman.h), since Linux 6.11.
pub const MAP_DROPPABLE: i32 = 0x08;
/// getrlimit(2)
pub const RLIMIT_RTTIME: u32 = general::RLIMIT_RTTIME;
/// socket(7)
pub const SO_COOKIE: c_int = net::SO_COOKIE as c_int;

/// ioctl_tty(2)
pub const TIOCPKT: u32 = ioctl::TIOCPKT;
/// ioctl_tty(2)
pub const TIOCSPTLCK: u32 = ioctl::TIOCSPTLCK;
/// ioctl_tty(2)
pub const TIOCGPTN: u32 = ioctl::TIOCGPTN;
/// ioctl_tty(2)
pub const TIOCGSID: u32 = ioctl::TIOCGSID;

/// An instruction of a filter (bpf(2), classic): loads a word.
pub const FILTER_LOAD: u16 = (ptrace::BPF_LD | ptrace::BPF_W | ptrace::BPF_ABS) as u16;
/// An instruction of a filter: compares it with a constant, and jumps.
pub const FILTER_IF_EQUAL: u16 = (ptrace::BPF_JMP | ptrace::BPF_JEQ | ptrace::BPF_K) as u16;
/// An instruction of a filter: ends it with a constant.
pub const FILTER_ANSWER: u16 = (ptrace::BPF_RET | ptrace::BPF_K) as u16;

/// Types of files, in as many bits as stat(2) has (inode(7)).
pub use general::{S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK};

/// close_range(2) (include/uapi/linux/close_range.h)
pub const CLOSE_RANGE_UNSHARE: u32 = 1 << 1;
/// close_range(2) (include/uapi/linux/close_range.h)
pub const CLOSE_RANGE_CLOEXEC: u32 = 1 << 2;

/// shmget(2) (include/uapi/linux/ipc.h)
pub const IPC_CREAT: c_int = 0o1000;
/// shmget(2) (include/uapi/linux/ipc.h)
pub const IPC_EXCL: c_int = 0o2000;
/// shmctl(2) (include/uapi/linux/ipc.h)
pub const IPC_RMID: c_int = 0;
/// shmctl(2) (include/uapi/linux/ipc.h)
pub const IPC_SET: c_int = 1;
/// shmctl(2) (include/uapi/linux/shm.h)
pub const SHM_LOCK: c_int = 11;
/// shmat(2) (include/uapi/linux/shm.h)
pub const SHM_RDONLY: c_int = 0o10000;
/// Likewise: over what is mapped there.
pub const SHM_REMAP: c_int = 0o40000;

/// SOL_NETLINK (include/linux/socket.h).
pub const SOL_NETLINK: i32 = 270;
