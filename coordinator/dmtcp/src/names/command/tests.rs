//! Commands as they are written.

use super::*;

fn parsed(line: &str) -> Option<Asked> {
    let given: Vec<_> = line.split_whitespace().map(OsString::from).collect();
    parse::<Asked>(Asked::command(), &[], &words(&given)).ok().map(|(asked, _)| asked)
}

#[test]
fn commands_are_dmtcp_s() {
    for (line, command) in [
        ("-s", Command::Status),
        ("status -p 1", Command::Status),
        ("-p 1 --list", Command::List),
        ("t", Command::List),
        ("-bc", Command::BlockingCheckpoint),
        ("bcheckpoint", Command::BlockingCheckpoint),
        ("--kcheckpoint", Command::CheckpointAndKill),
        ("-Kc", Command::CheckpointAndKill),
        ("-c", Command::Checkpoint),
        ("-k", Command::Kill),
        ("--quit", Command::Quit),
    ] {
        assert_eq!(parsed(line).map(|asked| asked.command), Some(command), "{line}");
    }
    for line in ["-i 7", "i7", "--interval 7", "-i7", "interval 7"] {
        let asked = parsed(line).unwrap();
        assert_eq!((asked.command, asked.interval), (Command::Interval, Some(7)), "{line}");
    }
}

#[test]
fn the_coordinator_may_be_named_as_a_command() {
    let asked = parsed("-h s -p7000 l --json").unwrap();
    assert_eq!((asked.host.as_str(), asked.port(), asked.json), ("s", 7000, true));
    assert_eq!((asked.command, parsed("s").unwrap().port()), (Command::List, DEFAULT_PORT));
}

#[test]
fn nonsense_is_no_command() {
    for line in ["", "fly", "--fly", "-p x s", "-p", "i -3", "-h", "s l"] {
        assert!(parsed(line).is_none(), "{line}");
    }
}
