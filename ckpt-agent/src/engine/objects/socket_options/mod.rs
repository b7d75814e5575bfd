//! Options and buffer sizes of sockets, for all rooms that hold sockets.
//!
//! Options are kept by name. A restore sets only those whose value differs on the fresh socket:
//! setting a default explicitly is not always without effect (IP_TOS sets the priority too).

mod uapi;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use serde::{Deserialize, Serialize};
use socket2::SockRef;

use super::super::error::{EngineError, Refusal, Result};
use super::super::sys::{abi, interface, sockopt};

/// How long a name or structure an option may be.
const LONGEST: usize = 2048;
/// SO_BUF_LOCK: which buffer sizes were set by the program (bits SOCK_SNDBUF_LOCK, SOCK_RCVBUF_LOCK).
pub const SO_BUF_LOCK: i32 = 72;
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
const UNCONNECTED: [&str; 4] =
    ["largest_segment", "window_clamp", "fast_open_connect", "fast_open_without_cookie"];

/// When an option is set on a restored socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Before bind(2).
    BeforeBind,
    /// Once it is bound, listening or connected.
    Made,
    /// After its queues are full again and other sockets are bound.
    Last,
}

/// Which sockets have an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Any,
    Unix,
    V4,
    V6,
    Tcp,
    Udp,
    Netlink,
    /// SO_PASSCRED is of netlink, too.
    UnixOrNetlink,
}

struct Known {
    name: &'static str,
    level: i32,
    option: i32,
    of: Of,
    moment: Moment,
    form: Form,
}

/// What an option's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
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
    fn is_set_at(&self, moment: Moment) -> bool {
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

const KNOWN: &[Known] = &[
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
    bytes("multicast_interface", libc::IPPROTO_IP, libc::IP_MULTICAST_IF, Of::Udp, Moment::Made),
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
        Of::Udp,
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
    int("defer_accept", libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, Of::Tcp, Moment::Last),
    int("fast_open", libc::IPPROTO_TCP, libc::TCP_FASTOPEN, Of::Tcp, Moment::Last),
    int("not_sent_low_water", libc::IPPROTO_TCP, TCP_NOTSENT_LOWAT, Of::Tcp, Moment::Made),
    int("no_delay", libc::IPPROTO_TCP, libc::TCP_NODELAY, Of::Tcp, Moment::Last),
    int("cork", libc::IPPROTO_TCP, libc::TCP_CORK, Of::Tcp, Moment::Last),
    int("quick_ack", libc::IPPROTO_TCP, libc::TCP_QUICKACK, Of::Tcp, Moment::Last),
];

/// An option's value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OptionValue {
    /// A number.
    Int(i32),
    /// A structure or name as the kernel keeps it.
    Bytes(Vec<u8>),
}

/// What kind of socket options are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// AF_*
    pub family: i32,
    /// IPPROTO_TCP rather than anything else.
    pub tcp: bool,
}

impl Kind {
    fn has(self, of: Of) -> bool {
        match of {
            Of::Any => true,
            Of::Unix => self.family == libc::AF_UNIX,
            // IPv6 sockets carry IPv4 options for mapped addresses.
            Of::V4 => matches!(self.family, libc::AF_INET | libc::AF_INET6),
            Of::V6 => self.family == libc::AF_INET6,
            Of::Tcp => self.tcp,
            Of::Udp => matches!(self.family, libc::AF_INET | libc::AF_INET6) && !self.tcp,
            Of::Netlink => self.family == libc::AF_NETLINK,
            Of::UnixOrNetlink => matches!(self.family, libc::AF_UNIX | libc::AF_NETLINK),
        }
    }
}

/// Options and buffer sizes of one socket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketOptions {
    /// Options by name.
    pub set: BTreeMap<String, OptionValue>,
    /// SO_SNDBUF in bytes, as getsockopt tells it.
    pub send_buffer: i32,
    /// SO_RCVBUF in bytes, as getsockopt tells it.
    pub receive_buffer: i32,
    /// SO_BUF_LOCK: 1 the send buffer's, 2 the receive buffer's size was set by the program. None: the
    /// kernel does not tell (before Linux 5.11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer_lock: Option<i32>,
    /// SO_ATTACH_FILTER: the instructions as the kernel keeps them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter: Vec<u8>,
}

impl SocketOptions {
    /// Reads all known options.
    ///
    /// # Errors
    /// Buffer sizes cannot be read; a refusal where the socket has an eBPF program.
    pub fn read(socket: impl AsFd, kind: Kind) -> Result<Self> {
        let socket = socket.as_fd();
        if kind.tcp {
            refuse_upper_layer(socket)?;
        }
        let connected = kind.tcp && SockRef::from(&socket).peer_addr().is_ok();
        let mut set = BTreeMap::new();
        for known in KNOWN.iter().filter(|known| kind.has(known.of)) {
            // Kernels without an option, and options of other families, are no error.
            if connected && UNCONNECTED.contains(&known.name) {
                continue;
            }
            if let Some(value) = read_one(socket, known) {
                set.insert(known.name.to_owned(), value);
            }
        }
        let size = |name| {
            sockopt::get_int(socket, libc::SOL_SOCKET, name)
                .map_err(|error| EngineError::system("getsockopt", "a socket's buffer size", error))
        };
        Ok(Self {
            set,
            send_buffer: size(libc::SO_SNDBUF)?,
            receive_buffer: size(libc::SO_RCVBUF)?,
            buffer_lock: sockopt::get_int(socket, libc::SOL_SOCKET, SO_BUF_LOCK).ok(),
            filter: filter(socket)?,
        })
    }

    /// Sets the options of one moment; what this machine does not allow comes back as their names.
    pub fn apply(&self, socket: impl AsFd, kind: Kind, moment: Moment) -> Vec<&'static str> {
        let socket = socket.as_fd();
        let mut failed = Vec::new();
        if moment == Moment::Last && !self.filter.is_empty() {
            // Before it is locked.
            if sockopt::attach_filter(socket, &self.filter).is_err() {
                failed.push("filter");
            }
        }
        for known in KNOWN.iter().filter(|known| known.is_set_at(moment) && kind.has(known.of)) {
            let Some(wanted) = self.set.get(known.name) else { continue };
            if read_one(socket, known).as_ref() == Some(wanted) {
                continue;
            }
            let done = set_one(socket, known, wanted);
            if done.is_err() {
                failed.push(known.name);
            }
        }
        failed
    }

    /// A number by name, 0 where it is not known.
    pub fn number(&self, name: &str) -> i32 {
        match self.set.get(name) {
            Some(OptionValue::Int(value)) => *value,
            _ => 0,
        }
    }

    /// As they were for a bind to a port that others are bound to as well: who shares it may have cleared SO_REUSEPORT
    /// afterwards, and it is put back to what it was by [`Moment::Last`].
    pub fn for_shared_port(&self) -> Self {
        let mut options = self.clone();
        options.set.insert("reuse_port".to_owned(), OptionValue::Int(1));
        options
    }

    /// Without those that only sockets without a connection have.
    pub fn for_connection(&self) -> Self {
        let mut options = self.clone();
        for name in UNCONNECTED {
            options.set.remove(name);
        }
        options
    }

    /// Sets both buffer sizes to what they were.
    pub fn apply_buffers(&self, socket: impl AsFd) {
        set_send_buffer(&socket, self.send_buffer);
        set_receive_buffer(&socket, self.receive_buffer);
    }

    /// Lets the kernel go on tuning the sizes that the program had not set itself.
    pub fn apply_buffer_lock(&self, socket: impl AsFd) {
        if let Some(lock) = self.buffer_lock {
            // Before Linux 5.11 sizes stay as they are, which costs throughput only.
            let _ = sockopt::set_int(socket, libc::SOL_SOCKET, SO_BUF_LOCK, lock);
        }
    }

    /// Whether the program set the receive buffer's size itself.
    pub fn receive_buffer_locked(&self) -> bool {
        self.buffer_lock.is_some_and(|lock| lock & 2 != 0)
    }
}

/// Sets SO_SNDBUF to what getsockopt shall tell, past the machine's limit where that is allowed.
pub fn set_send_buffer(socket: impl AsFd, bytes: i32) {
    set_buffer(socket.as_fd(), libc::SO_SNDBUF, libc::SO_SNDBUFFORCE, bytes);
}

/// Sets SO_RCVBUF to what getsockopt shall tell, past the machine's limit where that is allowed.
pub fn set_receive_buffer(socket: impl AsFd, bytes: i32) {
    set_buffer(socket.as_fd(), libc::SO_RCVBUF, libc::SO_RCVBUFFORCE, bytes);
}

fn set_buffer(socket: BorrowedFd<'_>, plain: i32, force: i32, bytes: i32) {
    if sockopt::get_int(socket, libc::SOL_SOCKET, plain).is_ok_and(|now| now == bytes) {
        return;
    }
    // The kernel doubles what it is given (socket(7)). A smaller size than wished for only means
    // less room, which the refill of the queues finds out.
    let half = bytes / 2;
    if sockopt::set_int(socket, libc::SOL_SOCKET, force, half).is_err() {
        let _ = sockopt::set_int(socket, libc::SOL_SOCKET, plain, half);
    }
}

/// The socket's filter, if it has one.
fn filter(socket: BorrowedFd<'_>) -> Result<Vec<u8>> {
    match sockopt::filter(socket) {
        Ok(program) => Ok(program),
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => Err(Refusal::new(
            "the socket has an eBPF program for a filter, which cannot be read",
            "detach it while checkpoints are taken",
        )
        .into()),
        // Of no other kind of socket is there one.
        Err(_) => Ok(Vec::new()),
    }
}

/// A protocol above TCP (TLS in the kernel, for one) has keys and numbers of its own.
fn refuse_upper_layer(socket: BorrowedFd<'_>) -> Result<()> {
    let name = sockopt::get_bytes(socket, libc::IPPROTO_TCP, uapi::TCP_ULP, LONGEST);
    let name = name.unwrap_or_default();
    let name = String::from_utf8_lossy(&name);
    match name.trim_end_matches('\0') {
        "" => Ok(()),
        name => Err(Refusal::new(
            format!("a TCP connection whose bytes go through \"{name}\" in the kernel (TCP_ULP)"),
            "close it while checkpoints are taken",
        )
        .into()),
    }
}

fn read_one(socket: BorrowedFd<'_>, known: &Known) -> Option<OptionValue> {
    let number = || sockopt::get_int(socket, known.level, known.option).ok();
    let of_interface = |index: i32| match interface::name(index as u32) {
        Some(name) if index != 0 => OptionValue::Bytes(name.into_bytes()),
        _ => OptionValue::Int(index),
    };
    match known.form {
        Form::Bytes => sockopt::get_bytes(socket, known.level, known.option, LONGEST)
            .ok()
            .map(OptionValue::Bytes),
        Form::Int => number().map(OptionValue::Int),
        Form::Interface => number().map(of_interface),
        Form::SwappedInterface => number().map(i32::from_be).map(of_interface),
    }
}

fn set_one(socket: BorrowedFd<'_>, known: &Known, wanted: &OptionValue) -> std::io::Result<()> {
    let value = match (known.form, wanted) {
        (Form::Int | Form::Bytes, OptionValue::Bytes(value)) => {
            return sockopt::set_bytes(socket, known.level, known.option, value);
        }
        (_, OptionValue::Bytes(name)) => {
            interface::index(std::str::from_utf8(name).unwrap_or_default())? as i32
        }
        (_, OptionValue::Int(value)) => *value,
    };
    let swapped = known.form == Form::SwappedInterface;
    let value = if swapped { value.to_be() } else { value };
    sockopt::set_int(socket, known.level, known.option, value)
}

/// Addresses that several of these sockets are bound to. The same port of another family is not shared: while SO_REUSEPORT is
/// set without need, another part of a job that is restored on this machine could take the port, too.
pub fn shared_addresses(bound: impl Iterator<Item = SocketAddr>) -> BTreeSet<SocketAddr> {
    let mut seen = BTreeSet::new();
    bound.filter(|address| address.port() != 0 && !seen.insert(*address)).collect()
}
