//! The listings for people, as reviewed: see `snapshots/`. `INSTA_UPDATE=always cargo test -p ckptd` writes them anew.

use super::summary::{Abandoned, CheckpointSummary, JobSummary};
use super::{ls, status};
use crate::cli::EngineSetting;
use crate::cluster::listing;
use crate::text;
use coordinator::{CommittedState, End};
use protocol::agent::{CommitRecord, ExitKind, ImageSummary};
use protocol::control::{LiveStatus, Rehearsal, RehearsalOutcome};
use serde_json::{Value, json};

/// A time, in milliseconds since 1970 UTC.
const NOW: u64 = 1_760_000_000_000;
const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

fn check(name: &str, text: &str) {
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name, text);
    });
}

fn job(name: &str, command: &[&str], created_at_ms: u64) -> JobSummary {
    JobSummary {
        id: format!("{name}-1"),
        name: name.into(),
        state: "interrupted",
        engine: EngineSetting::Native,
        command: command.iter().map(|&word| word.to_owned()).collect(),
        created_at_ms,
        started_at_ms: Some(created_at_ms),
        starts: 1,
        restored_from: None,
        end: None,
        log: format!("/home/ada/.local/state/ckptd/{name}-1/log"),
        live: None,
        checkpoints: Vec::new(),
        last_abandoned: None,
    }
}

fn checkpoint(number: u64, taken_at_ms: u64, state: CommittedState) -> CheckpointSummary {
    let summary = ImageSummary {
        processes: 5,
        bytes: 1_400_000_000,
        stored_bytes: 71_000_000,
        files: 38,
        connections: 12,
    };
    let record = CommitRecord {
        format: CommitRecord::FORMAT,
        job: "fold-1".into(),
        checkpoint: number,
        restored_from: None,
        taken_at_ms,
        committed_at_ms: taken_at_ms + 900,
        pause_us: 26_400,
        log_length: 4096,
        copies: 1,
        degraded: false,
        suspended: false,
        summary,
        agents: Vec::new().into(),
    };
    CheckpointSummary { state, age_s: (NOW - taken_at_ms) / 1000, record }
}

/// One that runs, after a restart.
fn running() -> JobSummary {
    let live = LiveStatus {
        launcher_pid: 4711,
        processes: Some(5),
        interval_s: 30,
        next_checkpoint_ms: Some(17_200),
        in_flight: None,
        ending: false,
        suspended: false,
        rehearsal: Some(Rehearsal {
            checkpoint: 7,
            outcome: Some(RehearsalOutcome::Restorable { processes: 5, took_ms: 1234 }),
        }),
    };
    JobSummary {
        state: "running",
        started_at_ms: Some(NOW - 40 * MINUTE),
        starts: 2,
        restored_from: Some(6),
        live: Some(live),
        checkpoints: vec![
            checkpoint(6, NOW - 45 * MINUTE, CommittedState::Current),
            checkpoint(7, NOW - 13_000, CommittedState::Current),
        ],
        last_abandoned: Some(Abandoned {
            checkpoint: 5,
            reason: "process 9 (solver), descriptor 4: an inotify instance; close it".into(),
        }),
        ..job("fold", &["mpirun", "-np", "4", "./fold", "--steps", "1000000"], NOW - 3 * HOUR)
    }
}

fn ended(name: &str, status: ExitKind) -> JobSummary {
    let end = End { at_ms: NOW - HOUR, status: Some(status), asked: false };
    JobSummary { state: "ended", end: Some(end), ..job(name, &["./tide"], NOW - 50 * HOUR) }
}

#[test]
fn jobs_of_a_machine() {
    let killed = ended("killed", ExitKind::Signalled(9));
    let rude = job("rude", &["printf", "\x1b[2J"], NOW - 90_000);
    let all = [running(), ended("tide", ExitKind::Exited(0)), killed, rude];
    check("ls", &ls::of_machine(&all, NOW));
    check("ls-empty", &ls::of_machine(&[], NOW));
}

#[test]
fn a_job_of_a_machine() {
    check("status-running", &status::describe(&running(), NOW));
    let mut went_back = JobSummary { live: None, state: "interrupted", ..running() };
    went_back.checkpoints[1].state = CommittedState::Superseded;
    went_back.checkpoints[0].record.degraded = true;
    check("status-interrupted", &status::describe(&went_back, NOW));
    check("status-ended", &status::describe(&ended("tide", ExitKind::Exited(0)), NOW));
}

/// As a coordinator tells it. Ages are in the middle of what one word stands for.
fn clustered() -> Value {
    let ago = |ms| text::now_ms() - ms;
    json!({
        "id": "queens-1", "name": "queens", "state": "running",
        "command": ["mpirun", "-np", "3", "nqueens", "16"],
        "created_at_ms": ago(3 * HOUR + 30 * MINUTE), "started_at_ms": ago(3 * HOUR + 30 * MINUTE),
        "live": {"next_checkpoint_ms": 4000},
        "rollbacks": [{"reason": "lost"}, {"reason": "leave"}, {"reason": "join"}, {"reason": "drain"}],
        "drained": ["node3", "node4"],
        "attention": [{"what": "clock", "node": "node2", "text": "the clock of node2 is 37 s ahead"}],
        "newcomers": "node3 has joined, 1.50 times as fast expected",
        "log": "/var/lib/ckptd/jobs/queens-1/log",
        "processes": [
            {"pid": 2, "name": "mpirun", "node": "node1", "home": "node1", "why": "launched"},
            {"pid": 7, "name": "nqueens", "work": 0.97, "node": "node1", "home": "node1", "why": "launched"},
            {"pid": 8, "name": "nqueens", "work": 1.03, "node": "node3", "home": "node2", "why": "room"},
        ],
        "checkpoints": [
            {"checkpoint": 11, "state": "superseded", "taken_at_ms": ago(50 * HOUR), "pause_us": 1900,
             "copies": 2, "summary": {"processes": 3, "bytes": 9_000_000, "stored_bytes": 80_000}},
            {"checkpoint": 12, "state": "current", "taken_at_ms": ago(150_000), "degraded": true},
        ],
    })
}

#[test]
fn jobs_of_a_cluster() {
    check("cluster-ls", &listing::jobs(&json!([clustered(), {"name": "bare"}])));
    check("cluster-status", &listing::status(&clustered(), None));
    let around = json!({ "attention": [{ "text": "b has a full disk" }], "drained": ["a", "b"] });
    check("cluster-status-empty", &listing::status(&json!([]), Some(&around)));
}

#[test]
fn members_of_a_cluster() {
    let members = json!([
        {"name": "desk", "state": "member", "slots": 4, "speed": 1.0, "speed_from": "measured", "capacity": 4.0,
         "load": 3.2, "instances": ["queens"], "holds": ["queens"]},
        {"name": "phone", "state": "leaving", "slots": 2, "speed": 0.41, "speed_from": "measured", "capacity": 1.5,
         "load": 0.1, "battery": 14, "charging": true},
        {"name": "a\u{1b}", "slots": 2, "load": 0.5},
        {"name": "node3", "state": "draining", "drained": true, "instances": ["queens"],
         "attention": ["the disk of node3 is full"]},
        {"name": "node4", "state": "gone", "drained": true},
    ]);
    check("nodes", &listing::nodes(&members));
}
