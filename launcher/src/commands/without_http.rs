//! Where the coordinator's page is left out (cargo feature `http`), as for phones: who asks for it is told so.

use crate::failure::Failure;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// There is none.
#[derive(Debug)]
pub enum Page {}

impl Page {
    /// # Errors
    /// Always.
    pub fn at(
        address: SocketAddr,
        _certificate: Option<(PathBuf, PathBuf)>,
    ) -> Result<Self, Failure> {
        let missing = "this ckptd is built without the page, as those for phones are";
        Err(Failure::of(format!("serve the page at {address}"), missing))
    }

    pub fn serve<T>(self, _state: &Path, _tells: T) {
        match self {}
    }
}
