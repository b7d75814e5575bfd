//! Devices, routes and rules of this network namespace (rtnetlink(7), linux/rtnetlink.h, linux/fib_rules.h).

mod cables;
mod message;
mod routes;
mod rules;

use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use message::{Answer, Request};

pub use routes::{Route, Way};
pub use rules::{Family, Match, Rule, Transport, Verdict};

/// Bytes of the largest answer to a request: the kernel makes none longer than this (netlink_dump).
const ANSWER_BYTES: usize = 64 * 1024;
/// Answers to one request, at most.
const MOST_ANSWERS: usize = 1 << 20;
/// ifi_change: which of the flags are meant.
const FLAG_UP: u32 = libc::IFF_UP as u32;

/// A network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// What somebody has noted about it (`ip link set alias`).
    pub alias: String,
}

/// A conversation with the kernel about the caller's network namespace.
#[derive(Debug)]
pub struct Network {
    socket: Socket,
    sequence: u32,
}

impl Network {
    /// Opens one.
    ///
    /// # Errors
    /// As socket(2).
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// All devices.
    ///
    /// # Errors
    /// As netlink(7).
    pub fn devices(&mut self) -> io::Result<Vec<Device>> {
        let request = Request::dump(libc::RTM_GETLINK, &[0; 16]);
        let answers = self.ask(request)?;
        Ok(answers.iter().filter_map(device).collect())
    }

    /// Sets a device's longest packet and alias, and lets it work.
    ///
    /// # Errors
    /// As rtnetlink(7).
    pub fn set_up(&mut self, index: u32, longest: u32, alias: &str) -> io::Result<()> {
        let mut request =
            Request::change(libc::RTM_NEWLINK, 0, &link_header(index, FLAG_UP, FLAG_UP));
        request.add(libc::IFLA_MTU, &longest.to_ne_bytes());
        request.add(libc::IFLA_IFALIAS, alias.as_bytes());
        self.order(request)
    }

    /// Removes a device.
    ///
    /// # Errors
    /// As rtnetlink(7).
    pub fn remove_device(&mut self, index: u32) -> io::Result<()> {
        self.order(Request::change(libc::RTM_DELLINK, 0, &link_header(index, 0, 0)))
    }

    /// Sends a request that the kernel acknowledges.
    fn order(&mut self, request: Request) -> io::Result<()> {
        self.ask(request).map(drop)
    }

    /// Sends a request, and collects the answers.
    fn ask(&mut self, request: Request) -> io::Result<Vec<Answer>> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&request.finish(self.sequence), 0)?;
        let mut found = Vec::new();
        let mut buffer = vec![0; ANSWER_BYTES];
        loop {
            let length = self.socket.recv(&mut &mut buffer[..], 0)?;
            let received = buffer.get(..length).unwrap_or_default();
            for answer in Answer::split(received, self.sequence) {
                match answer? {
                    Answer { end: true, .. } => return Ok(found),
                    more if found.len() < MOST_ANSWERS => found.push(more),
                    _ => return Err(io::Error::other("the kernel's answer has no end")),
                }
            }
        }
    }
}

/// struct ifinfomsg
fn link_header(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&change.to_ne_bytes());
    header
}

fn device(answer: &Answer) -> Option<Device> {
    let index = u32::from_ne_bytes(answer.body.get(4..8)?.try_into().ok()?);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
    let attributes = answer.attributes(16);
    let name = attributes.get(&libc::IFLA_IFNAME).map(|bytes| text(bytes))?;
    let alias = attributes.get(&libc::IFLA_IFALIAS).map(|bytes| text(bytes)).unwrap_or_default();
    Some(Device { index, name, alias })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// As the kernel would say it.
    fn said(request: Request) -> Vec<u8> {
        request.finish(7)
    }

    fn heard(bytes: &[u8]) -> Vec<Answer> {
        Answer::split(bytes, 7).map(Result::unwrap).collect()
    }

    #[test]
    fn routes_and_rules_are_read_as_they_are_written() {
        let through = |source| Way::Device { index: 3, source: ip(source) };
        for (to, way) in [
            ("10.0.0.2", through("10.0.0.1")),
            ("fd00::2", through("fd00::1")),
            ("10.0.0.2", Way::Unreachable),
        ] {
            let route = Route { table: 17070, owner: 199, metric: 10, to: ip(to), way };
            let bytes = said(route.request(libc::RTM_NEWROUTE, 0));
            assert_eq!(heard(&bytes).iter().filter_map(Route::of).collect::<Vec<_>>(), [route]);
        }
        for (of, verdict) in [
            (Match::To(Transport::Tcp, 22, Some(ip("10.0.0.2"))), Verdict::Goto(9)),
            (Match::To(Transport::Udp, 111, None), Verdict::Goto(9)),
            (Match::From(Transport::Udp, 22), Verdict::Goto(9)),
            (Match::Transport(Transport::Udp), Verdict::Table(17070)),
            (Match::Transport(Transport::Tcp), Verdict::Next),
        ] {
            let rule = Rule { family: Family::V4, priority: 5, owner: 199, of, verdict };
            let bytes = said(rule.request(libc::RTM_NEWRULE, 0));
            let read = heard(&bytes);
            assert_eq!(read.iter().filter_map(|a| Rule::of(Family::V4, a)).next(), Some(rule));
        }
    }

    #[test]
    fn answers_that_are_cut_off_or_of_others_are_none() {
        let route =
            Route { table: 1, owner: 199, metric: 1, to: ip("10.0.0.2"), way: Way::Unreachable };
        let bytes = said(route.request(libc::RTM_NEWROUTE, 0));
        for cut in 0..bytes.len() {
            assert_eq!(Answer::split(&bytes[..cut], 7).count(), 0, "{cut}");
        }
        assert_eq!(Answer::split(&bytes, 8).count(), 0);
        let whole = heard(&bytes).remove(0);
        for cut in 0..whole.body.len() {
            let body = whole.body[..cut].to_vec();
            assert!(Route::of(&Answer { end: false, body }).is_none_or(|read| read != route));
        }
    }

    #[test]
    fn the_kernel_lists_its_loopback() {
        let devices = Network::open().unwrap().devices().unwrap();
        assert!(devices.iter().any(|device| device.name == "lo"), "{devices:?}");
    }
}
