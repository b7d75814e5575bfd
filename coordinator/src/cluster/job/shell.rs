//! `ckptd rsh`: processes of a job start further ones on other nodes.

use super::instances::{Delayed, Instance, Stage};
use super::{Job, State, addresses, hosts};
use crate::cluster::entry::{ClusterEntry, InstanceRecord, Origin};
use crate::cluster::event::Now;
use crate::cluster::shared::Shared;
use crate::fault;
use protocol::agent::{AgentCommand, InstanceId};
use protocol::cluster::NodeName;
use protocol::cluster::agent::{LaunchOrder, RelayLink, RelaySide, ShellCall, ToAgent};
use std::collections::BTreeMap;

/// What goes through the relays of a remote shell: side 0 is the caller's.
const STREAMS: [&str; 4] = ["link", "link#fd0", "link#fd1", "link#fd2"];

/// Calls of one job that may wait at a time.
const MOST_DELAYED: usize = 4096;

/// A caller whose agent has gone calls the next one for five seconds, in nanoseconds.
const CALL_AGAIN: u64 = 6_000_000_000;

/// Calls of one epoch that were refused, and are remembered; one more, and the oldest instance's are forgotten.
const MOST_REFUSED: usize = 4096;

impl Job {
    /// A call: at once, or once the job runs.
    pub(in crate::cluster) fn called(&mut self, now: Now, shared: &mut Shared, call: Delayed) {
        let known = self.ledger.instances.of_call(call.call.caller.instance, call.call.call);
        if let Some(instance) = known {
            let running = self.live.instances.get(&instance);
            if running.is_some_and(|instance| instance.stage == Stage::Running) {
                self.shell_runs(shared, call.call, instance);
            }
            if self.live.uncalled.remove(&instance).is_some() {
                self.hold_while_needed();
                self.tick(now, shared);
            }
            return;
        }
        if self.live.refused.contains(&(call.call.caller.instance, call.call.call)) {
            // It was asked once more before the answer came: that caller has given up.
            return self.refuse_call(shared, call.call, "it was refused before");
        }
        let same = |other: &Delayed| other.call == call.call;
        if self.live.delayed.iter().any(same) {
            return;
        }
        if self.live.delayed.len() >= MOST_DELAYED {
            return self.refuse_call(shared, call.call, "too many remote shells are being started");
        }
        self.live.delayed.push(call);
        self.start_delayed(now, shared);
    }

    /// Starts what was called for, unless the job stands still or is not complete.
    pub(in crate::cluster) fn start_delayed(&mut self, now: Now, shared: &mut Shared) {
        let mut waiting = Vec::new();
        while let State::Running(running) = &self.state {
            if running.machine.is_pausing() || self.live.delayed.is_empty() {
                break;
            }
            let call = self.live.delayed.remove(0);
            if self.is_unheard(shared, &call.logical_node) {
                waiting.push(call);
            } else {
                self.start_shell(now, shared, call);
            }
        }
        waiting.append(&mut self.live.delayed);
        self.live.delayed = waiting;
    }

    /// Whether a node can't be reached now, and will be heard or declared gone before long: to refuse a call would
    /// end most jobs.
    fn is_unheard(&self, shared: &Shared, logical_node: &NodeName) -> bool {
        let machine = hosts::machine_of(logical_node, &self.ledger, &shared.members);
        machine.is_some_and(|node| {
            !shared.members.is_connected(&node) && !shared.members.is_gone(&node)
        })
    }

    fn start_shell(&mut self, now: Now, shared: &mut Shared, delayed: Delayed) {
        let Delayed { call, logical_node, launch } = delayed;
        let machine = hosts::machine_of(&logical_node, &self.ledger, &shared.members)
            .filter(|node| !shared.members.is_drained(node))
            .or_else(|| self.machine_for_lost(shared, &logical_node));
        let Some(node) = machine else {
            let reason = match shared.members.get(&logical_node) {
                Some(member) if member.drained => format!(
                    "{logical_node} is drained, and no other machine takes its processes; see 'ckptd uncordon'"
                ),
                Some(_) => format!("{logical_node} is gone"),
                None => format!("no node of the cluster is named {logical_node}"),
            };
            return self.refuse_call(shared, call, &reason);
        };
        if !shared.members.is_connected(&node) {
            return self.refuse_call(shared, call, &format!("{node} can't be reached"));
        }
        let (user, settings) = (&self.ledger.user, self.ledger.settings());
        let member = shared.members.get(&node);
        if let Some(misfit) = member.and_then(|member| member.misfit_of(user, settings)) {
            return self.refuse_call(shared, call, &format!("{node} {misfit}"));
        }
        let instance = self.ledger.next_instance();
        let record = InstanceRecord {
            node: node.clone(),
            logical_node: logical_node.clone(),
            root: false,
            origin: Origin::Shell { caller: call.caller.instance, call: call.call },
            addresses: addresses::of_machine(&shared.members, &logical_node),
        };
        self.record(
            shared,
            ClusterEntry::Instances {
                job: self.ledger.id.clone(),
                instances: BTreeMap::from([(instance, record.clone())]),
            },
        );
        let partners = self.choose_partners(shared, &node);
        let deadline = now.nanos.saturating_add(shared.settings.rollback.launch);
        self.live.insert(instance, record, Stage::Launching { deadline }, partners.clone());
        self.hold_while_needed();
        self.tell_addresses(shared);
        let order = LaunchOrder {
            key: self.key(instance),
            logical_node,
            hosts: self.live.hosts.content(&self.ledger, &shared.members),
            launch,
            is_root: false,
            user: self.ledger.user.clone(),
            settings: self.instance_settings(),
            partners,
            shell: Some(call),
            addresses: self.live.addresses.clone(),
        };
        shared.send(&node, ToAgent::Launch(Box::new(order)));
    }

    /// Where a node is to live that is drained; or that is gone and that the job counts on: it was there when the job
    /// began, or the job went back to a time when it had not started anything there yet. One that was never a member here
    /// is counted on where the job has come from another cluster, in which it had something there.
    fn machine_for_lost(&self, shared: &Shared, logical_node: &NodeName) -> Option<NodeName> {
        let known = self.ledger.addresses.contains_key(logical_node);
        let is_counted_on = shared.members.get(logical_node).map_or(known, |member| {
            let was_there = member.heard.unix_ms >= self.ledger.created_at_ms;
            member.drained || was_there || known || self.ledger.checkpoint.is_some()
        });
        if !is_counted_on {
            return None;
        }
        let load = |node: &NodeName| self.live.present_on(node).count();
        let usable = shared.members.usable_for(&self.ledger);
        // A machine is missing: an idle spare comes after idle others, and before those that have something to do.
        let best = usable.min_by_key(|(node, member)| (load(node), member.profile.spare, *node));
        best.map(|(node, _)| node.clone())
    }

    /// An instance that a shell called for runs.
    pub(in crate::cluster) fn shell_launched(
        &mut self,
        now: Now,
        shared: &mut Shared,
        instance: InstanceId,
        pid: Option<i32>,
    ) {
        let Some(found) = self.live.known(instance, "note a launch") else { return };
        match found.stage {
            Stage::Launching { .. } => {}
            // It was given up meanwhile.
            Stage::Ended => return self.release(shared, instance),
            Stage::Restoring | Stage::Running => return,
        }
        found.stage = Stage::Running;
        found.pid = pid;
        let Origin::Shell { caller, call } = found.record.origin else {
            return fault::tell("note a launch", "a remote shell that called for it");
        };
        let entry = ClusterEntry::InstanceRuns { job: self.ledger.id.clone(), instance };
        self.record(shared, entry);
        // A coordinator that was started again knows no caller that has ended, and counts on the instance already.
        let Some(caller_node) = self.live.node(caller).cloned() else { return };
        let call = ShellCall { caller: self.key(caller), node: caller_node, call };
        self.shell_runs(shared, call, instance);
        for (at, links) in self.shell_links(caller, instance) {
            self.link(shared, at, links);
        }
        if let State::Running(running) = &mut self.state {
            running.machine.add_agent(instance);
        }
        self.hold_while_needed();
        self.tick(now, shared);
    }

    /// Where the streams of a remote shell lead to, for both of its ends.
    pub(in crate::cluster) fn shell_links(
        &self,
        caller: InstanceId,
        remote: InstanceId,
    ) -> Vec<(InstanceId, Vec<RelayLink>)> {
        [(caller, 0, remote), (remote, 1, caller)]
            .into_iter()
            .filter_map(|(at, side, peer)| {
                let node = self.live.node(peer)?;
                let link = |stream: &str| RelayLink {
                    side: RelaySide {
                        relay: format!("{}/{}#{stream}", self.ledger.id, remote.0),
                        side,
                    },
                    peer: self.key(peer),
                    node: node.clone(),
                };
                Some((at, STREAMS.iter().map(|stream| link(stream)).collect()))
            })
            .collect()
    }

    fn link(&mut self, shared: &mut Shared, instance: InstanceId, links: Vec<RelayLink>) {
        let key = self.key(instance);
        if let Some(found) = self.live.instances.get_mut(&instance) {
            found.links.extend(links.iter().cloned());
            shared.send(&found.record.node, ToAgent::Links { key, links });
        }
    }

    fn shell_runs(&self, shared: &mut Shared, call: ShellCall, instance: InstanceId) {
        if let Some(node) = self.live.node(instance) {
            let message = ToAgent::ShellRuns {
                instance: self.key(instance),
                node: node.clone(),
                call: call.clone(),
            };
            shared.send(&call.node, message);
        }
    }

    /// Tells the callers on a node again what has come of their calls: they may have missed it.
    pub(in crate::cluster) fn remind_calls(&self, shared: &mut Shared, node: &NodeName) {
        for (number, instance) in &self.live.instances {
            let Origin::Shell { caller, call } = instance.record.origin else { continue };
            if self.live.node(caller) == Some(node) && instance.stage == Stage::Running {
                let call = ShellCall { caller: self.key(caller), node: node.clone(), call };
                self.shell_runs(shared, call, *number);
            }
        }
    }

    /// The agent of a machine was started again. Callers there whose programs run have lost what tied them to those,
    /// which sends the job back; or had not been tied yet, and call once more. Those that have ended since do not call:
    /// a program may go on without the one that began it, so it is only waited for. What was called for and has not
    /// begun yet begins with the next call.
    pub(in crate::cluster) fn await_calls(&mut self, now: Now, caller: InstanceId) {
        let deadline = now.nanos.saturating_add(CALL_AGAIN);
        self.live.delayed.retain(|delayed| delayed.call.caller.instance != caller);
        let called = self.live.present().filter(|(_, instance)| {
            let by = |origin: &Origin| matches!(origin, Origin::Shell { caller: by, .. } if *by == caller);
            instance.stage != Stage::Restoring && by(&instance.record.origin)
        });
        let called: Vec<InstanceId> = called.map(|(number, _)| number).collect();
        self.live.uncalled.extend(called.into_iter().map(|number| (number, deadline)));
        self.hold_while_needed();
    }

    /// An instance that a shell called for can't be had.
    pub(in crate::cluster) fn shell_failed(
        &mut self,
        now: Now,
        shared: &mut Shared,
        instance: InstanceId,
        reason: &str,
    ) {
        let launching = |found: &&mut Instance| matches!(found.stage, Stage::Launching { .. });
        // It may run, or have been given up, by now.
        let Some(found) = self.live.instances.get_mut(&instance).filter(launching) else { return };
        let origin = found.record.origin.clone();
        self.live.given_up_on.insert(found.record.node.clone());
        self.live.end(instance);
        let job = self.ledger.id.clone();
        self.record(shared, ClusterEntry::InstanceEnded { job, instance });
        if let Origin::Shell { caller, call } = origin {
            if let Some(node) = self.live.node(caller).cloned() {
                let call = ShellCall { caller: self.key(caller), node, call };
                self.refuse_call(shared, call, reason);
            }
        }
        if let State::Running(running) = &mut self.state {
            // A coordinator that was started again counts on all that its log has.
            let actions = running.machine.remove_agent(now, instance);
            self.obey(now, shared, actions);
        }
        self.hold_while_needed();
        self.tick(now, shared);
    }

    /// Gives launches up that take too long.
    pub(in crate::cluster) fn check_launches(&mut self, now: Now, shared: &mut Shared) {
        self.live.forget_past_launches();
        let uncalled = self.live.uncalled.len();
        self.live.uncalled.retain(|_, deadline| now.nanos < *deadline);
        if self.live.uncalled.len() < uncalled {
            self.hold_while_needed();
        }
        let late: Vec<InstanceId> = self
            .live
            .launching()
            .take_while(|(_, _, deadline)| now.nanos >= *deadline)
            .filter(|(_, record, _)| matches!(record.origin, Origin::Shell { .. }))
            .map(|(number, _, _)| number)
            .collect();
        for instance in late {
            if let Some(node) = self.live.node(instance).cloned() {
                shared.command(&node, self.key(instance), AgentCommand::Kill);
                let reason = format!("{node} has not started it in time");
                self.shell_failed(now, shared, instance, &reason);
            }
        }
    }

    /// Says that what a call began is not to be had. That is final: its caller ends.
    fn refuse_call(&mut self, shared: &mut Shared, call: ShellCall, reason: &str) {
        if self.live.refused.len() >= MOST_REFUSED {
            self.live.refused.pop_first();
        }
        self.live.refused.insert((call.caller.instance, call.call));
        let node = call.node.clone();
        shared.send(&node, ToAgent::ShellFailed { call, reason: reason.to_owned() });
    }
}
