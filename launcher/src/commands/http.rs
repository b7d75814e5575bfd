//! The page of a coordinator.

use super::{Context, print};
use crate::failure::Failure;
use ckptd_http::{HttpError, Port, Served};
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The address of a page, before there is anything to be shown.
#[derive(Debug)]
pub struct Page(Port);

impl Page {
    /// Takes the address, so that whoever can't have it hears of that before anything else begins.
    ///
    /// # Errors
    /// Where it can't be had.
    pub fn at(address: SocketAddr) -> Result<Self, Failure> {
        Port::bind(address).map(Self).map_err(failed)
    }

    /// Serves the page of a coordinator that runs now. Where that fails, its jobs are worth more than its page.
    pub fn serve(self, state: &Path) {
        match self.0.serve(state) {
            Ok(served) => drop(print(&told(&served, state, std::io::stdout().is_terminal()))),
            Err(error) => eprintln!("ckptd: {}; the coordinator runs without it", failed(error)),
        }
    }
}

fn failed(error: HttpError) -> Failure {
    Failure::of("serve the page", error)
}

/// `ckptd page`.
pub fn login(context: &Context, state: Option<PathBuf>) -> Result<(), Failure> {
    let state = context.coordinator(state);
    let address = ckptd_http::token::login_address(&state)
        .map_err(|error| Failure::of("make an address of the page", error))?;
    print(&format!("{address}\n"))
}

/// A login goes to somebody who looks, and into no journal.
fn told(served: &Served, state: &Path, somebody_looks: bool) -> String {
    let Served { url, login_url, metrics_token, .. } = served;
    let page = format!("ckptd page --state {}", state.display());
    if somebody_looks {
        return format!(
            "ckptd: the cluster's page: {login_url} (good once, for ten minutes; '{page}' prints another)\n"
        );
    }
    let metrics = metrics_token.display();
    format!(
        "ckptd: the cluster's page: {url}, to which '{page}' lets a browser in; metrics: {url}metrics, with the token in {metrics}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_told_to_people_alone() {
        let served = Served {
            url: "http://127.0.0.1:1/".into(),
            login_url: "http://127.0.0.1:1/?login=abc".into(),
            token: "/s/http.token".into(),
            metrics_token: "/s/metrics.token".into(),
        };
        assert!(told(&served, Path::new("/s"), true).contains("?login=abc"));
        let logged = told(&served, Path::new("/s"), false);
        assert!(!logged.contains("abc") && logged.contains("/s/metrics.token"), "{logged}");
    }
}
