//! An operation that takes longer than its limit, and says that it goes on.

#![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

use command_tree::{Act, Line, Member, Own, Root, Wish};
use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use protocol::cluster::tree::{TreeMessage, TreePlace, TreeStep, TreeSum};

const SECOND: u64 = 1_000_000_000;

fn name(number: usize) -> NodeName {
    format!("n{number}").parse().unwrap()
}

/// Takes what members send to each other where it belongs; what is left.
fn deliver(now: u64, members: &mut [Member], from: usize, acts: Vec<Act>) -> Vec<Act> {
    let mut left = Vec::new();
    for act in acts {
        let (to, answers) = match act {
            Act::Open(node) => {
                let to = members.iter().enumerate().position(|(at, _)| name(at) == node).unwrap();
                (to, members[to].accepted(name(from)))
            }
            Act::Send(line, message) => {
                let to = (0..members.len()).position(|at| name(at) == line.node).unwrap();
                let line = Line { node: name(from), ours: !line.ours };
                (to, members[to].heard(now, &line, message))
            }
            other => {
                left.push(other);
                continue;
            }
        };
        left.extend(deliver(now, members, to, answers));
    }
    left
}

#[test]
fn who_goes_on_is_waited_for() {
    let mut root = Root::new();
    let mark = root.reset(1, 1);
    let mut members: Vec<Member> = (0..3).map(|number| Member::new(name(number))).collect();
    for number in 0..3 {
        let acts = members[number].reset(mark.clone());
        deliver(0, &mut members, number, acts);
    }
    let place =
        |number| TreePlace { node: name(number), instances: vec![InstanceId(number as u32)] };
    let wish = Wish { job: "j".into(), epoch: 1, checkpoint: 1, step: TreeStep::Snapshot };
    let call = root.begin(0, wish, (0..3).map(place).collect(), 10_000).unwrap();
    let operation = call.order.operation;
    let acts = members[0].ordered(0, call);
    let working = deliver(0, &mut members, 0, acts);
    assert_eq!(working.iter().filter(|act| matches!(act, Act::Work(..))).count(), 3);

    let sum = TreeSum { instances: 1, ..TreeSum::default() };
    for number in [0, 1] {
        let acts = members[number].own(operation, Own::Done(sum));
        assert_eq!(deliver(SECOND, &mut members, number, acts), []);
    }
    // The last one takes its time, and all above it know.
    for now in (2..100).step_by(2).map(|seconds| seconds * SECOND) {
        let acts = members[2].progressed(now, operation);
        assert_eq!(deliver(now, &mut members, 2, acts), []);
        root.progressed(now, "j", 1);
        for (number, member) in members.iter_mut().enumerate() {
            assert_eq!(member.pass_time(now + SECOND), [], "n{number} at {now}");
        }
        assert_eq!(root.pass_time(now + SECOND), []);
    }
    let mut silent = members[2].progressed(98 * SECOND, operation);
    silent.retain(|act| matches!(act, Act::Send(_, TreeMessage::Progress(_))));
    assert_eq!(silent.len(), 1);
    // Of another operation, or from one who was not called, it means nothing.
    assert_eq!(members[1].progressed(98 * SECOND, operation), []);
    // Who says nothing any more is given up as before.
    assert!(root.pass_time(200 * SECOND).len() == 1);
    assert_ne!(members[2].pass_time(200 * SECOND), []);
}
