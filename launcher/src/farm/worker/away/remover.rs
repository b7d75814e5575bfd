//! Removes jobs of the cluster that are of no use any more. It is a thread: the cluster writes down each of them, for which
//! nobody has to wait.

use crate::cluster::Cluster;
use protocol::cluster::client::{Answer, Ask, NO_JOB};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long it is waited until what could not be removed is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the end of a run waits for what is still to be removed.
const LAST_MOMENT: Duration = Duration::from_secs(20);
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of those that are left, so many are named.
const MOST_NAMED: usize = 3;

/// See the module.
#[derive(Debug)]
pub struct Remover {
    jobs: Option<Sender<String>>,
    left: Receiver<Vec<String>>,
    _thread: JoinHandle<()>,
}

impl Remover {
    /// Starts the thread.
    ///
    /// # Errors
    /// Where there can't be another one.
    pub fn start(cluster: Cluster) -> io::Result<Self> {
        let (jobs, wanted) = channel();
        let (tell, left) = channel();
        let run = move || {
            let _ = tell.send(remove_all(&cluster, &wanted));
        };
        let thread = std::thread::Builder::new().name("removes".to_owned()).spawn(run)?;
        Ok(Self { jobs: Some(jobs), left, _thread: thread })
    }

    /// Has a job removed.
    pub fn remove(&self, job: String) {
        // Without the thread, which ends at a panic alone, the job is found when the run goes on.
        let _ = self.jobs.as_ref().map(|jobs| jobs.send(job));
    }

    /// Waits until all are removed, for a while.
    pub fn finish(&mut self) {
        self.jobs = None;
        let left = self.left.recv_timeout(LAST_MOMENT + PATIENCE * 2).unwrap_or_default();
        if !left.is_empty() {
            let names: Vec<&str> = left.iter().take(MOST_NAMED).map(String::as_str).collect();
            let more = if left.len() > names.len() { " and others" } else { "" };
            crate::farm::say(&format!(
                "warning: jobs of tasks that are over are left on the cluster: {}{more}; 'ckptd stop' and 'ckptd rm' end them",
                names.join(", ")
            ));
        }
    }
}

/// Removes what comes, again and again where that fails; those that are left at the end.
fn remove_all(cluster: &Cluster, wanted: &Receiver<String>) -> Vec<String> {
    let mut left: Vec<String> = Vec::new();
    let (mut tried, mut ends) = (Instant::now(), None);
    loop {
        let is_over = match wanted.recv_timeout(PAUSE) {
            Ok(job) => {
                left.extend(Some(job).filter(|job| !is_removed(cluster, job)));
                false
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(if left.is_empty() { Duration::ZERO } else { PAUSE });
                true
            }
        };
        if tried.elapsed() >= PAUSE {
            left.retain(|job| !is_removed(cluster, job));
            tried = Instant::now();
        }
        if is_over {
            let since = *ends.get_or_insert_with(Instant::now);
            if left.is_empty() || since.elapsed() > LAST_MOMENT {
                return left;
            }
        }
    }
}

/// Removes a job, which is ended if it still runs: a task that nobody wants any more may have been out of reach.
fn is_removed(cluster: &Cluster, job: &str) -> bool {
    match ask(cluster, &Ask::Remove { job: job.to_owned() }) {
        Some(Answer::Done { .. }) => true,
        Some(Answer::Failed { reason, .. }) if reason.starts_with(NO_JOB) => true,
        Some(Answer::Failed { .. }) => {
            // The answer does not matter: it is removed next time, or stopped once more.
            let _ = ask(cluster, &Ask::Stop { job: job.to_owned(), checkpoint: false });
            false
        }
        _ => false,
    }
}

fn ask(cluster: &Cluster, ask: &Ask) -> Option<Answer> {
    cluster.answer_within(ask, PATIENCE).ok()?
}
