//! Remote shells that fail while connections and coordinators come and go.

use crate::rig::{Rig, name};
use coordinator::cluster::ClusterEntry;
use protocol::agent::AgentCommand;
use protocol::cluster::agent::{FromAgent, InstanceReport, ShellCall, ToAgent};
use protocol::cluster::tree::TreeStep;

fn call(rig: &Rig, number: u64) -> ShellCall {
    ShellCall { caller: rig.root(), node: name(1), call: number }
}

fn asks(rig: &mut Rig, number: u64, node: usize) {
    let call = call(rig, number);
    let launch = crate::common::launch_spec("rank");
    rig.says(1, FromAgent::Shell { call, logical_node: name(node), launch });
}

fn refusals(rig: &Rig, number: u64) -> usize {
    let refused = |sent: &&(usize, ToAgent)| matches!(&sent.1, ToAgent::ShellFailed { call, .. } if call.call == number);
    rig.sent.iter().filter(refused).count()
}

fn launches(rig: &Rig) -> usize {
    rig.sent.iter().filter(|(_, message)| matches!(message, ToAgent::Launch(_))).count()
}

/// The caller's node asks once more over a new connection, while the refusal is on its way to it: what the call would
/// begin now would have no caller.
#[test]
fn a_call_that_was_refused_begins_nothing_later() {
    let mut rig = Rig::with_job(2, Rig::on_demand());
    rig.deaf_to = |_, message| matches!(message, ToAgent::Launch(_));
    asks(&mut rig, 7, 2);
    let begun = launches(&rig);
    // Node 2 comes back without it.
    rig.disconnect(2);
    rig.connect(2);
    assert_eq!(refusals(&rig, 7), 1);
    asks(&mut rig, 7, 2);
    assert_eq!(launches(&rig), begun);
    assert_eq!(refusals(&rig, 7), 2);
    // Another process may try it.
    asks(&mut rig, 8, 2);
    assert_eq!(launches(&rig), begun + 1);
}

/// A coordinator that is started again takes the instances of its log for parts of the job: one that was never launched
/// takes part in no checkpoint.
#[test]
fn no_checkpoint_waits_for_what_was_never_launched() {
    let mut rig = Rig::with_job(2, Rig::on_demand());
    rig.deaf_to = |_, message| matches!(message, ToAgent::Launch(_));
    asks(&mut rig, 7, 2);
    rig.restart_coordinator();
    assert_eq!(refusals(&rig, 7), 1);
    rig.wait(500);
    rig.checkpoint();
    rig.wait(500);
    let committed = |entry: &&ClusterEntry| matches!(entry, ClusterEntry::Committed { .. });
    assert_eq!(rig.log.iter().filter(committed).count(), 1, "{:#?}", rig.answers);
}

fn frozen(rig: &Rig) -> bool {
    let freeze = |command: &AgentCommand| matches!(command, AgentCommand::Freeze { .. });
    rig.sent.iter().any(|(_, message)| match message {
        ToAgent::Instance { command, .. } => freeze(command),
        ToAgent::Tree(call) => call.order.step == TreeStep::Freeze,
        _ => false,
    })
}

/// What the next agent does not know of has no caller until that calls once more: without it, a checkpoint would have
/// the program, and a restart would begin it a second time.
#[test]
fn a_call_that_waits_begins_nothing_once_its_agent_has_died() {
    let mut rig = Rig::with_job(2, Rig::on_demand());
    rig.disconnect(2);
    let begun = launches(&rig);
    asks(&mut rig, 7, 2);
    rig.restart_agent(1);
    rig.connect(2);
    assert_eq!(launches(&rig), begun);
    asks(&mut rig, 7, 2);
    assert_eq!(launches(&rig), begun + 1);
}

/// The same of a program that is being launched while its caller's agent dies.
#[test]
fn no_checkpoint_is_taken_before_a_caller_has_called_the_next_agent() {
    let mut rig = Rig::with_job(2, Rig::on_demand());
    rig.deaf_to = |_, message| matches!(message, ToAgent::Launch(_));
    asks(&mut rig, 7, 2);
    rig.restart_agent(1);
    // The program that was there before is called for again at once.
    asks(&mut rig, 2, 2);
    let launch = rig.sent.iter().rev().find_map(|(_, message)| match message {
        ToAgent::Launch(order) => Some(order.key.clone()),
        _ => None,
    });
    rig.says(2, FromAgent::of(launch.unwrap(), InstanceReport::Launched { root: 2 }));
    rig.checkpoint();
    assert!(!frozen(&rig));
    asks(&mut rig, 7, 2);
    rig.wait(500);
    rig.checkpoint();
    assert!(frozen(&rig));
}
