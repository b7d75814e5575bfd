//! How a server is reached: hosts are looked up without the C library, which a static executable can't do by it.

use crate::resolving::Hosts;
use object_store::client::{HttpClient, HttpConnector};
use object_store::{ClientConfigKey, ClientOptions, Error};
use std::sync::Arc;
use std::time::Duration;

/// How long a connection may take.
const CONNECTING: Duration = Duration::from_secs(10);
/// The same, to the machine's own service that knows its credentials: it answers at once, or is not there.
const CONNECTING_HERE: Duration = Duration::from_secs(1);

/// How patient one is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// How long one request may take.
    pub(super) request: Duration,
    /// How often it is made again.
    pub(super) retries: usize,
    /// For how long.
    pub(super) retrying: Duration,
}

impl Patience {
    /// In questions and orders, with which no content goes: half a minute for a server that says nothing.
    pub(super) const SMALL: Self =
        Self { request: Duration::from_secs(15), retries: 10, retrying: Duration::from_secs(25) };

    /// While so many bytes pass in each request: at 64 KiB a second or faster. A second try is the last, if the first one took
    /// all of its time.
    pub(super) fn for_bytes(bytes: usize) -> Self {
        let request = Duration::from_secs(60 + (bytes as u64 >> 16));
        Self { request, retries: 20, retrying: request }
    }
}

/// Makes connections.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) patience: Patience,
    /// Whether the server is asked without TLS.
    pub(super) in_clear: bool,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allowed = options.get_config_value(&ClientConfigKey::AllowHttp);
        let in_clear = allowed.as_deref() == Some("true");
        let connecting = if in_clear && !self.in_clear { CONNECTING_HERE } else { CONNECTING };
        let client = reqwest::Client::builder()
            .user_agent(concat!("ckptd/", env!("CARGO_PKG_VERSION")))
            .timeout(self.patience.request)
            .connect_timeout(connecting)
            .https_only(!in_clear)
            .dns_resolver(Arc::new(Hosts))
            .build();
        let client =
            client.map_err(|error| Error::Generic { store: "S3", source: Box::new(error) })?;
        Ok(HttpClient::new(client))
    }
}
