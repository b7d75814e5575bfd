//! Which of several settings holds, and where it comes from.

use super::ConfigurationError;
use super::files::{FileState, candidates, read};
use super::keys::{Key, keys, variable};
use crate::nearest::nearest;
use clap::Command;
use clap::error::ErrorKind;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The variable of the folder where jobs are, which holds before any file.
const DIR_VARIABLE: &str = "CKPTD_DIR";
/// Variables of commands' names that set no options: the first is in the environment of every job of a cluster, the others
/// are of the systemd units.
const NO_OPTIONS: [&str; 3] =
    ["CKPTD_AGENT_SOCKET", "CKPTD_AGENT_OPTIONS", "CKPTD_COORDINATOR_OPTIONS"];

/// Where a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// An environment variable.
    Variable(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Variable(name) => write!(f, "${name}"),
        }
    }
}

/// A setting that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// What is set.
    pub key: Key,
    /// As on the command line; of a flag `true` or `false`.
    pub values: Vec<String>,
    /// Who has set it.
    pub source: Source,
}

/// All files and variables.
#[derive(Debug)]
pub struct Configuration<'a> {
    root: &'a Command,
    /// Where was looked, and what was found.
    pub files: Vec<(PathBuf, FileState)>,
    tables: Vec<(PathBuf, Table)>,
    variables: BTreeMap<String, String>,
}

impl<'a> Configuration<'a> {
    /// Reads all.
    ///
    /// # Errors
    /// Files that can't be believed or read, and what they set that is no command.
    pub fn read(root: &'a Command) -> Result<Self, ConfigurationError> {
        let mut found = Vec::new();
        for path in candidates() {
            let (state, text) = read(&path)?;
            found.push((path, state, text));
        }
        let variables = std::env::vars_os();
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self::of_texts(root, found, variables.filter_map(text).collect())
    }

    fn of_texts(
        root: &'a Command,
        found: Vec<(PathBuf, FileState, String)>,
        variables: BTreeMap<String, String>,
    ) -> Result<Self, ConfigurationError> {
        let mut configuration = Self { root, files: Vec::new(), tables: Vec::new(), variables };
        for (path, state, text) in found {
            let table: Table = text.parse().map_err(|error: toml::de::Error| {
                let before = error.span().and_then(|span| text.get(..span.start));
                let line = before.map_or(1, |before| before.matches('\n').count() + 1);
                let message = format!("line {line}: {}", error.message().replace('\n', " "));
                ConfigurationError::Syntax { path: path.clone(), message }
            })?;
            configuration.check_commands(&path, &table)?;
            configuration.files.push((path.clone(), state));
            configuration.tables.push((path, table));
        }
        Ok(configuration)
    }

    /// What is set at the top: the folder where jobs are.
    pub fn dir(&self) -> Option<Setting> {
        if self.variables.contains_key(DIR_VARIABLE) || std::env::var_os(DIR_VARIABLE).is_some() {
            return None;
        }
        let key = keys(self.root, &[]).into_iter().find(|key| key.long == "dir")?;
        let (path, value) =
            self.tables.iter().rev().find_map(|(path, table)| Some((path, table.get("dir")?)))?;
        let values = vec![value.as_str()?.to_owned()];
        Some(Setting { key, values, source: Source::File(path.clone()) })
    }

    /// What is set of a command.
    ///
    /// # Errors
    /// Options that there are not, and values that they do not take.
    pub fn of(&self, path: &[String]) -> Result<Vec<Setting>, ConfigurationError> {
        let Some(command) = find(self.root, path) else { return Ok(Vec::new()) };
        let known = keys(command, path);
        let mut holds: BTreeMap<&str, Setting> = BTreeMap::new();
        for (file, table) in &self.tables {
            let source = Source::File(file.clone());
            let Some(table) = within(table, path) else { continue };
            for (name, value) in table {
                if matches!(value, Value::Table(_))
                    && find(command, std::slice::from_ref(name)).is_some()
                {
                    continue;
                }
                let key = known.iter().find(|key| key.long == *name);
                let Some(key) = key else { return Err(unknown(source, path, name, &known)) };
                let values = written(key, value).map_err(|reason| wrong(&source, key, reason))?;
                let setting = Setting { key: key.clone(), values, source: source.clone() };
                holds.insert(&key.long, setting);
            }
        }
        self.add_variables(path, command, &known, &mut holds)?;
        let settings: Vec<Setting> = holds.into_values().collect();
        settings.iter().try_for_each(|setting| self.check(setting))?;
        Ok(settings)
    }

    /// How near to the user a setting stands.
    pub fn nearness(&self, source: &Source) -> usize {
        match source {
            Source::Variable(_) => usize::MAX,
            Source::File(path) => self.files.iter().position(|(file, _)| file == path).unwrap_or(0),
        }
    }

    /// All commands, one within the other.
    pub fn commands(&self) -> Vec<Vec<String>> {
        let mut all = Vec::new();
        for command in self.root.get_subcommands().filter(|one| !one.is_hide_set()) {
            let own = vec![command.get_name().to_owned()];
            let inner = command.get_subcommands().filter(|one| !one.is_hide_set());
            let inner: Vec<_> = inner
                .map(|inner| [own.clone(), vec![inner.get_name().to_owned()]].concat())
                .collect();
            all.push(own);
            all.extend(inner);
        }
        all.retain(|path| !super::is_exempt(path));
        all
    }

    /// The options of a command that may be set.
    pub fn keys(&self, path: &[String]) -> Vec<Key> {
        find(self.root, path).map_or(Vec::new(), |command| keys(command, path))
    }

    fn add_variables<'k>(
        &self,
        path: &[String],
        command: &Command,
        known: &'k [Key],
        holds: &mut BTreeMap<&'k str, Setting>,
    ) -> Result<(), ConfigurationError> {
        let prefix = variable(path);
        let of_inner: Vec<String> = command
            .get_subcommands()
            .map(|inner| variable(&[path, &[inner.get_name().to_owned()]].concat()))
            .collect();
        for (name, value) in self.variables.range(prefix.clone()..) {
            let Some(rest) = name.strip_prefix(&prefix) else { break };
            if NO_OPTIONS.contains(&name.as_str())
                || of_inner.iter().any(|inner| name.starts_with(inner))
            {
                continue;
            }
            let source = Source::Variable(name.clone());
            if is_of_kubernetes(name, value) {
                continue;
            }
            let Some(key) = known.iter().find(|key| key.variable() == *name) else {
                let option = rest.replace('_', "-").to_lowercase();
                return Err(unknown(source, path, &option, known));
            };
            let values = match (key.takes_several, key.is_flag) {
                (true, _) => value.split(key.separator()).map(str::to_owned).collect(),
                (false, true) if !["true", "false"].contains(&value.as_str()) => {
                    return Err(wrong(&source, key, "it is neither true nor false".to_owned()));
                }
                _ => vec![value.clone()],
            };
            holds.insert(&key.long, Setting { key: key.clone(), values, source });
        }
        Ok(())
    }

    /// Names at the top are `dir` and commands.
    fn check_commands(&self, path: &Path, table: &Table) -> Result<(), ConfigurationError> {
        let source = || Source::File(path.to_path_buf());
        for (name, value) in table {
            let is_table = matches!(value, Value::Table(_));
            let reason = match (name.as_str(), is_table) {
                ("dir", _) if value.is_str() => continue,
                ("dir", _) => "it is not the name of a folder",
                (_, true) if self.root.find_subcommand(name).is_some() => continue,
                (_, false) if self.root.find_subcommand(name).is_some() => {
                    "it is a command, whose options go below a line [COMMAND]"
                }
                _ => {
                    if let (false, Some(command)) = (is_table, self.with_option(name)) {
                        let reason = format!("it is an option, and goes below a line [{command}]");
                        let name = name.clone();
                        return Err(ConfigurationError::Value { from: source(), name, reason });
                    }
                    let known = self.root.get_subcommands().map(|one| one.get_name().to_owned());
                    let nearest = nearest(name, known.chain(["dir".to_owned()]));
                    let (what, name) = ("command", name.clone());
                    return Err(ConfigurationError::Unknown {
                        from: source(),
                        what,
                        name,
                        nearest,
                    });
                }
            };
            let (name, reason) = (name.clone(), reason.to_owned());
            return Err(ConfigurationError::Value { from: source(), name, reason });
        }
        Ok(())
    }

    /// The first command with an option of that name.
    fn with_option(&self, name: &str) -> Option<String> {
        let all = self.commands();
        let mut with = all.iter().filter(|path| self.keys(path).iter().any(|key| key.long == name));
        with.next().map(|path| path.join("."))
    }

    /// Whether the command line would take it.
    fn check(&self, setting: &Setting) -> Result<(), ConfigurationError> {
        if setting.key.is_flag {
            return Ok(());
        }
        let options = setting.values.iter().map(|value| format!("--{}={value}", setting.key.long));
        let words = std::iter::once("ckptd".to_owned()).chain(setting.key.path.iter().cloned());
        // What else it lacks without this one is not asked.
        match self.root.clone().try_get_matches_from(words.chain(options)) {
            Err(error) if is_of_value(error.kind()) => {
                let text = error.to_string();
                let line = text.lines().next().unwrap_or_default();
                let reason = line.strip_prefix("error: ").unwrap_or(line).to_owned();
                Err(wrong(&setting.source, &setting.key, reason))
            }
            _ => Ok(()),
        }
    }
}

/// Whether it is one of the variables by which Kubernetes tells of a service, which may be called ckptd-coordinator.
fn is_of_kubernetes(name: &str, value: &str) -> bool {
    let is_address = value.starts_with("tcp://") || value.starts_with("udp://");
    name.contains("_SERVICE_") || name.contains("_PORT_") || name.ends_with("_PORT") && is_address
}

fn is_of_value(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::InvalidValue
            | ErrorKind::ValueValidation
            | ErrorKind::TooManyValues
            | ErrorKind::TooFewValues
            | ErrorKind::WrongNumberOfValues
            | ErrorKind::ArgumentConflict
            | ErrorKind::InvalidUtf8
    )
}

fn wrong(source: &Source, key: &Key, reason: String) -> ConfigurationError {
    ConfigurationError::Value { from: source.clone(), name: key.name(), reason }
}

fn unknown(source: Source, path: &[String], name: &str, known: &[Key]) -> ConfigurationError {
    let nearest = nearest(name, known.iter().map(|key| key.long.clone()));
    let name = format!("{name} of 'ckptd {}'", path.join(" "));
    ConfigurationError::Unknown { from: source, what: "option", name, nearest }
}

fn find<'a>(command: &'a Command, path: &[String]) -> Option<&'a Command> {
    path.iter().try_fold(command, |command, name| command.find_subcommand(name))
}

fn within<'a>(table: &'a Table, path: &[String]) -> Option<&'a Table> {
    path.iter().try_fold(table, |table, name| table.get(name)?.as_table())
}

/// A value, as it would be written on the command line.
fn written(key: &Key, value: &Value) -> Result<Vec<String>, String> {
    let one = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        other => Err(format!("it takes no {}", other.type_str())),
    };
    match value {
        Value::Boolean(flag) if key.is_flag => Ok(vec![flag.to_string()]),
        _ if key.is_flag => Err("it is neither true nor false".to_owned()),
        Value::Array(values) if key.takes_several => values.iter().map(one).collect(),
        Value::Array(_) => Err("it takes one value".to_owned()),
        value => one(value).map(|one| vec![one]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    fn run() -> Vec<String> {
        vec!["run".to_owned()]
    }

    fn settings(texts: &[&str], variables: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let root = Cli::command();
        let found = texts.iter().enumerate().map(|(place, text)| {
            (PathBuf::from(format!("/{place}.toml")), FileState::Read, (*text).to_owned())
        });
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let read = Configuration::of_texts(&root, found.collect(), variables.collect());
        let settings = read.and_then(|read| {
            let own = read.of(&run())?;
            Ok(read.dir().into_iter().chain(own).collect::<Vec<_>>())
        });
        let words =
            |one: &Setting| format!("{}={} ({})", one.key.name(), one.values.join(","), one.source);
        settings.map(|all| all.iter().map(words).collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_nearer_to_the_user_holds() {
        let machine = "dir = '/jobs'\n[run]\ninterval = '5m'\nkeep = 3\nquiet = true\n";
        let own = "[run]\nkeep = 4\nplace = ['a=1', 'b=2']\n[slurm.run]\nspare = 1\n";
        let variables = [("CKPTD_RUN_INTERVAL", "90"), ("CKPTD_FAULT", "x"), ("CKPTD_RUM", "y")];
        let expected = [
            "dir=/jobs (/0.toml)",
            "run.interval=90 ($CKPTD_RUN_INTERVAL)",
            "run.keep=4 (/1.toml)",
            "run.place=a=1,b=2 (/1.toml)",
            "run.quiet=true (/0.toml)",
        ];
        assert_eq!(settings(&[machine, own], &variables).unwrap(), expected);
        // The folder's own variable holds before any file.
        let others = settings(&["dir = '/jobs'"], &[("CKPTD_DIR", "/mine")]);
        assert_eq!(others, Ok(Vec::new()));
    }

    #[test]
    fn what_is_not_known_is_an_error_that_names_what_is() {
        for (text, error) in [
            (
                "[run]\nintervall = 5",
                "/0.toml: there is no option intervall of 'ckptd run'; did you mean interval?",
            ),
            ("interval = 5\n", "/0.toml: interval: it is an option, and goes below a line [run]"),
            ("[ran]\n", "/0.toml: there is no command ran; did you mean run?"),
            ("[zzzzzzzz]\n", "/0.toml: there is no command zzzzzzzz"),
            ("[run]\nrecover = true", "/0.toml: there is no option recover of 'ckptd run'"),
            ("run = 5", "/0.toml: run: it is a command, whose options go below a line [COMMAND]"),
            ("dir = 5", "/0.toml: dir: it is not the name of a folder"),
        ] {
            assert_eq!(settings(&[text], &[]).unwrap_err(), error);
        }
        let error = settings(&[], &[("CKPTD_RUN_KEP", "5")]).unwrap_err();
        assert_eq!(
            error,
            "$CKPTD_RUN_KEP: there is no option kep of 'ckptd run'; did you mean keep?"
        );
    }

    #[test]
    fn values_are_those_of_the_command_line() {
        for (text, part) in [
            ("[run]\ninterval = 'x'", "/0.toml: run.interval: invalid value 'x' for '--interval"),
            ("[run]\nkeep = 0", "/0.toml: run.keep: invalid value '0'"),
            ("[run]\nkeep = [1]", "run.keep: it takes one value"),
            ("[run]\nquiet = 'yes'", "run.quiet: it is neither true nor false"),
            ("[run]\nkeep = 1979-05-27", "run.keep: it takes no datetime"),
            ("[run\n", "/0.toml: line 1: "),
        ] {
            let error = settings(&[text], &[]).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        assert!(settings(&[], &[("CKPTD_RUN_QUIET", "1")]).is_err());
        // What Kubernetes says of a service of that name.
        for (name, value) in
            [("CKPTD_RUN_SERVICE_HOST", "10.0.0.1"), ("CKPTD_RUN_PORT", "tcp://x:1")]
        {
            assert_eq!(settings(&[], &[(name, value)]), Ok(Vec::new()));
        }
        // What the job's environment has anyway.
        assert_eq!(settings(&[], &[("CKPTD_AGENT_SOCKET", "/x")]), Ok(Vec::new()));
    }

    #[test]
    fn commands_may_have_commas() {
        let file = "[run]\non = ['lost=a -x 1,2', 'ended=b']";
        let held = settings(&[file], &[]).unwrap();
        assert_eq!(held, ["run.on=lost=a -x 1,2,ended=b (/0.toml)"]);
        let variable = [("CKPTD_RUN_ON", "lost=a -x 1,2\nended=b")];
        let held = settings(&[], &variable).unwrap();
        assert_eq!(held, ["run.on=lost=a -x 1,2,ended=b ($CKPTD_RUN_ON)"]);
        let error = settings(&["[run]\non = ['end=b']"], &[]).unwrap_err();
        assert!(error.contains("there is no event \"end\"; events are checkpoint"), "{error}");
    }

    #[test]
    fn other_commands_wrong_options_are_left_alone() {
        assert_eq!(settings(&["[agent]\nslotz = 4\n[run]\nkeep = 2"], &[]).unwrap().len(), 1);
    }
}
