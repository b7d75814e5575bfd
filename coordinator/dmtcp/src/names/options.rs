//! Options as DMTCP takes them, and where its coordinator is.

use super::error::CallError;
use crate::DEFAULT_PORT;
use clap::builder::{Arg, ArgAction};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{CommandFactory, Error, Parser};
use std::ffi::OsString;
use std::path::PathBuf;

/// What `--version` says after the name.
pub const VERSION: &str = concat!("(ckptd) ", env!("CARGO_PKG_VERSION"));

/// Which coordinator is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One that runs.
    Join,
    /// A new one.
    New,
    /// One that runs, else a new one.
    Any,
}

/// Options of dmtcp_launch and dmtcp_restart.
#[derive(Debug, PartialEq, Eq, clap::Args)]
pub struct Options {
    /// Where the coordinator is [default: $DMTCP_COORD_HOST, else localhost]
    #[arg(short = 'h', long = "coord-host", alias = "host", value_name = "HOST")]
    #[arg(default_value = "localhost", hide_default_value = true)]
    pub host: String,
    /// Its port; 0: any free one [default: $DMTCP_COORD_PORT, else 7779]
    #[arg(short = 'p', long = "coord-port", alias = "port", value_name = "PORT")]
    asked_port: Option<u16>,
    /// Write its port there
    #[arg(long, value_name = "FILE")]
    pub port_file: Option<PathBuf>,
    /// Only one that runs already
    #[arg(short, long = "join-coordinator", alias = "join", overrides_with_all = ["new", "any"])]
    join: bool,
    /// Only a new one, on a free port unless one is given
    #[arg(long = "new-coordinator", overrides_with_all = ["join", "any"])]
    new: bool,
    /// One that runs, else a new one (the default)
    #[arg(long = "any-coordinator", overrides_with_all = ["join", "new"])]
    any: bool,
    /// Time between checkpoints, 0 for none [default: $DMTCP_CHECKPOINT_INTERVAL]
    #[arg(short, long, value_name = "SECONDS")]
    pub interval: Option<u32>,
    /// Where images are named [default: $DMTCP_CHECKPOINT_DIR, else here]
    #[arg(short = 'd', long = "ckptdir", value_name = "DIR")]
    #[arg(default_value = ".", hide_default_value = true)]
    pub directory: PathBuf,
    /// Without notes
    #[arg(short, long, action = ArgAction::Count)]
    pub quiet: u8,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

impl Options {
    /// Which coordinator is wanted.
    pub fn mode(&self) -> Mode {
        match (self.join, self.new) {
            (true, _) => Mode::Join,
            (_, true) => Mode::New,
            _ => Mode::Any,
        }
    }

    /// Where images are named.
    pub fn images(&self) -> Result<PathBuf, CallError> {
        std::path::absolute(&self.directory).map_err(CallError::file("find", &self.directory))
    }

    /// The coordinator's port; None where any free one will do.
    pub fn port(&self) -> Option<u16> {
        let default = (self.mode() != Mode::New).then_some(DEFAULT_PORT);
        self.asked_port.or(default).filter(|port| *port != 0)
    }
}

/// DMTCP's variables, of which some had another name once, and the options that they stand for. The last that is set counts.
pub const VARIABLES: [(&str, &str); 6] = [
    ("DMTCP_HOST", "--coord-host"),
    ("DMTCP_COORD_HOST", "--coord-host"),
    ("DMTCP_PORT", "--coord-port"),
    ("DMTCP_COORD_PORT", "--coord-port"),
    ("DMTCP_CHECKPOINT_DIR", "--ckptdir"),
    ("DMTCP_CHECKPOINT_INTERVAL", "--interval"),
];

/// Options of DMTCP that stand alone, and mean nothing here.
const IGNORED: [&str; 25] = [
    "gzip",
    "no-gzip",
    "ckpt-open-files",
    "checkpoint-open-files",
    "allow-file-overwrite",
    "enable-unique-checkpoint-filenames",
    "disable-unique-checkpoint-filenames",
    "modify-env",
    "pathvirt",
    "disable-alloc-plugin",
    "disable-dl-plugin",
    "disable-ssh-plugin",
    "disable-event-plugin",
    "disable-file-plugin",
    "disable-pty-plugin",
    "disable-socket-plugin",
    "disable-svipc-plugin",
    "disable-timer-plugin",
    "disable-pid-plugin",
    "disable-all-plugins",
    "kernel-loader",
    "no-strict-checking",
    "infiniband",
    "batch-queue",
    "rm",
];

/// Those that are followed by a value.
const IGNORED_WITH_VALUE: [&str; 5] =
    ["ckpt-signal", "with-plugin", "tmpdir", "coord-logfile", "restartdir"];

/// Adds the options that mean nothing here.
pub fn with_ignored(command: clap::Command) -> clap::Command {
    let ignored = |name: &'static str| Arg::new(name).long(name).hide(true);
    command
        .args(IGNORED.map(|name| ignored(name).action(ArgAction::SetTrue)))
        .args(IGNORED_WITH_VALUE.map(|name| ignored(name).short((name == "tmpdir").then_some('t'))))
}

/// Reads a command line, before which the `variables` stand that are set; with those of its options that mean nothing here.
pub fn parse<T: Parser>(
    command: clap::Command,
    variables: &[(&str, &str)],
    arguments: &[OsString],
) -> Result<(T, String), Error> {
    let mut words = vec![OsString::from(command.get_name())];
    for (variable, option) in variables {
        if let Some(value) = std::env::var_os(variable).filter(|value| !value.is_empty()) {
            let mut word = OsString::from(option);
            word.push("=");
            word.push(value);
            words.push(word);
        }
    }
    words.extend_from_slice(arguments);
    let matches = command.try_get_matches_from(words)?;
    let is_given = |name: &&&str| {
        let known = matches.try_contains_id(name).is_ok();
        known && matches.value_source(name) == Some(ValueSource::CommandLine)
    };
    let given = IGNORED.iter().chain(&IGNORED_WITH_VALUE).filter(is_given);
    let ignored = given.map(|name| format!(" --{name}")).collect();
    Ok((T::from_arg_matches(&matches)?, ignored))
}

/// Reads the command line of dmtcp_launch or dmtcp_restart, and says which of its options mean nothing.
///
/// # Errors
/// The exit status: it asks for help, which is printed, or makes no sense, which is said.
pub fn launched<T: Parser>(
    arguments: &[OsString],
    options: impl Fn(&T) -> &Options,
) -> Result<T, u8> {
    let command = with_ignored(T::command());
    let name = command.get_name().to_owned();
    let (asked, ignored) = parse(command, &VARIABLES, arguments)
        .map_err(|error| refuse::<T>(&error, super::failed()))?;
    if options(&asked).quiet == 0 && !ignored.is_empty() {
        eprintln!("{name}: note: no meaning with ckptd's engine:{ignored}");
    }
    Ok(asked)
}

/// Prints the help or version that is asked for, or what is wrong; the exit status, `wrong` for the latter.
pub fn refuse<T: CommandFactory>(error: &Error, wrong: u8) -> u8 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            print!("{error}");
            return 0;
        }
        ErrorKind::MissingRequiredArgument => eprint!("{}", T::command().render_help()),
        _ => {
            // One line, as all that these programs say.
            let text = error.to_string();
            let what = text.split("\n\n").next().unwrap_or(&text).trim_start_matches("error: ");
            let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
            eprintln!("{}: wrong usage: {what}; --help lists them", T::command().get_name());
        }
    }
    wrong
}

#[cfg(test)]
mod tests;
