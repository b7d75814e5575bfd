//! In which order processes are forked where their numbers can't be asked for: in that in which the kernel hands
//! numbers out, as far as parents come before their children. So one round of the kernel's numbers does for most trees.

use std::collections::BTreeSet;
use std::io;

use super::super::super::graph::Pid;
use super::super::super::sys::clone3::{Shared, Side, SingleThreaded, fork_near};
use super::super::super::sys::rounds::{Counter, RESERVED, after, distance, end, is_taken};
use super::number_table::NumberTable;
use super::plan::{Birth, Index, Plan, Role};

/// Who forks when.
pub(super) struct Turns {
    births: Vec<Turn>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    rank: u32,
    /// The number that it is to have: its own, or, where nobody knows that, one that nobody else is to have.
    number: Pid,
}

impl Turns {
    /// The plan with everybody's children in the order of their turns, and the turns. `wants`: who is to have his
    /// number.
    pub(super) fn of(plan: &Plan, counter: &Counter, wants: &dyn Fn(Pid) -> bool) -> (Plan, Self) {
        let (last, end) = (counter.last().unwrap_or(0), end().unwrap_or(Pid::MAX));
        let mut wanted = wanted_numbers(&plan.births);
        wanted.iter_mut().for_each(|number| *number = number.filter(|pid| wants(*pid)));
        let births = turns(plan, &wanted, last, end, &is_taken);
        let mut plan = plan.clone();
        let by_rank = |children: &mut Vec<Index>| children.sort_by_key(|child| births[*child].rank);
        by_rank(&mut plan.by_init);
        for birth in &mut plan.births {
            by_rank(&mut birth.early);
            by_rank(&mut birth.later);
        }
        (plan, Self { births })
    }

    /// Forks a birth when its turn has come.
    pub(super) fn fork(
        &self,
        table: &NumberTable,
        proof: &SingleThreaded,
        child: Index,
        exit_signal: i32,
        shared: Shared,
    ) -> io::Result<Side> {
        let turn = &self.births[child];
        if !table.await_turn(turn.rank) {
            // SAFETY: ends a helper at once; init never waits for itself.
            unsafe { libc::_exit(125) }
        }
        let side = fork_near(proof, table.counter(), turn.number, exit_signal, shared)?;
        if let Side::Parent(number) = side {
            table.counter().note(number);
            table.end_turn(turn.rank);
        }
        Ok(side)
    }
}

/// Numbers that matter: those of processes that stay or are waited for, and of groups and sessions.
fn wanted_numbers(births: &[Birth]) -> Vec<Option<Pid>> {
    let named: BTreeSet<Pid> = births.iter().flat_map(|birth| [birth.sid, birth.pgid]).collect();
    let matters =
        |birth: &Birth| !matches!(birth.role, Role::Temporary { .. }) || named.contains(&birth.pid);
    births.iter().map(|birth| matters(birth).then_some(birth.pid)).collect()
}

/// When each is forked: always the one whose number comes next of those whose parents are there and have forked what
/// they fork before. Who may have any number gets one that neither somebody of the plan is to have nor anybody else
/// has: the very next one is often a child's of his own.
fn turns(
    plan: &Plan,
    wanted: &[Option<Pid>],
    last: Pid,
    end: Pid,
    is_taken: &dyn Fn(Pid) -> bool,
) -> Vec<Turn> {
    let mut turns = vec![Turn::default(); plan.births.len()];
    let mut spoken_for: BTreeSet<Pid> = wanted.iter().copied().flatten().collect();
    let mut available: Vec<Index> = plan.by_init.clone();
    let mut waiting: Vec<usize> = plan.births.iter().map(|birth| birth.early.len()).collect();
    let mut at = last;
    for rank in 0.. {
        let free = available.iter().any(|index| wanted[*index].is_none()).then(|| {
            let mut following = (1..end - RESERVED).map(|steps| after(at, steps, end));
            following.find(|number| !spoken_for.contains(number) && !is_taken(*number))
        });
        let free = free.flatten();
        let number = |index: Index| wanted[index].or(free).unwrap_or(at);
        let far = |index: &Index| distance(at, number(*index), end);
        let Some(place) =
            (0..available.len()).min_by_key(|place| (far(&available[*place]), *place))
        else {
            return turns;
        };
        let index = available.remove(place);
        at = number(index);
        spoken_for.insert(at);
        turns[index] = Turn { rank, number: at };
        let birth = &plan.births[index];
        available.extend(&birth.early);
        if birth.early.is_empty() {
            available.extend(&birth.later);
        }
        let parent = birth.forked_by.filter(|parent| plan.births[*parent].early.contains(&index));
        if let Some(parent) = parent {
            waiting[parent] -= 1;
            if waiting[parent] == 0 {
                available.extend(&plan.births[parent].later);
            }
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::super::super::super::graph::{ProcessNode, ProcessState};
    use super::super::plan;
    use super::*;

    fn node(pid: Pid, ppid: Pid) -> ProcessNode {
        let (comm, state) = (String::new(), ProcessState::Alive);
        let (exit_signal, subreaper) = (libc::SIGCHLD, false);
        let inside = None;
        ProcessNode { pid, ppid, pgid: 1, sid: 1, comm, exit_signal, subreaper, state, inside }
    }

    fn order(nodes: &[ProcessNode], last: Pid) -> Vec<Pid> {
        let plan = plan(nodes).unwrap();
        let wanted = wanted_numbers(&plan.births);
        let mut turns = turns(&plan, &wanted, last, 32768, &|number| number == 904);
        turns.sort_by_key(|turn| turn.rank);
        turns.into_iter().map(|turn| turn.number).collect()
    }

    #[test]
    fn one_round_does_for_a_tree_that_has_grown_in_one() {
        let nodes = [node(900, 1), node(901, 900), node(903, 900), node(902, 901)];
        assert_eq!(order(&nodes, 5000), [900, 901, 902, 903]);
        assert_eq!(order(&nodes, 100), [900, 901, 902, 903]);
    }

    #[test]
    fn who_may_have_any_number_takes_nobodys() {
        // The leader of 901 and 902 has ended, so there are two more: he, and one that makes them orphans.
        let orphan = |pid| ProcessNode { sid: 900, pgid: 900, ..node(pid, 1) };
        let nodes = [orphan(901), orphan(902), node(903, 1)];
        assert_eq!(order(&nodes, 850), [900, 903, 905, 901, 902]);
    }

    #[test]
    fn the_next_number_comes_first() {
        let nodes = [node(900, 1), node(400, 1), node(7000, 400)];
        assert_eq!(order(&nodes, 500), [900, 400, 7000]);
        assert_eq!(order(&nodes, 5000), [400, 900, 7000]);
    }
}
