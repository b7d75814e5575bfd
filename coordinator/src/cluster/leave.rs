//! Announced departures. A job that has processes on a node that goes is *parked*: a checkpoint is taken in which it
//! is not let go, and from there it goes on elsewhere, so that nothing it has done is lost. Nodes that go at about the
//! same time are one move. A node is free to go when nothing of any job runs on it, and the images that
//! it holds are in enough places without it.

use super::ClusterMachine;
use super::callers::Caller;
use super::decisions;
use super::entry::{Cause, ClusterEntry};
use super::event::{ClientId, Now};
use super::job::ahead::Errand;
use super::job::{Job, State};
use super::members::{Member, Members, Presence};
use super::placement::misfit;
use super::rollback::plan;
use super::shared::Shared;
use crate::event::Event;
use crate::settings::SECOND;
use protocol::cluster::NodeName;
use protocol::cluster::agent::ToAgent;
use protocol::cluster::client::Answer;
use protocol::cluster::image::Requirements;
use std::collections::BTreeSet;

/// How long others are waited for that may go with the first, in nanoseconds.
pub(super) const GATHER: u64 = SECOND / 4;
/// From one attempt to park a job to the next, in nanoseconds.
const PAUSE: u64 = 2 * SECOND;
/// The same for one that is to move away from drained members, where the last checkpoint was refused.
const PAUSE_REFUSED: u64 = 60 * SECOND;

/// A node that is about to go.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    /// Who waits for it.
    pub(super) clients: Vec<ClientId>,
    /// Until when others are waited for.
    gather: Option<u64>,
    /// What its clients were last told to be in the way.
    said: Option<String>,
}

impl Leaving {
    /// Tells those who wait what is in the way, once.
    fn say(&mut self, shared: &mut Shared, text: String) {
        if self.said.as_ref() == Some(&text) {
            return;
        }
        for client in &self.clients {
            shared.answer(client, Answer::Say { text: text.clone() });
        }
        self.said = Some(text);
    }
}

impl ClusterMachine {
    /// Somebody wants a node to go.
    pub(super) fn leave(
        &mut self,
        now: Now,
        client: &ClientId,
        caller: &Caller,
        node: Option<NodeName>,
    ) {
        let Some(node) = node.or_else(|| client.node.clone()) else {
            self.shared.fail(client, "let a node go: say which");
            return;
        };
        if !self.shared.may_dismiss(client, caller, &node) {
            let reason =
                format!("let {node} go: only its owner, on that machine, and an operator may");
            self.shared.fail(client, reason);
        } else if let Some(leaving) = self.leaving.get_mut(&node) {
            leaving.clients.push(client.clone());
        } else if self.has_left(&node) {
            // As one asks again who has not heard the answer.
            let text = Some(has_gone(&node));
            self.shared.answer_last(client, Answer::Done { text });
        } else if !self.shared.members.is_connected(&node) {
            self.shared.fail(client, format!("let {node} go: it is not there"));
        } else if let Some(reason) = self.cannot_spare(&node) {
            self.shared.fail(client, format!("let {node} go: {reason}"));
        } else {
            self.begin_leave(now, &node);
            self.leaving.entry(node).or_default().clients.push(client.clone());
        }
    }

    /// Whether a node is gone, and nothing of any job with it.
    fn has_left(&self, node: &NodeName) -> bool {
        let member = self.shared.members.get(node);
        let gone = |member: &Member| member.dismissed || member.presence == Presence::Gone;
        member.is_some_and(|member| !member.is_connected() && gone(member))
            && self.nothing_runs_on(node)
    }

    /// Whether no job has anything on a node.
    pub(super) fn nothing_runs_on(&self, node: &NodeName) -> bool {
        !self.jobs.values().any(|job| !job.is_over() && job.ledger.instances.is_on(node))
    }

    /// A node announces that it goes.
    pub(super) fn announces_leave(&mut self, now: Now, node: &NodeName, _reason: &str) {
        if self.leaving.contains_key(node) {
            return;
        }
        match self.cannot_spare(node) {
            Some(reason) => self.shared.send(node, ToAgent::Stay { reason }),
            None => self.begin_leave(now, node),
        }
    }

    /// Why nobody else can take what runs on the node.
    fn cannot_spare(&self, node: &NodeName) -> Option<String> {
        let jobs = self.jobs.values();
        jobs.filter(|job| !job.is_over() && job.ledger.instances.is_on(node))
            .find_map(|job| job.cannot_go_from(&self.shared.members, node))
    }

    fn begin_leave(&mut self, now: Now, node: &NodeName) {
        let Some(member) = self.shared.members.known(node, "begin a departure") else { return };
        member.presence = Presence::Leaving;
        self.shared.append(ClusterEntry::NodeLeaves { node: node.clone(), leaves: true });
        self.wait_for_others(now, node);
        // What is copied from now on is not copied there.
        for job in self.jobs.values_mut().filter(|job| job.is_running()) {
            job.renew_partners(&mut self.shared);
        }
    }

    fn wait_for_others(&mut self, now: Now, node: &NodeName) {
        let leaving = self.leaving.entry(node.clone()).or_default();
        leaving.gather = Some(now.nanos.saturating_add(GATHER));
    }

    /// Goes on with the departures that the log tells of.
    pub(super) fn go_on_letting_go(&mut self, now: Now) {
        let members = self.shared.members.iter();
        let nodes: Vec<NodeName> = members
            .filter(|(_, member)| member.presence == Presence::Leaving)
            .map(|(node, _)| node.clone())
            .collect();
        for node in nodes {
            self.wait_for_others(now, &node);
        }
    }

    /// A node that was about to go, or had been told that it may, has connected again. `same`: it has not been
    /// started again since.
    pub(super) fn leaver_is_back(&mut self, now: Now, node: &NodeName, same: bool) {
        let Some(member) = self.shared.members.known(node, "take a leaver back") else { return };
        member.dismissed = false;
        if same {
            let known = member.presence == Presence::Leaving;
            member.presence = Presence::Leaving;
            if !known {
                self.shared.append(ClusterEntry::NodeLeaves { node: node.clone(), leaves: true });
            }
            if !self.leaving.contains_key(node) {
                self.wait_for_others(now, node);
            }
        } else {
            self.call_off(node, &format!("{node} was started again"));
        }
    }

    /// A node stays after all.
    fn call_off(&mut self, node: &NodeName, reason: &str) {
        if let Some(member) = self.shared.members.get_mut(node) {
            if member.presence == Presence::Leaving {
                member.presence = Presence::There;
                decisions::stays(node, reason);
                self.shared.append(ClusterEntry::NodeLeaves { node: node.clone(), leaves: false });
            }
        }
        for client in self.leaving.remove(node).unwrap_or_default().clients {
            self.shared.fail(&client, format!("let {node} go: {reason}"));
        }
        self.shared.send(node, ToAgent::Stay { reason: reason.to_owned() });
    }

    /// When departures and members that are drained next want the time.
    pub(super) fn moving_away_deadline(&self) -> Option<u64> {
        if !self.is_moving_away() {
            return None;
        }
        let gather = self.leaving.values().filter_map(|leaving| leaving.gather);
        let gather = gather.chain(self.drains.values().filter_map(|drain| drain.gather));
        gather.chain(self.jobs.values().filter_map(|job| job.park_again)).min()
    }

    /// Whether something is to move away from anywhere.
    fn is_moving_away(&self) -> bool {
        !self.leaving.is_empty() || self.drains.values().any(|drain| !drain.is_empty)
    }

    /// Takes the next step of every departure, and towards emptying members that are drained. Called after every event.
    pub(super) fn go_on_moving_away(&mut self, now: Now) {
        if !self.is_moving_away() {
            return;
        }
        self.call_off_stuck(now);
        self.park_jobs(now);
        if !self.leaving.is_empty() {
            self.go_on_leaving(now);
        }
        self.go_on_emptying();
        if !self.is_moving_away() {
            self.jobs.values_mut().for_each(|job| job.park_again = None);
        }
    }

    /// Parks jobs that have processes on members that go or are drained.
    fn park_jobs(&mut self, now: Now) {
        let leaving = self.leaving.values_mut().map(|leaving| &mut leaving.gather);
        let gathers = leaving.chain(self.drains.values_mut().map(|drain| &mut drain.gather));
        let mut gathering = false;
        for gather in gathers {
            *gather = gather.filter(|until| now.nanos < *until);
            gathering |= gather.is_some();
        }
        for job in self.jobs.values_mut() {
            job.park_again = job.park_again.filter(|at| now.nanos < *at);
            if gathering || !job.may_be_parked() {
                continue;
            }
            let leaves = self.leaving.keys().any(|node| job.ledger.instances.is_on(node));
            if leaves || job.may_leave_drained(&self.shared.members, &mut self.drains) {
                let nobody = BTreeSet::new();
                if !job.is_sent_ahead(now, &mut self.shared, Errand::Away, &nobody, false) {
                    continue;
                }
                // Each attempt stops the whole job for a moment, and a drain lasts until somebody ends it.
                let is_refused = !leaves && job.failed_checkpoint().is_some();
                let pause = if is_refused { PAUSE_REFUSED } else { PAUSE };
                job.park_again = Some(now.nanos.saturating_add(pause));
                job.feed(now, &mut self.shared, Event::Park);
            } else if self.drains.keys().any(|node| job.ledger.instances.is_on(node)) {
                job.drop_ahead_for(Errand::Away);
                job.park_again = Some(now.nanos.saturating_add(PAUSE));
            }
        }
    }

    fn go_on_leaving(&mut self, now: Now) {
        self.order_copies(now);
        let nodes: Vec<NodeName> = self.leaving.keys().cloned().collect();
        for node in nodes {
            match self.in_the_way(&node) {
                None => self.let_go(&node),
                Some(why) => {
                    if let (Some(leaving), Some(text)) = (self.leaving.get_mut(&node), why) {
                        leaving.say(&mut self.shared, text);
                    }
                }
            }
        }
    }

    /// What keeps a node from going: for its clients, where there is something to be said.
    fn in_the_way(&self, node: &NodeName) -> Option<Option<String>> {
        // While a job is being made elsewhere, it may yet have to go back to where it was.
        let here = |job: &&Job| {
            (!job.is_over() && job.ledger.instances.is_on(node))
                || job.awaits_release_on(node)
                || job.is_taking_images_to(node)
                || job.nodes_with_stale_instances.contains(node)
                || (matches!(job.state, State::Making(_))
                    && job.leavers_needed(&self.shared.members).contains(node))
        };
        if let Some(job) = self.jobs.values().find(here) {
            let failed = job.failed_checkpoint().or_else(|| job.goes_ahead());
            return Some(failed.map(|failed| format!("{node} can't go yet: {failed}")));
        }
        self.lacks_copies(node)
    }

    fn let_go(&mut self, node: &NodeName) {
        if !self.shared.members.is_connected(node) {
            return;
        }
        if let Some(member) = self.shared.members.get_mut(node) {
            member.dismissed = true;
        }
        decisions::free_to_go(node);
        let text = Some(format!("{node} is free to go"));
        for client in self.leaving.remove(node).unwrap_or_default().clients {
            self.shared.answer_last(&client, Answer::Done { text: text.clone() });
        }
        self.shared.send(node, ToAgent::Farewell);
    }

    /// Where a job could not be made to go on without them, nodes stay: the job comes first.
    fn call_off_stuck(&mut self, now: Now) {
        let mut stay: Vec<(NodeName, String)> = Vec::new();
        for job in self.jobs.values_mut() {
            let Some(reason) = job.stuck.take() else { continue };
            let mut nodes = job.leavers_needed(&self.shared.members);
            nodes.extend(job.drained_needed(&self.shared.members));
            let reason = format!("{} could not go on without it: {reason}", job.ledger.name);
            stay.extend(nodes.into_iter().map(|node| (node, reason.clone())));
        }
        if stay.is_empty() {
            return;
        }
        for (node, reason) in stay {
            self.call_off(&node, &reason);
            self.call_drain_off(&node, &reason);
        }
        for job in self.jobs.values_mut() {
            job.plan_if_waiting(now, &mut self.shared);
        }
    }
}

impl Job {
    fn may_be_parked(&self) -> bool {
        let State::Running(running) = &self.state else { return false };
        self.park_again.is_none()
            && self.live.root_end.is_none()
            && !running.machine.is_ending()
            && !running.machine.is_parking()
    }

    /// The checkpoint that could not be taken since the newest one, and why.
    pub(super) fn failed_checkpoint(&self) -> Option<String> {
        let newest = self.ledger.history.newest().map_or(0, |record| record.checkpoint);
        let failed = self.ledger.history.last_abandoned();
        let failed = failed.filter(|(checkpoint, _)| *checkpoint > newest && self.is_running());
        failed.map(|(checkpoint, reason)| {
            format!("checkpoint {checkpoint} of {}: {reason}", self.ledger.name)
        })
    }

    /// What goes ahead of its move, for who waits for that.
    pub(super) fn goes_ahead(&self) -> Option<String> {
        let text = self.ahead.as_ref()?.describe()?;
        Some(format!("{} runs on while this goes ahead of it: {text}", self.ledger.name))
    }

    /// Why no other machine can take what the job has on a node; and on drained ones, to which nothing goes back.
    pub(super) fn cannot_go_from(&self, members: &Members, node: &NodeName) -> Option<String> {
        let name = &self.ledger.name;
        let others = || members.usable_for(&self.ledger).filter(|(other, _)| *other != node);
        if others().next().is_none() {
            return Some(format!(
                "no other machine is there that could take its part of {name}: start an agent on \
                 another one, or stop the job by 'ckptd stop {name} --checkpoint'"
            ));
        }
        let goes = |from: &&NodeName| *from == node || members.is_drained(from);
        let wanted = self.ledger.instances.nodes().filter(goes);
        let wanted = wanted.flat_map(|from| self.wanted_of(members, from));
        wanted.into_iter().find_map(|wanted| {
            let misfits: Option<Vec<String>> = others()
                .map(|(other, member)| {
                    let misfit = misfit(&plan::machine(other, member, 0), &wanted);
                    misfit.map(|reason| format!("{other}: {reason}"))
                })
                .collect();
            misfits.map(|reasons| {
                format!("no other machine can run its part of {name}: {}", reasons.join("; "))
            })
        })
    }

    /// What a machine must offer for what this job has on a node: as its newest checkpoint says, else as that node does.
    fn wanted_of(&self, members: &Members, node: &NodeName) -> Vec<Requirements> {
        let images = self.ledger.images.values().next_back().into_iter().flatten();
        let images = images.filter(|(_, image)| image.node == *node);
        let wanted: Vec<_> = images.map(|(_, image)| image.facts.requirements.clone()).collect();
        if wanted.is_empty() {
            return members
                .get(node)
                .map(|member| plan::offer(&member.profile))
                .into_iter()
                .collect();
        }
        wanted
    }

    /// Machines about to go on which images were taken that this epoch is made from.
    pub(super) fn leavers_needed(&self, members: &Members) -> BTreeSet<NodeName> {
        self.was_on().filter(|node| members.is_leaving(node)).cloned().collect()
    }

    /// Machines on which the images were taken that this epoch is made from.
    pub(super) fn was_on(&self) -> impl Iterator<Item = &NodeName> {
        let images = self.ledger.checkpoint.and_then(|number| self.ledger.images.get(&number));
        images.into_iter().flat_map(|images| images.values().map(|image| &image.node))
    }

    /// Whether it could go on if what goes or is drained stayed.
    pub(super) fn could_go_back(&self, members: &Members) -> bool {
        !self.leavers_needed(members).is_empty() || !self.drained_needed(members).is_empty()
    }

    /// Why the job is parked: nodes that go or are drained, else what it was to be parked for.
    pub(super) fn moves_for(&self, members: &Members) -> Option<Cause> {
        let leavers = self.nodes().into_iter().filter(|node| members.is_leaving(node));
        let mut leavers = leavers.collect::<Vec<_>>();
        if leavers.is_empty() {
            return self
                .drained_for(members)
                .or_else(|| self.migration.cause().cloned())
                .or_else(|| self.drained_for.clone());
        }
        let node = leavers.remove(0);
        Some(Cause::Leave { node, with: leavers })
    }
}

/// For who asks about a node that was free to go.
pub(super) fn has_gone(node: &NodeName) -> String {
    format!("{node} is not there any more, and nothing of any job is on it")
}
