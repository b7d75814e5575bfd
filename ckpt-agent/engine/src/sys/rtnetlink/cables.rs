//! Networks of several network namespaces on one machine: a bridge, and cables to it (veth(4)).

use std::io;
use std::net::Ipv4Addr;

use super::message::{Request, attribute};
use super::{FLAG_UP, Network, link_header};

/// Of what is made and must not be there yet.
const NEW: i32 = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
/// include/uapi/linux/veth.h: the attribute that has the other end.
const PEER: u16 = 1;

impl Network {
    /// Makes a bridge with this hardware address. One without an address of its own takes the lowest of its cables', anew with
    /// each that is laid (br_stp_recalculate_bridge_id in net/bridge/br_stp_if.c): whoever has learnt the one before talks to
    /// nobody until that is forgotten, up to a minute.
    ///
    /// # Errors
    /// As rtnetlink(7).
    pub fn make_bridge(&mut self, name: &str, address: [u8; 6]) -> io::Result<()> {
        let mut request = Request::change(libc::RTM_NEWLINK, NEW, &link_header(0, 0, 0));
        request.add(libc::IFLA_IFNAME, &text(name));
        request.add(libc::IFLA_ADDRESS, &address);
        request.add(libc::IFLA_LINKINFO, &of_kind("bridge"));
        self.order(request)
    }

    /// Lays a cable from a bridge, where its end has this name, to a device in the network of a process.
    ///
    /// # Errors
    /// As rtnetlink(7).
    pub fn lay_cable(
        &mut self,
        bridge: &str,
        end: &str,
        process: u32,
        device: &str,
    ) -> io::Result<()> {
        let mut request = Request::change(libc::RTM_NEWLINK, NEW, &link_header(0, 0, 0));
        request.add(libc::IFLA_IFNAME, &text(end));
        request.add(libc::IFLA_MASTER, &index(bridge)?.to_ne_bytes());
        request.add(libc::IFLA_LINKINFO, &cable(process, device));
        self.order(request)?;
        self.let_work(end)
    }

    /// Gives a device an address in a network of so many bits, and lets it work.
    ///
    /// # Errors
    /// As rtnetlink(7).
    pub fn set_address(&mut self, device: &str, address: Ipv4Addr, bits: u8) -> io::Result<()> {
        // struct ifaddrmsg
        let mut header = [libc::AF_INET as u8, bits, 0, 0, 0, 0, 0, 0];
        header[4..].copy_from_slice(&index(device)?.to_ne_bytes());
        let mut request = Request::change(libc::RTM_NEWADDR, NEW, &header);
        request.add(libc::IFA_LOCAL, &address.octets());
        request.add(libc::IFA_ADDRESS, &address.octets());
        self.order(request)?;
        self.let_work(device)
    }

    fn let_work(&mut self, device: &str) -> io::Result<()> {
        let header = link_header(index(device)?, FLAG_UP, FLAG_UP);
        self.order(Request::change(libc::RTM_NEWLINK, 0, &header))
    }
}

fn index(device: &str) -> io::Result<u32> {
    Ok(nix::net::if_::if_nametoindex(device)?)
}

fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

fn of_kind(kind: &str) -> Vec<u8> {
    attribute(libc::IFLA_INFO_KIND, &text(kind))
}

fn cable(process: u32, device: &str) -> Vec<u8> {
    let mut peer = link_header(0, 0, 0).to_vec();
    peer.extend(attribute(libc::IFLA_IFNAME, &text(device)));
    peer.extend(attribute(libc::IFLA_NET_NS_PID, &process.to_ne_bytes()));
    let data = attribute(libc::IFLA_INFO_DATA, &attribute(PEER, &peer));
    [of_kind("veth"), data].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_nested_and_padded() {
        let mut request = Request::change(libc::RTM_NEWLINK, NEW, &link_header(0, 0, 0));
        request.add(libc::IFLA_LINKINFO, &of_kind("veth"));
        let bytes = request.finish(1);
        assert_eq!(bytes[..4], u32::try_from(bytes.len()).unwrap().to_ne_bytes());
        let attributes = &bytes[16 + 16..];
        assert_eq!(attributes.len(), 16);
        assert_eq!(attributes[..2], 16_u16.to_ne_bytes());
        assert_eq!(attributes[4..6], 9_u16.to_ne_bytes());
        assert_eq!(&attributes[8..], b"veth\0\0\0\0");
    }
}
