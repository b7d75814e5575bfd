//! Requests over HTTP, each done on the thread that asks for it.

use crate::resolving::{Hosts, cause};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// How long a request may take, unless the user says otherwise.
const LIMIT: Duration = Duration::from_secs(10);
/// How long a connection may take.
const CONNECTING: Duration = Duration::from_secs(5);
/// The longest answer that is read, in bytes.
const LONGEST: usize = 64 * 1024;

/// Why the last request came to nothing: the exporter's own error does not tell, so that no secret of the address gets out.
#[derive(Debug, Clone, Default)]
pub struct Reason(Arc<Mutex<Option<String>>>);

impl Reason {
    /// The reason, once.
    pub fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, reason: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
    }
}

/// A client with an event loop of its own, which only the thread that sends spans enters: reqwest's client without one
/// starts a thread, too, and what is made here may have been made before a thread may be started.
#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    /// Until it is dropped.
    events: Option<Runtime>,
    reason: Reason,
}

impl Drop for Client {
    fn drop(&mut self) {
        // A look-up of a host that lasts is not waited for.
        if let Some(events) = self.events.take() {
            events.shutdown_background();
        }
    }
}

impl Client {
    /// # Errors
    /// No descriptors for the event loop; certificates of authorities that can't be read.
    pub fn new(reason: Reason) -> io::Result<Self> {
        let http = reqwest::Client::builder()
            .user_agent(concat!("ckptd/", env!("CARGO_PKG_VERSION")))
            .timeout(limit())
            .connect_timeout(CONNECTING)
            .dns_resolver(Arc::new(Hosts))
            // Spans go where they are meant to go, with the headers that may be secret.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(io::Error::other)?;
        let events = Some(Builder::new_current_thread().enable_all().build()?);
        Ok(Self { http, events, reason })
    }

    fn send_or_say(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = self.send(request);
        match &answer {
            Ok(answer) if answer.status().is_success() => {}
            Ok(answer) => self.reason.set(format!("it answers {}", answer.status())),
            Err(error) => self.reason.set(cause(error.as_ref())),
        }
        answer
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let mut request = reqwest::Request::try_from(request.map(reqwest::Body::from))?;
        request.headers_mut().values_mut().for_each(|value| value.set_sensitive(true));
        let events = self.events.as_ref().ok_or_else(|| HttpError::from("it is at its end"))?;
        events.block_on(async {
            let mut answer =
                self.http.execute(request).await.map_err(reqwest::Error::without_url)?;
            let mut made = Response::builder().status(answer.status());
            for (name, value) in answer.headers() {
                made = made.header(name, value);
            }
            let mut body = Vec::new();
            while let Some(part) = answer.chunk().await.map_err(reqwest::Error::without_url)? {
                if body.len() + part.len() > LONGEST {
                    return Err(HttpError::from("the answer is too long"));
                }
                body.extend_from_slice(&part);
            }
            Ok(made.body(Bytes::from(body))?)
        })
    }
}

/// What `#[async_trait]` makes of an async method, whose macro nothing else of ckptd needs.
impl HttpClient for Client {
    fn send_bytes<'life0, 'async_trait>(
        &'life0 self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move { self.send_or_say(request) })
    }
}

fn limit() -> Duration {
    let value = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"]
        .iter()
        .find_map(|name| std::env::var(name).ok()?.parse().ok());
    value.map_or(LIMIT, Duration::from_millis)
}
