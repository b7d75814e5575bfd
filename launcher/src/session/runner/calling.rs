//! What the commands that `--on` calls are told.

use super::Runner;
use coordinator::Outcome;
use protocol::cluster::job_event::Happening;
use tokio::sync::mpsc;

impl Runner<'_> {
    /// The job runs, and ends with this process.
    pub(super) fn calls_begin(&self) {
        if let (Some(hooks), false) = (&self.session.hooks, self.is_adopted()) {
            hooks.runs();
        }
    }

    pub(super) fn call(&mut self, what: Happening) {
        let lacks = self.session.hooks.as_ref().and_then(|hooks| hooks.happened(what));
        if let Some(text) = lacks {
            self.warn(text);
        }
    }

    pub(super) fn call_end(&mut self, outcome: &Outcome) {
        let checkpoint = self.machine.history().newest().map(|record| record.checkpoint);
        let (status, reason) = match outcome {
            Outcome::Ended { status, .. } => (Some(*status), None),
            Outcome::Lost { reason } => (None, Some(reason.as_str())),
        };
        self.call(Happening::ended(status, reason, checkpoint));
        // What comes from now on is for whoever closes the log.
        self.called.close();
        while let Ok(line) = self.called.try_recv() {
            self.output.mark(line);
        }
    }
}

/// The lines of commands where none are called.
pub(super) fn none() -> mpsc::UnboundedReceiver<String> {
    mpsc::unbounded_channel().1
}
