//! The checks that each request passes before anything is done for it.

use crate::token::{Sight, Tokens};
use hyper::header::{AUTHORIZATION, COOKIE, HOST, HeaderMap};
use hyper::http::uri::Authority;
use hyper::{Method, Request, StatusCode};

/// Why a request is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It wants something changed.
    Method,
    /// It is for another host: a page of elsewhere whose name has come to mean this machine (DNS rebinding), or none of
    /// a browser.
    Host,
}

impl Refusal {
    /// Status and text of the answer.
    pub fn answer(self) -> (StatusCode, &'static str) {
        match self {
            Self::Method => {
                (StatusCode::METHOD_NOT_ALLOWED, "this page only shows: GET and HEAD\n")
            }
            Self::Host => (
                StatusCode::MISDIRECTED_REQUEST,
                "this page is reached as 127.0.0.1, [::1] or localhost, by no other name; from another machine through \
                 ssh -L\n",
            ),
        }
    }
}

/// Checks what needs no secret.
pub fn check<B>(request: &Request<B>) -> Result<(), Refusal> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err(Refusal::Method);
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return Err(Refusal::Host) };
    let named = host.to_str().ok().is_some_and(is_own);
    // A target of the form of a proxy's names the host once more.
    let target = request.uri().authority().is_none_or(|host| is_own(host.as_str()));
    if named && target { Ok(()) } else { Err(Refusal::Host) }
}

/// Whether a host is this machine by a name that nobody else can give away. The port is another one at the end of a tunnel.
fn is_own(host: &str) -> bool {
    if host.contains('@') {
        return false;
    }
    let Ok(host) = host.parse::<Authority>() else { return false };
    let name = host.host();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || address.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

/// What a request may see: by its cookie, or by its secret as a bearer of it (RFC 6750).
pub fn sight(headers: &HeaderMap, tokens: &Tokens) -> Option<Sight> {
    if let Some(shown) = headers.get(AUTHORIZATION) {
        let (scheme, secret) = shown.to_str().ok()?.split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then(|| tokens.sight(secret.trim()))?;
    }
    let name = tokens.cookie_name();
    let cookies = headers.get_all(COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split(';'));
    let is_session = pairs.any(|pair| {
        let pair = pair.trim().split_once('=');
        pair.is_some_and(|(key, value)| key == name && tokens.is_session(value))
    });
    is_session.then_some(Sight::All)
}

/// The login in the query of a request's target, as in an address that was printed.
pub fn login_in_query(query: Option<&str>) -> Option<&str> {
    query?.split('&').find_map(|pair| pair.strip_prefix("login="))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, target: &str, hosts: &[&str]) -> Request<()> {
        let request = Request::builder().method(method).uri(target);
        hosts.iter().fold(request, |request, host| request.header(HOST, *host)).body(()).unwrap()
    }

    #[test]
    fn only_this_machines_own_names_are_hosts() {
        for host in ["127.0.0.1:7071", "localhost", "LOCALHOST:8080", "[::1]:7071", "127.0.0.1"] {
            assert_eq!(check(&request("GET", "/", &[host])), Ok(()), "{host}");
        }
        let wrong = [
            "evil.example:7071",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "evil.example@127.0.0.1",
            "10.0.0.1:7071",
            "0.0.0.0",
            "",
            "127.0.0.1, evil.example",
        ];
        for host in wrong {
            assert_eq!(check(&request("GET", "/", &[host])), Err(Refusal::Host), "{host}");
        }
        assert_eq!(check(&request("GET", "/", &[])), Err(Refusal::Host));
        let twice = request("GET", "/", &["localhost", "evil.example"]);
        assert_eq!(check(&twice), Err(Refusal::Host));
        let proxied = request("GET", "http://evil.example/", &["localhost"]);
        assert_eq!(check(&proxied), Err(Refusal::Host));
        assert_eq!(check(&request("POST", "/", &["localhost"])), Err(Refusal::Method));
    }

    #[test]
    fn a_secret_or_a_cookie_opens() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(dir.path()).unwrap();
        let seen = |name: &str, value: &str| {
            let mut headers = HeaderMap::new();
            let name = hyper::header::HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.insert(name, value.parse().unwrap());
            sight(&headers, &tokens)
        };
        let (secret, session) = (tokens.secret(), tokens.session());
        let metrics = std::fs::read_to_string(dir.path().join(crate::token::METRICS_FILE)).unwrap();
        assert_eq!(seen("authorization", &format!("Bearer {secret}")), Some(Sight::All));
        let of_metrics = format!("bearer {}", metrics.trim());
        assert_eq!(seen("authorization", &of_metrics), Some(Sight::Metrics));
        let name = tokens.cookie_name();
        let cookie = format!("a=b; {name}={session}; c=d");
        assert_eq!(seen("cookie", &cookie), Some(Sight::All));
        for (kind, value) in [
            ("authorization", format!("Basic {secret}")),
            ("authorization", secret.to_owned()),
            ("authorization", format!("Bearer {session}")),
            ("authorization", "Bearer ".to_owned()),
            ("cookie", format!("ckptd-0123={session}")),
            ("cookie", format!("{name}={secret}")),
            ("cookie", name.clone()),
        ] {
            assert_eq!(seen(kind, &value), None, "{value}");
        }
        assert_eq!(login_in_query(Some("a=b&login=xyz")), Some("xyz"));
        assert_eq!(login_in_query(Some("a=login=xyz")), None);
        assert_eq!(login_in_query(Some("token=xyz")), None);
    }
}
