//! Connections: how many, and how long each may take.

use crate::certificate::Tls;
use crate::limits;
use crate::routes::{Context, answer};
use crate::strangers::{Stranger, Strangers};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Duration, Instant, Sleep};
use tokio_rustls::TlsAcceptor;

/// What is waited for when the system has no descriptor left for a connection.
const SHORT: Duration = Duration::from_millis(100);

/// What connections may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// How many there are at a time; others wait.
    pub connections: usize,
    /// How many of them there are at a time over which no secret was shown; of more the oldest are ended.
    pub strangers: usize,
    /// For how long the head of a request may be on its way.
    pub idle: Duration,
    /// For how long a client may take nothing of what is sent to it.
    pub stalled: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let (connections, strangers) = (limits::CONNECTIONS, limits::STRANGERS);
        Self { connections, strangers, idle: limits::IDLE, stalled: limits::STALLED }
    }
}

/// Serves for ever. `tls`: what is spoken where other machines can connect.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    context: Arc<Context>,
    patience: Patience,
) {
    let look = Arc::clone(&context);
    protocol::task::spawn(async move { look.watch().run().await });
    let places = Arc::new(Semaphore::new(patience.connections));
    let strangers = Strangers::new(patience.strangers);
    loop {
        // It is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, from)) = listener.accept().await else {
            tokio::time::sleep(SHORT).await;
            continue;
        };
        let context = Arc::clone(&context);
        let tls = tls.as_ref().map(|tls| tls.acceptor(std::time::Instant::now()));
        let (stranger, left) = strangers.enter(from.ip());
        protocol::task::spawn(async move {
            let _place = place;
            let guest = Guest { context, from: from.ip(), stranger, patience };
            let talk = async {
                match tls {
                    None => guest.talk(stream).await,
                    Some(tls) => guest.talk_tls(stream, tls).await,
                }
            };
            tokio::select! {
                biased;
                // A browser that goes away is no fault of anybody's.
                _ = tokio::time::timeout(limits::LIFE, talk) => {}
                // One that is known is never told to leave.
                Ok(()) = left => {}
            }
        });
    }
}

/// Who has connected.
struct Guest {
    context: Arc<Context>,
    from: IpAddr,
    stranger: Stranger,
    patience: Patience,
}

impl Guest {
    async fn talk_tls(self, stream: TcpStream, tls: TlsAcceptor) -> io::Result<()> {
        let idle = self.patience.idle;
        let mut first = [0];
        tokio::time::timeout(idle, stream.peek(&mut first)).await??;
        if first[0].is_ascii_uppercase() {
            return refuse_plain(stream, idle).await;
        }
        let stream = tokio::time::timeout(idle, tls.accept(stream)).await??;
        self.talk(stream).await
    }

    async fn talk<S: AsyncRead + AsyncWrite + Unpin>(self, stream: S) -> io::Result<()> {
        let Self { context, from, stranger, patience } = self;
        let stranger = Arc::new(stranger);
        let service = service_fn(move |request: Request<Incoming>| {
            let (context, stranger) = (Arc::clone(&context), Arc::clone(&stranger));
            async move {
                let known = || stranger.is_known();
                Ok::<_, std::convert::Infallible>(answer(&context, from, known, request).await)
            }
        });
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(patience.idle)
            .max_buf_size(limits::HEAD)
            .max_headers(limits::HEADERS)
            .serve_connection(TokioIo::new(Watched::new(stream, patience.stalled)), service)
            .await
            .map_err(io::Error::other)
    }
}

/// Tells somebody that does not speak TLS.
async fn refuse_plain(mut stream: TcpStream, limit: Duration) -> io::Result<()> {
    let text = "this page is reached by https: write https:// before the address\n";
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{text}",
        text.len()
    );
    tokio::time::timeout(limit, async {
        // Its request is taken first: what is not taken would have the answer thrown away.
        let mut head = vec![0; limits::HEAD];
        let _ = stream.read(&mut head).await?;
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    })
    .await?
}

/// A connection that fails when its client takes nothing for some time.
struct Watched<S> {
    stream: S,
    limit: Duration,
    /// Runs while something waits to be taken.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Watched<S> {
    fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, stalled: None }
    }

    /// What came of an attempt to write; the first that has to wait begins the time.
    fn judge<T>(
        &mut self,
        context: &mut std::task::Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let until = Instant::now() + self.limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.judge(context, written)
    }

    fn poll_flush(
        self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        this.judge(context, flushed)
    }

    fn poll_shutdown(
        self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shut = Pin::new(&mut this.stream).poll_shutdown(context);
        this.judge(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::Files;
    use crate::token::Tokens;
    use crate::watch::Watch;

    /// A page of a coordinator that is not there, and its address.
    async fn page(patience: Patience) -> (std::net::SocketAddr, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(dir.path()).unwrap();
        let address = serve_at(dir.path(), tokens, None, patience).await;
        (address, dir)
    }

    async fn serve_at(
        dir: &std::path::Path,
        tokens: Tokens,
        tls: Option<Tls>,
        patience: Patience,
    ) -> std::net::SocketAddr {
        let watch = Watch::new(dir).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(
            listener,
            tls.map(Arc::new),
            Arc::new(Context::new(tokens, watch)),
            patience,
        ));
        address
    }

    #[tokio::test]
    async fn where_others_can_connect_there_is_tls_alone() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::own(dir.path(), &["localhost".to_owned()]).unwrap();
        let tls = Some(Tls::of(files).unwrap());
        let tokens = Tokens::open(dir.path()).unwrap().remote();
        let patience = Patience { idle: Duration::from_millis(300), ..Patience::default() };
        let address = serve_at(dir.path(), tokens, tls, patience).await;
        let plain = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let answer = say(address, plain).await;
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("https://"), "{answer}");
        // A handshake that goes no further ends.
        let answer = say(address, b"\x16\x03\x01\x02").await;
        assert!(!answer.contains("HTTP"), "{answer}");
        assert_eq!(say(address, b"").await, "");
        let trusted = std::fs::read_to_string(dir.path().join("http-certificate.pem")).unwrap();
        let request = b"GET /icon.svg HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let answer = say_tls(address, &trusted, request).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    /// The same over TLS, to one whose certificate is that.
    async fn say_tls(address: std::net::SocketAddr, trusted: &str, bytes: &[u8]) -> String {
        use rustls::pki_types::pem::PemObject;
        use rustls::pki_types::{CertificateDer, ServerName};
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(trusted.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = connector.connect(name, stream).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    async fn say(address: std::net::SocketAddr, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // It may be refused before it has said everything.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[tokio::test]
    async fn long_heads_are_refused() {
        let (address, _dir) = page(Patience::default()).await;
        let start = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
        let answer = say(address, format!("{start}\r\n").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        let long = format!("{start}X: {}\r\n\r\n", "x".repeat(2 * limits::HEAD));
        let answer = say(address, long.as_bytes()).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
        let many = "X: x\r\n".repeat(2 * limits::HEADERS);
        let answer = say(address, format!("{start}{many}\r\n").as_bytes()).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
        for nonsense in ["GET\r\n\r\n", "\x16\x03\x01\x02\0\x01\0\x01\r\n\r\n"] {
            let answer = say(address, nonsense.as_bytes()).await;
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
        }
    }

    #[tokio::test]
    async fn who_says_nothing_makes_room_in_the_end() {
        let patience =
            Patience { connections: 2, idle: Duration::from_millis(50), ..Patience::default() };
        let (address, _dir) = page(patience).await;
        let mut silent = Vec::new();
        for _ in 0..patience.connections {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let request = b"GET /icon.svg HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let answer = say(address, request).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        for mut stream in silent {
            let mut answer = Vec::new();
            // It ends.
            let _ = stream.read_to_end(&mut answer).await;
        }
    }

    #[tokio::test]
    async fn who_knows_the_secret_comes_in_and_stays() {
        let patience = Patience { connections: 4, strangers: 2, ..Patience::default() };
        let (address, dir) = page(patience).await;
        let secret = std::fs::read_to_string(dir.path().join(crate::token::FILE)).unwrap();
        let mut silent = Vec::new();
        for _ in 0..8 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let request = |path: &str| {
            let bearer = secret.trim();
            format!(
                "HEAD {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {bearer}\r\n\r\n"
            )
        };
        let mut known = TcpStream::connect(address).await.unwrap();
        let mut answer = [0; 12];
        for _ in 0..3 {
            known.write_all(request("/nothing").as_bytes()).await.unwrap();
            known.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"HTTP/1.1 404");
            // What is left of the answer.
            let mut rest = [0; 4096];
            assert!(known.read(&mut rest).await.unwrap() > 0);
            for _ in 0..8 {
                silent.push(TcpStream::connect(address).await.unwrap());
            }
        }
    }

    #[tokio::test]
    async fn who_takes_nothing_is_left() {
        let (near, _far) = tokio::io::duplex(16);
        let mut near = Watched::new(near, Duration::from_millis(20));
        let error = near.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
