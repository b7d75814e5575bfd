//! Connections: how many, and how long each may take.

use crate::limits;
use crate::routes::{Context, answer};
use crate::token::Tokens;
use crate::watch::Watch;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Duration, Instant, Sleep};

/// What is waited for when the system has no descriptor left for a connection.
const SHORT: Duration = Duration::from_millis(100);

/// Serves for ever.
pub async fn serve(listener: TcpListener, tokens: Arc<Tokens>, watch: Watch) {
    let port = listener.local_addr().map_or(0, |address| address.port());
    let context = Arc::new(Context::new(port, tokens, watch));
    let look = Arc::clone(&context);
    protocol::task::spawn(async move { look.watch().run().await });
    let places = Arc::new(Semaphore::new(limits::CONNECTIONS));
    loop {
        // It is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(SHORT).await;
            continue;
        };
        let context = Arc::clone(&context);
        protocol::task::spawn(async move {
            let _place = place;
            // A browser that goes away is no fault of anybody's.
            let _ = tokio::time::timeout(limits::LIFE, talk(stream, context)).await;
        });
    }
}

async fn talk(stream: TcpStream, context: Arc<Context>) -> hyper::Result<()> {
    let service = service_fn(move |request| {
        let context = Arc::clone(&context);
        async move { Ok::<_, std::convert::Infallible>(answer(&context, &request).await) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::IDLE)
        .max_buf_size(limits::HEAD)
        .max_headers(limits::HEADERS)
        .serve_connection(TokioIo::new(Watched::new(stream)), service)
        .await
}

/// A connection that fails when its client takes nothing for [`limits::STALLED`].
struct Watched<S> {
    stream: S,
    /// Runs while something waits to be taken.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Watched<S> {
    fn new(stream: S) -> Self {
        Self { stream, stalled: None }
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
        let stalled = self.stalled.get_or_insert_with(|| {
            Box::pin(tokio::time::sleep_until(Instant::now() + limits::STALLED))
        });
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
    use tokio::io::AsyncWriteExt;

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_left() {
        let (near, _far) = tokio::io::duplex(16);
        let mut near = Watched::new(near);
        let error = near.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_slowly_is_not() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut near = Watched::new(near);
        let reader = tokio::spawn(async move {
            let mut taken = 0;
            while taken < 64 {
                tokio::time::sleep(limits::STALLED / 2).await;
                let mut piece = [0; 16];
                taken += tokio::io::AsyncReadExt::read(&mut far, &mut piece).await.unwrap();
            }
        });
        near.write_all(&[0; 64]).await.unwrap();
        reader.await.unwrap();
    }
}
