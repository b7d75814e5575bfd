//! Numbers of socket options that the libc crate lacks, at least for some target.

// include/uapi/asm-generic/socket.h
pub(super) const SO_TIMESTAMP_NEW: i32 = 63;
pub(super) const SO_TIMESTAMPNS_NEW: i32 = 64;
pub(super) const SO_TIMESTAMPING_NEW: i32 = 65;
pub(super) const SO_NO_CHECK: i32 = 11;
pub(super) const SO_WIFI_STATUS: i32 = 41;
pub(super) const SO_NOFCS: i32 = 43;
pub(super) const SO_SELECT_ERR_QUEUE: i32 = 45;
pub(super) const SO_MAX_PACING_RATE: i32 = 47;
pub(super) const SO_ZEROCOPY: i32 = 60;
pub(super) const SO_TXTIME: i32 = 61;
pub(super) const SO_PREFER_BUSY_POLL: i32 = 69;
pub(super) const SO_RESERVE_MEM: i32 = 73;
pub(super) const SO_TXREHASH: i32 = 74;
pub(super) const SO_RCVMARK: i32 = 75;
pub(super) const SO_RCVPRIORITY: i32 = 82;
pub(super) const SO_PASSRIGHTS: i32 = 83;
pub(super) const SO_INQ: i32 = 84;

// include/uapi/linux/in.h
pub(super) const IP_ROUTER_ALERT: i32 = 5;
pub(super) const IP_PASSSEC: i32 = 18;
pub(super) const IP_RECVORIGDSTADDR: i32 = 20;
pub(super) const IP_NODEFRAG: i32 = 22;
pub(super) const IP_CHECKSUM: i32 = 23;
pub(super) const IP_RECVFRAGSIZE: i32 = 25;
pub(super) const IP_RECVERR_RFC4884: i32 = 26;
pub(super) const IP_LOCAL_PORT_RANGE: i32 = 51;

// include/uapi/linux/in6.h
pub(super) const IPV6_2292PKTINFO: i32 = 2;
pub(super) const IPV6_2292HOPOPTS: i32 = 3;
pub(super) const IPV6_2292DSTOPTS: i32 = 4;
pub(super) const IPV6_2292RTHDR: i32 = 5;
pub(super) const IPV6_2292HOPLIMIT: i32 = 8;
pub(super) const IPV6_FLOWINFO: i32 = 11;
pub(super) const IPV6_ROUTER_ALERT: i32 = 22;
pub(super) const IPV6_ROUTER_ALERT_ISOLATE: i32 = 30;
pub(super) const IPV6_RECVERR_RFC4884: i32 = 31;
pub(super) const IPV6_FLOWINFO_SEND: i32 = 33;
pub(super) const IPV6_RECVHOPLIMIT: i32 = 51;
pub(super) const IPV6_RECVHOPOPTS: i32 = 53;
pub(super) const IPV6_HOPOPTS: i32 = 54;
pub(super) const IPV6_RTHDRDSTOPTS: i32 = 55;
pub(super) const IPV6_RECVRTHDR: i32 = 56;
pub(super) const IPV6_RTHDR: i32 = 57;
pub(super) const IPV6_RECVDSTOPTS: i32 = 58;
pub(super) const IPV6_DSTOPTS: i32 = 59;
pub(super) const IPV6_RECVPATHMTU: i32 = 60;
pub(super) const IPV6_DONTFRAG: i32 = 62;
pub(super) const IPV6_RECVTCLASS: i32 = 66;
pub(super) const IPV6_AUTOFLOWLABEL: i32 = 70;
pub(super) const IPV6_ADDR_PREFERENCES: i32 = 72;
pub(super) const IPV6_MINHOPCOUNT: i32 = 73;
pub(super) const IPV6_RECVORIGDSTADDR: i32 = 74;
pub(super) const IPV6_RECVFRAGSIZE: i32 = 77;

// include/uapi/linux/tcp.h
pub(super) const TCP_SAVE_SYN: i32 = 27;
pub(super) const TCP_SAVED_SYN: i32 = 28;
pub(super) const TCP_FASTOPEN_CONNECT: i32 = 30;
pub(super) const TCP_ULP: i32 = 31;
pub(super) const TCP_FASTOPEN_KEY: i32 = 33;
pub(super) const TCP_FASTOPEN_NO_COOKIE: i32 = 34;
pub(super) const TCP_INQ: i32 = 36;
pub(super) const TCP_TX_DELAY: i32 = 37;
pub(super) const TCP_RTO_MAX_MS: i32 = 44;
pub(super) const TCP_RTO_MIN_US: i32 = 45;
pub(super) const TCP_DELACK_MAX_US: i32 = 46;

// include/uapi/linux/udp.h
pub(super) const UDP_CORK: i32 = 1;
pub(super) const UDP_ENCAP: i32 = 100;
pub(super) const UDP_NO_CHECK6_TX: i32 = 101;
pub(super) const UDP_NO_CHECK6_RX: i32 = 102;
pub(super) const UDP_SEGMENT: i32 = 103;
pub(super) const UDP_GRO: i32 = 104;

// include/linux/socket.h, include/uapi/linux/{icmp,icmpv6,in6}.h
pub(super) const SOL_RAW: i32 = 255;
pub(super) const ICMP_FILTER: i32 = 1;
pub(super) const ICMP6_FILTER: i32 = 1;
pub(super) const IPV6_CHECKSUM: i32 = 7;
pub(super) const IPV6_HDRINCL: i32 = 36;
pub(super) const IPV6_TRANSPARENT: i32 = 75;
pub(super) const IPV6_FREEBIND: i32 = 78;

// include/linux/socket.h, include/uapi/linux/if_packet.h
pub(super) const SOL_PACKET: i32 = 263;
pub(super) const PACKET_COPY_THRESH: i32 = 7;
pub(super) const PACKET_AUXDATA: i32 = 8;
pub(super) const PACKET_ORIGDEV: i32 = 9;
pub(super) const PACKET_VERSION: i32 = 10;
pub(super) const PACKET_RESERVE: i32 = 12;
pub(super) const PACKET_LOSS: i32 = 14;
pub(super) const PACKET_VNET_HDR: i32 = 15;
pub(super) const PACKET_TIMESTAMP: i32 = 17;
pub(super) const PACKET_TX_HAS_OFF: i32 = 19;
pub(super) const PACKET_QDISC_BYPASS: i32 = 20;
pub(super) const PACKET_IGNORE_OUTGOING: i32 = 23;
pub(super) const PACKET_VNET_HDR_SZ: i32 = 24;

// include/net/udplite.h
pub(super) const SEND_COVERAGE: i32 = 10;
pub(super) const RECEIVE_COVERAGE: i32 = 11;
