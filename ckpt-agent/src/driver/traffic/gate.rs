//! What a member may put into this machine's network.

use protocol::cluster::NodeName;

use super::packet::{self, Odd};
use super::plan::Table;

/// Why a packet of a member is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It says that somebody else has sent it.
    #[error("it has the address of another machine")]
    Foreign,
    /// It is for somebody else.
    #[error("it is not for this machine")]
    NotHere,
    /// It is for a port that is reached without encryption by agents alone.
    #[error("it is for port {0}, which is none of a job's")]
    Port(u16),
    /// It is none that a job sends.
    #[error(transparent)]
    Odd(#[from] Odd),
}

impl Table {
    /// Whether a packet may come from that member.
    ///
    /// # Errors
    /// Why not.
    pub fn admits(&self, from: &NodeName, packet: &[u8]) -> Result<(), Refused> {
        let packet = packet::read(packet)?;
        if self.members.get(&packet.source) != Some(from) {
            return Err(Refused::Foreign);
        }
        if !self.own.contains(&packet.destination) {
            return Err(Refused::NotHere);
        }
        if self.closed.contains(&packet.port) { Err(Refused::Port(packet.port)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::tests::udp;
    use super::*;
    use std::collections::{HashMap, HashSet};
    use std::net::IpAddr;

    #[test]
    fn a_member_speaks_for_itself_to_us_about_what_is_the_jobs() {
        let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
        let (a, b): (NodeName, NodeName) = ("a".parse().unwrap(), "b".parse().unwrap());
        let table = Table {
            members: HashMap::from([(ip("10.0.0.2"), a.clone()), (ip("10.0.0.3"), b.clone())]),
            own: HashSet::from([ip("10.0.0.1")]),
            closed: HashSet::from([17070]),
        };
        let packet = |from, to, port| udp(ip(from), ip(to), port);
        let good = packet("10.0.0.2", "10.0.0.1", 700);
        assert_eq!(table.admits(&a, &good), Ok(()));
        assert_eq!(table.admits(&b, &good), Err(Refused::Foreign));
        let foreign = packet("10.0.0.9", "10.0.0.1", 700);
        assert_eq!(table.admits(&a, &foreign), Err(Refused::Foreign));
        let own = packet("10.0.0.1", "10.0.0.1", 700);
        assert_eq!(table.admits(&a, &own), Err(Refused::Foreign));
        let elsewhere = packet("10.0.0.2", "10.0.0.3", 700);
        assert_eq!(table.admits(&a, &elsewhere), Err(Refused::NotHere));
        let to_agent = packet("10.0.0.2", "10.0.0.1", 17070);
        assert_eq!(table.admits(&a, &to_agent), Err(Refused::Port(17070)));
        assert_eq!(table.admits(&a, b"no packet"), Err(Refused::Odd(Odd::Malformed)));
    }
}
