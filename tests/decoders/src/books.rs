//! The address book that every instance is told, and the questions that are put to it.

use crate::random::Random;
use crate::sample::samples;
use ckpt_engine::late::Book;
use protocol::cluster::NodeName;
use protocol::cluster::addresses::AddressBook;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// Reads a book and looks up its own addresses and some others in it.
pub fn address_book(bytes: &[u8]) {
    let Ok(book) = serde_json::from_slice::<AddressBook>(bytes) else { return };
    let mut asked: Vec<SocketAddr> = vec![
        (Ipv4Addr::LOCALHOST, 1).into(),
        (Ipv4Addr::UNSPECIFIED, 0).into(),
        (Ipv6Addr::UNSPECIFIED, 20_480).into(),
    ];
    for node in book.nodes.iter().take(16) {
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
        let book = Book::new(book.clone(), logical, &machine);
        let _ = (book.is_quiet(), book.is_split(), book.away().is_some());
        for address in &asked {
            let _ = (book.dial(*address), book.caller(*address), book.own_address(*address));
            let _ = (book.holders(*address).count(), book.is_guests_port(address.port()));
        }
    }
}

/// A few books.
pub fn seeds(random: &mut Random) -> Vec<Vec<u8>> {
    let books = (0..8).flat_map(|_| samples::<AddressBook>(random)).collect::<Vec<_>>();
    books.iter().map(|value| value.to_string().into_bytes()).collect()
}
