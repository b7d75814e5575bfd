//! Who may connect.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;
use thiserror::Error;

/// A network of IPv4, as in `10.0.0.0/24`; a single address is one of its own. DMTCP knows no IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: Ipv4Addr,
    prefix: u32,
}

/// Why a text is no network.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("neither an IPv4 address nor a network as in 10.0.0.0/24")]
pub struct NetworkError;

impl Network {
    /// Whether an address is in it.
    #[must_use]
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        let mask = u32::MAX.checked_shl(32 - self.prefix).unwrap_or(0);
        (u32::from(address) ^ u32::from(self.address)) & mask == 0
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, prefix.parse().map_err(|_| NetworkError)?),
            None => (text, 32),
        };
        let address = address.parse().map_err(|_| NetworkError)?;
        if prefix > 32 {
            return Err(NetworkError);
        }
        Ok(Self { address, prefix })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// The address of a peer as DMTCP would know it.
pub fn v4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(v4) => Some(v4),
        IpAddr::V6(v6) if v6.is_loopback() => Some(Ipv4Addr::LOCALHOST),
        IpAddr::V6(v6) => v6.to_ipv4_mapped(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_what_they_say() {
        let network: Network = "10.1.2.3/24".parse().unwrap();
        assert!(network.contains(Ipv4Addr::new(10, 1, 2, 255)));
        assert!(!network.contains(Ipv4Addr::new(10, 1, 3, 3)));
        let all: Network = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains(Ipv4Addr::new(9, 9, 9, 9)));
        let one: Network = "10.0.0.1".parse().unwrap();
        assert!(one.contains(Ipv4Addr::new(10, 0, 0, 1)) && !one.contains(Ipv4Addr::LOCALHOST));
        for wrong in ["", "10.0.0/8", "10.0.0.0/33", "::1", "10.0.0.0/x"] {
            assert_eq!(wrong.parse::<Network>(), Err(NetworkError), "{wrong}");
        }
    }
}
