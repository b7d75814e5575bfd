//! Tasks that are submitted to a farm one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use ckptd_tests::account::running_as_root;
use ckptd_tests::job::Failure;
use ckptd_tests::processes;
use nix::unistd::Uid;
use serde_json::Value;

use super::farms::{Farm, LAST};
use super::stage::{Finished, Running, Stage, expect, own, until};

/// A case's farm, which is called f.
pub struct Open<'a> {
    stage: &'a Stage,
    /// The same.
    pub farm: Farm<'a>,
}

impl<'a> Open<'a> {
    /// One that runs like that.
    pub fn start(stage: &'a Stage, options: &[&str]) -> Result<Self, Failure> {
        let mut farm = Farm::new(stage)?;
        farm.results = stage.home.join("state/farms/f/results");
        stage.output(&[&["farm", "start", "f"][..], options].concat(), "")?.expect(0)?;
        Ok(Self { stage, farm })
    }

    /// Calls a command about it.
    pub fn call(&self, command: &str, words: &[&str], status: i32) -> Result<Finished, Failure> {
        let all = [&["farm", command, "--farm", "f"][..], words].concat();
        self.stage.output(&all, "")?.expect(status)
    }

    /// Submits a task; its number.
    pub fn submit(&self, words: &[&str]) -> Result<u32, Failure> {
        number(&self.call("submit", words, 0)?)
    }

    /// How a task is.
    pub fn state(&self, task: u32) -> Result<Value, Failure> {
        self.stage.json(&["farm", "status", "--farm", "f", &task.to_string()])
    }

    /// Waits until a task runs.
    pub fn until_runs(&self, task: u32) -> Result<i32, Failure> {
        let mut pid = 0;
        until("the task runs", || {
            let state = self.state(task).unwrap_or_default();
            pid = state["pid"].as_i64().unwrap_or_default() as i32;
            state["state"] == "running"
        })?;
        Ok(pid)
    }

    /// Ends it; nothing may be left.
    pub fn end(&self) -> Result<(), Failure> {
        self.stage.output(&["farm", "stop", "f"], "")?.expect(0)?;
        self.stage.expect_gone()
    }

    /// A task that counts has ended once, with the output of an undisturbed run, and was begun once.
    pub fn expect_counted(&self, task: u32, name: &str) -> Result<(), Failure> {
        let out: String = (1..=LAST).map(|i| format!("{name} {i}\n")).collect();
        let written = self.farm.read(&format!("{task}.out"))?;
        expect(written == out, || format!("task {task} has written {written:?}"))?;
        let begun = own(fs::read_to_string(self.stage.home.join(format!("begun.{name}"))))?;
        expect(begun == "begun\n", || format!("task {task} was begun anew"))
    }
}

fn is_alive(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn number(submitted: &Finished) -> Result<u32, Failure> {
    submitted.out.trim().parse().map_err(|_| Failure(format!("no number: {submitted:?}")))
}

/// Words, environment and folder come as they were given, whatever bytes they have.
pub fn exact(stage: &Stage) -> Result<(), Failure> {
    let open = Open::start(stage, &["--jobs", "2"])?;
    let odd = OsString::from_vec(b"it's \"$HOME\"\n\xff *".to_vec());
    let folder = stage.home.join(OsString::from_vec(b"a b\xfe".to_vec()));
    own(fs::create_dir(&folder).and_then(|()| stage.account.give(&folder)))?;
    let script = "printf '%s|' \"$@\"; printf '%s|' \"$ODD\"; pwd; cat; echo to err >&2; exit 7";
    let mut command = stage.command(&["farm", "submit", "--farm", "f", "--", "sh", "-c", script]);
    command.args(["sh", "", "-n"]).arg(&odd).env("ODD", &odd).current_dir(&folder);
    let task = number(&Running::start(command)?.finish()?.expect(0)?)?;
    expect(task == 1, || format!("its number is {task}"))?;
    let waited = open.call("wait", &["1"], 7)?;
    expect(waited.out.is_empty() && waited.err.is_empty(), || format!("{waited:?}"))?;
    let mut expected = b"|-n|".to_vec();
    for _ in 0..2 {
        expected.extend_from_slice(odd.as_bytes());
        expected.push(b'|');
    }
    expected.extend_from_slice(folder.as_os_str().as_bytes());
    expected.push(b'\n');
    let written = own(fs::read(open.farm.results.join("1.out")))?;
    expect(written == expected, || String::from_utf8_lossy(&written).into_owned())?;
    let logs = open.call("logs", &["--follow", "1"], 0)?;
    expect(logs.err == "to err\n" && logs.out.contains("|-n|"), || format!("{logs:?}"))?;
    // What can't be begun has a status as of a shell, and says why.
    own(fs::write(stage.home.join("no-program"), ""))?;
    for (word, status) in [("no-such-program", 127), ("./no-program", 126)] {
        let task = open.submit(&[word])?.to_string();
        open.call("wait", &[&task], status)?;
        let logs = open.call("logs", &[&task], 0)?;
        expect(logs.err.contains("failed to begin this task"), || format!("{logs:?}"))?;
    }
    let late = open.submit(&["--timeout", "1", "sleep", "1000"])?.to_string();
    open.call("wait", &[&late], 124)?;
    let tries = open.submit(&["--retries", "1", "sh", "-c", "echo >> tries; exit 1"])?.to_string();
    open.call("wait", &[&tries], 1)?;
    let tries = own(fs::read(stage.home.join("tries")))?.len();
    expect(tries == 2, || format!("it was tried {tries} times"))?;
    open.call("wait", &[], 5)?;
    for (command, words, said) in [
        ("wait", &["6"][..], "'ckptd farm status f' shows its tasks"),
        ("logs", &["6"], "there is none"),
        ("cancel", &["1"], "'ckptd farm status --farm f 1' tells how"),
    ] {
        let refused = open.call(command, words, 125)?;
        expect(refused.err.contains(said), || format!("{refused:?}"))?;
    }
    for (words, said) in [
        (&["farm", "run", "--resume", "f"][..], "'ckptd farm start f' goes on with it"),
        (&["farm", "wait"], "'ckptd farm submit' begins it"),
        (&["farm", "rm", "f"], "it is running"),
    ] {
        let refused = stage.output(words, "")?.expect(125)?;
        expect(refused.err.contains(said), || format!("{refused:?}"))?;
    }
    let told = open.call("submit", &["--jobs", "3", "true"], 0)?;
    expect(told.err.contains("'ckptd farm start --jobs 3 f' changes that"), || {
        format!("{told:?}")
    })?;
    open.call("wait", &["6"], 0)?;
    open.end()?;
    stage.output(&["farm", "rm", "f"], "")?.expect(0).map(drop)
}

/// What waits is not begun, what runs is ended, and that is how they have ended; also where nobody runs the farm.
pub fn cancelled(stage: &Stage) -> Result<(), Failure> {
    let open = Open::start(stage, &["--jobs", "1"])?;
    let script = "trap '' TERM; echo on; sleep 1000 & wait; wait";
    open.submit(&["sh", "-c", "echo begun >> begun.1; exec sleep 1000"])?;
    for task in 2..=4 {
        open.submit(&["sh", "-c", &format!("echo begun >> begun.{task}; {script}")])?;
    }
    let pid = open.until_runs(1)?;
    open.call("cancel", &["1", "3"], 0)?;
    expect(!is_alive(pid), || "it runs still".to_owned())?;
    // One that does not care about SIGTERM.
    let pid = open.until_runs(2)?;
    open.farm.until_written("2.out", "on")?;
    stage.output(&["farm", "start", "--jobs", "2", "f"], "")?.expect(0)?;
    open.until_runs(4)?;
    open.call("cancel", &["2"], 0)?;
    expect(!is_alive(pid), || "it runs still".to_owned())?;
    open.call("wait", &["3"], 143)?;
    processes::kill(&processes::marked(&stage.home.display().to_string()));
    stage.expect_gone()?;
    let idle = open.call("wait", &[], 125)?;
    expect(idle.err.contains("task 4 of f: nobody runs it"), || format!("{idle:?}"))?;
    open.call("cancel", &["4"], 0)?;
    open.call("wait", &[], 4)?;
    let results = open.farm.results()?;
    expect(
        results.len() == 4
            && results.values().all(|end| end["outcome"] == "cancelled" && end["status"] == 143),
        || format!("{results:?}"),
    )?;
    expect(!stage.home.join("begun.3").exists(), || "it was begun".to_owned())?;
    open.end()
}

/// What has failed or was cancelled is run again, and nothing else.
pub fn retried(stage: &Stage) -> Result<(), Failure> {
    let open = Open::start(stage, &["--jobs", "2"])?;
    open.submit(&["sh", "-c", "echo try >> tries; test $(wc -l < tries) -ge 3"])?;
    open.submit(&["true"])?;
    open.call("wait", &["1"], 1)?;
    open.call("retry", &["1"], 0)?;
    open.call("wait", &["1"], 1)?;
    let state = open.state(1)?;
    expect(state["attempt"] == 2, || format!("{state}"))?;
    // Where nobody runs the farm, it goes on with that.
    open.end()?;
    open.call("retry", &["1"], 0)?;
    open.call("wait", &[], 0)?;
    let state = open.state(1)?;
    expect(state["attempt"] == 3 && state["status"] == 0, || format!("{state}"))?;
    let refused = open.call("retry", &["1", "2"], 125)?;
    expect(refused.err.matches("it has ended with status 0").count() == 2, || {
        format!("{refused:?}")
    })?;
    let long = open.submit(&["sleep", "1000"])?.to_string();
    open.call("cancel", &[&long], 0)?;
    open.call("retry", &[&long], 0)?;
    open.until_runs(3)?;
    open.call("cancel", &[&long], 0)?;
    open.call("wait", &[], 1)?;
    open.end()?;
    // Once the farm has begun again, each has one result.
    stage.output(&["farm", "start", "f"], "")?.expect(0)?;
    let results = open.farm.results()?;
    expect(results.len() == 3 && results[&1]["attempt"] == 3, || format!("{results:?}"))?;
    open.end()
}

/// Everything is killed: the next submit goes on, long tasks from their checkpoints, and what has ended is not run again.
pub fn killed(stage: &Stage) -> Result<(), Failure> {
    let open = Open::start(stage, &["--jobs", "4", "--checkpoint", "0.5"])?;
    let last = LAST.to_string();
    for name in ["a", "b"] {
        open.submit(&["sh", "count.sh", name, &last])?;
    }
    for _ in 0..10 {
        open.submit(&["sh", "-c", "echo >> runs; exit 1"])?;
    }
    open.farm.until_kept(2)?;
    open.farm.until_written("1.out", "a 20\n")?;
    for round in 0..2 {
        processes::kill(&processes::marked(&stage.home.display().to_string()));
        stage.expect_gone()?;
        let state = open.state(1)?;
        expect(state["state"] == "queued", || format!("{state}"))?;
        let task = open.submit(&["sh", "-c", "echo >> runs; exit 1"])?;
        expect(task == 13 + round, || format!("its number is {task}"))?;
        open.farm.until_written("1.out", &format!("a {}\n", 40 + 20 * round))?;
    }
    open.call("wait", &["1", "2"], 0)?;
    open.call("wait", &[], 12)?;
    open.expect_counted(1, "a")?;
    open.expect_counted(2, "b")?;
    let runs = own(fs::read(stage.home.join("runs")))?.len();
    expect(runs == 12, || format!("{runs} runs of 12 tasks"))?;
    expect(open.state(1)?["restored"] == true, || "it was not brought back".to_owned())?;
    expect(open.farm.results()?.len() == 14, || "a result is missing".to_owned())?;
    open.end()
}

/// How often all is killed while tasks are submitted.
const LEAST_ROUNDS: u64 = 14;
const MOST_ROUNDS: u64 = 200;
/// How many of them somebody was told of by then.
const ENOUGH: usize = 50;

/// Kills at many moments while tasks are submitted, of everything or of the farm alone: each that was told of ends once, and
/// none is run again once its end is recorded.
pub fn killed_often(stage: &Stage) -> Result<(), Failure> {
    let open = Open::start(stage, &["--jobs", "4", "--idle", "0.1"])?;
    let runs = stage.home.join("runs");
    own(fs::create_dir(&runs).and_then(|()| stage.account.give(&runs)))?;
    let times = |task: u64| fs::read(runs.join(task.to_string())).map_or(0, |runs| runs.len());
    let script = "while :; do $0 farm submit --farm f sh -c 'echo >> runs/$CKPTD_FARM_TASK; sleep 0.02'; done";
    let ckptd = stage.ckptd().display().to_string();
    let mark = stage.home.display().to_string();
    let mut told: BTreeSet<u64> = BTreeSet::new();
    let mut ended: BTreeMap<u64, usize> = BTreeMap::new();
    for round in 0..MOST_ROUNDS {
        // A slow machine takes more of them for as many.
        if round >= LEAST_ROUNDS && told.len() > ENOUGH {
            break;
        }
        let mut command = stage.alone(&["sh", "-c", script, &ckptd]);
        command.current_dir(&stage.home).env("CKPTD_DIR", stage.home.join("state"));
        let submits = Running::start(command)?;
        std::thread::sleep(Duration::from_millis(150 + round * 67 % 250));
        if round % 2 == 1 {
            let is_farm = |pid: &i32| {
                fs::read(format!("/proc/{pid}/cmdline"))
                    .is_ok_and(|line| line.starts_with(b"ckptd\0farm\0"))
            };
            let farm = processes::marked(&mark).into_iter().filter(is_farm);
            processes::kill(&farm.collect::<Vec<_>>());
            std::thread::sleep(Duration::from_millis(200));
        }
        processes::kill(&processes::marked(&mark));
        for line in submits.finish()?.out.lines() {
            let task = line.parse().map_err(|_| Failure(format!("no number: {line:?}")))?;
            expect(told.insert(task), || format!("two tasks have the number {task}"))?;
        }
        stage.expect_gone()?;
        if open.farm.results.join("results.jsonl").exists() {
            for task in open.farm.results()?.into_keys() {
                let before = *ended.entry(task).or_insert_with(|| times(task));
                expect(times(task) == before, || format!("task {task} was run again"))?;
            }
        }
    }
    let last = u64::from(open.submit(&["true"])?);
    open.call("wait", &[], 0)?;
    let results = open.farm.results()?;
    expect(results.len() as u64 == last && told.len() > ENOUGH, || {
        format!("{} results of {last}, {} were told of", results.len(), told.len())
    })?;
    for task in told {
        let again = ended.get(&task).is_some_and(|before| times(task) != *before);
        expect(!again && times(task) > 0, || format!("task {task} was run {} times", times(task)))?;
    }
    open.end()
}

/// A stop takes last checkpoints, and nothing runs until somebody wants it.
pub fn stopped(stage: &Stage) -> Result<(), Failure> {
    let open = Open::start(stage, &["--jobs", "1"])?;
    let idle = stage.output(&["farm", "stop", "f"], "")?.expect(0)?;
    expect(idle.err.is_empty(), || format!("{idle:?}"))?;
    // Nobody waits for what is open in the shell that begins it.
    let script = "exec 9> lock; flock -n 9 && \"$0\" farm start f && exec 9>&-; flock -n lock true";
    let ckptd = stage.ckptd().display().to_string();
    let mut command = stage.alone(&["sh", "-c", script, &ckptd]);
    command.current_dir(&stage.home).env("CKPTD_DIR", stage.home.join("state"));
    Running::start(command)?.finish()?.expect(0)?;
    open.submit(&["sh", "count.sh", "a", &LAST.to_string()])?;
    open.submit(&["sh", "-c", "exit 3"])?;
    open.farm.until_written("1.out", "a 10\n")?;
    open.end()?;
    let again = stage.output(&["farm", "stop", "f"], "")?.expect(0)?;
    expect(again.err.contains("is not running"), || format!("{again:?}"))?;
    let state = stage.json(&["farm", "status", "f"])?;
    let stands = (&state["state"], &state["queued"], &state["running"]);
    expect(stands == (&"interrupted".into(), &2.into(), &0.into()), || format!("{state}"))?;
    stage.output(&["farm", "start", "f"], "")?.expect(0)?;
    // What is cut back when it is brought back is seen again by who reads on.
    open.farm.until_written("1.out", "a 40\n")?;
    let follows = stage.start(&["farm", "logs", "--farm", "f", "-f", "1"])?;
    open.call("wait", &[], 1)?;
    open.expect_counted(1, "a")?;
    let out: String = (1..=LAST).map(|i| format!("a {i}\n")).collect();
    let followed = follows.finish()?.expect(0)?;
    expect(followed.out == out, || format!("{followed:?}"))?;
    open.end()
}

/// Many at once, of which one begins the farm: each has a number of its own, and ends once.
pub fn at_once(stage: &Stage) -> Result<(), Failure> {
    const PROCESSES: u32 = 40;
    const EACH: u32 = 5;
    let ckptd = stage.ckptd().display().to_string();
    let script = format!(
        "i=0; while [ $i -lt {EACH} ]; do i=$((i+1)); \
         {ckptd} farm submit --farm f --jobs 4 -- sh -c 'echo >> runs.$1' sh $1.$i || exit; done"
    );
    let all: Vec<Running> = (0..PROCESSES)
        .map(|process| {
            let mut command = stage.alone(&["sh", "-c", &script, "sh", &process.to_string()]);
            command.current_dir(&stage.home).env("CKPTD_DIR", stage.home.join("state"));
            Running::start(command)
        })
        .collect::<Result<_, _>>()?;
    let mut numbers: Vec<u32> = Vec::new();
    for running in all {
        let ended = running.finish()?.expect(0)?;
        expect(ended.err.is_empty(), || format!("{ended:?}"))?;
        numbers.extend(ended.out.lines().filter_map(|line| line.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    let expected: Vec<u32> = (1..=PROCESSES * EACH).collect();
    expect(numbers == expected, || format!("{numbers:?}"))?;
    let mut farm = Farm::new(stage)?;
    farm.results = stage.home.join("state/farms/f/results");
    let open = Open { stage, farm };
    open.call("wait", &[], 0)?;
    let runs = own(fs::read_dir(&stage.home))?.flatten();
    let runs = runs.filter(|entry| entry.file_name().as_bytes().starts_with(b"runs."));
    let lengths: Vec<u64> =
        runs.map(|entry| entry.metadata().map_or(0, |file| file.len())).collect();
    expect(lengths.len() == expected.len() && lengths.iter().all(|length| *length == 1), || {
        format!("{lengths:?}")
    })?;
    open.end()
}

/// A farm that ends for want of tasks: whatever the moment is, one that is submitted then is run.
pub fn at_the_end(stage: &Stage) -> Result<(), Failure> {
    let open = Open::start(stage, &["--jobs", "2", "--idle", "0.05"])?;
    until("nobody runs it", || open.farm.state().is_ok_and(|state| state["state"] == "ended"))?;
    for round in 1..=40u64 {
        let task = open.submit(&["sh", "-c", "echo >> runs"])?;
        expect(u64::from(task) == round, || format!("its number is {task}"))?;
        open.call("wait", &[&task.to_string()], 0)?;
        std::thread::sleep(Duration::from_millis(20 + round * 7 % 60));
    }
    let runs = own(fs::read(stage.home.join("runs")))?.len();
    expect(runs == 40, || format!("{runs} runs of 40 tasks"))?;
    stage.expect_gone()?;
    let log = own(fs::read_to_string(stage.home.join("state/farms/f/log")))?;
    expect(log.is_empty(), || log)
}

/// A farm whose folder somebody has removed ends, and its tasks with it.
pub fn removed(stage: &Stage) -> Result<(), Failure> {
    let open = Open::start(stage, &[])?;
    let task = open.submit(&["sleep", "1000"])?;
    open.until_runs(task)?;
    let ends = open.submit(&["sleep", "1"])?;
    open.until_runs(ends)?;
    own(fs::remove_dir_all(stage.home.join("state/farms/f")))?;
    stage.expect_gone()
}

/// Another user can't reach the farm, even if the socket's mode and its folder's let it.
pub fn by_another(stage: &Stage) -> Result<(), Failure> {
    let open = Open::start(stage, &[])?;
    let folder = stage.home.join("state/farms/f");
    let mode = |path: &Path| own(fs::metadata(path)).map(|found| found.permissions().mode());
    for (name, expected) in [("", 0o700), ("socket", 0o600), ("tasks", 0o600), ("index", 0o600)] {
        let found = mode(&folder.join(name))? & 0o777;
        expect(found == expected, || format!("the mode of {name:?} is {found:o}"))?;
    }
    open.submit(&["true"])?;
    for environment in own(fs::read_dir(folder.join("environments")))?.flatten() {
        let found = mode(&environment.path())? & 0o777;
        expect(found == 0o600, || format!("the mode of an environment is {found:o}"))?;
    }
    if running_as_root() {
        own(fs::set_permissions(&folder, fs::Permissions::from_mode(0o711)))?;
        let socket = folder.join("socket");
        own(fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)))?;
        // Whatever is above it.
        let opened = fs::File::options().read(true).custom_flags(nix::libc::O_PATH).open(&folder);
        let opened = own(opened)?;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&opened);
        let path = format!("/proc/self/fd/{fd}/socket");
        let ask = |uid: Uid| -> std::io::Result<String> {
            nix::unistd::seteuid(uid)?;
            let asked = UnixStream::connect(&path).and_then(|mut stream| {
                std::io::Write::write_all(&mut stream, b"{\"status\":{}}\n")?;
                let mut answer = String::new();
                BufReader::new(stream).read_line(&mut answer)?;
                Ok(answer)
            });
            nix::unistd::seteuid(Uid::from_raw(0))?;
            asked
        };
        let other = ask(Uid::from_raw(54_321));
        expect(!other.as_ref().is_ok_and(|answer| !answer.is_empty()), || format!("{other:?}"))?;
        let owner =
            own(fs::metadata(&folder)).map(|found| std::os::unix::fs::MetadataExt::uid(&found))?;
        let answered = own(ask(Uid::from_raw(owner)))?;
        expect(answered.contains("\"running\""), || answered.clone())?;
    }
    open.end()
}
