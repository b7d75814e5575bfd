//! What is served where.
//!
//! ```text
//! /              the page; with ?login=LOGIN: the cookie for it
//! /data          what the page shows, as JSON
//! /events        the same again and again, as server-sent events
//! /log?job=ID    the end of a job's log, as JSON
//! /metrics       for Prometheus
//! /login         by POST, token=TOKEN: the cookie for the page
//! /logout        by POST: the cookie ends
//! /order         by POST, what=checkpoint|drain|uncordon&about=JOB|NODE: of operators
//! ```
//!
//! and what the page is made of, which is no secret.

use crate::form::{Form, Sent, decoded};
use crate::gate::{self, Refusal};
use crate::limits;
use crate::metrics;
use crate::orders::Order;
use crate::page;
use crate::token::{Tokens, Visitor};
use crate::tries::Tries;
use crate::watch::Watch;
use bytes::Bytes;
use http_body_util::channel::{Channel, Sender};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch::Receiver;

/// What every answer says: nothing comes from elsewhere, nothing goes elsewhere, nothing is kept.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // Not none at all: browsers would not say either that an order comes from this page.
    (header::REFERRER_POLICY, "same-origin"),
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
    tokens: Tokens,
    watch: Watch,
    tries: Tries,
}

impl Context {
    /// For a page.
    pub fn new(tokens: Tokens, watch: Watch) -> Self {
        Self { tokens, watch, tries: Tries::default() }
    }

    /// What looks at the cluster.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// The answer to a wrong secret from that machine. A right one is taken whatever has come from there: whoever is on that
    /// machine, or behind the same address, could keep others out.
    fn wrong(&self, from: IpAddr, answer: Answer) -> Answer {
        if !self.tokens.is_remote() {
            return answer;
        }
        let now = Instant::now();
        match self.tries.closed(from, now) {
            Some(left) => too_many(left),
            None => {
                self.tries.wrong(from, now);
                answer
            }
        }
    }
}

/// The answer to a request from a machine. `known`: is called if it shows who sends it.
pub async fn answer<B: Sent>(
    context: &Arc<Context>,
    from: IpAddr,
    known: impl Fn(),
    request: Request<B>,
) -> Answer {
    let mut answer = match gate::check(&request, context.tokens.is_remote()) {
        Ok(()) => found(context, from, known, request).await,
        Err(refusal) => refused(refusal),
    };
    for (name, value) in HEADERS {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    // Over a connection that has shown a good secret before, a stranger stays no longer.
    if matches!(answer.status(), StatusCode::UNAUTHORIZED | StatusCode::TOO_MANY_REQUESTS) {
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

async fn found<B: Sent>(
    context: &Arc<Context>,
    from: IpAddr,
    known: impl Fn(),
    request: Request<B>,
) -> Answer {
    let (parts, body) = request.into_parts();
    let (path, query) = (parts.uri.path(), parts.uri.query());
    if let Some((kind, content)) = page::asset(path) {
        return full(StatusCode::OK, kind, content);
    }
    // HEAD changes nothing: it spends none.
    let is_login = parts.method == Method::GET && path == "/";
    let login = gate::login_in_query(query).filter(|_| is_login);
    let shows_token = parts.headers.contains_key(header::AUTHORIZATION);
    let visitor = gate::visitor(&parts.headers, &context.tokens);
    if visitor.is_some() {
        known();
    }
    if let Some(login) = login {
        return logged_in(context, from, login, visitor.as_ref());
    }
    if path == "/login" {
        return log_in(context, from, Form::read(body).await);
    }
    let Some(visitor) = visitor else {
        let answer = match path {
            "/" => full(StatusCode::UNAUTHORIZED, HTML, page::login(false)),
            "/data" | "/events" | "/log" | "/metrics" | "/order" | "/logout" => unauthorized(),
            _ => nothing(),
        };
        return if shows_token { context.wrong(from, answer) } else { answer };
    };
    if path == "/metrics" {
        return tell_metrics(context, &parts.headers).await;
    }
    if !visitor.sight.may_look() {
        return forbidden("this token is for /metrics alone\n");
    }
    match path {
        "/" => full(
            StatusCode::OK,
            HTML,
            page::whole(&context.watch.now(&visitor.sight).await, &visitor),
        ),
        "/data" => full(StatusCode::OK, JSON, context.watch.now(&visitor.sight).await.to_string()),
        "/events" => events(context, visitor).await,
        "/log" => log(context, query, &visitor).await,
        "/order" | "/logout" if !gate::is_meant(&parts.headers, &visitor) => {
            forbidden("orders come from this page alone: load it again\n")
        }
        "/order" => order(context, &visitor, Form::read(body).await).await,
        "/logout" => log_out(context, &visitor),
        _ => nothing(),
    }
}

fn nothing() -> Answer {
    full(StatusCode::NOT_FOUND, TEXT, "there is nothing here\n")
}

/// A machine has shown too many wrong secrets.
fn too_many(left: Duration) -> Answer {
    let seconds = left.as_secs() + 1;
    let text = format!("too many wrong tokens came from there: try again in {seconds} s\n");
    let mut answer = full(StatusCode::TOO_MANY_REQUESTS, TEXT, text);
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    answer
}

/// Gives a browser the cookie for a token that was typed.
fn log_in(context: &Context, from: IpAddr, form: Option<Form>) -> Answer {
    let token = form.as_ref().and_then(|form| form.get("token"));
    match token.and_then(|token| context.tokens.log_in(token.trim())) {
        Some(session) => with_cookie(context, &session),
        None => context.wrong(from, full(StatusCode::FORBIDDEN, HTML, page::login(true))),
    }
}

fn log_out(context: &Context, visitor: &Visitor) -> Answer {
    context.tokens.log_out(visitor);
    full(StatusCode::OK, TEXT, "logged out\n")
}

async fn order(context: &Context, visitor: &Visitor, form: Option<Form>) -> Answer {
    if !visitor.sight.may_act() {
        return forbidden("only operators order something: see 'ckptd page --help'\n");
    }
    let Some(order) = form.as_ref().and_then(Order::of) else {
        let text = "which order? what=checkpoint|drain|uncordon&about=JOB|NODE\n";
        return full(StatusCode::BAD_REQUEST, TEXT, text);
    };
    // What is sent with a request may take a while: its bearer's token can have been taken back since.
    if !context.tokens.still(visitor) {
        return unauthorized();
    }
    let (status, text) = context.watch.order(&order, &visitor.sight).await;
    full(status, TEXT, text)
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
        let allowed = HeaderValue::from_static("GET, HEAD, POST");
        answer.headers_mut().insert(header::ALLOW, allowed);
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

fn forbidden(why: &'static str) -> Answer {
    full(StatusCode::FORBIDDEN, TEXT, why)
}

/// Gives a browser that has shown a login the cookie, and leads it on to an address without the login. One that has the cookie
/// comes back to an address that it has opened before: it goes on to the page.
///
/// A page leads on, no redirection: what another site's page has led here sends no cookie with that (SameSite=Strict).
fn logged_in(context: &Context, from: IpAddr, login: &str, visitor: Option<&Visitor>) -> Answer {
    // Also where the browser has the cookie: others may find the address.
    if let Some(session) = context.tokens.let_in(login) {
        return with_cookie(context, &session);
    }
    if visitor.is_some_and(|visitor| visitor.is_browser() && visitor.sight.may_look()) {
        return full(StatusCode::OK, HTML, page::let_in());
    }
    context.wrong(from, full(StatusCode::FORBIDDEN, HTML, page::login(true)))
}

fn with_cookie(context: &Context, session: &str) -> Answer {
    let name = context.tokens.cookie_name();
    let secure = if context.tokens.is_remote() { "; Secure" } else { "" };
    let cookie = format!("{name}={session}; Path=/; HttpOnly; SameSite=Strict{secure}");
    let mut answer = full(StatusCode::OK, HTML, page::let_in());
    // Hexadecimal digits are fit for a header.
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        answer.headers_mut().insert(header::SET_COOKIE, cookie);
    }
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

async fn events(context: &Arc<Context>, visitor: Visitor) -> Answer {
    if context.watch.streams() >= limits::STREAMS {
        let text = "too many pages are open: close one\n";
        return full(StatusCode::SERVICE_UNAVAILABLE, TEXT, text);
    }
    let stream = context.watch.stream();
    let first = Bytes::from(format!("data: {}\n\n", context.watch.now(&visitor.sight).await));
    let (to, body) = Channel::new(1);
    let told = Told { context: Arc::clone(context), visitor };
    protocol::task::spawn(told.tell(first, stream, to));
    of(StatusCode::OK, EVENTS, body.boxed())
}

/// Somebody who is told what is new.
struct Told {
    context: Arc<Context>,
    visitor: Visitor,
}

impl Told {
    /// Tells a browser what is new, until it goes, or its token was taken back. Of what comes while it is slow it hears the
    /// newest.
    async fn tell(
        self,
        first: Bytes,
        mut stream: Receiver<Bytes>,
        mut to: Sender<Bytes, Infallible>,
    ) {
        stream.mark_unchanged();
        let mut next = first;
        while self.context.tokens.still(&self.visitor) && to.send_data(next).await.is_ok() {
            next = match tokio::time::timeout(limits::PULSE, stream.changed()).await {
                Ok(Ok(())) => self.news(&mut stream).await,
                Ok(Err(_)) => return,
                Err(_) => Bytes::from_static(b":\n\n"),
            };
        }
    }

    /// What all see who see all jobs; of others each sees its own.
    async fn news(&self, stream: &mut Receiver<Bytes>) -> Bytes {
        let of_all = stream.borrow_and_update().clone();
        match self.visitor.sight.user {
            None => of_all,
            Some(_) => {
                let own = self.context.watch.now(&self.visitor.sight).await;
                Bytes::from(format!("data: {own}\n\n"))
            }
        }
    }
}

async fn log(context: &Context, query: Option<&str>, visitor: &Visitor) -> Answer {
    let job = query.and_then(|query| query.strip_prefix("job=")).and_then(decoded);
    let Some(job) = job else {
        return full(StatusCode::BAD_REQUEST, TEXT, "which job? /log?job=ID\n");
    };
    let Some(read) = context.watch.log(&job, &visitor.sight).await else {
        return full(StatusCode::NOT_FOUND, TEXT, "failed to read the log: there is no such job\n");
    };
    match read {
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

#[cfg(test)]
mod tests;
