//! Between checkpoints, a job is as it would be without ckptd.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use ckptd_tests::job::Failure;
use ckptd_tests::processes;

use super::stage::{JOB, Stage, expect, own};

/// For how long nothing may happen in the job.
const QUIET: Duration = Duration::from_secs(2);

/// The threads of a process, its descriptors, and its mappings.
#[derive(Debug, PartialEq, Eq)]
struct Contents {
    threads: Vec<String>,
    descriptors: BTreeMap<String, String>,
    mappings: String,
}

impl Contents {
    fn of(pid: i32) -> Result<Contents, Failure> {
        let mut threads = names(&format!("/proc/{pid}/task"))?;
        threads.sort();
        let folder = format!("/proc/{pid}/fd");
        let target = |name: String| -> Result<(String, String), Failure> {
            let target = own(fs::read_link(format!("{folder}/{name}")))?;
            Ok((name, target.display().to_string()))
        };
        let descriptors = names(&folder)?.into_iter().map(target).collect::<Result<_, _>>()?;
        let mappings = own(fs::read_to_string(format!("/proc/{pid}/maps")))?;
        Ok(Contents { threads, descriptors, mappings })
    }
}

fn names(folder: &str) -> Result<Vec<String>, Failure> {
    let name = |entry: std::io::Result<fs::DirEntry>| {
        own(entry).map(|entry| entry.file_name().to_string_lossy().into_owned())
    };
    own(fs::read_dir(folder))?.map(name).collect()
}

/// How often a process has been given a processor, and who traces it.
fn activity(pid: i32) -> Result<Vec<String>, Failure> {
    let status = own(fs::read_to_string(format!("/proc/{pid}/status")))?;
    let counts = |line: &&str| line.contains("_ctxt_switches:") || line.starts_with("TracerPid:");
    Ok(status.lines().filter(counts).map(str::to_owned).collect())
}

/// Whether a process is in `nanosleep`: one that has just been started opens files and makes mappings still.
fn is_asleep(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|place| place.contains("nanosleep"))
}

/// All that is in the PID namespace of a process.
fn beside(pid: i32) -> Result<Vec<i32>, Failure> {
    let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid"));
    let wanted = own(namespace(pid))?;
    let all = names("/proc")?.into_iter().filter_map(|name| name.parse().ok());
    Ok(all.filter(|pid| namespace(*pid).is_ok_and(|found| found == wanted)).collect())
}

/// After a checkpoint, processes have what they had before, nobody traces them, and nothing runs in the job: neither in its
/// processes nor in what ckptd has put beside them.
pub fn between_checkpoints(stage: &Stage) -> Result<(), Failure> {
    let running = stage.run(&["sh", "-c", "sleep 1000; true"])?;
    super::stage::until("it sleeps", || stage.find("sleep").is_some_and(is_asleep))?;
    let sleeps = stage.find("sleep").unwrap_or_default();
    let inside = beside(sleeps)?;
    let own_processes: Vec<i32> = processes::marked(&stage.home.display().to_string())
        .into_iter()
        .filter(|pid| {
            inside.contains(pid)
                && fs::read_to_string(format!("/proc/{pid}/comm"))
                    .is_ok_and(|comm| matches!(comm.trim(), "sh" | "sleep"))
        })
        .collect();
    expect(own_processes.len() == 2, || format!("not a shell and what it waits for: {inside:?}"))?;
    let contents = || own_processes.iter().map(|pid| Contents::of(*pid)).collect();
    let before: Vec<Contents> = contents()?;
    for _ in 0..2 {
        stage.checkpoint()?;
        let after: Result<Vec<Contents>, Failure> = contents();
        let after = after?;
        expect(after == before, || format!("before: {before:#?}\nafter: {after:#?}"))?;
        let activities =
            || inside.iter().map(|pid| activity(*pid)).collect::<Result<Vec<_>, Failure>>();
        let since = activities()?;
        std::thread::sleep(QUIET);
        let now = activities()?;
        expect(now == since, || {
            format!("something ran: {since:?}, then {now:?}\n{}", processes::describe(&inside))
        })?;
        let is_traced = now
            .iter()
            .flatten()
            .any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"));
        expect(!is_traced, || format!("somebody traces it: {now:?}"))?;
    }
    stage.output(&["stop", JOB], "")?.expect(0)?;
    running.finish()?;
    stage.expect_gone()
}
