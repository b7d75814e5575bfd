//! What the audit log tells of readers.

use super::rig::Rig;
use protocol::cluster::audit::AuditEvent;
use protocol::cluster::client::{Ask, LogPlace};
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
    Ask::Log { job: job.to_owned(), from }
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
        rig.ask(Ask::Log { job: "latest".to_owned(), from: LogPlace::default() });
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
