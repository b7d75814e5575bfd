//! Multicast groups that a socket has joined (ip(7), ipv6(7)).
//!
//! The kernel lists groups by interface, not by socket. So each listed group is asked for on the socket (MCAST_MSFILTER, RFC
//! 3678), which fails with EADDRNOTAVAIL unless the socket has joined it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Result};
use super::super::sys::{interface, network, sockopt};

/// MCAST_JOIN_GROUP (include/uapi/linux/in.h).
const JOIN_GROUP: i32 = 42;
/// MCAST_MSFILTER.
const FILTER: i32 = 48;
/// MCAST_INCLUDE; the other mode is MCAST_EXCLUDE, 0.
const INCLUDE: u32 = 1;
/// struct sockaddr_storage.
const ADDRESS: usize = size_of::<libc::sockaddr_storage>();
/// Where gf_group and gr_group begin: behind the interface, aligned as a word is.
const GROUP_AT: usize = size_of::<usize>();
/// Where gf_fmode is, with gf_numsrc behind it.
const MODE_AT: usize = GROUP_AT + ADDRESS;
/// Where gf_slist begins.
const SOURCES_AT: usize = MODE_AT + 8;
/// More sources than this are not asked for (net.ipv4.igmp_max_msf is 10).
const MOST_SOURCES: usize = 512;

/// A group that a socket has joined at an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The group.
    pub group: IpAddr,
    /// The interface's name: its number is another one after a reboot.
    pub interface: String,
    /// From `sources` only, rather than from all others.
    #[serde(default)]
    pub include: bool,
    /// The source filter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<IpAddr>,
}

/// Groups that anybody on the machine has joined: interface and group.
pub(super) type Listed = Vec<(u32, IpAddr)>;

/// What this network namespace has joined, from /proc/net; `None`: it can't be told here.
pub(super) fn listed() -> Option<Listed> {
    let read = |path: String| match std::fs::read_to_string(path) {
        Ok(text) => Some(text),
        // A kernel without multicast, or without IPv6.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(String::new()),
        Err(_) => None,
    };
    let mut all = parse_v4(&read(network::file("igmp"))?);
    all.extend(parse_v6(&read(network::file("igmp6"))?));
    Some(all)
}

/// /proc/net/igmp: a line of each interface, then one of each group, indented, its address as a number of this machine's
/// byte order.
fn parse_v4(text: &str) -> Listed {
    let mut interface = None;
    let mut found = Vec::new();
    for line in text.lines().skip(1) {
        let Some(first) = line.split_whitespace().next() else { continue };
        if !line.starts_with(char::is_whitespace) {
            interface = first.parse().ok();
            continue;
        }
        if let (Some(interface), Ok(group)) = (interface, u32::from_str_radix(first, 16)) {
            found.push((interface, Ipv4Addr::from(group.to_ne_bytes()).into()));
        }
    }
    found
}

/// /proc/net/igmp6: interface, its name, the group in 32 digits.
fn parse_v6(text: &str) -> Listed {
    let group = |line: &str| {
        let mut words = line.split_whitespace();
        let interface = words.next()?.parse().ok()?;
        let group = u128::from_str_radix(words.nth(1)?, 16).ok()?;
        Some((interface, Ipv6Addr::from(group).into()))
    };
    text.lines().filter_map(group).collect()
}

/// Which of the listed groups a socket has joined. Sockets of IPv6 may be members of groups of IPv4, too.
///
/// # Errors
/// Failed system calls.
pub(super) fn joined(socket: impl AsFd, v6: bool, listed: &Listed) -> Result<Vec<Membership>> {
    let socket = socket.as_fd();
    let mut found = Vec::new();
    for &(index, group) in listed.iter().filter(|(_, group)| v6 || group.is_ipv4()) {
        let Some((include, sources)) = filter(socket, index, group)? else { continue };
        // It may have gone since it was listed, and the membership with it.
        let Some(interface) = interface::name(index) else { continue };
        found.push(Membership { group, interface, include, sources });
    }
    Ok(found)
}

/// A socket's filter of a group; none where it has not joined it.
fn filter(socket: impl AsFd, index: u32, group: IpAddr) -> Result<Option<(bool, Vec<IpAddr>)>> {
    let mut value = request(index, group);
    value.extend_from_slice(&0u32.to_ne_bytes());
    value.extend_from_slice(&(MOST_SOURCES as u32).to_ne_bytes());
    value.resize(SOURCES_AT + MOST_SOURCES * ADDRESS, 0);
    match sockopt::exchange_bytes(socket, level(group), FILTER, &mut value) {
        Ok(_) => {}
        Err(error) if error.raw_os_error() == Some(libc::EADDRNOTAVAIL) => return Ok(None),
        // A kernel without multicast in this family.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOPROTOOPT | libc::ENODEV)) => {
            return Ok(None);
        }
        Err(error) => return Err(EngineError::system("getsockopt", "a multicast group", error)),
    }
    let number = |at: usize| {
        let bytes = value.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        u32::from_ne_bytes(bytes.unwrap_or_default())
    };
    let count = number(MODE_AT + 4) as usize;
    if count > MOST_SOURCES {
        return Err(EngineError::odd("sources of a multicast group", count.to_string()));
    }
    let listed = value.get(SOURCES_AT..).unwrap_or_default().chunks(ADDRESS).take(count);
    Ok(Some((number(MODE_AT) == INCLUDE, listed.filter_map(address_of).collect())))
}

/// Joins a group again, with its filter.
///
/// # Errors
/// As setsockopt(2); there is no interface of that name.
pub(super) fn join(socket: impl AsFd, saved: &Membership) -> io::Result<()> {
    let socket = socket.as_fd();
    let index = interface::index(&saved.interface)?;
    let mut value = request(index, saved.group);
    sockopt::set_bytes(socket, level(saved.group), JOIN_GROUP, &value)?;
    if !saved.include && saved.sources.is_empty() {
        return Ok(());
    }
    value.extend_from_slice(&u32::from(saved.include).to_ne_bytes());
    value.extend_from_slice(&(saved.sources.len() as u32).to_ne_bytes());
    for source in &saved.sources {
        value.extend_from_slice(&address(*source));
    }
    sockopt::set_bytes(socket, level(saved.group), FILTER, &value)
}

fn level(group: IpAddr) -> i32 {
    if group.is_ipv4() { libc::IPPROTO_IP } else { libc::IPPROTO_IPV6 }
}

/// struct group_req, which is also how struct group_filter begins.
fn request(index: u32, group: IpAddr) -> Vec<u8> {
    let mut value = index.to_ne_bytes().to_vec();
    value.resize(GROUP_AT, 0);
    value.extend_from_slice(&address(group));
    value
}

/// struct sockaddr_storage: the family, the port, and of IPv6 four bytes before the address.
fn address(ip: IpAddr) -> Vec<u8> {
    let (family, mut rest) = match ip {
        IpAddr::V4(ip) => (libc::AF_INET, [vec![0; 2], ip.octets().to_vec()].concat()),
        IpAddr::V6(ip) => (libc::AF_INET6, [vec![0; 6], ip.octets().to_vec()].concat()),
    };
    let mut value = (family as u16).to_ne_bytes().to_vec();
    value.append(&mut rest);
    value.resize(ADDRESS, 0);
    value
}

fn address_of(value: &[u8]) -> Option<IpAddr> {
    let family = u16::from_ne_bytes(value.get(..2)?.try_into().ok()?);
    match i32::from(family) {
        libc::AF_INET => Some(IpAddr::from(<[u8; 4]>::try_from(value.get(4..8)?).ok()?)),
        libc::AF_INET6 => Some(IpAddr::from(<[u8; 16]>::try_from(value.get(8..24)?).ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        let v4 = format!(
            "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n1\tlo        :     1      V3\n\
             \t\t\t\t{:08X}     1 0:00000000\t\t0\n12\teth0      :     1      V3\n\t\t\t\t{:08X}     1 0:00000000\t\t0\n",
            u32::from_ne_bytes([224, 0, 0, 1]),
            u32::from_ne_bytes([239, 1, 2, 3]),
        );
        let expected: Listed =
            vec![(1, "224.0.0.1".parse().unwrap()), (12, "239.1.2.3".parse().unwrap())];
        assert_eq!(parse_v4(&v4), expected);
        let v6 = "1    lo              ff020000000000000000000000000001     1 0000000C 0\n";
        assert_eq!(parse_v6(v6), vec![(1, "ff02::1".parse().unwrap())]);
        assert!(parse_v4("nonsense\n x y\nz").is_empty() && parse_v6("a b c\n1 lo\n").is_empty());
    }

    #[test]
    fn addresses_are_laid_out_as_the_kernel_has_them() {
        for text in ["239.1.2.3", "ff15::1"] {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(address_of(&address(ip)), Some(ip));
        }
        assert_eq!(address_of(&[]), None);
    }

    #[test]
    fn a_socket_tells_its_groups_and_takes_them_again() {
        let one = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        let group = Ipv4Addr::new(239, 77, 9, 9);
        one.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST).unwrap();
        let found = joined(&one, false, &listed().unwrap()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].group, found[0].interface.as_str()), (group.into(), "lo"));
        let sources = vec!["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
        let narrow = Membership { include: true, sources, ..found[0].clone() };
        let other = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        join(&other, &narrow).unwrap();
        assert_eq!(joined(&other, false, &listed().unwrap()).unwrap(), vec![narrow]);
    }
}
