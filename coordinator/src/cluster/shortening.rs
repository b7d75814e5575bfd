//! A log in fewer entries that says the same: of each job what is known of it instead of all that has happened to it, of each
//! node how it is, of keys and logins those that count.
//!
//! Whoever makes a log shorter replaces it only where [`say_the_same`] says so of what was written: from the log alone
//! everything is rebuilt, and nothing else would tell that something is missing.

use super::RecoverError;
use super::entry::{ClusterEntry, NEWEST_FORMAT};
use super::event::Now;
use super::members::{Member, Members, Presence};
use super::recover::Recovered;
use protocol::cluster::NodeName;
use std::collections::BTreeSet;

/// The entries of a shorter log.
///
/// # Errors
/// Where the log was written by a newer ckptd.
pub fn shorten(now: Now, entries: &[ClusterEntry]) -> Result<Vec<ClusterEntry>, RecoverError> {
    let recovered = Recovered::read(now, entries.iter().cloned())?;
    let before = match entries.first() {
        Some(ClusterEntry::Reopened { generation, .. }) => *generation,
        _ => 0,
    };
    let generation = before.saturating_add(1);
    let mut shorter = vec![ClusterEntry::Reopened { format: NEWEST_FORMAT, generation }];
    shorter.extend(rights(now, entries).into_iter().cloned());
    let (members, ledgers, removed) = recovered.into_parts();
    shorter.extend(of_members(&members));
    if !removed.is_empty() {
        shorter.push(ClusterEntry::JobsRemoved { jobs: removed });
    }
    // Behind what is said of nodes and terms, which would change what is known of jobs.
    for ledger in ledgers {
        let known = ledger.to_known();
        let known = known.map_err(|_| RecoverError::Unknown { job: ledger.id.clone() })?;
        shorter.push(ClusterEntry::JobKnown(Box::new(known)));
    }
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
    Ok(read(one)?.says_the_same(read(other)?, now))
}

/// What a log has to say for members to be as these.
fn of_members(members: &Members) -> Vec<ClusterEntry> {
    let of = |(node, member): (&NodeName, &Member)| {
        let node = || node.clone();
        let profile = Box::new(member.profile.clone());
        let presence = match member.presence {
            Presence::There => None,
            Presence::Leaving => Some(ClusterEntry::NodeLeaves { node: node(), leaves: true }),
            Presence::Gone => Some(ClusterEntry::NodeGone { node: node(), at_ms: member.gone_ms }),
        };
        let drained = member.drained.then(|| ClusterEntry::NodeDrained { node: node(), on: true });
        let known = ClusterEntry::NodeKnown { node: node(), profile };
        [Some(known), presence, drained].into_iter().flatten()
    };
    members.iter().flat_map(of).collect()
}

/// Who is a member, which keys there are and who is logged in, and terms: entries that count, in their order.
fn rights(now: Now, entries: &[ClusterEntry]) -> Vec<&ClusterEntry> {
    // What comes later stands for what came before, also where that is over by now.
    let (mut readmitted, mut logins) = (BTreeSet::new(), BTreeSet::new());
    let mut kept = Vec::new();
    for entry in entries.iter().rev() {
        let counts = match entry {
            ClusterEntry::NodeReadmitted { node } => readmitted.insert(node),
            // Keys that had come by that node have gone with it, each time.
            ClusterEntry::NodeRemoved { .. }
            | ClusterEntry::KeyAdded { .. }
            | ClusterEntry::KeyRemoved { .. }
            | ClusterEntry::TermBegun { .. } => true,
            ClusterEntry::LoggedIn(login) => {
                logins.insert((&login.member, login.account.uid)) && login.until_ms > now.unix_ms
            }
            ClusterEntry::LoggedOut { member, account } => logins.insert((member, *account)),
            _ => false,
        };
        if counts {
            kept.push(entry);
        }
    }
    kept.reverse();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;
    use crate::cluster::Login;
    use protocol::cluster::agent::{JobUser, NodeProfile};
    use protocol::transport::Fingerprint;

    const NOW: Now = Time { nanos: 0, unix_ms: 1000 };

    fn node(number: u64) -> NodeName {
        format!("node{number}").parse().unwrap()
    }

    fn login(number: u64, account: u32, until_ms: u64) -> ClusterEntry {
        let user = |name: &str| JobUser { uid: account, name: name.to_owned() };
        ClusterEntry::LoggedIn(Box::new(Login {
            member: node(number),
            member_key: Fingerprint::default(),
            account: user("there"),
            user: format!("user{account}"),
            key: "none".to_owned(),
            until_ms,
        }))
    }

    /// One of all that is said of nodes and accounts, by chance.
    fn entry(chance: u64) -> ClusterEntry {
        let (what, of) = (chance % 8, chance / 8 % 3);
        let (on, account) = (chance / 24 % 2 == 0, (chance / 48 % 2) as u32);
        let node = node(of);
        match what {
            0 | 1 => {
                let profile = serde_json::json!({
                    "address": "127.0.0.1:1", "slots": chance / 100 % 5, "cores": 1, "speed": null,
                    "architecture": "", "page_size": 4096, "vdso": "", "memory": 1, "kernel": "",
                    "allow_root": false,
                });
                let profile: NodeProfile = serde_json::from_value(profile).unwrap();
                ClusterEntry::NodeKnown { node, profile: Box::new(profile) }
            }
            2 => ClusterEntry::NodeGone { node, at_ms: chance % 900 },
            3 => ClusterEntry::NodeLeaves { node, leaves: on },
            4 => ClusterEntry::NodeDrained { node, on },
            5 if on => ClusterEntry::NodeRemoved { node },
            5 => ClusterEntry::NodeReadmitted { node },
            6 => login(of, account, chance % 2000),
            _ => ClusterEntry::LoggedOut { member: node, account },
        }
    }

    #[test]
    fn whatever_is_said_of_nodes_and_accounts_is_said_in_fewer_entries() {
        let mut chance = 1_u64;
        let mut longest = 0;
        for length in 0..3000 {
            let mut log = vec![ClusterEntry::Opened { format: 1 }];
            for _ in 0..length % 40 {
                chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                log.push(entry(chance >> 33));
            }
            let shorter = shorten(NOW, &log).unwrap();
            assert!(say_the_same(NOW, &log, &shorter).unwrap(), "{log:#?}\n{shorter:#?}");
            let again = shorten(NOW, &shorter).unwrap();
            assert_eq!(again[0], ClusterEntry::Reopened { format: 2, generation: 2 });
            assert_eq!(again[1..], shorter[1..], "{log:#?}");
            longest = longest.max(shorter.len());
        }
        assert!(longest < 35, "{longest}");
    }
}
