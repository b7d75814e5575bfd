//! What the audit log tells of readers.

use super::rig::{Rig, name};
use ckpt_node::Event;
use protocol::cluster::agent::{JobUser, ToAgent};
use protocol::cluster::audit::AuditEvent;
use protocol::cluster::client::{Answer, Ask, LogPlace};
use protocol::cluster::powers::Powers;
use protocol::cluster::settings::JobSettings;

/// Orders and refusals, in their order.
fn noted(rig: &Rig) -> Vec<String> {
    let lines = rig.audited.iter().filter_map(|event| match event {
        AuditEvent::Ordered { order } => Some(format!("{} {}", order.order, order.about)),
        AuditEvent::Refused { order, .. } => Some(format!("no {} {}", order.order, order.about)),
        _ => None,
    });
    lines.collect()
}

fn log(job: &str, length: u64) -> Ask {
    let from = LogPlace { epoch: 1, length, written: length };
    Ask::Log { job: job.to_owned(), from, times: false }
}

#[test]
fn a_log_that_is_read_from_its_middle_is_noted_once() {
    let mut rig = Rig::with_job(1, JobSettings::default());
    rig.audited.clear();
    for length in [100, 200, 300] {
        rig.ask(log("latest", length));
    }
    assert_eq!(noted(&rig), ["logs latest"]);
    // From the beginning it is a reading of its own.
    for _ in 0..2 {
        rig.ask(Ask::Log { job: "latest".to_owned(), from: LogPlace::default(), times: false });
    }
    assert_eq!(noted(&rig), ["logs latest"; 3]);
}

#[test]
fn a_refused_reading_from_the_middle_is_noted_as_refused() {
    let mut rig = Rig::with_job(1, JobSettings::default());
    rig.audited.clear();
    rig.ask(log("another", 100));
    rig.ask(Ask::Audit { from: 7 });
    assert_eq!(noted(&rig), ["logs another", "no logs another", "audit ", "no audit "]);
}

#[test]
fn who_names_many_jobs_fills_no_memory() {
    let mut rig = Rig::with_job(1, JobSettings::default());
    rig.audited.clear();
    for number in 0..1_001 {
        rig.ask(log(&format!("another{number}"), 100));
    }
    assert_eq!(noted(&rig).len(), 2_002);
    // The first were forgotten then, and count as new.
    rig.ask(log("another0", 100));
    rig.ask(log("another1000", 100));
    assert_eq!(noted(&rig).len(), 2_004);
}

/// A command of a user at a machine asks one thing: why it was refused.
fn order(rig: &mut Rig, node: usize, client: u64, (uid, user): (u32, &str), ask: &Ask) -> String {
    let (from, user) = (rig.sent.len(), JobUser { uid, name: user.to_owned() });
    rig.happens(node, Event::ClientOpened { client, user });
    rig.happens(node, Event::ClientLine { client, line: serde_json::to_string(ask).unwrap() });
    let refusal = rig.sent[from..].iter().find_map(|(_, message)| match message {
        ToAgent::Client { client: to, line: Some(line) } if *to == client => {
            match serde_json::from_str(line).unwrap() {
                Answer::Failed { reason, .. } => Some(reason),
                _ => None,
            }
        }
        _ => None,
    });
    rig.happens(node, Event::ClientClosed { client });
    refusal.unwrap_or_default()
}

#[test]
fn orders_that_a_worker_gives_for_others_are_noted_so_often_and_counted_then() {
    let mut rig = Rig::new(2);
    rig.admit(1, Powers::default());
    rig.admit(2, Powers::of_all_users(false));
    rig.audited.clear();
    let stop = Ask::Stop { job: "x".to_owned(), checkpoint: false };
    let eve = (1001, "eve");
    for client in 1..=500 {
        let refusal = order(&mut rig, 1, client, eve, &stop);
        assert!(refusal.contains("does not speak for users"), "{client}: {refusal:?}");
    }
    assert_eq!(rig.audited.len(), 2 * 30);
    // What could come to something has lines of its own, and is not done without one.
    let login = Ask::Login { user: "alice".to_owned(), valid_s: 60 };
    let logins: Vec<_> =
        (0..300).map(|more| order(&mut rig, 1, 1000 + more, eve, &login)).collect();
    let left_out = logins.iter().filter(|reason| reason.contains("too many orders")).count();
    assert_eq!(left_out, 100);
    let lines = rig.audited.len();
    // Whoever owns that machine, and other machines, are not concerned.
    let (root, alice) = ((0, "root"), (1000, "alice"));
    assert!(!order(&mut rig, 1, 502, root, &Ask::Leave { node: None }).contains("too many"));
    assert!(order(&mut rig, 2, 503, alice, &stop).contains("there is none"));
    assert_eq!(noted(&rig)[lines..], ["leave its machine", "stop x", "no stop x"]);
    rig.wait(61_000);
    let told = rig.audited.iter().filter_map(|event| match event {
        AuditEvent::LeftOut { node, orders } => Some((node.clone(), *orders)),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [(name(1), 470), (name(1), 100)]);
}

#[test]
fn one_member_does_not_take_all_places_for_clients() {
    let mut rig = Rig::new(2);
    rig.admit(2, Powers::of_all_users(false));
    let user = || JobUser { uid: 1000, name: "user".to_owned() };
    let from = rig.sent.len();
    for client in 1..=5000 {
        rig.happens(1, Event::ClientOpened { client, user: user() });
    }
    let turned_away = rig.sent[from..].iter().filter(|(_, message)| {
        matches!(message, ToAgent::Client { line: Some(line), .. } if line.contains("too many clients"))
    });
    assert_eq!(turned_away.count(), 5000 - 256);
    let stop = Ask::Stop { job: "x".to_owned(), checkpoint: false };
    assert!(order(&mut rig, 2, 1, (1000, "user"), &stop).contains("there is none"));
}
