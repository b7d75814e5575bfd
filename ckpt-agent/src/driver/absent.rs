//! Peers that have departed: the far ends of their connections, held open and silent for as long as the
//! instance lives.
//!
//! Where the peer was the parent daemon of the process, what the process says goes to the job's daemon on this
//! machine, over a connection that is made at the first word: a daemon may wait for whoever has just
//! connected. Its answers go back. A refusal, an end or an error of that daemon is never passed on.

use protocol::task;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use ckpt_engine::proc::{children, descendants, read_text};
use ckpt_engine::split::standin;
use ckpt_engine::sys::sock_diag::{TcpEntry, tcp_sockets};

/// Bytes read at a time.
const PIECE: usize = 16 * 1024;
/// How long the daemon may take to take something.
const PATIENCE: Duration = Duration::from_secs(2);
/// TCP_LISTEN (include/net/tcp_states.h).
const LISTENING: u8 = 10;

/// Whom the words of a process are for.
pub struct LocalDaemon {
    /// The departed one's name.
    pub name: String,
    /// Whether the process reached the departed one over the loopback.
    pub loopback: bool,
    /// Asks for the inits of the job's other instances on this machine, as it numbers them.
    pub ask: Box<dyn Fn(oneshot::Sender<Vec<i32>>) + Send + Sync>,
}

/// All departed peers of an instance. Dropped, they are closed.
#[derive(Debug, Default)]
pub struct Absent {
    tasks: Vec<JoinHandle<()>>,
    /// Connections to parent daemons.
    pub parents: usize,
    /// Those of them over which the process has said something.
    pub spoken: Arc<AtomicUsize>,
}

impl Drop for Absent {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Absent {
    /// Holds one end open.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub fn hold(&mut self, far: OwnedFd, daemon: Option<LocalDaemon>) -> std::io::Result<()> {
        let far = std::net::TcpStream::from(far);
        far.set_nonblocking(true)?;
        let far = TcpStream::from_std(far)?;
        self.parents += usize::from(daemon.is_some());
        let spoken = self.spoken.clone();
        self.tasks.push(task::spawn(async move {
            let mut far = far;
            listen(&mut far, daemon, &spoken).await;
            // Whatever the process has closed, this end stays open.
            std::future::pending::<()>().await;
            drop(far);
        }));
        Ok(())
    }
}

/// Takes what the process says, until it says nothing any more.
async fn listen(far: &mut TcpStream, daemon: Option<LocalDaemon>, spoken: &AtomicUsize) {
    let mut piece = vec![0; PIECE];
    // It has ended, or closed the connection, without a word.
    let Ok(length @ 1..) = far.read(&mut piece).await else { return };
    if let Some(daemon) = daemon {
        spoken.fetch_add(1, Ordering::Relaxed);
        let name = daemon.name.clone();
        match reach(daemon).await {
            Some(mut stream) => converse(far, &mut stream, &piece[..length]).await,
            None => tracing::info!(name, "no daemon of the job takes its place here"),
        }
    }
    while let Ok(1..) = far.read(&mut piece).await {}
}

/// Carries until the daemon has had enough.
async fn converse(far: &mut TcpStream, daemon: &mut TcpStream, first: &[u8]) {
    let (mut to_us, mut question) = (vec![0; PIECE], vec![0; PIECE]);
    if !matches!(timeout(PATIENCE, daemon.write_all(first)).await, Ok(Ok(()))) {
        return;
    }
    loop {
        tokio::select! {
            answer = daemon.read(&mut to_us) => match answer {
                Ok(length @ 1..) => {
                    if far.write_all(&to_us[..length]).await.is_err() {
                        return;
                    }
                }
                _ => return,
            },
            asked = far.read(&mut question) => match asked {
                Ok(length @ 1..) => {
                    let told = timeout(PATIENCE, daemon.write_all(&question[..length])).await;
                    if !matches!(told, Ok(Ok(()))) {
                        return;
                    }
                }
                _ => return,
            },
        }
    }
}

async fn reach(daemon: LocalDaemon) -> Option<TcpStream> {
    let LocalDaemon { name, loopback, ask } = daemon;
    let (answer, inits) = oneshot::channel();
    ask(answer);
    let inits = inits.await.ok()?;
    let address = task::spawn_blocking(move || find(&name, loopback, &inits)).await.ok()??;
    timeout(PATIENCE, TcpStream::connect(address)).await.ok()?.ok()
}

/// Where the job's daemon on this machine listens: of the same name as the departed one, else the first
/// process of an instance that has children. With several listening sockets, one of the kind that was
/// used before, the lowest descriptor first.
fn find(name: &str, loopback: bool, inits: &[i32]) -> Option<std::net::SocketAddr> {
    let sockets = tcp_sockets().ok()?;
    let mut candidates: Vec<(bool, i32)> = Vec::new();
    for init in inits {
        for pid in descendants(*init).ok()? {
            let comm = read_text(&format!("/proc/{pid}/comm")).ok()?.unwrap_or_default();
            let comm = comm.trim_end();
            let has_children =
                children(pid, pid).ok()?.is_some_and(|children| !children.is_empty());
            if comm != standin::NAME && has_children {
                candidates.push((comm != name, pid));
            }
        }
    }
    candidates.sort_unstable();
    candidates.into_iter().find_map(|(_, pid)| listener(pid, loopback, &sockets))
}

fn listener(pid: i32, loopback: bool, sockets: &[TcpEntry]) -> Option<std::net::SocketAddr> {
    let mut found: Vec<(bool, i32, std::net::SocketAddr)> = Vec::new();
    for (fd, inode) in sockets_of(pid) {
        let entry = sockets.iter().find(|entry| entry.inode == inode && entry.state == LISTENING);
        if let Some(entry) = entry {
            let mut address = entry.local;
            let same = address.ip().to_canonical().is_loopback() == loopback;
            if address.ip().is_unspecified() {
                address.set_ip(match address.is_ipv4() {
                    true => std::net::Ipv4Addr::LOCALHOST.into(),
                    false => std::net::Ipv6Addr::LOCALHOST.into(),
                });
            }
            found.push((!same, fd, address));
        }
    }
    found.into_iter().min().map(|(.., address)| address)
}

/// Descriptors of a process that are sockets, with their inodes. None of one that has ended or that is
/// not ours to look at.
pub(super) fn sockets_of(pid: i32) -> Vec<(i32, u32)> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let fd = entry.file_name().to_str()?.parse().ok()?;
            let link = std::fs::read_link(entry.path()).ok()?;
            let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some((fd, inode.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewire::{AbsentOrder, without_peer};
    use std::io::{Read, Write};

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(test);
    }

    fn must_be_silent(native: &mut std::net::TcpStream) {
        native.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let silence = native.read(&mut [0]).unwrap_err();
        assert_eq!(silence.kind(), std::io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_departed_peer_takes_everything_and_never_answers() {
        run(async {
            let (native, far) = without_peer(&AbsentOrder::default()).unwrap();
            let mut absent = Absent::default();
            // A daemon that is nowhere to be found.
            let ask = Box::new(|answer: oneshot::Sender<Vec<i32>>| drop(answer.send(Vec::new())));
            let daemon = LocalDaemon { name: "none".to_owned(), loopback: true, ask };
            absent.hold(far, Some(daemon)).unwrap();
            let spoken = absent.spoken.clone();
            let process = task::spawn_blocking(move || {
                let mut native = std::net::TcpStream::from(native);
                native.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
                // More than any buffer holds.
                for _ in 0..200 {
                    native.write_all(&[7; 64 * 1024]).unwrap();
                }
                must_be_silent(&mut native);
                assert_eq!(spoken.load(Ordering::Relaxed), 1);
                // Not even to somebody who has said the last word.
                native.shutdown(std::net::Shutdown::Write).unwrap();
                must_be_silent(&mut native);
            });
            process.await.unwrap();
        });
    }

    #[test]
    fn a_daemon_that_hangs_up_is_not_heard_to_do_so() {
        run(async {
            let (native, far) = without_peer(&AbsentOrder::default()).unwrap();
            let daemon = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let address = daemon.local_addr().unwrap();
            let served = task::spawn_blocking(move || {
                let (mut stream, _) = daemon.accept().unwrap();
                let mut word = [0; 5];
                stream.read_exact(&mut word).unwrap();
                stream.write_all(&word).unwrap();
            });
            let process = task::spawn_blocking(move || {
                let mut native = std::net::TcpStream::from(native);
                native.write_all(b"hello").unwrap();
                let mut answer = [0; 5];
                native.read_exact(&mut answer).unwrap();
                assert_eq!(&answer, b"hello");
                native
            });
            let far = std::net::TcpStream::from(far);
            far.set_nonblocking(true).unwrap();
            let mut far = TcpStream::from_std(far).unwrap();
            let mut stream = TcpStream::connect(address).await.unwrap();
            let mut first = vec![0; PIECE];
            let length = far.read(&mut first).await.unwrap();
            // Ends because the daemon does.
            converse(&mut far, &mut stream, &first[..length]).await;
            served.await.unwrap();
            let mut native = process.await.unwrap();
            task::spawn_blocking(move || must_be_silent(&mut native)).await.unwrap();
        });
    }
}
