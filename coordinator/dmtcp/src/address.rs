//! The socket addresses that workers publish in the key-value store: the bytes of a C sockaddr in URL-safe
//! base64, padded with dots.

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Without padding: DMTCP pads with a character that no engine of the crate knows.
const BARE: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// The bytes of a text in DMTCP's base64.
#[must_use]
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    BARE.decode(text.trim_end_matches('.')).ok()
}

/// A text in DMTCP's base64.
#[must_use]
pub fn to_base64(bytes: &[u8]) -> String {
    let mut text = BARE.encode(bytes);
    while text.len() % 4 != 0 {
        text.push('.');
    }
    text
}

/// The address in a published value, if it is one of the Internet's: sockaddr_in and sockaddr_in6 of ip(7) and
/// ipv6(7), the port in network order.
#[must_use]
pub fn published(value: &str) -> Option<SocketAddr> {
    let bytes = from_base64(value)?;
    let family = u16::from_le_bytes([*bytes.first()?, *bytes.get(1)?]);
    let port = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
    let ip = match family {
        AF_INET => {
            let octets: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            IpAddr::V4(Ipv4Addr::from(octets))
        }
        AF_INET6 => {
            let octets: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            IpAddr::V6(Ipv6Addr::from(octets))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// The value by which a worker would publish that address.
#[must_use]
pub fn publish(address: SocketAddr) -> String {
    let mut bytes = Vec::with_capacity(28);
    match address {
        SocketAddr::V4(v4) => {
            bytes.extend(AF_INET.to_le_bytes());
            bytes.extend(v4.port().to_be_bytes());
            bytes.extend(v4.ip().octets());
            bytes.resize(16, 0);
        }
        SocketAddr::V6(v6) => {
            bytes.extend(AF_INET6.to_le_bytes());
            bytes.extend(v6.port().to_be_bytes());
            bytes.extend(v6.flowinfo().to_be_bytes());
            bytes.extend(v6.ip().octets());
            bytes.extend(v6.scope_id().to_le_bytes());
        }
    }
    to_base64(&bytes)
}

/// The value with the address at which the worker was seen, where it names none: a listener at all of a
/// machine's addresses is at none of them for another machine. An IPv6 listener takes IPv4, too (ipv6(7)).
#[must_use]
pub fn seen_from_outside(value: &str, seen: Ipv4Addr) -> Option<String> {
    let address = published(value)?;
    if !address.ip().is_unspecified() {
        return None;
    }
    let ip = match address.ip() {
        IpAddr::V4(_) => IpAddr::V4(seen),
        IpAddr::V6(_) => IpAddr::V6(seen.to_ipv6_mapped()),
    };
    Some(publish(SocketAddr::new(ip, address.port())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_address_is_read_and_written_alike() {
        let recorded = "AgCQdwAAAAAAAAAAAAAAAA..";
        let address = published(recorded).unwrap();
        assert_eq!(address, "0.0.0.0:36983".parse().unwrap());
        assert_eq!(publish(address), recorded);
    }

    #[test]
    fn only_no_address_is_replaced() {
        let seen = Ipv4Addr::new(10, 0, 0, 7);
        let value = seen_from_outside(&publish("0.0.0.0:5".parse().unwrap()), seen).unwrap();
        assert_eq!(published(&value), Some("10.0.0.7:5".parse().unwrap()));
        let value = seen_from_outside(&publish("[::]:5".parse().unwrap()), seen).unwrap();
        assert_eq!(published(&value), Some("[::ffff:10.0.0.7]:5".parse().unwrap()));
        assert_eq!(seen_from_outside(&publish("10.1.1.1:5".parse().unwrap()), seen), None);
        for other in ["", "AQA.", "!!", "AgCQ", "Ag.."] {
            assert_eq!(seen_from_outside(other, seen), None);
        }
    }
}
