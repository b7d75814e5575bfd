//! Tasks in place of commands, and hearing of each as it ends.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use ckptd_tests::job::Failure;
use ckptd_tests::processes;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::farms::LAST;
use super::stage::{Running, Stage, expect, own, until};
use super::submitted::Open;

/// Lines of JSON, by their tasks.
pub fn lines(text: &str) -> Result<BTreeMap<u64, Value>, Failure> {
    let parse = |line: &str| -> Option<(u64, Value)> {
        let value: Value = serde_json::from_str(line).ok()?;
        Some((value["task"].as_u64()?, value))
    };
    let all: Option<_> = text.lines().map(parse).collect();
    all.ok_or_else(|| Failure(format!("no lines of JSON: {text:?}")))
}

/// Kills the guard and the worker of a farm, and nobody who waits for it.
pub fn kill_farm(stage: &Stage) {
    // Who asks it for something is none of it.
    let is_farm = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(b"ckptd\0farm\0") && !line.starts_with(b"ckptd\0farm\0status\0")
    };
    let all = processes::marked(&stage.home.display().to_string()).into_iter().filter(is_farm);
    processes::kill(&all.collect::<Vec<_>>());
}

/// A line for each that was asked for, as results.jsonl has it; also those that are asked for later.
pub fn each(stage: &Stage) -> Result<(), Failure> {
    let open = Open::start(stage, &["--jobs", "2"])?;
    open.submit(&["sh", "-c", "exit 3"])?;
    open.submit(&["true"])?;
    open.submit(&["sleep", "1000"])?;
    let told = lines(&open.call("wait", &["--each", "1", "2"], 1)?.out)?;
    let mut results = BTreeMap::new();
    until("results are written", || {
        results = open.farm.results().unwrap_or_default();
        results.len() == 2
    })?;
    expect(told == results, || format!("{told:?} is not {results:?}"))?;
    let mut waits = stage.start(&["farm", "wait", "--farm", "f", "--each", "--stdin", "1"])?;
    waits.wait_for("\"task\":1}")?;
    waits.say("3\n2\n")?;
    waits.wait_for("\"task\":2}")?;
    let later = open.submit(&["sh", "-c", "exit 4"])?;
    waits.say(&format!("{later}\n"))?;
    waits.wait_for("\"status\":4")?;
    open.call("cancel", &["3"], 0)?;
    let told = lines(&waits.finish()?.expect(3)?.out)?;
    expect(told.len() == 4 && told[&3]["outcome"] == "cancelled", || format!("{told:?}"))?;
    for (wrong, said) in [("x\n", "\"x\" is no task's number"), ("9", "there is none")] {
        let words = ["farm", "wait", "--farm", "f", "--stdin"];
        let refused = stage.output(&words, wrong)?.expect(125)?;
        expect(refused.err.contains(said), || format!("{refused:?}"))?;
    }
    // Who waits for nobody's sake ends.
    let long = open.submit(&["sleep", "1000"])?.to_string();
    let script = "{ \"$0\" farm wait --farm f --each \"$1\"; echo $? > left; } | true";
    let ckptd = stage.ckptd().display().to_string();
    let mut command = stage.alone(&["sh", "-c", script, &ckptd, &long]);
    command.current_dir(&stage.home).env("CKPTD_DIR", stage.home.join("state"));
    Running::start(command)?.finish()?.expect(0)?;
    let left = own(fs::read_to_string(stage.home.join("left")))?;
    expect(left == "141\n", || format!("its status is {left:?}"))?;
    open.call("cancel", &[&long], 0)?;
    open.end()
}

/// Who waits has a farm that was killed go on, and one that was stopped stay so.
pub fn resumed(stage: &Stage) -> Result<(), Failure> {
    let open = Open::start(stage, &["--jobs", "1", "--checkpoint", "0.5"])?;
    let script = "echo >> runs; while [ ! -e end ]; do sleep 0.05; done";
    let task = open.submit(&["sh", "-c", script])?;
    open.farm.until_kept(1)?;
    let number = task.to_string();
    let waits = stage.start(&["farm", "wait", "--farm", "f", "--resume", &number])?;
    kill_farm(stage);
    until("it is not running", || open.state(task).is_ok_and(|state| state["state"] == "queued"))?;
    open.until_runs(task)?;
    stage.output(&["farm", "stop", "f"], "")?.expect(0)?;
    waits.wait_for_error("'ckptd farm start f' goes on")?;
    stage.output(&["farm", "start", "--unless-stopped", "f"], "")?.expect(0)?;
    std::thread::sleep(Duration::from_secs(1));
    let state = open.state(task)?;
    expect(state["state"] == "queued", || format!("{state}"))?;
    stage.output(&["farm", "start", "f"], "")?.expect(0)?;
    own(fs::write(stage.home.join("end"), ""))?;
    waits.finish()?.expect(0)?;
    let runs = own(fs::read(stage.home.join("runs")))?.len();
    expect(runs == 1, || format!("it was begun {runs} times"))?;
    open.end()
}

/// Output, status and end are those of the command.
pub fn exactly(stage: &Stage) -> Result<(), Failure> {
    let open = Open::start(stage, &["--jobs", "2"])?;
    let script = "echo to out; echo to err >&2; echo \"$1\"; exit 7";
    let ended = open.call("exec", &["--", "sh", "-c", script, "sh", "a  b"], 7)?;
    let streams = (ended.out.as_str(), ended.err.as_str());
    expect(streams == ("to out\na  b\n", "to err\n"), || format!("{ended:?}"))?;
    open.call("exec", &["no-such-program"], 127)?;
    open.call("exec", &["--timeout", "1", "sleep", "1000"], 124)?;
    open.call("exec", &["sh", "-c", "kill -KILL $$"], 137)?;
    let words = ["farm", "exec", "--farm", "f", "--", "sh", "-c", "echo on; exec sleep 1000"];
    for (signal, status) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let runs = stage.start(&words)?;
        runs.wait_for("on\n")?;
        runs.signal(signal)?;
        runs.finish()?.expect(status)?;
    }
    for task in [5, 6] {
        let state = open.state(task)?;
        expect(state["outcome"] == "cancelled", || format!("{state}"))?;
    }
    // Whoever has it run is killed: it runs on.
    let runs = stage.start(&words)?;
    runs.wait_for("on\n")?;
    runs.kill()?;
    let pid = open.until_runs(7)?;
    expect(pid > 0, || "it does not run".to_owned())?;
    open.call("cancel", &["7"], 0)?;
    // Nobody reads what it writes.
    let script =
        "\"$0\" farm exec --farm f -- sh -c 'while echo on; do sleep 0.05; done' | head -n 1";
    let ckptd = stage.ckptd().display().to_string();
    let mut command = stage.alone(&["sh", "-c", script, &ckptd]);
    command.current_dir(&stage.home).env("CKPTD_DIR", stage.home.join("state"));
    let ended = Running::start(command)?.finish()?.expect(0)?;
    expect(ended.out == "on\n", || format!("{ended:?}"))?;
    let state = open.state(8)?;
    expect(state["outcome"] == "cancelled", || format!("{state}"))?;
    open.end()
}

/// The farm is killed: the command goes on with it, from its last checkpoint.
pub fn killed(stage: &Stage) -> Result<(), Failure> {
    let open = Open::start(stage, &["--jobs", "2", "--checkpoint", "0.5"])?;
    let last = LAST.to_string();
    let runs = stage.start(&["farm", "exec", "--farm", "f", "sh", "count.sh", "a", &last])?;
    open.farm.until_kept(1)?;
    kill_farm(stage);
    let ended = runs.finish()?.expect(0)?;
    expect(ended.out.ends_with(&format!("a {last}\n")), || format!("{ended:?}"))?;
    open.expect_counted(1, "a")?;
    open.end()
}
