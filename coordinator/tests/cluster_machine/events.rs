//! What a job's user is told of it, for the commands that are called then.

use super::rig::{Rig, name};
use protocol::cluster::client::{Answer, Ask};
use protocol::cluster::job_event::{Happening, JobEvent};

/// What has happened since so many events, and how many there have been.
fn since(rig: &mut Rig, known: Option<u64>) -> (Vec<JobEvent>, u64) {
    rig.answers.clear();
    rig.ask(Ask::Events { job: "latest".to_owned(), known });
    match rig.answers.pop().unwrap() {
        Answer::Events { events, known, forgotten: 0, .. } => (events, known),
        other => panic!("{other:?}"),
    }
}

fn names(events: &[JobEvent]) -> Vec<&'static str> {
    let name = |event: &JobEvent| match event.what {
        Happening::Checkpoint { .. } => "checkpoint",
        Happening::Failed { .. } => "failed",
        Happening::Lost { .. } => "lost",
        Happening::Moved { .. } => "moved",
        Happening::Ended { .. } => "ended",
    };
    events.iter().map(name).collect()
}

#[test]
fn a_loss_is_told_with_the_processes_that_were_there() {
    let settings = protocol::cluster::settings::JobSettings { copies: 2, ..Rig::on_demand() };
    let mut rig = Rig::with_job(3, settings);
    assert_eq!(since(&mut rig, Some(0)), (vec![], 0));
    rig.checkpoint();
    let (first, known) = since(&mut rig, Some(0));
    assert_eq!(names(&first), ["checkpoint"]);
    rig.disconnect(3);
    rig.wait(10_000);
    let (events, after) = since(&mut rig, Some(known));
    assert_eq!((names(&events), after), (vec!["lost", "moved"], 3));
    let Happening::Lost { node, processes } = &events[0].what else { panic!("{events:?}") };
    let pids: Vec<i32> = processes.iter().map(|process| process.pid).collect();
    assert_eq!((node, pids), (&name(3), vec![2, 3, 4]));
    let Happening::Moved { reason, node, moves, checkpoint } = &events[1].what else {
        panic!("{events:?}")
    };
    assert_eq!((reason.as_str(), node, checkpoint), ("lost", &Some(name(3)), &Some(1)));
    assert!(moves.len() == 3 && moves.iter().all(|one| one.from == name(3) && one.to != name(3)));
    // A coordinator that begins again knows of the same, by the same numbers.
    rig.restart_coordinator();
    assert_eq!(since(&mut rig, Some(known)), (events, 3));
    assert_eq!(since(&mut rig, None), (vec![], 3));
    rig.root_ends(3);
    rig.wait(2_000);
    let (last, _) = since(&mut rig, Some(3));
    assert_eq!(names(&last), ["ended"]);
}

#[test]
fn lines_of_commands_are_in_the_log_within_bounds() {
    let mut rig = Rig::with_job(1, Rig::on_demand());
    for number in 0..200 {
        let text = format!("line\n{number}");
        rig.ask(Ask::Note { job: "latest".to_owned(), text });
    }
    let log = String::from_utf8(rig.output.clone()).unwrap();
    assert!(log.starts_with("[ckptd: line 0]\n[ckptd: line 1]\n"), "{log}");
    assert!(log.lines().count() <= 120);
    assert!(
        matches!(rig.answers.last(), Some(Answer::Failed { reason, .. }) if reason.contains("too many"))
    );
}
