//! System calls that have another number or another form in some tables.

use super::super::trace::ProcessMemory;
use super::Call;

/// getgroups(2) and its kin with 32-bit users, which have names of their own in 32-bit tables.
#[cfg(target_pointer_width = "64")]
mod users {
    /// setgroups(2)
    pub const SETGROUPS: libc::c_long = libc::SYS_setgroups;
    /// setresuid(2)
    pub const SETRESUID: libc::c_long = libc::SYS_setresuid;
    /// setresgid(2)
    pub const SETRESGID: libc::c_long = libc::SYS_setresgid;
    /// setfsuid(2)
    pub const SETFSUID: libc::c_long = libc::SYS_setfsuid;
    /// setfsgid(2)
    pub const SETFSGID: libc::c_long = libc::SYS_setfsgid;
}
#[cfg(target_pointer_width = "32")]
mod users {
    /// setgroups(2)
    pub const SETGROUPS: libc::c_long = libc::SYS_setgroups32;
    /// setresuid(2)
    pub const SETRESUID: libc::c_long = libc::SYS_setresuid32;
    /// setresgid(2)
    pub const SETRESGID: libc::c_long = libc::SYS_setresgid32;
    /// setfsuid(2)
    pub const SETFSUID: libc::c_long = libc::SYS_setfsuid32;
    /// setfsgid(2)
    pub const SETFSGID: libc::c_long = libc::SYS_setfsgid32;
}
pub use users::{SETFSGID, SETFSUID, SETGROUPS, SETRESGID, SETRESUID};

/// fcntl(2) with 64-bit offsets.
#[cfg(target_pointer_width = "64")]
pub const FCNTL: libc::c_long = libc::SYS_fcntl;
/// fcntl(2) with 64-bit offsets.
#[cfg(target_pointer_width = "32")]
pub const FCNTL: libc::c_long = libc::SYS_fcntl64;
/// F_SETLK, or F_SETLK64 (include/uapi/asm-generic/fcntl.h).
pub const SET_RECORD_LOCK: u64 = if cfg!(target_pointer_width = "64") { 6 } else { 13 };

/// SysV IPC (ipc/syscall.c).
#[cfg(not(target_arch = "x86"))]
mod ipc {
    /// semget(2)
    pub const SEMGET: libc::c_long = libc::SYS_semget;
    /// semop(2)
    pub const SEMOP: libc::c_long = libc::SYS_semop;
    /// semctl(2)
    pub const SEMCTL: libc::c_long = libc::SYS_semctl;
    /// msgget(2)
    pub const MSGGET: libc::c_long = libc::SYS_msgget;
    /// msgsnd(2)
    pub const MSGSND: libc::c_long = libc::SYS_msgsnd;
    /// msgrcv(2)
    pub const MSGRCV: libc::c_long = libc::SYS_msgrcv;
    /// msgctl(2)
    pub const MSGCTL: libc::c_long = libc::SYS_msgctl;
    /// shmget(2)
    pub const SHMGET: libc::c_long = libc::SYS_shmget;
    /// shmctl(2)
    pub const SHMCTL: libc::c_long = libc::SYS_shmctl;
    /// shmat(2)
    pub const SHMAT: libc::c_long = libc::SYS_shmat;
    /// shmdt(2)
    pub const SHMDT: libc::c_long = libc::SYS_shmdt;
}
/// The calls of their own that this table has had since Linux 5.1, beside ipc(2).
#[cfg(target_arch = "x86")]
mod ipc {
    /// semget(2)
    pub const SEMGET: libc::c_long = 393;
    /// semctl(2)
    pub const SEMCTL: libc::c_long = 394;
    /// shmget(2)
    pub const SHMGET: libc::c_long = 395;
    /// shmctl(2)
    pub const SHMCTL: libc::c_long = 396;
    /// shmat(2)
    pub const SHMAT: libc::c_long = 397;
    /// shmdt(2)
    pub const SHMDT: libc::c_long = 398;
    /// msgget(2)
    pub const MSGGET: libc::c_long = 399;
    /// msgsnd(2)
    pub const MSGSND: libc::c_long = 400;
    /// msgrcv(2)
    pub const MSGRCV: libc::c_long = 401;
    /// msgctl(2)
    pub const MSGCTL: libc::c_long = 402;
    /// semtimedop(2), which without a time is semop(2).
    pub const SEMOP: libc::c_long = 420;
}
pub use ipc::{
    MSGCTL, MSGGET, MSGRCV, MSGSND, SEMCTL, SEMGET, SEMOP, SHMAT, SHMCTL, SHMDT, SHMGET,
};

/// accept(2). Where it is only a part of socketcall(2), a number that no call has.
#[cfg(not(target_arch = "x86"))]
pub const ACCEPT: libc::c_long = libc::SYS_accept;
/// accept(2). Where it is only a part of socketcall(2), a number that no call has.
#[cfg(target_arch = "x86")]
pub const ACCEPT: libc::c_long = -1;

/// mmap(2). 32-bit tables have mmap2(2), which counts 4096 bytes as one, whatever the size of a page.
#[cfg(target_pointer_width = "64")]
pub fn map(address: u64, length: u64, protection: u64, flags: u64, fd: u64, offset: u64) -> Call {
    Call::of(libc::SYS_mmap, [address, length, protection, flags, fd, offset])
}

/// mmap(2). 32-bit tables have mmap2(2), which counts 4096 bytes as one, whatever the size of a page.
#[cfg(target_pointer_width = "32")]
pub fn map(address: u64, length: u64, protection: u64, flags: u64, fd: u64, offset: u64) -> Call {
    Call::of(libc::SYS_mmap2, [address, length, protection, flags, fd, offset / 4096])
}

/// A command of semctl(2), msgctl(2) and shmctl(2), with IPC_64 where the table once had smaller structures
/// (ipc/util.h, ipc_parse_version).
pub const fn ipc_command(command: i32) -> i32 {
    if cfg!(target_arch = "arm") { command | 0x100 } else { command }
}

/// The socket of a call that is connect(2), if it is one.
pub fn connects(call: &Call, memory: &mut ProcessMemory) -> Option<i32> {
    if *call == Call::of(libc::SYS_connect, call.arguments) {
        return Some(call.arguments[0] as i32);
    }
    connects_as_a_part(call, memory)
}

#[cfg(not(target_arch = "x86"))]
fn connects_as_a_part(_call: &Call, _memory: &mut ProcessMemory) -> Option<i32> {
    None
}

/// socketcall(2): which call, and where its arguments are.
#[cfg(target_arch = "x86")]
fn connects_as_a_part(call: &Call, memory: &mut ProcessMemory) -> Option<i32> {
    /// SYS_CONNECT (include/uapi/linux/net.h)
    const CONNECT: u64 = 3;
    let is_one =
        *call == Call::of(libc::SYS_socketcall, call.arguments) && call.arguments[0] == CONNECT;
    let mut socket = [0; 4];
    (is_one && memory.read(call.arguments[1], &mut socket).is_ok())
        .then(|| i32::from_ne_bytes(socket))
}
