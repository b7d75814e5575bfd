//! The coordinator's log on disk, cut and damaged.

#![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

use coordinator::Entry;
use coordinator::log::{LogError, LogFile, read, replay};

fn entries() -> Vec<Entry> {
    vec![
        Entry::Started { at_ms: 5, restored_from: None },
        Entry::Begun { checkpoint: 1 },
        Entry::Abandoned { checkpoint: 1, reason: "process 7: \"odd\"\n".into(), again: true },
        Entry::Begun { checkpoint: 2 },
    ]
}

#[test]
fn a_torn_last_line_never_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("coordinator.log");
    let (mut log, _) = LogFile::open(&path, "job-1").unwrap();
    for entry in entries() {
        log.append(&entry).unwrap();
    }
    drop(log);
    let text = std::fs::read(&path).unwrap();
    let whole = replay(&text, "job-1").unwrap();
    assert_eq!(whole.length, text.len() as u64);
    assert_eq!(whole.history.next_number(), 3);
    // Cut at every byte: what is read is what the whole lines say, and appending goes on there.
    for cut in 0..text.len() {
        std::fs::write(&path, &text[..cut]).unwrap();
        let lines = text[..cut].iter().filter(|byte| **byte == b'\n').count();
        let (mut log, history) = LogFile::open(&path, "job-1").unwrap();
        assert_eq!(history.starts(), u64::from(lines >= 2), "cut at {cut}");
        log.append(&Entry::Begun { checkpoint: 9 }).unwrap();
        assert_eq!(read(&path, "job-1").unwrap().next_number(), 10, "cut at {cut}");
    }
}

#[test]
fn damage_in_the_middle_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("coordinator.log");
    let (mut log, _) = LogFile::open(&path, "job-1").unwrap();
    for entry in entries() {
        log.append(&entry).unwrap();
    }
    let text = std::fs::read(&path).unwrap();
    let last_line =
        text.len() - 1 - text[..text.len() - 1].iter().rev().position(|b| *b == b'\n').unwrap();
    for at in 0..last_line - 1 {
        let mut damaged = text.clone();
        damaged[at] ^= 1;
        assert!(
            matches!(replay(&damaged, "job-1"), Err(LogError::Damaged { .. })),
            "a flipped bit at {at} went unseen"
        );
    }
    assert!(matches!(replay(&text, "job-2"), Err(LogError::OtherJob { .. })));
}
