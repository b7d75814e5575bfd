//! What listings show. The keys are those of a job on one machine, and some more.

use super::ClusterMachine;
use super::callers::Caller;
use super::clients::FindError;
use super::entry::Origin;
use super::event::Now;
use super::job::{Job, State};
use super::members::{Member, Presence};
use super::rollback::moved_for;
use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use protocol::cluster::settings::Traffic;
use serde_json::{Value, json};
use std::collections::BTreeMap;

impl ClusterMachine {
    fn visible(&self, caller: &Caller) -> Vec<&Job> {
        let mut jobs: Vec<&Job> =
            self.jobs.values().filter(|job| caller.may_see(&job.ledger.user)).collect();
        jobs.sort_by_key(|job| (job.ledger.created_at_ms, job.ledger.id.clone()));
        jobs
    }

    fn summary(&self, job: &Job, now: Now) -> Value {
        let mut value = job.summary(now, &self.shared.settings.jobs_folder);
        if let Value::Object(fields) = &mut value {
            let drained: Vec<&NodeName> = self.drains.keys().collect();
            fields.insert("drained".to_owned(), json!(drained));
        }
        value
    }

    pub(super) fn list_jobs(&self, now: Now, caller: &Caller) -> Value {
        self.visible(caller).into_iter().map(|job| self.summary(job, now)).collect()
    }

    /// One job; or all that run, and else the newest.
    pub(super) fn list_status(
        &self,
        now: Now,
        caller: &Caller,
        wanted: Option<&str>,
    ) -> Result<Value, FindError> {
        let attention = json!(self.attention(now, caller));
        let summary = |job: &Job| {
            let mut value = self.summary(job, now);
            if let Value::Object(fields) = &mut value {
                fields.insert("attention".to_owned(), attention.clone());
            }
            value
        };
        if let Some(wanted) = wanted {
            return Ok(summary(self.find(caller, wanted)?));
        }
        let jobs = self.visible(caller);
        let mut shown: Vec<&Job> = jobs.iter().copied().filter(|job| !job.is_over()).collect();
        if shown.is_empty() {
            shown.extend(jobs.last());
        }
        Ok(shown.into_iter().map(summary).collect())
    }

    pub(super) fn list_attention(&self, now: Now, caller: &Caller) -> Value {
        let drained: Vec<&NodeName> = self.drains.keys().collect();
        json!({ "attention": self.attention(now, caller), "drained": drained })
    }

    pub(super) fn list_nodes(&self, now: Now, caller: &Caller) -> Value {
        let mut instances: BTreeMap<&NodeName, Vec<String>> = BTreeMap::new();
        let mut holds: BTreeMap<&NodeName, Vec<&str>> = BTreeMap::new();
        for job in self.jobs.values() {
            let id = job.ledger.id.as_str();
            for (number, record) in job.records() {
                instances.entry(&record.node).or_default().push(format!("{id}/{}", number.0));
            }
            for image in job.ledger.images.values().flat_map(BTreeMap::values) {
                for holder in &image.holders {
                    let of = holds.entry(holder).or_default();
                    if of.last() != Some(&id) {
                        of.push(id);
                    }
                }
            }
        }
        let attention = self.attention(now, caller);
        let attention_of = |name: &NodeName| -> Vec<&str> {
            let of = attention.iter().filter(|one| one.node.as_ref() == Some(name));
            of.map(|one| one.text.as_str()).collect()
        };
        self.shared
            .members
            .iter()
            .map(|(name, member)| {
                let heartbeat = self.shared.settings.heartbeat();
                json!({
                    "name": name,
                    "state": state_of(member, now, heartbeat, instances.contains_key(name)),
                    "drained": member.drained,
                    "role": self.shared.powers_of(name).describe(),
                    "standby": self.shared.standbys.contains(name),
                    "trust": member.asks_for(&caller.user).ok(),
                    "job_traffic": match member.profile.job_traffic {
                        None => Traffic::Clear,
                        Some(_) => Traffic::Encrypted,
                    },
                    "owner": member.profile.owner.as_ref().map(|owner| &owner.name),
                    "address": member.profile.address,
                    "slots": member.profile.slots,
                    "spare": member.profile.spare,
                    "cores": member.profile.cores,
                    "capacity": member.cores(),
                    "speed": member.profile.speed.map(|_| member.speed()),
                    "speed_all": member.profile.speed.map(|_| member.speed_all()),
                    "speed_from": member.speed_from(),
                    "load": member.vitals.load,
                    "battery": member.vitals.battery,
                    "charging": member.vitals.charging,
                    "memory": member.profile.memory,
                    "available_memory": member.vitals.available_memory,
                    "kernel": member.profile.kernel,
                    "version": member.profile.version,
                    "disk_free": member.vitals.room.map(|room| room.free),
                    "disk_size": member.vitals.room.map(|room| room.size),
                    "attention": attention_of(name),
                    "architecture": member.profile.architecture,
                    "heard_ms": now.nanos.saturating_sub(member.heard.nanos) / 1_000_000,
                    "holds": holds.get(name).cloned().unwrap_or_default(),
                    "instances": instances.get(name).cloned().unwrap_or_default(),
                })
            })
            .collect()
    }
}

/// As exact as it is known.
fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

/// A node without a connection, or whose heartbeats are late, is unheard.
fn state_of(member: &Member, now: Now, heartbeat: u64, runs: bool) -> &'static str {
    let late = now.nanos.saturating_sub(member.heard.nanos) > heartbeat.saturating_mul(3);
    match member.presence {
        Presence::Gone => "gone",
        Presence::Leaving => "leaving",
        Presence::There if !member.is_connected() || late => "unheard",
        Presence::There if member.drained && runs => "draining",
        Presence::There if member.drained => "drained",
        Presence::There => "alive",
    }
}

impl Job {
    fn summary(&self, now: Now, jobs_folder: &str) -> Value {
        let ledger = &self.ledger;
        let history = &ledger.history;
        let end = history.end().filter(|_| self.is_over());
        let state = match (&self.state, end) {
            (State::Running(_), _) => "running",
            (State::Making(_), _) if ledger.epoch > 1 => "restoring",
            (State::Making(_), _) => "starting",
            (State::Over, Some(end)) if !end.asked && end.status.is_some() => "ended",
            (State::Over, _) => "interrupted",
        };
        let program: Vec<String> = ledger
            .request
            .launch
            .program
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let checkpoints: Vec<Value> = history
            .committed()
            .map(|(record, state)| {
                let mut value = json!(record);
                if let Value::Object(fields) = &mut value {
                    let age_s = now.unix_ms.saturating_sub(record.taken_at_ms) / 1000;
                    fields.insert("state".to_owned(), json!(state));
                    fields.insert("age_s".to_owned(), json!(age_s));
                    fields.insert("images".to_owned(), self.list_images(record.checkpoint));
                }
                value
            })
            .collect();
        let works = ledger.works.known(|instance| ledger.instances.contains_key(&instance));
        json!({
            "id": ledger.id,
            "name": ledger.name,
            "state": state,
            "command": program,
            "user": ledger.user.name,
            "created_at_ms": ledger.created_at_ms,
            "started_at_ms": history.started_at_ms(),
            "starts": history.starts(),
            "restored_from": history.restored_from(),
            "end": end,
            "log": format!("{jobs_folder}/{}/log", ledger.id),
            "live": self.live_status(now),
            "checkpoints": checkpoints,
            "last_abandoned": history.last_abandoned().map(|(checkpoint, reason)| {
                json!({ "checkpoint": checkpoint, "reason": reason })
            }),
            "epoch": ledger.epoch,
            "failure": ledger.over.as_ref().and_then(|over| over.reason.clone()),
            "over_at_ms": ledger.over.as_ref().map(|over| over.at_ms),
            "rollbacks": ledger.rollbacks,
            "rollbacks_without_commit": ledger.failures,
            "newcomers": self.migration.verdict(false),
            "speeds": self.migration.verdict(true),
            "instances": self.list_instances(),
            "work": ledger.works.text(&works),
            "processes": self.list_processes(&works),
            "settings": ledger.settings(),
        })
    }

    fn list_images(&self, checkpoint: u64) -> Value {
        let images = self.ledger.images.get(&checkpoint);
        images
            .into_iter()
            .flatten()
            .map(|(number, image)| {
                json!({
                    "instance": number.0,
                    "node": image.node,
                    "home": image.logical_node,
                    "holders": image.holders,
                    "at_stake": image.facts.at_stake,
                })
            })
            .collect()
    }

    fn live_status(&self, now: Now) -> Value {
        let State::Running(running) = &self.state else { return Value::Null };
        json!({
            "launcher_pid": 0,
            "processes": running.machine.processes(),
            "interval_s": running.machine.interval_s(),
            "interval_why": running.machine.chosen().map(|chosen| chosen.to_string()),
            "next_checkpoint_ms": running.machine.due_in_ms(now),
            "in_flight": running.machine.in_flight(now),
            "ending": running.machine.is_ending(),
            "rehearsal": self.rehearsed.newest,
            "held": running.held.as_ref().map(|held| &held.awaited),
        })
    }

    fn list_instances(&self) -> Value {
        self.records()
            .map(|(number, record)| {
                let live = self.live.instances.get(&number);
                json!({
                    "instance": number.0,
                    "node": record.node,
                    "home": record.logical_node,
                    "root": record.root,
                    "why": self.why(record.node.as_str(), &record.origin),
                    "partners": live.map(|live| live.partners.clone()).unwrap_or_default(),
                    "relays": live.map_or(0, |live| live.links.len()),
                })
            })
            .collect()
    }

    fn why(&self, node: &str, origin: &Origin) -> String {
        match origin {
            Origin::Run => "started here".to_owned(),
            Origin::Shell { caller, .. } => {
                format!("started here by the remote shell of instance {}", caller.0)
            }
            Origin::Image { instance, .. } => match self.ledger.image_of(origin) {
                Some(image) if image.node.as_str() == node => "restored where it was".to_owned(),
                Some(image) => format!("moved from {}: {}", image.node, self.cause_in_words()),
                None => format!("restored from the image of instance {}", instance.0),
            },
        }
    }

    fn cause_in_words(&self) -> String {
        // A second attempt, or one after a restart of the coordinator, is for the same cause.
        match self.ledger.rollbacks.last() {
            Some(last) => match (last.reason.as_str(), &last.node) {
                ("lost", Some(node)) => format!("{node} is gone"),
                ("leave" | "drain" | "join" | "speed", Some(_)) => moved_for(last),
                (reason, _) => reason.to_owned(),
            },
            None => self.ledger.cause.word().to_owned(),
        }
    }

    /// Processes as the newest checkpoint knows them, where they are now.
    fn list_processes(&self, works: &BTreeMap<InstanceId, BTreeMap<i32, f64>>) -> Value {
        let mut shown: Vec<Value> = Vec::new();
        for (number, record) in self.records() {
            let why = self.why(record.node.as_str(), &record.origin);
            let line = |pid: i32, name: &str| {
                json!({
                    "pid": pid,
                    "name": name,
                    "node": record.node,
                    "home": record.logical_node,
                    "why": why,
                    "instance": number.0,
                    "work": works.get(&number).and_then(|of| of.get(&pid)).copied().map(hundredths),
                })
            };
            if let Some(processes) = self.ledger.processes_of(number, record) {
                shown.extend(processes.map(|process| line(process.pid, &process.name)));
            } else if let Some(pid) = self.live.instances.get(&number).and_then(|live| live.pid) {
                let program = self.ledger.request.launch.program.first();
                let name = program.map(|name| name.to_string_lossy().into_owned());
                shown.push(line(pid, if record.root { name.as_deref().unwrap_or("") } else { "" }));
            }
        }
        Value::Array(shown)
    }
}
