//! In which order processes are forked where their numbers can't be asked for: in that in which the kernel hands numbers
//! out, as far as parents come before their children. So one round of the kernel's numbers does for most trees.

use std::collections::BTreeSet;
use std::io;

use super::super::super::graph::Pid;
use super::super::super::sys::clone3::{Side, SingleThreaded, fork_any, fork_near};
use super::super::super::sys::rounds::{Counter, distance, end};
use super::board::Board;
use super::plan::{Birth, Index, Plan, Role};

/// Who forks when.
pub(super) struct Turns {
    births: Vec<Turn>,
}

struct Turn {
    rank: u32,
    /// The number that it is to have; `None`: any, nobody knows it.
    wanted: Option<Pid>,
}

impl Turns {
    /// The plan with everybody's children in the order of their turns, and the turns. `wants`: who is to have his number.
    pub(super) fn of(plan: &Plan, counter: &Counter, wants: &dyn Fn(Pid) -> bool) -> (Plan, Self) {
        let (last, end) = (counter.last().unwrap_or(0), end().unwrap_or(Pid::MAX));
        let mut wanted = wanted_numbers(&plan.births);
        wanted.iter_mut().for_each(|number| *number = number.filter(|pid| wants(*pid)));
        let ranks = ranks(plan, &wanted, last, end);
        let mut plan = plan.clone();
        let by_rank = |children: &mut Vec<Index>| children.sort_by_key(|child| ranks[*child]);
        by_rank(&mut plan.by_init);
        for birth in &mut plan.births {
            by_rank(&mut birth.early);
            by_rank(&mut birth.later);
        }
        let births =
            ranks.iter().zip(&wanted).map(|(rank, wanted)| Turn { rank: *rank, wanted: *wanted });
        (plan, Self { births: births.collect() })
    }

    /// Forks a birth when its turn has come.
    pub(super) fn fork(
        &self,
        board: &Board,
        proof: &SingleThreaded,
        child: Index,
        exit_signal: i32,
    ) -> io::Result<Side> {
        let turn = &self.births[child];
        if !board.await_turn(turn.rank) {
            // SAFETY: ends a helper at once; init never waits for itself.
            unsafe { libc::_exit(125) }
        }
        let side = match turn.wanted {
            Some(number) => fork_near(proof, board.counter(), number, exit_signal)?,
            None => fork_any(proof, exit_signal)?,
        };
        if let Side::Parent(number) = side {
            board.counter().note(number);
            board.end_turn(turn.rank);
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
/// they fork before.
fn ranks(plan: &Plan, wanted: &[Option<Pid>], last: Pid, end: Pid) -> Vec<u32> {
    let mut ranks = vec![0; plan.births.len()];
    let mut available: Vec<Index> = plan.by_init.clone();
    let mut waiting: Vec<usize> = plan.births.iter().map(|birth| birth.early.len()).collect();
    let mut at = last;
    for rank in 0.. {
        let far = |index: &Index| wanted[*index].map_or(0, |number| distance(at, number, end));
        let Some(place) =
            (0..available.len()).min_by_key(|place| (far(&available[*place]), *place))
        else {
            return ranks;
        };
        let index = available.remove(place);
        ranks[index] = rank;
        at = wanted[index].unwrap_or(at);
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
    ranks
}

#[cfg(test)]
mod tests {
    use super::super::super::super::graph::{ProcessNode, ProcessState};
    use super::super::plan::plan;
    use super::*;

    fn node(pid: Pid, ppid: Pid) -> ProcessNode {
        let (comm, state) = (String::new(), ProcessState::Alive);
        let (exit_signal, subreaper) = (libc::SIGCHLD, false);
        ProcessNode { pid, ppid, pgid: 1, sid: 1, comm, exit_signal, subreaper, state }
    }

    fn order(nodes: &[ProcessNode], last: Pid) -> Vec<Pid> {
        let plan = plan(nodes).unwrap();
        let wanted = wanted_numbers(&plan.births);
        let ranks = ranks(&plan, &wanted, last, 32768);
        let mut all: Vec<_> = plan.births.iter().map(|birth| birth.pid).zip(ranks).collect();
        all.sort_by_key(|(_, rank)| *rank);
        all.into_iter().map(|(pid, _)| pid).collect()
    }

    #[test]
    fn one_round_does_for_a_tree_that_has_grown_in_one() {
        let nodes = [node(900, 1), node(901, 900), node(903, 900), node(902, 901)];
        assert_eq!(order(&nodes, 5000), [900, 901, 902, 903]);
        assert_eq!(order(&nodes, 100), [900, 901, 902, 903]);
    }

    #[test]
    fn the_next_number_comes_first() {
        let nodes = [node(900, 1), node(400, 1), node(7000, 400)];
        assert_eq!(order(&nodes, 500), [900, 400, 7000]);
        assert_eq!(order(&nodes, 5000), [400, 900, 7000]);
    }
}
