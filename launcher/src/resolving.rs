//! Hosts of servers that are reached over HTTP, looked up without the C library, which a static executable can't do by it, and
//! why one was not reached.

use protocol::database::hosts;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Looks hosts up.
pub struct Hosts;

impl Resolve for Hosts {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        Box::pin(async move {
            // The port is that of the request.
            let found = tokio::task::spawn_blocking(move || hosts::addresses(&host, 0)).await??;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// What lies at the bottom of an error: of what is above it, each only says that something failed.
#[cfg(any(feature = "opentelemetry", feature = "webhooks"))]
pub fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.last().map_or_else(String::new, ToString::to_string)
}
