//! Options as DMTCP takes them, and where its coordinator is.

use ckpt_dmtcp::DEFAULT_PORT;
use std::ffi::{OsStr, OsString};

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

/// What dmtcp_launch and dmtcp_restart are given.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// The coordinator's host.
    pub host: String,
    /// Its port; None where any free one will do.
    pub port: Option<u16>,
    /// Which one.
    pub mode: Mode,
    /// Seconds between checkpoints.
    pub interval: Option<u32>,
    /// Where images are written.
    pub directory: Option<OsString>,
    /// Where the coordinator's port is to be written.
    pub port_file: Option<OsString>,
    /// How quiet it is to be.
    pub quiet: u32,
    /// What follows the options.
    pub rest: Vec<OsString>,
    /// Options that mean nothing here.
    pub ignored: Vec<String>,
}

/// What a command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// To do it.
    Do(Options),
    /// To say what there is.
    Help,
    /// To say which version it is.
    Version,
    /// Nothing that makes sense: why.
    Wrong(String),
}

/// Options of DMTCP that stand alone, and mean nothing here.
const IGNORED: &[&str] = &[
    "--gzip",
    "--no-gzip",
    "--ckpt-open-files",
    "--checkpoint-open-files",
    "--allow-file-overwrite",
    "--enable-unique-checkpoint-filenames",
    "--disable-unique-checkpoint-filenames",
    "--modify-env",
    "--pathvirt",
    "--disable-alloc-plugin",
    "--disable-dl-plugin",
    "--disable-ssh-plugin",
    "--disable-event-plugin",
    "--disable-file-plugin",
    "--disable-pty-plugin",
    "--disable-socket-plugin",
    "--disable-svipc-plugin",
    "--disable-timer-plugin",
    "--disable-pid-plugin",
    "--disable-all-plugins",
    "--kernel-loader",
    "--no-strict-checking",
    "--infiniband",
    "--batch-queue",
    "--rm",
];

/// Those that are followed by a value.
const IGNORED_WITH_VALUE: &[&str] =
    &["--ckpt-signal", "--with-plugin", "--tmpdir", "-t", "--coord-logfile", "--restartdir"];

/// The value of one of DMTCP's variables, of which some had another name once.
pub fn variable(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| std::env::var(name).ok()).filter(|value| !value.is_empty())
}

/// The coordinator's host, where none is given.
pub fn default_host() -> String {
    variable(&["DMTCP_COORD_HOST", "DMTCP_HOST"]).unwrap_or_else(|| "localhost".to_owned())
}

/// The coordinator's port, where none is given.
pub fn default_port() -> Result<Option<u16>, String> {
    match variable(&["DMTCP_COORD_PORT", "DMTCP_PORT"]) {
        Some(text) => text
            .trim()
            .parse()
            .map(Some)
            .map_err(|_| format!("DMTCP_COORD_PORT is {text:?}, which is no port")),
        None => Ok(None),
    }
}

/// Reads a command line.
pub fn parse(arguments: Vec<OsString>) -> Parsed {
    match read(arguments) {
        Ok(parsed) => parsed,
        Err(wrong) => Parsed::Wrong(wrong),
    }
}

fn read(arguments: Vec<OsString>) -> Result<Parsed, String> {
    let mut host = None;
    let mut port = None;
    let mut mode = Mode::Any;
    let mut options = Options {
        host: String::new(),
        port: None,
        mode,
        interval: None,
        directory: variable(&["DMTCP_CHECKPOINT_DIR"]).map(OsString::from),
        port_file: None,
        quiet: 0,
        rest: Vec::new(),
        ignored: Vec::new(),
    };
    if let Some(text) = variable(&["DMTCP_CHECKPOINT_INTERVAL"]) {
        options.interval = Some(number(&text, "DMTCP_CHECKPOINT_INTERVAL")?);
    }
    let mut arguments = arguments.into_iter().peekable();
    while let Some(word) = arguments.peek().and_then(|word| word.to_str()).map(str::to_owned) {
        if !word.starts_with('-') || word == "-" {
            break;
        }
        arguments.next();
        let mut value =
            |what: &str| arguments.next().ok_or_else(|| format!("{word} needs {what} behind it"));
        match word.as_str() {
            "--" => break,
            "--help" => return Ok(Parsed::Help),
            "--version" => return Ok(Parsed::Version),
            "-h" | "--coord-host" | "--host" => host = Some(text(&value("a host")?)?),
            "-p" | "--coord-port" | "--port" => {
                port = Some(number(&text(&value("a port")?)?, &word)?)
            }
            "-i" | "--interval" => {
                options.interval = Some(number(&text(&value("seconds")?)?, &word)?);
            }
            "--port-file" => options.port_file = Some(value("a file")?),
            "--ckptdir" | "-d" => options.directory = Some(value("a folder")?),
            "-j" | "--join-coordinator" | "--join" => mode = Mode::Join,
            "--new-coordinator" => mode = Mode::New,
            "--any-coordinator" => mode = Mode::Any,
            "-q" | "--quiet" => options.quiet += 1,
            "-qq" => options.quiet += 2,
            known if IGNORED.contains(&known) => options.ignored.push(word),
            known if IGNORED_WITH_VALUE.contains(&known) => {
                value("a value")?;
                options.ignored.push(word);
            }
            short if short.starts_with("-p") && short.len() > 2 => {
                port = Some(number(&short[2..], "-p")?);
            }
            short if short.starts_with("-i") && short.len() > 2 => {
                options.interval = Some(number(&short[2..], "-i")?);
            }
            _ => return Err(format!("there is no option {word}; --help lists them")),
        }
    }
    options.rest = arguments.collect();
    options.host = host.unwrap_or_else(default_host);
    let asked = match port {
        Some(port) => Some(port),
        None => default_port()?,
    };
    options.port = match asked {
        Some(0) => None,
        None if mode == Mode::New => None,
        None => Some(DEFAULT_PORT),
        asked => asked,
    };
    options.mode = mode;
    Ok(Parsed::Do(options))
}

fn text(word: &OsStr) -> Result<String, String> {
    word.to_str().map(str::to_owned).ok_or_else(|| format!("{word:?} is no text"))
}

fn number<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| format!("{what} {text:?} is no number in its range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Options {
        match parse(line.split_whitespace().map(OsString::from).collect()) {
            Parsed::Do(options) => options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_are_dmtcp_s() {
        let options =
            parsed("-h node1 -p 7000 -i 5 --ckptdir /c -j -q --no-gzip --tmpdir /t ./app -i 9");
        assert_eq!((options.host.as_str(), options.port), ("node1", Some(7000)));
        assert_eq!((options.interval, options.mode, options.quiet), (Some(5), Mode::Join, 1));
        assert_eq!(options.rest, ["./app", "-i", "9"]);
        assert_eq!(options.ignored, ["--no-gzip", "--tmpdir"]);
    }

    #[test]
    fn ports_are_given_or_found() {
        assert_eq!(parsed("-p0 a").port, None);
        assert_eq!(parsed("-p7001 a").port, Some(7001));
        assert_eq!(parsed("--new-coordinator a").port, None);
        assert_eq!(parsed("a").port, Some(DEFAULT_PORT));
    }

    #[test]
    fn nonsense_is_told() {
        for line in ["--fly a", "-p", "-p x a", "-i -3 a", "-p 70000 a"] {
            let words = line.split_whitespace().map(OsString::from).collect();
            assert!(matches!(parse(words), Parsed::Wrong(_)), "{line}");
        }
        assert_eq!(parse(vec!["--help".into()]), Parsed::Help);
    }
}
