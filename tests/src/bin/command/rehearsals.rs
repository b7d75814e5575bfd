//! Restarts that are rehearsed while the job runs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use ckptd_tests::job::Failure;
use serde_json::Value;

use super::stage::{JOB, Running, Stage, expect, own, until};

/// A job that goes on appending to a locked file that stays where it is, and to one in its session directory, reads another,
/// and has a byte in a FIFO.
struct Live<'a> {
    stage: &'a Stage,
    running: Running,
    written: PathBuf,
    read: PathBuf,
}

impl<'a> Live<'a> {
    fn new(stage: &'a Stage, options: &[&str]) -> Result<Live<'a>, Failure> {
        let folder = stage.outside.path();
        let (written, read) = (folder.join("written"), folder.join("read"));
        own(fs::write(&read, "first\nsecond\n"))?;
        let script = format!(
            "mkfifo fifo; exec 4>>kept 5>>{} 6<{} 7<>fifo; flock 5; echo byte >&7; read line <&6; echo $line; n=0; \
             while [ ! -e go ]; do n=$((n+1)); echo $n >&5; echo $n >&4; sleep 0.02; done; \
             read byte <&7; read line <&6; echo $byte $line $n",
            written.display(),
            read.display()
        );
        let mut arguments = vec!["run", "--interval", "0", "--name", JOB];
        arguments.extend_from_slice(options);
        arguments.extend(["--", "sh", "-c", &script]);
        let mut running = stage.start(&arguments)?;
        stage.until_up(&mut running)?;
        running.wait_for("first")?;
        Ok(Live { stage, running, written, read })
    }

    /// It must have come to its end as if nothing had been.
    fn finish(self) -> Result<String, Failure> {
        own(fs::write(self.stage.home.join("go"), ""))?;
        let ended = self.running.finish()?.expect(0)?;
        let last = ended.out.lines().last().unwrap_or_default().to_owned();
        let number: u32 = last.rsplit(' ').next().and_then(|n| n.parse().ok()).unwrap_or_default();
        expect(number > 0 && last.starts_with("byte second "), || format!("{ended:?}"))?;
        let wanted: String = (1..=number).map(|n| format!("{n}\n")).collect();
        for path in [&self.written, &self.stage.home.join("kept")] {
            let text = own(fs::read_to_string(path))?;
            expect(text == wanted, || format!("{} is {text:?}", path.display()))?;
        }
        self.stage.expect_gone()?;
        Ok(ended.err)
    }
}

/// Which file each name below a folder is.
fn files(folder: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.path().symlink_metadata() else { continue };
        if metadata.is_dir() {
            found.extend(files(&entry.path()));
        }
        found.insert(entry.path(), metadata.ino());
    }
    found
}

/// What a rehearsal could leave behind beside processes: files, mounts.
fn traces(stage: &Stage) -> (BTreeMap<PathBuf, u64>, String) {
    let mut all = files(&stage.home);
    all.extend(files(stage.outside.path()));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    (all, mounts)
}

fn one(list: &Value) -> &Value {
    list.as_array().and_then(|all| all.first()).unwrap_or(&Value::Null)
}

/// Several in a row, while the job goes on; none leaves anything.
pub fn leave_no_trace(stage: &Stage) -> Result<(), Failure> {
    let live = Live::new(stage, &[])?;
    let number = stage.checkpoint()?;
    let before = traces(stage);
    let processes = stage.processes();
    for _ in 0..3 {
        let rehearsed = stage.output(&["verify", JOB, "--rehearse"], "")?.expect(0)?;
        let line = format!("checkpoint {number} can be restored: ");
        let right = rehearsed.out.starts_with(&line) && rehearsed.out.lines().count() == 1;
        expect(right && rehearsed.err.is_empty(), || format!("{rehearsed:?}"))?;
    }
    let verdicts = stage.json(&["verify", &format!("{JOB}@{number}"), "--rehearse"])?;
    let verdict = one(&verdicts);
    let right = verdict["verdict"] == "restorable"
        && verdict["checkpoint"] == number
        && verdict["processes"].as_u64() > Some(0);
    expect(right, || format!("{verdicts}"))?;
    for patience in [2, 10, 30, 60, 100] {
        let interrupted = stage.start(&["verify", JOB, "--rehearse"])?;
        std::thread::sleep(Duration::from_millis(patience));
        interrupted.kill()?;
    }
    // The job's own sleep(1) comes and goes.
    until("no more processes than before", || stage.processes() <= processes)?;
    let after = traces(stage);
    expect(before.0 == after.0, || format!("files: {:?}, now {:?}", before.0, after.0))?;
    expect(before.1 == after.1, || format!("mounts:\n{}\nnow\n{}", before.1, after.1))?;
    live.finish().map(drop)
}

/// What a restart would refuse, the rehearsal tells in the same words.
pub fn tell_what_fails(stage: &Stage) -> Result<(), Failure> {
    let live = Live::new(stage, &[])?;
    stage.checkpoint()?;
    let aside = live.read.with_extension("aside");
    own(fs::rename(&live.read, &aside))?;
    let rehearsed = stage.output(&["verify", JOB, "--rehearse"], "")?.expect(125)?;
    let verdicts = stage.output(&["verify", JOB, "--rehearse", "--json"], "")?.expect(125)?;
    let cause = |text: &str| text.split_once("checkpoint 1: ").map(|(_, cause)| cause.to_owned());
    let told = cause(&rehearsed.err);
    let one_line = rehearsed.err.lines().count() == 1 && rehearsed.out.is_empty();
    expect(told.is_some() && one_line, || format!("{rehearsed:?}"))?;
    let json: Value = serde_json::from_str(&verdicts.out).unwrap_or_default();
    let reason = one(&json)["reason"].as_str().map(|reason| format!("{reason}\n"));
    let right = one(&json)["verdict"] == "failed" && reason == told;
    expect(right, || format!("{verdicts:?} is not {told:?}"))?;
    stage.output(&["verify", "j@7", "--rehearse"], "")?.expect(125)?;
    let without = stage.wrapped(&["env", "CKPTD_NAMESPACES=none"], &["verify", JOB, "--rehearse"]);
    let refused = own({ without }.output())?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    let right = refused.status.code() == Some(125) && said.contains("can't be rehearsed here: ");
    expect(right, || said.clone())?;
    live.running.kill()?;
    stage.expect_gone()?;
    let restart = stage.output(&["restart", JOB], "")?.expect(125)?;
    expect(cause(&restart.err) == told, || format!("{restart:?} is not {told:?}"))
}

/// After every second checkpoint; a failure is said at once, and once.
pub fn of_a_job_that_runs(stage: &Stage) -> Result<(), Failure> {
    let live = Live::new(stage, &["--rehearse", "2"])?;
    let rehearsal =
        || stage.json(&["status", JOB]).map(|status| status["live"]["rehearsal"].clone());
    stage.checkpoint()?;
    expect(rehearsal()?.is_null(), || "the first checkpoint was rehearsed".into())?;
    stage.checkpoint()?;
    until("checkpoint 2 is rehearsed", || {
        rehearsal().is_ok_and(|r| r["outcome"]["restorable"]["processes"].as_u64() > Some(0))
    })?;
    expect(rehearsal()?["checkpoint"] == 2, || "another checkpoint was rehearsed".into())?;
    let over = AtomicBool::new(false);
    let read = &live.read;
    // Whenever the rehearsal looks at it, it is a newer file than at the checkpoint.
    let failed = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                let touched = fs::File::options().append(true).open(read);
                let _ = touched.and_then(|file| file.set_modified(SystemTime::now()));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let failed = (0..4).try_for_each(|_| stage.checkpoint().map(drop)).and_then(|()| {
            until("a rehearsal fails", || {
                rehearsal().is_ok_and(|r| r["outcome"]["failed"].is_string())
            })
        });
        over.store(true, Relaxed);
        failed
    });
    failed?;
    let status = stage.output(&["status", JOB], "")?.expect(0)?;
    expect(status.out.contains("would fail: "), || format!("{status:?}"))?;
    let log = own(fs::read_to_string(stage.log()?))?;
    let said = live.finish()?;
    let words = "is committed, but a restart from it would fail: ";
    expect(said.matches(words).count() == 1 && said.contains("was modified"), || said.clone())?;
    let right = log.contains("checkpoint 2 can be restored: ") && log.contains(words);
    expect(right, || log.clone())
}
