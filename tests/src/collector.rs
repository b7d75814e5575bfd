//! A collector of OpenTelemetry: it takes spans by OTLP over HTTP, and keeps what it needs of them.

mod message;

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use message::{Message, Value};

/// How long one request may take.
const LIMIT: Duration = Duration::from_secs(20);

/// A span that has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Whose it is.
    pub service: String,
    /// What it is called.
    pub name: String,
    /// The trace that it belongs to.
    pub trace: Vec<u8>,
    /// Its number.
    pub id: Vec<u8>,
    /// That of the span around it, if any.
    pub parent: Vec<u8>,
    /// What is said of it, numbers as text.
    pub attributes: BTreeMap<String, String>,
    /// Nanoseconds since 1970.
    pub from: u64,
    /// The same.
    pub to: u64,
}

/// What has arrived.
#[derive(Debug, Default)]
struct Arrived {
    spans: Vec<Span>,
    /// What each request said of itself: its first line and its headers.
    requests: Vec<String>,
    /// What could not be understood.
    wrong: Vec<String>,
}

/// A collector that listens on this machine.
#[derive(Debug)]
pub struct Collector {
    port: u16,
    arrived: Arc<Mutex<Arrived>>,
}

impl Collector {
    /// Listens. It ends with the process.
    ///
    /// # Errors
    /// No port, or no thread.
    pub fn listen() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let arrived = Arc::<Mutex<Arrived>>::default();
        let own = arrived.clone();
        std::thread::Builder::new().name("collector".into()).spawn(move || {
            for stream in listener.incoming().flatten() {
                let own = own.clone();
                std::thread::spawn(move || {
                    if let Err(error) = serve(&stream, &own) {
                        lock(&own).wrong.push(error.to_string());
                    }
                });
            }
        })?;
        Ok(Self { port, arrived })
    }

    /// Where it is, as `OTEL_EXPORTER_OTLP_ENDPOINT` has it.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The spans until now.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        lock(&self.arrived).spans.clone()
    }

    /// What each request said of itself, until now.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        lock(&self.arrived).requests.clone()
    }

    /// What could not be understood, until now.
    #[must_use]
    pub fn wrong(&self) -> Vec<String> {
        lock(&self.arrived).wrong.clone()
    }
}

fn lock(arrived: &Mutex<Arrived>) -> std::sync::MutexGuard<'_, Arrived> {
    arrived.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes one request after the other, each with a Content-Length.
fn serve(stream: &TcpStream, arrived: &Mutex<Arrived>) -> io::Result<()> {
    stream.set_read_timeout(Some(LIMIT))?;
    let mut reader = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
            if line.trim_end().is_empty() {
                break;
            }
            head += &line;
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let spans = spans(&body);
        let mut arrived = lock(arrived);
        arrived.requests.push(head);
        match spans {
            Some(spans) => arrived.spans.extend(spans),
            None => arrived.wrong.push(format!("{length} bytes that are no spans")),
        }
        drop(arrived);
        let mut stream = stream;
        let answer =
            "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(answer.as_bytes())?;
    }
}

/// The spans of an `ExportTraceServiceRequest` (opentelemetry/proto/collector/trace/v1/trace_service.proto).
fn spans(body: &[u8]) -> Option<Vec<Span>> {
    let mut all = Vec::new();
    for resource_spans in Message::read(body)?.messages(1)? {
        let resource = resource_spans.messages(1)?;
        let attributes = resource.first().map_or(Some(BTreeMap::new()), |r| attributes(r, 1))?;
        let service = attributes.get("service.name").cloned().unwrap_or_default();
        for scope_spans in resource_spans.messages(2)? {
            for span in scope_spans.messages(2)? {
                all.push(of(&span, &service)?);
            }
        }
    }
    Some(all)
}

/// A `Span` (opentelemetry/proto/trace/v1/trace.proto).
fn of(span: &Message<'_>, service: &str) -> Option<Span> {
    let bytes = |field| span.bytes(field).map(<[u8]>::to_vec).unwrap_or_default();
    Some(Span {
        service: service.to_owned(),
        name: String::from_utf8(bytes(5)).ok()?,
        trace: bytes(1),
        id: bytes(2),
        parent: bytes(4),
        attributes: attributes(span, 9)?,
        from: span.number(7)?,
        to: span.number(8)?,
    })
}

/// Those in that field: each a key and an `AnyValue` (opentelemetry/proto/common/v1/common.proto).
fn attributes(of: &Message<'_>, field: u64) -> Option<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for pair in of.messages(field)? {
        let key = String::from_utf8(pair.bytes(1)?.to_vec()).ok()?;
        let value = pair.messages(2)?;
        let text = match value.first()?.fields().first() {
            Some((1, Value::Bytes(text))) => String::from_utf8_lossy(text).into_owned(),
            // A truth value, or a number with a sign.
            Some((2 | 3, Value::Number(number))) => {
                i64::from_ne_bytes(number.to_ne_bytes()).to_string()
            }
            other => format!("{other:?}"),
        };
        all.insert(key, text);
    }
    Some(all)
}
