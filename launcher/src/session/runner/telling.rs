//! What the user, those attached, and the job's log are told.

use super::{Begin, Runner};
use crate::session::joblog::Tail;
use crate::session::output::Report;
use crate::session::rehearsals::Finished;
use crate::text;
use coordinator::{Event, Notice};
use nix::sys::signal::Signal;
use protocol::cluster::client::Answer;
use protocol::cluster::job_event::Happening;
use protocol::control::RehearsalOutcome;

impl Runner<'_> {
    /// Says something to the user, and to all who are attached.
    pub(super) fn say(&mut self, text: String) {
        self.attached.tell(&mut self.callers, &Answer::Say { text: text.clone() });
        self.output.say(text);
    }

    pub(super) fn warn(&mut self, text: &str) {
        self.say(format!("warning: {text}"));
        self.output.mark(format!("warning: {text}"));
    }

    pub(super) fn greet(&mut self, tail: Option<Tail>, warning: Option<String>) {
        if let Some(warning) = warning {
            self.warn(&warning);
        }
        if let Begin::Restore(spec, record) = &self.session.begin {
            let age = text::age(record.taken_at_ms, text::now_ms());
            if self.session.loud {
                self.output.say(format!(
                    "job {} goes on from checkpoint {}, {age} old",
                    self.session.job.name(),
                    spec.checkpoint
                ));
            }
        }
        if let (Begin::Adopt(spec), true) = (&self.session.begin, self.session.loud) {
            self.output.say(format!(
                "process {} is job {}; Ctrl-C leaves it to itself",
                spec.pid,
                self.session.job.name()
            ));
        }
        if let Some(tail) = tail {
            self.output.say(format!(
                "the log is put back to its length at the checkpoint; the last {} are kept in {}",
                text::size(tail.bytes),
                tail.path.display()
            ));
        }
    }

    pub(super) fn notify(&mut self, notice: &Notice) {
        match notice {
            Notice::Committed { record, steps } => {
                if let Some(commits) = &self.session.commits {
                    commits.tell(record.checkpoint);
                }
                self.call(Happening::committed(record));
                let line = text::committed(record);
                if self.session.loud {
                    self.output.say(line.clone());
                }
                let answer = Answer::Committed { record: record.clone() };
                self.attached.tell(&mut self.callers, &answer);
                self.output.mark(format!("{line}; {}", text::steps(steps)));
                if let Some(line) = self.rehearsals.committed(record.checkpoint) {
                    self.output.mark(line);
                }
            }
            // Once; `ckptd status` tells it of the newest one.
            Notice::Abandoned { checkpoint, step, reason, again: true, .. } => {
                self.call(Happening::failed(*checkpoint, &format!("{step}: {reason}")));
            }
            Notice::Abandoned { checkpoint, step, reason, steps, again: false } => {
                self.call(Happening::failed(*checkpoint, &format!("{step}: {reason}")));
                let line = format!("checkpoint {checkpoint} abandoned: {step}: {reason}");
                self.say(line.clone());
                self.output.mark(format!("{line}; {}", text::steps(steps)));
            }
            Notice::Warning(text) => self.warn(text),
            Notice::Ending { signal } => {
                let name = Signal::try_from(*signal).map_or("a signal", Signal::as_str);
                if self.session.loud {
                    self.output.say(format!("sent {name} to the job"));
                }
                self.output.mark(format!("sent {name}"));
            }
        }
    }

    pub(super) fn reported(&mut self, report: Report) -> Option<Event> {
        match report {
            Report::Drained { checkpoint, log_length } => {
                Some(Event::ConsoleDrained { checkpoint, log_length })
            }
            Report::DrainFailed { checkpoint, reason } => {
                Some(Event::DrainFailed { checkpoint, reason })
            }
            Report::LogFailed(text) => {
                self.say(format!("warning: {text}"));
                None
            }
            Report::Attached { caller, log_length } => {
                self.attached.start(&mut self.callers, caller, log_length);
                None
            }
            Report::Written { stream, bytes, log_length } => {
                self.attached.output(&mut self.callers, stream, &bytes, log_length);
                None
            }
        }
    }

    pub(super) fn on_rehearsed(&mut self, finished: &Finished) -> Option<Event> {
        let Finished { checkpoint, outcome, warnings } = finished;
        let is_gone = self.machine.history().record(*checkpoint).is_none();
        if is_gone && !matches!(outcome, RehearsalOutcome::Restorable { .. }) {
            // It has made room for newer ones.
            self.rehearsals.forget();
            self.output
                .mark(format!("checkpoint {checkpoint} was removed before it was rehearsed"));
            return None;
        }
        let is_news = self.rehearsals.note(finished);
        let (line, to_say) = match outcome {
            RehearsalOutcome::Restorable { processes, took_ms } => {
                (text::restorable(*checkpoint, *processes, *took_ms), self.session.loud)
            }
            RehearsalOutcome::Failed(reason) => {
                let line = format!(
                    "warning: checkpoint {checkpoint} is committed, but a restart from it would fail: {reason}"
                );
                (line, is_news)
            }
            RehearsalOutcome::Unknown(reason) => {
                (format!("warning: checkpoint {checkpoint} is not rehearsed: {reason}"), is_news)
            }
        };
        if to_say {
            self.output.say(line.clone());
        }
        self.output.mark(line);
        for warning in warnings {
            self.output.mark(format!("a restart would warn: {warning}"));
        }
        None
    }
}
