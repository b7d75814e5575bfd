//! The coordinator's state machine, event by event: what simulated histories have found, each as a small case of
//! its own.

#![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

mod ahead;
mod archives;
mod attention;
mod audit;
#[path = "../common/mod.rs"]
mod common;
mod drains;
mod events;
mod grants;
mod logins;
mod partners;
#[path = "../common/prompt.rs"]
mod prompt;
mod rehearsals;
mod rig;
mod shells;

use ckpt_node::Event;
use coordinator::cluster::ClusterEntry;
use coordinator::cluster::entry::Cause;
use protocol::agent::{AgentCommand, ExitKind};
use protocol::cluster::agent::ToAgent;
use protocol::cluster::client::{Answer, Ask, RestartRequest};
use protocol::cluster::settings::{Daemons, JobSettings};
use rig::{Rig, name};

const SUCCESS: Option<ExitKind> = Some(ExitKind::Exited(0));

const LOST_WITH_AGENT: &str = "the agent that carried bytes between nodes was started again";

/// The first process ends behind its last output.
fn last_words(rig: &mut Rig, status: u8) {
    rig.prints("the end\n");
    rig.root_ends(status);
}

/// It had ended, and its last output is read.
fn last_words_are_read(rig: &mut Rig) {
    assert_eq!(rig.end(), None, "before its last output was there");
    rig.is_read("the end\n");
}

#[test]
fn a_success_counts_though_relays_were_lost_with_an_agent() {
    let mut rig = Rig::with_job(3, Rig::on_demand());
    rig.disconnect(1);
    rig.root_ends_unread(0);
    // Another one's agent is started again as well, and says what is lost.
    rig.restart_agent(1);
    rig.restart_agent(2);
    assert_eq!(rig.rollbacks(), []);
    last_words_are_read(&mut rig);
    rig.wait(1000);
    assert_eq!(rig.end(), SUCCESS);
    assert!(String::from_utf8_lossy(&rig.output).ends_with("the end\n"));
}

#[test]
fn a_failure_may_come_of_lost_relays() {
    let mut rig = Rig::with_job(2, Rig::on_demand());
    rig.disconnect(1);
    rig.root_ends_unread(205);
    rig.restart_agent(1);
    let reason = LOST_WITH_AGENT.to_owned();
    assert_eq!(rig.rollbacks(), [Cause::Broken { node: name(1), reason }]);
}

#[test]
fn a_success_counts_though_the_address_is_another_one() {
    for status in [0, 205] {
        let mut rig = Rig::with_job(2, Rig::on_demand());
        rig.disconnect(1);
        rig.root_ends_unread(status);
        rig.move_to_network(1, 1);
        rig.connect(1);
        if status == 0 {
            assert_eq!(rig.rollbacks(), []);
            last_words_are_read(&mut rig);
            rig.wait(1000);
            assert_eq!(rig.end(), SUCCESS);
        } else {
            let address = "10.0.1.1".parse().unwrap();
            assert_eq!(rig.rollbacks(), [Cause::Address { node: name(1), address }]);
        }
    }
}

/// As prterun ends that has lost a daemon.
#[test]
fn a_success_does_not_count_while_a_machine_is_unheard() {
    let mut rig = Rig::with_job(3, Rig::on_demand());
    rig.disconnect(2);
    last_words(&mut rig, 0);
    rig.wait(1000);
    assert_eq!((rig.end(), rig.rollbacks().len()), (None, 0));
    rig.wait(4000);
    assert_eq!((rig.end(), rig.rollbacks()), (None, vec![Cause::Lost { node: name(2) }]));
    // It is back without what ran there, before it was declared gone.
    let mut rig = Rig::with_job(3, Rig::on_demand());
    rig.disconnect(2);
    last_words(&mut rig, 0);
    rig.reboot(2);
    let reason = "instance 2 is not there any more".to_owned();
    assert_eq!(rig.rollbacks(), [Cause::Broken { node: name(2), reason }]);
    assert_eq!(rig.end(), None);
}

#[test]
fn a_success_counts_once_every_machine_was_heard() {
    let mut rig = Rig::with_job(3, Rig::on_demand());
    rig.disconnect(2);
    last_words(&mut rig, 0);
    rig.connect(2);
    rig.disconnect(3);
    assert_eq!(rig.end(), None);
    rig.connect(3);
    rig.wait(1000);
    assert_eq!((rig.end(), rig.rollbacks()), (SUCCESS, Vec::new()));
}

/// A cut network may deliver a machine's heartbeats long after it was lost: they say of no answer that came after the end.
#[test]
fn a_failure_does_not_count_by_heartbeats_from_before_it() {
    let mut rig = Rig::with_job(3, Rig::on_demand());
    rig.deaf_to = |node, message| node == 2 && matches!(message, ToAgent::Heard { .. });
    last_words(&mut rig, 1);
    rig.wait(350);
    assert_eq!((rig.end(), rig.rollbacks().len()), (None, 0));
    rig.reboot(2);
    let reason = "instance 2 is not there any more".to_owned();
    assert_eq!(rig.rollbacks(), [Cause::Broken { node: name(2), reason }]);
    assert_eq!(rig.end(), None);
}

/// Whatever became of the machines on which they were.
#[test]
fn a_success_counts_at_once_when_all_others_have_ended() {
    let mut rig = Rig::with_job(3, Rig::on_demand());
    rig.empties(2);
    rig.disconnect(2);
    last_words(&mut rig, 0);
    assert_eq!(rig.end(), None);
    rig.empties(3);
    assert_eq!((rig.end(), rig.rollbacks()), (SUCCESS, Vec::new()));
}

/// A machine that has told of an instance's end may go before it was heard after the job's.
#[test]
fn a_failure_does_not_wait_for_a_machine_that_has_nothing_left() {
    let mut rig = Rig::with_job(3, Rig::on_demand());
    rig.disconnect(3);
    last_words(&mut rig, 1);
    rig.empties(2);
    rig.disconnect(2);
    rig.connect(3);
    rig.wait(5000);
    assert_eq!((rig.end(), rig.rollbacks()), (Some(ExitKind::Exited(1)), Vec::new()));
}

#[test]
fn a_success_counts_though_a_machine_is_lost_that_was_heard_after_it() {
    let mut rig = Rig::with_job(4, Rig::on_demand());
    rig.disconnect(3);
    last_words(&mut rig, 0);
    rig.wait(1000);
    assert_eq!(rig.end(), None);
    // Its output is all there, and the other was heard.
    rig.disconnect(1);
    rig.disconnect(2);
    rig.connect(3);
    rig.wait(1000);
    assert_eq!((rig.end(), rig.rollbacks()), (SUCCESS, Vec::new()));
}

#[test]
fn a_success_is_lost_with_output_that_was_still_to_come() {
    let mut rig = Rig::with_job(3, Rig::on_demand());
    rig.disconnect(1);
    rig.root_ends_unread(0);
    rig.connect(1);
    rig.disconnect(1);
    rig.wait(5000);
    assert_eq!(rig.rollbacks(), [Cause::Lost { node: name(1) }]);
}

/// The instance on node2 has ended; its image is a part of a checkpoint that others are still writing.
#[test]
fn a_node_does_not_go_with_an_image_in_hand() {
    let mut rig = Rig::with_job(3, Rig::on_demand());
    rig.deaf_to = |node, message| {
        let write = |command: &AgentCommand| matches!(command, AgentCommand::Write { .. });
        node == 3 && matches!(message, ToAgent::Instance { command, .. } if write(command))
    };
    rig.checkpoint();
    let key = rig.instance(2);
    rig.empties(2);
    rig.happens(2, Event::Terminate);
    rig.wait(1000);
    let is_free = |rig: &Rig| rig.sent.contains(&(2, ToAgent::Farewell));
    assert!(!is_free(&rig));
    // The last of them has written its image.
    rig.deaf_to = |_, _| false;
    let (last, checkpoint) = (rig.instance(3), 1);
    let command = AgentCommand::Write { checkpoint };
    rig.does(3, ToAgent::Instance { key: last, command });
    rig.wait(1000);
    assert!(rig.log.iter().any(|entry| matches!(entry, ClusterEntry::Committed { .. })));
    let killed = (2, ToAgent::Instance { key, command: AgentCommand::Kill });
    assert!(rig.sent.contains(&killed) && is_free(&rig));
}

#[test]
fn what_the_log_of_a_job_lacks_that_is_over_is_said_once() {
    let mut rig = Rig::with_job(2, Rig::on_demand());
    rig.prints("one\n");
    let kept = rig.output.len();
    last_words(&mut rig, 0);
    rig.wait(1000);
    assert_eq!(rig.end(), SUCCESS);
    // Its own log has all of it.
    rig.restart_coordinator();
    let lacks = |rig: &Rig| {
        String::from_utf8_lossy(&rig.output)
            .matches("8 bytes of output are not in this log")
            .count()
    };
    assert_eq!(lacks(&rig), 0);
    // A copy that another coordinator carries on from has not.
    rig.output.truncate(kept);
    let (term, claim, from) = (2, "2".to_owned(), name(2));
    rig.log.push(ClusterEntry::TermBegun { term, claim, from, lost: Vec::new(), at_ms: 1 });
    rig.restart_coordinator();
    assert_eq!(lacks(&rig), 1);
    rig.restart_coordinator();
    assert_eq!(lacks(&rig), 1);
    // It was said, and killed before that was in the job's log.
    rig.output.truncate(kept);
    rig.restart_coordinator();
    assert_eq!(lacks(&rig), 1);
}

/// The word that lets it go was lost with a connection.
#[test]
fn an_instance_that_has_ended_is_let_go_on_connecting() {
    let mut rig = Rig::with_job(3, Rig::on_demand());
    let key = rig.instance(2);
    // The word that lets it go is lost.
    rig.deaf_to = |node, message| node == 2 && matches!(message, ToAgent::Instance { .. });
    rig.empties(2);
    rig.disconnect(2);
    rig.sent.clear();
    rig.connect(2);
    let command = AgentCommand::Kill;
    assert!(rig.sent.contains(&(2, ToAgent::Instance { key, command })));
    assert_eq!(rig.rollbacks(), []);
}

/// A run time says that it will end the job, and the job goes on.
#[test]
fn what_a_job_wrote_since_its_checkpoint_is_said_to_be_taken_back() {
    let said = |rig: &Rig| -> Vec<String> {
        let say = |answer: &Answer| match answer {
            Answer::Say { text } => Some(text.clone()),
            _ => None,
        };
        rig.answers.iter().filter_map(say).collect()
    };
    let mut rig = Rig::with_job(3, JobSettings { copies: 3, ..Rig::on_demand() });
    rig.prints("one\n");
    rig.checkpoint();
    rig.disconnect(3);
    rig.prints("will terminate the job\n");
    rig.root_ends(205);
    let held = "the job ended with status 205 while node3 can't be heard: it goes back to its last checkpoint if that \
                stays so";
    assert_eq!(said(&rig), [held]);
    rig.wait(5000);
    assert_eq!(rig.rollbacks(), [Cause::Lost { node: name(3) }]);
    assert_eq!(said(&rig)[1], "what the job wrote since checkpoint 1 is taken back: the last 23 B");
    assert!(said(&rig)[2].starts_with("job rank-1 goes on from checkpoint 1"));
    let log = String::from_utf8_lossy(&rig.output);
    assert!(log.starts_with("one\n") && !log.contains("terminate"), "{log}");
}

/// Killed, or without room on its disk, between the two.
#[test]
fn a_loss_is_made_good_of_which_the_log_says_no_more_than_that() {
    for node in [1, 3] {
        let mut rig = Rig::with_job(3, JobSettings { copies: 3, ..Rig::on_demand() });
        rig.checkpoint();
        rig.disconnect(node);
        rig.log.push(ClusterEntry::NodeGone { node: name(node), at_ms: 1 });
        rig.restart_coordinator();
        rig.wait(5000);
        assert_eq!(rig.rollbacks(), [Cause::Lost { node: name(node) }]);
        let running =
            |entry: &&ClusterEntry| matches!(entry, ClusterEntry::Running { epoch: 2, .. });
        assert!(rig.log.iter().any(|entry| running(&entry)), "{:?}", rig.log);
    }
}

#[test]
fn who_must_be_back_is_said_when_every_copy_is_away() {
    let mut rig = Rig::with_job(3, Rig::on_demand());
    rig.checkpoint();
    let failures = |rig: &Rig| -> Vec<String> {
        let failure = |answer: &Answer| match answer {
            Answer::Failed { reason, .. } => Some(reason.clone()),
            _ => None,
        };
        rig.answers.iter().filter_map(failure).collect()
    };
    rig.disconnect(2);
    rig.disconnect(3);
    rig.wait(5000);
    let said = "failed to keep rank-1 running: every copy of the image of instance 2 at checkpoint 1 is gone with node2: \
                node2, and node3 must be back; 'ckptd restart rank-1' goes on from checkpoint 1";
    assert_eq!(failures(&rig), [said.strip_prefix("failed to ").unwrap()]);
    rig.connect(2);
    rig.connect(3);
    let restart = RestartRequest {
        job: "latest".to_owned(),
        checkpoint: None,
        force: false,
        settings: None,
        window: None,
        detach: false,
    };
    let before = rig.rollbacks().len();
    rig.ask(Ask::Restart(Box::new(restart)));
    assert_eq!(rig.rollbacks()[before..], [Cause::Restart]);
    assert_eq!(failures(&rig).len(), 1);
}

/// Who carries on for a lost coordinator must know where the images of a node are that has gone.
#[test]
fn a_copy_for_a_leaver_is_known_elsewhere_before_it_goes() {
    let mut rig = Rig::with_job(3, Rig::on_demand());
    rig.checkpoint();
    rig.empties(2);
    rig.happens(2, Event::Terminate);
    rig.wait(1000);
    assert!(rig.sent.contains(&(2, ToAgent::Farewell)));
    let held: Vec<&ClusterEntry> =
        rig.log.iter().filter(|entry| matches!(entry, ClusterEntry::Held { .. })).collect();
    assert_eq!(held.len(), 1);
    assert!(held[0].waits_for_copy());
}

/// A try in which all daemons could have been brought back changes nothing of what the user was told.
#[test]
fn daemons_that_stay_away_are_told_of_once() {
    let settings = JobSettings { daemons: Daemons::Fallback, copies: 3, ..Rig::on_demand() };
    let mut rig = Rig::with_job(3, settings);
    rig.checkpoint();
    // From here on no epoch is completed.
    rig.deaf_to = |_, message| matches!(message, ToAgent::Restore { .. });
    let told = |rig: &Rig| {
        let says = |answer: &&Answer| matches!(answer, Answer::Say { text } if text.starts_with("not restored: "));
        rig.answers.iter().filter(says).count()
    };
    rig.disconnect(3);
    rig.wait(4000);
    assert_eq!((rig.rollbacks().len(), told(&rig)), (1, 1));
    rig.connect(3);
    rig.disconnect(1);
    rig.connect(1);
    assert_eq!(rig.rollbacks().len(), 2);
    rig.disconnect(3);
    rig.wait(4000);
    assert_eq!((rig.rollbacks().len(), told(&rig)), (3, 1));
}

/// What whoever runs the job was told at last.
fn failure(rig: &Rig) -> Option<String> {
    rig.answers.iter().find_map(|answer| match answer {
        Answer::Failed { reason, .. } => Some(reason.clone()),
        _ => None,
    })
}

#[test]
fn a_job_that_is_rolled_back_too_often_is_given_up_and_says_so() {
    let mut rig = Rig::with_job(2, JobSettings { max_restarts: 2, ..Rig::on_demand() });
    rig.checkpoint();
    for rollbacks in 1..=2 {
        rig.loses_relay(2);
        assert_eq!((rig.rollbacks().len(), failure(&rig)), (rollbacks, None));
    }
    // A commit counts from anew.
    rig.checkpoint();
    for _ in 0..2 {
        rig.loses_relay(2);
    }
    assert_eq!(rig.rollbacks().len(), 4);
    rig.loses_relay(2);
    assert_eq!(rig.rollbacks().len(), 4);
    let reason = failure(&rig).unwrap();
    assert!(reason.contains("it was rolled back 2 times without a new commit"), "{reason}");
}

/// The power fails while a line of the coordinator's own is being written to the job's log: the next one ends it.
#[test]
fn a_mark_that_was_half_written_is_completed() {
    let mut rig = Rig::with_job(2, Rig::on_demand());
    rig.checkpoint();
    rig.wait(500);
    let whole = rig.output.clone();
    assert!(String::from_utf8_lossy(&whole).contains("checkpoint 1 committed"));
    for missing in [1, 20] {
        rig.output.truncate(whole.len() - missing);
        rig.restart_coordinator();
        assert_eq!(String::from_utf8_lossy(&rig.output), String::from_utf8_lossy(&whole));
    }
}
