//! A plan that is sound: everybody comes into the PID namespace that he was in.

use std::collections::BTreeSet;

use super::super::super::graph::{NumbersInside, ProcessNode};
use super::plan::{Birth, Index, Plan, draft};
use super::recorded::{INIT, TreeError};

/// Works out how to rebuild a tree in a fresh PID namespace, whose init is process 1 and carries the
/// plan out. Nothing else may be in that namespace.
///
/// The rules of the kernel behind it: fork(2) hands down session and group; setsid(2) fails for
/// the leader of a group; setpgid(2) joins groups of the own session only, and not from a session
/// leader; an orphan goes to the nearest living ancestor that is a subreaper, else to init
/// (PR_SET_CHILD_SUBREAPER(2const)); a number is free when no process, group or session has it.
///
/// # Errors
///
/// Names the first process that cannot be rebuilt.
pub fn plan(processes: &[ProcessNode]) -> Result<Plan, TreeError> {
    let plan = draft(processes)?;
    check(&plan)?;
    Ok(plan)
}

/// Refuses a plan in which a process would come into another PID namespace than it was in, or into the same one as somebody else.
fn check(plan: &Plan) -> Result<(), TreeError> {
    let mut numbers = BTreeSet::new();
    for birth in &plan.births {
        let by = birth.forked_by.map(|parent| &plan.births[parent]);
        let of_forker = by.and_then(|by| by.inside);
        let Some(inside) = birth.inside else {
            match of_forker {
                None => continue,
                Some(_) => return Err(unreachable(birth)),
            }
        };
        if inside.pid < NumbersInside::FIRST || inside.pgid < 0 || inside.sid < 0 {
            return Err(TreeError::Number {
                pid: birth.pid,
                what: "its number in a PID namespace",
                number: inside.pid.min(inside.pgid).min(inside.sid),
            });
        }
        if !numbers.insert((inside.namespace, inside.pid)) {
            return Err(TreeError::Twice(birth.pid));
        }
        let fits = match of_forker {
            Some(by) => by.namespace == inside.namespace && !inside.is_first(),
            // Whoever is born before a setsid(2) of its parent comes before there are groups.
            None => by.is_none_or(|by| by.inward.contains(&index(plan, birth))),
        };
        if !fits {
            return Err(unreachable(birth));
        }
        // A group of outside is handed down by whoever forks it from there.
        if of_forker.is_none() && inside.pgid == 0 {
            let group = birth.born_in.or(by.map(|by| by.pgid)).unwrap_or(INIT);
            if group != birth.pgid {
                return Err(unreachable(birth));
            }
        }
    }
    let without = plan.births.iter().find(|birth| {
        let inside = birth.inside.map(|inside| inside.namespace);
        inside.is_some_and(|namespace| first_of(plan, namespace).is_none())
    });
    without.map_or(Ok(()), |birth| Err(unreachable(birth)))
}

/// The first process of a namespace.
pub(super) fn first_of(plan: &Plan, namespace: u32) -> Option<Index> {
    let is_first = |inside: &NumbersInside| inside.namespace == namespace && inside.is_first();
    plan.births.iter().position(|birth| birth.inside.as_ref().is_some_and(is_first))
}

fn index(plan: &Plan, birth: &Birth) -> usize {
    plan.births.iter().position(|other| other.pid == birth.pid).unwrap_or(usize::MAX)
}

fn unreachable(birth: &Birth) -> TreeError {
    TreeError::Unreachable { pid: birth.pid, ppid: birth.ppid, sid: birth.sid }
}
