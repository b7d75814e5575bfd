//! Rules that say by which routes a packet of this machine's own goes.

use std::io;
use std::net::IpAddr;

use super::Network;
use super::message::{Answer, Request, number};
use super::routes::{address, octets};

/// struct fib_rule_hdr
const HEADER: usize = 12;
// include/uapi/linux/fib_rules.h
const FRA_DST: u16 = 1;
const FRA_IIFNAME: u16 = 3;
const FRA_GOTO: u16 = 4;
const FRA_PRIORITY: u16 = 6;
const FRA_TABLE: u16 = 15;
const FRA_PROTOCOL: u16 = 21;
const FRA_IP_PROTO: u16 = 22;
const FRA_SPORT_RANGE: u16 = 23;
const FRA_DPORT_RANGE: u16 = 24;
const FR_ACT_TO_TBL: u8 = 1;
const FR_ACT_GOTO: u8 = 2;
const FR_ACT_NOP: u8 = 3;
/// What a machine sends itself comes in here.
const OWN: &[u8] = b"lo\0";

/// TCP or UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Transport {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Tcp, Self::Udp];

    /// Its number in a packet.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => libc::IPPROTO_TCP as u8,
            Self::Udp => libc::IPPROTO_UDP as u8,
        }
    }

    /// That of a number.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|transport| transport.number() == number)
    }
}

/// What a packet must have for a rule to be for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Match {
    /// That protocol.
    Transport(Transport),
    /// That protocol, to that port, of that machine if one is named.
    To(Transport, u16, Option<IpAddr>),
    /// That protocol, from that port.
    From(Transport, u16),
}

/// Where a rule leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The routes of a table, if one fits; else the next rule.
    Table(u32),
    /// The rule of that priority.
    Goto(u32),
    /// The next rule: where others lead to. It is for what comes in as well: as long as there is no rule of that kind with a
    /// protocol, the kernel does not look at protocols when it asks itself where the answer to a packet would go (rp_filter,
    /// fib_rule_requires_fldissect), and would drop what came by a route of rules with one.
    Next,
}

/// A rule for what this machine sends itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// Of which packets.
    pub family: Family,
    /// Its place: lower ones come first.
    pub priority: u32,
    /// Whose it is (FRA_PROTOCOL).
    pub owner: u8,
    /// For which packets.
    pub of: Match,
    /// Where they go.
    pub verdict: Verdict,
}

/// IPv4 or IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// An address's.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    fn number(self) -> u8 {
        match self {
            Self::V4 => libc::AF_INET as u8,
            Self::V6 => libc::AF_INET6 as u8,
        }
    }
}

impl Network {
    /// Adds a rule. It may be there already.
    ///
    /// # Errors
    /// As rtnetlink(7).
    pub fn add_rule(&mut self, rule: &Rule) -> io::Result<()> {
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        match self.order(rule.request(libc::RTM_NEWRULE, flags)) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
            done => done,
        }
    }

    /// Removes a rule. It may have gone already.
    ///
    /// # Errors
    /// As rtnetlink(7).
    pub fn remove_rule(&mut self, rule: &Rule) -> io::Result<()> {
        match self.order(rule.request(libc::RTM_DELRULE, 0)) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            done => done,
        }
    }

    /// All rules of that owner, as far as they are of a form that this file makes.
    ///
    /// # Errors
    /// As rtnetlink(7). A kernel without IPv6 has none for that.
    pub fn rules(&mut self, owner: u8) -> io::Result<Vec<Rule>> {
        let mut found = Vec::new();
        for family in Family::ALL {
            let mut header = [0; HEADER];
            header[0] = family.number();
            match self.ask(Request::dump(libc::RTM_GETRULE, &header)) {
                Ok(answers) => {
                    let own = |rule: &Rule| rule.owner == owner;
                    let rules = answers.iter().filter_map(|answer| Rule::of(family, answer));
                    found.extend(rules.filter(own));
                }
                Err(_) if family == Family::V6 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}

impl Rule {
    pub(super) fn request(&self, kind: u16, flags: i32) -> Request {
        let mut header = [0; HEADER];
        header[0] = self.family.number();
        header[7] = match self.verdict {
            Verdict::Table(_) => FR_ACT_TO_TBL,
            Verdict::Goto(_) => FR_ACT_GOTO,
            Verdict::Next => FR_ACT_NOP,
        };
        if let Match::To(_, _, Some(address)) = self.of {
            header[1] = if address.is_ipv4() { 32 } else { 128 };
        }
        let mut request = Request::change(kind, flags, &header);
        request.add(FRA_PRIORITY, &self.priority.to_ne_bytes());
        request.add(FRA_PROTOCOL, &[self.owner]);
        if self.verdict != Verdict::Next {
            request.add(FRA_IIFNAME, OWN);
        }
        match self.verdict {
            Verdict::Table(table) => request.add(FRA_TABLE, &table.to_ne_bytes()),
            Verdict::Goto(priority) => request.add(FRA_GOTO, &priority.to_ne_bytes()),
            Verdict::Next => {}
        }
        let range = |port: u16| [port.to_ne_bytes(), port.to_ne_bytes()].concat();
        match self.of {
            Match::Transport(transport) => request.add(FRA_IP_PROTO, &[transport.number()]),
            Match::To(transport, port, to) => {
                request.add(FRA_IP_PROTO, &[transport.number()]);
                request.add(FRA_DPORT_RANGE, &range(port));
                if let Some(to) = to {
                    request.add(FRA_DST, &octets(to));
                }
            }
            Match::From(transport, port) => {
                request.add(FRA_IP_PROTO, &[transport.number()]);
                request.add(FRA_SPORT_RANGE, &range(port));
            }
        }
        request
    }

    pub(super) fn of(family: Family, answer: &Answer) -> Option<Self> {
        let action = *answer.body.get(7)?;
        let attributes = answer.attributes(HEADER);
        let numeric = |kind: u16| number(attributes.get(&kind)?, 0);
        let byte = |kind: u16| attributes.get(&kind)?.first().copied();
        let port = |kind: u16| {
            let bytes = attributes.get(&kind)?.get(..2)?;
            Some(u16::from_ne_bytes(bytes.try_into().ok()?))
        };
        let transport = byte(FRA_IP_PROTO)?;
        let (to, from) = (port(FRA_DPORT_RANGE), port(FRA_SPORT_RANGE));
        let of = match (Transport::of(transport), to, from) {
            (transport, Some(to), _) => {
                let machine = attributes.get(&FRA_DST).and_then(|bytes| address(bytes));
                Match::To(transport?, to, machine)
            }
            (transport, None, Some(from)) => Match::From(transport?, from),
            (transport, None, None) => Match::Transport(transport?),
        };
        let verdict = match action {
            FR_ACT_TO_TBL => Verdict::Table(numeric(FRA_TABLE)?),
            FR_ACT_GOTO => Verdict::Goto(numeric(FRA_GOTO)?),
            FR_ACT_NOP => Verdict::Next,
            _ => return None,
        };
        let (priority, owner) = (numeric(FRA_PRIORITY)?, byte(FRA_PROTOCOL)?);
        Some(Self { family, priority, owner, of, verdict })
    }
}
