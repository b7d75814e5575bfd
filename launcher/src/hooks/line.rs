//! What a command is told: one object of JSON in one line.

use protocol::agent::ExitKind;
use protocol::cluster::NodeName;
use protocol::cluster::job_event::{Happening, JobEvent, MOST_NAMED, Moved, Process};
use serde::Serialize;
use std::time::{Duration, UNIX_EPOCH};

/// The end of the year 9999: later moments have no such form.
const LAST: u64 = 253_402_300_799_999;

/// The line; the keys stay as they are.
#[derive(Debug, Serialize)]
struct Line<'a> {
    event: &'static str,
    job: &'a str,
    id: &'a str,
    time: String,
    time_ms: u64,
    /// The same for people, as chat systems show it.
    text: String,
    #[serde(flatten)]
    of_event: OfEvent<'a>,
}

/// What belongs to each event.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum OfEvent<'a> {
    Checkpoint {
        checkpoint: u64,
        bytes: u64,
        stored_bytes: u64,
        pause_ms: f64,
        copies: u32,
    },
    Failed {
        checkpoint: u64,
        reason: &'a str,
    },
    Lost {
        node: &'a NodeName,
        processes: &'a [Process],
    },
    Moved {
        reason: &'a str,
        node: Option<&'a NodeName>,
        checkpoint: Option<u64>,
        moves: &'a [Moved],
    },
    Ended {
        status: Option<u8>,
        signal: Option<i32>,
        reason: Option<&'a str>,
        checkpoint: Option<u64>,
    },
}

/// The line about an event of the job of that id and name.
pub fn line(event: &JobEvent, id: &str, job: &str, now_ms: u64) -> String {
    let time_ms = event.at_ms.unwrap_or(now_ms).min(LAST);
    let at = UNIX_EPOCH + Duration::from_millis(time_ms);
    let line = Line {
        event: super::hook::Kind::of(&event.what).name(),
        job,
        id,
        time: humantime::format_rfc3339_millis(at).to_string(),
        time_ms,
        text: sentence(&event.what, job),
        of_event: OfEvent::of(&event.what),
    };
    // It has no keys that are not strings and no foreign types: it always has a form.
    serde_json::to_string(&line).unwrap_or_default() + "\n"
}

/// The event in words.
fn sentence(what: &Happening, job: &str) -> String {
    let processes = |number: usize| match number {
        1 => "1 process".to_owned(),
        // No more are named.
        MOST_NAMED.. => format!("{number} processes or more"),
        number => format!("{number} processes"),
    };
    match what {
        Happening::Checkpoint { checkpoint, .. } => {
            format!("checkpoint {checkpoint} of {job} is committed")
        }
        Happening::Failed { checkpoint, reason } => {
            format!("checkpoint {checkpoint} of {job} could not be taken: {reason}")
        }
        Happening::Lost { node, processes: lost } => {
            format!("{node} is gone, with {} of {job}", processes(lost.len()))
        }
        Happening::Moved { reason, checkpoint, moves, .. } => {
            let from = checkpoint.map(|number| format!(" from checkpoint {number}"));
            let moved = processes(moves.len());
            format!("{job} goes on{} ({reason}), {moved} moved", from.unwrap_or_default())
        }
        Happening::Ended { status, reason, .. } => match (status, reason) {
            (Some(ExitKind::Exited(status)), _) => format!("{job} has ended with status {status}"),
            (Some(ExitKind::Signalled(signal)), _) => format!("{job} was ended by signal {signal}"),
            (None, Some(reason)) => format!("{job} has ended: {reason}"),
            (None, None) => format!("{job} has ended"),
        },
    }
}

impl<'a> OfEvent<'a> {
    fn of(what: &'a Happening) -> Self {
        match what {
            Happening::Checkpoint { checkpoint, bytes, stored_bytes, pause_us, copies } => {
                Self::Checkpoint {
                    checkpoint: *checkpoint,
                    bytes: *bytes,
                    stored_bytes: *stored_bytes,
                    pause_ms: *pause_us as f64 / 1e3,
                    copies: *copies,
                }
            }
            Happening::Failed { checkpoint, reason } => {
                Self::Failed { checkpoint: *checkpoint, reason }
            }
            Happening::Lost { node, processes } => Self::Lost { node, processes },
            Happening::Moved { reason, node, checkpoint, moves } => {
                Self::Moved { reason, node: node.as_ref(), checkpoint: *checkpoint, moves }
            }
            Happening::Ended { status, reason, checkpoint } => Self::Ended {
                status: status.map(ExitKind::shell_status),
                signal: match status {
                    Some(ExitKind::Signalled(signal)) => Some(*signal),
                    _ => None,
                },
                reason: reason.as_deref(),
                checkpoint: *checkpoint,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(at_ms: Option<u64>, what: Happening) -> String {
        line(&JobEvent { at_ms, what }, "fold-1", "fold", 1_700_000_000_500)
    }

    #[test]
    fn each_event_has_a_sentence() {
        let of = |what: Happening| sentence(&what, "fold");
        let process = || Process { pid: 7, name: "fold".into() };
        let node = || "node2".parse().unwrap();
        let lost = |processes| of(Happening::Lost { node: node(), processes });
        assert_eq!(lost(vec![process()]), "node2 is gone, with 1 process of fold");
        assert_eq!(lost(vec![process(), process()]), "node2 is gone, with 2 processes of fold");
        let moved = Happening::Moved {
            reason: "lost".into(),
            node: Some(node()),
            checkpoint: Some(4),
            moves: Vec::new(),
        };
        assert_eq!(of(moved), "fold goes on from checkpoint 4 (lost), 0 processes moved");
        let ended = |status, reason| of(Happening::ended(status, reason, None));
        assert_eq!(ended(Some(ExitKind::Exited(3)), None), "fold has ended with status 3");
        assert_eq!(ended(Some(ExitKind::Signalled(9)), None), "fold was ended by signal 9");
        assert_eq!(ended(None, Some("given up")), "fold has ended: given up");
    }

    #[test]
    fn the_lines_are_stable() {
        let head = |event: &str, time: &str| {
            format!(
                r#"{{"event":"{event}","job":"fold","id":"fold-1","time":"2023-11-14T22:13:20.{time}Z","#
            )
        };
        assert_eq!(
            told(None, Happening::failed(3, "slow")),
            head("failed", "500")
                + "\"time_ms\":1700000000500,\"text\":\"checkpoint 3 of fold could not be taken: slow\",\
                   \"checkpoint\":3,\"reason\":\"slow\"}\n"
        );
        let commit = Happening::Checkpoint {
            checkpoint: 4,
            bytes: 10,
            stored_bytes: 5,
            pause_us: 1500,
            copies: 2,
        };
        let text = told(Some(1_700_000_000_123), commit);
        let rest = r#""checkpoint":4,"bytes":10,"stored_bytes":5,"pause_ms":1.5,"copies":2}"#;
        assert!(text.starts_with(&head("checkpoint", "123")), "{text}");
        assert!(text.trim_end().ends_with(rest), "{text}");
        let lost = Happening::Lost {
            node: "node2".parse().unwrap(),
            processes: vec![Process { pid: 7, name: "fold".into() }],
        };
        let rest = r#""node":"node2","processes":[{"pid":7,"name":"fold"}]}"#;
        assert!(told(None, lost).trim_end().ends_with(rest));
        let ended = Happening::ended(Some(ExitKind::Signalled(9)), None, Some(4));
        let rest = r#""status":137,"signal":9,"reason":null,"checkpoint":4}"#;
        assert!(told(None, ended).trim_end().ends_with(rest));
        assert!(
            told(Some(u64::MAX), Happening::ended(None, Some("x"), None)).contains("9999-12-31")
        );
    }
}
