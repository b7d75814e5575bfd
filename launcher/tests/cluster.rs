//! The command on a machine of a cluster, with a double in the place of the agent's socket.

#![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use protocol::agent::ExitKind;
use protocol::cluster::VERSIONS;
use protocol::cluster::agent::Stream;
use protocol::cluster::client::{Answer, Ask, LogPlace};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Output, Stdio};

/// One conversation of the command with the double.
struct Talk {
    lines: BufReader<UnixStream>,
}

impl Talk {
    /// The next thing that it says; None when it has gone.
    fn hear(&mut self) -> Option<Ask> {
        let mut line = String::new();
        (self.lines.read_line(&mut line).unwrap() > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    fn say(&mut self, answer: &Answer) {
        let line = serde_json::to_string(answer).unwrap() + "\n";
        self.lines.get_mut().write_all(line.as_bytes()).unwrap();
    }
}

struct Stage {
    dir: tempfile::TempDir,
    listener: UnixListener,
}

impl Stage {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("agent.sock")).unwrap();
        Self { dir, listener }
    }

    fn start(&self, arguments: &[&str]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_ckptd"))
            .args(arguments)
            .env("CKPTD_DIR", self.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// The next conversation that asks for something, with what it asks; the command also looks
    /// whether somebody is there.
    fn talk(&self) -> (Talk, Ask) {
        loop {
            let (stream, _) = self.listener.accept().unwrap();
            let mut talk = Talk { lines: BufReader::new(stream) };
            match talk.hear() {
                None => continue,
                Some(Ask::Hello { version: VERSIONS }) => {}
                Some(other) => panic!("{other:?}"),
            }
            let ask = talk.hear().unwrap();
            match ask {
                Ask::Nodes => talk.say(&Answer::Listing { value: json!([]) }),
                Ask::Status { job: Some(_) } => {
                    talk.say(&Answer::Listing { value: json!({"state": "interrupted"}) });
                }
                other => return (talk, other),
            }
        }
    }
}

fn started(talk: &mut Talk) {
    talk.say(&Answer::Started {
        job: "cat-1".into(),
        name: "cat-1".into(),
        terminal: false,
        at: LogPlace::default(),
    });
}

fn output(stream: Stream, bytes: &[u8]) -> Answer {
    Answer::Output { stream, bytes: STANDARD.encode(bytes), at: LogPlace::default() }
}

fn ended(status: ExitKind) -> Answer {
    Answer::Ended { status, checkpoint: Some(3) }
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn streams_and_status_are_carried() {
    let stage = Stage::new();
    let mut child = stage.start(&["run", "--keep", "5", "--place", "a=2", "cat"]);
    let (mut talk, ask) = stage.talk();
    let Ask::Run(request) = ask else { panic!("{ask:?}") };
    assert_eq!(request.launch.program, ["cat"]);
    assert_eq!((request.settings.keep, request.settings.copies), (5, 2));
    assert_eq!(request.settings.place.values().copied().collect::<Vec<_>>(), [2]);
    started(&mut talk);
    let typed = b"one\0\xfftwo\n".to_vec();
    child.stdin.take().unwrap().write_all(&typed).unwrap();
    let mut heard = Vec::new();
    loop {
        match talk.hear().unwrap() {
            Ask::Input { bytes } if bytes.is_empty() => break,
            Ask::Input { bytes } => heard.extend(STANDARD.decode(bytes).unwrap()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(heard, typed);
    talk.say(&output(Stream::Output, &typed));
    talk.say(&output(Stream::Error, b"hm\n"));
    talk.say(&Answer::Say { text: "node b was lost".into() });
    talk.say(&ended(ExitKind::Signalled(9)));
    let finished = child.wait_with_output().unwrap();
    assert_eq!(finished.status.code(), Some(137));
    assert_eq!(finished.stdout, typed);
    assert_eq!(texts(&finished).1, "hm\nckptd: node b was lost\n");
}

#[test]
fn a_lost_agent_is_found_again_and_signals_reach_the_job() {
    let stage = Stage::new();
    let child = stage.start(&["restart", "cat-1", "--checkpoint", "2"]);
    let (mut talk, ask) = stage.talk();
    assert!(matches!(&ask, Ask::Restart(request) if request.checkpoint == Some(2)), "{ask:?}");
    started(&mut talk);
    drop(talk);
    let (mut talk, ask) = stage.talk();
    assert!(matches!(&ask, Ask::Attach { job, .. } if job == "cat-1"), "{ask:?}");
    started(&mut talk);
    let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(talk.hear(), Some(Ask::Signal { signal: 15 }));
    talk.say(&ended(ExitKind::Signalled(15)));
    let finished = child.wait_with_output().unwrap();
    assert_eq!(finished.status.code(), Some(143));
    let (_, said) = texts(&finished);
    assert!(said.contains("resume with: ckptd restart cat-1"), "{said}");
}

#[test]
fn a_hangup_ends_only_the_command() {
    let stage = Stage::new();
    let mut child = stage.start(&["run", "cat"]);
    let (mut talk, _) = stage.talk();
    started(&mut talk);
    talk.say(&output(Stream::Output, b"x"));
    // What comes through shows that the job is known to run.
    let mut shown = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut shown).unwrap();
    let stdin = child.stdin.take();
    let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGHUP).unwrap();
    let finished = child.wait_with_output().unwrap();
    assert_eq!(finished.status.code(), Some(129));
    assert_eq!(talk.hear(), None, "nothing was said to the job");
    drop(stdin);
    assert!(texts(&finished).1.contains("ckptd attach cat-1"));
}

#[test]
fn detached_jobs_are_named_and_refusals_told() {
    let stage = Stage::new();
    let child = stage.start(&["run", "--detach", "cat"]);
    let (mut talk, ask) = stage.talk();
    assert!(matches!(&ask, Ask::Run(request) if request.detach), "{ask:?}");
    started(&mut talk);
    let finished = child.wait_with_output().unwrap();
    assert_eq!((finished.status.code(), texts(&finished).0.as_str()), (Some(0), "cat-1\n"));

    for (status, code) in [(2, 2), (125, 125)] {
        let child = stage.start(&["checkpoint", "cat-1"]);
        let (mut talk, ask) = stage.talk();
        assert_eq!(ask, Ask::Checkpoint { job: "cat-1".into() });
        talk.say(&Answer::Failed { reason: "checkpoint cat-1: no".into(), status });
        let finished = child.wait_with_output().unwrap();
        assert_eq!(finished.status.code(), Some(code));
        assert_eq!(texts(&finished).1, "ckptd: failed to checkpoint cat-1: no\n");
    }
}

#[test]
fn listings_are_for_people_and_for_programs() {
    let stage = Stage::new();
    let value = json!([{
        "id": "cat-1", "name": "cat-1", "state": "ended", "command": ["cat", "-"],
        "created_at_ms": 0, "end": {"at_ms": 1, "status": {"exited": 3}, "asked": false},
        "checkpoints": [],
    }]);
    for (arguments, expected) in [
        (&["ls", "--json"][..], "\"cat-1\""),
        (&["ls"][..], "ended (3)"),
        (&["status"][..], "state       ended (3)"),
    ] {
        let child = stage.start(arguments);
        let (mut talk, _) = stage.talk();
        talk.say(&Answer::Listing { value: value.clone() });
        let finished = child.wait_with_output().unwrap();
        let (said, wrong) = texts(&finished);
        assert!(said.contains(expected), "{arguments:?}: {said}{wrong}");
    }
}

#[test]
fn a_dead_agent_is_no_reason_to_run_the_job_elsewhere() {
    let stage = Stage::new();
    let dir = stage.dir;
    drop(stage.listener);
    let finished = Command::new(env!("CARGO_BIN_EXE_ckptd"))
        .args(["run", "true"])
        .env("CKPTD_DIR", dir.path())
        .output()
        .unwrap();
    assert_eq!(finished.status.code(), Some(125));
    let (_, said) = texts(&finished);
    assert!(said.contains("nobody listens at"), "{said}");
}
