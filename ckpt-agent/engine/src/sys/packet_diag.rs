//! Packet sockets of this network namespace as the kernel lists them (sock_diag(7), packet_diag): memberships and rings, which
//! no call on a descriptor tells.

use std::collections::HashMap;
use std::io;

use netlink_sys::{SocketAddr as NetlinkAddress, protocols::NETLINK_SOCK_DIAG};

use super::super::error::{EngineError, Result};
use super::network;

/// SOCK_DIAG_BY_FAMILY (include/uapi/linux/sock_diag.h).
const BY_FAMILY: u16 = 20;
/// NLMSG_ERROR, NLMSG_DONE, NLM_F_REQUEST | NLM_F_DUMP (include/uapi/linux/netlink.h).
const ERROR: u16 = 2;
const DONE: u16 = 3;
const DUMP: u16 = 0x301;
/// PACKET_SHOW_MCLIST | PACKET_SHOW_RING_CFG | PACKET_SHOW_FANOUT (include/uapi/linux/packet_diag.h).
const SHOW: u32 = 0x0e;
/// PACKET_DIAG_MCLIST, _RX_RING, _TX_RING, _FANOUT.
const MEMBERSHIPS: u16 = 1;
const RECEIVE_RING: u16 = 2;
const SEND_RING: u16 = 3;
const FANOUT: u16 = 4;
/// struct nlmsghdr.
const HEADER: usize = 16;
/// struct packet_diag_msg.
const MESSAGE: usize = 16;
/// struct packet_diag_mclist.
const MEMBERSHIP: usize = 44;
/// Largest answer that the kernel gives at once (net/netlink/af_netlink.c: 32 KiB).
const ANSWER_BYTES: usize = 64 * 1024;
/// More answers than this are taken for endless ones.
const MOST_ANSWERS: usize = 1_000_000;

/// A packet socket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PacketEntry {
    /// What it has joined.
    pub memberships: Vec<PacketMembership>,
    /// It has a ring for receiving or sending.
    pub ring: bool,
    /// It is one of a group that shares what is received (PACKET_FANOUT).
    pub fanout: bool,
}

/// struct packet_diag_mclist
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketMembership {
    /// The interface's number.
    pub interface: u32,
    /// How often it has been joined.
    pub count: u32,
    /// PACKET_MR_*
    pub kind: u16,
    /// The hardware address, empty where it means nothing.
    pub address: Vec<u8>,
}

/// All packet sockets, by inode.
///
/// # Errors
/// The kernel has no packet_diag; netlink failures.
pub fn packet_sockets() -> Result<HashMap<u32, PacketEntry>> {
    let failed = |call: &'static str| {
        move |source: io::Error| {
            EngineError::system(call, "the kernel's list of packet sockets", source)
        }
    };
    let mut socket = network::netlink(NETLINK_SOCK_DIAG).map_err(failed("socket"))?;
    socket.bind_auto().map_err(failed("bind"))?;
    socket.connect(&NetlinkAddress::new(0, 0)).map_err(failed("connect"))?;
    socket.send(&request(), 0).map_err(failed("send"))?;
    let mut found = HashMap::new();
    let mut answer = vec![0; ANSWER_BYTES];
    for _ in 0..MOST_ANSWERS {
        let length = socket.recv(&mut &mut answer[..], 0).map_err(failed("receive"))?;
        match take(answer.get(..length).unwrap_or_default(), &mut found) {
            Some(Answer::More) => {}
            Some(Answer::Done) => return Ok(found),
            Some(Answer::Failed(errno)) => {
                return Err(failed("read")(io::Error::from_raw_os_error(errno)));
            }
            None => break,
        }
    }
    Err(EngineError::odd("the kernel's list of packet sockets", "another form"))
}

/// struct nlmsghdr and struct packet_diag_req: of all packet sockets.
fn request() -> Vec<u8> {
    let mut body = vec![libc::AF_PACKET as u8, 0, 0, 0];
    body.extend(0u32.to_ne_bytes());
    body.extend(SHOW.to_ne_bytes());
    body.extend([0; 8]);
    let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(DUMP.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend(body);
    bytes
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    More,
    Done,
    Failed(i32),
}

/// Reads what came at once; none: it has another form.
fn take(mut bytes: &[u8], found: &mut HashMap<u32, PacketEntry>) -> Option<Answer> {
    while !bytes.is_empty() {
        let length = word(bytes, 0)? as usize;
        let body = bytes.get(HEADER..length)?;
        match half(bytes, 4)? {
            DONE => return Some(Answer::Done),
            ERROR => return Some(Answer::Failed(-(word(body, 0)? as i32))),
            BY_FAMILY => {
                let (inode, entry) = entry(body)?;
                found.insert(inode, entry);
            }
            _ => {}
        }
        // Messages are padded to four bytes (netlink(7)).
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(Answer::More)
}

fn entry(body: &[u8]) -> Option<(u32, PacketEntry)> {
    let inode = word(body, 4)?;
    let mut rest = body.get(MESSAGE..)?;
    let mut entry = PacketEntry::default();
    while !rest.is_empty() {
        let length = usize::from(half(rest, 0)?);
        let value = rest.get(4..length)?;
        match half(rest, 2)? {
            MEMBERSHIPS => {
                entry.memberships =
                    value.chunks(MEMBERSHIP).map(membership).collect::<Option<_>>()?
            }
            RECEIVE_RING | SEND_RING => entry.ring = true,
            FANOUT => entry.fanout = true,
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some((inode, entry))
}

fn membership(value: &[u8]) -> Option<PacketMembership> {
    let length = usize::from(half(value, 10)?);
    Some(PacketMembership {
        interface: word(value, 0)?,
        count: word(value, 4)?,
        kind: half(value, 8)?,
        address: value.get(12..)?.get(..length)?.to_vec(),
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn an_answer_is_read() {
        let mut body = vec![17, 3, 0, 0];
        body.extend(77u32.to_ne_bytes());
        body.extend([0; 8]);
        body.extend(48u16.to_ne_bytes());
        body.extend(MEMBERSHIPS.to_ne_bytes());
        body.extend(2u32.to_ne_bytes());
        body.extend(3u32.to_ne_bytes());
        body.extend(0u16.to_ne_bytes());
        body.extend(6u16.to_ne_bytes());
        body.extend([1, 0, 0x5e, 1, 2, 3]);
        body.extend([0; 26]);
        body.extend([8, 0, 2, 0, 0, 0, 0, 0]);
        let bytes = [message(BY_FAMILY, &body), message(DONE, &[0; 4])].concat();
        let mut found = HashMap::new();
        assert_eq!(take(&bytes, &mut found), Some(Answer::Done));
        let address = vec![1, 0, 0x5e, 1, 2, 3];
        let memberships = vec![PacketMembership { interface: 2, count: 3, kind: 0, address }];
        let expected = PacketEntry { memberships, ring: true, fanout: false };
        assert_eq!(found.get(&77), Some(&expected));
        for end in 0..bytes.len() {
            // Whatever is cut off, it is no panic.
            let _ = take(&bytes[..end], &mut HashMap::new());
        }
        let failed = message(ERROR, &(-libc::ENOENT).to_ne_bytes());
        assert_eq!(take(&failed, &mut HashMap::new()), Some(Answer::Failed(libc::ENOENT)));
    }
}
