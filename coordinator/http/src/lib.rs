//! The page of a cluster, and its metrics: what `ckptd coordinator --http` serves to browsers and to Prometheus.
//!
//! All of it only reads. It runs on a thread of its own and asks the coordinator as `ckptd status` does, over the socket
//! for commands; what happened before comes from the coordinator's log, which is read behind its back. So nothing that a
//! browser does, or leaves undone, keeps the coordinator's loop waiting.
//!
//! - [`Port`]: where it listens. Only at loopback addresses: there is no TLS here.
//! - [`token`]: who may look. Everybody on the machine can connect, so each request bears a secret.
//! - `hexadecimal`: bytes as text.
//! - [`login`]: what lets a browser in, once.
//! - `gate`: the checks that each request passes first.
//! - `limits`, `connection`, `strangers`: how many may connect, and for how long one may be slow.
//! - `routes`: what there is.
//! - `ask`: questions to the coordinator.
//! - `history`: what the log says of jobs and machines.
//! - `watch`: looks at the cluster as long as somebody wants to know.
//! - `view`: what the page is told.
//! - `page`: the page itself; what it is made of lies in `assets`.
//! - `metrics`: the same for Prometheus.

#![forbid(unsafe_code)]

mod ask;
mod connection;
mod gate;
mod hexadecimal;
mod history;
mod limits;
pub mod login;
mod metrics;
mod page;
mod routes;
mod strangers;
pub mod token;
mod view;
mod watch;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;
use token::{TokenError, Tokens};

/// Why the page can't be served; the text fits after "failed to serve the page: ".
#[derive(Debug, Error)]
pub enum HttpError {
    /// Others could read what goes over the network.
    #[error(
        "listen at {0}: the page is served without TLS, and only at this machine's own addresses, as 127.0.0.1; from \
         another machine it is reached through ssh -L {port}:127.0.0.1:{port} HOST, then as http://127.0.0.1:{port}/",
        port = .0.port()
    )]
    NotLoopback(SocketAddr),
    /// The address can't be had.
    #[error("listen at {address}: {source}")]
    Listen {
        /// It.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The secrets can't be read or made.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The system refused.
    #[error("{action}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
}

/// Where the page is served; nobody is heard there before [`Port::serve`].
#[derive(Debug)]
pub struct Port {
    listener: TcpListener,
    address: SocketAddr,
}

/// A page that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// Where, without the secret.
    pub url: String,
    /// Where, with a login: whoever opens this first sees everything.
    pub login_url: String,
    /// The file that holds the secret.
    pub token: PathBuf,
    /// The file that holds the one for the metrics alone.
    pub metrics_token: PathBuf,
}

impl Port {
    /// Binds that address.
    ///
    /// # Errors
    /// Where it is none of this machine alone, or can't be had.
    pub fn bind(address: SocketAddr) -> Result<Self, HttpError> {
        if !address.ip().is_loopback() {
            return Err(HttpError::NotLoopback(address));
        }
        let refused = |source| HttpError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok(Self { listener, address })
    }

    /// Serves the page of the coordinator whose folder that is, and which runs, until the process ends.
    ///
    /// # Errors
    /// Where the secrets can't be had, or no thread.
    pub fn serve(self, state: &Path) -> Result<Served, HttpError> {
        let tokens = Tokens::open(state)?;
        let url = format!("http://{}/", self.address);
        let served = Served {
            login_url: tokens.login_address(&url)?,
            url,
            token: state.join(token::FILE),
            metrics_token: state.join(token::METRICS_FILE),
        };
        tokens.note_address(state, &served.url)?;
        let action = |action| move |source| HttpError::Io { action, source };
        let watch = watch::Watch::new(state).map_err(action("open the coordinator's folder"))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(action("start an event loop"))?;
        let listener = self.listener;
        let serve = async move {
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => {
                    let patience = connection::Patience::default();
                    connection::serve(listener, Arc::new(tokens), watch, patience).await;
                }
                Err(error) => tracing::error!("failed to serve the page: {error}"),
            }
        };
        std::thread::Builder::new()
            .name("http".into())
            .spawn(move || runtime.block_on(serve))
            .map_err(action("start a thread"))?;
        Ok(served)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_machines_are_sent_through_ssh() {
        for address in ["0.0.0.0:7071", "10.0.0.1:7071", "[::]:7071"] {
            let error = Port::bind(address.parse().unwrap()).unwrap_err().to_string();
            assert!(error.contains("ssh -L 7071:127.0.0.1:7071"), "{error}");
        }
        for address in ["127.0.0.1:0", "127.0.0.2:0"] {
            Port::bind(address.parse().unwrap()).unwrap();
        }
    }
}
