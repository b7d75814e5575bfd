//! Rehearsals of restarts from images that lie here: one at a time.

use protocol::cluster::agent::FromAgent;
use protocol::cluster::rehearsal::{RehearsalOrder, RehearsedInstance};
use protocol::control::RehearsalOutcome;

use super::Node;
use crate::Action;
use crate::names::is_job_id;

impl Node {
    pub(super) fn rehearse(&mut self, order: Box<RehearsalOrder>) {
        let reason = if !is_job_id(&order.job) {
            format!("{:?} is no id of a job", order.job)
        } else if self.rehearses {
            format!("another restart is being rehearsed on {}", self.own.name)
        } else {
            self.rehearses = true;
            return self.voice.act(Action::Rehearse(order));
        };
        for wanted in order.images {
            let outcome = RehearsalOutcome::Unknown(reason.clone());
            let instance = RehearsedInstance { image: wanted.image, outcome, warnings: Vec::new() };
            self.voice.tell(FromAgent::Rehearsed { number: order.number, instance });
        }
    }

    pub(super) fn rehearsed(&mut self, number: u64, instance: Option<RehearsedInstance>) {
        match instance {
            // A coordinator that has gone meanwhile has told its clients so.
            Some(instance) => self.voice.tell(FromAgent::Rehearsed { number, instance }),
            None => self.rehearses = false,
        }
    }
}
