//! A thread of its own makes the log durable. On a slow disk, or a busy one, that takes seconds, in which agents must hear that the
//! coordinator is there: who hears nothing for the time of grace holds its part of the job.

use crate::server::job_logs;
use crate::server::shortening::{Draft, Outcome};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use tokio::sync::mpsc as news;

/// What it is asked for.
#[derive(Debug)]
pub enum Order {
    /// To make things durable.
    Sync(Sync),
    /// To put a shorter log in the place of the log.
    Exchange {
        /// The shorter one.
        draft: Draft,
        /// The log.
        log: Arc<File>,
        /// Its path.
        path: PathBuf,
        /// How long it is.
        end: u64,
    },
}

/// What has come of it.
#[derive(Debug)]
pub enum Done {
    /// All is durable, or perhaps nothing.
    Synced(io::Result<()>),
    /// There is another log, or not.
    Exchanged(Outcome),
}

impl Order {
    fn carry_out(self) -> Done {
        match self {
            Self::Sync(sync) => Done::Synced(sync.carry_out()),
            Self::Exchange { draft, log, path, end } => {
                Done::Exchanged(draft.exchange(&log, &path, end))
            }
        }
    }
}

/// What is to be durable together.
#[derive(Debug)]
pub struct Sync {
    /// Jobs' output, by the jobs' names: an entry may speak of it.
    pub outputs: Vec<(String, Arc<File>)>,
    /// The audit log, where it has new lines: who ordered what an entry decides.
    pub audit: Option<Arc<File>>,
    /// The log.
    pub log: Arc<File>,
}

impl Sync {
    fn carry_out(self) -> io::Result<()> {
        job_logs::sync(self.outputs);
        if let Some(Err(error)) = self.audit.map(|audit| audit.sync_data()) {
            tracing::error!("failed to write to the audit log: {error}");
        }
        self.log.sync_data()
    }
}

/// The thread, as the loop sees it. It does one thing at a time, for which a `T` waits.
#[derive(Debug)]
pub struct Disk<T> {
    orders: mpsc::Sender<Order>,
    done: news::UnboundedReceiver<Done>,
    finished: Option<Done>,
    waiting: Option<T>,
    /// Whether what was begun last is an exchange.
    is_exchange: bool,
    thread: Option<JoinHandle<()>>,
}

/// What still may replace the log ends before the folder is another coordinator's.
impl<T> Drop for Disk<T> {
    fn drop(&mut self) {
        if !self.is_exchanging() {
            return;
        }
        let (gone, _) = mpsc::channel();
        self.orders = gone;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl<T> Disk<T> {
    /// Starts it. It ends with this value, or once the disk has answered.
    ///
    /// # Errors
    /// No threads left.
    pub fn start() -> io::Result<Self> {
        let (orders, ordered) = mpsc::channel::<Order>();
        let (tell, done) = news::unbounded_channel();
        let thread = std::thread::Builder::new().name("log".into()).spawn(move || {
            while let Ok(order) = ordered.recv() {
                if tell.send(order.carry_out()).is_err() {
                    return;
                }
            }
        })?;
        let (finished, waiting, thread) = (None, None, Some(thread));
        Ok(Self { orders, done, finished, waiting, is_exchange: false, thread })
    }

    /// Begins what `waiting` is given back for. Called only while it [is not busy](Self::is_busy).
    pub fn begin(&mut self, order: Order, waiting: T) {
        self.waiting = Some(waiting);
        self.is_exchange = matches!(order, Order::Exchange { .. });
        if let Err(mpsc::SendError(order)) = self.orders.send(order) {
            // The thread is gone, whatever befell it: what it would have done is done here.
            self.finished = Some(order.carry_out());
        }
    }

    /// Whether something was begun and its end has not been heard.
    pub fn is_busy(&self) -> bool {
        self.waiting.is_some()
    }

    /// Whether another log takes the place of the log right now.
    pub fn is_exchanging(&self) -> bool {
        self.is_busy() && self.is_exchange
    }

    /// Waits until what was begun is done. Never ends if nothing was.
    pub async fn ready(&mut self) {
        if !self.is_busy() {
            std::future::pending::<()>().await;
        }
        if self.finished.is_none() {
            let done = self.done.recv().await;
            self.finished = Some(done.unwrap_or_else(|| ended(self.is_exchange)));
        }
    }

    /// How it went, once it is done, and what waited for it.
    pub fn take(&mut self) -> Option<(T, Done)> {
        if !self.is_busy() {
            return None;
        }
        let finished = self.finished.take().or_else(|| match self.done.try_recv() {
            Ok(result) => Some(result),
            Err(news::error::TryRecvError::Empty) => None,
            Err(news::error::TryRecvError::Disconnected) => Some(ended(self.is_exchange)),
        })?;
        Some((self.waiting.take()?, finished))
    }
}

fn ended(is_exchange: bool) -> Done {
    let error = io::Error::other("the thread that makes the log durable has ended");
    match is_exchange {
        true => Done::Exchanged(Outcome::Unsure(error)),
        false => Done::Synced(Err(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tells_once_when_it_is_done() {
        let mut disk = Disk::start().unwrap();
        assert!(disk.take().is_none());
        let log = Arc::new(tempfile::tempfile().unwrap());
        let outputs = vec![("job".into(), log.clone())];
        disk.begin(Order::Sync(Sync { outputs, audit: None, log: log.clone() }), ());
        disk.ready().await;
        assert!(matches!(disk.take(), Some(((), Done::Synced(Ok(()))))));
        assert!(disk.take().is_none());
        let sync = Sync { outputs: Vec::new(), audit: Some(log.clone()), log };
        disk.begin(Order::Sync(sync), ());
        loop {
            if let Some(((), done)) = disk.take() {
                assert!(matches!(done, Done::Synced(Ok(()))));
                return;
            }
            std::thread::yield_now();
        }
    }

    #[tokio::test]
    async fn tells_of_a_failure() {
        let mut disk = Disk::start().unwrap();
        // What can't be made durable: a socket (fsync(2), EINVAL).
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let log = Arc::new(File::from(std::os::fd::OwnedFd::from(socket)));
        disk.begin(Order::Sync(Sync { outputs: Vec::new(), audit: None, log }), ());
        disk.ready().await;
        assert!(matches!(disk.take(), Some(((), Done::Synced(Err(_))))));
    }
}
