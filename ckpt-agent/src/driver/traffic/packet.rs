//! What the headers of a packet say.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ckpt_engine::sys::rtnetlink::Transport;

/// Bytes of a header of IPv4 without options.
const V4: usize = 20;
/// Bytes of a header of IPv6.
const V6: usize = 40;
/// Of IPv4: whether more fragments follow, and the place of this one.
const FRAGMENT: u16 = 0x3fff;
/// A header of IPv4 without options begins with this.
const V4_PLAIN: u8 = 0x45;

/// A packet of TCP or UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Who sends it.
    pub source: IpAddr,
    /// For whom it is.
    pub destination: IpAddr,
    /// The port there.
    pub port: u16,
}

/// Why bytes are no packet that is carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Odd {
    /// It is shorter than it says, or no packet at all.
    #[error("it is no packet")]
    Malformed,
    /// It is of another kind.
    #[error("it is neither of TCP nor of UDP, or part of a packet")]
    Other,
}

/// How long the packet is with which these bytes begin.
///
/// # Errors
/// They do not hold a whole one.
pub fn length(bytes: &[u8]) -> Result<usize, Odd> {
    let length = match bytes.first().map(|first| first >> 4) {
        Some(4) => usize::from(number(bytes, 2)?),
        Some(6) => V6 + usize::from(number(bytes, 4)?),
        _ => return Err(Odd::Malformed),
    };
    if length < V4 || length > bytes.len() { Err(Odd::Malformed) } else { Ok(length) }
}

/// What a whole packet is. One with options, or further headers, is of another kind: those could lead it elsewhere.
///
/// # Errors
/// It is none of those that are carried.
pub fn read(packet: &[u8]) -> Result<Packet, Odd> {
    let (source, destination, protocol, header): (IpAddr, IpAddr, u8, usize) = match packet.first()
    {
        Some(&V4_PLAIN) if number(packet, 6)? & FRAGMENT == 0 => {
            let at = |place| octets::<4>(packet, place).map(Ipv4Addr::from);
            (at(12)?.into(), at(16)?.into(), *packet.get(9).ok_or(Odd::Malformed)?, V4)
        }
        Some(first) if first >> 4 == 6 => {
            let at = |place| octets::<16>(packet, place).map(Ipv6Addr::from);
            (at(8)?.into(), at(24)?.into(), *packet.get(6).ok_or(Odd::Malformed)?, V6)
        }
        Some(_) => return Err(Odd::Other),
        None => return Err(Odd::Malformed),
    };
    Transport::of(protocol).ok_or(Odd::Other)?;
    Ok(Packet { source, destination, port: number(packet, header + 2)? })
}

fn octets<const LENGTH: usize>(bytes: &[u8], at: usize) -> Result<[u8; LENGTH], Odd> {
    let found = bytes.get(at..at + LENGTH).and_then(|bytes| bytes.try_into().ok());
    found.ok_or(Odd::Malformed)
}

fn number(bytes: &[u8], at: usize) -> Result<u16, Odd> {
    octets::<2>(bytes, at).map(u16::from_be_bytes)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A packet of UDP over IPv4 or IPv6, without checksums.
    pub fn udp(source: IpAddr, destination: IpAddr, port: u16) -> Vec<u8> {
        let mut packet = Vec::new();
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                packet.extend([V4_PLAIN, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
                packet.extend(source.octets());
                packet.extend(destination.octets());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                packet.extend([0x60, 0, 0, 0, 0, 8, 17, 64]);
                packet.extend(source.octets());
                packet.extend(destination.octets());
            }
            _ => panic!("of two families"),
        }
        packet.extend(9_u16.to_be_bytes());
        packet.extend(port.to_be_bytes());
        packet.extend([0, 8, 0, 0]);
        packet
    }

    #[test]
    fn packets_of_both_families_are_read() {
        for (source, destination) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
            let mut bytes = udp(source, destination, 700);
            let whole = bytes.len();
            assert_eq!(read(&bytes), Ok(Packet { source, destination, port: 700 }));
            bytes.extend([1, 2, 3]);
            assert_eq!(length(&bytes), Ok(whole));
            for cut in 0..whole {
                assert_eq!(length(&bytes[..cut]), Err(Odd::Malformed), "{cut}");
                assert!(cut >= whole - 4 || read(&bytes[..cut]).is_err(), "{cut}");
            }
        }
    }

    #[test]
    fn options_fragments_and_other_protocols_are_not_carried() {
        let plain = udp("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap(), 700);
        for (place, value) in [(0, 0x46), (6, 0x20), (7, 1), (9, 1)] {
            let mut changed = plain.clone();
            changed[place] = value;
            assert_eq!(read(&changed), Err(Odd::Other), "byte {place}");
        }
        let mut hops = udp("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap(), 700);
        hops[6] = 0;
        assert_eq!(read(&hops), Err(Odd::Other));
    }
}
