//! Sees what goes over the bridge between the nodes.

use std::io::{BufRead, Read};
use std::sync::{Arc, Mutex, PoisonError};

use socket2::{Domain, Protocol, Socket, Type};

use super::{InsideError, call, join, tell};

/// ETH_P_ALL (linux/if_ether.h), as packet(7) takes it.
const ALL: i32 = (0x0003_u16).to_be() as i32;
/// Bytes of the longest frame: cables of namespaces carry what TCP has not cut into packets yet.
const LONGEST: usize = 1 << 17;
/// A header of Ethernet.
const ETHERNET: usize = 14;

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
    let seen = Arc::<Mutex<Seen>>::default();
    let (counted, marker) = (seen.clone(), arguments.marker.clone());
    let ports = arguments.ports.clone();
    std::thread::spawn(move || {
        let mut frame = vec![0; LONGEST];
        while let Ok(length) = socket.read(&mut frame) {
            let frame = frame.get(..length).unwrap_or_default();
            counted.lock().unwrap_or_else(PoisonError::into_inner).add(frame, &marker, &ports);
        }
    });
    tell("ready")?;
    for line in std::io::stdin().lock().lines() {
        if line.is_err() {
            break;
        }
        let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Seen { frames, marked, outside, first } = &*seen;
        tell(&format!("seen {frames} {marked} {outside} {first}"))?;
    }
    Ok(())
}

impl Seen {
    fn add(&mut self, frame: &[u8], marker: &str, ports: &[u16]) {
        self.frames += 1;
        if frame.windows(marker.len()).any(|bytes| bytes == marker.as_bytes()) {
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
