//! The checks that each request passes before anything is done for it.

use crate::token::{Tokens, Visitor};
use hyper::header::{AUTHORIZATION, COOKIE, HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::http::uri::Authority;
use hyper::{Method, Request, StatusCode};

/// What is ordered: by POST alone.
pub const ORDERS: [&str; 3] = ["/login", "/logout", "/order"];
/// What the page's own scripts show with an order.
pub const ORDER_SECRET: HeaderName = HeaderName::from_static("x-ckptd-order");
/// Where a request comes from, as browsers say by themselves (Fetch Metadata).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Why a request is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It wants something changed that the page does not change.
    Method,
    /// It is for another host: a page of elsewhere whose name has come to mean this machine (DNS rebinding), or none of
    /// a browser.
    Host,
    /// It wants an order obeyed, and comes from a page of elsewhere.
    Elsewhere,
}

impl Refusal {
    /// Status and text of the answer.
    pub fn answer(self) -> (StatusCode, &'static str) {
        match self {
            Self::Method => (
                StatusCode::METHOD_NOT_ALLOWED,
                "this page only shows: GET and HEAD; orders go to /order, by POST\n",
            ),
            Self::Host => (
                StatusCode::MISDIRECTED_REQUEST,
                "this page is reached as 127.0.0.1, [::1] or localhost, by no other name; from another machine through \
                 ssh -L\n",
            ),
            Self::Elsewhere => (StatusCode::FORBIDDEN, "orders come from this page alone\n"),
        }
    }
}

/// Checks what needs no secret. `is_remote`: whether other machines can connect, and know this one by names of their own.
pub fn check<B>(request: &Request<B>, is_remote: bool) -> Result<(), Refusal> {
    let is_order = ORDERS.contains(&request.uri().path());
    match *request.method() {
        Method::POST if is_order => {}
        Method::GET | Method::HEAD if !is_order => {}
        _ => return Err(Refusal::Method),
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return Err(Refusal::Host) };
    let is_right = |host: &str| if is_remote { is_host(host) } else { is_own(host) };
    let host = host.to_str().ok().filter(|host| is_right(host)).ok_or(Refusal::Host)?;
    // A target of the form of a proxy's names the host once more.
    if !request.uri().authority().is_none_or(|other| is_right(other.as_str())) {
        return Err(Refusal::Host);
    }
    if is_order && !is_of_this_page(request.headers(), host, is_remote) {
        return Err(Refusal::Elsewhere);
    }
    Ok(())
}

/// Whether a request comes from the page itself, or from no browser. Behind a proxy the host has another name than the browser
/// knows, but that says itself where a request comes from.
fn is_of_this_page(headers: &HeaderMap, host: &str, is_remote: bool) -> bool {
    if let Some(from) = headers.get(FETCH_SITE) {
        return from == "same-origin";
    }
    let scheme = if is_remote { "https" } else { "http" };
    headers.get(ORIGIN).is_none_or(|origin| {
        origin
            .to_str()
            .is_ok_and(|origin| origin.eq_ignore_ascii_case(&format!("{scheme}://{host}")))
    })
}

/// Whether it is a host at all.
fn is_host(host: &str) -> bool {
    !host.contains('@') && host.parse::<Authority>().is_ok_and(|host| !host.host().is_empty())
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

/// Who asks: known by a cookie, or by a secret as a bearer of it (RFC 6750).
pub fn visitor(headers: &HeaderMap, tokens: &Tokens) -> Option<Visitor> {
    if let Some(shown) = headers.get(AUTHORIZATION) {
        let (scheme, secret) = shown.to_str().ok()?.split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then(|| tokens.bearer(secret.trim()))?;
    }
    let name = tokens.cookie_name();
    let cookies = headers.get_all(COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split(';'));
    pairs.find_map(|pair| {
        let (key, value) = pair.trim().split_once('=')?;
        if key == name { tokens.browser(value) } else { None }
    })
}

/// Whether an order of somebody's is its own: what a browser sends by itself does not suffice.
pub fn is_meant(headers: &HeaderMap, visitor: &Visitor) -> bool {
    let Some(secret) = visitor.order_secret() else { return true };
    let shown = headers.get(ORDER_SECRET).map_or(&b""[..], |shown| shown.as_bytes());
    // blake3's hashes are compared in constant time.
    blake3::hash(shown) == blake3::hash(secret.as_bytes())
}

/// The login in the query of a request's target, as in an address that was printed.
pub fn login_in_query(query: Option<&str>) -> Option<&str> {
    query?.split('&').find_map(|pair| pair.strip_prefix("login="))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::role::Role;

    fn request(method: &str, target: &str, hosts: &[&str]) -> Request<()> {
        let request = Request::builder().method(method).uri(target);
        hosts.iter().fold(request, |request, host| request.header(HOST, *host)).body(()).unwrap()
    }

    #[test]
    fn only_this_machines_own_names_are_hosts() {
        for host in ["127.0.0.1:7071", "localhost", "LOCALHOST:8080", "[::1]:7071", "127.0.0.1"] {
            assert_eq!(check(&request("GET", "/", &[host]), false), Ok(()), "{host}");
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
            assert_eq!(check(&request("GET", "/", &[host]), false), Err(Refusal::Host), "{host}");
        }
        assert_eq!(check(&request("GET", "/", &[]), false), Err(Refusal::Host));
        let twice = request("GET", "/", &["localhost", "evil.example"]);
        assert_eq!(check(&twice, false), Err(Refusal::Host));
        let proxied = request("GET", "http://evil.example/", &["localhost"]);
        assert_eq!(check(&proxied, false), Err(Refusal::Host));
        assert_eq!(check(&request("POST", "/", &["localhost"]), false), Err(Refusal::Method));
    }

    #[test]
    fn other_machines_know_this_one_by_other_names() {
        for host in ["head.example:7071", "10.0.0.1", "[2001:db8::1]:7071"] {
            assert_eq!(check(&request("GET", "/", &[host]), true), Ok(()), "{host}");
        }
        for host in ["", "a@head.example", "head.example, evil.example", ":7071"] {
            assert_eq!(check(&request("GET", "/", &[host]), true), Err(Refusal::Host), "{host}");
        }
    }

    #[test]
    fn orders_come_from_the_page_itself() {
        let ordered = |method: &str, shown: &[(&str, &str)]| {
            let mut request = request(method, "/order", &["head.example:7071"]);
            for (name, value) in shown {
                let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
                request.headers_mut().insert(name, value.parse().unwrap());
            }
            check(&request, true)
        };
        let own = ("origin", "https://head.example:7071");
        for right in [&[][..], &[own], &[("sec-fetch-site", "same-origin"), ("origin", "null")]] {
            assert_eq!(ordered("POST", right), Ok(()), "{right:?}");
        }
        for wrong in [
            &[("origin", "https://evil.example")][..],
            &[("origin", "http://head.example:7071")],
            &[("origin", "null")],
            &[("sec-fetch-site", "same-site"), own],
            &[("sec-fetch-site", "cross-site"), own],
            &[("sec-fetch-site", "none"), own],
        ] {
            assert_eq!(ordered("POST", wrong), Err(Refusal::Elsewhere), "{wrong:?}");
        }
        for method in ["GET", "HEAD", "PUT", "OPTIONS"] {
            assert_eq!(ordered(method, &[own]), Err(Refusal::Method));
        }
    }

    #[test]
    fn a_secret_or_a_cookie_opens() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(dir.path()).unwrap();
        let seen = |name: &str, value: &str| {
            let mut headers = HeaderMap::new();
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.insert(name, value.parse().unwrap());
            visitor(&headers, &tokens).map(|visitor| visitor.sight.role)
        };
        let login = tokens.login_address("/").unwrap();
        let session = &tokens.let_in(login_in_query(login.strip_prefix("/?")).unwrap()).unwrap();
        let secret = tokens.secret();
        let metrics = std::fs::read_to_string(dir.path().join(crate::token::METRICS_FILE)).unwrap();
        assert_eq!(seen("authorization", &format!("Bearer {secret}")), Some(Role::Viewer));
        let of_metrics = format!("bearer {}", metrics.trim());
        assert_eq!(seen("authorization", &of_metrics), Some(Role::Metrics));
        let name = tokens.cookie_name();
        let cookie = format!("a=b; {name}={session}; c=d");
        assert_eq!(seen("cookie", &cookie), Some(Role::Viewer));
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

    #[test]
    fn a_browsers_order_shows_what_no_other_site_knows() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(dir.path()).unwrap();
        let login = tokens.login_address("/").unwrap();
        let cookie = tokens.let_in(login.strip_prefix("/?login=").unwrap()).unwrap();
        let browser = tokens.browser(&cookie).unwrap();
        let bearer = tokens.bearer(tokens.secret()).unwrap();
        let mut headers = HeaderMap::new();
        assert!(is_meant(&headers, &bearer) && !is_meant(&headers, &browser));
        headers.insert(ORDER_SECRET, cookie.parse().unwrap());
        assert!(!is_meant(&headers, &browser));
        headers.insert(ORDER_SECRET, browser.order_secret().unwrap().parse().unwrap());
        assert!(is_meant(&headers, &browser));
    }
}
