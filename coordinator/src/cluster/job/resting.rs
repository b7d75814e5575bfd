//! The end of a job that does without some of its daemons. Its run time can't tell it: to finish, it would
//! have to hear from those. So the job is over when every machine says that all of its processes only wait.

use super::{Job, State};
use crate::cluster::entry::Origin;
use crate::cluster::event::Now;
use crate::cluster::shared::Shared;
use crate::cluster::text;
use crate::settings::SECOND;
use protocol::agent::{ExitKind, InstanceId};
use std::collections::BTreeSet;

/// For so long all must have said so, in nanoseconds: what one of them sent just before may still wake
/// another.
const SETTLE: u64 = SECOND;

/// From a moment when the job stands still for a checkpoint to the next look, in nanoseconds.
const LATER: u64 = SECOND / 10;

/// Who only waits.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Rest {
    waiting: BTreeSet<InstanceId>,
    /// When the job is over, if nobody says anything else.
    pub(super) over_at: Option<u64>,
}

impl Job {
    /// A machine says whether all processes of an instance only wait.
    pub(in crate::cluster) fn rests(
        &mut self,
        now: Now,
        shared: &mut Shared,
        instance: InstanceId,
        waits: bool,
    ) {
        if waits {
            self.live.rest.waiting.insert(instance);
        } else {
            self.live.rest.waiting.remove(&instance);
        }
        self.check_rest(now, shared);
    }

    /// Ends the job if it has come to where it can only wait.
    pub(in crate::cluster) fn check_rest(&mut self, now: Now, shared: &mut Shared) {
        // Only a job that runs comes to rest.
        let State::Running(running) = &self.state else { return };
        let pausing = running.machine.is_pausing();
        let changing = running.machine.is_ending()
            || self.live.root_end.is_some()
            || !self.live.delayed.is_empty();
        let rest = &self.live.rest;
        let all = self.live.present().all(|(instance, _)| rest.waiting.contains(&instance));
        if changing || !all || self.ledger.departed.is_empty() {
            self.live.rest.over_at = None;
            return;
        }
        let at = *self.live.rest.over_at.get_or_insert(now.nanos.saturating_add(SETTLE));
        if now.nanos < at {
            return;
        }
        if pausing {
            self.live.rest.over_at = Some(now.nanos.saturating_add(LATER));
            return;
        }
        self.live.rest.over_at = None;
        let daemons = text::daemons(&self.ledger.departed);
        let line = format!(
            "every process of job {} waits, as in MPI_Finalize, and {daemons} will not answer: \
             the job is over, with status 0",
            self.ledger.name
        );
        self.tell_user(shared, &line);
        self.came_to_rest(now, shared);
    }

    /// A process ended whose daemon has departed: nobody else will tell of a failure.
    pub(in crate::cluster) fn orphan_ended(
        &mut self,
        now: Now,
        shared: &mut Shared,
        instance: InstanceId,
        pid: i32,
        status: ExitKind,
    ) {
        if status == ExitKind::Exited(0) {
            return;
        }
        let how = text::ended(status);
        let name = self.process_name(instance, pid);
        let line = format!("{name} ({pid}), whose daemon has departed, ended {how}");
        self.tell_user(shared, &line);
        self.root_ended(now, shared, status);
    }

    fn process_name(&self, instance: InstanceId, pid: i32) -> String {
        let origin = self.live.instances.get(&instance).map(|found| &found.record.origin);
        let image = match origin {
            Some(Origin::Image { instance, .. }) => self
                .ledger
                .checkpoint
                .and_then(|number| self.ledger.images.get(&number))
                .and_then(|images| images.get(instance)),
            _ => None,
        };
        let processes = image.map_or(&[][..], |image| &image.facts.processes);
        let found = processes.iter().find(|process| process.pid == pid);
        found.map_or_else(|| "a process".to_owned(), |process| process.name.clone())
    }
}
