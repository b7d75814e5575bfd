//! An agent that runs real processes and pretends to checkpoint them: each image is one small
//! commit through the real store; what is restored is a process that says which it was.

use ckpt_store::CheckpointWriter;
use ckptd::agent::{AgentFailure, AgentHandle, EventSink};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use protocol::agent::{AgentCommand, AgentEvent, ExitKind, ImageSummary};
use protocol::launch::{AdoptSpec, Console, LaunchSpec, RestoreSpec, StreamKind};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

pub fn start(job_dir: PathBuf, events: EventSink) -> Result<Arc<dyn AgentHandle>, AgentFailure> {
    Ok(Arc::new(Double { job_dir, events: events.into(), group: Mutex::new(None) }))
}

struct Double {
    job_dir: PathBuf,
    events: Arc<dyn Fn(AgentEvent) + Send + Sync>,
    group: Mutex<Option<Pid>>,
}

impl Double {
    fn spawn(&self, mut command: Command, inherit_stdin: bool) -> Result<Console, AgentFailure> {
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.stdin(if inherit_stdin { Stdio::inherit() } else { Stdio::piped() });
        let mut child = command.spawn()?;
        *self.group.lock().unwrap() = Some(Pid::from_raw(i32::try_from(child.id())?));
        let console = Console {
            terminal: None,
            stdin: child.stdin.take().map(Into::into),
            stdout: child.stdout.take().map(Into::into),
            stderr: child.stderr.take().map(Into::into),
        };
        let events = self.events.clone();
        std::thread::spawn(move || {
            let status = child.wait().unwrap();
            let status = match status.signal() {
                Some(signal) => ExitKind::Signalled(signal),
                None => ExitKind::Exited(status.code().unwrap() as u8),
            };
            events(AgentEvent::Ended { status });
        });
        Ok(console)
    }

    fn signal(&self, signal: i32) {
        if let Some(group) = *self.group.lock().unwrap() {
            let _ = killpg(group, Signal::try_from(signal).unwrap());
        }
    }
}

impl AgentHandle for Double {
    fn launch(&self, spec: LaunchSpec) -> Result<Console, AgentFailure> {
        let mut command = Command::new(&spec.program[0]);
        command.args(&spec.program[1..]).env_clear().envs(spec.environment);
        command.current_dir(spec.working_directory);
        self.spawn(command, spec.stdin == StreamKind::Inherit)
    }

    fn restore(&self, spec: RestoreSpec) -> Result<Console, AgentFailure> {
        let mut command = Command::new("echo");
        command.arg(format!("restored {}", spec.checkpoint));
        self.spawn(command, true)
    }

    fn adopt(&self, _: AdoptSpec) -> Result<(), AgentFailure> {
        Err("this agent adopts nothing".into())
    }

    fn let_go(&self) {}

    fn rest(&self, _: bool) -> usize {
        0
    }

    fn command(&self, command: AgentCommand) {
        let event = match command {
            AgentCommand::Freeze { checkpoint } => {
                self.signal(nix::libc::SIGSTOP);
                AgentEvent::Frozen { checkpoint, processes: 1, threads: 1 }
            }
            AgentCommand::Quiesce { checkpoint } => AgentEvent::Quiesced { checkpoint },
            AgentCommand::Snapshot { checkpoint } => AgentEvent::SnapshotTaken { checkpoint },
            AgentCommand::Resume { checkpoint } => {
                self.signal(nix::libc::SIGCONT);
                AgentEvent::Resumed { checkpoint, pause_us: 1234 }
            }
            AgentCommand::Write { checkpoint } => AgentEvent::Written {
                checkpoint,
                summary: ImageSummary { processes: 1, ..Default::default() },
            },
            AgentCommand::Commit { checkpoint, record } => {
                let writer = CheckpointWriter::create(&self.job_dir, checkpoint).unwrap();
                writer.submit(1, vec![7; 5000]).unwrap();
                let (mut index, _) = writer.finish_chunks().unwrap();
                index.put_json("graph.json", &serde_json::json!({"processes": [1]})).unwrap();
                index.seal().unwrap().commit(&record).unwrap();
                AgentEvent::Committed { checkpoint }
            }
            AgentCommand::Collect { keep } => {
                ckpt_store::collect(&self.job_dir, &keep).unwrap();
                return;
            }
            AgentCommand::Abandon { checkpoint } => {
                self.signal(nix::libc::SIGCONT);
                AgentEvent::Abandoned { checkpoint }
            }
            AgentCommand::Signal { signal } | AgentCommand::Forward { signal } => {
                return self.signal(signal);
            }
            AgentCommand::Kill => return self.signal(nix::libc::SIGKILL),
        };
        (self.events)(event);
    }
}
