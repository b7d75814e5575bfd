//! The address address map that every instance is told, and the questions that are put to it.

use crate::random::Random;
use crate::sample::samples;
use ckpt_engine::late::Addresses;
use protocol::cluster::NodeName;
use protocol::cluster::addresses::AddressMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// Reads a address map and looks up its own addresses and some others in it.
pub fn address_map(bytes: &[u8]) {
    let Ok(addresses) = serde_json::from_slice::<AddressMap>(bytes) else { return };
    let mut asked: Vec<SocketAddr> = vec![
        (Ipv4Addr::LOCALHOST, 1).into(),
        (Ipv4Addr::UNSPECIFIED, 0).into(),
        (Ipv6Addr::UNSPECIFIED, 20_480).into(),
    ];
    for node in addresses.nodes.iter().take(16) {
        asked
            .extend(node.listeners.iter().take(16).flat_map(|known| [known.logical, known.actual]));
        asked.extend(node.addresses.iter().take(16).map(|ip| SocketAddr::new(*ip, u16::MAX)));
        for place in node.places.iter().take(16) {
            let port = place.source.map_or(1, |range| range.first.wrapping_add(range.count));
            asked.extend(place.addresses.iter().take(16).map(|ip| SocketAddr::new(*ip, port)));
        }
    }
    let Ok(machine) = "n1".parse::<NodeName>() else { return };
    for logical in ["n1", "a"] {
        let addresses = Addresses::new(addresses.clone(), logical, &machine);
        let _ = (addresses.is_quiet(), addresses.is_split(), addresses.away().is_some());
        for address in &asked {
            let _ = (
                addresses.dial(*address),
                addresses.caller(*address),
                addresses.own_address(*address),
            );
            let _ = (addresses.holders(*address).count(), addresses.is_guests_port(address.port()));
        }
    }
}

/// A few address maps.
pub fn seeds(random: &mut Random) -> Vec<Vec<u8>> {
    let maps = (0..8).flat_map(|_| samples::<AddressMap>(random)).collect::<Vec<_>>();
    maps.iter().map(|value| value.to_string().into_bytes()).collect()
}
