//! A log in fewer entries that says the same: of each job what is known of it instead of all that has happened to it, of each
//! node, key and login what still counts.
//!
//! Whoever makes a log shorter replaces it only where [`say_the_same`] says so of what was written: from the log alone
//! everything is rebuilt, and nothing else would tell that something is missing.

use super::entry::{ClusterEntry, KnownJob, NEWEST_FORMAT};
use super::event::Now;
use super::recover::Recovered;
use super::RecoverError;
use protocol::cluster::NodeName;
use std::collections::BTreeSet;

/// The entries of a shorter log.
///
/// # Errors
/// Where the log was written by a newer ckptd.
pub fn shorten(now: Now, entries: &[ClusterEntry]) -> Result<Vec<ClusterEntry>, RecoverError> {
    let recovered = Recovered::read(now, entries.iter().cloned())?;
    let mut shorter = vec![ClusterEntry::Opened { format: NEWEST_FORMAT }];
    shorter.extend(of_no_job(now, entries).into_iter().cloned());
    let (ledgers, removed) = recovered.into_jobs();
    if !removed.is_empty() {
        shorter.push(ClusterEntry::JobsRemoved { jobs: removed });
    }
    // Behind what is said of nodes and terms, which changes what is known of jobs that are there by then.
    let known = ledgers.into_iter().map(|ledger| ClusterEntry::JobKnown(Box::new(KnownJob(ledger))));
    shorter.extend(known);
    Ok(shorter)
}

/// Whether two logs lead to the same.
///
/// # Errors
/// Where one was written by a newer ckptd.
pub fn say_the_same(
    now: Now,
    one: &[ClusterEntry],
    other: &[ClusterEntry],
) -> Result<bool, RecoverError> {
    let read = |entries: &[ClusterEntry]| Recovered::read(now, entries.iter().cloned());
    Ok(read(one)?.is_as(read(other)?, now))
}

/// What an entry replaces: an earlier one of the same kind that is about the same is of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind<'a> {
    /// Whether it is a member.
    Membership(&'a NodeName),
    /// Who an account of a member is.
    Login(&'a NodeName, u32),
    /// How a node is.
    Profile(&'a NodeName),
    /// Whether it is there.
    Presence(&'a NodeName),
    /// Whether it takes processes.
    Drained(&'a NodeName),
}

impl<'a> Kind<'a> {
    /// None: each of these counts.
    fn of(entry: &'a ClusterEntry) -> Option<Self> {
        match entry {
            ClusterEntry::NodeRemoved { node } | ClusterEntry::NodeReadmitted { node } => {
                Some(Kind::Membership(node))
            }
            ClusterEntry::LoggedIn(login) => Some(Kind::Login(&login.member, login.account.uid)),
            ClusterEntry::LoggedOut { member, account } => Some(Kind::Login(member, *account)),
            ClusterEntry::NodeKnown { node, .. } => Some(Kind::Profile(node)),
            ClusterEntry::NodeGone { node, .. } | ClusterEntry::NodeLeaves { node, .. } => {
                Some(Kind::Presence(node))
            }
            ClusterEntry::NodeDrained { node, .. } => Some(Kind::Drained(node)),
            _ => None,
        }
    }

    /// The node, where it is about how that is while it is a member.
    fn node(self) -> Option<&'a NodeName> {
        match self {
            Kind::Profile(node) | Kind::Presence(node) | Kind::Drained(node) => Some(node),
            Kind::Membership(_) | Kind::Login(..) => None,
        }
    }
}

/// Entries about no job, without those that do not count any more: first who is a member and who may log in, then how
/// members are.
fn of_no_job(now: Now, entries: &[ClusterEntry]) -> Vec<&ClusterEntry> {
    let (mut replaced, mut removed) = (BTreeSet::new(), BTreeSet::new());
    let (mut rights, mut profiles, mut states) = (Vec::new(), Vec::new(), Vec::new());
    for entry in entries.iter().rev().filter(|entry| entry.job().is_none()) {
        if matches!(entry, ClusterEntry::Opened { .. } | ClusterEntry::JobsRemoved { .. }) {
            continue;
        }
        let Some(kind) = Kind::of(entry) else {
            rights.push(entry);
            continue;
        };
        if kind.node().is_some_and(|node| removed.contains(node)) {
            // Of a member that was turned out since.
            continue;
        }
        // Also what is over stands for what came before it.
        let is_news = replaced.insert(kind);
        match entry {
            ClusterEntry::NodeRemoved { node } => {
                removed.insert(node);
                // Keys that had come by that node have gone with it, each time.
                rights.push(entry);
            }
            _ if !is_news => {}
            // It has come back.
            ClusterEntry::NodeGone { node, .. } if replaced.contains(&Kind::Profile(node)) => {}
            ClusterEntry::LoggedIn(login) if login.until_ms <= now.unix_ms => {}
            _ => match kind {
                Kind::Membership(_) | Kind::Login(..) => rights.push(entry),
                Kind::Profile(_) => profiles.push(entry),
                Kind::Presence(_) | Kind::Drained(_) => states.push(entry),
            },
        }
    }
    let parts = [rights, profiles, states].into_iter();
    parts.flat_map(|part| part.into_iter().rev()).collect()
}
