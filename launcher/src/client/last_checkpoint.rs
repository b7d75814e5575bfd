//! A last checkpoint and the job's end, when a signal tells that its machines will be taken away.

use super::link::{Link, LinkError};
use protocol::cluster::client::{Answer, Ask};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long whoever runs the job may take to say that it has been stopped once it has ended.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// For how long it is tried again: who runs the job may be about to move it, or a process be where it can't be stopped. Schedulers send
/// their signal once.
const TRIED_FOR: Duration = Duration::from_secs(120);
/// How long after a failure.
const AGAIN: Duration = Duration::from_secs(1);

/// What is done when a signal comes.
#[derive(Debug, Clone)]
pub struct LastCheckpoint {
    signal: i32,
    status: u8,
    progress: Arc<(Mutex<Progress>, Condvar)>,
}

/// How far it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    /// The signal came before there was a job.
    Wanted,
    Asked,
    Taken,
}

#[derive(Debug, Default)]
struct Progress {
    state: State,
    /// The job has ended.
    is_over: bool,
}

impl LastCheckpoint {
    /// When that signal comes; the command ends with this status then.
    pub fn new(signal: i32, status: u8) -> Self {
        Self { signal, status, progress: Arc::default() }
    }

    /// The signal.
    pub fn signal(&self) -> i32 {
        self.signal
    }

    /// Takes a signal; whether it was meant. `job`: the socket of whoever runs the job, and its id; `None`: there is none yet.
    pub fn on_signal(&self, signal: i32, job: Option<(&Path, &str)>) -> bool {
        if signal != self.signal {
            return false;
        }
        let mut progress = self.lock();
        if progress.state == State::Idle {
            progress.state = State::Wanted;
        }
        drop(progress);
        if let Some((socket, job)) = job {
            self.job_runs(socket, job);
        }
        true
    }

    /// The job runs: now it can be asked for what the signal wanted.
    pub fn job_runs(&self, socket: &Path, job: &str) {
        let mut progress = self.lock();
        if progress.state != State::Wanted {
            return;
        }
        progress.state = State::Asked;
        drop(progress);
        let (own, socket, job) = (self.clone(), socket.to_owned(), job.to_owned());
        let asks = std::thread::Builder::new().name("last checkpoint".to_owned());
        if let Err(error) = asks.spawn(move || own.ask(&socket, &job)) {
            self.failed(&error.to_string());
        }
    }

    /// The status to end with, where the job has ended with this one.
    pub fn status(&self, ended: u8) -> u8 {
        if self.is_taken() { self.status } else { ended }
    }

    /// Whether the job was stopped with a checkpoint. Called when it has ended.
    pub fn is_taken(&self) -> bool {
        let asked = |progress: &mut Progress| progress.state == State::Asked;
        let mut progress = self.lock();
        progress.is_over = true;
        self.progress.1.notify_all();
        let waited = self.progress.1.wait_timeout_while(progress, ANSWER_LIMIT, asked);
        let (progress, limit) = waited.unwrap_or_else(PoisonError::into_inner);
        if limit.timed_out() {
            eprintln!("ckptd: whether a last checkpoint was taken is not known: no answer came");
        }
        progress.state == State::Taken
    }

    fn ask(&self, socket: &Path, job: &str) {
        eprintln!("ckptd: a last checkpoint is taken, then the job ends");
        let until = Instant::now() + TRIED_FOR;
        let mut said = None;
        loop {
            let reason = match stop(socket, job) {
                Ok(Answer::Ended { checkpoint: Some(_), .. }) => return self.settle(State::Taken),
                Ok(Answer::Failed { reason, .. }) => reason,
                Ok(_) => return self.failed("it has no checkpoint"),
                Err(error) => return self.failed(&error.to_string()),
            };
            if Instant::now() >= until || self.is_over_after(AGAIN) {
                return self.failed(&reason);
            }
            if said.as_ref() != Some(&reason) {
                eprintln!("ckptd: no last checkpoint yet: {reason}; it is tried again");
                said = Some(reason);
            }
        }
    }

    /// Waits so long, or until the job has ended; whether it has.
    fn is_over_after(&self, time: Duration) -> bool {
        let goes_on = |progress: &mut Progress| !progress.is_over;
        let waited = self.progress.1.wait_timeout_while(self.lock(), time, goes_on);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_over
    }

    /// The job runs on, if it has not ended by itself; another signal tries again.
    fn failed(&self, reason: &str) {
        eprintln!("ckptd: no last checkpoint: {reason}");
        self.settle(State::Idle);
    }

    fn settle(&self, state: State) {
        self.lock().state = state;
        self.progress.1.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last answer.
fn stop(socket: &Path, job: &str) -> Result<Answer, LinkError> {
    let ask = Ask::Stop { job: job.to_owned(), checkpoint: true };
    let (_sender, mut lines) = Link::open(socket, &ask)?.split();
    loop {
        match lines.next()? {
            Answer::Say { text } => eprintln!("ckptd: {text}"),
            answer => return Ok(answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_signals_are_the_jobs() {
        let last = LastCheckpoint::new(nix::libc::SIGUSR1, 85);
        assert!(!last.on_signal(nix::libc::SIGUSR2, None));
        assert!(last.on_signal(nix::libc::SIGUSR1, None));
        assert_eq!(last.lock().state, State::Wanted);
        // Nobody listens there.
        let nobody = tempfile::tempdir().unwrap();
        last.job_runs(&nobody.path().join("socket"), "fold-1");
        assert_eq!((last.is_taken(), last.status(3)), (false, 3));
        last.settle(State::Taken);
        assert_eq!(last.status(3), 85);
    }
}
