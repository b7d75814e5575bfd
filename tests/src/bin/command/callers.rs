//! Programs that have farms run what they would run themselves: examples of `packaging/farm`, and the package for Python.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use ckptd_tests::job::Failure;

use super::executed::kill_farm;
use super::stage::{Running, Stage, expect, own, until};

/// The sources.
const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging");
/// What tests/install installs for this.
const ENVIRONMENT: &str = "/var/cache/ckptd-tests/farm";
/// In how many parts the tests of the package run at a time.
const PARTS: usize = 4;
/// How long they may take.
const LIMIT: &str = "400";
/// Words that a shell would change, and a status.
const ODD: &str = "SHELL = ckptd\n.SHELLFLAGS = farm exec --farm build -- /bin/sh -ec\n\
                   all:\n\t@printf '%s|' \"a  b\" 'c\"d' \"$${HOME##*/}\" \\\n\t\t'$$x\\' > odd; echo told; exit 4\n";
/// A make that calls another one, whose recipes and shells are tasks, too.
const NESTED: &str = "all: sub.a sub.b\n\t@echo all\nsub.a sub.b:\n\t@$(MAKE) --no-print-directory -f nested.mk $(@:sub.%=%)\n\
                      a b:\n\t@echo \"$@ $(shell echo in) $$CKPTD_FARM_TASK\" > $@\n";
const SNAKEFILE: &str = r#"
rule all:
    input: "total"
rule part:
    output: "part.{n}"
    shell: "echo >> runs.{wildcards.n}; seq {wildcards.n} 10 > {output}"
rule slow:
    output: "slow"
    shell: "echo >> runs.slow; while [ ! -e go ]; do sleep 0.05; done; touch {output}"
rule fails:
    output: "never"
    shell: "exit 3"
rule total:
    input: expand("part.{n}", n=range(1, 4)), "slow"
    output: "total"
    shell: "cat {input} | sort -n > {output}"
"#;

/// Copies a file or folder of the sources into the case's home, which its account can read.
fn copy(stage: &Stage, name: &str) -> Result<PathBuf, Failure> {
    let from = Path::new(PACKAGING).join(name);
    let to = stage.home.join(from.file_name().unwrap_or_default());
    let copied = own(Command::new("cp").arg("-rT").args([&from, &to]).status())?;
    expect(copied.success(), || format!("{} can't be copied", from.display()))?;
    let open = own(Command::new("chmod").args(["-R", "a+rX"]).arg(&to).status())?;
    expect(open.success(), || format!("{} can't be opened", to.display()))?;
    Ok(to)
}

/// A program with ckptd and these folders in its path.
fn program(stage: &Stage, words: &[&str], folders: &[&Path]) -> Result<Command, Failure> {
    let tools = stage.home.join("tools");
    if !tools.exists() {
        own(fs::create_dir(&tools).and_then(|()| symlink(stage.ckptd(), tools.join("ckptd"))))?;
    }
    let mut path = tools.display().to_string();
    folders.iter().for_each(|folder| path.extend([":", &folder.display().to_string()]));
    let mut command = stage.alone(words);
    command.current_dir(&stage.home).env("CKPTD_DIR", stage.home.join("state"));
    command.env("CKPTD", stage.ckptd()).env("PATH", format!("{path}:/usr/bin:/bin"));
    Ok(command)
}

/// Whether what it needs is there.
fn is_there(what: &str) -> bool {
    let is_there = Path::new(ENVIRONMENT).join("bin").join(what).exists();
    if !is_there {
        println!("skip: there is no {what} in {ENVIRONMENT}, which tests/install makes");
    }
    is_there
}

fn tasks(stage: &Stage, farm: &str) -> Result<usize, Failure> {
    let state = stage.json(&["farm", "status", farm])?;
    Ok(state["tasks"].as_array().map_or(0, Vec::len))
}

/// Recipes are tasks, with their words, output and statuses.
pub fn make(stage: &Stage) -> Result<(), Failure> {
    copy(stage, "farm/make/Makefile")?;
    let made = Running::start(program(stage, &["make", "-j", "4"], &[])?)?.finish()?.expect(0)?;
    let sorted = own(fs::read_to_string(stage.home.join("sorted")))?;
    expect(sorted.lines().count() == 34 && sorted.starts_with("1\n2\n2\n3\n3\n3\n4\n"), || {
        format!("{sorted:?}: {made:?}")
    })?;
    expect(tasks(stage, "build")? == 5, || "not as many tasks as recipes".to_owned())?;
    own(fs::write(stage.home.join("odd.mk"), ODD))?;
    let odd =
        Running::start(program(stage, &["make", "-f", "odd.mk"], &[])?)?.finish()?.expect(2)?;
    expect(odd.out == "told\n" && odd.err.contains("Error 4"), || format!("{odd:?}"))?;
    let written = own(fs::read_to_string(stage.home.join("odd")))?;
    let home = stage.home.file_name().unwrap_or_default().to_string_lossy();
    expect(written == format!("a  b|c\"d|{home}|$x\\|"), || written.clone())?;
    nested_make(stage)?;
    stage.output(&["farm", "stop", "build"], "")?.expect(0)?;
    stage.expect_gone()
}

/// A make within a recipe has its own recipes run within that task: with one slot, each would wait for the other.
fn nested_make(stage: &Stage) -> Result<(), Failure> {
    own(fs::write(stage.home.join("nested.mk"), NESTED))?;
    stage.output(&["farm", "start", "--jobs", "1", "nested"], "")?.expect(0)?;
    let flags = ".SHELLFLAGS=farm exec --farm nested -- /bin/sh -c";
    let words = ["make", "-j", "4", "-f", "nested.mk", "SHELL=ckptd", flags];
    let made = Running::start(program(stage, &words, &[])?)?.finish()?.expect(0)?;
    expect(made.out == "all\n", || format!("{made:?}"))?;
    let read = |name| fs::read_to_string(stage.home.join(name)).unwrap_or_default();
    let (one, other) = (read("a"), read("b"));
    let numbers = (one.strip_prefix("a in "), other.strip_prefix("b in "));
    let are_right = matches!(numbers, (Some(one), Some(other)) if one != other);
    expect(are_right, || format!("{one:?}, {other:?}: {made:?}"))?;
    expect(tasks(stage, "nested")? == 3, || {
        "not as many tasks as recipes of the first".to_owned()
    })?;
    stage.output(&["farm", "stop", "nested"], "")?.expect(0).map(drop)
}

/// Jobs are tasks, which go on from their checkpoints where the farm was killed.
pub fn snakemake(stage: &Stage) -> Result<(), Failure> {
    if !is_there("snakemake") {
        return Ok(());
    }
    let profile = copy(stage, "farm/snakemake")?;
    own(fs::write(stage.home.join("Snakefile"), SNAKEFILE))?;
    let program_of = format!("{ENVIRONMENT}/bin/snakemake");
    let shown = profile.display().to_string();
    let start = |words: &[&str]| {
        let all = [&[&program_of[..], "--profile", &shown], words].concat();
        Running::start(program(stage, &all, &[&profile])?)
    };
    let runs =
        |name: &str| fs::read(stage.home.join(format!("runs.{name}"))).map_or(0, |n| n.len());
    let begin = |options: &[&str]| {
        stage.output(&[&["farm", "start", "snakemake"], options].concat(), "")?.expect(0)
    };
    begin(&["--checkpoint", "0.5"])?;
    let first = start(&[])?;
    until("all but one have ended", || {
        let state = stage.json(&["farm", "status", "snakemake"]).unwrap_or_default();
        runs("slow") == 1 && state["right"] == 3
    })?;
    // The checkpoints of those that have ended are removed a moment later.
    let state = stage.json(&["farm", "status", "snakemake"])?;
    let tasks = state["tasks"].as_array().into_iter().flatten();
    let left =
        tasks.filter(|task| task["state"] == "running").find_map(|task| task["task"].as_u64());
    let left = left.ok_or_else(|| Failure(format!("none runs: {state}")))?;
    let job = stage.home.join(format!("state/farms/snakemake/jobs/t{left}.1-1/checkpoints"));
    let newest = || {
        let all = fs::read_dir(&job).into_iter().flatten().flatten();
        let committed = all.filter(|checkpoint| checkpoint.path().join("COMMITTED").exists());
        let numbers =
            committed.filter_map(|checkpoint| checkpoint.file_name().to_str()?.parse().ok());
        numbers.max().unwrap_or(0u64)
    };
    // The next one may have begun before it told that it runs.
    let now = newest();
    until("it has a checkpoint", || newest() >= now + 2)?;
    kill_farm(stage);
    begin(&[])?;
    own(fs::write(stage.home.join("go"), ""))?;
    first.finish()?.expect(0)?;
    let all: Vec<usize> = ["1", "2", "3", "slow"].map(runs).to_vec();
    expect(all == [1; 4], || format!("jobs were run {all:?} times"))?;
    let total = own(fs::read_to_string(stage.home.join("total")))?;
    expect(total.lines().count() == 27, || total.clone())?;
    start(&["fails"])?.finish()?.expect(1)?;
    // One that is interrupted cancels what it has submitted.
    let slow = ["go", "slow", "total"].map(|name| fs::remove_file(stage.home.join(name)));
    slow.into_iter().try_for_each(own)?;
    let stopped = start(&["slow"])?;
    until("it runs", || runs("slow") == 2)?;
    stopped.signal(nix::sys::signal::Signal::SIGINT)?;
    stopped.finish()?;
    until("it is cancelled", || {
        let state = stage.json(&["farm", "status", "snakemake"]).unwrap_or_default();
        let last = state["tasks"].as_array().and_then(|tasks| tasks.last()).cloned();
        last.is_some_and(|task| task["outcome"] == "cancelled")
    })?;
    stage.output(&["farm", "stop", "snakemake"], "")?.expect(0)?;
    stage.expect_gone()
}

/// The package's own tests.
pub fn python(stage: &Stage) -> Result<(), Failure> {
    if !is_there("python") {
        return Ok(());
    }
    let package = copy(stage, "python")?;
    let python = format!("{ENVIRONMENT}/bin/python");
    let folder = package.join("tests").display().to_string();
    let words = ["timeout", LIMIT, &python, "-m", "unittest", "discover", "--verbose", &folder];
    // Most of them wait most of the time.
    let start = |part| {
        let mut command = program(stage, &words, &[])?;
        command.env("PYTHONPATH", &package).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("CKPTD_TESTS_PART", format!("{part}/{PARTS}"));
        Running::start(command)
    };
    let all: Vec<Running> = (0..PARTS).map(start).collect::<Result<_, _>>()?;
    for mut running in all {
        // They take longer than a single command.
        own(running.child.wait())?;
        let ended = running.finish()?;
        let is_right = ended.status.success()
            && ended.err.contains("OK")
            && !ended.err.contains("Ran 0 tests");
        expect(is_right, || ended.err.clone())?;
    }
    stage.expect_gone()
}
