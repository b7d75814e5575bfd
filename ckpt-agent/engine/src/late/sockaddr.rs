//! struct sockaddr_in and sockaddr_in6 (ip(7), ipv6(7)) as bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Longest address of a call that is looked at.
pub const LONGEST: usize = 128;
const V4: usize = 16;
/// Without the scope, as old programs have it.
const V6_SHORTEST: usize = 24;
const V6: usize = 28;

/// The address, an IPv4-mapped one as it is; `None`: of another family, or too short.
pub fn parse(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]);
    let port = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
    match i32::from(family) {
        libc::AF_INET if bytes.len() >= V4 => {
            let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(SocketAddr::new(Ipv4Addr::from(ip).into(), port))
        }
        libc::AF_INET6 if bytes.len() >= V6_SHORTEST => {
            let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            Some(SocketAddr::new(Ipv6Addr::from(ip).into(), port))
        }
        _ => None,
    }
}

/// What bind(2) makes of an address without a family: that of an IPv4 socket is any (net/ipv4/af_inet.c,
/// __inet_bind). Open MPI binds so.
pub fn with_family(mut bytes: Vec<u8>, v6: bool) -> Vec<u8> {
    let unspecified = bytes.get(..2) == Some(&[0; 2]) && bytes.get(4..8) == Some(&[0; 4]);
    if unspecified && !v6 && bytes.len() >= V4 {
        bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    }
    bytes
}

/// The same with another address and port: family, flow and scope stay. `None`: the family can't hold it.
pub fn rewrite(bytes: &[u8], to: SocketAddr) -> Option<Vec<u8>> {
    let mut new = bytes.to_vec();
    let v6 = matches!(parse(bytes)?, SocketAddr::V6(_));
    new.get_mut(2..4)?.copy_from_slice(&to.port().to_be_bytes());
    match (v6, to.ip()) {
        (false, ip) => match ip.to_canonical() {
            IpAddr::V4(ip) => new.get_mut(4..8)?.copy_from_slice(&ip.octets()),
            IpAddr::V6(_) => return None,
        },
        (true, ip) => new.get_mut(8..24)?.copy_from_slice(&in_v6(ip).octets()),
    }
    Some(new)
}

/// For a socket of that family. `None`: it can't hold it.
pub fn encode(v6: bool, address: SocketAddr) -> Option<Vec<u8>> {
    let (family, length) = if v6 { (libc::AF_INET6, V6) } else { (libc::AF_INET, V4) };
    let mut bytes = vec![0; length];
    bytes.get_mut(..2)?.copy_from_slice(&(family as u16).to_ne_bytes());
    rewrite(&bytes, address)
}

/// An IPv4 address as an IPv6 socket shows it.
fn in_v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        // The unspecified address of a socket for both families.
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv6Addr::UNSPECIFIED,
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// An IPv4-mapped address as IPv4.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_come_and_go() {
        for (v6, text) in [
            (false, "10.0.0.1:80"),
            (true, "[fd00::1]:443"),
            (true, "[::ffff:10.0.0.1]:80"),
            (true, "[::]:0"),
        ] {
            let bytes = encode(v6, at(text)).unwrap();
            assert_eq!(parse(&bytes), Some(at(text)));
        }
        assert_eq!(encode(false, at("[fd00::1]:1")), None);
        assert_eq!(parse(&[1, 0, b'/', b'x']), None);
        assert_eq!(parse(&encode(true, at("[::1]:1")).unwrap()[..20]), None);
    }

    #[test]
    fn an_address_without_a_family_is_any() {
        assert_eq!(parse(&with_family(vec![0; 16], false)), Some(at("0.0.0.0:0")));
        assert_eq!(parse(&with_family(vec![0; 16], true)), None);
        assert_eq!(parse(&with_family([vec![0; 4], vec![1; 12]].concat(), false)), None);
    }

    #[test]
    fn what_else_is_in_an_address_stays() {
        let mut bytes = encode(true, at("[fd00::3]:7600")).unwrap();
        bytes[24] = 5;
        let new = rewrite(&bytes, at("10.0.0.1:7601")).unwrap();
        assert_eq!(parse(&new), Some(at("[::ffff:10.0.0.1]:7601")));
        assert_eq!(new[24], 5);
    }
}
