//! Network devices whose packets a process gets and gives (linux/if_tun.h; Documentation/networking/tuntap.rst).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// Where the kernel offers them.
pub const DEVICE: &str = "/dev/net/tun";

/// struct ifreq, of which these requests read a name and flags.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    // As much as the largest member of the union takes.
    _room: [u8; 22],
}

/// Whether a device outlives the process that has it open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It goes when the file is closed.
    Process,
    /// It stays, and drops what is sent through it while nobody has it open.
    Own,
}

/// Makes the device of that name, for whole packets of IP without anything in front of them, or opens one that nobody has
/// open. Reading and writing do not wait.
///
/// # Errors
/// There is no such driver, it is no such device, somebody has it open (EBUSY), or the caller lacks CAP_NET_ADMIN.
pub fn open(name: &str) -> io::Result<File> {
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(DEVICE)?;
    let mut request = Request {
        name: [0; libc::IFNAMSIZ],
        flags: (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short,
        _room: [0; 22],
    };
    if name.len() >= request.name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (place, byte) in request.name.iter_mut().zip(name.bytes()) {
        *place = byte;
    }
    // SAFETY: TUNSETIFF reads and writes a struct ifreq, of whose size the request is; it lives across the call.
    let made =
        unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as libc::Ioctl, &raw mut request) };
    if made == 0 { Ok(file) } else { Err(io::Error::last_os_error()) }
}

/// Says how long the device is to live.
///
/// # Errors
/// The file is none of [`open`]'s.
pub fn set_life(device: &File, life: Life) -> io::Result<()> {
    let persists: libc::c_ulong = match life {
        Life::Process => 0,
        Life::Own => 1,
    };
    // SAFETY: TUNSETPERSIST takes a number, and reads no memory.
    let done =
        unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETPERSIST as libc::Ioctl, persists) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
