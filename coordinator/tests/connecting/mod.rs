//! What tests with real connections to a coordinator have in common.

use coordinator::server::Options;
use protocol::cluster::NodeName;
use protocol::cluster::image_key::Encryption;
use protocol::transport::{RefusalKind, TransportError};
use std::net::SocketAddr;
use std::path::Path;

pub fn node(name: &str) -> NodeName {
    name.parse().unwrap()
}

/// A coordinator of that folder.
pub fn options(state: &Path, listen: SocketAddr) -> Options {
    Options {
        listen,
        state: state.to_owned(),
        grace: Some(3.0),
        recover: None,
        discover: false,
        dmtcp: None,
        page: tokio::sync::watch::channel(None).1,
        encryption: Encryption::default(),
    }
}

pub fn refused<T>(result: Result<T, TransportError>) -> (RefusalKind, String) {
    match result {
        Err(TransportError::Refused { kind, reason }) => (kind, reason),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("was let in"),
    }
}
