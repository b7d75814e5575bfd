//! The user: runs the job, attaches to it, and begins it again where it was given up.

use super::{MILLI, PEACE, World};
use crate::machine::launch_spec;
use base64::Engine;
use coordinator::cluster::{ClientId, ClusterEntry, ClusterEvent};
use protocol::cluster::agent::JobUser;
use protocol::cluster::client::{Answer, Ask, RestartRequest, RunRequest};
use protocol::cluster::settings::{Daemons, Interval, JobSettings};

fn user() -> JobUser {
    JobUser { uid: 1000, name: "u".to_owned() }
}
impl World {
    pub(super) fn client_acts(&mut self) {
        if self.machine.is_none() || self.stalled_coordinator || self.waiting_client {
            return;
        }
        if self.machine.is_some() && self.nodes.iter().all(|node| !node.welcomed) {
            return;
        }
        self.waiting_client = true;
        self.client += 1;
        let known = self.log.iter().find_map(|entry| match entry {
            ClusterEntry::JobCreated(created) => Some(created.job.clone()),
            _ => None,
        });
        let over = self.log.iter().rev().find_map(|entry| match entry {
            ClusterEntry::JobOver { status, .. } => Some(Some(*status)),
            ClusterEntry::EpochBegun { .. } => Some(None),
            _ => None,
        });
        let ask = match (known, over.flatten()) {
            (None, _) => Ask::Run(Box::new(self.request())),
            (Some(job), Some(None)) if self.now > PEACE => {
                self.outcome.restarts += 1;
                Ask::Restart(Box::new(RestartRequest {
                    job,
                    checkpoint: None,
                    force: false,
                    settings: None,
                    window: None,
                    detach: false,
                }))
            }
            (Some(_), Some(_)) => {
                self.waiting_client = false;
                return;
            }
            (Some(job), None) => Ask::Attach { job, window: None, shown: self.shown },
        };
        self.ask(ask);
    }

    pub(super) fn ask(&mut self, ask: Ask) {
        if let (true, Ask::Attach { shown, .. }) = (self.trace, &ask) {
            eprintln!("{:>7} attaches, shown {shown:?}", self.now / MILLI);
        }
        let client = ClientId { node: None, connection: 0, number: self.client };
        self.feed(ClusterEvent::Asked { client, user: user(), ask });
    }

    pub(super) fn request(&mut self) -> RunRequest {
        let mut launch = launch_spec();
        launch.environment = vec![
            ("TARGET".into(), self.target.to_string().into()),
            ("STATUS".into(), self.status.to_string().into()),
        ];
        for node in &self.nodes[1..self.nodes.len() - self.late] {
            launch.environment.push(("REMOTE".into(), node.name.as_str().into()));
        }
        let settings = JobSettings {
            interval: Interval::Seconds(0.7),
            copies: self.copies,
            max_restarts: 1000,
            daemons: if self.fallback { Daemons::Fallback } else { Daemons::Restore },
            ..JobSettings::default()
        };
        RunRequest { name: None, launch, settings, detach: false, anywhere: false }
    }

    pub(super) fn answered(&mut self, answer: Answer) {
        match answer {
            Answer::Accepted { job } | Answer::Started { job, .. } => {
                self.job = Some(job);
            }
            Answer::Ended { .. } => self.waiting_client = false,
            Answer::Failed { reason, .. } => {
                if self.trace {
                    eprintln!("{:>7} client: {reason}", self.now / MILLI);
                }
                self.waiting_client = false;
                self.not_restored = None;
                if reason.contains("no committed checkpoint") {
                    // It never had one, and could not be begun anew: its user would run it again.
                    self.outcome.given_up += 1;
                }
            }
            Answer::Output { bytes, at, .. } => {
                if self.trace {
                    eprintln!("{:>7} shown up to {at:?}", self.now / MILLI);
                }
                self.shown = Some(at);
                let bytes = base64::engine::general_purpose::STANDARD.decode(bytes).unwrap();
                self.seen.extend(bytes);
            }
            Answer::Say { text } => {
                if self.trace {
                    eprintln!("{:>7} say: {text}", self.now / MILLI);
                }
                // Another try with the same daemons missing has nothing new to tell.
                if text.starts_with("not restored: ") {
                    assert_ne!(self.not_restored.as_ref(), Some(&text), "told twice");
                    self.not_restored = Some(text);
                } else if text.contains(" goes on from ") {
                    self.not_restored = None;
                }
            }
            _ => {}
        }
    }
}
