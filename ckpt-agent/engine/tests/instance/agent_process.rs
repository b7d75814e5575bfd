//! An agent in a process of its own, to be killed. It takes lines and answers each with one.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, channel};

use ckpt_engine::Session;
use protocol::agent::{AgentCommand, AgentEvent, InstanceEvent};

use super::Outcome;
use super::world::{World, order, restore_order, script};

/// The argument under which the test's executable is an agent.
pub const FLAG: &str = "--agent";

/// An agent that can be killed.
pub struct AgentProcess {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl AgentProcess {
    /// Starts one for the instance kept in that folder.
    pub fn start(world: &World) -> Outcome<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([FLAG.as_ref(), world.store().as_os_str()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let to = child.stdin.take().ok_or("no pipe")?;
        let from = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        Ok(Self { child, to, from })
    }

    /// Asks for something; the answer.
    pub fn ask(&mut self, line: &str) -> Outcome<String> {
        writeln!(self.to, "{line}")?;
        let mut answer = String::new();
        self.from.read_line(&mut answer)?;
        match answer.trim_end().split_once(' ') {
            Some(("ok", rest)) => Ok(rest.to_owned()),
            _ => Err(format!("the agent answers {line:?} by {answer:?}").into()),
        }
    }

    /// Kills it (SIGKILL) in the middle of whatever it does.
    pub fn kill(mut self) -> Outcome {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

/// Acts as the agent.
pub fn serve(store: &Path) -> ExitCode {
    let (events, inbox) = channel();
    let Ok(agent) = Session::start(store.to_owned(), move |event| {
        let _ = events.send(event);
    }) else {
        return ExitCode::FAILURE;
    };
    let mut streams = Vec::new();
    for line in std::io::stdin().lines() {
        let Ok(line) = line else { break };
        match obey(&agent, &inbox, store, &line, &mut streams) {
            Ok(answer) => println!("ok {answer}"),
            Err(error) => println!("no {error}"),
        }
    }
    ExitCode::SUCCESS
}

fn obey(
    agent: &Session,
    inbox: &Receiver<InstanceEvent>,
    store: &Path,
    line: &str,
    streams: &mut Vec<protocol::launch::Console>,
) -> Outcome<String> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (number, text) = rest.split_once(' ').unwrap_or((rest, ""));
    match word {
        // launch LEASE_MS SCRIPT: as the root instance; start: as another one.
        "launch" | "start" => {
            let mut order = order(store, number.parse()?);
            order.root_instance = word == "launch";
            let launched = agent.launch(script(text), Some(order))?;
            streams.push(launched.console);
            Ok(launched.init.to_string())
        }
        "restore" => {
            let restored = agent.restore(restore_order(store, number.parse()?))?;
            streams.push(restored.console);
            Ok(restored.init.to_string())
        }
        "step" => {
            let checkpoint = text.parse()?;
            let command = match number {
                "freeze" => AgentCommand::Freeze { checkpoint },
                "quiesce" => AgentCommand::Quiesce { checkpoint },
                "snapshot" => AgentCommand::Snapshot { checkpoint },
                "resume" => AgentCommand::Resume { checkpoint },
                other => return Err(format!("no step {other}").into()),
            };
            agent.command(command);
            loop {
                match inbox.recv()? {
                    InstanceEvent::Agent(AgentEvent::Failed { reason, .. }) => {
                        return Err(reason.into());
                    }
                    InstanceEvent::Agent(AgentEvent::Warning { .. }) => {}
                    event => return Ok(format!("{event:?}")),
                }
            }
        }
        other => Err(format!("no command {other}").into()),
    }
}
