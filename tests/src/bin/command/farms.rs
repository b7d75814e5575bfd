//! Many tasks on one machine: each ends once, whatever is killed meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ckptd_tests::account::running_as_root;
use ckptd_tests::job::Failure;
use ckptd_tests::processes;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::stage::{Finished, Running, Stage, expect, own, until};

/// Counts in memory, and tells each number and when it was begun.
const COUNT: &str = "echo begun >> begun.$1; i=0\n\
                     while [ $i -lt $2 ]; do i=$((i+1)); echo \"$1 $i\"; echo \"$i $1\" >&2; sleep 0.05; done\n";
/// Its last number: it takes about eight seconds, so that a busy machine has time to do something to it before.
pub const LAST: u32 = 160;

/// A case's run.
pub struct Farm<'a> {
    stage: &'a Stage,
    /// Where its results are.
    pub results: PathBuf,
}

impl<'a> Farm<'a> {
    /// Nothing has been begun.
    pub fn new(stage: &'a Stage) -> Result<Self, Failure> {
        own(fs::write(stage.home.join("count.sh"), COUNT))?;
        Ok(Farm { stage, results: stage.home.join("results") })
    }

    /// `ckptd farm run --name f --results RESULTS ...`
    fn arguments(&self, more: &[&str]) -> Vec<String> {
        let results = self.results.display().to_string();
        let own = ["farm", "run", "--name", "f", "--results", &results];
        own.iter().chain(more).map(|word| (*word).to_owned()).collect()
    }

    /// Begins the run.
    pub fn start(&self, more: &[&str]) -> Result<Running, Failure> {
        let arguments = self.arguments(more);
        self.stage.start(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Runs it to its end.
    pub fn run(&self, more: &[&str], status: i32) -> Result<Finished, Failure> {
        self.start(more)?.finish()?.expect(status)
    }

    /// Goes on with it to its end.
    pub fn resume(&self, more: &[&str], status: i32) -> Result<Finished, Failure> {
        let arguments = [&["farm", "run", "--resume", "f"][..], more].concat();
        self.stage.output(&arguments, "")?.expect(status)
    }

    /// A file of tasks.
    fn tasks(&self, text: &str) -> Result<&'static str, Failure> {
        own(fs::write(self.stage.home.join("tasks.txt"), text))?;
        Ok("tasks.txt")
    }

    /// What has ended, by the tasks' numbers; a task that has two results is a failure.
    pub fn results(&self) -> Result<BTreeMap<u64, Value>, Failure> {
        let text = own(fs::read_to_string(self.results.join("results.jsonl")))?;
        let mut all = BTreeMap::new();
        for line in text.lines() {
            let result: Value =
                serde_json::from_str(line).map_err(|error| Failure(format!("{error}: {line}")))?;
            let task = result["task"].as_u64().unwrap_or(0);
            expect(all.insert(task, result).is_none(), || format!("task {task} ends twice"))?;
        }
        Ok(all)
    }

    /// What is in one of the files of results.
    pub fn read(&self, name: &str) -> Result<String, Failure> {
        let path = self.results.join(name);
        fs::read_to_string(&path).map_err(|error| Failure(format!("{}: {error}", path.display())))
    }

    /// Waits until a task has written that.
    pub fn until_written(&self, name: &str, text: &str) -> Result<(), Failure> {
        until(text, || self.read(name).is_ok_and(|written| written.contains(text)))
    }

    /// Waits until the first task has had two checkpoints: then one is in the log of its job, too.
    pub fn until_kept_twice(&self) -> Result<(), Failure> {
        let folder = self.stage.home.join("state/farms/f/jobs/t1.1-1/checkpoints");
        until("there is a second checkpoint", || {
            let all = fs::read_dir(&folder).into_iter().flatten().flatten();
            { all }.any(|one| one.file_name() != "1" && one.path().join("COMMITTED").exists())
        })
    }

    /// Waits until checkpoints of so many tasks are committed.
    pub fn until_kept(&self, number: usize) -> Result<(), Failure> {
        let jobs = self.stage.home.join("state/farms/f/jobs");
        let is_kept = |job: &Path| {
            let checkpoints = fs::read_dir(job.join("checkpoints")).into_iter().flatten().flatten();
            checkpoints.into_iter().any(|checkpoint| checkpoint.path().join("COMMITTED").exists())
        };
        until("checkpoints are committed", || {
            let all = fs::read_dir(&jobs).into_iter().flatten().flatten();
            all.filter(|job| is_kept(&job.path())).count() >= number
        })
    }

    /// The counting tasks a, b and c, a checkpoint each half of a second.
    fn count(&self) -> Result<Running, Failure> {
        let last = LAST.to_string();
        let words = [
            "--jobs",
            "3",
            "--checkpoint",
            "0.5",
            "sh",
            "count.sh",
            "{}",
            &last,
            ":::",
            "a",
            "b",
            "c",
        ];
        self.start(&words)
    }

    /// All three have ended once, with the output of an undisturbed run, and were begun once.
    fn expect_counted(&self) -> Result<(), Failure> {
        let results = self.results()?;
        expect(results.len() == 3, || format!("{results:?}"))?;
        for (number, name) in (1..).zip(["a", "b", "c"]) {
            let result = &results[&number];
            expect(result["status"] == 0 && result["attempt"] == 1, || format!("{result}"))?;
            let out: String = (1..=LAST).map(|i| format!("{name} {i}\n")).collect();
            let err: String = (1..=LAST).map(|i| format!("{i} {name}\n")).collect();
            let written =
                (self.read(&format!("{number}.out"))?, self.read(&format!("{number}.err"))?);
            expect(written == (out, err), || format!("task {number} has written {written:?}"))?;
            let begun = own(fs::read_to_string(self.stage.home.join(format!("begun.{name}"))))?;
            expect(begun == "begun\n", || format!("task {number} was begun anew"))?;
        }
        let jobs = own(fs::read_dir(self.stage.home.join("state/farms/f/jobs")))?.count();
        expect(jobs == 0, || format!("{jobs} jobs are left behind"))?;
        self.stage.expect_gone()
    }

    /// How it is listed.
    pub fn state(&self) -> Result<Value, Failure> {
        let all = self.stage.json(&["farm", "ls"])?;
        Ok(all[0].clone())
    }
}

/// A thousand short ones, each with its output and one result.
pub fn short(stage: &Stage) -> Result<(), Failure> {
    let farm = Farm::new(stage)?;
    let text: String = (1..=1000).map(|i| format!("echo out {i}; echo err {i} >&2\n")).collect();
    let ended = farm.run(&["--jobs", "4", farm.tasks(&text)?], 0)?;
    expect(ended.err.contains("1000 of 1000 tasks have ended"), || format!("{ended:?}"))?;
    let results = farm.results()?;
    expect(results.len() == 1000 && results.values().all(|result| result["status"] == 0), || {
        format!("{} results", results.len())
    })?;
    for i in [1, 2, 500, 1000] {
        expect(farm.read(&format!("{i}.out"))? == format!("out {i}\n"), || format!("task {i}"))?;
        expect(farm.read(&format!("{i}.err"))? == format!("err {i}\n"), || format!("task {i}"))?;
    }
    let state = farm.state()?;
    expect(state["state"] == "ended" && state["right"] == 1000, || format!("{state}"))?;
    // There is nothing left to be done.
    farm.resume(&[], 0)?;
    expect(farm.results()?.len() == 1000, || "results have changed".to_owned())?;
    stage.expect_gone()?;
    stage.output(&["farm", "rm", "f"], "")?.expect(0)?;
    expect(!stage.home.join("state/farms/f").exists(), || "it is there still".to_owned())
}

/// Everything is killed at once, twice, with a last line that was being written.
pub fn killed(stage: &Stage) -> Result<(), Failure> {
    let farm = Farm::new(stage)?;
    let running = farm.count()?;
    farm.until_kept(3)?;
    farm.until_written("1.out", "a 20\n")?;
    processes::kill(&processes::marked(&stage.home.display().to_string()));
    running.finish()?;
    stage.expect_gone()?;
    let state = farm.state()?;
    expect(state["state"] == "interrupted" && state["right"] == 0, || format!("{state}"))?;
    let journal = stage.home.join("state/farms/f/journal");
    let before = own(fs::read_to_string(&journal))?;
    own(fs::write(&journal, before + "{\"check\":\"0123"))?;
    let again = stage.start(&["farm", "run", "--resume", "f"])?;
    farm.until_written("1.out", "a 40\n")?;
    processes::kill(&processes::marked(&stage.home.display().to_string()));
    again.finish()?;
    stage.expect_gone()?;
    farm.resume(&[], 0)?;
    let results = farm.results()?;
    expect(results.values().all(|result| result["restored"] == true), || format!("{results:?}"))?;
    farm.expect_counted()
}

/// Short tasks, with kills at many moments: each ends once, and none is run again once its end is recorded.
pub fn killed_often(stage: &Stage) -> Result<(), Failure> {
    const TASKS: u64 = 800;
    let farm = Farm::new(stage)?;
    own(fs::create_dir(stage.home.join("runs"))
        .and_then(|()| stage.account.give(&stage.home.join("runs"))))?;
    let text: String =
        (1..=TASKS).map(|i| format!("echo >> runs/{i}; sleep 0.01; echo out {i}\n")).collect();
    let times =
        |task: u64| fs::read(stage.home.join(format!("runs/{task}"))).map_or(0, |runs| runs.len());
    let mut ended: BTreeMap<u64, usize> = BTreeMap::new();
    let mut running = farm.start(&["--jobs", "4", farm.tasks(&text)?])?;
    let record = stage.home.join("state/farms/f/farm.json");
    until("the run has begun", || record.exists())?;
    let mark = stage.home.display().to_string();
    for round in 0..12u64 {
        std::thread::sleep(Duration::from_millis(60 + round * 37 % 150));
        match (round % 3, child_of(running.child.id())) {
            (1, Ok(worker)) => processes::kill(&[worker]),
            (2, _) => processes::kill(&[running.child.id() as i32]),
            _ => processes::kill(&processes::marked(&mark)),
        }
        running.finish()?;
        stage.expect_gone()?;
        // The first one may have been killed before there was anything.
        if farm.results.join("results.jsonl").exists() {
            for task in farm.results()?.into_keys() {
                let before = *ended.entry(task).or_insert_with(|| times(task));
                expect(times(task) == before, || format!("task {task} was run again"))?;
            }
        }
        running = stage.start(&["farm", "run", "--resume", "f"])?;
    }
    running.finish()?.expect(0)?;
    let results = farm.results()?;
    expect(results.len() as u64 == TASKS, || format!("{} results", results.len()))?;
    for task in 1..=TASKS {
        expect(farm.read(&format!("{task}.out"))? == format!("out {task}\n"), || {
            format!("task {task}")
        })?;
        let again = ended.get(&task).is_some_and(|before| times(task) != *before);
        expect(!again && times(task) > 0, || format!("task {task} was run {} times", times(task)))?;
    }
    stage.expect_gone()
}

/// Of ckptd's processes one alone is killed: what it leaves behind is ended, and nothing is lost.
pub fn half_killed(stage: &Stage) -> Result<(), Failure> {
    let farm = Farm::new(stage)?;
    // The one that starts tasks.
    let guard = farm.count()?;
    farm.until_kept(3)?;
    let worker = child_of(guard.child.id())?;
    processes::kill(&[worker]);
    let ended = guard.finish()?.expect(125)?;
    let said = "was ended by SIGKILL; 'ckptd farm run --resume f' goes on";
    expect(ended.err.contains(said), || format!("{ended:?}"))?;
    stage.expect_gone()?;
    // The one that looks after it.
    let guard = stage.start(&["farm", "run", "--resume", "f"])?;
    farm.until_written("1.out", "a 40\n")?;
    guard.kill()?;
    stage.expect_gone()?;
    let state = farm.state()?;
    expect(state["state"] == "interrupted", || format!("{state}"))?;
    farm.resume(&[], 0)?;
    farm.expect_counted()
}

fn child_of(pid: u32) -> Result<i32, Failure> {
    let children = own(fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")))?;
    let first = children.split_whitespace().next().and_then(|word| word.parse().ok());
    first.ok_or_else(|| Failure(format!("{pid} has no child")))
}

/// Runs one task whose end is seen by what takes its checkpoints alone; `kept`: once there is one.
pub fn end_unrecorded(
    farm: &Farm<'_>,
    words: &[&str],
    kept: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let guard = farm.start(&[&["--checkpoint", "0.5"], words].concat())?;
    farm.until_kept(1)?;
    let worker = child_of(guard.child.id())?;
    processes::stop(&[worker]);
    kept()?;
    let log = farm.stage.home.join("state/farms/f/jobs/t1.1-1/coordinator.log");
    until("the end is seen", || {
        own(fs::read_to_string(&log)).is_ok_and(|log| log.contains("\"entry\":\"ended\""))
    })?;
    processes::kill(&[worker]);
    guard.finish()?.expect(125).map(drop)
}

/// An end that was seen only by what takes checkpoints counts: the task is not run again.
pub fn unrecorded(stage: &Stage) -> Result<(), Failure> {
    let farm = Farm::new(stage)?;
    let last = LAST.to_string();
    let command = format!("sh count.sh a {last}; exit 7");
    end_unrecorded(&farm, &[farm.tasks(&command)?], || Ok(()))?;
    farm.resume(&[], 1)?;
    let results = farm.results()?;
    expect(results.len() == 1 && results[&1]["status"] == 7, || format!("{results:?}"))?;
    let begun = own(fs::read_to_string(stage.home.join("begun.a")))?;
    expect(begun == "begun\n", || "it was begun anew".to_owned())?;
    let out: String = (1..=LAST).map(|i| format!("a {i}\n")).collect();
    expect(farm.read("1.out")? == out, || "its output is another".to_owned())?;
    stage.expect_gone()
}

/// A task whose checkpoint is damaged is named, and neither lost nor begun anew until somebody wants that.
pub fn not_brought_back(stage: &Stage) -> Result<(), Failure> {
    let farm = Farm::new(stage)?;
    let last = LAST.to_string();
    let running = farm.start(&["sh", "count.sh", "{}", &last, ":::", "a"])?;
    farm.until_written("1.out", "a 10\n")?;
    running.signal(Signal::SIGINT)?;
    running.finish()?.expect(130)?;
    let job = stage.home.join("state/farms/f/jobs/t1.1-1");
    own(fs::write(job.join("checkpoints/1/graph.json"), "{}"))?;
    for _ in 0..2 {
        let refused = farm.resume(&[], 125)?;
        let said = "task 1 could not be brought back: failed to restart t1.1 from checkpoint 1";
        expect(refused.err.contains(said), || format!("{refused:?}"))?;
        expect(refused.err.contains("1 task is left"), || format!("{refused:?}"))?;
        expect(farm.results()?.is_empty(), || "it has a result".to_owned())?;
    }
    let jobs = stage.home.join("state/farms/f/jobs").display().to_string();
    stage.output(&["rm", "t1.1", "--dir", &jobs], "")?.expect(0)?;
    farm.resume(&[], 0)?;
    let out: String = (1..=LAST).map(|i| format!("a {i}\n")).collect();
    expect(farm.read("1.out")? == out, || "its output is another".to_owned())?;
    expect(farm.read("1.out.1")?.starts_with("a 1\n"), || "nothing is put aside".to_owned())?;
    let begun = own(fs::read_to_string(stage.home.join("begun.a")))?;
    expect(begun == "begun\nbegun\n", || begun.clone())?;
    stage.expect_gone()
}

/// Ctrl-C takes last checkpoints, also of tasks that had none, and says how to go on.
pub fn interrupted(stage: &Stage) -> Result<(), Failure> {
    let farm = Farm::new(stage)?;
    let last = LAST.to_string();
    let words = ["--jobs", "3", "sh", "count.sh", "{}", &last, ":::", "a", "b", "c"];
    let running = farm.start(&words)?;
    farm.until_written("1.out", "a 10\n")?;
    running.signal(Signal::SIGINT)?;
    let ended = running.finish()?.expect(130)?;
    let said = "3 tasks are left; 'ckptd farm run --resume f' goes on";
    expect(ended.err.contains(said), || format!("{ended:?}"))?;
    stage.expect_gone()?;
    let again = stage.start(&["farm", "run", "--resume", "f"])?;
    farm.until_written("1.out", "a 30\n")?;
    let twice = stage.output(&["farm", "run", "--resume", "f"], "")?.expect(125)?;
    expect(twice.err.contains("it is running"), || format!("{twice:?}"))?;
    again.signal(Signal::SIGTERM)?;
    again.finish()?.expect(143)?;
    stage.expect_gone()?;
    farm.resume(&[], 0)?;
    farm.expect_counted()
}

/// A reboot, or the end of a service, comes to all processes at once: none of the tasks is over, and each goes on from its
/// checkpoint.
pub fn stopped(stage: &Stage) -> Result<(), Failure> {
    let farm = Farm::new(stage)?;
    let running = farm.count()?;
    farm.until_kept(3)?;
    farm.until_written("1.out", "a 20\n")?;
    processes::terminate(&processes::marked(&stage.home.display().to_string()));
    running.finish()?.expect(143)?;
    stage.expect_gone()?;
    expect(farm.results()?.is_empty(), || "tasks have ended".to_owned())?;
    // Those that were brought back, too; their ends may come before all else.
    let again = stage.start(&["farm", "run", "--resume", "f"])?;
    farm.until_written("1.out", "a 40\n")?;
    let guard = i32::try_from(again.child.id()).map_err(|error| Failure(error.to_string()))?;
    let worker = child_of(again.child.id())?;
    let all = processes::marked(&stage.home.display().to_string());
    let (ckptd, tasks): (Vec<i32>, Vec<i32>) =
        all.into_iter().partition(|pid| [guard, worker].contains(pid));
    processes::terminate(&tasks);
    std::thread::sleep(Duration::from_millis(200));
    processes::terminate(&ckptd);
    again.finish()?.expect(143)?;
    expect(farm.results()?.is_empty(), || "tasks have ended".to_owned())?;
    farm.resume(&[], 0)?;
    farm.expect_counted()
}

/// Forgetting a run of which everything but its tasks was killed ends these.
pub fn removed(stage: &Stage) -> Result<(), Failure> {
    let farm = Farm::new(stage)?;
    let guard = farm.start(&["--checkpoint", "none", "sleep {}", ":::", "1000"])?;
    until("the task runs", || farm.read("1.out").is_ok())?;
    let worker = child_of(guard.child.id())?;
    let guard_pid = i32::try_from(guard.child.id()).map_err(|error| Failure(error.to_string()))?;
    processes::kill(&[guard_pid, worker]);
    guard.finish()?;
    stage.output(&["farm", "rm", "f"], "")?.expect(0)?;
    stage.expect_gone()
}

/// A name is free again where nothing came of the run.
pub fn names(stage: &Stage) -> Result<(), Failure> {
    let farm = Farm::new(stage)?;
    own(fs::create_dir_all(&farm.results))?;
    own(fs::write(farm.results.join("results.jsonl"), ""))?;
    let refused = farm.run(&["true", ":::", "1"], 125)?;
    expect(refused.err.contains("another run"), || format!("{refused:?}"))?;
    own(fs::remove_dir_all(&farm.results))?;
    let quoted = farm.run(&["echo '{}'", ":::", "1"], 2)?;
    expect(quoted.err.contains("{} is quoted already"), || format!("{quoted:?}"))?;
    // One that is killed while it reads the tasks.
    let reads = farm.start(&["-"])?;
    until("the folder is there", || stage.home.join("state/farms/f/tasks").exists())?;
    let taken = farm.run(&["true", ":::", "1"], 125)?;
    expect(taken.err.contains("there is one of that name"), || format!("{taken:?}"))?;
    reads.kill()?;
    farm.run(&["true", ":::", "1"], 0)?;
    stage.expect_gone()
}

/// Tasks that fail, each in its own way, and are tried again.
pub fn failures(stage: &Stage) -> Result<(), Failure> {
    let farm = Farm::new(stage)?;
    let tasks = "exit 3\n\
                 kill -SEGV $$\n\
                 trap '' TERM; echo on; while :; do sleep 0.05; done\n\
                 yes\n\
                 no-such-program-here\n\
                 echo try >> tries; echo out of $(wc -l < tries); test $(wc -l < tries) -ge 2\n";
    let limits = ["--jobs", "6", "--timeout", "2", "--retries", "1", "--output-limit", "1M"];
    let ended = farm.run(&[&limits[..], &[farm.tasks(tasks)?]].concat(), 5)?;
    expect(ended.err.contains("task 1 ended with status 3: exit 3"), || format!("{ended:?}"))?;
    let results = farm.results()?;
    let of = |task: u64, key: &str| {
        results.get(&task).map(|result| result[key].clone()).unwrap_or_default()
    };
    let ends: Vec<_> = (1..=6)
        .map(|task| (of(task, "outcome"), of(task, "status"), of(task, "attempt")))
        .collect();
    let expected = [
        ("exited", 3),
        ("signalled", 139),
        ("timed-out", 124),
        ("wrote-too-much", 153),
        ("exited", 127),
        ("exited", 0),
    ];
    let expected: Vec<_> = expected
        .into_iter()
        .map(|(outcome, status)| (outcome.into(), status.into(), 2.into()))
        .collect();
    expect(ends == expected, || format!("{ends:?}"))?;
    // What earlier tries have written is put aside.
    let outs = [farm.read("6.out.1")?, farm.read("6.out")?];
    expect(outs.join("") == "out of 1\nout of 2\n", || format!("{outs:?}"))?;
    stage.expect_gone()
}

/// A run that gives up, at once or once what runs has ended, goes on if somebody wants that.
pub fn halted(stage: &Stage) -> Result<(), Failure> {
    let farm = Farm::new(stage)?;
    let tasks = "sleep 0.5\nfalse\nsleep 100\necho four\necho five\necho six\n";
    let halt = ["--jobs", "2", "--halt", "soon,fail=1", farm.tasks(tasks)?];
    farm.run(&halt, 1)?;
    let ended: Vec<u64> = farm.results()?.into_keys().collect();
    expect(ended == [1, 2], || format!("{ended:?}"))?;
    // Without an end to wait for, it is the one that sleeps which is ended.
    let halt = ["--halt", "now,done=2", "--checkpoint", "none"];
    farm.resume(&halt, 1)?;
    let ended: Vec<u64> = farm.results()?.into_keys().collect();
    expect(ended == [1, 2, 4, 5], || format!("{ended:?}"))?;
    stage.expect_gone()?;
    let state = farm.state()?;
    expect(state["state"] == "interrupted" && state["failed"] == 1, || format!("{state}"))
}

/// Values take their places, however they are written; tasks come from standard input; what is wrong is said.
pub fn values(stage: &Stage) -> Result<(), Failure> {
    let farm = Farm::new(stage)?;
    own(fs::write(stage.home.join("list"), "x y\n$HOME\n"))?;
    let words = ["printf '%s|' {#} {1/.} {2}", ":::", "d/a.c", "b'\"", "::::", "list"];
    farm.run(&words, 0)?;
    let outs: Vec<String> =
        (1..=4).map(|i| farm.read(&format!("{i}.out"))).collect::<Result<_, _>>()?;
    expect(outs == ["1|a|x y|", "2|a|$HOME|", "3|b'\"|x y|", "4|b'\"|$HOME|"], || {
        format!("{outs:?}")
    })?;

    let piped = stage
        .output(&["farm", "run", "--name", "piped", "-"], "echo $0\n\n# no task\nexit 4")?
        .expect(1)?;
    expect(piped.err.contains("2 of 2 tasks have ended"), || format!("{piped:?}"))?;
    let written = own(fs::read_to_string(stage.home.join("state/farms/piped/results/1.out")))?;
    expect(written == "/bin/sh\n", || format!("{written:?}"))?;

    for (arguments, status, said) in [
        (&["farm", "run", "list", "--jobs", "2"][..], 2, "with the options before it"),
        (&["farm", "run", "--jobs", "0", "list"], 2, "--jobs"),
        (&["farm", "run", "--halt", "fail=1", "list"], 2, "now,fail=1"),
        (&["farm", "run"], 2, "required"),
        (&["farm", "run", "-"], 2, "there is no task"),
        (&["farm", "run", ":::", "a"], 125, "there is no command"),
        (&["farm", "run", "no-such-file"], 125, "no-such-file"),
        (&["farm", "run", "--name", "piped", "list"], 125, "there is one of that name"),
        (&["farm", "run", "--resume", "nobody"], 125, "there is none of that name"),
        (&["farm", "rm", "../state"], 125, "there is none of that name"),
    ] {
        let refused = stage.output(arguments, "")?.expect(status)?;
        expect(refused.err.contains(said), || format!("{refused:?}"))?;
    }
    let results = farm.results.display().to_string();
    let other = stage.output(&["farm", "run", "--results", &results, "list"], "")?.expect(125)?;
    expect(other.err.contains("there are some of another run"), || format!("{other:?}"))
}

/// Children that a task leaves behind are ended: those in its group with it, others with the run.
pub fn left_behind(stage: &Stage) -> Result<(), Failure> {
    let farm = Farm::new(stage)?;
    let tasks = "sleep 1000 & echo near\n\
                 setsid sleep 1001 < /dev/null > /dev/null 2>&1 & sleep 0.3; echo far\n\
                 (sleep 1002 &) ; setsid sh -c 'sleep 1003 & sleep 1004' &\n";
    let ended = farm.run(&[farm.tasks(tasks)?], 0)?;
    expect(ended.err.contains("that tasks had left behind"), || format!("{ended:?}"))?;
    expect(farm.results()?.len() == 3, || "a result is missing".to_owned())?;
    stage.expect_gone()
}

/// A task of which no checkpoint can be taken is none the worse for it; that is told once.
pub fn unkept(stage: &Stage) -> Result<(), Failure> {
    let farm = Farm::new(stage)?;
    let words = ["--checkpoint", "1", "sh", "count.sh", "{}", &LAST.to_string(), ":::", "a"];
    let running = farm.start(&words)?;
    farm.until_written("1.out", "a 1\n")?;
    // No job can be made there.
    own(fs::write(stage.home.join("state/farms/f/jobs"), ""))?;
    let ended = running.finish()?.expect(0)?;
    let told = ended.err.matches("warning: no checkpoint of task 1: failed to").count();
    expect(told == 1, || format!("{ended:?}"))?;
    let out: String = (1..=LAST).map(|i| format!("a {i}\n")).collect();
    expect(farm.read("1.out")? == out, || "its output is another".to_owned())?;
    stage.expect_gone()
}

/// While the disk is full nothing is begun; after that the run goes on, and nothing is lost.
pub fn full_disk(stage: &Stage) -> Result<(), Failure> {
    let farm = Farm::new(stage)?;
    let state = stage.home.join("state");
    own(fs::create_dir_all(&state).and_then(|()| stage.account.give(&state)))?;
    let (home, state) = (stage.home.display(), state.display());
    let fill = format!("cat /dev/zero > {state}/full 2> /dev/null; sleep 2; rm {state}/full\n");
    let others: String = (2..=300).map(|i| format!("sleep 0.01; echo {i}\n")).collect();
    let tasks = farm.tasks(&(fill + &others))?;
    let mount = format!(
        "mount -t tmpfs -o size=2m,mode=700 farm {state} && chown --reference={home} {state} && exec \"$@\""
    );
    let how = if running_as_root() { "-m" } else { "-Urm" };
    let unshare = ["unshare", how, "sh", "-c", &mount, "sh"];
    let arguments = farm.arguments(&["--jobs", "2", "--checkpoint", "none", tasks]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let since = Instant::now();
    let ended = stage.start_wrapped(&unshare, &arguments)?.finish()?.expect(0)?;
    let told = "no more tasks are begun until that is possible";
    expect(ended.err.contains(told), || format!("{ended:?}"))?;
    expect(ended.err.contains("results can be written again"), || format!("{ended:?}"))?;
    expect(since.elapsed() > Duration::from_secs(2), || "the disk was not full".to_owned())?;
    let results = farm.results()?;
    expect(results.len() == 300 && results.values().all(|result| result["status"] == 0), || {
        format!("{} results", results.len())
    })?;
    for i in 2..=300 {
        expect(farm.read(&format!("{i}.out"))? == format!("{i}\n"), || format!("task {i}"))?;
    }
    stage.expect_gone()
}
