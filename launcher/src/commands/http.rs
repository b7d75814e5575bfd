//! The page of a coordinator.

use crate::failure::Failure;
use ckptd_http::{HttpError, Port, Served};
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::Path;

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
            Ok(served) => drop(super::print(&told(&served, std::io::stdout().is_terminal()))),
            Err(error) => eprintln!("ckptd: {}; the coordinator runs without it", failed(error)),
        }
    }
}

fn failed(error: HttpError) -> Failure {
    Failure::of("serve the page", error)
}

/// The secret goes to somebody who looks, and into no journal.
fn told(served: &Served, somebody_looks: bool) -> String {
    if somebody_looks {
        return format!("ckptd: the cluster's page: {}\n", served.secret_url);
    }
    format!(
        "ckptd: the cluster's page: {}?token=TOKEN with the token in {}; metrics: {}metrics, with the one in {}\n",
        served.url,
        served.token.display(),
        served.url,
        served.metrics_token.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_told_to_people_alone() {
        let served = Served {
            url: "http://127.0.0.1:1/".into(),
            secret_url: "http://127.0.0.1:1/?token=abc".into(),
            token: "/s/http.token".into(),
            metrics_token: "/s/metrics.token".into(),
        };
        assert!(told(&served, true).contains("?token=abc"));
        let logged = told(&served, false);
        assert!(!logged.contains("abc") && logged.contains("/s/http.token"), "{logged}");
    }
}
