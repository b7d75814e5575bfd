//! What single sockets are called, where their addresses do not tell: by their cookies, which are never used twice
//! (SO_COOKIE, socket(7)).

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::address_map::Addresses;
use super::sockaddr::canonical;

/// Sockets remembered: of those that are long closed the oldest are forgotten.
const MOST: usize = 65_536;

/// What the job calls a socket and its peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// Its own address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<SocketAddr>,
    /// Its peer's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<SocketAddr>,
    /// It was bound to the machine's own address by a process that has seen it there: addresses are what they
    /// are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plain: bool,
}

/// A socket with its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedSocket {
    /// SO_COOKIE.
    pub cookie: u64,
    /// Its own address and its peer's.
    pub name: Name,
}

/// All that are named.
#[derive(Debug, Clone, Default)]
pub struct Names {
    known: HashMap<u64, Name>,
    order: VecDeque<u64>,
    addresses: Addresses,
}

impl Names {
    /// These, and what the address map says of all others.
    pub fn new(sockets: Vec<NamedSocket>, addresses: Addresses) -> Self {
        let mut names = Self { addresses, ..Self::default() };
        for NamedSocket { cookie, name } in sockets {
            *names.of(cookie) = name;
        }
        names
    }

    /// None is named.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// What is known of a socket.
    pub fn get(&self, cookie: u64) -> Name {
        self.known.get(&cookie).copied().unwrap_or_default()
    }

    /// To change it.
    pub fn of(&mut self, cookie: u64) -> &mut Name {
        if !self.known.contains_key(&cookie) {
            if self.order.len() >= MOST {
                if let Some(oldest) = self.order.pop_front() {
                    self.known.remove(&oldest);
                }
            }
            self.order.push_back(cookie);
        }
        self.known.entry(cookie).or_default()
    }

    /// All of them.
    pub fn list(&self) -> Vec<NamedSocket> {
        let named = |(cookie, name): (&u64, &Name)| NamedSocket { cookie: *cookie, name: *name };
        self.known.iter().map(named).collect()
    }

    /// What the job calls a socket that has these addresses; only what differs from them.
    pub fn name(&self, cookie: u64, local: Option<SocketAddr>, peer: Option<SocketAddr>) -> Name {
        let known = self.get(cookie);
        let differs = |name: Option<SocketAddr>, address: Option<SocketAddr>| {
            name.filter(|name| Some(canonical(*name)) != address.map(canonical))
        };
        // Its own address is what it is; its peer may be one that has moved and knows nothing of it.
        let own =
            || local.filter(|_| !known.plain).and_then(|local| self.addresses.own_address(local));
        let other = || peer.and_then(|peer| self.addresses.caller(peer));
        Name {
            local: differs(known.local.or_else(own), local),
            peer: differs(known.peer.or_else(other), peer),
            plain: known.plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten() {
        let mut names = Names::default();
        for cookie in 0..MOST as u64 + 10 {
            names.of(cookie).plain = true;
        }
        assert_eq!(names.list().len(), MOST);
        assert!(!names.get(9).plain && names.get(10).plain);
    }

    #[test]
    fn a_name_is_told_where_it_differs() {
        let at = |text: &str| -> Option<SocketAddr> { Some(text.parse().unwrap()) };
        let mut names = Names::default();
        names.of(1).local = at("10.0.0.3:7600");
        let name = names.name(1, at("0.0.0.0:40000"), at("10.0.0.2:1"));
        assert_eq!((name.local, name.peer), (at("10.0.0.3:7600"), None));
        assert_eq!(names.name(1, at("[::ffff:10.0.0.3]:7600"), None), Name::default());
        assert_eq!(names.name(2, at("10.0.0.1:1"), None), Name::default());
    }
}
