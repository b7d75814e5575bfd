//! What the coordinator of DMTCP's processes decides, beyond the recorded conversations: late processes, lost ones,
//! wrong order, and what DMTCP's own coordinator can't.

#![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

mod owners;
mod rig;

use ckpt_dmtcp::address::{publish, published};
use ckpt_dmtcp::machine::{Event, Notice};
use ckpt_dmtcp::wire::{
    Command, CommandStatus, Kind, Message, Operation, StoreResult, WorkerState,
};
use rig::{CHECKPOINT, GROUP, RESTART, Rig, SECOND, after_exec, new_worker, settings};

fn running(count: u64) -> Rig {
    let mut rig = Rig::new(settings());
    for connection in 1..=count {
        rig.launch(connection);
    }
    rig
}

fn pass(rig: &mut Rig, connections: &[u64], barriers: std::ops::Range<usize>) {
    for (name, state) in &CHECKPOINT[barriers] {
        for connection in connections {
            rig.barrier(*connection, name, *state);
        }
    }
}

#[test]
fn checkpoints_follow_each_other() {
    let mut rig = running(3);
    for generation in 1..=3 {
        rig.command(10 + generation, Command::BlockingCheckpoint);
        assert!(rig.kinds(10 + generation).is_empty(), "it blocks");
        rig.checkpoint(&[1, 2, 3]);
        let reply = rig.last(10 + generation);
        assert_eq!((reply.command_status, reply.peers), (CommandStatus::Success, 3));
        assert_eq!(rig.commits.len() as u64, generation);
        assert_eq!(rig.commits.last().unwrap().group.generation as u64, generation);
    }
    let images = &rig.commits[2].images;
    assert_eq!(images[1].name.path, "/ckpt/2.dmtcp");
    assert_eq!(images[1].name.host, "host2");
    assert_eq!(images[1].remote, Rig::remote(2));
}

#[test]
fn a_second_checkpoint_waits_for_the_first() {
    let mut rig = running(1);
    rig.command(10, Command::Checkpoint);
    rig.command(11, Command::Checkpoint);
    assert_eq!(rig.last(11).command_status, CommandStatus::NotRunning);
    rig.checkpoint(&[1]);
    rig.command(12, Command::Checkpoint);
    assert_eq!(rig.last(12).command_status, CommandStatus::Success);
}

#[test]
fn nobody_can_be_checkpointed_while_launched_or_absent() {
    let mut rig = Rig::new(settings());
    rig.command(10, Command::Checkpoint);
    assert_eq!(rig.last(10).command_status, CommandStatus::NotRunning);
    rig.open(1, new_worker(1));
    rig.command(11, Command::BlockingCheckpoint);
    assert_eq!(rig.last(11).command_status, CommandStatus::NotRunning);
    rig.say(1, after_exec(1));
    rig.command(12, Command::Checkpoint);
    assert_eq!(rig.last(12).command_status, CommandStatus::Success);
}

#[test]
fn who_is_forked_in_the_middle_takes_part() {
    let mut rig = running(2);
    rig.command(10, Command::Checkpoint);
    // All that came before have passed the first barrier.
    pass(&mut rig, &[1, 2], 0..1);
    rig.open(3, new_worker(3));
    assert_eq!(rig.kinds(3), [Kind::Accept, Kind::DoCheckpoint]);
    rig.barrier(3, CHECKPOINT[0].0, CHECKPOINT[0].1);
    assert_eq!(rig.last(3).kind, Kind::BarrierReleased, "it passes what the others have passed");
    pass(&mut rig, &[1, 2], 1..2);
    assert_eq!(rig.last(1).payload, b"DMT:SUSPEND\0", "they wait for it");
    pass(&mut rig, &[3], 1..2);
    assert_eq!((rig.last(1).payload.as_slice(), rig.last(1).peers), (&b"DMT:CHECKPOINT\0"[..], 3));
    pass(&mut rig, &[1, 2, 3], 2..4);
    for connection in [1, 2, 3] {
        rig.image(connection);
        rig.resume(connection);
    }
    assert_eq!(rig.commits[0].images.len(), 3);
}

#[test]
fn who_executes_a_program_in_the_middle_is_told_again() {
    let mut rig = running(2);
    rig.command(10, Command::Checkpoint);
    rig.barrier(1, CHECKPOINT[0].0, CHECKPOINT[0].1);
    rig.say(1, after_exec(1));
    assert_eq!(rig.last(1).kind, Kind::DoCheckpoint);
    rig.barrier(2, CHECKPOINT[0].0, CHECKPOINT[0].1);
    assert_eq!(rig.last(2).kind, Kind::DoCheckpoint, "the first counts no more");
    pass(&mut rig, &[1], 0..1);
    pass(&mut rig, &[1, 2], 1..4);
    assert_eq!(rig.last(2).payload, b"DMT:WriteCkpt\0");
}

#[test]
fn launchers_wait_while_all_stand_still() {
    let mut rig = running(1);
    rig.command(10, Command::Checkpoint);
    pass(&mut rig, &[1], 0..2);
    rig.open(2, new_worker(2));
    assert!(rig.kinds(2).is_empty());
    pass(&mut rig, &[1], 2..4);
    rig.image(1);
    rig.resume(1);
    assert_eq!(rig.kinds(2), [Kind::Accept]);
    assert_eq!(rig.commits[0].images.len(), 1);
}

#[test]
fn a_disconnect_at_every_step_frees_the_others() {
    // One of three goes away before each of the steps of a checkpoint: the other two get to its end, and it counts
    // only if nobody counted on the lost image.
    for step in 0..=6 {
        let mut rig = running(3);
        rig.command(10, Command::BlockingCheckpoint);
        for (index, (name, state)) in CHECKPOINT.into_iter().enumerate() {
            if index == step {
                rig.close(3);
            }
            for connection in [1, 2, 3] {
                if connection != 3 || index < step {
                    rig.barrier(connection, name, state);
                }
            }
        }
        if step == 4 {
            rig.close(3);
        }
        for connection in [1, 2, 3] {
            if connection != 3 || step > 4 {
                rig.image(connection);
            }
        }
        if step == 5 {
            rig.close(3);
        }
        for connection in [1, 2, 3] {
            if connection != 3 || step > 5 {
                rig.resume(connection);
            }
        }
        let counts = step <= 1 || step >= 5;
        assert_eq!(rig.commits.len(), usize::from(counts), "step {step}");
        let status = if counts { CommandStatus::Success } else { CommandStatus::NotRunning };
        assert_eq!(rig.last(10).command_status, status, "step {step}");
        if !counts {
            let failed = |notice: &Notice| matches!(notice, Notice::Failed { reason, .. } if reason.contains("program[3] on host3"));
            assert!(rig.notices.iter().any(failed), "step {step}: {:?}", rig.notices);
        }
        // And the next one is none the worse for it.
        let left: &[u64] = if step == 6 { &[1, 2, 3] } else { &[1, 2] };
        rig.command(11, Command::Checkpoint);
        assert_eq!(rig.last(11).command_status, CommandStatus::Success, "step {step}");
        rig.checkpoint(left);
        assert_eq!(rig.commits.last().unwrap().images.len(), left.len(), "step {step}");
    }
}

#[test]
fn all_may_vanish_at_every_step() {
    for step in 0..=4 {
        let mut rig = running(2);
        rig.command(10, Command::BlockingCheckpoint);
        pass(&mut rig, &[1, 2], 0..step);
        rig.close(1);
        rig.close(2);
        assert_eq!(rig.last(10).command_status, CommandStatus::NotRunning, "step {step}");
        rig.launch(3);
        rig.command(11, Command::Checkpoint);
        rig.checkpoint(&[3]);
        assert_eq!(rig.commits.len(), 1, "step {step}");
    }
}

#[test]
fn who_ends_with_the_checkpoint_leaves_a_whole_one() {
    let mut rig = running(2);
    rig.command(10, Command::CheckpointAndKill);
    assert!(rig.last(1).exit_after);
    pass(&mut rig, &[1, 2], 0..4);
    for connection in [1, 2] {
        rig.image(connection);
        rig.close(connection);
    }
    assert!(rig.commits[0].kills);
    assert!(matches!(rig.notices.last(), Some(Notice::Ended { asked: true, .. })));
}

#[test]
fn the_wrong_order_is_not_waited_for() {
    let mut rig = running(2);
    rig.command(10, Command::Checkpoint);
    // An image without a barrier, a barrier twice, another one while it waits.
    rig.image(1);
    rig.barrier(1, "DMT:SUSPEND", WorkerState::Presuspend);
    rig.barrier(1, "DMT:SUSPEND", WorkerState::Presuspend);
    assert!(rig.closed.len() == 1, "only the command's connection");
    rig.barrier(1, "DMT:CHECKPOINT", WorkerState::Suspended);
    assert!(rig.closed.contains(&1));
    rig.checkpoint(&[2]);
    assert_eq!(rig.commits.len(), 1);
    assert_eq!(rig.warnings().len(), 3, "{:?}", rig.warnings());
    // A worker that sends what only a coordinator does.
    rig.say(2, Message::new(Kind::Accept));
    assert!(rig.closed.contains(&2));
}

#[test]
fn strangers_are_told_apart() {
    let mut rig = running(1);
    let mut stranger = new_worker(2);
    stranger.group = GROUP;
    rig.open(2, stranger);
    assert_eq!(rig.kinds(2), [Kind::RejectWrongGroup]);
    rig.restart(3, 2);
    assert_eq!(rig.kinds(3), [Kind::RejectWrongGroup]);
    let mut numbered = new_worker(4);
    numbered.virtual_pid = 40_000;
    rig.open(4, numbered);
    assert_eq!(rig.kinds(4), [Kind::RejectNotRunning]);
    let mut nameless = new_worker(5);
    nameless.payload = b"x".to_vec();
    rig.open(5, nameless);
    assert_eq!(rig.kinds(5), [Kind::RejectWrongGroup]);
    rig.open(6, Message::new(Kind::Barrier));
    assert_eq!(rig.kinds(6), [Kind::RejectWrongGroup]);
    assert_eq!(rig.closed, [2, 3, 4, 5, 6]);
    assert_eq!(rig.machine.peers(), 1);
}

#[test]
fn intervals_are_kept_and_follow_the_last_checkpoint() {
    let mut rig = Rig::new(settings());
    let mut first = new_worker(1);
    first.interval = 5;
    rig.open(1, first);
    rig.wait(6 * SECOND);
    assert_eq!(rig.kinds(1), [Kind::Accept], "it is being launched");
    rig.say(1, after_exec(1));
    rig.wait(SECOND);
    assert_eq!(rig.last(1).kind, Kind::DoCheckpoint);
    rig.checkpoint(&[1]);
    rig.wait(4 * SECOND);
    assert_eq!(rig.last(1).kind, Kind::BarrierReleased);
    rig.wait(SECOND);
    assert_eq!(rig.last(1).kind, Kind::DoCheckpoint);
    rig.checkpoint(&[1]);
    let mut interval = Message::new(Kind::UserCommand);
    interval.command = Command::Interval.number();
    interval.interval = 0;
    rig.open(10, interval);
    assert_eq!(rig.last(10).interval, 0);
    assert_eq!(rig.machine.deadline(), None);
}

#[test]
fn who_hangs_is_named() {
    let mut rig = running(3);
    rig.command(10, Command::Checkpoint);
    pass(&mut rig, &[1, 2, 3], 0..1);
    pass(&mut rig, &[1, 3], 1..2);
    rig.wait(16 * SECOND);
    let warnings = rig.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("the barrier DMT:CHECKPOINT waits for program[2] on host2"),
        "{warnings:?}"
    );
    rig.wait(SECOND);
    assert_eq!(rig.warnings().len(), 1, "not again at once");
    rig.command(11, Command::List);
    let list = String::from_utf8(rig.last(11).payload).unwrap();
    assert!(list.contains("WorkerState::SUSPENDED, DMT:CHECKPOINT\n2, program"), "{list}");
    pass(&mut rig, &[2], 1..2);
    pass(&mut rig, &[1, 2, 3], 2..4);
    for connection in [1, 2, 3] {
        rig.image(connection);
        rig.resume(connection);
    }
    assert_eq!(rig.commits.len(), 1);
}

fn restarting(rig: &mut Rig, connections: &[u64], peers: u32) {
    for connection in connections {
        rig.restart(*connection, peers);
    }
}

#[test]
fn a_restart_waits_for_all_of_its_own() {
    let mut rig = Rig::new(settings());
    restarting(&mut rig, &[1, 2], 3);
    rig.barrier(1, RESTART[0], WorkerState::Restarting);
    rig.barrier(2, RESTART[0], WorkerState::Restarting);
    assert_eq!(rig.kinds(1), [Kind::Accept]);
    rig.restart(4, 2);
    assert_eq!(rig.kinds(4), [Kind::RejectPeerMismatch]);
    rig.wait(16 * SECOND);
    assert!(
        rig.warnings().iter().any(|text| text.contains("1 of 3 processes")),
        "{:?}",
        rig.warnings()
    );
    rig.restart(3, 3);
    rig.barrier(3, RESTART[0], WorkerState::Restarting);
    assert_eq!(rig.last(1).kind, Kind::BarrierReleased);
    rig.restart(5, 3);
    assert_eq!(rig.kinds(5), [Kind::RejectNotRestarting]);
    for connection in [1, 2, 3] {
        rig.barrier(connection, RESTART[1], WorkerState::Restarting);
    }
    for connection in [1, 2, 3] {
        rig.resume(connection);
    }
    assert!(rig.notices.contains(&Notice::Restarted { group: GROUP, peers: 3 }));
    rig.command(10, Command::Checkpoint);
    rig.checkpoint(&[1, 2, 3]);
    assert_eq!(rig.commits[0].group.generation, GROUP.generation + 1);
}

#[test]
fn helpers_that_join_a_restart_are_served_and_do_not_stay_in_it() {
    let mut rig = Rig::new(settings());
    restarting(&mut rig, &[1, 2], 2);
    for connection in [1, 2] {
        rig.barrier(connection, RESTART[0], WorkerState::Restarting);
    }
    // An ssh helper is forked by a process that is being restarted.
    let mut helper = new_worker(3);
    helper.state = WorkerState::Restarting;
    rig.open(3, helper);
    assert_eq!(rig.kinds(3), [Kind::Accept]);
    for connection in [1, 2] {
        rig.barrier(connection, RESTART[1], WorkerState::Restarting);
    }
    assert_eq!(rig.last(1).payload, b"Socket::Restart_Ns_Register_Data\0", "it is not waited for");
    for connection in [1, 2] {
        rig.resume(connection);
    }
    rig.command(10, Command::Checkpoint);
    assert_eq!(rig.last(10).command_status, CommandStatus::Success);
    rig.checkpoint(&[1, 2, 3]);
    assert_eq!(rig.commits[0].images.len(), 3);
}

const LISTENERS: &str = "/plugin/socket/rst";

#[test]
fn a_listener_everywhere_is_published_where_it_was_seen() {
    let mut rig = Rig::new(settings());
    restarting(&mut rig, &[1, 2], 2);
    let everywhere = publish("0.0.0.0:4000".parse().unwrap());
    let there = publish("10.9.9.9:4000".parse().unwrap());
    assert_eq!(rig.store(1, Operation::Set, LISTENERS, "a(1)", &everywhere).payload, b"0\0");
    rig.store(1, Operation::Set, LISTENERS, "b(1)", &there);
    rig.store(1, Operation::Set, "/other", "a(1)", &everywhere);
    let get = |rig: &mut Rig, database, key| {
        let payload = rig.store(2, Operation::Get, database, key, "").payload;
        String::from_utf8(payload).unwrap().trim_end_matches('\0').to_owned()
    };
    assert_eq!(
        published(&get(&mut rig, LISTENERS, "a(1)")),
        Some("10.0.1.1:4000".parse().unwrap())
    );
    assert_eq!(get(&mut rig, LISTENERS, "b(1)"), there);
    assert_eq!(get(&mut rig, "/other", "a(1)"), everywhere);
    let missing = rig.store(2, Operation::Get, LISTENERS, "c(1)", "");
    assert_eq!(missing.store_code, StoreResult::KeyNotFound.number());
}

#[test]
fn departed_peers_are_not_waited_for_and_stood_in_for() {
    let stand_in = "10.0.0.10:999".parse().unwrap();
    let mut rig = Rig::new(ckpt_dmtcp::machine::Settings {
        departed_after: Some(20 * SECOND),
        stand_in: Some(stand_in),
        ..settings()
    });
    restarting(&mut rig, &[1, 2], 4);
    for connection in [1, 2] {
        rig.barrier(connection, RESTART[0], WorkerState::Restarting);
    }
    rig.wait(21 * SECOND);
    assert_eq!((rig.last(1).kind, rig.last(1).peers), (Kind::BarrierReleased, 2));
    let own = publish("0.0.0.0:4000".parse().unwrap());
    rig.store(1, Operation::Set, LISTENERS, "7-40000-1(1)", &own);
    rig.store(1, Operation::Set, LISTENERS, "7-40000-1(2)", &own);
    for connection in [1, 2] {
        rig.barrier(connection, RESTART[1], WorkerState::Restarting);
    }
    // One listener is another's peer, the other one's peer is gone; and a listener that is not there.
    rig.store(2, Operation::Get, LISTENERS, "7-40000-1(1)", "");
    let found = rig.store(2, Operation::Get, LISTENERS, "7-43000-1(5)", "").payload;
    let text = String::from_utf8(found).unwrap();
    assert_eq!(published(text.trim_end_matches('\0')), Some(stand_in));
    rig.wait(3 * SECOND);
    assert_eq!(rig.dials, ["7-40000-1(2)"]);
    for connection in [1, 2] {
        rig.resume(connection);
    }
    rig.command(10, Command::Checkpoint);
    rig.checkpoint(&[1, 2]);
    assert_eq!(rig.commits.len(), 1);
}

#[test]
fn a_restart_survives_the_loss_of_one_before_and_after_its_first_barrier() {
    let mut rig = Rig::new(settings());
    restarting(&mut rig, &[1, 2], 2);
    rig.close(2);
    rig.barrier(1, RESTART[0], WorkerState::Restarting);
    assert_eq!(rig.last(1).kind, Kind::Accept);
    // It is started once more.
    rig.restart(3, 2);
    rig.barrier(3, RESTART[0], WorkerState::Restarting);
    assert_eq!(rig.last(1).kind, Kind::BarrierReleased);
    rig.close(3);
    rig.barrier(1, RESTART[1], WorkerState::Restarting);
    rig.resume(1);
    rig.command(10, Command::Checkpoint);
    assert_eq!(rig.last(10).command_status, CommandStatus::Success);
}

#[test]
fn a_lost_machine_takes_its_processes_and_nobody_waits_for_them() {
    let mut rig = running(3);
    rig.command(10, Command::BlockingCheckpoint);
    pass(&mut rig, &[1, 3], 0..1);
    let nobody = vec![std::net::IpAddr::from([10, 9, 9, 9])];
    rig.feed(Event::HostLost { addresses: nobody });
    assert_eq!(rig.machine.peers(), 3);
    let addresses = vec![std::net::IpAddr::V4(Rig::remote(2))];
    rig.feed(Event::HostLost { addresses });
    assert_eq!(rig.machine.peers(), 2);
    let group = rig.machine.group();
    assert!(rig.notices.contains(&Notice::HostLost { group, peers: 1 }), "{:?}", rig.notices);
    // The others were at their first barrier, and go on.
    assert_eq!(rig.last(1).kind, Kind::BarrierReleased);
    rig.close(2);
    rig.feed(Event::HostLost { addresses: vec![Rig::remote(1).into(), Rig::remote(3).into()] });
    let ends = rig.notices.iter().rposition(|notice| matches!(notice, Notice::Ended { .. }));
    let lost = rig.notices.iter().rposition(|notice| matches!(notice, Notice::HostLost { .. }));
    assert!(lost < ends, "whoever restarts it knows why it ended: {:?}", rig.notices);
}

#[test]
fn who_has_just_gone_is_lost_with_its_machine() {
    let mut rig = running(2);
    rig.close(2);
    rig.wait(10 * SECOND);
    rig.feed(Event::HostLost { addresses: vec![Rig::remote(2).into()] });
    let group = rig.machine.group();
    assert!(rig.notices.contains(&Notice::HostLost { group, peers: 1 }), "{:?}", rig.notices);
    let told = rig.notices.len();
    rig.wait(61 * SECOND);
    rig.feed(Event::HostLost { addresses: vec![Rig::remote(2).into()] });
    assert_eq!(rig.notices.len(), told, "that was long ago");
}

#[test]
fn killing_reaches_late_ones_and_ends_with_the_last() {
    let mut rig = running(2);
    rig.command(10, Command::Kill);
    assert_eq!(rig.last(1).kind, Kind::Kill);
    rig.open(3, new_worker(3));
    assert_eq!(rig.kinds(3), [Kind::Kill]);
    rig.close(1);
    rig.close(2);
    assert!(matches!(rig.notices.last(), Some(Notice::Ended { asked: true, .. })));
    rig.launch(4);
    assert_eq!(rig.kinds(4), [Kind::Accept]);
    rig.command(11, Command::Quit);
    assert!(rig.quit && rig.kinds(11).is_empty(), "quit has no answer");
    assert_eq!(rig.last(4).kind, Kind::Kill);
}

#[test]
fn unknown_commands_are_told() {
    let mut rig = running(1);
    let mut message = Message::new(Kind::UserCommand);
    message.command = 77;
    rig.open(10, message);
    assert_eq!(rig.last(10).command_status, CommandStatus::InvalidCommand);
    rig.command(11, Command::Status);
    let status = rig.last(11);
    assert!(status.is_running && status.peers == 1 && status.interval == 0);
}

#[test]
fn a_record_that_can_t_be_kept_is_no_checkpoint() {
    let mut rig = running(1);
    rig.record_failure = Some("the disk is full".into());
    rig.command(10, Command::BlockingCheckpoint);
    rig.checkpoint(&[1]);
    assert_eq!(rig.last(10).command_status, CommandStatus::NotRunning);
    assert!(
        rig.notices.iter().any(
            |notice| matches!(notice, Notice::Failed { reason, .. } if reason.contains("full"))
        )
    );
    rig.record_failure = None;
    rig.command(11, Command::BlockingCheckpoint);
    rig.checkpoint(&[1]);
    assert_eq!(rig.last(11).command_status, CommandStatus::Success);
}

#[test]
fn plugins_may_have_barriers_of_their_own() {
    let mut rig = running(2);
    for _ in 0..70 {
        for connection in [1, 2] {
            rig.barrier(connection, "plugin", WorkerState::Running);
        }
        assert_eq!(rig.last(2).payload, b"plugin\0");
    }
    rig.command(10, Command::Checkpoint);
    rig.checkpoint(&[1, 2]);
    assert_eq!(rig.commits.len(), 1);
}

#[test]
fn the_store_has_connections_of_its_own() {
    let mut rig = running(1);
    rig.open(5, Message::new(Kind::StoreWorker));
    let reply = rig.store(5, Operation::IncrementBy, "/db", "k", "4");
    assert_eq!(reply.payload, b"0\0");
    assert_eq!(rig.store(1, Operation::Get, "/db", "k", "").payload, b"4\0");
    rig.say(5, Message::new(Kind::Resuming));
    assert!(rig.closed.contains(&5));
}
