//! What is served where.
//!
//! ```text
//! /              the page; with ?login=LOGIN: the cookie for it
//! /data          what the page shows, as JSON
//! /events        the same again and again, as server-sent events
//! /log?job=ID    the end of a job's log, as JSON
//! /metrics       for Prometheus
//! ```
//!
//! and what the page is made of, which is no secret.

use crate::gate::{self, Refusal};
use crate::limits;
use crate::metrics;
use crate::page;
use crate::token::{Sight, Tokens};
use crate::watch::Watch;
use bytes::Bytes;
use http_body_util::channel::{Channel, Sender};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::watch::Receiver;

/// The longest id of a job that is looked for, in characters of a query.
const LONGEST_ID: usize = 1024;

/// What every answer says: nothing comes from elsewhere, nothing goes elsewhere, nothing is kept.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

type Body = BoxBody<Bytes, Infallible>;
type Answer = Response<Body>;

/// What requests need.
#[derive(Debug)]
pub struct Context {
    tokens: Arc<Tokens>,
    watch: Watch,
}

impl Context {
    /// For a page.
    pub fn new(tokens: Arc<Tokens>, watch: Watch) -> Self {
        Self { tokens, watch }
    }

    /// Who may look.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// What looks at the cluster.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }
}

/// The answer to a request.
pub async fn answer<B>(context: &Context, request: &Request<B>) -> Answer {
    let mut answer = match gate::check(request) {
        Ok(()) => found(context, request).await,
        Err(refusal) => refused(refusal),
    };
    for (name, value) in HEADERS {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

async fn found<B>(context: &Context, request: &Request<B>) -> Answer {
    let (path, query) = (request.uri().path(), request.uri().query());
    if let Some((kind, content)) = page::asset(path) {
        return full(StatusCode::OK, kind, content);
    }
    let sight = gate::sight(request.headers(), &context.tokens);
    // HEAD changes nothing: it spends none.
    if let (&Method::GET, "/", Some(login)) = (request.method(), path, gate::login_in_query(query))
    {
        return logged_in(context, login, sight);
    }
    match (path, sight) {
        ("/metrics", Some(_)) => tell_metrics(context, request.headers()).await,
        (_, Some(Sight::Metrics)) => forbidden(),
        ("/", Some(Sight::All)) => {
            full(StatusCode::OK, HTML, page::whole(&context.watch.now().await))
        }
        ("/data", Some(Sight::All)) => {
            full(StatusCode::OK, JSON, context.watch.now().await.to_string())
        }
        ("/events", Some(Sight::All)) => events(context).await,
        ("/log", Some(Sight::All)) => log(context, query).await,
        ("/", None) => full(StatusCode::UNAUTHORIZED, HTML, page::login(false)),
        ("/data" | "/events" | "/log" | "/metrics", None) => unauthorized(),
        _ => full(StatusCode::NOT_FOUND, TEXT, "there is nothing here\n"),
    }
}

fn full(status: StatusCode, kind: &'static str, content: impl Into<Bytes>) -> Answer {
    let body = Full::new(content.into()).boxed();
    of(status, kind, body)
}

fn of(status: StatusCode, kind: &'static str, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

fn refused(refusal: Refusal) -> Answer {
    let (status, text) = refusal.answer();
    let mut answer = full(status, TEXT, text);
    if refusal == Refusal::Method {
        answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    answer
}

fn unauthorized() -> Answer {
    let mut answer =
        full(StatusCode::UNAUTHORIZED, TEXT, "a token is needed: see 'ckptd page --help'\n");
    let scheme = HeaderValue::from_static("Bearer realm=\"ckptd\"");
    answer.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
    answer
}

fn forbidden() -> Answer {
    full(StatusCode::FORBIDDEN, TEXT, "this token is for /metrics alone\n")
}

/// Gives a browser that has shown a login the cookie, and an address without the login. One that has the cookie comes back to an
/// address that it has opened before: it goes on to the page.
fn logged_in(context: &Context, login: &str, sight: Option<Sight>) -> Answer {
    if sight != Some(Sight::All) && !context.tokens.let_in(login) {
        return full(StatusCode::FORBIDDEN, HTML, page::login(true));
    }
    let (name, session) = (context.tokens.cookie_name(), context.tokens.session());
    let cookie = format!("{name}={session}; Path=/; HttpOnly; SameSite=Strict");
    let mut answer = full(StatusCode::SEE_OTHER, TEXT, "");
    // Hexadecimal digits are fit for a header.
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        answer.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    answer.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/"));
    answer
}

async fn tell_metrics(context: &Context, headers: &HeaderMap) -> Answer {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let open = accepted.into_iter().any(|value| value.contains("application/openmetrics-text"));
    match context.watch.metrics().await {
        Ok(text) if open => full(StatusCode::OK, OPEN_METRICS, text),
        Ok(text) => full(StatusCode::OK, METRICS, metrics::older(&text)),
        Err(error) => full(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{error}\n")),
    }
}

async fn events(context: &Context) -> Answer {
    if context.watch.streams() >= limits::STREAMS {
        let text = "too many pages are open: close one\n";
        return full(StatusCode::SERVICE_UNAVAILABLE, TEXT, text);
    }
    let stream = context.watch.stream();
    let first = Bytes::from(format!("data: {}\n\n", context.watch.now().await));
    let (to, body) = Channel::new(1);
    protocol::task::spawn(tell(first, stream, to));
    of(StatusCode::OK, EVENTS, body.boxed())
}

/// Tells a browser what is new, until it goes. Of what comes while it is slow it hears the newest.
async fn tell(first: Bytes, mut stream: Receiver<Bytes>, mut to: Sender<Bytes, Infallible>) {
    stream.mark_unchanged();
    let mut next = first;
    while to.send_data(next).await.is_ok() {
        next = match tokio::time::timeout(limits::PULSE, stream.changed()).await {
            Ok(Ok(())) => stream.borrow_and_update().clone(),
            Ok(Err(_)) => return,
            Err(_) => Bytes::from_static(b":\n\n"),
        };
    }
}

async fn log(context: &Context, query: Option<&str>) -> Answer {
    let job = query.and_then(|query| query.strip_prefix("job=")).and_then(decoded);
    let Some(job) = job else {
        return full(StatusCode::BAD_REQUEST, TEXT, "which job? /log?job=ID\n");
    };
    match context.watch.log(&job).await {
        Ok(part) => {
            let text = String::from_utf8_lossy(&part.bytes);
            // A line whose beginning is not there is left out.
            let whole = match text.find('\n') {
                Some(end) if part.start > 0 => &text[end + 1..],
                _ => &text,
            };
            let told = json!({ "start": part.start, "length": part.length, "text": whole });
            full(StatusCode::OK, JSON, told.to_string())
        }
        Err(error) => {
            full(StatusCode::NOT_FOUND, TEXT, format!("failed to read the log: {error}\n"))
        }
    }
}

/// A part of a query without its escapes (RFC 3986, 2.1).
fn decoded(text: &str) -> Option<String> {
    if text.len() > LONGEST_ID {
        return None;
    }
    let mut bytes = text.bytes();
    let mut found = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        found.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                let digits = digits.map(|digit| char::from(digit).to_digit(16));
                u8::try_from(digits[0]? * 16 + digits[1]?).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(found).ok()
}

#[cfg(test)]
mod tests;
