use proptest::prelude::*;

use super::super::super::super::graph::{NumbersInside, Pid, ProcessNode, ProcessState};
use super::super::simulator::Kernel;
use super::super::{GroupStep, Role, TreeError, plan};

/// One event of a history; numbers choose among the living processes.
#[derive(Debug, Clone)]
enum Event {
    Fork(usize),
    Setsid(usize),
    /// Double fork with a setsid between.
    Daemon(usize),
    Setpgid(usize, usize),
    Subreaper(usize),
    Exit(usize, u8),
    Reap(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let who = any::<usize>();
    prop_oneof![
        6 => who.prop_map(Event::Fork),
        2 => who.prop_map(Event::Setsid),
        1 => who.prop_map(Event::Daemon),
        4 => (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Event::Setpgid(a, b)),
        1 => who.prop_map(Event::Subreaper),
        2 => (any::<usize>(), any::<u8>()).prop_map(|(a, b)| Event::Exit(a, b)),
        1 => who.prop_map(Event::Reap),
    ]
}

struct History {
    kernel: Kernel,
    next: Pid,
}

impl History {
    fn run(events: &[Event]) -> Kernel {
        let mut history = Self { kernel: Kernel::new(), next: 2 };
        for event in events {
            history.apply(event);
        }
        history.kernel
    }

    fn living(&self, number: usize) -> Pid {
        let living: Vec<Pid> = self
            .kernel
            .processes
            .iter()
            .filter(|(_, process)| process.zombie.is_none())
            .map(|(pid, _)| *pid)
            .collect();
        living[number % living.len()]
    }

    fn fork(&mut self, parent: Pid) -> Pid {
        while !self.kernel.is_free(self.next) {
            self.next += 1;
        }
        self.kernel.fork(parent, self.next, libc::SIGCHLD).expect("the number is free");
        self.next
    }

    fn apply(&mut self, event: &Event) {
        // What the kernel refuses changes nothing, as in life.
        match event {
            Event::Fork(who) => {
                self.fork(self.living(*who));
            }
            Event::Setsid(who) => drop(self.kernel.setsid(self.living(*who))),
            Event::Daemon(who) => {
                let middle = self.fork(self.living(*who));
                self.kernel.setsid(middle).expect("a new process leads no group");
                self.fork(middle);
                self.kernel.exit(middle, 0).expect("it lives");
                let parent = self.kernel.processes[&middle].ppid;
                self.kernel.reap(parent, middle).expect("it has ended");
            }
            Event::Setpgid(who, other) => {
                let (pid, other) = (self.living(*who), self.living(*other));
                let group = if other % 3 == 0 { pid } else { self.kernel.processes[&other].pgid };
                drop(self.kernel.setpgid(pid, group));
            }
            Event::Subreaper(who) => drop(self.kernel.set_subreaper(self.living(*who), true)),
            Event::Exit(who, code) => {
                let pid = self.living(*who);
                if pid != 1 {
                    self.kernel.exit(pid, i32::from(*code) << 8).expect("it lives");
                }
            }
            Event::Reap(who) => {
                let parent = self.living(*who);
                let ended = |process: &super::super::simulator::Process| {
                    process.ppid == parent && process.zombie.is_some()
                };
                let child =
                    self.kernel.processes.iter().find(|(_, p)| ended(p)).map(|(pid, _)| *pid);
                if let Some(child) = child {
                    self.kernel.reap(parent, child).expect("it has ended");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("PROPTEST_CASES").ok().and_then(|v| v.parse().ok()).unwrap_or(2000)))]

    #[test]
    fn plans_rebuild_what_histories_left(
        events in proptest::collection::vec(event(), 1..120),
        delays in proptest::collection::vec(any::<bool>(), 16),
    ) {
        let mut lived = History::run(&events);
        // Init is no part of the record, nor are its flags.
        lived.set_subreaper(1, false).expect("init lives");
        let plan = plan(&lived.record()).map_err(|error| TestCaseError::fail(error.to_string()))?;
        // Births that are postponed for ever would never end.
        let mut delays = delays.into_iter().chain([false]).cycle();
        let mut rebuilt = Kernel::new();
        rebuilt
            .carry_out(&plan, || delays.next() == Some(true))
            .map_err(TestCaseError::fail)?;
        prop_assert_eq!(lived.processes, rebuilt.processes);
    }
}

fn node(pid: Pid, ppid: Pid, pgid: Pid, sid: Pid) -> ProcessNode {
    let (comm, state) = (String::new(), ProcessState::Alive);
    let (exit_signal, inside) = (libc::SIGCHLD, None);
    ProcessNode { pid, ppid, pgid, sid, comm, exit_signal, subreaper: false, state, inside }
}

#[test]
fn a_plain_tree_needs_no_temporary_processes() {
    let plan = plan(&[node(5, 1, 5, 5), node(6, 5, 6, 5), node(7, 6, 6, 5)]).unwrap();
    assert_eq!(plan.births.len(), 3);
    assert!(plan.births.iter().all(|birth| birth.role == Role::Kept));
    assert!(!plan.init_leads);
}

#[test]
fn a_daemon_gets_a_leader_that_ends() {
    let plan = plan(&[node(7, 1, 6, 6)]).unwrap();
    let leader = plan.births.iter().find(|birth| birth.pid == 6).expect("the leader");
    assert!(matches!(leader.role, Role::Temporary { .. }));
}

#[test]
fn contradictions_are_named() {
    let twice = plan(&[node(5, 1, 5, 5), node(5, 1, 5, 5)]);
    assert_eq!(twice, Err(TreeError::Twice(5)));
    let circle = plan(&[node(5, 6, 5, 5), node(6, 5, 5, 5)]);
    assert!(matches!(circle, Err(TreeError::Circle(_))));
    let parent = plan(&[node(5, 4, 5, 5)]);
    assert_eq!(parent, Err(TreeError::Parent { pid: 5, ppid: 4 }));
    let group = plan(&[node(5, 1, 5, 5), node(6, 5, 6, 5), node(7, 1, 7, 7), node(8, 7, 6, 7)]);
    assert!(matches!(group, Err(TreeError::GroupElsewhere { .. })));
    let outside = plan(&[node(5, 1, 0, 0)]);
    assert!(matches!(outside, Err(TreeError::Number { pid: 5, .. })));
    // In the session of init, but the child of a process that left it long ago and never was in it.
    let lost = plan(&[node(5, 1, 5, 5), node(6, 5, 5, 5), node(7, 6, 1, 1)]);
    assert_eq!(lost, Err(TreeError::Unreachable { pid: 7, ppid: 6, sid: 1 }));
}

#[test]
fn large_trees_are_planned_quickly() {
    let mut nodes = vec![node(2, 1, 2, 2)];
    nodes.extend((3..20_000).map(|pid| node(pid, if pid % 2 == 0 { 1 } else { pid - 1 }, pid, 2)));
    let begun = std::time::Instant::now();
    assert_eq!(plan(&nodes).map(|plan| plan.births.len() >= nodes.len()), Ok(true));
    assert!(begun.elapsed().as_secs() < 10, "took {:?}", begun.elapsed());
}

fn inside(node: ProcessNode, pid: Pid, pgid: Pid, sid: Pid) -> ProcessNode {
    ProcessNode { inside: Some(NumbersInside { namespace: 0, pid, pgid, sid }), ..node }
}

#[test]
fn who_is_inside_is_born_there() {
    // A group and a session from outside, a group and a session made inside, and an orphan whose group's leader has ended.
    let nodes = [
        node(5, 1, 5, 5),
        node(6, 5, 6, 5),
        inside(node(7, 6, 6, 5), 1, 0, 0),
        inside(node(8, 7, 6, 5), 2, 0, 0),
        inside(node(9, 7, 9, 9), 3, 3, 3),
        inside(node(10, 7, 12, 9), 4, 6, 3),
        inside(node(11, 7, 13, 5), 5, 7, 0),
    ];
    let plan = plan(&nodes).unwrap();
    let of = |pid: Pid| plan.births.iter().find(|birth| birth.pid == pid).unwrap();
    let first = of(7);
    assert_eq!(of(6).inward.len(), 1);
    assert_eq!((first.born_in, first.group), (Some(6), GroupStep::Stay));
    assert_eq!(of(8).group, GroupStep::Stay);
    // Their leaders have ended inside, too, and have their numbers there.
    for (pid, own) in [(12, 6), (13, 7)] {
        let leader = of(pid);
        assert!(matches!(leader.role, Role::Temporary { .. }));
        assert_eq!(leader.inside.map(|inside| inside.pid), Some(own));
    }
    // Whose end makes the first process adopt the orphan is inside, with a number that nobody has.
    let by = &plan.births[of(10).forked_by.unwrap()];
    assert!(by.inside.is_some_and(|inside| ![1, 2, 3, 4, 5, 6, 7].contains(&inside.pid)));
    assert!([5, 6].into_iter().all(|pid| of(pid).inside.is_none()));
}

#[test]
fn first_processes_are_born_before_others_from_outside() {
    let nodes =
        [node(5, 1, 5, 5), inside(node(6, 5, 5, 5), 2, 0, 0), inside(node(7, 5, 5, 5), 1, 0, 0)];
    let plan = plan(&nodes).unwrap();
    let inward: Vec<Pid> =
        plan.births[0].inward.iter().map(|index| plan.births[*index].pid).collect();
    assert_eq!(inward, [7, 6]);
}

#[test]
fn a_namespace_without_its_first_process_is_none() {
    let parent = || node(5, 1, 5, 5);
    for nodes in [
        vec![parent(), inside(node(6, 5, 5, 5), 2, 0, 0)],
        vec![parent(), inside(node(6, 5, 5, 5), 1, 0, 0), inside(node(7, 6, 5, 5), 1, 0, 0)],
        vec![parent(), inside(node(6, 5, 5, 5), 1, 0, 0), node(7, 6, 5, 5)],
        vec![parent(), inside(node(6, 5, 5, 5), 1, -1, 0)],
        // Born before its parent's setsid(2), in whose session it still is.
        vec![parent(), node(6, 5, 6, 6), inside(node(7, 6, 5, 5), 1, 0, 0)],
    ] {
        assert!(plan(&nodes).is_err(), "{nodes:?}");
    }
}

#[test]
fn who_enters_from_another_session_is_born_in_no_foreign_group() {
    // A server in a session of its own, and a helper that entered its namespace from another session, for a session of its own.
    let helper = |by: Pid| inside(node(9, by, 9, 9), 2, 2, 2);
    let server = || vec![node(5, 1, 5, 5), node(6, 5, 6, 6), inside(node(7, 6, 6, 6), 1, 0, 0)];
    for (by, more) in [(8, vec![node(8, 5, 5, 5)]), (1, Vec::new())] {
        let nodes = [server(), more, vec![helper(by)]].concat();
        let plan = plan(&nodes).unwrap();
        let of = |pid: Pid| plan.births.iter().find(|birth| birth.pid == pid).unwrap();
        assert_eq!(of(7).born_in, Some(6));
        assert_eq!(of(9).born_in, None, "forked by {by}");
    }
    // In that session's group it can't be born at all.
    let stranger = [server(), vec![node(8, 5, 5, 5), inside(node(9, 8, 6, 6), 2, 0, 0)]].concat();
    plan(&stranger).unwrap_err();
}
