//! Hops are counted: in each, every member sends at most one message and takes at most one.

use crate::world::name;
use command_tree::shape::hops;
use command_tree::{Act, Line, Member, Own, Root, Wish};
use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use protocol::cluster::tree::{Operation, TreeAnswer, TreeMessage, TreePlace, TreeStep, TreeSum};
use std::collections::{BTreeMap, VecDeque};

struct Net {
    members: Vec<Member>,
    names: BTreeMap<NodeName, usize>,
    /// What a member has still to send, and to take.
    outgoing: Vec<VecDeque<(usize, Line, TreeMessage)>>,
    incoming: Vec<VecDeque<(Line, TreeMessage)>>,
    working: Vec<(usize, Operation)>,
    report: Option<TreeAnswer>,
    calls: usize,
}

impl Net {
    fn new(count: usize) -> Self {
        Self {
            members: (0..count).map(|number| Member::new(name(number))).collect(),
            names: (0..count).map(|number| (name(number), number)).collect(),
            outgoing: vec![VecDeque::new(); count],
            incoming: vec![VecDeque::new(); count],
            working: Vec::new(),
            report: None,
            calls: 0,
        }
    }

    fn perform(&mut self, member: usize, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Open(node) => {
                    let other = self.names[&node];
                    let acts = self.members[other].accepted(name(member));
                    self.perform(other, acts);
                }
                Act::Send(line, message) => {
                    let to = self.names[&line.node];
                    let line = Line { node: name(member), ours: !line.ours };
                    // Marks are of the line's making, not of the operation.
                    if let TreeMessage::Mark(_) = message {
                        let acts = self.members[to].heard(0, &line, message);
                        self.perform(to, acts);
                    } else {
                        self.outgoing[member].push_back((to, line, message));
                    }
                }
                Act::Work(order, _) => self.working.push((member, order.operation)),
                Act::Report(answer) => self.report = Some(answer),
                Act::Clear(_) | Act::Forget(_) => {}
            }
        }
    }

    fn is_quiet(&self) -> bool {
        self.outgoing.iter().all(VecDeque::is_empty) && self.incoming.iter().all(VecDeque::is_empty)
    }

    /// One hop.
    fn hop(&mut self) {
        for member in 0..self.members.len() {
            if let Some((to, line, message)) = self.outgoing[member].pop_front() {
                self.incoming[to].push_back((line, message));
            }
        }
        for member in 0..self.members.len() {
            if let Some((line, message)) = self.incoming[member].pop_front() {
                self.calls += usize::from(matches!(message, TreeMessage::Call(_)));
                let acts = self.members[member].heard(0, &line, message);
                self.perform(member, acts);
            }
        }
    }

    fn hops_until_quiet(&mut self) -> u32 {
        let mut hops = 0;
        while !self.is_quiet() {
            self.hop();
            hops += 1;
        }
        hops
    }
}

/// Hops until the last of so many members has the call, and from there to the answer of all.
pub fn count(members: usize) -> (u32, u32) {
    let mut net = Net::new(members);
    let mut root = Root::new();
    let mark = root.reset(1, 1);
    let instance = vec![InstanceId(1)];
    let places: Vec<TreePlace> = (0..members)
        .map(|number| TreePlace { node: name(number), instances: instance.clone() })
        .collect();
    let wish = Wish { job: "j-1".to_owned(), epoch: 1, checkpoint: 1, step: TreeStep::Freeze };
    let call = root.begin(0, wish, places, 10_000).unwrap();
    let mut acts = net.members[0].reset(mark);
    acts.extend(net.members[0].ordered(0, call));
    net.perform(0, acts);
    let down = net.hops_until_quiet();
    assert_eq!(net.calls, members - 1, "each member is called once");
    let working = std::mem::take(&mut net.working);
    assert_eq!(working.len(), members);
    for (member, operation) in working {
        let sum = TreeSum { instances: 1, processes: 10, ..TreeSum::default() };
        let acts = net.members[member].own(operation, Own::Done(sum));
        net.perform(member, acts);
    }
    let up = net.hops_until_quiet();
    let answer = net.report.take().unwrap();
    let outcome = root.answered(&name(0), answer).unwrap();
    assert_eq!(outcome.result.unwrap().processes, 10 * members as u32);
    (down, up)
}

#[test]
fn broadcast_and_reduction_take_the_logarithm() {
    let few = 1..=260;
    let powers = (9..=13).flat_map(|power| {
        let power: usize = 1 << power;
        [power - 1, power, power + 1]
    });
    for members in few.chain(powers).chain([1000, 3000, 5000, 7777, 9999, 10_000]) {
        let (down, up) = count(members);
        assert_eq!((down, up), (hops(members), hops(members)), "{members} members");
    }
    assert_eq!(hops(10_000), 14);
}
