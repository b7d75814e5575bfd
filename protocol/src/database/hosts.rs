//! Hosts.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use super::ask;

/// Addresses of a host's port, the preferred one first: never none.
///
/// # Errors
/// When the name is unknown.
pub fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let unknown = || io::Error::new(io::ErrorKind::NotFound, format!("there is no host {host:?}"));
    if host.is_empty() || host.starts_with('-') {
        return Err(unknown());
    }
    let found = match ask("getent", &["ahosts", host]) {
        Ok(answer) => listed(&answer, port),
        // A C library without getent(1) has no modules either.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            (host, port).to_socket_addrs()?.collect()
        }
        Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(error),
        Err(_) => Vec::new(),
    };
    if found.is_empty() { Err(unknown()) } else { Ok(found) }
}

/// Each address comes once for each type of socket.
fn listed(answer: &str, port: u16) -> Vec<SocketAddr> {
    let first = |line: &str| line.split_ascii_whitespace().next()?.parse::<IpAddr>().ok();
    let mut found = Vec::new();
    for address in answer.lines().filter_map(first) {
        let address = SocketAddr::new(address, port);
        if !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let answer = "::1             STREAM localhost\n::1             DGRAM  \n127.0.0.1 STREAM\nfe80::1%eth0 STREAM\n";
        let expected: Vec<SocketAddr> =
            vec!["[::1]:7".parse().unwrap(), "127.0.0.1:7".parse().unwrap()];
        assert_eq!(listed(answer, 7), expected);
    }

    #[test]
    fn names_and_addresses_are_found() {
        assert_eq!(addresses("10.1.2.3", 7).unwrap(), ["10.1.2.3:7".parse().unwrap()]);
        let local = addresses("localhost", 9).unwrap();
        assert!(local.iter().all(|address| address.ip().is_loopback() && address.port() == 9));
        for unknown in ["", "--help", "no-such-host.invalid"] {
            assert!(addresses(unknown, 1).is_err(), "{unknown:?}");
        }
    }
}
