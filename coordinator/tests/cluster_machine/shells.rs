//! Remote shells that fail while connections and coordinators come and go.

use crate::rig::Rig;
use coordinator::cluster::ClusterEntry;
use protocol::agent::AgentCommand;
use protocol::cluster::agent::ToAgent;
use protocol::cluster::tree::TreeStep;

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
    rig.deaf_to = |_, message| matches!(message, ToAgent::Launch(_) | ToAgent::ShellFailed { .. });
    rig.call(7, 2);
    let begun = launches(&rig);
    // Node 2 comes back without it.
    rig.disconnect(2);
    rig.connect(2);
    assert_eq!(refusals(&rig, 7), 1);
    rig.disconnect(1);
    rig.connect(1);
    assert_eq!(launches(&rig), begun);
    assert_eq!(refusals(&rig, 7), 2);
    // Another process may try it.
    rig.call(8, 2);
    assert_eq!(launches(&rig), begun + 1);
}

/// A coordinator that is started again takes the instances of its log for parts of the job: one that was never launched
/// takes part in no checkpoint.
#[test]
fn no_checkpoint_waits_for_what_was_never_launched() {
    let mut rig = Rig::with_job(2, Rig::on_demand());
    rig.deaf_to = |_, message| matches!(message, ToAgent::Launch(_));
    rig.call(7, 2);
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
    let mut rig = Rig::alone(2, Rig::on_demand());
    rig.disconnect(2);
    let begun = launches(&rig);
    rig.call(7, 2);
    rig.restart_agent(1);
    rig.connect(2);
    assert_eq!(launches(&rig), begun);
    rig.call(7, 2);
    assert_eq!(launches(&rig), begun + 1);
}

/// The same of a program that is being launched while its caller's agent dies.
#[test]
fn no_checkpoint_is_taken_before_a_caller_has_called_the_next_agent() {
    let mut rig = Rig::alone(2, Rig::on_demand());
    rig.deaf_to = |_, message| matches!(message, ToAgent::Launch(_));
    rig.call(7, 2);
    rig.restart_agent(1);
    let launch = rig.sent.iter().rev().find_map(|(_, message)| match message {
        ToAgent::Launch(_) => Some(message.clone()),
        _ => None,
    });
    rig.does(2, launch.unwrap());
    rig.checkpoint();
    assert!(!frozen(&rig));
    rig.call(7, 2);
    rig.wait(500);
    rig.checkpoint();
    assert!(frozen(&rig));
}
