//! The network of the machines: a bridge, and a cable from each machine to it (rtnetlink(7), veth(4)).

use nix::libc;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

/// The device of a machine.
pub const DEVICE: &str = "eth0";
/// Bits of the addresses that the machines have in common.
const PREFIX: u8 = 24;
/// include/uapi/linux/veth.h: the attribute that has the other end.
const PEER: u16 = 1;
/// Bytes of an acknowledgement, with the request that it repeats.
const ANSWER: usize = 8192;
/// Bytes of a message's header, struct nlmsghdr.
const HEADER: usize = 16;

/// Makes a bridge with an address, in the caller's network.
///
/// # Errors
/// As rtnetlink(7).
pub fn make_bridge(name: &str, address: Ipv4Addr) -> io::Result<()> {
    let mut message = Message::link(libc::RTM_NEWLINK, true);
    message.text(libc::IFLA_IFNAME, name);
    message.within(libc::IFLA_LINKINFO, |kind| kind.text(libc::IFLA_INFO_KIND, "bridge"));
    message.order()?;
    set_address(name, address)
}

/// Lays a cable from a bridge of the caller's network to [`DEVICE`] in the network of a process.
///
/// # Errors
/// As rtnetlink(7).
pub fn lay_cable(bridge: &str, end: &str, process: u32) -> io::Result<()> {
    let mut message = Message::link(libc::RTM_NEWLINK, true);
    message.text(libc::IFLA_IFNAME, end);
    message.add(libc::IFLA_MASTER, &index(bridge)?.to_ne_bytes());
    message.within(libc::IFLA_LINKINFO, |kind| {
        kind.text(libc::IFLA_INFO_KIND, "veth");
        kind.within(libc::IFLA_INFO_DATA, |data| {
            data.within(PEER, |peer| {
                peer.0.extend_from_slice(&link_header(0, 0));
                peer.text(libc::IFLA_IFNAME, DEVICE);
                peer.add(libc::IFLA_NET_NS_PID, &process.to_ne_bytes());
            });
        });
    });
    message.order()?;
    set_up(end)
}

/// Gives a device an address, and lets it work.
///
/// # Errors
/// As rtnetlink(7).
pub fn set_address(device: &str, address: Ipv4Addr) -> io::Result<()> {
    let mut header = [libc::AF_INET as u8, PREFIX, 0, 0, 0, 0, 0, 0];
    header[4..].copy_from_slice(&index(device)?.to_ne_bytes());
    let mut message = Message::new(libc::RTM_NEWADDR, true, &header);
    message.add(libc::IFA_LOCAL, &address.octets());
    message.add(libc::IFA_ADDRESS, &address.octets());
    message.order()?;
    set_up(device)
}

fn set_up(device: &str) -> io::Result<()> {
    let header = link_header(index(device)?, libc::IFF_UP as u32);
    Message::new(libc::RTM_NEWLINK, false, &header).order()
}

fn index(device: &str) -> io::Result<u32> {
    Ok(nix::net::if_::if_nametoindex(device)?)
}

/// struct ifinfomsg
fn link_header(index: u32, flags: u32) -> [u8; 16] {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&flags.to_ne_bytes());
    header
}

/// A request that the kernel acknowledges, or attributes within one.
struct Message(Vec<u8>);

impl Message {
    fn link(kind: u16, is_new: bool) -> Self {
        Self::new(kind, is_new, &link_header(0, 0))
    }

    fn new(kind: u16, is_new: bool, header: &[u8]) -> Self {
        let mut flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK;
        if is_new {
            flags |= libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        }
        // Its length is known at the end; one request is under way at a time, so its number does not matter.
        let mut bytes = vec![0; 4];
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&(flags as u16).to_ne_bytes());
        bytes.resize(HEADER, 0);
        bytes.extend_from_slice(header);
        Self(bytes)
    }

    fn text(&mut self, kind: u16, text: &str) {
        self.add(kind, &[text.as_bytes(), &[0]].concat());
    }

    /// Adds an attribute.
    fn add(&mut self, kind: u16, value: &[u8]) {
        self.within(kind, |inner| inner.0.extend_from_slice(value));
    }

    /// Adds an attribute with others in it.
    fn within(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self(Vec::new());
        fill(&mut inner);
        // No message here is near that long.
        let length = u16::try_from(4 + inner.0.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.append(&mut inner.0);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }

    /// Sends it, and takes the kernel's answer.
    fn order(self) -> io::Result<()> {
        let (kind, flags) = (SockType::Raw, SockFlag::SOCK_CLOEXEC);
        let socket: OwnedFd =
            socket(AddressFamily::Netlink, kind, flags, SockProtocol::NetlinkRoute)?;
        send(socket.as_raw_fd(), &self.finish(), MsgFlags::empty())?;
        let mut answer = vec![0; ANSWER];
        let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        acknowledged(answer.get(..length).unwrap_or_default())
    }
}

/// What an acknowledgement says (netlink(7), struct nlmsgerr).
fn acknowledged(answer: &[u8]) -> io::Result<()> {
    let nothing = || io::Error::other("the kernel does not answer");
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).ok_or_else(nothing)?;
    let error = answer.get(HEADER..HEADER + 4).and_then(|bytes| bytes.try_into().ok());
    let error = i32::from_ne_bytes(error.ok_or_else(nothing)?);
    match (i32::from(u16::from_ne_bytes(kind)), error) {
        (libc::NLMSG_ERROR, 0) => Ok(()),
        (libc::NLMSG_ERROR, error) => Err(io::Error::from_raw_os_error(error.saturating_neg())),
        _ => Err(nothing()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_nested_and_padded() {
        let mut message = Message::link(libc::RTM_NEWLINK, true);
        message.within(libc::IFLA_LINKINFO, |kind| kind.text(libc::IFLA_INFO_KIND, "veth"));
        let bytes = message.finish();
        assert_eq!(bytes[..4], u32::try_from(bytes.len()).unwrap().to_ne_bytes());
        let attributes = &bytes[HEADER + 16..];
        assert_eq!(attributes.len(), 16);
        assert_eq!(attributes[..2], 16_u16.to_ne_bytes());
        assert_eq!(attributes[4..6], 9_u16.to_ne_bytes());
        assert_eq!(&attributes[8..], b"veth\0\0\0\0");
    }

    #[test]
    fn answers_are_read() {
        let answer = |kind: u16, error: i32| {
            let mut bytes = vec![0; HEADER];
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes.extend_from_slice(&error.to_ne_bytes());
            acknowledged(&bytes)
        };
        let refused = u16::try_from(libc::NLMSG_ERROR).unwrap();
        answer(refused, 0).unwrap();
        let error = answer(refused, -libc::EPERM).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        answer(refused, i32::MIN).unwrap_err();
        answer(7, 0).unwrap_err();
        acknowledged(&[]).unwrap_err();
    }
}
