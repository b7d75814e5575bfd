//! What follows when an epoch can't be made, or not in time.

use super::making::{Gathering, Stage};
use crate::cluster::entry::Cause;
use crate::cluster::event::Now;
use crate::cluster::job::instances::Live;
use crate::cluster::job::{Job, State};
use crate::cluster::shared::Shared;
use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use std::collections::BTreeMap;

/// Times in a row that machines may fail to make an epoch.
const MOST_FAILED_MAKES: u32 = 2;

/// What follows when a machine has failed to make an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextTry {
    /// The same plan: the user wants it on that machine, and what failed may have been a moment's.
    Same,
    /// Without that machine.
    Elsewhere,
    /// None.
    No,
}

impl NextTry {
    /// After so many failures in a row, the last of them of this machine, if it is known.
    fn after(failed: u32, node: Option<&NodeName>, pins: &BTreeMap<NodeName, u32>) -> Self {
        let most = MOST_FAILED_MAKES + u32::from(!pins.is_empty());
        match failed {
            failed if failed >= most => Self::No,
            1 if node.is_some_and(|node| pins.contains_key(node)) => Self::Same,
            _ => Self::Elsewhere,
        }
    }
}

impl Job {
    /// An instance could not be made.
    pub(in crate::cluster) fn not_made(
        &mut self,
        now: Now,
        shared: &mut Shared,
        instance: InstanceId,
        reason: &str,
    ) {
        let node = self.live.node(instance).cloned();
        match &self.state {
            State::Making(_) => {
                let reason = match &node {
                    Some(node) => format!("{node}: {reason}"),
                    None => reason.to_owned(),
                };
                self.make_failed(now, shared, node.as_ref(), &reason);
            }
            State::Running(_) => self.shell_failed(now, shared, instance, reason),
            State::Over => {}
        }
    }

    /// A machine failed at a step of the making.
    pub(in crate::cluster) fn make_failed(
        &mut self,
        now: Now,
        shared: &mut Shared,
        node: Option<&NodeName>,
        reason: &str,
    ) {
        // Whoever has asked for it on one machine is told at once; where any will do, another one is tried.
        let first_run = self.ledger.epoch == 1 && !self.ledger.request.anywhere;
        // A late word about an epoch that was given up.
        let State::Making(making) = &mut self.state else { return };
        making.attempts.failed += 1;
        let next = NextTry::after(making.attempts.failed, node, &self.ledger.settings().place);
        if next != NextTry::Same {
            making.attempts.avoid.extend(node.cloned());
        }
        let again = next == NextTry::No;
        if again && self.could_go_back(&shared.members) {
            // It could go on where it was, if nobody went.
            self.stuck = Some(reason.to_owned());
            self.console.say(shared, &format!("warning: {reason}"));
            self.roll_back(now, shared, Cause::Again { reason: reason.to_owned() });
        } else if first_run || again {
            self.give_up(now, shared, reason);
        } else {
            self.console.say(shared, &format!("warning: {reason}; trying once more"));
            self.roll_back(now, shared, Cause::Again { reason: reason.to_owned() });
        }
    }

    /// The time of a step has passed.
    pub(in crate::cluster) fn check_making(&mut self, now: Now, shared: &mut Shared) {
        // Only an epoch that is being made has times to be kept.
        let State::Making(making) = &mut self.state else { return };
        if making.deadline.is_none_or(|deadline| now.nanos < deadline) {
            return;
        }
        making.deadline = None;
        let is_waiting = making.is_waiting();
        let is_nobody_usable = shared.members.usable_for(&self.ledger).next().is_none();
        if is_waiting && is_nobody_usable && shared.members.kept_back(&self.ledger) {
            // A machine that could take it is drained, and will be back.
            let limit = shared.settings.rollback.machines;
            making.deadline = Some(now.nanos.saturating_add(limit));
            return;
        }
        match &mut making.stage {
            Stage::Killing { awaited, warned } => {
                if !std::mem::replace(warned, true) {
                    let names: Vec<&str> = awaited.iter().map(NodeName::as_str).collect();
                    let line = format!(
                        "waiting until {} has ended its part of the job, or is declared gone",
                        names.join(", ")
                    );
                    self.console.say(shared, &line);
                }
            }
            Stage::Waiting { reason } => {
                let reason = reason.clone();
                self.give_up(now, shared, &reason);
            }
            Stage::Launching => {
                let node = self.root_node();
                self.made_late(now, shared, node, "started");
            }
            Stage::Preparing(gathering) => {
                let node = late(gathering, &self.live);
                self.made_late(now, shared, node, "given its images");
            }
            Stage::Restoring(gathering) => {
                let node = late(gathering, &self.live);
                self.made_late(now, shared, node, "restored");
            }
            Stage::Starting(gathering) => {
                let node = late(gathering, &self.live);
                self.made_late(now, shared, node, "let go");
            }
        }
    }

    /// A step of the making took too long on a machine, or, where it is not known, somewhere.
    fn made_late(&mut self, now: Now, shared: &mut Shared, node: Option<NodeName>, done: &str) {
        let place = node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
        let reason = format!("the job was not {done} in time{place}");
        self.make_failed(now, shared, node.as_ref(), &reason);
    }
}

/// The machine of an instance that is still awaited.
fn late<T>(gathering: &Gathering<T>, live: &Live) -> Option<NodeName> {
    gathering.next_awaited().and_then(|instance| live.node(instance)).cloned()
}

#[cfg(test)]
mod tests {
    use super::NextTry;
    use protocol::cluster::NodeName;
    use std::collections::BTreeMap;

    #[test]
    fn a_machine_that_the_user_named_gets_a_second_try() {
        let name = |name: &str| name.parse::<NodeName>().unwrap();
        let (pinned, other) = (name("node2"), name("node3"));
        let pins = BTreeMap::from([(name("node1"), 6), (pinned.clone(), 6)]);
        let tries = |node: Option<&NodeName>, pins: &BTreeMap<NodeName, u32>| {
            [1, 2, 3].map(|failed| NextTry::after(failed, node, pins))
        };
        use NextTry::{Elsewhere, No, Same};
        assert_eq!(tries(Some(&pinned), &pins), [Same, Elsewhere, No]);
        assert_eq!(tries(Some(&other), &pins), [Elsewhere, Elsewhere, No]);
        assert_eq!(tries(None, &pins), [Elsewhere, Elsewhere, No]);
        assert_eq!(tries(Some(&pinned), &BTreeMap::new()), [Elsewhere, No, No]);
    }
}
