//! The page of a coordinator.

use super::{Context, print};
use crate::cli::{PageArguments, PageRole};
use crate::failure::Failure;
use crate::tables::table;
use crate::text::utc;
use ckptd_http::certificate::Files;
use ckptd_http::grants::{self, Grant, Wanted};
use ckptd_http::role::Role;
use ckptd_http::token::{TokenError, login_address};
use ckptd_http::{HttpError, Port, Served, Tells};
use protocol::clock::wall_ms;
use serde_json::json;
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
    /// Where it can't be had. `certificate`: the one that is shown there, and its key.
    pub fn at(
        address: SocketAddr,
        certificate: Option<(PathBuf, PathBuf)>,
    ) -> Result<Self, Failure> {
        let files = certificate.map(|(certificate, key)| Files { certificate, key });
        Port::bind(address, files).map(Self).map_err(failed)
    }

    /// Serves the page of a coordinator that runs now. Where that fails, its jobs are worth more than its page.
    /// `tells`: hears of its certificate.
    pub fn serve(self, state: &Path, tells: Tells) {
        match self.0.serve(state, tells) {
            Ok(served) => drop(print(&told(&served, state, std::io::stdout().is_terminal()))),
            Err(error) => eprintln!("ckptd: {}; the coordinator runs without it", failed(error)),
        }
    }
}

fn failed(error: HttpError) -> Failure {
    Failure::of("serve the page", error)
}

impl From<PageRole> for Role {
    fn from(role: PageRole) -> Self {
        match role {
            PageRole::Metrics => Self::Metrics,
            PageRole::Viewer => Self::Viewer,
            PageRole::Operator => Self::Operator,
        }
    }
}

/// `ckptd page`.
pub fn perform(context: &Context, arguments: PageArguments) -> Result<(), Failure> {
    let PageArguments { add, remove, list, role, user, valid, state, json } = arguments;
    let state = context.coordinator(state);
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: TokenError| Failure::of(what, error)
    };
    if let Some(name) = add {
        let wanted = wanted(name, role, user, valid)?;
        let token = grants::add(&state, wanted).map_err(failed("make a token of the page"))?;
        return print(&format!("{token}\n"));
    }
    if let Some(name) = remove {
        return grants::remove(&state, &name).map_err(failed("change the page's tokens"));
    }
    if list {
        let tokens = grants::list(&state).map_err(failed("list the page's tokens"))?;
        return print(&if json { as_json(&tokens) } else { as_table(&tokens, wall_ms()) });
    }
    if role == PageRole::Metrics {
        return Err(Failure::Usage(
            "wrong usage: a browser reads no metrics; for a token: --add NAME --role metrics"
                .to_owned(),
        ));
    }
    let address =
        login_address(&state, role.into()).map_err(failed("make an address of the page"))?;
    print(&format!("{address}\n"))
}

fn wanted(
    name: String,
    role: PageRole,
    user: Option<String>,
    valid: Option<std::time::Duration>,
) -> Result<Wanted, Failure> {
    if user.is_some() && role != PageRole::Viewer {
        return Err(Failure::Usage(
            "wrong usage: --user is for --role viewer: operators see all jobs, and metrics are of all".to_owned(),
        ));
    }
    let valid_ms = valid.map(|valid| u64::try_from(valid.as_millis()).unwrap_or(u64::MAX));
    Ok(Wanted { name, role: role.into(), user, valid_ms })
}

fn as_json(tokens: &[Grant]) -> String {
    let of = |token: &Grant| {
        let Grant { name, role, user, made_ms, until_ms, .. } = token;
        json!({"name": name, "role": role, "user": user, "made_ms": made_ms, "until_ms": until_ms})
    };
    let listed: Vec<_> = tokens.iter().map(of).collect();
    format!("{:#}\n", json!(listed))
}

fn as_table(tokens: &[Grant], now_ms: u64) -> String {
    if tokens.is_empty() {
        return "no tokens: 'ckptd page --add NAME' makes one\n".to_owned();
    }
    let until = |token: &Grant| match token.until_ms {
        None => "taken back".to_owned(),
        Some(until) if token.is_good(now_ms) => utc(until),
        Some(until) => format!("{} (over)", utc(until)),
    };
    let row = |token: &Grant| {
        let jobs = token.user.clone().unwrap_or_else(|| "all".to_owned());
        let made = utc(token.made_ms);
        vec![token.name.clone(), token.role.name().to_owned(), jobs, made, until(token)]
    };
    let heading = ["TOKEN", "ROLE", "JOBS", "MADE", "GOOD UNTIL"].map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(heading).chain(tokens.iter().map(row)).collect();
    table(&rows)
}

/// A login goes to somebody who looks, and into no journal.
fn told(served: &Served, state: &Path, somebody_looks: bool) -> String {
    let Served { url, login_url, metrics_token, fingerprint, .. } = served;
    let page = format!("ckptd page --state {}", state.display());
    let shown = fingerprint.as_ref().map_or_else(String::new, |fingerprint| {
        format!("ckptd: the page's certificate has the SHA-256 fingerprint {fingerprint}\n")
    });
    if somebody_looks {
        return format!(
            "ckptd: the cluster's page: {login_url} (good once, for ten minutes; '{page}' prints another)\n{shown}"
        );
    }
    let metrics = match metrics_token {
        Some(file) => format!("with the token in {}", file.display()),
        None => format!("with one of '{page} --add NAME --role metrics'"),
    };
    format!(
        "ckptd: the cluster's page: {url}, to which '{page}' lets a browser in; metrics: {url}metrics, {metrics}\n{shown}"
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
            metrics_token: Some("/s/metrics.token".into()),
            fingerprint: None,
        };
        assert!(told(&served, Path::new("/s"), true).contains("?login=abc"));
        let logged = told(&served, Path::new("/s"), false);
        assert!(!logged.contains("abc") && logged.contains("/s/metrics.token"), "{logged}");
        let remote = Served { metrics_token: None, fingerprint: Some("AB:CD".into()), ..served };
        let logged = told(&remote, Path::new("/s"), false);
        assert!(logged.contains("--role metrics") && logged.contains("AB:CD"), "{logged}");
    }

    #[test]
    fn one_users_jobs_are_for_viewers() {
        let user = || Some("alice".to_owned());
        for role in [PageRole::Metrics, PageRole::Operator] {
            assert!(wanted("a".into(), role, user(), None).is_err());
            assert!(wanted("a".into(), role, None, None).is_ok());
        }
        assert!(wanted("a".into(), PageRole::Viewer, user(), None).is_ok());
    }
}
