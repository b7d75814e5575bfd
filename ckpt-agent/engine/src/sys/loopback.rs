//! The loopback interface of a new network namespace: up, with addresses of choice, and the way to all others, on which
//! nobody answers (netdevice(7), ipv6(7), rt_names of route(8)).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;

// include/uapi/linux/sockios.h
const SIOCADDRT: libc::c_ulong = 0x890b;
const SIOCSIFFLAGS: libc::c_ulong = 0x8914;
const SIOCSIFADDR: libc::c_ulong = 0x8916;
const SIOCSIFNETMASK: libc::c_ulong = 0x891c;
/// include/uapi/linux/route.h
const RTF_UP: u16 = 1;
/// The loopback interface is the first of each network namespace.
const INDEX: libc::c_int = 1;
const NAME: &str = "lo";

/// struct ifreq: a name, and as much of the union as any member takes.
#[repr(C)]
struct Interface {
    name: [u8; libc::IFNAMSIZ],
    value: Value,
}

#[repr(C)]
union Value {
    address: libc::sockaddr_in,
    flags: libc::c_short,
    _room: [usize; 3],
}

/// struct in6_ifreq
#[repr(C)]
struct Interface6 {
    address: [u8; 16],
    prefix: u32,
    index: libc::c_int,
}

/// struct rtentry
#[repr(C)]
struct Route {
    pad1: libc::c_ulong,
    destination: libc::sockaddr_in,
    gateway: libc::sockaddr_in,
    mask: libc::sockaddr_in,
    flags: libc::c_ushort,
    pad2: libc::c_short,
    pad3: libc::c_ulong,
    pad4: usize,
    metric: libc::c_short,
    device: *const libc::c_char,
    mtu: libc::c_ulong,
    window: libc::c_ulong,
    round_trip: libc::c_ushort,
}

/// struct in6_rtmsg
#[repr(C)]
struct Route6 {
    destination: [u8; 16],
    source: [u8; 16],
    gateway: [u8; 16],
    kind: u32,
    destination_length: u16,
    source_length: u16,
    metric: u32,
    info: libc::c_ulong,
    flags: u32,
    index: libc::c_int,
}

/// Brings it up in the caller's network namespace, which is how it gets its own addresses.
///
/// # Errors
/// As netdevice(7).
pub fn bring_up() -> io::Result<()> {
    up().map(drop)
}

/// The same; a socket through which more can be asked for.
fn up() -> io::Result<UdpSocket> {
    // A port of no interface: the socket is only what the requests are made through.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let up = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    ask(&socket, SIOCSIFFLAGS, &Interface { name: name(0), value: Value { flags: up } })?;
    Ok(socket)
}

/// Makes it ready in the caller's network namespace, which has just been made.
///
/// # Errors
/// As netdevice(7). Without IPv6 its addresses are left out.
pub fn prepare(addresses: &[IpAddr]) -> io::Result<()> {
    let socket = up()?;
    let mut next = 0;
    for address in addresses {
        if let IpAddr::V4(address) = address {
            next += 1;
            let at =
                |address| Interface { name: name(next), value: Value { address: ipv4(address) } };
            ask(&socket, SIOCSIFADDR, &at(*address))?;
            ask(&socket, SIOCSIFNETMASK, &at(Ipv4Addr::BROADCAST))?;
        }
    }
    let none = ipv4(Ipv4Addr::UNSPECIFIED);
    let device = [b'l' as libc::c_char, b'o' as libc::c_char, 0];
    let route = Route {
        pad1: 0,
        destination: none,
        gateway: libc::sockaddr_in { sin_family: 0, ..none },
        mask: none,
        flags: RTF_UP,
        pad2: 0,
        pad3: 0,
        pad4: 0,
        metric: 0,
        device: device.as_ptr(),
        mtu: 0,
        window: 0,
        round_trip: 0,
    };
    ask(&socket, SIOCADDRT, &route)?;
    match UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)) {
        Ok(socket) => prepare6(&socket, addresses),
        Err(_) => Ok(()),
    }
}

fn prepare6(socket: &UdpSocket, addresses: &[IpAddr]) -> io::Result<()> {
    for address in addresses {
        if let IpAddr::V6(address) = address {
            let address = address.octets();
            ask(socket, SIOCSIFADDR, &Interface6 { address, prefix: 128, index: INDEX })?;
        }
    }
    let none = [0; 16];
    let route = Route6 {
        destination: none,
        source: none,
        gateway: none,
        kind: 0,
        destination_length: 0,
        source_length: 0,
        metric: 1,
        info: 0,
        flags: RTF_UP.into(),
        index: INDEX,
    };
    ask(socket, SIOCADDRT, &route)
}

/// `lo`, and `lo:N` for each further address of IPv4.
fn name(number: usize) -> [u8; libc::IFNAMSIZ] {
    let text = if number == 0 { NAME.to_owned() } else { format!("{NAME}:{number}") };
    let mut name = [0; libc::IFNAMSIZ];
    for (place, byte) in name[..libc::IFNAMSIZ - 1].iter_mut().zip(text.bytes()) {
        *place = byte;
    }
    name
}

fn ipv4(address: Ipv4Addr) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from(address).to_be() },
        sin_zero: [0; 8],
    }
}

fn ask<T>(socket: &UdpSocket, request: libc::c_ulong, value: &T) -> io::Result<()> {
    // SAFETY: each request reads the structure that goes with it here, which lives across the call, as what it
    // points to does.
    let done = unsafe {
        libc::ioctl(socket.as_raw_fd(), request as libc::Ioctl, std::ptr::from_ref(value))
    };
    match done {
        0 => Ok(()),
        // An address that is there already, or is named twice.
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
            error => Err(error),
        },
    }
}
