//! The coordinator's decisions as lines of its own log (not the one on disk): one line each, in fields.
//!
//! What is decided is what is appended to the log on disk, so the lines are told from its entries, before they are durable.
//! Fields: `job`, `epoch`, `checkpoint`, `node`, `reason`. Nothing that comes with each heartbeat is told.

use super::entry::{Cause, ClusterEntry, InstanceRecord, JobCreated, Origin};
use super::job::ledger::Ledger;
use super::text;
use crate::history::Entry;
use protocol::agent::{CheckpointNumber, InstanceId};
use protocol::cluster::{Epoch, NodeName};
use protocol::keys::KeyError;
use std::collections::{BTreeMap, BTreeSet};
use tracing::{debug, info, warn};

/// Instances of a placement that a line names.
const MOST_PLACES: usize = 64;

/// A decision about the cluster, or about which jobs there are.
pub(super) fn of_cluster(entry: &ClusterEntry) {
    match entry {
        ClusterEntry::NodeKnown { node, profile } => {
            let (address, slots) = (profile.address, profile.slots);
            info!(%node, %address, slots, "member: joined, back, or changed");
        }
        ClusterEntry::NodeRemoved { node } => {
            info!(%node, reason = "asked for", "member: turned out");
        }
        ClusterEntry::NodeReadmitted { node } => {
            info!(%node, reason = "joined with a new token", "member: taken again");
        }
        ClusterEntry::KeyAdded { user, through, .. } => {
            let node = through.as_ref().map(tracing::field::display);
            info!(user, node, "user: has a new key");
        }
        ClusterEntry::KeyRemoved { user, fingerprint } => {
            info!(user, fingerprint, reason = "asked for", "user: gives up a key");
        }
        ClusterEntry::LoggedIn(login) => {
            let (user, account, key) = (&login.user, login.account.uid, &login.key);
            info!(user, node = %login.member, account, key, "user: logged in");
        }
        ClusterEntry::LoggedOut { member, account } => {
            info!(node = %member, account, "user: login ended");
        }
        ClusterEntry::NodeLeaves { node, leaves: true } => info!(%node, "member: is to leave"),
        ClusterEntry::NodeDrained { node, on: true } => {
            info!(%node, reason = "asked for", "member: drained, takes no new processes");
        }
        ClusterEntry::NodeDrained { node, on: false } => {
            info!(%node, reason = "asked for", "member: takes processes again");
        }
        ClusterEntry::JobCreated(created) => {
            let JobCreated { job, name, user, client_node, .. } = created.as_ref();
            let node = client_node.as_ref().map(tracing::field::display);
            info!(job, name, user = user.uid, node, "job: created");
        }
        ClusterEntry::JobImported(imported) => {
            let node = imported.client_node.as_ref().map(tracing::field::display);
            let (job, name, user) = (&imported.job, &imported.name, imported.user.uid);
            info!(job, name, user, node, checkpoint = imported.record.checkpoint, "job: imported");
        }
        ClusterEntry::JobRemoved { job } => info!(job, reason = "asked for", "job: forgotten"),
        ClusterEntry::TermBegun { term, from, lost, .. } => {
            let reason = format!("the coordinator at {} is lost", lost.join(", "));
            info!(term, node = %from, reason, "coordinator: carries on from a copy");
        }
        // Told by `of_job`, `gone` and `stays`.
        _ => {}
    }
}

/// A key that the log has, and that does not count here.
pub(super) fn key_left_out(user: &str, reason: &KeyError) {
    warn!(user, %reason, "user: a key does not count");
}

/// A member that is not taken.
pub(super) fn refused(node: &NodeName, reason: &str) {
    warn!(%node, reason, "member: refused");
}

/// A member that is not there any more.
pub(super) fn gone(node: &NodeName, has_left: bool) {
    match has_left {
        true => info!(%node, reason = "it has left", "member: gone"),
        false => {
            warn!(%node, reason = "no heartbeat within the grace period", "member: declared gone");
        }
    }
}

/// A member that was to leave, and can't.
pub(super) fn stays(node: &NodeName, reason: &str) {
    warn!(%node, reason, "member: stays after all");
}

/// A member that has nothing of any job any more.
pub(super) fn free_to_go(node: &NodeName) {
    info!(%node, reason = "nothing of any job needs it", "member: free to go");
}

/// Images are sent ahead of a job's move.
pub(super) fn sent_ahead(job: &str, checkpoint: CheckpointNumber, what: &str) {
    info!(job, checkpoint, reason = what, "job: images go ahead of its move");
}

/// One of them did not arrive.
pub(super) fn not_ahead(job: &str, checkpoint: CheckpointNumber, node: &NodeName, reason: &str) {
    warn!(job, checkpoint, %node, reason, "job: an image did not arrive ahead of its move");
}

/// A member's disk is full, or is so no more.
pub(super) fn fullness(node: &NodeName, is_full: bool) {
    match is_full {
        true => warn!(%node, "member: its disk is full, copies go elsewhere"),
        false => info!(%node, "member: its disk has room again"),
    }
}

/// The page's certificate ends soon, or has ended.
pub(super) fn page_certificate(concern: &str) {
    warn!("page: {concern}");
}

/// A drained member on which nothing of any job runs any more.
pub(super) fn emptied(node: &NodeName) {
    info!(%node, reason = "it was drained", "member: runs nothing any more");
}

/// A drained member from which something can't move away now.
pub(super) fn not_emptied(node: &NodeName, reason: &str) {
    warn!(%node, reason, "member: can't be emptied yet");
}

/// A new epoch, and the machines that have to end what they have of older ones.
pub(super) fn epoch(
    job: &str,
    epoch: Epoch,
    checkpoint: Option<CheckpointNumber>,
    cause: &Cause,
    killed: &BTreeSet<NodeName>,
) {
    let names = |nodes: &mut dyn Iterator<Item = &NodeName>| {
        nodes.map(NodeName::as_str).collect::<Vec<_>>().join(",")
    };
    let reason = reason(cause);
    let node = Some(names(&mut cause.nodes().iter())).filter(|names| !names.is_empty());
    let kills = Some(names(&mut killed.iter())).filter(|names| !names.is_empty());
    match cause {
        Cause::Run => info!(job, epoch, "job: begins"),
        Cause::Restart => info!(job, epoch, checkpoint, kills, "job: restarted"),
        cause if cause.is_move() => {
            info!(job, epoch, checkpoint, node, reason, kills, "job: moves")
        }
        _ => warn!(job, epoch, checkpoint, node, reason, kills, "job: rolled back"),
    }
}

/// Why an epoch begins.
fn reason(cause: &Cause) -> String {
    match cause {
        Cause::Run => "run".to_owned(),
        Cause::Restart => "asked for".to_owned(),
        Cause::Lost { .. } => "declared gone".to_owned(),
        Cause::Leave { .. } => "announced departure".to_owned(),
        Cause::Drain { .. } => "drained".to_owned(),
        Cause::Join { .. } => "newcomers take a share".to_owned(),
        Cause::Speed { .. } => "machines have become slower or faster".to_owned(),
        Cause::Address { address, .. } => format!("its address is {address} now"),
        Cause::Broken { reason, .. } | Cause::Again { reason } => reason.clone(),
        Cause::Recovered => "the coordinator was started again in the middle of it".to_owned(),
    }
}

/// The job waits for machines or images.
pub(super) fn waits(ledger: &Ledger, reason: &str) {
    let (job, epoch, checkpoint) = (&ledger.id, ledger.epoch, ledger.checkpoint);
    warn!(job, epoch, checkpoint, reason, "job: waits");
}

/// A decision about a job, before its ledger has it.
pub(super) fn of_job(ledger: &Ledger, entry: &ClusterEntry) {
    let (job, epoch) = (ledger.id.as_str(), ledger.epoch);
    match entry {
        ClusterEntry::Instances { instances, .. } => {
            let placement = placement(&ledger.instances, instances);
            info!(job, epoch, checkpoint = ledger.checkpoint, placement, "job: placed");
        }
        ClusterEntry::Departed { daemons, .. } => {
            let departed = text::daemons(daemons);
            info!(job, epoch, checkpoint = ledger.checkpoint, departed, "job: without daemons");
        }
        ClusterEntry::Running { epoch, rollback, .. } => {
            let moved = rollback.as_ref().map_or(0, |record| record.moves.len());
            info!(job, epoch, checkpoint = ledger.checkpoint, moved, "job: runs");
        }
        ClusterEntry::Job { entry, .. } => of_checkpoint(job, epoch, entry),
        ClusterEntry::Committed { record, parked, .. } => {
            let (checkpoint, copies) = (record.checkpoint, record.copies);
            let (pause_us, bytes) = (record.pause_us, record.summary.stored_bytes);
            let parked = parked.as_ref().map(reason);
            info!(job, epoch, checkpoint, copies, pause_us, bytes, parked, "checkpoint: committed");
        }
        ClusterEntry::Held { checkpoint, instance, node, .. } => {
            debug!(job, epoch, checkpoint, %node, instance = instance.0, "checkpoint: one more copy");
        }
        ClusterEntry::InstanceRuns { instance, .. } => {
            debug!(job, epoch, instance = instance.0, "instance: runs");
        }
        ClusterEntry::InstanceEnded { instance, .. } => {
            let node = ledger.instances.get(instance).map(|record| record.node.as_str());
            info!(job, epoch, node, instance = instance.0, "instance: ended");
        }
        ClusterEntry::Settings { .. } => info!(job, epoch, "job: other settings"),
        ClusterEntry::JobOver { status: Some(status), .. } => {
            info!(job, epoch, reason = text::ended(*status), "job: over");
        }
        ClusterEntry::JobOver { status: None, reason, .. } => {
            warn!(job, epoch, reason = reason.as_deref(), "job: given up");
        }
        // Told by `epoch`, which knows who is killed.
        ClusterEntry::EpochBegun { .. } => {}
        // Of the cluster, or marks in the job's own log.
        _ => {}
    }
}

fn of_checkpoint(job: &str, epoch: Epoch, entry: &Entry) {
    match entry {
        Entry::Begun { checkpoint } => info!(job, epoch, checkpoint, "checkpoint: begun"),
        Entry::Abandoned { checkpoint, reason, .. } => {
            warn!(job, epoch, checkpoint, reason, "checkpoint: given up");
        }
        Entry::Collected { kept } => debug!(job, epoch, ?kept, "checkpoint: older ones collected"),
        Entry::Ended { status: Some(status), .. } => {
            info!(job, epoch, reason = text::ended(*status), "job: ended");
        }
        _ => {}
    }
}

/// Which part goes where, of the instances that are new: "1@desk, 2@lap (part 1 of 2)".
fn placement(
    known: &BTreeMap<InstanceId, InstanceRecord>,
    instances: &BTreeMap<InstanceId, InstanceRecord>,
) -> String {
    let new: Vec<_> =
        instances.iter().filter(|(number, record)| known.get(number) != Some(record)).collect();
    let words = new.iter().take(MOST_PLACES).map(|(number, record)| {
        let (number, node) = (number.0, &record.node);
        match &record.origin {
            Origin::Run => format!("{number}@{node}"),
            Origin::Shell { caller, .. } => format!("{number}@{node} (called by {})", caller.0),
            Origin::Image { instance, part, .. } => {
                format!("{number}@{node} (part {part} of {})", instance.0)
            }
        }
    });
    let mut words: Vec<String> = words.collect();
    let more = new.len().saturating_sub(MOST_PLACES);
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(node: &str, origin: Origin) -> InstanceRecord {
        let node: NodeName = node.parse().unwrap();
        let logical_node = node.clone();
        InstanceRecord { node, logical_node, root: false, origin, addresses: Vec::new() }
    }

    #[test]
    fn a_placement_names_what_is_new_and_is_bounded() {
        let part =
            |part| Origin::Image { instance: InstanceId(2), assignment: BTreeMap::new(), part };
        let known = BTreeMap::from([(InstanceId(1), record("desk", Origin::Run))]);
        let mut all = known.clone();
        all.insert(InstanceId(3), record("lap", part(1)));
        assert_eq!(placement(&known, &all), "3@lap (part 1 of 2)");
        assert_eq!(placement(&BTreeMap::new(), &all), "1@desk, 3@lap (part 1 of 2)");
        let many = (0..100).map(|number| (InstanceId(number), record("desk", Origin::Run)));
        let text = placement(&BTreeMap::new(), &many.collect());
        assert!(text.ends_with("63@desk, and 36 more"), "{text}");
    }

    #[test]
    fn the_reason_of_a_rollback_is_in_words() {
        let node: NodeName = "desk".parse().unwrap();
        assert_eq!(reason(&Cause::Lost { node: node.clone() }), "declared gone");
        let broken = Cause::Broken { node, reason: "a relay is broken".to_owned() };
        assert_eq!(reason(&broken), "a relay is broken");
    }
}
