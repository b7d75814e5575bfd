//! The end of a session.

use super::{Runner, is_deadly};
use crate::failure::Failure;
use crate::session::callers::Server;
use crate::session::output::Report;
use crate::text;
use coordinator::Outcome;
use protocol::task;
use tokio::sync::mpsc;

impl Runner<'_> {
    /// Leaves a job that was adopted to run on, and says how to go on if it does not.
    pub(super) async fn let_go(self, server: Option<Server>) -> Result<u8, Failure> {
        let agent = self.agent.clone();
        // Where that thread fails, ckptd has a bug that shows elsewhere.
        let _ = task::spawn_blocking(move || agent.let_go()).await;
        let newest = self.machine.history().newest().map(|record| record.checkpoint);
        drop(self.callers);
        if let Some(server) = server {
            server.close().await;
        }
        let name = self.session.job.name();
        eprintln!("ckptd: job {name} runs on without checkpoints");
        match newest {
            Some(number) => {
                let offer = self.session.resume.offer_from(number, name);
                eprintln!("ckptd: once it has ended, {offer}");
            }
            None => eprintln!("ckptd: it has no committed checkpoint"),
        }
        Ok(0)
    }

    /// Ends those that have outlived an adopted job's first process, or, where nobody wants that, tells of them.
    async fn end_rest(&self, asked: bool) {
        let agent = self.agent.clone();
        let rest = task::spawn_blocking(move || agent.rest(asked)).await.unwrap_or(0);
        let name = self.session.job.name();
        match rest {
            0 => {}
            _ if asked => {}
            1 => eprintln!("ckptd: one process of job {name} goes on without ckptd"),
            rest => eprintln!("ckptd: {rest} processes of job {name} go on without ckptd"),
        }
    }

    /// Brings the last output to the user, puts the terminal back, and says how to go on.
    pub(super) async fn end(
        mut self,
        outcome: Outcome,
        signals: &mut mpsc::UnboundedReceiver<i32>,
        server: Option<Server>,
    ) -> Result<u8, Failure> {
        if self.is_adopted() {
            self.end_rest(matches!(outcome, Outcome::Ended { asked: true, .. })).await;
        }
        self.call_end(&outcome);
        let name = self.session.job.name().to_owned();
        let newest = self.machine.history().newest().map(|record| record.checkpoint);
        let mark = match &outcome {
            Outcome::Ended { status, .. } => Some(text::end(Some(*status))),
            Outcome::Lost { .. } => None,
        };
        let finished = task::spawn_blocking(move || self.output.finish(mark));
        tokio::pin!(finished);
        loop {
            tokio::select! {
                _ = &mut finished => break,
                // Nobody reads the rest, and somebody has lost patience.
                Some(signal) = signals.recv() => if is_deadly(signal) { break },
            }
        }
        while let Ok(report) = self.reports.try_recv() {
            if let Report::Written { stream, bytes, log_length } = report {
                self.attached.output(&mut self.callers, stream, &bytes, log_length);
            }
        }
        if let Outcome::Ended { status, .. } = outcome {
            self.attached.end(&mut self.callers, status, newest);
        }
        drop(self.callers);
        if let Some(server) = server {
            server.close().await;
        }
        drop(self.raw);
        let resume = &self.session.resume;
        match outcome {
            Outcome::Lost { reason } => Err(Failure::of(format!("keep {name}"), reason)),
            Outcome::Ended { status, asked } => {
                let word = if self.interrupted { "interrupted" } else { "stopped" };
                match newest {
                    Some(_) if asked => {
                        eprintln!("ckptd: job {name} {word}; {}", resume.offer(&name));
                    }
                    None if asked => {
                        eprintln!("ckptd: job {name} {word}; it has no committed checkpoint");
                    }
                    Some(number) if status.shell_status() != 0 && self.session.loud => eprintln!(
                        "ckptd: job {name} {}; {}",
                        text::end(Some(status)),
                        resume.offer_from(number, &name)
                    ),
                    _ => {}
                }
                Ok(status.shell_status())
            }
        }
    }
}
