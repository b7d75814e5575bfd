//! Members that are drained: they stay, with the images that they hold and their connections, and run nothing. What runs there
//! moves away as for an announced departure; nothing new comes. That holds until an operator says otherwise, whoever is
//! started again meanwhile. Where a job has nowhere to go it runs on where it is, and moves as soon as it can.

use super::ClusterMachine;
use super::callers::Caller;
use super::decisions;
use super::entry::{Cause, ClusterEntry};
use super::event::{ClientId, Now};
use super::job::{Job, State};
use super::leave::GATHER;
use super::members::Members;
use protocol::cluster::NodeName;
use protocol::cluster::client::Answer;
use std::collections::{BTreeMap, BTreeSet};

/// Jobs that a line names.
const MOST_NAMES: usize = 8;

/// A member that is drained.
#[derive(Debug, Default)]
pub(super) struct Drain {
    /// Who waits until nothing runs there.
    pub(super) clients: Vec<ClientId>,
    /// Until when others are waited for that may be drained with it.
    pub(super) gather: Option<u64>,
    /// Nothing runs there any more, and nothing comes.
    pub(super) is_empty: bool,
    /// Jobs that can't move away now, and why.
    stuck: BTreeMap<String, String>,
    /// What its clients were last told to be in the way.
    said: Option<String>,
    /// Why it can't be emptied now.
    pub(super) why: Option<String>,
}

impl ClusterMachine {
    /// An operator wants a member to run nothing.
    pub(super) fn drain(
        &mut self,
        now: Now,
        client: &ClientId,
        caller: &Caller,
        node: NodeName,
        wait: bool,
    ) {
        if let Some(reason) = self.cannot_order(caller, &node) {
            return self.shared.fail(client, format!("drain {node}: {reason}"));
        }
        self.begin_drain(now, &node);
        let Some(drain) = self.drains.get_mut(&node) else { return };
        if wait {
            // Goes on after this event: who waits is told then.
            drain.clients.push(client.clone());
            (drain.is_empty, drain.said) = (false, None);
        } else {
            let text = Some(format!("{node} takes no new processes; what it runs moves away"));
            self.shared.answer_last(client, Answer::Done { text });
        }
    }

    /// An operator lets a member take processes again.
    pub(super) fn uncordon(
        &mut self,
        now: Now,
        client: &ClientId,
        caller: &Caller,
        node: &NodeName,
    ) {
        if let Some(reason) = self.cannot_order(caller, node) {
            return self.shared.fail(client, format!("uncordon {node}: {reason}"));
        }
        let text = if self.end_drain(node, "it takes processes again") {
            self.members_changed(now);
            format!("{node} takes processes again")
        } else {
            format!("{node} was not drained")
        };
        self.shared.answer_last(client, Answer::Done { text: Some(text) });
    }

    fn cannot_order(&self, caller: &Caller, node: &NodeName) -> Option<String> {
        if !caller.is_operator() {
            let reason =
                "only an operator may, on the coordinator's machine or a member of --role operator";
            return Some(reason.to_owned());
        }
        let is_member = self.shared.members.get(node).is_some();
        (!is_member).then(|| "there is no such node".to_owned())
    }

    fn begin_drain(&mut self, now: Now, node: &NodeName) {
        let Some(member) = self.shared.members.known(node, "drain a node") else { return };
        if std::mem::replace(&mut member.drained, true) {
            return;
        }
        self.shared.append(ClusterEntry::NodeDrained { node: node.clone(), on: true });
        let gather = Some(now.nanos.saturating_add(GATHER));
        self.drains.insert(node.clone(), Drain { gather, ..Drain::default() });
        for job in self.jobs.values_mut().filter(|job| job.is_running()) {
            job.renew_partners(&mut self.shared);
        }
    }

    /// Goes on with what the log tells to be drained.
    pub(super) fn take_up_drains(&mut self) {
        let drained = self.shared.members.iter().filter(|(_, member)| member.drained);
        self.drains = drained.map(|(node, _)| (node.clone(), Drain::default())).collect();
    }

    /// A member is not drained any more.
    pub(super) fn forget_drain(&mut self, node: &NodeName, reason: &str) {
        for client in self.drains.remove(node).unwrap_or_default().clients {
            self.shared.fail(&client, format!("drain {node}: {reason}"));
        }
    }

    /// The job comes first: a member takes processes again without which one could not go on.
    pub(super) fn call_drain_off(&mut self, node: &NodeName, reason: &str) {
        if self.end_drain(node, reason) {
            decisions::not_emptied(node, reason);
        }
    }

    /// A member takes processes again. False: it was not drained.
    fn end_drain(&mut self, node: &NodeName, reason: &str) -> bool {
        let drained = self.shared.members.get_mut(node).map(|member| &mut member.drained);
        if !drained.is_some_and(std::mem::take) {
            return false;
        }
        self.shared.append(ClusterEntry::NodeDrained { node: node.clone(), on: false });
        self.forget_drain(node, reason);
        self.jobs.values_mut().for_each(|job| job.ledger.takes_again(node));
        true
    }

    /// Looks which drained members are empty by now, and tells what is in the way elsewhere.
    pub(super) fn go_on_emptying(&mut self) {
        let drains = self.drains.iter().filter(|(_, drain)| !drain.is_empty);
        let nodes: Vec<NodeName> = drains.map(|(node, _)| node.clone()).collect();
        for node in nodes {
            let here: Vec<&Job> = self.jobs.values().filter(|job| job.has_part_on(&node)).collect();
            let names = names(&here);
            let failed = here.iter().find_map(|job| job.failed_checkpoint());
            let Some(drain) = self.drains.get_mut(&node) else { continue };
            if here.is_empty() {
                drain.is_empty = true;
                (drain.why, drain.stuck) = (None, BTreeMap::new());
                decisions::emptied(&node);
                let text = Some(format!("{node} is drained: nothing runs there"));
                for client in std::mem::take(&mut drain.clients) {
                    self.shared.answer_last(&client, Answer::Done { text: text.clone() });
                }
                continue;
            }
            drain.stuck.retain(|job, _| here.iter().any(|one| one.ledger.id == *job));
            let why = drain.stuck.values().next().cloned().or(failed);
            let text = match &why {
                Some(why) => format!("{node} can't be emptied yet: {why}"),
                None => match here.iter().find_map(|job| job.goes_ahead()) {
                    Some(ahead) => format!("{node} can't be emptied yet: {ahead}"),
                    None => format!("{node} still runs a part of {names}"),
                },
            };
            if let Some(why) = why.as_ref().filter(|_| drain.why != why) {
                decisions::not_emptied(&node, why);
            }
            drain.why = why;
            if drain.said.as_ref() != Some(&text) {
                for client in &drain.clients {
                    self.shared.answer(client, Answer::Say { text: text.clone() });
                }
                drain.said = Some(text);
            }
        }
    }
}

impl Job {
    /// Whether processes of it may be on a machine.
    fn has_part_on(&self, node: &NodeName) -> bool {
        // While a job is being made elsewhere, it needs the images that are here, and may have to go back.
        let is_being_made = matches!(&self.state, State::Making(making) if !making.is_waiting());
        (!self.is_over() && self.ledger.instances.is_on(node))
            || self.awaits_release_on(node)
            || self.nodes_with_stale_instances.contains(node)
            || (is_being_made && self.was_on().any(|was| was == node))
    }

    /// Drained machines on which images were taken that this epoch is made from, where it is made to move away from such.
    pub(super) fn drained_needed(&self, members: &Members) -> BTreeSet<NodeName> {
        let moves = matches!(&self.state, State::Making(making) if making.leaves_drained());
        let nodes = self.was_on().filter(|node| moves && members.is_drained(node));
        nodes.cloned().collect()
    }

    /// Whether it is to move away from drained machines, and can. Where it can't, that is noted.
    pub(super) fn may_leave_drained(
        &mut self,
        members: &Members,
        drains: &mut BTreeMap<NodeName, Drain>,
    ) -> bool {
        let on = drains.iter_mut().filter(|(node, _)| self.ledger.instances.is_on(node));
        let mut may = None;
        for (node, drain) in on {
            drain.stuck.remove(&self.ledger.id);
            let cannot = self.cannot_go_from(members, node);
            may = Some(may.unwrap_or(true) && cannot.is_none());
            if let Some(cannot) = cannot {
                drain.stuck.insert(self.ledger.id.clone(), cannot);
            }
        }
        if may == Some(true) {
            self.drained_for = self.drained_for(members);
        }
        may == Some(true)
    }

    /// The drained machines on which it is, as what it moves for.
    pub(super) fn drained_for(&self, members: &Members) -> Option<Cause> {
        let mut drained = self.nodes().into_iter().filter(|node| members.is_drained(node));
        let node = drained.next()?;
        Some(Cause::Drain { node, with: drained.collect() })
    }
}

/// "queens and fold", as many as a line may name.
fn names(jobs: &[&Job]) -> String {
    let shown: Vec<&str> =
        jobs.iter().take(MOST_NAMES).map(|job| job.ledger.name.as_str()).collect();
    match jobs.len().saturating_sub(shown.len()) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
