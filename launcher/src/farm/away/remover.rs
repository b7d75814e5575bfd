//! Removes jobs of the cluster that are of no use any more. It is a thread: the cluster writes down each of them, for which
//! nobody has to wait.

use crate::cluster::Cluster;
use protocol::cluster::client::{Answer, Ask, NO_JOB};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a job is tried that can't be removed.
const TRIES: u32 = 20;
/// How long it is waited from one to the next.
const PAUSE: Duration = Duration::from_millis(500);
/// How long the end of a run waits for what is still to be removed.
const LAST_MOMENT: Duration = Duration::from_secs(20);

/// See the module.
#[derive(Debug)]
pub struct Remover {
    jobs: Option<Sender<String>>,
    over: Receiver<()>,
    _thread: JoinHandle<()>,
}

impl Remover {
    /// Starts the thread.
    ///
    /// # Errors
    /// Where there can't be another one.
    pub fn start(cluster: Cluster) -> io::Result<Self> {
        let (jobs, wanted) = channel::<String>();
        let (is_over, over) = channel();
        let run = move || {
            wanted.iter().for_each(|job| remove(&cluster, &job));
            let _ = is_over.send(());
        };
        let thread = std::thread::Builder::new().name("removes".to_owned()).spawn(run)?;
        Ok(Self { jobs: Some(jobs), over, _thread: thread })
    }

    /// Has a job removed.
    pub fn remove(&self, job: String) {
        // Without the thread, which ends at a panic alone, the job is found when the run goes on.
        let _ = self.jobs.as_ref().map(|jobs| jobs.send(job));
    }

    /// Waits until all are removed, for a while.
    pub fn finish(&mut self) {
        self.jobs = None;
        if self.over.recv_timeout(LAST_MOMENT) == Err(RecvTimeoutError::Timeout) {
            crate::farm::say(
                "warning: the cluster has not removed all jobs of the run's tasks; see 'ckptd ls'",
            );
        }
    }
}

/// Removes a job, which is ended if it still runs: a task that nobody wants any more may have been out of reach.
fn remove(cluster: &Cluster, job: &str) {
    let since = Instant::now();
    for _ in 0..TRIES {
        match ask(cluster, &Ask::Remove { job: job.to_owned() }) {
            Some(Answer::Done { .. }) => return,
            Some(Answer::Failed { reason, .. }) if reason.starts_with(NO_JOB) => return,
            Some(Answer::Failed { .. }) => {
                // The answer does not matter: it is removed next time, or stopped once more.
                let _ = ask(cluster, &Ask::Stop { job: job.to_owned(), checkpoint: false });
            }
            _ => {}
        }
        if since.elapsed() > LAST_MOMENT {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

fn ask(cluster: &Cluster, ask: &Ask) -> Option<Answer> {
    let mut link = cluster.open(ask).ok()?;
    loop {
        match link.next_within(LAST_MOMENT).ok()?? {
            Answer::Say { .. } => {}
            answer => return Some(answer),
        }
    }
}
