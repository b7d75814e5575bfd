//! ckptd as dmtcp_command.

use super::options::{default_host, default_port};
use ckpt_dmtcp::DEFAULT_PORT;
use ckpt_dmtcp::machine::Command;
use ckpt_dmtcp::wire::{CommandStatus, Kind, Message};
use protocol::database::hosts::addresses;
use serde_json::json;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::TcpStream;

const USAGE: &str = "\
Usage: dmtcp_command [OPTIONS] COMMAND

  -h, --coord-host HOST   where the coordinator is [default: $DMTCP_COORD_HOST, else localhost]
  -p, --coord-port PORT   its port [default: $DMTCP_COORD_PORT, else 7779]
      --json              print JSON
      --help, --version

  -s, --status            how the computation is
  -l, --list              its processes
  -c, --checkpoint        take a checkpoint
  -bc, --bcheckpoint      take one, and wait until it is written
  -kc, --kcheckpoint      take one, then end all processes
  -i, --interval SECONDS  time between checkpoints, 0 for none
  -k, --kill              end all processes
  -q, --quit              and the coordinator

This is ckptd under DMTCP's name.
";

/// DMTCP's exit statuses: 1 for help and wrong usage, 2 where the command was not done.
const EXIT_USAGE: u8 = 1;
const EXIT_NOT_DONE: u8 = 2;

struct Asked {
    host: String,
    port: u16,
    port_given: bool,
    json: bool,
    command: Command,
    interval: Option<i32>,
}

enum Parsed {
    Do(Asked),
    Help,
    Version,
    Wrong,
}

/// Does it; the exit status.
pub fn perform(arguments: &[OsString]) -> u8 {
    match parse(arguments) {
        Parsed::Do(asked) => ask(&asked),
        Parsed::Help => {
            let _ = io::stdout().write_all(USAGE.as_bytes());
            EXIT_USAGE
        }
        Parsed::Version => {
            println!("dmtcp_command (ckptd) {}", env!("CARGO_PKG_VERSION"));
            EXIT_USAGE
        }
        Parsed::Wrong => {
            eprint!("{USAGE}");
            EXIT_USAGE
        }
    }
}

fn parse(arguments: &[OsString]) -> Parsed {
    let given = default_port().unwrap_or(None).filter(|port| *port != 0);
    let mut asked = Asked {
        host: default_host(),
        port: given.unwrap_or(DEFAULT_PORT),
        port_given: given.is_some(),
        json: false,
        command: Command::Help,
        interval: None,
    };
    let words: Option<Vec<&str>> = arguments.iter().map(|word| word.to_str()).collect();
    let Some(words) = words else { return Parsed::Wrong };
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        match word {
            "--json" => asked.json = true,
            "--version" => return Parsed::Version,
            "--host" | "--coord-host" | "-h" if words.peek().is_some() => {
                asked.host = words.next().unwrap_or_default().to_owned();
            }
            "--help" | "-h" | "h" | "?" => return Parsed::Help,
            "-p" | "--coord-port" | "--port" => match words.next().map(str::parse) {
                Some(Ok(port)) => (asked.port, asked.port_given) = (port, true),
                _ => return Parsed::Wrong,
            },
            _ if word.starts_with("-p") && word[2..].parse::<u16>().is_ok() => {
                asked.port = word[2..].parse().unwrap_or(DEFAULT_PORT);
                asked.port_given = true;
            }
            _ => {
                let bare = word.trim_start_matches('-');
                let glued = bare.strip_prefix('i').and_then(|rest| rest.parse().ok());
                asked.command = match bare {
                    "s" | "status" => Command::Status,
                    "l" | "t" | "list" => Command::List,
                    "c" | "checkpoint" => Command::Checkpoint,
                    "bc" | "bcheckpoint" => Command::BlockingCheckpoint,
                    "kc" | "ck" | "K" | "Kc" | "kcheckpoint" => Command::CheckpointAndKill,
                    "k" | "kill" => Command::Kill,
                    "q" | "quit" => Command::Quit,
                    "i" | "interval" => {
                        match words.next().map(str::parse) {
                            Some(Ok(interval)) if interval >= 0 => asked.interval = Some(interval),
                            _ => return Parsed::Wrong,
                        }
                        Command::Interval
                    }
                    _ if glued.is_some_and(|interval: i32| interval >= 0) => {
                        asked.interval = glued;
                        Command::Interval
                    }
                    _ => return Parsed::Wrong,
                };
            }
        }
    }
    if asked.command == Command::Help { Parsed::Wrong } else { Parsed::Do(asked) }
}

/// One message there, one back; None for an answer that there is none of.
fn converse(asked: &Asked) -> io::Result<Option<Message>> {
    let mut stream = TcpStream::connect(&addresses(&asked.host, asked.port)?[..])?;
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
        CommandStatus::NotFound if asked.port_given => {
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
        let default = if asked.port_given { "" } else { " (default port)" };
        text = format!("Coordinator:\n  Host: {}\n  Port: {}{default}\n", asked.host, asked.port);
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
    let command = match asked.command {
        Command::Invalid => "DMT_INVALID_COORDINATOR_COMMAND",
        Command::Status => "DMT_STATUS",
        Command::List => "DMT_LIST",
        Command::Checkpoint => "DMT_CHECKPOINT",
        Command::BlockingCheckpoint => "DMT_BLOCKING_CKPT",
        Command::CheckpointAndKill => "DMT_KILL_AFTER_CKPT",
        Command::Interval => "DMT_UPDATE_CKPT_INTERVAL",
        Command::Kill => "DMT_KILL",
        Command::Quit => "DMT_QUIT",
        Command::Help => "DMT_HELP",
    };
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
        "coordinator_port": asked.port,
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
