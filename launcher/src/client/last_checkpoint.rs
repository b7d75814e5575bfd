//! A last checkpoint and the job's end, when a signal tells that its machines will be taken away.

use super::link::{Link, LinkError};
use protocol::cluster::client::{Answer, Ask};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long whoever runs the job may take to say that it has been stopped once it has ended.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// What is done when a signal comes.
#[derive(Debug, Clone)]
pub struct LastCheckpoint {
    signal: i32,
    status: u8,
    state: Arc<(Mutex<State>, Condvar)>,
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

impl LastCheckpoint {
    /// When that signal comes; the command ends with this status then.
    pub fn new(signal: i32, status: u8) -> Self {
        Self { signal, status, state: Arc::default() }
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
        let mut state = self.lock();
        if *state == State::Idle {
            *state = State::Wanted;
        }
        drop(state);
        if let Some((socket, job)) = job {
            self.job_runs(socket, job);
        }
        true
    }

    /// The job runs: now it can be asked for what the signal wanted.
    pub fn job_runs(&self, socket: &Path, job: &str) {
        let mut state = self.lock();
        if *state != State::Wanted {
            return;
        }
        *state = State::Asked;
        drop(state);
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
        let asked = |state: &mut State| *state == State::Asked;
        let waited = self.state.1.wait_timeout_while(self.lock(), ANSWER_LIMIT, asked);
        let (state, limit) = waited.unwrap_or_else(PoisonError::into_inner);
        if limit.timed_out() {
            eprintln!("ckptd: whether a last checkpoint was taken is not known: no answer came");
        }
        *state == State::Taken
    }

    fn ask(&self, socket: &Path, job: &str) {
        eprintln!("ckptd: a last checkpoint is taken, then the job ends");
        match stop(socket, job) {
            Ok(Answer::Ended { checkpoint: Some(_), .. }) => {
                *self.lock() = State::Taken;
                self.state.1.notify_all();
            }
            Ok(Answer::Failed { reason, .. }) => self.failed(&reason),
            Ok(_) => self.failed("it has no checkpoint"),
            Err(error) => self.failed(&error.to_string()),
        }
    }

    /// The job runs on, if it has not ended by itself; another signal tries again.
    fn failed(&self, reason: &str) {
        eprintln!("ckptd: no last checkpoint: {reason}");
        *self.lock() = State::Idle;
        self.state.1.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        assert_eq!(*last.lock(), State::Wanted);
        // Nobody listens there.
        let nobody = tempfile::tempdir().unwrap();
        last.job_runs(&nobody.path().join("socket"), "fold-1");
        assert_eq!((last.is_taken(), last.status(3)), (false, 3));
        *last.lock() = State::Taken;
        assert_eq!(last.status(3), 85);
    }
}
