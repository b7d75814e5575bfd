//! ckptd as dmtcp_command.

use super::options::{VARIABLES, VERSION, parse, refuse};
use crate::DEFAULT_PORT;
use crate::machine::Command;
use crate::wire::{CommandStatus, Kind, Message};
use clap::builder::ArgAction;
use clap::{CommandFactory, Parser, value_parser};
use protocol::database::hosts::addresses;
use serde_json::json;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::TcpStream;

const COMMANDS: &str = "\
Commands, with or without hyphens:
  -s, --status            How the computation is
  -l, --list              Its processes
  -c, --checkpoint        Take a checkpoint
  -bc, --bcheckpoint      Take one, and wait until it is written
  -kc, --kcheckpoint      Take one, then end all processes
  -i, --interval SECONDS  Time between checkpoints, 0 for none
  -k, --kill              End all processes
  -q, --quit              And the coordinator";

/// DMTCP's exit statuses: 1 for help and wrong usage, 2 where the command was not done.
const EXIT_USAGE: u8 = 1;
const EXIT_NOT_DONE: u8 = 2;

/// Tells a coordinator what to do
///
/// This is ckptd under DMTCP's name.
#[derive(Debug, Parser)]
#[command(name = "dmtcp_command", version = VERSION, after_help = COMMANDS)]
#[command(disable_help_flag = true, args_override_self = true)]
struct Asked {
    /// Where the coordinator is [default: $DMTCP_COORD_HOST, else localhost]
    #[arg(short = 'h', long = "coord-host", alias = "host", value_name = "HOST")]
    #[arg(default_value = "localhost", hide_default_value = true)]
    host: String,
    /// Its port [default: $DMTCP_COORD_PORT, else 7779]
    #[arg(short = 'p', long = "coord-port", alias = "port", value_name = "PORT")]
    given_port: Option<u16>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    /// What is to be done
    #[arg(value_parser = command)]
    command: Command,
    /// Of the command 'interval'
    #[arg(value_name = "SECONDS", value_parser = value_parser!(i32).range(0..))]
    interval: Option<i32>,
}

impl Asked {
    fn port(&self) -> u16 {
        self.given_port.filter(|port| *port != 0).unwrap_or(DEFAULT_PORT)
    }
}

/// Commands, their names in JSON, and the words for them.
const NAMES: [(Command, &str, &[&str]); 8] = [
    (Command::Status, "DMT_STATUS", &["s", "status"]),
    (Command::List, "DMT_LIST", &["l", "t", "list"]),
    (Command::Checkpoint, "DMT_CHECKPOINT", &["c", "checkpoint"]),
    (Command::BlockingCheckpoint, "DMT_BLOCKING_CKPT", &["bc", "bcheckpoint"]),
    (Command::CheckpointAndKill, "DMT_KILL_AFTER_CKPT", &["kc", "ck", "K", "Kc", "kcheckpoint"]),
    (Command::Interval, "DMT_UPDATE_CKPT_INTERVAL", &["i", "interval"]),
    (Command::Kill, "DMT_KILL", &["k", "kill"]),
    (Command::Quit, "DMT_QUIT", &["q", "quit"]),
];

fn command(word: &str) -> Result<Command, &'static str> {
    let named = NAMES.iter().find(|(_, _, words)| words.contains(&word));
    named.map(|(command, ..)| *command).ok_or("there is no such command")
}

/// Commands as words without hyphens, since `-bc` is one, not two options; an interval behind its letter as one of its own.
fn words(arguments: &[OsString]) -> Vec<OsString> {
    let mut words = Vec::new();
    for argument in arguments {
        let bare = argument.to_str().filter(|word| word.starts_with('-') || word.starts_with('i'));
        let bare = bare.map(|word| word.trim_start_matches('-')).unwrap_or_default();
        match bare.strip_prefix('i').filter(|rest| rest.parse::<u32>().is_ok()) {
            Some(seconds) => words.extend(["i".into(), seconds.into()]),
            None if command(bare).is_ok() => words.push(bare.into()),
            None => words.push(argument.clone()),
        }
    }
    words
}

/// Does it; the exit status.
pub fn perform(arguments: &[OsString]) -> u8 {
    match parse::<Asked>(Asked::command(), &VARIABLES[..4], &words(arguments)) {
        Ok((asked, _)) if (asked.command == Command::Interval) == asked.interval.is_some() => {
            ask(&asked)
        }
        Ok(_) => {
            eprint!("{}", Asked::command().render_help());
            EXIT_USAGE
        }
        Err(error) => {
            refuse::<Asked>(&error, EXIT_USAGE);
            EXIT_USAGE
        }
    }
}

/// One message there, one back; None for an answer that there is none of.
fn converse(asked: &Asked) -> io::Result<Option<Message>> {
    let mut stream = TcpStream::connect(&addresses(&asked.host, asked.port())?[..])?;
    let mut message = Message::new(Kind::UserCommand);
    message.command = asked.command.number();
    if let Some(interval) = asked.interval {
        message.interval = interval;
    }
    stream.write_all(&message.encode())?;
    if asked.command == Command::Quit {
        // It is closed without an answer; before that, the coordinator may not have read it.
        let _ = stream.read(&mut [0]);
        return Ok(None);
    }
    super::bridge::receive(&mut stream).map(Some)
}

fn ask(asked: &Asked) -> u8 {
    let (status, reply) = match converse(asked) {
        Ok(Some(reply)) if reply.kind == Kind::UserResult => (reply.command_status, Some(reply)),
        Ok(None) => (CommandStatus::Success, None),
        Ok(Some(_)) | Err(_) => (CommandStatus::NotFound, None),
    };
    let reply = reply.unwrap_or_else(|| Message::new(Kind::UserResult));
    if asked.json {
        println!("{}", as_json(asked, status, &reply));
        return if status == CommandStatus::Success { 0 } else { EXIT_NOT_DONE };
    }
    match status {
        CommandStatus::Success => {}
        CommandStatus::NotFound if asked.given_port.is_some() => {
            eprintln!("Coordinator not found. Please check port and host.");
            return EXIT_NOT_DONE;
        }
        CommandStatus::NotFound => {
            eprintln!("Coordinator not found. Try specifying port with '--port'.");
            return EXIT_NOT_DONE;
        }
        CommandStatus::InvalidCommand => {
            eprintln!("Unknown command, try 'dmtcp_command --help'");
            return EXIT_NOT_DONE;
        }
        CommandStatus::NotRunning => {
            eprintln!(
                "Error, computation not in running state.  Either a checkpoint is\n currently happening or there \
                 are no connected processes."
            );
            return EXIT_NOT_DONE;
        }
    }
    let mut text = String::new();
    if matches!(asked.command, Command::Status | Command::List) {
        let default = if asked.given_port.is_some() { "" } else { " (default port)" };
        text = format!("Coordinator:\n  Host: {}\n  Port: {}{default}\n", asked.host, asked.port());
    }
    match asked.command {
        Command::Status => {
            let running = if reply.is_running { "yes" } else { "no" };
            let manual = if reply.interval == 0 { " (checkpoint manually)" } else { "" };
            text.push_str(&format!(
                "Status...\n  NUM_PEERS={}\n  RUNNING={running}\n  CKPT_INTERVAL={}{manual}\n",
                reply.peers, reply.interval
            ));
        }
        Command::List => text.push_str(&list(&reply)),
        Command::Interval => {
            text = format!("Interval changed to {}\n", asked.interval.unwrap_or_default());
        }
        _ => {}
    }
    // A reader that has enough is no failure of the command.
    let _ = io::stdout().write_all(text.as_bytes());
    0
}

/// The list, harmless for a terminal.
fn list(reply: &Message) -> String {
    String::from_utf8_lossy(&reply.payload)
        .chars()
        .map(|c| if c.is_control() && c != '\n' { '?' } else { c })
        .collect()
}

fn as_json(asked: &Asked, status: CommandStatus, reply: &Message) -> String {
    let named = NAMES.iter().find(|(command, ..)| *command == asked.command);
    let command = named.map(|(_, name, _)| *name);
    let told = match status {
        CommandStatus::Success => "DMT_COORD_SUCCESS",
        CommandStatus::InvalidCommand => "DMT_COORD_INVALID_COMMAND",
        CommandStatus::NotRunning => "DMT_COORD_NOT_RUNNING",
        CommandStatus::NotFound => "DMT_COORD_NOT_FOUND",
    };
    let mut value = json!({
        "schema_version": 1,
        "command": command,
        "command_status": told,
        "coordinator_host": asked.host,
        "coordinator_port": asked.port(),
    });
    if status == CommandStatus::Success {
        match asked.command {
            Command::Status => {
                value["num_peers"] = reply.peers.into();
                value["running"] = reply.is_running.into();
                value["checkpoint_interval"] = reply.interval.into();
            }
            Command::List => value["workers"] = list(reply).into(),
            Command::Checkpoint | Command::BlockingCheckpoint | Command::CheckpointAndKill => {
                value["num_peers"] = reply.peers.into();
            }
            Command::Interval => value["checkpoint_interval"] = reply.interval.into(),
            _ => {}
        }
    }
    value.to_string()
}

#[cfg(test)]
mod tests;
