//! `ckptd doctor --engine dmtcp`: what an installed DMTCP can do here, and what only DMTCP itself could mend.

use super::engine::program;
use ckpt_agent::doctor::{Check, Report, State};
use ckpt_dmtcp::server::{Options, Port, ServeError};
use protocol::task;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::mpsc;

/// How long a program of DMTCP may take to answer.
const LIMIT: Duration = Duration::from_secs(10);

/// What is known of DMTCP 5.0-dev, however it is installed.
const KNOWN: [(&str, &str, &str); 6] = [
    (
        "several machines",
        "checkpoints hang where sockets join processes of several machines: each machine ends its drain for itself, and a faster \
         one's next message spoils a slower one's",
        "dmtcp_launch --with-plugin drain_barrier.so, made from packaging/dmtcp/drain_barrier.c, ends it for all at once; or \
         use the native engine",
    ),
    (
        "Open MPI, restarted",
        "its next checkpoint ends in an assertion of DMTCP's (connectionmessage.h), under DMTCP's own coordinator as well",
        "a job can be restarted as often as wanted from checkpoints of its first run; the native engine has no such limit",
    ),
    (
        "listening ports",
        "a listener that is restarted within a minute gets another port: its old one is bound before it may be bound again",
        "connections that stand are restored; who connects anew to the old port is refused",
    ),
    (
        "a lost machine",
        "its processes restart on one other machine, with their images there; they can't be split over several",
        "the native engine spreads them",
    ),
    (
        "forked checkpoints",
        "DMTCP's copy-on-write checkpoints have ended the application in every trial",
        "they are not asked for; a job pauses while its images are written",
    ),
    (
        "compression",
        "DMTCP's gzip takes a minute for a gigabyte",
        "ckptd run --engine dmtcp leaves it off",
    ),
];

/// Looks at everything.
pub fn examine() -> Report {
    let mut checks = vec![installed("dmtcp_launch"), installed("dmtcp_restart"), understood()];
    let mpi = match std::env::var_os("HWLOC_COMPONENTS") {
        Some(value) => format!("HWLOC_COMPONENTS is {}, and is left so", value.to_string_lossy()),
        None => "HWLOC_COMPONENTS=-linux:io is set for jobs, without which it fails".to_owned(),
    };
    checks.push(Check { required: false, ..there("Open MPI", mpi) });
    checks.extend(KNOWN.map(|(name, found, consequence)| Check {
        name,
        state: State::Limited,
        required: false,
        found: found.to_owned(),
        consequence: Some(consequence.to_owned()),
    }));
    let able = checks.iter().all(|check| !check.required || check.state != State::Missing);
    Report { able, checks }
}

fn there(name: &'static str, found: String) -> Check {
    Check { name, state: State::Ok, required: true, found, consequence: None }
}

fn missing(name: &'static str, found: String, consequence: &str) -> Check {
    let consequence = Some(consequence.to_owned());
    Check { state: State::Missing, consequence, ..there(name, found) }
}

fn installed(name: &'static str) -> Check {
    match program(name) {
        None => missing(name, "not in PATH".to_owned(), super::engine::MISSING),
        Some(path) => there(name, path.display().to_string()),
    }
}

/// Whether its messages are those that we speak: dmtcp_command asks a port of ours.
fn understood() -> Check {
    let name = "protocol";
    let Some(command) = program("dmtcp_command") else {
        return missing(
            name,
            "there is no dmtcp_command to ask with".to_owned(),
            super::engine::MISSING,
        );
    };
    let asked = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Misunderstood::EventLoop)
        .and_then(|runtime| {
            let asked = runtime.block_on(ask(&command));
            runtime.shutdown_background();
            asked
        });
    match asked {
        Ok(()) => there(name, "its dmtcp_command and ckptd understand each other".to_owned()),
        Err(why) => missing(
            name,
            format!("its dmtcp_command and ckptd do not understand each other: {why}"),
            "this DMTCP is another version than 5.0-dev (4.1.1 and later): install that one",
        ),
    }
}

/// Why DMTCP's program and ckptd do not understand each other.
#[derive(Debug, thiserror::Error)]
enum Misunderstood {
    #[error("{0}")]
    EventLoop(#[source] io::Error),
    #[error(transparent)]
    Port(#[from] ServeError),
    #[error("it gets no answer")]
    NoAnswer,
    #[error("{0}")]
    Command(#[source] io::Error),
    #[error("it ended with {0}")]
    Ended(ExitStatus),
}

async fn ask(command: &Path) -> Result<(), Misunderstood> {
    let options = Options::local(0, std::env::temp_dir());
    let port = Port::bind(options).await?;
    let number = port.address().port().to_string();
    let (_orders, receiver) = mpsc::channel(1);
    task::spawn(port.serve(Arc::new(Mutex::new(())), receiver));
    let child = Command::new(command)
        .args(["--coord-host", "127.0.0.1", "--coord-port", &number, "--status"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(LIMIT, child)
        .await
        .map_err(|_| Misunderstood::NoAnswer)?
        .map_err(Misunderstood::Command)?;
    let told = String::from_utf8_lossy(&output.stdout).contains("NUM_PEERS=0");
    if output.status.success() && told { Ok(()) } else { Err(Misunderstood::Ended(output.status)) }
}
