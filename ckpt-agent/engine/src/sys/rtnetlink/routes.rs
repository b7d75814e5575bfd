//! Routes to single machines, in a table of their own.

use std::io;
use std::net::IpAddr;

use super::Network;
use super::message::{Answer, Request, number};

/// struct rtmsg
const HEADER: usize = 12;

/// Where packets to a machine go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Through the device of that number, from this address if the sender has chosen none.
    Device {
        /// The number.
        index: u32,
        /// The address.
        source: IpAddr,
    },
    /// Nowhere.
    Unreachable,
}

/// A route to one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The table.
    pub table: u32,
    /// Whose it is (rtm_protocol).
    pub owner: u8,
    /// Of several to one machine the lowest counts.
    pub metric: u32,
    /// The machine.
    pub to: IpAddr,
    /// Where.
    pub way: Way,
}

impl Network {
    /// Adds a route, or puts it in the place of another one of its metric.
    ///
    /// # Errors
    /// As rtnetlink(7).
    pub fn set_route(&mut self, route: &Route) -> io::Result<()> {
        self.order(route.request(libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_REPLACE))
    }

    /// Removes a route. It may have gone with its device.
    ///
    /// # Errors
    /// As rtnetlink(7).
    pub fn remove_route(&mut self, route: &Route) -> io::Result<()> {
        match self.order(route.request(libc::RTM_DELROUTE, 0)) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            done => done,
        }
    }

    /// All routes of that owner in that table.
    ///
    /// # Errors
    /// As rtnetlink(7).
    pub fn routes(&mut self, table: u32, owner: u8) -> io::Result<Vec<Route>> {
        let mut found = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            let mut header = [0; HEADER];
            header[0] = family as u8;
            let answers = self.ask(Request::dump(libc::RTM_GETROUTE, &header))?;
            let of_table = |route: &Route| route.table == table && route.owner == owner;
            found.extend(answers.iter().filter_map(Route::of).filter(of_table));
        }
        Ok(found)
    }
}

impl Route {
    pub(super) fn request(&self, kind: u16, flags: i32) -> Request {
        let mut header = [0; HEADER];
        (header[0], header[1]) = match self.to {
            IpAddr::V4(_) => (libc::AF_INET as u8, 32),
            IpAddr::V6(_) => (libc::AF_INET6 as u8, 128),
        };
        header[4] = libc::RT_TABLE_UNSPEC;
        header[5] = self.owner;
        (header[6], header[7]) = match self.way {
            Way::Device { .. } => (libc::RT_SCOPE_LINK, libc::RTN_UNICAST),
            Way::Unreachable => (libc::RT_SCOPE_UNIVERSE, libc::RTN_UNREACHABLE),
        };
        let mut request = Request::change(kind, flags, &header);
        request.add(libc::RTA_TABLE, &self.table.to_ne_bytes());
        request.add(libc::RTA_DST, &octets(self.to));
        request.add(libc::RTA_PRIORITY, &self.metric.to_ne_bytes());
        if let Way::Device { index, source } = self.way {
            request.add(libc::RTA_OIF, &index.to_ne_bytes());
            request.add(libc::RTA_PREFSRC, &octets(source));
        }
        request
    }

    pub(super) fn of(answer: &Answer) -> Option<Self> {
        let header = answer.body.get(..HEADER)?;
        let attributes = answer.attributes(HEADER);
        let numeric = |kind: u16| number(attributes.get(&kind)?, 0);
        let to = address(attributes.get(&libc::RTA_DST)?)?;
        let way = match header[7] {
            libc::RTN_UNREACHABLE => Way::Unreachable,
            libc::RTN_UNICAST => Way::Device {
                index: numeric(libc::RTA_OIF)?,
                source: address(attributes.get(&libc::RTA_PREFSRC)?)?,
            },
            _ => return None,
        };
        Some(Self {
            table: numeric(libc::RTA_TABLE)?,
            owner: header[5],
            metric: numeric(libc::RTA_PRIORITY).unwrap_or(0),
            to,
            way,
        })
    }
}

/// As they are sent.
pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

pub(super) fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => Some(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => None,
    }
}
