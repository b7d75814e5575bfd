//! `ckptd logs` with times, and of one rank.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use ckptd_tests::job::Failure;

use super::stage::{JOB, Stage, expect, own, until};

/// Writes to both streams, pauses, and writes again.
const PAUSING: &str =
    "echo early; echo bad >&2; until [ -e go ]; do sleep 0.05; done; echo late; exit 6";

/// A launcher of MPI jobs as far as the test needs one: its ranks' lines are tagged.
const LAUNCHER: &str = "#!/bin/sh\n[ \"$1\" = --version ] && exec echo 'mpirun (Open MPI) 4.1.4'\n\
                        echo '[1,0]<stdout>:zero'; echo '[1,1]<stdout>:one'; echo 'from mpirun itself'\n\
                        echo '[1,1]<stderr>:bad' >&2\n";

/// The lines of a listing with times that end like this.
fn line<'a>(text: &'a str, end: &str) -> Result<&'a str, Failure> {
    let found = text.lines().find(|line| line.ends_with(end));
    found.ok_or_else(|| Failure(format!("no line that ends with {end:?}: {text:?}")))
}

/// Each line has its time and origin, also after a restart, which forgets those of what it takes back; what is older than
/// a time is left out.
pub fn times(stage: &Stage) -> Result<(), Failure> {
    let running = stage.run(&["sh", "-c", PAUSING])?;
    running.wait_for("early")?;
    stage.checkpoint()?;
    running.kill()?;
    let second = Duration::from_millis(1100);
    std::thread::sleep(second);
    let date = own(Command::new("date").args(["-u", "+%FT%TZ"]).output())?;
    let between = String::from_utf8_lossy(&date.stdout).trim().to_owned();
    std::thread::sleep(second);
    let running = stage.restart(&[])?;
    own(fs::write(stage.home.join("go"), ""))?;
    running.finish()?.expect(6)?;
    let all = stage.output(&["logs", "--time", JOB], "")?.expect(0)?.out;
    for (end, origin) in [
        ("early", "Z  out    early"),
        ("bad", "Z  err    bad"),
        ("late", "Z  out    late"),
        ("restarted from checkpoint 1]", "Z  ckptd  [ckptd: restarted from checkpoint 1]"),
    ] {
        let found = line(&all, end)?;
        expect(found.ends_with(origin), || format!("{found:?} has not {origin:?}"))?;
    }
    let at = |end: &str| line(&all, end).map(|line| line.get(..24).unwrap_or_default().to_owned());
    let (early, late) = (at("early")?, at("late")?);
    expect(early < between && between < late, || format!("{early} {between} {late}"))?;
    let since = |time: &str| {
        Ok::<_, Failure>(stage.output(&["logs", "--since", time, JOB], "")?.expect(0)?.out)
    };
    let newer = since(&between)?;
    expect(newer.starts_with("[ckptd: restarted") && newer.contains("late\n"), || newer.clone())?;
    let plain = stage.output(&["logs", JOB], "")?.expect(0)?.out;
    expect(since("1h")? == plain, || all.clone())?;
    expect(since("0")?.is_empty(), || all.clone())?;
    // An index that is torn costs times, and none of the output.
    let log = stage.log()?;
    let index = log.with_file_name("log.times");
    let bytes = own(fs::read(&index))?;
    own(fs::write(&index, &bytes[..bytes.len() - 1]))?;
    let torn = stage.output(&["logs", "--time", JOB], "")?.expect(0)?.out;
    expect(torn.lines().count() == all.lines().count(), || format!("{torn:?}"))?;
    own(fs::remove_file(&index))?;
    let none = stage.output(&["logs", "--since", "0", JOB], "")?.expect(0)?;
    let whole = own(fs::read_to_string(log))?;
    expect(none.out == whole && none.err.contains("is not known"), || format!("{none:?}"))?;
    stage.expect_gone()
}

/// With --output, a file is like the log, over a restart that cuts that back, too; a full disk is told of once, and neither
/// the job nor its log notices it.
pub fn output_file(stage: &Stage) -> Result<(), Failure> {
    let path = stage.home.join("out");
    own(fs::write(
        &path,
        "of an earlier time, and longer than what comes, so that it would be seen",
    )
    .and_then(|()| stage.account.give(&path)))?;
    let script = "echo early; echo bad >&2; until [ -e go ]; do echo tick; sleep 0.05; done; echo late; exit 6";
    let name = ["run", "--name", JOB, "--interval", "0", "--output"];
    let running = stage.start(&[&name[..], &["out", "--", "sh", "-c", script]].concat())?;
    running.wait_for("early")?;
    until("the job answers", || stage.is_up())?;
    stage.checkpoint()?;
    let text = || fs::read_to_string(&path).unwrap_or_default();
    let length = text().len();
    until("the file grows", || text().len() > length + 20)?;
    running.kill()?;
    let copied = stage.home.join("second");
    own(fs::write(stage.home.join("go"), ""))?;
    let again = stage.start(&["restart", JOB, "--output", "second"])?.finish()?.expect(6)?;
    expect(again.out.ends_with("late\n"), || format!("{again:?}"))?;
    let log = own(fs::read_to_string(stage.log()?))?;
    let second = own(fs::read_to_string(&copied))?;
    expect(second == log && log.contains("[ckptd: restarted from checkpoint 1]\n"), || {
        format!("{second:?} is not {log:?}")
    })?;
    stage.output(&["rm", JOB], "")?.expect(0)?;
    let refused =
        stage.output(&[&name[..], &["no/such", "--", "true"]].concat(), "")?.expect(125)?;
    expect(refused.err.lines().count() == 1 && refused.err.contains("no/such: "), || {
        format!("{refused:?}")
    })?;
    let pipe =
        stage.output(&[&name[..], &["/dev/full", "--", "true"]].concat(), "")?.expect(125)?;
    expect(pipe.err.contains("/dev/full: it is no plain file"), || format!("{pipe:?}"))?;
    let listed = stage.output(&["ls"], "")?.expect(0)?;
    expect(!listed.out.contains(JOB), || format!("a job is left behind: {listed:?}"))?;
    stage.expect_gone()
}

/// What one rank has written, where the run time tags lines; else a refusal that says how to get there.
pub fn ranks(stage: &Stage) -> Result<(), Failure> {
    let launcher = stage.home.join("mpirun");
    own(fs::write(&launcher, LAUNCHER))?;
    own(fs::set_permissions(&launcher, fs::Permissions::from_mode(0o755)))?;
    let run = |arguments: &[&str]| {
        let words = ["run", "--name", JOB, "--", "./mpirun"];
        stage.output(&[words.as_slice(), arguments].concat(), "")?.expect(0)
    };
    run(&["-np", "2", "x"])?;
    let refused = stage.output(&["logs", "--rank", "1", JOB], "")?.expect(125)?;
    let says = refused.err.contains("'mpirun --tag-output'") && refused.err.lines().count() == 1;
    expect(says && refused.out.is_empty(), || format!("{refused:?}"))?;
    stage.output(&["rm", JOB], "")?.expect(0)?;
    run(&["--tag-output", "-np", "2", "x"])?;
    let of = |rank: &str| {
        Ok::<_, Failure>(stage.output(&["logs", "--rank", rank, JOB], "")?.expect(0)?.out)
    };
    expect(of("0")? == "[1,0]<stdout>:zero\n", || "rank 0".to_owned())?;
    let one = of("1")?;
    // Of two streams nobody knows which was written to first.
    let mut lines: Vec<&str> = one.lines().collect();
    lines.sort_unstable();
    expect(lines == ["[1,1]<stderr>:bad", "[1,1]<stdout>:one"], || format!("{one:?}"))?;
    expect(of("2")?.is_empty(), || "rank 2".to_owned())?;
    let timed = stage.output(&["logs", "--time", "--rank", "1", JOB], "")?.expect(0)?.out;
    line(&timed, "Z  err    [1,1]<stderr>:bad")?;
    stage.expect_gone()
}
