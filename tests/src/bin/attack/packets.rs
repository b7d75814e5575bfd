//! Packets that a member puts into another one's network, where agents encrypt jobs' traffic.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::Duration;

use ckptd_tests::cluster::{Background, until};
use ckptd_tests::job::Failure;
use clap::Args;
use protocol::cluster::VERSIONS;
use protocol::cluster::peer::PeerMessage;
use tokio::time::sleep;

use super::outcome::{Line, Outcome};

/// How long what an honest member sends may take to arrive.
const LIMIT: Duration = Duration::from_secs(30);
/// A port of a job's.
const PORT: u16 = 7600;
/// The agents' port: packets that come encrypted are not for it.
const AGENT: u16 = 17070;
/// What is in an honest packet.
const HONEST: &str = "honest";
/// How often all is sent: the victim may not know yet that the attacker is a member.
const TIMES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// A packet: what is in it, which is the attack's name, from where, to where.
type Draft = (&'static str, IpAddr, IpAddr, u16);

/// Whoever shows what arrives.
#[derive(Debug, Clone, Args)]
pub struct Listener {
    /// Ports of UDP
    #[arg(long, value_delimiter = ',', default_values_t = [PORT, AGENT])]
    ports: Vec<u16>,
}

/// Prints what comes, for ever.
pub fn listen(listener: &Listener) -> Result<(), Box<dyn std::error::Error>> {
    let sockets: Result<Vec<UdpSocket>, _> =
        listener.ports.iter().map(|port| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, *port))).collect();
    let threads = sockets?.into_iter().map(|socket| {
        std::thread::spawn(move || {
            let mut bytes = [0; 1500];
            while let Ok((length, _)) = socket.recv_from(&mut bytes) {
                println!("{}", String::from_utf8_lossy(&bytes[..length]));
            }
        })
    });
    let threads: Vec<_> = threads.collect();
    println!("listening");
    threads.into_iter().for_each(|thread| drop(thread.join()));
    Ok(())
}

impl super::member::Attacker {
    /// Sends the first member what it must not take, and what it must, over and over.
    pub(super) async fn send_packets(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        let own = self.own;
        let (victim, other) = self.two_members().await;
        let drafts: [Draft; 4] = [
            ("traffic-foreign", other.address.ip(), victim.address.ip(), PORT),
            ("traffic-elsewhere", own, other.address.ip(), PORT),
            ("traffic-to-agent", own, victim.address.ip(), AGENT),
            (HONEST, own, victim.address.ip(), PORT),
        ];
        let packets: Vec<u8> = drafts.iter().flat_map(packet).collect();
        for _ in 0..TIMES {
            let dialed =
                self.identity.connect_peer(&victim.name, victim.address, &victim.key).await;
            if let Ok(mut link) = dialed {
                let hello = PeerMessage::Hello { version: VERSIONS };
                let hello = link.sender.send(&hello, &[]).await;
                let sent = link.sender.send(&PeerMessage::Packets, &packets).await;
                if hello.and(sent).is_ok() {
                    // It is read before the end of the connection.
                    link.sender.close().await;
                }
            }
            sleep(PAUSE).await;
        }
        Ok(())
    }
}

/// What the two members' listeners have shown of it.
pub fn outcomes(here: &Background, elsewhere: &Background) -> Result<Vec<Line>, Failure> {
    let arrived = until("an honest packet arrives", LIMIT, || {
        Ok(here.output().lines().any(|line| line == HONEST).then_some(()))
    });
    let outcome = |id: &str| match (here.output() + &elsewhere.output()).contains(id) {
        true => Outcome::Succeeded("it arrived".to_owned()),
        false if arrived.is_err() => Outcome::NotTried("nothing arrived at all".to_owned()),
        false => Outcome::Refused("it did not arrive".to_owned()),
    };
    let ids = ["traffic-foreign", "traffic-elsewhere", "traffic-to-agent"];
    Ok(ids.iter().map(|id| Line::new(id, outcome(id))).collect())
}

/// A packet of UDP (RFC 768, RFC 791).
fn packet((text, from, to, port): &Draft) -> Vec<u8> {
    let (IpAddr::V4(from), IpAddr::V4(to)) = (from.to_canonical(), to.to_canonical()) else {
        return Vec::new();
    };
    let length = u16::try_from(28 + text.len()).unwrap_or(u16::MAX);
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    let sum: u32 =
        packet.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(0);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    for number in [PORT, *port, length - 20, 0] {
        packet.extend(number.to_be_bytes());
    }
    packet.extend(text.as_bytes());
    packet
}
