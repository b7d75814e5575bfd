//! What of a cluster somebody should look after before it does harm: one line each, which says what to do.

use super::ClusterMachine;
use super::callers::Caller;
use super::event::Now;
use super::members::{Member, Presence};
use super::text;
use protocol::cluster::NodeName;
use protocol::room::Room;
use serde::Serialize;

/// Lines at a time.
const MOST: usize = 50;

/// Clocks by so little apart are wrong for the same reason, in milliseconds.
const TOGETHER: i64 = 10_000;

/// The version of this ckptd.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Attention {
    /// What it is about: `disk`, `certificate`, `drain`, `clock` or `version`.
    what: &'static str,
    /// The member that it is about; None: the coordinator's machine.
    pub(super) node: Option<NodeName>,
    /// What is the matter, and what to do.
    pub(super) text: String,
}

impl Attention {
    fn of(what: &'static str, node: &NodeName, text: String) -> Self {
        Self { what, node: Some(node.clone()), text }
    }
}

impl ClusterMachine {
    /// All of it, what is worst first. Whose jobs are in the way is for operators.
    pub(super) fn attention(&self, now: Now, caller: &Caller) -> Vec<Attention> {
        let mut found: Vec<Attention> = self.own_disk().into_iter().collect();
        let there = || {
            let members = self.shared.members.iter();
            members.filter(|(_, member)| member.presence != Presence::Gone)
        };
        found.extend(there().filter_map(|(node, member)| disk(node, member)));
        let certificate = self.shared.certificate.concern(now);
        found.extend(certificate.map(|text| Attention { what: "certificate", node: None, text }));
        found.extend(self.drains.iter().filter_map(|(node, drain)| {
            let why = drain.why.as_ref()?;
            let text = match caller.is_operator() {
                true => format!("{node} can't be emptied yet: {why}; or 'ckptd uncordon {node}'"),
                false => format!("{node} is drained, and can't be emptied yet"),
            };
            Some(Attention::of("drain", node, text))
        }));
        let connected: Vec<(&NodeName, &Member)> =
            there().filter(|(_, member)| member.is_connected()).collect();
        found.extend(clocks(now, &connected));
        found.extend(connected.iter().filter_map(|(node, member)| version(node, member)));
        found.truncate(MOST);
        found
    }

    fn own_disk(&self) -> Option<Attention> {
        let room = self.shared.own_room.filter(Room::is_short)?;
        let (how, free) = (fullness(&room), text::size(room.free));
        let text = format!(
            "the coordinator's disk is {how}, {free} are free: make room on its machine, or jobs come to stand still; \
             'ckptd rm --ended --older 7d' forgets old ones"
        );
        Some(Attention { what: "disk", node: None, text })
    }
}

fn fullness(room: &Room) -> &'static str {
    if room.is_full() { "full" } else { "nearly full" }
}

fn disk(node: &NodeName, member: &Member) -> Option<Attention> {
    let room = member.vitals.room.filter(Room::is_short)?;
    let (how, free) = (fullness(&room), text::size(room.free));
    let consequence = match room.is_full() {
        true => {
            "copies of checkpoints go to other machines, and checkpoints of what runs there fail"
        }
        false => "checkpoints of what runs there will fail",
    };
    let text = format!(
        "the disk of {node} is {how}, {free} are free: {consequence}; make room there, 'ckptd rm' forgets jobs"
    );
    Some(Attention::of("disk", node, text))
}

/// Clocks that are far off, or have jumped. Where all are by the same, it is the coordinator's.
fn clocks(now: Now, members: &[(&NodeName, &Member)]) -> Vec<Attention> {
    let off = |member: &Member| member.clock.off_by_ms();
    let all: Option<Vec<i64>> = members.iter().map(|(_, member)| off(member)).collect();
    let all = all.filter(|all| all.len() > 1).unwrap_or_default();
    if let (Some(least), Some(most)) = (all.iter().min(), all.iter().max()) {
        if most.saturating_sub(*least) < TOGETHER {
            let text = format!(
                "the clock of the coordinator's machine is {} those of all members: set it; 'timedatectl' shows what \
                 keeps it right",
                apart(least.saturating_neg())
            );
            return vec![Attention { what: "clock", node: None, text }];
        }
    }
    members
        .iter()
        .filter_map(|(node, member)| {
            let text = match (off(member), member.clock.jumped(now)) {
                (Some(off_by), _) => format!(
                    "the clock of {node} is {} the coordinator's: set it; 'timedatectl' there shows what keeps it right",
                    apart(off_by)
                ),
                (None, Some(jump)) => {
                    let ago = text::age(jump.at / 1_000_000, now.nanos / 1_000_000);
                    let way = if jump.by_ms > 0 { "forward" } else { "back" };
                    let by = jump.by_ms.unsigned_abs() / 1000;
                    format!(
                        "the clock of {node} jumped {way} by {by} s, {ago} ago: see that one service alone sets it \
                         there, in small steps"
                    )
                }
                (None, None) => return None,
            };
            Some(Attention::of("clock", node, text))
        })
        .collect()
}

/// "37 s ahead of", "1200 s behind"
fn apart(by_ms: i64) -> String {
    let seconds = by_ms.unsigned_abs() / 1000;
    if by_ms > 0 { format!("{seconds} s ahead of") } else { format!("{seconds} s behind") }
}

fn version(node: &NodeName, member: &Member) -> Option<Attention> {
    let its = member.profile.version.as_str();
    let is_older = match (numbers(its), numbers(VERSION)) {
        (Some(its), Some(own)) => its < own,
        // One of before agents told theirs.
        (None, Some(_)) => its.is_empty(),
        _ => false,
    };
    let its = if its.is_empty() { "an older ckptd".to_owned() } else { format!("ckptd {its}") };
    is_older.then(|| {
        let text = format!(
            "{node} runs {its}, the coordinator {VERSION}: install that there, and start its agent again"
        );
        Attention::of("version", node, text)
    })
}

/// "1.2.3" and "1.2.3-rc1" as numbers; None: it is none.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let plain = version.split(['-', '+']).next().unwrap_or_default();
    let mut parts = plain.split('.').map(|part| part.parse().ok());
    Some([parts.next()??, parts.next()??, parts.next()??])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_numbers() {
        assert!(numbers("0.9.0") < numbers("0.10.0"));
        assert_eq!(numbers("1.2.3-rc1"), Some([1, 2, 3]));
        assert_eq!((numbers(""), numbers("new"), numbers("1.2")), (None, None, None));
    }

    #[test]
    fn clocks_are_said_to_be_ahead_or_behind() {
        assert_eq!(apart(37_900), "37 s ahead of");
        assert_eq!(apart(-5_100), "5 s behind");
    }
}
