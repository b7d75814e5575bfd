//! Sees what goes over the bridge between the nodes.

use std::io::{BufRead, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, sendto, socket};
use socket2::{Domain, Protocol, Socket, Type};

use super::hub::BRIDGE;
use super::{InsideError, call, join, tell};

/// ETH_P_ALL (linux/if_ether.h), as packet(7) takes it.
const ALL: i32 = (0x0003_u16).to_be() as i32;
/// Bytes of the longest frame: cables of namespaces carry what TCP has not cut into packets yet.
const LONGEST: usize = 1 << 17;
/// A header of Ethernet.
const ETHERNET: usize = 14;
/// As much of a frame as is searched: who looks for a word fills messages with it.
const SEARCHED: usize = 2048;
/// After that time another one is sent: one may be lost where too much goes over the bridge.
const AGAIN: Duration = Duration::from_secs(1);
/// The type of frames of our own (linux/if_ether.h, ETH_P_802_EX1: for experiments).
const OWN: [u8; 2] = [0x88, 0xb5];

/// What is looked for.
#[derive(Debug, clap::Args)]
pub struct CaptureArguments {
    /// The hub's process
    #[arg(long)]
    pub hub: i32,
    /// Bytes that count where they are found
    #[arg(long)]
    pub marker: String,
    /// Ports of which one is expected in each packet of TCP and UDP
    #[arg(long, value_delimiter = ',')]
    pub ports: Vec<u16>,
}

#[derive(Default)]
struct Seen {
    frames: u64,
    marked: u64,
    outside: u64,
    first: String,
    /// The last frame of our own.
    reached: u64,
}

/// Counts frames until standard input ends. To each line there it answers with what it has seen so far.
///
/// # Errors
/// When the kernel refuses the socket.
pub fn run(arguments: &CaptureArguments) -> Result<(), InsideError> {
    join::join(arguments.hub, join::HUB)?;
    let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(ALL)));
    let mut socket = call("make a packet socket", socket)?;
    call("make its buffer larger", socket.set_recv_buffer_size(1 << 26))?;
    let own = Own::new()?;
    let seen = Arc::<(Mutex<Seen>, Condvar)>::default();
    let (counted, marker) = (seen.clone(), arguments.marker.clone());
    let ports = arguments.ports.clone();
    std::thread::spawn(move || {
        let mut frame = vec![0; LONGEST];
        while let Ok(length) = socket.read(&mut frame) {
            let frame = frame.get(..length).unwrap_or_default();
            counted.0.lock().unwrap_or_else(PoisonError::into_inner).add(frame, &marker, &ports);
            counted.1.notify_all();
        }
    });
    tell("ready")?;
    for (line, number) in std::io::stdin().lock().lines().zip(1..) {
        if line.is_err() {
            break;
        }
        let mut counted = seen.0.lock().unwrap_or_else(PoisonError::into_inner);
        // All that went over the bridge before it has been counted, then.
        while counted.reached < number {
            own.send(number)?;
            let waited = seen.1.wait_timeout_while(counted, AGAIN, |seen| seen.reached < number);
            counted = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let Seen { frames, marked, outside, first, .. } = &*counted;
        tell(&format!("seen {frames} {marked} {outside} {first}"))?;
    }
    Ok(())
}

/// Sends frames of its own, for whoever counts.
struct Own {
    socket: OwnedFd,
    bridge: LinkAddr,
}

impl Own {
    fn new() -> Result<Self, InsideError> {
        let (flags, kind) = (SockFlag::SOCK_CLOEXEC, SockType::Raw);
        let made = socket(AddressFamily::Packet, kind, flags, None);
        let found = call("list interfaces", getifaddrs())?
            .filter(|interface| interface.interface_name == BRIDGE)
            .find_map(|interface| interface.address?.as_link_addr().copied());
        let missing = || std::io::Error::other("there is none");
        let bridge = call("find the bridge", found.ok_or_else(missing))?;
        Ok(Self { socket: call("make a packet socket", made)?, bridge })
    }

    fn send(&self, number: u64) -> Result<(), InsideError> {
        let mut frame = vec![0xff; 12];
        frame.extend(OWN);
        frame.extend(number.to_be_bytes());
        frame.resize(60, 0);
        let sent = sendto(self.socket.as_raw_fd(), &frame, &self.bridge, MsgFlags::empty());
        call("send a frame", sent).map(drop)
    }
}

impl Seen {
    fn add(&mut self, frame: &[u8], marker: &str, ports: &[u16]) {
        if frame.get(12..ETHERNET) == Some(&OWN) {
            let number = frame.get(ETHERNET..ETHERNET + 8).and_then(|bytes| bytes.try_into().ok());
            self.reached = number.map_or(0, u64::from_be_bytes).max(self.reached);
            return;
        }
        self.frames += 1;
        let searched = frame.get(..SEARCHED).unwrap_or(frame);
        if searched.windows(marker.len()).any(|bytes| bytes == marker.as_bytes()) {
            self.marked += 1;
        }
        if let Some((source, destination)) = ports_of(frame) {
            if !ports.contains(&source) && !ports.contains(&destination) {
                self.outside += 1;
                if self.first.is_empty() {
                    self.first = format!("from port {source} to {destination}");
                }
            }
        }
    }
}

/// The ports of a packet of TCP or UDP.
fn ports_of(frame: &[u8]) -> Option<(u16, u16)> {
    let number = |bytes: &[u8], at: usize| -> Option<u16> {
        Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
    };
    let packet = frame.get(ETHERNET..)?;
    let (protocol, header) = match number(frame, 12)? {
        0x0800 => (*packet.get(9)?, usize::from(packet.first()? & 15) * 4),
        0x86dd => (*packet.get(6)?, 40),
        _ => return None,
    };
    let known = [libc::IPPROTO_TCP, libc::IPPROTO_UDP].contains(&i32::from(protocol));
    known.then_some((number(packet, header)?, number(packet, header + 2)?))
}
