//! `ckptd agent`.

use super::Context;
use crate::cli::AgentArguments;
use crate::failure::Failure;
use crate::spans::Process;
use ckpt_agent::driver::{AgentOptions, Signals, run, traffic};
use ckpt_agent::port::Wanted;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The longest token that is read, in bytes.
const MAX_TOKEN: u64 = 64 * 1024;
/// Where systemd puts what only the service may read (systemd.exec(5)).
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
/// The token's name there.
const CREDENTIAL: &str = "ckptd.join";
/// Fields of /proc/self/stat, counted from the one behind the name, that say where the arguments are
/// (proc_pid_stat(5): arg_start and arg_end are the 48th and 49th of all).
const ARGUMENTS: [usize; 2] = [45, 46];

pub fn perform(context: &Context, arguments: AgentArguments) -> Result<(), Failure> {
    // Before anything that takes time.
    let hidden = arguments.join.as_deref().map(hide);
    let _spans = super::tell_what_happens(Some(Process::Agent));
    if let Some(hidden) = hidden {
        tracing::warn!(
            "every user of this machine could read the token in --join: use --join-file"
        );
        if let Err(error) = hidden {
            tracing::warn!("it still can be read there ({error}): it is not overwritten");
        }
    }
    if arguments.clear_job_traffic {
        let removed = traffic::clear();
        return removed.map_err(|error| Failure::of("clear the jobs' traffic", error));
    }
    let token = token(arguments.join, arguments.join_file.as_deref())?;
    let traffic = arguments
        .encrypt_job_traffic
        .then(|| traffic::Options { clear_ports: arguments.clear_ports.into_iter().collect() });
    let options = AgentOptions {
        join: token,
        name: arguments.name,
        slots: arguments.slots,
        spare: arguments.spare,
        speed: arguments.speed,
        allow_root: arguments.allow_root,
        shared: arguments.shared,
        dir: context.state.path().to_owned(),
        port: Wanted { host: arguments.listen, port: arguments.port },
        leave_below: arguments.leave_below,
        traffic,
        signals: Signals::OfMachine,
        discover: arguments.discover,
    };
    run(&options).map_err(|error| Failure::of("run the agent", error))
}

/// The token, from wherever it is.
fn token(given: Option<String>, file: Option<&Path>) -> Result<Option<String>, Failure> {
    let (from, read) = match (given, file) {
        (Some(token), _) => return Ok(Some(token)),
        (None, Some(file)) if file == Path::new("-") => {
            ("standard input".to_owned(), read(io::stdin().lock()))
        }
        (None, Some(file)) => (file.display().to_string(), File::open(file).and_then(read)),
        (None, None) => {
            let folder = std::env::var_os(CREDENTIALS).map(PathBuf::from);
            let file = folder.map(|folder| folder.join(CREDENTIAL));
            let Some(file) = file.filter(|file| file.exists()) else { return Ok(None) };
            (file.display().to_string(), File::open(&file).and_then(read))
        }
    };
    read.map(Some).map_err(|error| Failure::of(format!("read the token from {from}"), error))
}

fn read(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(MAX_TOKEN).read_to_string(&mut text)?;
    match text.trim() {
        "" => Err(io::Error::other("there is none")),
        token => Ok(token.to_owned()),
    }
}

/// Overwrites a token where /proc shows this process's arguments to everybody.
fn hide(token: &str) -> io::Result<()> {
    let lacking = |what: &str| io::Error::other(what.to_owned());
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(") ").ok_or_else(|| lacking("no arguments"))?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let at = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
    let (Some(start), Some(end)) = (at(ARGUMENTS[0]), at(ARGUMENTS[1])) else {
        return Err(lacking("the kernel does not tell where the arguments are"));
    };
    let memory = File::options().read(true).write(true).open("/proc/self/mem")?;
    let length = usize::try_from(end.saturating_sub(start)).map_err(io::Error::other)?;
    let mut arguments = vec![0; length];
    memory.read_exact_at(&mut arguments, start)?;
    let token = token.as_bytes();
    let places = arguments.windows(token.len().max(1)).enumerate();
    let mut found: Vec<usize> =
        places.filter(|(_, part)| *part == token).map(|(place, _)| place).collect();
    found.dedup_by(|next, before| *next < *before + token.len());
    for place in &found {
        memory.write_all_at(&vec![b'x'; token.len()], start + *place as u64)?;
    }
    if found.is_empty() { Err(lacking("it is not among the arguments")) } else { Ok(()) }
}
