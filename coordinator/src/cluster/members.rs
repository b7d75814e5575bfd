//! Who is a member, and how each of them is.

use super::changes::{Changes, Revision};
use super::clock_watch::ClockWatch;
use super::job::ledger::Ledger;
use super::peers::Peers;
use super::placement;
use crate::event::Time;
use crate::fault;
use protocol::agent::{CheckpointNumber, InstanceId};
use protocol::cluster::NodeName;
use protocol::cluster::agent::{Holding, JobUser, NodeProfile, Peer, Takes, Vitals};
use protocol::cluster::settings::{JobSettings, Traffic, Trust};
use protocol::compact::Pieces;
use protocol::transport::Fingerprint;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use thiserror::Error;

/// Why a job that can be nowhere waits.
const NOWHERE: &str = "no machine of the cluster can take processes";

/// Answers to heartbeats that are remembered of each member, for the heartbeats that say of one that it has come.
const MOST_ANSWERS: usize = 16;

/// Machines about which a user is told why they don't take a job.
const MOST_REASONS: usize = 8;

/// Whether a member takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// It is there, or not declared gone yet.
    There,
    /// It has announced that it goes.
    Leaving,
    /// It was declared gone; it may come back.
    Gone,
}

/// One member.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) profile: NodeProfile,
    pub(super) vitals: Vitals,
    pub(super) presence: Presence,
    /// Number of its connection, while it has one over which it has said Hello.
    pub(super) connection: Option<u64>,
    /// When its last heartbeat came.
    pub(super) heard: Time,
    /// Its last heartbeats and when they were answered, of the connection that it has.
    pub(super) answered: VecDeque<(u64, Time)>,
    /// How far its clock is from the coordinator's.
    pub(super) clock: ClockWatch,
    /// Images on its disk when it last connected.
    pub(super) holdings: Vec<Holding>,
    /// It was told that it is free to go, and has not been started again since.
    pub(super) dismissed: bool,
    /// It is to run nothing, until an operator says otherwise; it stays a member and keeps its images.
    pub(super) drained: bool,
    /// Hardly anything fits on its disk any more.
    full: bool,
    /// When it last connected, in milliseconds since 1970 UTC.
    pub(super) connected_ms: u64,
    /// When it was last declared gone, in milliseconds since 1970 UTC; 0: never.
    pub(super) gone_ms: u64,
}

/// Why a machine is not given a user's jobs, in words that follow its name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum Misfit {
    /// Its agent is that user's, and for nobody else.
    #[error("runs the jobs of {0} alone (ckptd agent --shared)")]
    RunsAlone(String),
    /// The user is not known there.
    #[error("has no user {0:?}")]
    NoUser(String),
    /// The user is root.
    #[error("runs no jobs as root; start its agent with --allow-root")]
    NotRoot,
    /// Its agent is that user's, whom the job's user does not trust.
    #[error("would run it as {0}, who could read it (--trust any)")]
    RunsAs(String),
    /// Its agent is root's, whom the job's user does not trust.
    #[error("has an agent of root's (--trust root)")]
    Roots,
    /// Its agent does not encrypt what jobs send.
    #[error("does not encrypt jobs' traffic; start its agent with --encrypt-job-traffic")]
    Clear,
}

impl Member {
    fn new(profile: NodeProfile, now: Time) -> Self {
        Self {
            profile,
            vitals: Vitals::default(),
            presence: Presence::There,
            connection: None,
            heard: now,
            answered: VecDeque::new(),
            clock: ClockWatch::default(),
            holdings: Vec::new(),
            dismissed: false,
            drained: false,
            full: false,
            connected_ms: now.unix_ms,
            gone_ms: 0,
        }
    }

    /// Whether an image, committed at that time, is on its disk: it may have come back with another one.
    pub(super) fn has_image(
        &self,
        job: &str,
        instance: InstanceId,
        checkpoint: CheckpointNumber,
        committed_ms: u64,
    ) -> bool {
        committed_ms >= self.connected_ms
            || self.holdings.iter().any(|holding| {
                holding.job == job
                    && holding.instance == instance
                    && holding.checkpoints.contains(&checkpoint)
            })
    }

    /// Whether messages reach it, as far as is known.
    pub(super) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Whether it may be given processes.
    pub(super) fn is_usable(&self) -> bool {
        self.would_be_usable() && !self.drained
    }

    /// The same, if it were not drained.
    fn would_be_usable(&self) -> bool {
        self.is_connected() && self.presence == Presence::There && self.profile.slots > 0
    }

    /// How far a user must trust others for a job to be here; or why none of theirs can be, in words that follow the
    /// machine's name.
    pub(super) fn asks_for(&self, user: &JobUser) -> Result<Trust, Misfit> {
        let profile = &self.profile;
        let lacks = match &profile.takes {
            Takes::Users(names) => !names.contains(&user.name),
            Takes::Everybody => false,
        };
        match &profile.owner {
            Some(owner) if owner.uid != 0 && owner.name == user.name => Ok(Trust::Own),
            Some(owner) if owner.uid != 0 && lacks => Err(Misfit::RunsAlone(owner.name.clone())),
            Some(owner) if owner.uid != 0 => Ok(Trust::Any),
            // Root's, or of an agent that does not tell.
            _ if lacks => Err(Misfit::NoUser(user.name.clone())),
            owner if owner.as_ref().is_some_and(|owner| owner.name == user.name) => {
                match profile.allow_root {
                    true => Ok(Trust::Own),
                    false => Err(Misfit::NotRoot),
                }
            }
            _ => Ok(Trust::Root),
        }
    }

    /// Why a job of that user is not to run on it, likewise; None: it may.
    pub(super) fn misfit_of(&self, user: &JobUser, settings: &JobSettings) -> Option<Misfit> {
        let clear = || {
            let suits = placement::suits(settings.traffic, self.profile.job_traffic);
            (!suits).then_some(Misfit::Clear)
        };
        self.distrust_of(user, settings.trust).or_else(clear)
    }

    /// Why neither processes nor images of a job of that user are for it, likewise; None: they are.
    pub(super) fn distrust_of(&self, user: &JobUser, trust: Trust) -> Option<Misfit> {
        match self.asks_for(user) {
            Ok(least) if least <= trust => None,
            Ok(Trust::Any) => {
                let owner = self.profile.owner.as_ref().map_or("another", |owner| &owner.name);
                Some(Misfit::RunsAs(owner.to_owned()))
            }
            Ok(_) => Some(Misfit::Roots),
            Err(misfit) => Some(misfit),
        }
    }

    /// Speed of one core, 1.0 where it is not known.
    pub(super) fn speed(&self) -> f64 {
        let measured = if self.profile.speed_given { None } else { self.vitals.speed };
        positive(measured).or(positive(self.profile.speed)).unwrap_or(1.0)
    }

    /// Of each core while all are at work.
    pub(super) fn speed_all(&self) -> f64 {
        let first = positive(self.profile.speed).zip(positive(self.profile.speed_all));
        let part = first.map_or(1.0, |(one, all)| (all / one).min(1.0));
        self.speed() * part
    }

    /// Notes a heartbeat. True where it tells of other cores or another speed than before.
    fn hear(&mut self, now: Time, vitals: Vitals) -> bool {
        self.heard = now;
        let (cores, speed) = (self.cores(), self.speed());
        self.vitals = vitals;
        self.full = self.vitals.room.is_some_and(|room| room.stays_full(self.full));
        (self.cores() - cores).abs() + (self.speed() - speed).abs() >= f64::EPSILON
    }

    /// Answers a heartbeat. Tells after what time the heartbeat was sent, by the answer that it says has come before.
    fn answer(&mut self, now: Time, sequence: u64, answered: Option<u64>) -> Option<Time> {
        let known = self.answered.iter().find(|(number, _)| Some(*number) == answered);
        let sent_after = known.map(|(_, at)| *at);
        if let (Some(sent_after), Some(wall_ms)) = (sent_after, self.vitals.wall_ms) {
            self.clock.see(now, sent_after, wall_ms);
        }
        if self.answered.len() == MOST_ANSWERS {
            self.answered.pop_front();
        }
        self.answered.push_back((sequence, now));
        sent_after
    }

    /// Cores' worth of time that jobs have there.
    pub(super) fn cores(&self) -> f64 {
        let told = positive(self.vitals.capacity).or(positive(self.profile.capacity));
        told.unwrap_or(f64::from(self.profile.cores))
    }

    /// How its speed came to be known.
    pub(super) fn speed_from(&self) -> &'static str {
        match (&self.profile, &self.vitals) {
            (profile, _) if profile.speed_given => "given",
            (_, vitals) if vitals.achieved => "achieved",
            (NodeProfile { speed: Some(_), .. }, _) => "measured",
            _ => "unknown",
        }
    }
}

fn positive(number: Option<f64>) -> Option<f64> {
    number.filter(|number| number.is_finite() && *number > 0.0)
}

/// All members, those that are gone included.
#[derive(Debug, Default)]
pub(super) struct Members {
    table: BTreeMap<NodeName, Member>,
    /// By which key each is a member.
    keys: BTreeMap<NodeName, Fingerprint>,
    /// Turned out, and not invited again.
    removed: BTreeSet<NodeName>,
    /// Those that have changed.
    changes: Changes,
    /// What agents are told of each other, until that changes.
    list: Peers,
    /// Before then nobody's grace is over: since members are only heard later than they were, what was
    /// found once stays true.
    quiet_until: u64,
}

impl Members {
    pub(super) fn get(&self, node: &NodeName) -> Option<&Member> {
        self.table.get(node)
    }

    /// The member, to be changed.
    pub(super) fn get_mut(&mut self, node: &NodeName) -> Option<&mut Member> {
        let member = self.table.get_mut(node)?;
        self.changes.note(node);
        self.list.doubt(node);
        Some(member)
    }

    /// A member has changed in a way that jobs may have to know.
    pub(super) fn note_change(&mut self, node: &NodeName) {
        self.changes.note(node);
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// How often members have changed in a way that jobs may have to know: come, gone, another machine, another address.
    pub(super) fn revision(&self) -> Revision {
        self.changes.revision()
    }

    /// Those that have changed since then; None: all may have.
    pub(super) fn changed_since(
        &self,
        revision: Revision,
    ) -> Option<impl Iterator<Item = &NodeName>> {
        self.changes.since(revision)
    }

    /// The member, for a step that is taken only for one. Without it, the fault is our own: it is told, and the step left
    /// out.
    pub(super) fn known(&mut self, node: &NodeName, step: &'static str) -> Option<&mut Member> {
        if !self.table.contains_key(node) {
            fault::tell(step, "a member of that name");
        }
        self.get_mut(node)
    }

    /// The member whose connection this is. It is nobody's where the node has another by now, or was declared gone or
    /// turned out: nothing counts that still comes over it.
    pub(super) fn of_connection(&self, node: &NodeName, connection: u64) -> Option<&Member> {
        self.get(node).filter(|member| member.connection == Some(connection))
    }

    /// Images on a node's disk when it last connected, and those that have come since; none of a node that is no member.
    pub(super) fn holdings(&self, node: &NodeName) -> &[Holding] {
        self.get(node).map_or(&[], |member| member.holdings.as_slice())
    }

    /// Notes a member's heartbeat. True where it tells of other cores or another speed than before.
    pub(super) fn hear(&mut self, now: Time, node: &NodeName, vitals: Vitals) -> bool {
        self.table.get_mut(node).is_some_and(|member| member.hear(now, vitals))
    }

    /// [Answers](Member::answer) a member's heartbeat.
    pub(super) fn answer_heartbeat(
        &mut self,
        now: Time,
        node: &NodeName,
        sequence: u64,
        answered: Option<u64>,
    ) -> Option<Time> {
        self.table.get_mut(node)?.answer(now, sequence, answered)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&NodeName, &Member)> {
        self.table.iter()
    }

    /// Takes a node in, or notes its new profile. True where that is news for the log.
    pub(super) fn know(&mut self, node: &NodeName, profile: NodeProfile, now: Time) -> bool {
        self.changes.note(node);
        self.list.doubt(node);
        match self.table.get_mut(node) {
            Some(member) => {
                let news = member.profile != profile || member.presence == Presence::Gone;
                if member.profile.started_ms != profile.started_ms {
                    // Another agent, which may have been told or have measured something else.
                    member.vitals = Vitals::default();
                }
                member.profile = profile;
                if member.presence == Presence::Gone {
                    member.presence = Presence::There;
                }
                news
            }
            None => {
                self.table.insert(node.clone(), Member::new(profile, now));
                true
            }
        }
    }

    /// By this key it is a member, and by no other.
    pub(super) fn certify(&mut self, node: &NodeName, key: Fingerprint) {
        if self.keys.get(node) != Some(&key) {
            self.keys.insert(node.clone(), key);
            self.list.doubt(node);
        }
    }

    /// The key by which it is a member.
    pub(super) fn key(&self, node: &NodeName) -> Option<&Fingerprint> {
        self.keys.get(node)
    }

    /// Those that were turned out, and not invited again.
    pub(super) fn removed(&self) -> Vec<NodeName> {
        self.removed.iter().cloned().collect()
    }

    pub(super) fn remove(&mut self, node: &NodeName) {
        self.list.doubt(node);
        self.changes.note(node);
        self.table.remove(node);
        self.keys.remove(node);
        self.removed.insert(node.clone());
    }

    /// It is invited again. False where it had not been turned out.
    pub(super) fn readmit(&mut self, node: &NodeName) -> bool {
        self.removed.remove(node)
    }

    pub(super) fn is_removed(&self, node: &NodeName) -> bool {
        self.removed.contains(node)
    }

    pub(super) fn is_connected(&self, node: &NodeName) -> bool {
        self.get(node).is_some_and(Member::is_connected)
    }

    pub(super) fn is_usable(&self, node: &NodeName) -> bool {
        self.get(node).is_some_and(Member::is_usable)
    }

    /// Whether it was declared gone, turned out, or never known: nothing that it holds is to be
    /// waited for.
    pub(super) fn is_gone(&self, node: &NodeName) -> bool {
        self.get(node).is_none_or(|member| member.presence == Presence::Gone)
    }

    /// Those that may be given processes of a job.
    pub(super) fn usable_for(&self, ledger: &Ledger) -> impl Iterator<Item = (&NodeName, &Member)> {
        self.usable().filter(|(_, member)| ledger.is_for(member))
    }

    /// Whether one is there that could be given processes of a job if it were not drained.
    pub(super) fn kept_back(&self, ledger: &Ledger) -> bool {
        let mut all = self.table.values();
        all.any(|member| {
            member.drained && member.presence != Presence::Gone && ledger.is_for(member)
        })
    }

    /// Why none of those that could be given processes takes a user's; None: one does, or there is none at all.
    pub(super) fn nowhere(&self, user: &JobUser, settings: &JobSettings) -> Option<String> {
        let reasons: Vec<String> = self
            .usable()
            .map(|(node, member)| Some(format!("{node} {}", member.misfit_of(user, settings)?)))
            .collect::<Option<_>>()?;
        let shown = reasons.iter().take(MOST_REASONS).cloned().collect::<Vec<_>>().join("; ");
        let wish = match settings.traffic {
            Traffic::Clear => "",
            Traffic::Encrypted => " with --encrypt-job-traffic",
        };
        (!reasons.is_empty()).then(|| format!("{NOWHERE} of {}{wish}: {shown}", user.name))
    }

    /// Why a job can be nowhere: no member takes processes; with those that would if they were not drained.
    pub(super) fn nobody(&self) -> String {
        let drained = self.iter().filter(|(_, member)| member.drained && member.would_be_usable());
        let names: Vec<&str> = drained.map(|(node, _)| node.as_str()).take(MOST_REASONS).collect();
        match names[..] {
            [] => NOWHERE.to_owned(),
            [one] => format!("{NOWHERE}: {one} is drained; see 'ckptd uncordon'"),
            _ => format!("{NOWHERE}: {} are drained; see 'ckptd uncordon'", names.join(", ")),
        }
    }

    /// Whether hardly anything fits on its disk any more.
    pub(super) fn is_full(&self, node: &NodeName) -> bool {
        self.get(node).is_some_and(|member| member.full)
    }

    /// Whether it has announced that it goes.
    pub(super) fn is_leaving(&self, node: &NodeName) -> bool {
        self.get(node).is_some_and(|member| member.presence == Presence::Leaving)
    }

    /// Whether it is to run nothing.
    pub(super) fn is_drained(&self, node: &NodeName) -> bool {
        self.get(node).is_some_and(|member| member.drained)
    }

    /// Those that may be given processes.
    pub(super) fn usable(&self) -> impl Iterator<Item = (&NodeName, &Member)> {
        self.iter().filter(|(_, member)| member.is_usable())
    }

    /// Those that are not gone.
    pub(super) fn present(&self) -> BTreeSet<NodeName> {
        let there = self.iter().filter(|(_, member)| member.presence != Presence::Gone);
        there.map(|(node, _)| node.clone()).collect()
    }

    /// Those to whom messages can be sent.
    pub(super) fn connected(&self) -> impl Iterator<Item = &NodeName> {
        self.iter().filter(|(_, member)| member.is_connected()).map(|(node, _)| node)
    }

    /// What agents are told of each other.
    pub(super) fn peers(&mut self) -> Pieces<Peer> {
        let mut list = std::mem::take(&mut self.list);
        list.renew(|name| self.peer(name));
        let all = list.all();
        self.list = list;
        all
    }

    /// What the others are told of a node; None: that it is not there.
    pub(super) fn peer(&self, node: &NodeName) -> Option<Peer> {
        let member = self.table.get(node).filter(|member| member.presence != Presence::Gone)?;
        let key = self.keys.get(node).cloned().unwrap_or_default();
        let NodeProfile { address, job_traffic, .. } = member.profile;
        // Connections of jobs come from any of them. Most machines have none but the one by which it is known.
        let known = &member.profile.addresses;
        let has_others =
            known.iter().any(|other| other.to_canonical() != address.ip().to_canonical());
        let addresses = if has_others { known.clone() } else { Vec::new() };
        Some(Peer { name: node.clone(), address, key, job_traffic, addresses })
    }

    /// An image has come to a node's disk.
    pub(super) fn note_image(
        &mut self,
        node: &NodeName,
        job: &str,
        instance: InstanceId,
        checkpoint: CheckpointNumber,
    ) {
        if let Some(member) = self.table.get_mut(node) {
            let job = job.to_owned();
            member.holdings.push(Holding { job, instance, checkpoints: vec![checkpoint] });
        }
    }

    /// Starts the grace anew for all.
    pub(super) fn forgive(&mut self, now: Time) {
        for member in self.table.values_mut() {
            member.heard = now;
        }
    }

    /// When the next member may have to be declared gone.
    pub(super) fn deadline(&self) -> Option<u64> {
        let there = self.table.values().any(|member| member.presence != Presence::Gone);
        there.then_some(self.quiet_until)
    }

    /// Those whose grace is over.
    pub(super) fn overdue(&mut self, now: Time, grace: u64) -> Vec<NodeName> {
        if now.nanos < self.quiet_until {
            return Vec::new();
        }
        let mut overdue = Vec::new();
        self.quiet_until = now.nanos.saturating_add(grace);
        for (node, member) in &self.table {
            if member.presence == Presence::Gone {
                continue;
            }
            let until = member.heard.nanos.saturating_add(grace);
            if now.nanos >= until {
                overdue.push(node.clone());
            } else {
                self.quiet_until = self.quiet_until.min(until);
            }
        }
        overdue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32, name: &str) -> JobUser {
        JobUser { uid, name: name.to_owned() }
    }

    fn member(owner: JobUser, takes: Takes, allow_root: bool) -> Member {
        let profile = serde_json::json!({
            "address": "10.0.0.1:1", "wire": "10.0.0.1:2", "slots": 1, "cores": 1, "speed": null,
            "architecture": "x86_64", "page_size": 4096, "vdso": "", "memory": 1, "kernel": "6",
            "owner": owner, "takes": takes, "allow_root": allow_root
        });
        let profile = serde_json::from_value(profile).unwrap();
        Member::new(profile, Time { nanos: 0, unix_ms: 0 })
    }

    fn of(names: &[&str]) -> Takes {
        Takes::Users(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn jobs_go_where_their_user_is_known_and_trusts_the_owner() {
        let (alice, root) = (user(1000, "alice"), user(0, "root"));
        let roots = member(root.clone(), of(&["root", "alice"]), false);
        assert_eq!(roots.asks_for(&alice), Ok(Trust::Root));
        assert_eq!(roots.asks_for(&root), Err(Misfit::NotRoot));
        assert_eq!(roots.asks_for(&user(1000, "bob")), Err(Misfit::NoUser("bob".to_owned())));
        assert_eq!(roots.distrust_of(&alice, Trust::Root), None);
        assert!(roots.distrust_of(&alice, Trust::Own).is_some());
        let roots = member(root.clone(), Takes::Everybody, true);
        assert_eq!(roots.asks_for(&root), Ok(Trust::Own));
        let bobs = member(user(7, "bob"), of(&["bob"]), false);
        assert_eq!(bobs.asks_for(&user(99, "bob")), Ok(Trust::Own));
        assert_eq!(bobs.asks_for(&alice), Err(Misfit::RunsAlone("bob".to_owned())));
        let shared = member(user(7, "bob"), Takes::Everybody, false);
        assert_eq!(shared.asks_for(&alice), Ok(Trust::Any));
        assert_eq!(shared.distrust_of(&alice, Trust::Root), Some(Misfit::RunsAs("bob".to_owned())));
        assert_eq!(shared.distrust_of(&alice, Trust::Any), None);
    }
}
