//! Commands about a job that runs on the cluster: signals to those who stand for it, and what they show of it.

use nix::sys::signal::Signal;
use serde_json::Value;

use super::open_mpi::end;
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::Ckptd;
use crate::cluster::wait::until;
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "commands",
        about: "signals reach a job through its launcher, before and after a loss, and through attach; logs, verify, \
                inspect, report and top tell of it what is true",
        run: commands,
    },
    Case {
        name: "brief-jobs",
        about: "of jobs that end while a checkpoint is taken nothing is left on any machine",
        run: brief_jobs,
    },
];

const SCRIPT: &str = "for name in USR1 USR2 ALRM; do trap \"echo got $name\" $name; done; echo started; \
                      until [ -e /mnt/shared/end ]; do echo tick; sleep 0.2; done; echo all done";

/// What a node without any image says, and one with the newest.
fn verify_and_inspect(ckptd: &Ckptd) -> Result<(), Failure> {
    let status = ckptd.ckptd(2, &["status", "told", "--json"])?;
    let status: Value =
        serde_json::from_str(&status.stdout).map_err(|e| Failure(format!("{e}: {status:?}")))?;
    let newest = &status["checkpoints"].as_array().and_then(|all| all.last());
    let newest = newest.ok_or_else(|| Failure(format!("no checkpoint: {status}")))?;
    let which = format!("told@{}", newest["checkpoint"]);
    let holders = newest["images"][0]["holders"].as_array().cloned().unwrap_or_default();
    check(holders.len() == 2, || format!("two copies: {newest}"))?;
    for number in 1..=3 {
        let name = format!("node{number}");
        let verified = ckptd.ckptd(number, &["verify", &which])?;
        let inspected = ckptd.ckptd(number, &["inspect", &which])?;
        let both = format!("{name}: {verified:?}, {inspected:?}");
        if holders.contains(&Value::from(name)) {
            let whole = verified.status == 0 && verified.stdout.contains(": whole: ");
            check(whole, || both.clone())?;
            let shown = inspected.status == 0 && inspected.stdout.contains("bash");
            check(shown, || both.clone())?;
        } else {
            let first = holders[0].as_str().unwrap_or_default();
            for said in [&verified, &inspected] {
                let words = ["ckptd: failed to ", "none of its images is on this machine", first];
                let told = words.iter().all(|word| said.stderr.contains(word));
                check(said.status == 125 && told, || both.clone())?;
            }
        }
    }
    Ok(())
}

fn commands(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    // The job begins on node1. The only checkpoint is the one that is looked at.
    let mut job = ckptd.run(0, "told", &["--interval", "0"], &["bash", "-c", SCRIPT])?;
    job.wait_for_output("started", LIMIT)?;
    job.launcher().signal(Signal::SIGUSR1)?;
    job.wait_for_output("got USR1", LIMIT)?;
    job.checkpoint()?;
    verify_and_inspect(&ckptd)?;
    let mut followed = ckptd.node(2).spawn(&["ckptd", "logs", "-f", "told"], &[])?;
    followed.wait_for_output("got USR1", LIMIT)?;
    ckptd.kill_node(1)?;
    job.wait_for_rollback(1, LIMIT)?;
    job.launcher().signal(Signal::SIGUSR2)?;
    job.wait_for_output("got USR2", LIMIT)?;
    let mut attached = ckptd.node(2).spawn(&["ckptd", "attach", "told"], &[])?;
    attached.wait_for_output("tick", LIMIT)?;
    attached.signal(Signal::SIGALRM)?;
    attached.wait_for_output("got ALRM", LIMIT)?;
    let report = ckptd.ckptd(2, &["report", "told", "-"])?;
    let phases = ["noticed", "planned", "fetched", "restored", "running"];
    let has_all = phases.iter().all(|phase| report.stdout.contains(&format!(">{phase}</text>")));
    check(has_all && report.stdout.contains("node1 was lost; the job went on"), || {
        format!("{report:?}")
    })?;
    // The loss is as long as it was, and nothing is unknown of a job that nobody has restarted.
    let is_drawn = report.stdout.contains("<title>node1 lost: ")
        && !report.stdout.contains("node1 lost: 0 ms")
        && !report.stdout.contains("connections made: 0 ms")
        && !report.stdout.contains("class=\"unknown\"");
    check(is_drawn, || format!("{report:?}"))?;
    let top = ckptd.ckptd(2, &["top"])?;
    let moved = top.stdout.lines().find(|line| line.contains("moved: lost (node1)"));
    check(moved.is_some_and(|line| line.contains(" s ago")), || format!("{top:?}"))?;
    followed.wait_for_output("got ALRM", LIMIT)?;
    end(&ckptd)?;
    job.must_end_with("all done", JOB_LIMIT)?;
    followed.wait_for_output("all done", LIMIT)?;
    let log = ckptd.ckptd(2, &["logs", "told"])?.stdout;
    let at = |word: &str| log.find(word);
    let words = ["started", "got USR1", "got USR2", "got ALRM", "all done"].map(at);
    check(words.is_sorted() && words[0].is_some(), || format!("{words:?} in {log}"))?;
    times(&ckptd, &log)
}

/// A file has all that a job writes, though nobody waits for the job.
fn output_file(ckptd: &Ckptd) -> Result<(), Failure> {
    let run = ["run", "--detach", "--name", "apart", "--output", "/tmp/apart"];
    let script = ["--", "sh", "-c", "echo one; echo bad >&2; sleep 1; echo two; exit 3"];
    let begun = ckptd.ckptd(2, &[&run[..], &script].concat())?;
    check(begun.status == 0 && begun.stdout == "apart\n", || format!("{begun:?}"))?;
    let whole = "one\nbad\ntwo\n";
    let mut seen = (String::new(), String::new());
    let alike = until("the file is like the log", LIMIT, || {
        let log = ckptd.ckptd(2, &["logs", "apart"])?.stdout;
        let file = ckptd.node(2).run(&["cat", "/tmp/apart"], &[])?.stdout;
        seen = (log, file);
        Ok((seen.0 == whole && seen.1 == whole).then_some(()))
    });
    alike.map_err(|failure| Failure(format!("{failure}: {seen:?}")))?;
    // It has ended by itself, and the other one here, too; not long ago.
    let none = ckptd.ckptd(2, &["rm", "--ended", "--older", "1h"])?;
    check(none.status == 0 && none.stdout.is_empty(), || format!("{none:?}"))?;
    // Whoever copied it has ended with the job.
    until("the copy ends", LIMIT, || {
        let left = ckptd.node(2).run(&["pgrep", "-f", "copy-output"], &[])?;
        Ok(left.stdout.is_empty().then_some(()))
    })
}

/// When it was written, from a member that is not the coordinator's machine: of the same log, and of no other bytes.
fn times(ckptd: &Ckptd, log: &str) -> Result<(), Failure> {
    let timed = ckptd.ckptd(2, &["logs", "--time", "told"])?;
    let lines: Vec<(&str, &str)> =
        timed.stdout.lines().filter_map(|line| line.split_at_checked(33)).collect();
    let plain: String = lines.iter().flat_map(|(_, text)| [*text, "\n"]).collect();
    // A mark has a line of its own, which it may have to begin.
    let is_known = |head: &str, text: &str| match text.starts_with("[ckptd: ") || text.is_empty() {
        true => head.ends_with("Z  ckptd  "),
        false => head.ends_with("Z  out    ") || head.ends_with("Z  err    "),
    };
    check(plain == log, || format!("{timed:?} is not {log:?}"))?;
    check(lines.iter().all(|(head, text)| is_known(head, text)), || format!("{timed:?}"))?;
    check(lines.iter().map(|(head, _)| head.get(..23)).is_sorted(), || format!("{timed:?}"))?;
    let last = lines.last().and_then(|(head, _)| head.get(..24)).unwrap_or_default();
    let newest = ckptd.ckptd(2, &["logs", "--since", last, "told"])?.stdout;
    let is_part = log.ends_with(&newest) && newest.contains("all done") && newest.len() < log.len();
    check(is_part, || format!("since {last}: {newest:?} of {log:?}"))?;
    output_file(ckptd)?;
    let refused = ckptd.ckptd(2, &["logs", "--rank", "0", "told"])?;
    let says = refused.stderr.contains("'mpirun --tag-output'");
    check(refused.status == 125 && says, || format!("{refused:?}"))?;
    let none = ckptd.ckptd(2, &["rm", "--ended", "--older", "1h", "--all-users"])?;
    check(none.status == 0 && none.stdout.is_empty(), || format!("{none:?}"))?;
    let gone = ckptd.ckptd(2, &["rm", "--ended", "--all-users"])?;
    let right = gone.stdout == "told of root\napart of root\n" && gone.status == 0;
    check(right, || format!("{gone:?}"))
}

/// Jobs of two machines that end at about the time of their first checkpoint.
fn brief_jobs(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(2)?;
    for tenths in [17, 18, 19, 20, 21, 22] {
        let span = format!("{}.{}", tenths / 10, tenths % 10);
        let command = ["mpirun.openmpi", "-np", "2", "--map-by", "node", "sleep", &span];
        let mut job = ckptd.run(0, &format!("brief{tenths}"), &["--interval", "2"], &command)?;
        let status = job.wait(JOB_LIMIT)?;
        check(status == 0, || job.output())?;
    }
    // One more loses an agent before, and its folder: what is left of it has nobody to wait for.
    let command = ["mpirun.openmpi", "-np", "2", "--map-by", "node", "sleep", "2"];
    let mut job = ckptd.run(0, "alone", &["--interval", "0"], &command)?;
    until("the job runs on node2", LIMIT, || {
        Ok((ckptd.node(2).run(&["pgrep", "-x", "sleep"], &[])?.status == 0).then_some(()))
    })?;
    ckptd.kill_agent(2)?;
    let status = job.wait(JOB_LIMIT)?;
    check(status == 0, || job.output())?;
    ckptd.node(2).must_run(&["sh", "-c", "rm -r /mnt/home/ckptd"])?;
    for number in [1, 2] {
        until("nothing is left of the jobs", LIMIT, || {
            let left = ckptd.node(number).run(&["pgrep", "-c", "^ckptd-init"], &[])?;
            Ok((left.stdout.trim() == "0").then_some(()))
        })?;
    }
    Ok(())
}
