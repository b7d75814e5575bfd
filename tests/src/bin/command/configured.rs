//! Options that files and the environment set.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use ckptd_tests::job::Failure;

use super::stage::{Finished, JOB, Running, Stage, expect, own};

/// A configuration of the account's.
struct Folder<'a> {
    stage: &'a Stage,
    file: PathBuf,
}

impl<'a> Folder<'a> {
    fn new(stage: &'a Stage, text: &str) -> Result<Self, Failure> {
        let folder = stage.home.join("settings");
        own(fs::create_dir(&folder).and_then(|()| stage.account.give(&folder)))?;
        let made = Self { stage, file: folder.join("ckptd.toml") };
        made.write(text)?;
        Ok(made)
    }

    fn write(&self, text: &str) -> Result<(), Failure> {
        own(fs::write(&self.file, text))?;
        self.allow(0o644)?;
        own(self.stage.account.give(&self.file))
    }

    fn allow(&self, mode: u32) -> Result<(), Failure> {
        own(fs::set_permissions(&self.file, Permissions::from_mode(mode)))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.stage.command(arguments);
        command.env("XDG_CONFIG_HOME", self.stage.home.join("settings"));
        command
    }

    fn call(&self, arguments: &[&str]) -> Result<Finished, Failure> {
        Running::start(self.command(arguments))?.finish()
    }
}

/// What a file sets holds, the environment before it, and the command line before both; 'config show' says so.
pub fn holds(stage: &Stage) -> Result<(), Failure> {
    let folder = Folder::new(stage, "[run]\ninterval = \"7m\"\nkeep = 3\n[rm]\n")?;
    for (variable, options, interval_s) in
        [(None, &[][..], 420), (Some("8m"), &[], 480), (Some("8m"), &["--interval", "9m"], 540)]
    {
        let job = ["--name", JOB, "--", "sh", "-c", "echo up; read x"];
        let mut command = folder.command(&[&["run"], options, &job].concat());
        command.envs(variable.map(|value| ("CKPTD_RUN_INTERVAL", value)));
        let mut running = Running::start(command)?;
        running.wait_for("up")?;
        let status = stage.json(&["status", JOB])?;
        expect(status["live"]["interval_s"] == interval_s, || format!("status: {status}"))?;
        running.say("\n")?;
        running.finish()?.expect(0)?;
        folder.call(&["rm", JOB])?.expect(0)?;
    }
    let told = folder.call(&["config", "show"])?.expect(0)?;
    let has = |words: [&str; 3]| {
        told.out.lines().any(|line| line.split_whitespace().take(3).eq(words.iter().copied()))
    };
    let file = folder.file.display().to_string();
    expect(has(["run.interval", "7m", &file]) && has(["run.keep", "3", &file]), || {
        format!("config show: {told:?}")
    })?;
    let all = folder.call(&["config", "show", "run", "--all", "--json"])?.expect(0)?;
    let all: serde_json::Value = serde_json::from_str(&all.out)
        .map_err(|error| Failure(format!("config show --json: {error}")))?;
    let count = all["options"].as_array().map_or(0, Vec::len);
    expect(count > 20, || format!("options of run: {all}"))
}

/// What is wrong is refused in one line by the command that it concerns, and hurts no other.
pub fn wrong(stage: &Stage) -> Result<(), Failure> {
    let folder = Folder::new(stage, "[run]\nintervall = 5\n")?;
    let refused = |words: &str, arguments: &[&str]| {
        let ended = folder.call(arguments)?.expect(2)?;
        expect(ended.err.contains(words) && ended.err.lines().count() == 1, || {
            format!("{arguments:?}: {ended:?}")
        })
    };
    refused("did you mean interval?", &["run", "true"])?;
    refused("did you mean interval?", &["config", "show"])?;
    folder.call(&["ls"])?.expect(0)?;
    folder.write("[rum]\n")?;
    refused("there is no command rum; did you mean run?", &["ls"])?;
    folder.write("[run]\nkeep = 0\n")?;
    refused("run.keep: invalid value '0'", &["run", "true"])?;
    // What mpirun calls does not read it.
    let ended = folder.call(&["rsh", "node1", "true"])?;
    expect(!ended.err.contains("ckptd.toml"), || format!("rsh: {ended:?}"))?;
    folder.write("[run]\nkeep = 4\n")?;
    folder.allow(0o666)?;
    refused("others than its owner may write to it", &["run", "true"])
}
