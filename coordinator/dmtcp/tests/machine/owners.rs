//! Whose computation it is, and who else may do what.

use super::rig::{Rig, new_worker, settings};
use ckpt_dmtcp::machine::{Command, Settings};
use ckpt_dmtcp::wire::{CommandStatus, Kind, Message, Operation};

const ALICE: u32 = 1001;
const BOB: u32 = 1002;

/// A rig of that user's coordinator, with connections of Alice (1), Bob (2, 3), root (4), and from another machine (5).
fn rig(user: u32) -> Rig {
    let mut rig = Rig::new(Settings { user, ..settings() });
    rig.owners.extend([(1, ALICE), (2, BOB), (3, BOB), (4, 0)]);
    rig
}

fn refused(rig: &Rig, connection: u64) -> bool {
    rig.closed.contains(&connection) && rig.last(connection).kind == Kind::RejectWrongGroup
}

#[test]
fn only_processes_of_one_user_share_a_computation() {
    let mut rig = rig(0);
    rig.launch(1);
    for other in [2, 4] {
        rig.open(other, new_worker(other));
        assert!(refused(&rig, other), "{:?}", rig.kinds(other));
    }
    assert_eq!(rig.machine.peers(), 1);
    assert!(rig.warnings()[0].contains("user 1002 was refused"), "{:?}", rig.warnings());
    // Nobody on this machine knows whose a process of another machine is.
    rig.launch(5);
    assert_eq!(rig.machine.peers(), 2);
    rig.close(1);
    rig.close(5);
    rig.launch(3);
    assert_eq!(rig.machine.peers(), 1);
}

#[test]
fn the_store_of_a_computation_is_its_users_alone() {
    let mut rig = rig(0);
    rig.open(2, Message::new(Kind::StoreWorker));
    let reply = rig.store(2, Operation::Set, "db", "key", "value");
    assert_eq!(reply.kind, Kind::StoreResponse);
    rig.launch(1);
    rig.store(2, Operation::Get, "db", "key", "");
    assert!(rig.closed.contains(&2) && rig.kinds(2).len() == 1, "{:?}", rig.kinds(2));
    rig.open(3, Message::new(Kind::StoreWorker));
    assert!(refused(&rig, 3));
}

#[test]
fn orders_are_those_of_root_and_of_the_computations_user() {
    let mut rig = rig(0);
    rig.launch(1);
    for command in [Command::Kill, Command::Quit, Command::List, Command::Checkpoint] {
        rig.command(2, command);
        assert_eq!(rig.last(2).command_status, CommandStatus::NotFound, "{command:?}");
        assert!(rig.last(2).payload.is_empty());
    }
    assert!(!rig.quit && !rig.kinds(1).contains(&Kind::Kill));
    assert!(!rig.kinds(1).contains(&Kind::DoCheckpoint));
    rig.owners.insert(6, ALICE);
    for own in [6, 4] {
        rig.command(own, Command::Status);
        assert_eq!(rig.last(own).command_status, CommandStatus::Success);
        assert_eq!(rig.last(own).peers, 1);
    }
    rig.command(6, Command::Kill);
    assert!(rig.kinds(1).contains(&Kind::Kill));
}

#[test]
fn the_coordinator_of_a_user_is_for_that_user_alone() {
    let mut rig = rig(ALICE);
    for other in [2, 4] {
        rig.open(other, new_worker(other));
        assert!(refused(&rig, other));
    }
    rig.command(3, Command::Quit);
    assert!(!rig.quit);
    rig.launch(1);
    assert_eq!(rig.machine.peers(), 1);
}
