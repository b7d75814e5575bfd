//! What stands between a task of a farm and whoever waits for it: no end that could come, no reader, tries in between.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ckptd_tests::job::Failure;
use ckptd_tests::processes;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::executed::lines;
use super::stage::{Stage, expect, own, until};
use super::submitted::Open;

/// More than a pipe holds.
const MUCH: usize = 300_000;
/// What "at once" is, on a machine with much to do.
const SOON: Duration = Duration::from_secs(20);

/// A command about the farm whose output nobody reads as yet.
struct Unread(Child);

impl Unread {
    fn start(mut command: Command) -> Result<Self, Failure> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        own(command.spawn()).map(Self)
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let sent = kill(Pid::from_raw(self.0.id() as i32), signal);
        sent.map_err(|errno| Failure(format!("failed to signal: {errno}")))
    }

    /// It ends with this status, though nobody reads.
    fn expect_end(mut self, status: i32) -> Result<(), Failure> {
        let since = Instant::now();
        until("it ends", || self.0.try_wait().is_ok_and(|ended| ended.is_some()))?;
        expect(since.elapsed() < SOON, || format!("it took {:?}", since.elapsed()))?;
        let ended = own(self.0.wait())?.code();
        expect(ended == Some(status), || format!("its status is {ended:?}"))
    }

    /// Reads all that it writes to standard output; its status, too.
    fn read(mut self) -> Result<(Vec<u8>, Option<i32>), Failure> {
        let mut text = Vec::new();
        if let Some(out) = &mut self.0.stdout {
            own(out.read_to_end(&mut text))?;
        }
        Ok((text, own(self.0.wait())?.code()))
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kills all of a farm and its tasks, and nobody who waits for them: no more checkpoints are taken.
fn kill_all(stage: &Stage) {
    let waits = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        let of_farm = words.iter().position(|word| *word == b"farm");
        let command = of_farm.and_then(|at| words.get(at + 1));
        command.is_some_and(|command| [&b"exec"[..], b"wait"].contains(command))
    };
    let mut all = processes::marked(&stage.home.display().to_string());
    all.retain(|pid| !waits(pid));
    processes::kill(&all);
}

/// A task that can't be brought back from its checkpoint: whoever waits is told so, also where the farm ends for want of others.
pub fn stuck(stage: &Stage) -> Result<(), Failure> {
    let open = Open::start(stage, &["--jobs", "2", "--checkpoint", "0.5", "--idle", "0.05"])?;
    let script = "echo on; while [ ! -e end ]; do sleep 0.05; done";
    let executed = stage.start(&["farm", "exec", "--farm", "f", "--", "sh", "-c", script])?;
    executed.wait_for("on\n")?;
    let waits = stage.start(&["farm", "wait", "--farm", "f", "--resume", "1"])?;
    let mut each =
        stage.start(&["farm", "wait", "--farm", "f", "--resume", "--each", "--stdin", "1"])?;
    open.farm.until_kept_twice()?;
    kill_all(stage);
    let checkpoints = stage.home.join("state/farms/f/jobs/t1.1-1/checkpoints");
    for checkpoint in own(fs::read_dir(&checkpoints))?.flatten() {
        own(fs::write(checkpoint.path().join("graph.json"), "{}"))?;
    }
    stage.output(&["farm", "start", "f"], "")?.expect(0)?;
    let said = "failed to wait for task 1 of f: task 1 can't be brought back from its checkpoint: restart t1.1 from checkpoint";
    let way = "'ckptd farm cancel --farm f 1' gives it up";
    let is_told = |err: &str| err.contains(said) && err.contains(way) && err.lines().count() == 1;
    for running in [executed, waits] {
        let ended = running.finish()?.expect(125)?;
        expect(is_told(&ended.err), || format!("{ended:?}"))?;
    }
    // Others are heard of all the same.
    each.wait_for("\"outcome\":\"stuck\"")?;
    let other = open.submit(&["sh", "-c", "exit 3"])?;
    each.say(&format!("{other}\n"))?;
    let each = each.finish()?.expect(125)?;
    let told = lines(&each.out)?;
    let reason = told[&1]["reason"].as_str().unwrap_or_default();
    let is_right = told.len() == 2 && told[&2]["status"] == 3 && reason.contains("restart t1.1");
    expect(is_right && is_told(&each.err), || format!("{each:?}"))?;
    for words in [&["1"][..], &["--resume", "1"], &["1", "2"], &[]] {
        let ended = open.call("wait", words, 125)?;
        expect(is_told(&ended.err), || format!("{ended:?}"))?;
    }
    let logs = open.call("logs", &["-f", "1"], 0)?;
    expect(logs.out == "on\n", || format!("{logs:?}"))?;
    open.call("cancel", &["1"], 0)?;
    open.call("wait", &["1"], 143)?;
    open.call("retry", &["1"], 0)?;
    own(fs::write(stage.home.join("end"), ""))?;
    open.call("wait", &["1"], 0)?;
    open.end()
}

/// A signal ends a command whose output nobody reads, and its task.
pub fn unread(stage: &Stage) -> Result<(), Failure> {
    let open = Open::start(stage, &["--jobs", "1"])?;
    for (task, to, signal, status) in
        [(1, "1", Signal::SIGINT, 130), (2, "2", Signal::SIGTERM, 143)]
    {
        let script = format!("head -c {MUCH} /dev/zero >&{to}; exec sleep 1000");
        let words = ["farm", "exec", "--farm", "f", "--", "sh", "-c", &script];
        let runs = Unread::start(stage.command(&words))?;
        let file = open.farm.results.join(format!("{task}.{}", ["out", "err"][task - 1]));
        until("it has written", || fs::metadata(&file).is_ok_and(|found| found.len() >= 300_000))?;
        // Time to fill the pipe.
        std::thread::sleep(Duration::from_millis(300));
        runs.signal(signal)?;
        runs.expect_end(status)?;
        let state = open.state(task as u32)?;
        expect(state["outcome"] == "cancelled", || format!("{state}"))?;
    }
    open.end()
}

/// What each try has written is passed on to its end, however late it is read.
pub fn tries(stage: &Stage) -> Result<(), Failure> {
    let open = Open::start(stage, &["--jobs", "1"])?;
    let script = format!(
        "echo >> tries.$1; head -c {MUCH} /dev/zero; wc -l < tries.$1; \
         while [ ! -e go ]; do sleep 0.05; done; exit 1"
    );
    let exec = ["farm", "exec", "--farm", "f", "--retries", "3", "--", "sh", "-c", &script, "sh"];
    let exec = Unread::start(stage.command(&[&exec[..], &["1"]].concat()))?;
    open.farm.until_written("1.out", "1\n")?;
    let logs = Unread::start(stage.command(&["farm", "logs", "--farm", "f", "-f", "1"]))?;
    // Time to fill both pipes.
    std::thread::sleep(Duration::from_millis(300));
    own(fs::write(stage.home.join("go"), ""))?;
    open.call("wait", &["1"], 1)?;
    let mut expected = Vec::new();
    for number in 1..=4 {
        expected.resize(expected.len() + MUCH, 0);
        expected.extend_from_slice(format!("{number}\n").as_bytes());
    }
    for (running, status) in [(exec, 1), (logs, 0)] {
        let (text, ended) = running.read()?;
        let is_all = text == expected && ended == Some(status);
        expect(is_all, || format!("{} bytes of {}, {ended:?}", text.len(), expected.len()))?;
    }
    open.end()
}

/// A farm that is stopped or removed meanwhile: a signal is heard, and so is that no end will come.
pub fn stopped(stage: &Stage) -> Result<(), Failure> {
    let open = Open::start(stage, &["--jobs", "2"])?;
    let words = ["farm", "exec", "--farm", "f", "--", "sh", "-c", "echo on; exec sleep 1000"];
    let (first, second) = (stage.start(&words)?, stage.start(&words)?);
    first.wait_for("on\n")?;
    second.wait_for("on\n")?;
    let number = |task: u32| open.state(task);
    stage.output(&["farm", "stop", "--now", "f"], "")?.expect(0)?;
    first.wait_for_error("'ckptd farm start f' goes on")?;
    first.signal(Signal::SIGTERM)?;
    first.finish()?.expect(143)?;
    let cancelled = [number(1)?, number(2)?];
    let count = cancelled.iter().filter(|state| state["outcome"] == "cancelled").count();
    expect(count == 1, || format!("{cancelled:?}"))?;
    stage.output(&["farm", "rm", "f"], "")?.expect(0)?;
    // Another one of that name has other tasks.
    let number = open.submit(&["true"])?;
    let ended = second.finish()?.expect(125)?;
    expect(number == 1 && ended.err.contains("the farm was removed"), || format!("{ended:?}"))?;
    open.call("wait", &["1"], 0)?;
    open.end()
}

/// Within a task of the same farm, the command takes no slot of its own: all slots may be taken by tasks that wait for such.
pub fn nested(stage: &Stage) -> Result<(), Failure> {
    let open = Open::start(stage, &["--jobs", "1"])?;
    let script = "echo $CKPTD_FARM_TASK \"$1\"; exit 7";
    let inner = format!("\"$0\" farm exec --farm f --timeout 1h -- sh -c '{script}' sh 'a  b'");
    let outer = format!("{inner}; echo $?; exec \"$0\" farm exec --farm f no-such-program");
    let ckptd = stage.ckptd().display().to_string();
    let ended = open.call("exec", &["--", "sh", "-c", &outer, &ckptd], 127)?;
    expect(ended.out == "1 a  b\n7\n", || format!("{ended:?}"))?;
    let is_told = ended.err.contains("warning: this is within a task of f")
        && ended.err.contains("failed to run no-such-program");
    expect(is_told, || format!("{ended:?}"))?;
    // Another farm's task is one.
    let other = "exec \"$0\" farm exec --farm g --jobs 1 -- sh -c 'echo $CKPTD_FARM'";
    let ended = open.call("exec", &["--", "sh", "-c", other, &ckptd], 0)?;
    expect(ended.out.ends_with("/farms/g\n"), || format!("{ended:?}"))?;
    let tasks = stage.json(&["farm", "status", "f"])?;
    expect(tasks["right"] == 1 && tasks["failed"] == 1, || format!("{tasks}"))?;
    stage.output(&["farm", "stop", "g"], "")?.expect(0)?;
    open.end()
}
