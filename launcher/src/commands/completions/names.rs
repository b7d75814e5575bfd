//! Names that only the machine knows: those of jobs, and of the cluster's members.
//!
//! They are asked for by a call of ckptd itself, which reads the configuration as any other does, and which can be left when it takes
//! too long: whoever waits for a completion is about to type on.

use clap::{Arg, Command as Definition};
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// For how long a listing is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often it is looked whether it is there.
const LOOK: Duration = Duration::from_millis(5);
/// Bytes of a listing that are read.
const MOST_BYTES: u64 = 16 * 1024 * 1024;
/// Names that are offered.
const MOST_NAMES: usize = 200;
/// What stands for the newest job.
const LATEST: &str = "latest";

/// The command line, with what is to be offered for each name of a job or a member.
pub fn offered(definition: Definition) -> Definition {
    let offer = |argument: Arg| match argument.get_id().as_str() {
        "job" | "jobs" if argument.is_positional() => argument.add(ArgValueCandidates::new(jobs)),
        "node" | "remove" | "standby" | "no_standby" => {
            argument.add(ArgValueCandidates::new(members))
        }
        "command" if argument.is_trailing_var_arg_set() => {
            argument.add(ArgValueCompleter::new(Program))
        }
        "tasks" => argument.add(ArgValueCompleter::new(PathCompleter::any())),
        _ => argument,
    };
    definition.mut_args(offer).mut_subcommands(offered)
}

/// A program of the search path or a file, and files after it.
struct Program;

impl ValueCompleter for Program {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        self.complete_at(0, current)
    }

    fn complete_at(&self, place: usize, current: &OsStr) -> Vec<CompletionCandidate> {
        let files = PathCompleter::any().complete(current);
        match current.to_str() {
            // Without a letter there are thousands.
            Some(start) if place == 0 && !start.is_empty() && !start.contains('/') => {
                let programs = searched(start).into_iter().map(CompletionCandidate::new);
                programs.chain(files).collect()
            }
            _ => files,
        }
    }
}

/// The first programs of the search path whose names begin so.
fn searched(start: &str) -> BTreeSet<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).filter_map(|folder| std::fs::read_dir(folder).ok());
    let names = folders.flatten().filter_map(|entry| Some(entry.ok()?.file_name()));
    let begins = |name: &OsString| name.as_encoded_bytes().starts_with(start.as_bytes());
    names.filter(begins).take(MOST_NAMES).collect()
}

fn jobs() -> Vec<CompletionCandidate> {
    let listed = listing("ls").unwrap_or_default();
    let about = |job: &Value| {
        let command: Vec<&str> = list(&job["command"]).iter().filter_map(Value::as_str).collect();
        format!("{}: {}", job["state"].as_str().unwrap_or("job"), command.join(" "))
    };
    let latest = CompletionCandidate::new(LATEST).help(Some("the newest job".into()));
    // Only where there is one.
    let latest = Some(latest).filter(|_| !list(&listed).is_empty());
    // The newest come last.
    list(&listed).iter().rev().filter_map(|job| named(job, &about(job))).chain(latest).collect()
}

fn members() -> Vec<CompletionCandidate> {
    let listed = listing("nodes").unwrap_or_default();
    let state = |node: &Value| node["state"].as_str().unwrap_or("node").to_owned();
    list(&listed).iter().filter_map(|node| named(node, &state(node))).collect()
}

fn list(value: &Value) -> &[Value] {
    let all = value.as_array().map_or(&[][..], Vec::as_slice);
    &all[all.len().saturating_sub(MOST_NAMES)..]
}

/// What is listed, by its name. What comes from others is not typed by the shell as more than a word.
fn named(value: &Value, about: &str) -> Option<CompletionCandidate> {
    let is_plain = |name: &&str| {
        !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "-_.@+".contains(c))
    };
    let name = value["name"].as_str().filter(is_plain)?;
    let about: String = about.chars().filter(|c| !c.is_control()).take(60).collect();
    Some(CompletionCandidate::new(name).help(Some(about.into())))
}

fn listing(command: &str) -> Option<Value> {
    let mut asked = Command::new(std::env::current_exe().ok()?);
    asked.args([command, "--json"]);
    asked.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = asked.spawn().ok()?;
    let out = child.stdout.take()?;
    let reader = std::thread::spawn(move || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        out.take(MOST_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    let ended = wait(&mut child);
    // Its end, or its death, ends the reader.
    let bytes = reader.join().ok()?.ok()?;
    serde_json::from_slice(&bytes).ok().filter(|_| ended)
}

/// Whether it has ended in time; else it is killed.
fn wait(child: &mut Child) -> bool {
    let until = Instant::now() + PATIENCE;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;
    use serde_json::json;

    #[test]
    fn every_job_and_every_member_is_offered() {
        let mut definition = offered(Cli::command());
        definition.build();
        let offers = |command: &str, id: &str| {
            let command = definition.find_subcommand(command).unwrap();
            let mut arguments = command.get_arguments();
            let argument = arguments.find(|argument| argument.get_id() == id).unwrap();
            argument.get::<ArgValueCandidates>().is_some()
        };
        for command in ["attach", "checkpoint", "export", "inspect", "logs", "report", "restart"] {
            assert!(offers(command, "job"), "{command}");
        }
        assert!(offers("rm", "jobs") && offers("drain", "node") && offers("nodes", "standby"));
    }

    #[test]
    fn programs_are_found_where_the_shell_finds_them() {
        let values = |place, text| -> Vec<OsString> {
            let found = Program.complete_at(place, OsStr::new(text));
            found.iter().map(|one| one.get_value().to_owned()).collect()
        };
        assert!(values(0, "tru").contains(&"true".into()));
        assert!(!values(1, "tru").contains(&"true".into()));
        assert!(values(1, "Cargo.t").contains(&"Cargo.toml".into()));
    }

    #[test]
    fn only_words_are_offered() {
        let value = |name: &str| named(&json!({ "name": name }), "about").is_some();
        assert!(value("fold-1.x@y"));
        for odd in ["", "a b", "$(reboot)", "a\nb", "`x`", "a;b"] {
            assert!(!value(odd), "{odd}");
        }
        assert!(named(&json!({}), "").is_none() && named(&Value::Null, "").is_none());
    }
}
