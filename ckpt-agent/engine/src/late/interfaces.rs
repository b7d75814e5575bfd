//! The addresses of network interfaces (netdevice(7)): a process that has come from another machine is told those of
//! its logical node, by which others know it. Whoever asks by rtnetlink(7) or reads /proc/net/if_inet6 is told the
//! machine's.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

use super::address_map::Away;
use super::filter::Pass;

/// SIOCGIFCONF: all of them.
pub(super) const LIST: u32 = libc::SIOCGIFCONF as u32;
/// SIOCGIFADDR: that of one.
pub(super) const ADDRESS: u32 = libc::SIOCGIFADDR as u32;
/// struct ifreq: a name, then a union that begins with a socket address.
pub(super) const ENTRY: usize = size_of::<libc::ifreq>();
/// More interfaces nobody has.
const MOST: usize = 64 * 1024;
/// Where the socket address is in an entry.
const AT: usize = libc::IFNAMSIZ;
/// struct sockaddr_in: where the address is in it.
const IP: usize = AT + 4;

/// What a process asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// Where the entries are to be in its memory.
    pub(super) at: u64,
    /// Bytes.
    pub(super) length: usize,
}

/// struct ifconf: a length, and where the room is, with the padding of the architecture. `None`: it asks for the length
/// only.
pub(super) fn room(configuration: &[u8]) -> Option<Room> {
    let length = i32::from_ne_bytes(configuration.get(..4)?.try_into().ok()?);
    let at = usize::from_ne_bytes(configuration.get(size_of::<usize>()..)?.try_into().ok()?) as u64;
    let length = usize::try_from(length).ok()?.min(MOST) / ENTRY * ENTRY;
    (at != 0 && length > 0).then_some(Room { at, length })
}

/// Entries as a process that has moved is to see them.
pub(super) fn translate(entries: &mut [u8], away: &Away<'_>) {
    for entry in entries.chunks_exact_mut(ENTRY) {
        let family = u16::from_ne_bytes([entry[AT], entry[AT + 1]]);
        if i32::from(family) != libc::AF_INET {
            continue;
        }
        let found = Ipv4Addr::new(entry[IP], entry[IP + 1], entry[IP + 2], entry[IP + 3]);
        if let Some(IpAddr::V4(known)) = away.known_as(found.into()) {
            entry[IP..IP + 4].copy_from_slice(&known.octets());
        }
    }
}

impl Pass {
    /// SIOCGIFCONF with so much room.
    pub(super) fn list_interfaces(
        self,
        fd: BorrowedFd<'_>,
        length: usize,
    ) -> Result<Vec<u8>, Errno> {
        let mut entries = vec![0u8; length];
        let mut asked = [0u8; 2 * size_of::<usize>()];
        asked[..4].copy_from_slice(&(length as i32).to_ne_bytes());
        asked[size_of::<usize>()..].copy_from_slice(&(entries.as_mut_ptr() as usize).to_ne_bytes());
        self.ask_device(fd, LIST, &mut asked)?;
        let got = i32::from_ne_bytes([asked[0], asked[1], asked[2], asked[3]]);
        entries.truncate(usize::try_from(got).unwrap_or(0));
        Ok(entries)
    }

    /// SIOCGIFADDR.
    pub(super) fn interface_address(
        self,
        fd: BorrowedFd<'_>,
        entry: &mut [u8; ENTRY],
    ) -> Result<(), Errno> {
        self.ask_device(fd, ADDRESS, entry)
    }

    fn ask_device(
        self,
        fd: BorrowedFd<'_>,
        request: u32,
        argument: &mut [u8],
    ) -> Result<(), Errno> {
        // SAFETY: the argument is a live struct ifconf or ifreq, as the request wants; the room that an ifconf names
        // lives in the caller and is as long as it says.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_ioctl,
                fd.as_raw_fd(),
                libc::c_ulong::from(request),
                argument.as_mut_ptr(),
                0,
                0,
                self.word(),
            )
        };
        Errno::result(answer).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    use std::os::fd::AsFd;

    #[test]
    fn the_loopback_is_listed() {
        let fd =
            socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).unwrap();
        let entries = Pass::unneeded().list_interfaces(fd.as_fd(), 64 * ENTRY).unwrap();
        let loopback = entries.chunks_exact(ENTRY).find(|entry| entry.starts_with(b"lo\0"));
        assert_eq!(loopback.map(|entry| &entry[IP..IP + 4]), Some(&[127, 0, 0, 1][..]));
        let mut entry = [0; ENTRY];
        entry[..2].copy_from_slice(b"lo");
        Pass::unneeded().interface_address(fd.as_fd(), &mut entry).unwrap();
        assert_eq!(entry[IP..IP + 4], [127, 0, 0, 1]);
    }

    #[test]
    fn who_asks_for_the_length_gets_no_room() {
        let mut asked = [0u8; 2 * size_of::<usize>()];
        asked[..4].copy_from_slice(&100i32.to_ne_bytes());
        assert_eq!(room(&asked), None);
        asked[size_of::<usize>()..].copy_from_slice(&0x1000usize.to_ne_bytes());
        assert_eq!(room(&asked), Some(Room { at: 0x1000, length: 100 / ENTRY * ENTRY }));
        assert_eq!(room(&asked[..5]), None);
    }
}
