//! Remote shells that fail while connections and coordinators come and go.

use crate::rig::{Rig, name};
use coordinator::cluster::ClusterEntry;
use protocol::cluster::agent::{FromAgent, ShellCall, ToAgent};

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
