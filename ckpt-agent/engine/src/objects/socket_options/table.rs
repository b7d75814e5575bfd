//! The options that are kept of sockets.

use super::super::super::sys::abi;
use super::{Moment, uapi};

/// SO_PASSPIDFD (Linux 6.5).
const SO_PASSPIDFD: i32 = 76;
/// SO_LOCK_FILTER (include/uapi/asm-generic/socket.h).
const SO_LOCK_FILTER: i32 = 44;
/// TCP_NOTSENT_LOWAT (include/uapi/linux/tcp.h).
const TCP_NOTSENT_LOWAT: i32 = 25;

/// IP_MULTICAST_ALL, IP_UNICAST_IF (include/uapi/linux/in.h).
const IP_MULTICAST_ALL: i32 = 49;
const IP_UNICAST_IF: i32 = 50;
/// IPV6_MULTICAST_ALL, IPV6_UNICAST_IF (include/uapi/linux/in6.h).
const IPV6_MULTICAST_ALL: i32 = 29;
const IPV6_UNICAST_IF: i32 = 76;

/// Options of netlink sockets (include/uapi/linux/netlink.h).
const NETLINK_PKTINFO: i32 = 3;
const NETLINK_BROADCAST_ERROR: i32 = 4;
const NETLINK_NO_ENOBUFS: i32 = 5;
const NETLINK_LISTEN_ALL_NSID: i32 = 8;
const NETLINK_CAP_ACK: i32 = 10;
const NETLINK_EXT_ACK: i32 = 11;
const NETLINK_GET_STRICT_CHK: i32 = 12;

/// Options that are set on sockets without a connection only.
pub(super) const UNCONNECTED: [&str; 4] =
    ["largest_segment", "window_clamp", "fast_open_connect", "fast_open_without_cookie"];

/// The key of its cookies; a socket without one of its own tells the network's.
pub(super) const FAST_OPEN_KEY: &str = "fast_open_key";

/// Which sockets have an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Any,
    Unix,
    V4,
    V6,
    Tcp,
    /// And UDP-Lite.
    Udp,
    UdpLite,
    Raw,
    RawV6,
    Packet,
    /// Of the Internet's all but TCP.
    NoTcp,
    Netlink,
    /// SO_PASSCRED is of netlink, too.
    UnixOrNetlink,
}

/// An option.
pub(super) struct Known {
    pub(super) name: &'static str,
    pub(super) level: i32,
    pub(super) option: i32,
    pub(super) of: Of,
    pub(super) moment: Moment,
    pub(super) form: Form,
}

/// What an option's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Int,
    /// A structure or name.
    Bytes,
    /// The number of an interface, kept by name, since it has another number after a reboot. None: 0.
    Interface,
    /// The same, its bytes in the network's order.
    SwappedInterface,
}

impl Known {
    /// What a bind needs may have been set for it alone, and be undone in the end.
    pub(super) fn is_set_at(&self, moment: Moment) -> bool {
        let for_bind = matches!(self.name, "free_bind" | "reuse_port");
        self.moment == moment || (for_bind && moment == Moment::Last)
    }
}

const fn int(name: &'static str, level: i32, option: i32, of: Of, moment: Moment) -> Known {
    Known { name, level, option, of, moment, form: Form::Int }
}

const fn bytes(name: &'static str, level: i32, option: i32, of: Of, moment: Moment) -> Known {
    Known { name, level, option, of, moment, form: Form::Bytes }
}

const fn interface(name: &'static str, level: i32, option: i32, of: Of, form: Form) -> Known {
    Known { name, level, option, of, moment: Moment::Made, form }
}

/// All options that are kept, in the order in which they are set.
pub(super) const KNOWN: &[Known] = &[
    int("reuse_address", libc::SOL_SOCKET, libc::SO_REUSEADDR, Of::Any, Moment::Last),
    int("reuse_port", libc::SOL_SOCKET, libc::SO_REUSEPORT, Of::Any, Moment::BeforeBind),
    bytes("device", libc::SOL_SOCKET, libc::SO_BINDTODEVICE, Of::Any, Moment::BeforeBind),
    int("dont_route", libc::SOL_SOCKET, libc::SO_DONTROUTE, Of::Any, Moment::Last),
    int("keep_alive", libc::SOL_SOCKET, libc::SO_KEEPALIVE, Of::Any, Moment::Made),
    int("oob_inline", libc::SOL_SOCKET, libc::SO_OOBINLINE, Of::Any, Moment::Made),
    int("broadcast", libc::SOL_SOCKET, libc::SO_BROADCAST, Of::Any, Moment::Made),
    int("timestamp", libc::SOL_SOCKET, libc::SO_TIMESTAMP, Of::Any, Moment::Made),
    int("timestamp_ns", libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, Of::Any, Moment::Made),
    int("mark", libc::SOL_SOCKET, libc::SO_MARK, Of::Any, Moment::Made),
    int("busy_poll", libc::SOL_SOCKET, libc::SO_BUSY_POLL, Of::Any, Moment::Made),
    int("debug", libc::SOL_SOCKET, libc::SO_DEBUG, Of::Any, Moment::Last),
    int("no_check", libc::SOL_SOCKET, uapi::SO_NO_CHECK, Of::Any, Moment::Last),
    bytes("timestamping", libc::SOL_SOCKET, libc::SO_TIMESTAMPING, Of::Any, Moment::Last),
    // These are told by the older ones' flags, too, so that they come after them.
    int("timestamp_new", libc::SOL_SOCKET, uapi::SO_TIMESTAMP_NEW, Of::Any, Moment::Last),
    int("timestamp_ns_new", libc::SOL_SOCKET, uapi::SO_TIMESTAMPNS_NEW, Of::Any, Moment::Last),
    bytes("timestamping_new", libc::SOL_SOCKET, uapi::SO_TIMESTAMPING_NEW, Of::Any, Moment::Last),
    int("count_drops", libc::SOL_SOCKET, libc::SO_RXQ_OVFL, Of::Any, Moment::Last),
    int("wifi_status", libc::SOL_SOCKET, uapi::SO_WIFI_STATUS, Of::Any, Moment::Last),
    int("peek_offset", libc::SOL_SOCKET, libc::SO_PEEK_OFF, Of::Any, Moment::Last),
    int("no_frame_check", libc::SOL_SOCKET, uapi::SO_NOFCS, Of::Any, Moment::Last),
    int("select_error_queue", libc::SOL_SOCKET, uapi::SO_SELECT_ERR_QUEUE, Of::Any, Moment::Last),
    bytes("pacing_rate", libc::SOL_SOCKET, uapi::SO_MAX_PACING_RATE, Of::Any, Moment::Last),
    int("zero_copy", libc::SOL_SOCKET, uapi::SO_ZEROCOPY, Of::Any, Moment::Last),
    bytes("transmit_time", libc::SOL_SOCKET, uapi::SO_TXTIME, Of::Any, Moment::Last),
    int("prefer_busy_poll", libc::SOL_SOCKET, uapi::SO_PREFER_BUSY_POLL, Of::Any, Moment::Last),
    int("reserved_memory", libc::SOL_SOCKET, uapi::SO_RESERVE_MEM, Of::Any, Moment::Last),
    int("rehash", libc::SOL_SOCKET, uapi::SO_TXREHASH, Of::Any, Moment::Last),
    int("receive_mark", libc::SOL_SOCKET, uapi::SO_RCVMARK, Of::Any, Moment::Last),
    int("receive_priority", libc::SOL_SOCKET, uapi::SO_RCVPRIORITY, Of::Any, Moment::Last),
    bytes("send_timeout", libc::SOL_SOCKET, libc::SO_SNDTIMEO, Of::Any, Moment::Made),
    bytes("receive_timeout", libc::SOL_SOCKET, libc::SO_RCVTIMEO, Of::Any, Moment::Made),
    bytes("linger", libc::SOL_SOCKET, libc::SO_LINGER, Of::Any, Moment::Last),
    int("receive_low_water", libc::SOL_SOCKET, libc::SO_RCVLOWAT, Of::Any, Moment::Last),
    int("lock_filter", libc::SOL_SOCKET, SO_LOCK_FILTER, Of::Any, Moment::Last),
    int("pass_credentials", libc::SOL_SOCKET, libc::SO_PASSCRED, Of::UnixOrNetlink, Moment::Last),
    int("pass_security", libc::SOL_SOCKET, libc::SO_PASSSEC, Of::UnixOrNetlink, Moment::Last),
    int("pass_pidfd", libc::SOL_SOCKET, SO_PASSPIDFD, Of::Unix, Moment::Last),
    int("pass_rights", libc::SOL_SOCKET, uapi::SO_PASSRIGHTS, Of::Unix, Moment::Last),
    int("unix_inq", libc::SOL_SOCKET, uapi::SO_INQ, Of::Unix, Moment::Last),
    int("netlink_packet_info", abi::SOL_NETLINK, NETLINK_PKTINFO, Of::Netlink, Moment::Made),
    int(
        "netlink_broadcast_error",
        abi::SOL_NETLINK,
        NETLINK_BROADCAST_ERROR,
        Of::Netlink,
        Moment::Made,
    ),
    int("netlink_no_enobufs", abi::SOL_NETLINK, NETLINK_NO_ENOBUFS, Of::Netlink, Moment::Made),
    int(
        "netlink_all_namespaces",
        abi::SOL_NETLINK,
        NETLINK_LISTEN_ALL_NSID,
        Of::Netlink,
        Moment::Made,
    ),
    int("netlink_cap_ack", abi::SOL_NETLINK, NETLINK_CAP_ACK, Of::Netlink, Moment::Made),
    int("netlink_ext_ack", abi::SOL_NETLINK, NETLINK_EXT_ACK, Of::Netlink, Moment::Made),
    int(
        "netlink_strict_check",
        abi::SOL_NETLINK,
        NETLINK_GET_STRICT_CHK,
        Of::Netlink,
        Moment::Made,
    ),
    int("v6_only", libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, Of::V6, Moment::BeforeBind),
    int("free_bind", libc::IPPROTO_IP, libc::IP_FREEBIND, Of::V4, Moment::BeforeBind),
    int(
        "bind_address_no_port",
        libc::IPPROTO_IP,
        libc::IP_BIND_ADDRESS_NO_PORT,
        Of::V4,
        Moment::Last,
    ),
    int("tos", libc::IPPROTO_IP, libc::IP_TOS, Of::V4, Moment::Made),
    int("ttl", libc::IPPROTO_IP, libc::IP_TTL, Of::V4, Moment::Made),
    int("mtu_discover", libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, Of::V4, Moment::Made),
    int("receive_errors", libc::IPPROTO_IP, libc::IP_RECVERR, Of::V4, Moment::Made),
    int("packet_info", libc::IPPROTO_IP, libc::IP_PKTINFO, Of::V4, Moment::Made),
    int("receive_tos", libc::IPPROTO_IP, libc::IP_RECVTOS, Of::V4, Moment::Made),
    int("receive_ttl", libc::IPPROTO_IP, libc::IP_RECVTTL, Of::V4, Moment::Made),
    int("multicast_ttl", libc::IPPROTO_IP, libc::IP_MULTICAST_TTL, Of::V4, Moment::Made),
    int("multicast_loop", libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP, Of::V4, Moment::Made),
    bytes("ip_options", libc::IPPROTO_IP, libc::IP_OPTIONS, Of::V4, Moment::Made),
    int("transparent", libc::IPPROTO_IP, libc::IP_TRANSPARENT, Of::V4, Moment::BeforeBind),
    int("receive_options", libc::IPPROTO_IP, libc::IP_RECVOPTS, Of::V4, Moment::Made),
    int("return_options", libc::IPPROTO_IP, libc::IP_RETOPTS, Of::V4, Moment::Made),
    int("ip_pass_security", libc::IPPROTO_IP, uapi::IP_PASSSEC, Of::V4, Moment::Made),
    int("original_destination", libc::IPPROTO_IP, uapi::IP_RECVORIGDSTADDR, Of::V4, Moment::Made),
    int("least_ttl", libc::IPPROTO_IP, libc::IP_MINTTL, Of::V4, Moment::Last),
    int("checksum", libc::IPPROTO_IP, uapi::IP_CHECKSUM, Of::V4, Moment::Made),
    int("receive_fragment_size", libc::IPPROTO_IP, uapi::IP_RECVFRAGSIZE, Of::V4, Moment::Made),
    int("receive_errors_4884", libc::IPPROTO_IP, uapi::IP_RECVERR_RFC4884, Of::V4, Moment::Made),
    // The restore of TCP sockets uses it for itself.
    int("local_port_range", libc::IPPROTO_IP, uapi::IP_LOCAL_PORT_RANGE, Of::V4, Moment::Last),
    int("multicast_all", libc::IPPROTO_IP, IP_MULTICAST_ALL, Of::V4, Moment::Made),
    // Of TCP sockets the kernel sets it, to where the connection came from. The address alone: an interface that was given by its number only, the kernel does not tell.
    bytes("multicast_interface", libc::IPPROTO_IP, libc::IP_MULTICAST_IF, Of::NoTcp, Moment::Made),
    interface("unicast_interface", libc::IPPROTO_IP, IP_UNICAST_IF, Of::V4, Form::SwappedInterface),
    int("traffic_class", libc::IPPROTO_IPV6, libc::IPV6_TCLASS, Of::V6, Moment::Made),
    int("hops", libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, Of::V6, Moment::Made),
    int("v6_mtu_discover", libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, Of::V6, Moment::Made),
    int("v6_receive_errors", libc::IPPROTO_IPV6, libc::IPV6_RECVERR, Of::V6, Moment::Made),
    int("v6_packet_info", libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, Of::V6, Moment::Made),
    int("v6_multicast_hops", libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS, Of::V6, Moment::Made),
    int("v6_multicast_loop", libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP, Of::V6, Moment::Made),
    int("v6_old_packet_info", libc::IPPROTO_IPV6, uapi::IPV6_2292PKTINFO, Of::V6, Moment::Made),
    int("v6_old_hop_options", libc::IPPROTO_IPV6, uapi::IPV6_2292HOPOPTS, Of::V6, Moment::Made),
    int(
        "v6_old_destination_options",
        libc::IPPROTO_IPV6,
        uapi::IPV6_2292DSTOPTS,
        Of::V6,
        Moment::Made,
    ),
    int("v6_old_routing", libc::IPPROTO_IPV6, uapi::IPV6_2292RTHDR, Of::V6, Moment::Made),
    int("v6_old_hop_limit", libc::IPPROTO_IPV6, uapi::IPV6_2292HOPLIMIT, Of::V6, Moment::Made),
    int("v6_flow_info", libc::IPPROTO_IPV6, uapi::IPV6_FLOWINFO, Of::V6, Moment::Made),
    int("v6_flow_info_send", libc::IPPROTO_IPV6, uapi::IPV6_FLOWINFO_SEND, Of::V6, Moment::Made),
    int(
        "v6_receive_errors_4884",
        libc::IPPROTO_IPV6,
        uapi::IPV6_RECVERR_RFC4884,
        Of::V6,
        Moment::Made,
    ),
    int("v6_receive_hop_limit", libc::IPPROTO_IPV6, uapi::IPV6_RECVHOPLIMIT, Of::V6, Moment::Made),
    int("v6_receive_hop_options", libc::IPPROTO_IPV6, uapi::IPV6_RECVHOPOPTS, Of::V6, Moment::Made),
    int("v6_receive_routing", libc::IPPROTO_IPV6, uapi::IPV6_RECVRTHDR, Of::V6, Moment::Made),
    int(
        "v6_receive_destination_options",
        libc::IPPROTO_IPV6,
        uapi::IPV6_RECVDSTOPTS,
        Of::V6,
        Moment::Made,
    ),
    int("v6_receive_path_mtu", libc::IPPROTO_IPV6, uapi::IPV6_RECVPATHMTU, Of::V6, Moment::Made),
    int("v6_dont_fragment", libc::IPPROTO_IPV6, uapi::IPV6_DONTFRAG, Of::V6, Moment::Made),
    int(
        "v6_receive_traffic_class",
        libc::IPPROTO_IPV6,
        uapi::IPV6_RECVTCLASS,
        Of::V6,
        Moment::Made,
    ),
    int("v6_auto_flow_label", libc::IPPROTO_IPV6, uapi::IPV6_AUTOFLOWLABEL, Of::V6, Moment::Made),
    int(
        "v6_address_preferences",
        libc::IPPROTO_IPV6,
        uapi::IPV6_ADDR_PREFERENCES,
        Of::V6,
        Moment::Made,
    ),
    int(
        "v6_original_destination",
        libc::IPPROTO_IPV6,
        uapi::IPV6_RECVORIGDSTADDR,
        Of::V6,
        Moment::Made,
    ),
    int(
        "v6_receive_fragment_size",
        libc::IPPROTO_IPV6,
        uapi::IPV6_RECVFRAGSIZE,
        Of::V6,
        Moment::Made,
    ),
    int("v6_least_hops", libc::IPPROTO_IPV6, uapi::IPV6_MINHOPCOUNT, Of::V6, Moment::Last),
    bytes("v6_hop_options", libc::IPPROTO_IPV6, uapi::IPV6_HOPOPTS, Of::V6, Moment::Made),
    bytes(
        "v6_routing_destination_options",
        libc::IPPROTO_IPV6,
        uapi::IPV6_RTHDRDSTOPTS,
        Of::V6,
        Moment::Made,
    ),
    bytes("v6_routing", libc::IPPROTO_IPV6, uapi::IPV6_RTHDR, Of::V6, Moment::Made),
    bytes("v6_destination_options", libc::IPPROTO_IPV6, uapi::IPV6_DSTOPTS, Of::V6, Moment::Made),
    int("v6_multicast_all", libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL, Of::V6, Moment::Made),
    interface(
        "v6_multicast_interface",
        libc::IPPROTO_IPV6,
        libc::IPV6_MULTICAST_IF,
        Of::NoTcp,
        Form::Interface,
    ),
    interface(
        "v6_unicast_interface",
        libc::IPPROTO_IPV6,
        IPV6_UNICAST_IF,
        Of::V6,
        Form::SwappedInterface,
    ),
    // After TOS, which changes it.
    int("priority", libc::SOL_SOCKET, libc::SO_PRIORITY, Of::Any, Moment::Made),
    bytes("congestion", libc::IPPROTO_TCP, libc::TCP_CONGESTION, Of::Tcp, Moment::Made),
    int("keep_idle", libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, Of::Tcp, Moment::Made),
    int("keep_interval", libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, Of::Tcp, Moment::Made),
    int("keep_count", libc::IPPROTO_TCP, libc::TCP_KEEPCNT, Of::Tcp, Moment::Made),
    int("user_timeout", libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, Of::Tcp, Moment::Made),
    int("syn_count", libc::IPPROTO_TCP, libc::TCP_SYNCNT, Of::Tcp, Moment::Made),
    int("linger2", libc::IPPROTO_TCP, libc::TCP_LINGER2, Of::Tcp, Moment::Made),
    // Of a connection it tells what was agreed upon, not what was set.
    int(UNCONNECTED[0], libc::IPPROTO_TCP, libc::TCP_MAXSEG, Of::Tcp, Moment::BeforeBind),
    int(UNCONNECTED[1], libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, Of::Tcp, Moment::BeforeBind),
    int(UNCONNECTED[2], libc::IPPROTO_TCP, uapi::TCP_FASTOPEN_CONNECT, Of::Tcp, Moment::BeforeBind),
    int(
        UNCONNECTED[3],
        libc::IPPROTO_TCP,
        uapi::TCP_FASTOPEN_NO_COOKIE,
        Of::Tcp,
        Moment::BeforeBind,
    ),
    int(
        "thin_linear_timeouts",
        libc::IPPROTO_TCP,
        libc::TCP_THIN_LINEAR_TIMEOUTS,
        Of::Tcp,
        Moment::Made,
    ),
    int("save_syn", libc::IPPROTO_TCP, uapi::TCP_SAVE_SYN, Of::Tcp, Moment::Last),
    int("tcp_inq", libc::IPPROTO_TCP, uapi::TCP_INQ, Of::Tcp, Moment::Last),
    int("transmit_delay", libc::IPPROTO_TCP, uapi::TCP_TX_DELAY, Of::Tcp, Moment::Last),
    int("longest_timeout", libc::IPPROTO_TCP, uapi::TCP_RTO_MAX_MS, Of::Tcp, Moment::Last),
    int("least_timeout", libc::IPPROTO_TCP, uapi::TCP_RTO_MIN_US, Of::Tcp, Moment::Last),
    int("longest_delay", libc::IPPROTO_TCP, uapi::TCP_DELACK_MAX_US, Of::Tcp, Moment::Last),
    int("udp_cork", libc::IPPROTO_UDP, uapi::UDP_CORK, Of::Udp, Moment::Last),
    int("udp_encapsulation", libc::IPPROTO_UDP, uapi::UDP_ENCAP, Of::Udp, Moment::Last),
    int("udp_no_check6_send", libc::IPPROTO_UDP, uapi::UDP_NO_CHECK6_TX, Of::Udp, Moment::Last),
    int("udp_no_check6_receive", libc::IPPROTO_UDP, uapi::UDP_NO_CHECK6_RX, Of::Udp, Moment::Last),
    int("udp_segment", libc::IPPROTO_UDP, uapi::UDP_SEGMENT, Of::Udp, Moment::Last),
    int("udp_gro", libc::IPPROTO_UDP, uapi::UDP_GRO, Of::Udp, Moment::Last),
    int("sent_coverage", libc::IPPROTO_UDPLITE, uapi::SEND_COVERAGE, Of::UdpLite, Moment::Last),
    int("least_coverage", libc::IPPROTO_UDPLITE, uapi::RECEIVE_COVERAGE, Of::UdpLite, Moment::Last),
    int("header_included", libc::IPPROTO_IP, libc::IP_HDRINCL, Of::Raw, Moment::Made),
    int("no_defragment", libc::IPPROTO_IP, uapi::IP_NODEFRAG, Of::Raw, Moment::Made),
    int("router_alert", libc::IPPROTO_IP, uapi::IP_ROUTER_ALERT, Of::Raw, Moment::Made),
    // The same as IP_FREEBIND and IP_TRANSPARENT, which others have by that name.
    int("v6_free_bind", libc::IPPROTO_IPV6, uapi::IPV6_FREEBIND, Of::RawV6, Moment::BeforeBind),
    int(
        "v6_transparent",
        libc::IPPROTO_IPV6,
        uapi::IPV6_TRANSPARENT,
        Of::RawV6,
        Moment::BeforeBind,
    ),
    int("v6_header_included", libc::IPPROTO_IPV6, uapi::IPV6_HDRINCL, Of::RawV6, Moment::Made),
    // The kernel tells that there is one, not which value it waits for.
    int("v6_router_alert", libc::IPPROTO_IPV6, uapi::IPV6_ROUTER_ALERT, Of::RawV6, Moment::Made),
    int(
        "v6_router_alert_isolate",
        libc::IPPROTO_IPV6,
        uapi::IPV6_ROUTER_ALERT_ISOLATE,
        Of::V6,
        Moment::Made,
    ),
    int("v6_checksum", uapi::SOL_RAW, uapi::IPV6_CHECKSUM, Of::RawV6, Moment::Made),
    int("icmp_filter", uapi::SOL_RAW, uapi::ICMP_FILTER, Of::Raw, Moment::BeforeBind),
    bytes("icmp6_filter", libc::IPPROTO_ICMPV6, uapi::ICMP6_FILTER, Of::RawV6, Moment::BeforeBind),
    int("copy_threshold", uapi::SOL_PACKET, uapi::PACKET_COPY_THRESH, Of::Packet, Moment::Made),
    int("auxiliary_data", uapi::SOL_PACKET, uapi::PACKET_AUXDATA, Of::Packet, Moment::Made),
    int("original_device", uapi::SOL_PACKET, uapi::PACKET_ORIGDEV, Of::Packet, Moment::Made),
    int("ring_version", uapi::SOL_PACKET, uapi::PACKET_VERSION, Of::Packet, Moment::Made),
    int("ring_reserve", uapi::SOL_PACKET, uapi::PACKET_RESERVE, Of::Packet, Moment::Made),
    int("ring_loss", uapi::SOL_PACKET, uapi::PACKET_LOSS, Of::Packet, Moment::Made),
    int("virtual_header", uapi::SOL_PACKET, uapi::PACKET_VNET_HDR, Of::Packet, Moment::Made),
    // After the one above, which sets it, too.
    int(
        "virtual_header_size",
        uapi::SOL_PACKET,
        uapi::PACKET_VNET_HDR_SZ,
        Of::Packet,
        Moment::Made,
    ),
    int("hardware_timestamp", uapi::SOL_PACKET, uapi::PACKET_TIMESTAMP, Of::Packet, Moment::Made),
    int("ring_offset", uapi::SOL_PACKET, uapi::PACKET_TX_HAS_OFF, Of::Packet, Moment::Made),
    int("bypass_queue", uapi::SOL_PACKET, uapi::PACKET_QDISC_BYPASS, Of::Packet, Moment::Made),
    int(
        "ignore_outgoing",
        uapi::SOL_PACKET,
        uapi::PACKET_IGNORE_OUTGOING,
        Of::Packet,
        Moment::Made,
    ),
    int("defer_accept", libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, Of::Tcp, Moment::Last),
    bytes(FAST_OPEN_KEY, libc::IPPROTO_TCP, uapi::TCP_FASTOPEN_KEY, Of::Tcp, Moment::Last),
    int("fast_open", libc::IPPROTO_TCP, libc::TCP_FASTOPEN, Of::Tcp, Moment::Last),
    int("not_sent_low_water", libc::IPPROTO_TCP, TCP_NOTSENT_LOWAT, Of::Tcp, Moment::Made),
    int("no_delay", libc::IPPROTO_TCP, libc::TCP_NODELAY, Of::Tcp, Moment::Last),
    int("cork", libc::IPPROTO_TCP, libc::TCP_CORK, Of::Tcp, Moment::Last),
    int("quick_ack", libc::IPPROTO_TCP, libc::TCP_QUICKACK, Of::Tcp, Moment::Last),
];
