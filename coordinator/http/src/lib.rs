//! The page of a cluster, and its metrics: what `ckptd coordinator --http` serves to browsers and to Prometheus.
//!
//! It runs on a thread of its own and asks the coordinator as `ckptd status` does, over the socket for commands; what
//! happened before comes from the coordinator's log, which is read behind its back. So nothing that a browser does, or
//! leaves undone, keeps the coordinator's loop waiting. Orders are the few of `orders`, of those who may.
//!
//! - [`Port`]: where it listens. At an address that other machines reach there is TLS.
//! - [`certificate`]: what is shown there.
//! - `own_file`: files that are their owner's alone.
//! - [`token`], [`grants`]: who may look. Everybody can connect, so each request bears a secret.
//! - [`role`]: what who may look may do.
//! - `hexadecimal`: bytes as text.
//! - [`login`]: what lets a browser in, once; `sessions`: browsers that were let in.
//! - `tries`: how often a machine may show a wrong secret.
//! - `gate`: the checks that each request passes first.
//! - `limits`, `connection`, `strangers`: how many may connect, and for how long one may be slow.
//! - `routes`: what there is.
//! - `form`: what is sent with an order.
//! - `ask`: questions to the coordinator.
//! - `history`: what the log says of jobs and machines.
//! - `watch`: looks at the cluster as long as somebody wants to know.
//! - `view`: what the page is told.
//! - `page`: the page itself; what it is made of lies in `assets`.
//! - `metrics`: the same for Prometheus.

#![forbid(unsafe_code)]

mod ask;
pub mod certificate;
mod connection;
mod form;
mod gate;
pub mod grants;
mod hexadecimal;
mod history;
mod limits;
pub mod login;
mod metrics;
mod orders;
mod own_file;
mod page;
pub mod role;
mod routes;
mod sessions;
mod strangers;
pub mod token;
mod tries;
mod view;
mod watch;

use certificate::{CertificateError, Files, Tls};
use coordinator::cluster::PageCertificate;
use coordinator::server::reachable;
use rustls::pki_types::ServerName;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;
use token::{TokenError, Tokens};

/// Why the page can't be served; the text fits after "failed to serve the page: ".
#[derive(Debug, Error)]
pub enum HttpError {
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
    /// There is no certificate to be shown.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
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
    /// The certificate that was given.
    given: Option<Tls>,
}

/// Where the coordinator hears of the certificate.
pub type Tells = tokio::sync::watch::Sender<Option<PageCertificate>>;

/// A page that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// Where, without the secret.
    pub url: String,
    /// Where, with a login: whoever opens this first sees everything.
    pub login_url: String,
    /// The file that holds the secret.
    pub token: PathBuf,
    /// The file that holds the one for the metrics alone; None: there programs are given tokens.
    pub metrics_token: Option<PathBuf>,
    /// The fingerprint of the certificate; None: there is no TLS.
    pub fingerprint: Option<String>,
}

impl Port {
    /// Binds that address. `certificate`: what is shown there; where other machines reach it and none is given, one is made.
    ///
    /// # Errors
    /// Where the address can't be had, or the certificate not be used.
    pub fn bind(address: SocketAddr, certificate: Option<Files>) -> Result<Self, HttpError> {
        let given = certificate.map(Tls::of).transpose()?;
        let refused = |source| HttpError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok(Self { listener, address, given })
    }

    /// Serves the page of the coordinator whose folder that is, and which runs, until the process ends. `tells`: hears what
    /// certificate is shown.
    ///
    /// # Errors
    /// Where the secrets can't be had, or no thread.
    pub fn serve(self, state: &Path, tells: Tells) -> Result<Served, HttpError> {
        let Self { listener, address, given } = self;
        let tls = match given {
            None if address.ip().is_loopback() => None,
            None => Some(Tls::own(state, &names(address))?),
            given => given,
        };
        let tokens = Tokens::open(state)?;
        let tokens = if tls.is_some() { tokens.remote() } else { tokens };
        let scheme = if tls.is_some() { "https" } else { "http" };
        let reached = reachable(address).into_iter().next().unwrap_or_else(|| address.to_string());
        let url = format!("{scheme}://{reached}/");
        let served = Served {
            login_url: tokens.login_address(&url)?,
            url,
            token: state.join(token::FILE),
            metrics_token: tls.is_none().then(|| state.join(token::METRICS_FILE)),
            fingerprint: tls.as_ref().map(Tls::fingerprint),
        };
        tokens.note_address(state, &served.url)?;
        let action = |action| move |source| HttpError::Io { action, source };
        let watch = watch::Watch::new(state).map_err(action("open the coordinator's folder"))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(action("start an event loop"))?;
        let serve = async move {
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => {
                    let patience = connection::Patience::default();
                    let context = routes::Context::new(tokens, watch);
                    let tls = tls.map(Arc::new);
                    if let Some(tls) = &tls {
                        protocol::task::spawn(tell(Arc::clone(tls), tells));
                    }
                    connection::serve(listener, tls, Arc::new(context), patience).await;
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

/// Looks at the certificate for ever, also while nobody connects, and tells what it is.
async fn tell(tls: Arc<Tls>, tells: Tells) {
    loop {
        tls.acceptor(std::time::Instant::now());
        let shown = tls.certificate();
        tells.send_if_modified(|told| std::mem::replace(told, shown) != shown);
        tokio::time::sleep(certificate::LOOK_AGAIN).await;
    }
}

/// By what names others reach a listener.
fn names(address: SocketAddr) -> Vec<String> {
    let reached = reachable(address);
    let ips = reached.iter().filter_map(|at| at.parse::<SocketAddr>().ok());
    let mut names: Vec<String> = ips.map(|at| at.ip().to_string()).collect();
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    names.extend(host.filter(|host| ServerName::try_from(host.as_str()).is_ok()));
    names.extend(["localhost", "127.0.0.1"].map(str::to_owned));
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_known_by_the_names_of_its_machine() {
        let names = names("192.0.2.7:7071".parse().unwrap());
        for name in ["192.0.2.7", "localhost", "127.0.0.1"] {
            assert!(names.iter().any(|other| other == name), "{names:?}");
        }
        assert!(names.iter().all(|name| ServerName::try_from(name.as_str()).is_ok()), "{names:?}");
    }

    #[test]
    fn an_address_or_a_certificate_that_can_not_be_had_is_told_before_anything_begins() {
        let taken = Port::bind("127.0.0.1:0".parse().unwrap(), None).unwrap();
        assert!(matches!(Port::bind(taken.address, None), Err(HttpError::Listen { .. })));
        let none = Files { certificate: "/nowhere/a.pem".into(), key: "/nowhere/b.pem".into() };
        let refused = Port::bind("127.0.0.1:0".parse().unwrap(), Some(none));
        assert!(matches!(refused, Err(HttpError::Certificate(_))));
    }
}
