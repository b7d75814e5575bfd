//! Names of kinds of sockets, for refusals.

use std::os::fd::AsFd;

use super::super::sys::sockopt;

/// SOCK_PACKET (include/linux/net.h), which is obsolete.
const SOCK_PACKET: i32 = 10;

/// Address families (include/linux/socket.h).
const FAMILIES: &[(i32, &str)] = &[
    (1, "a Unix"),
    (2, "an IPv4"),
    (3, "an AX.25"),
    (4, "an IPX"),
    (5, "an AppleTalk"),
    (6, "a NET/ROM"),
    (8, "an ATM PVC"),
    (9, "an X.25"),
    (10, "an IPv6"),
    (11, "a ROSE"),
    (15, "a PF_KEY"),
    (16, "a netlink"),
    (17, "a packet"),
    (20, "an ATM SVC"),
    (21, "an RDS"),
    (23, "an IrDA"),
    (24, "a PPPoX"),
    (26, "an LLC"),
    (27, "an InfiniBand"),
    (28, "an MPLS"),
    (29, "a CAN"),
    (30, "a TIPC"),
    (31, "a Bluetooth"),
    (32, "an IUCV"),
    (33, "an RxRPC"),
    (34, "an mISDN"),
    (35, "a Phonet"),
    (36, "an IEEE 802.15.4"),
    (37, "a CAIF"),
    (38, "a crypto (AF_ALG)"),
    (39, "an NFC"),
    (40, "a VSOCK"),
    (41, "a KCM"),
    (42, "a QIPCRTR"),
    (43, "an SMC"),
    (44, "an XDP"),
    (45, "an MCTP"),
];

/// Protocols of IPv4 and IPv6 with sockets of their own (include/uapi/linux/in.h).
const PROTOCOLS: &[(i32, &str)] = &[
    (libc::IPPROTO_TCP, "a TCP"),
    (libc::IPPROTO_UDP, "a UDP"),
    (libc::IPPROTO_DCCP, "a DCCP"),
    (115, "an L2TP"),
    (libc::IPPROTO_SCTP, "an SCTP"),
    (libc::IPPROTO_UDPLITE, "a UDP-Lite"),
    (256, "an SMC"),
    (libc::IPPROTO_MPTCP, "a Multipath TCP"),
];

/// What a socket is, with its article; none: this is no socket.
pub(super) fn name(fd: impl AsFd) -> Option<String> {
    let fd = fd.as_fd();
    let option = |name| sockopt::get_int(fd, libc::SOL_SOCKET, name).ok();
    let family = option(libc::SO_DOMAIN)?;
    Some(words(family, option(libc::SO_TYPE), option(libc::SO_PROTOCOL)))
}

fn words(family: i32, kind: Option<i32>, protocol: Option<i32>) -> String {
    let of = |table: &[(i32, &'static str)], number| {
        table.iter().find(|(known, _)| Some(*known) == number).map(|(_, name)| *name)
    };
    let internet = matches!(family, libc::AF_INET | libc::AF_INET6);
    let name = match internet {
        true => of(PROTOCOLS, protocol),
        false => None,
    };
    match name.or_else(|| of(FAMILIES, Some(family))) {
        Some("a packet") if kind == Some(SOCK_PACKET) => "an obsolete packet socket".to_owned(),
        Some(name) => match (name, protocol) {
            // The family alone says nothing then.
            ("an IPv4" | "an IPv6", Some(protocol)) => {
                format!("{name} socket of protocol {protocol}")
            }
            _ => format!("{name} socket"),
        },
        None => format!("a socket of family {family}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_names() {
        let stream = Some(libc::SOCK_STREAM);
        for (family, kind, protocol, expected) in [
            (40, stream, Some(0), "a VSOCK socket"),
            (44, Some(libc::SOCK_RAW), Some(0), "an XDP socket"),
            (38, Some(libc::SOCK_SEQPACKET), Some(0), "a crypto (AF_ALG) socket"),
            (31, stream, Some(3), "a Bluetooth socket"),
            (29, Some(libc::SOCK_RAW), Some(1), "a CAN socket"),
            (30, stream, Some(0), "a TIPC socket"),
            (libc::AF_INET, stream, Some(132), "an SCTP socket"),
            (libc::AF_INET6, Some(6), Some(33), "a DCCP socket"),
            (libc::AF_INET, stream, Some(262), "a Multipath TCP socket"),
            (libc::AF_INET, Some(5), Some(99), "an IPv4 socket of protocol 99"),
            (libc::AF_INET6, None, None, "an IPv6 socket"),
            (libc::AF_PACKET, Some(SOCK_PACKET), Some(0), "an obsolete packet socket"),
            (4711, None, None, "a socket of family 4711"),
        ] {
            assert_eq!(words(family, kind, protocol), expected);
        }
    }

    #[test]
    fn families_are_in_order() {
        assert!(FAMILIES.is_sorted_by(|one, other| one.0 < other.0));
        assert!(PROTOCOLS.is_sorted_by(|one, other| one.0 < other.0));
    }

    #[test]
    fn a_socket_says_what_it_is() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(name(&socket).as_deref(), Some("a UDP socket"));
        assert_eq!(name(std::fs::File::open("/dev/null").unwrap()), None);
    }
}
