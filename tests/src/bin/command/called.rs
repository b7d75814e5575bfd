//! Commands that are called when something happens to a job (`--on`).

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::Instant;

use ckptd_tests::job::Failure;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::stage::{JOB, LIMIT, Running, Stage, expect, fail, own, until};

/// Ends with status 3 once it has read a line.
const WAITS: &str = "echo up; read x; exit 3";

/// `ckptd run` with hooks, until its job answers.
fn run(stage: &Stage, hooks: &[&str], command: &[&str]) -> Result<Running, Failure> {
    let options = hooks.iter().flat_map(|hook| ["--on", hook]);
    let options = ["run", "--interval", "0", "--name", JOB].into_iter().chain(options);
    let words: Vec<&str> = options.chain(["--"]).chain(command.iter().copied()).collect();
    let mut running = stage.start(&words)?;
    stage.until_up(&mut running)?;
    running.wait_for("up")?;
    Ok(running)
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The lines of JSON that a command has written down.
fn told(path: &Path) -> Result<Vec<Value>, Failure> {
    let text = text(path);
    let lines = text.lines().map(serde_json::from_str).collect::<Result<_, _>>();
    lines.map_err(|error| Failure(format!("{error}: {text:?}")))
}

fn has(value: &Value, wanted: &[(&str, Value)]) -> Result<(), Failure> {
    let differs = wanted.iter().find(|(key, wanted)| value[*key] != *wanted);
    expect(differs.is_none(), || format!("{differs:?} is not in {value}"))
}

/// A commit and the end are told of in the job's folder, with what belongs to them, over a restart; the end is waited for, and
/// the status stays the job's.
pub fn hears(stage: &Stage) -> Result<(), Failure> {
    let seen = stage.home.join("seen");
    let commit = "checkpoint=cat >> seen";
    let end =
        "ended=read line; sleep 0.3; echo \"$line\" >> seen; echo $CKPTD_EVENT $CKPTD_JOB > last";
    let running = run(stage, &[commit, end], &["sh", "-c", WAITS])?;
    stage.checkpoint()?;
    until("the command has heard", || text(&seen).ends_with('\n'))?;
    let status = stage.json(&["status", JOB])?;
    let newest = &status["checkpoints"][0];
    let first = told(&seen)?;
    has(
        &first[0],
        &[
            ("event", "checkpoint".into()),
            ("job", JOB.into()),
            ("id", status["id"].clone()),
            ("checkpoint", 1.into()),
            ("bytes", newest["summary"]["bytes"].clone()),
            ("copies", 1.into()),
        ],
    )?;
    let pause = first[0]["pause_ms"].as_f64().map(|ms| (ms * 1e3).round());
    expect(pause == newest["pause_us"].as_f64(), || format!("{} and {newest}", first[0]))?;
    let mut running = running;
    running.say("\n")?;
    let ended = running.finish()?.expect(3)?;
    expect(ended.err.is_empty(), || format!("{ended:?}"))?;
    let last = told(&seen)?;
    expect(last.len() == 2, || format!("{last:?}"))?;
    let wanted = |status: u8, number: u64| {
        [("event", "ended".into()), ("status", status.into()), ("checkpoint", number.into())]
    };
    has(&last[1], &wanted(3, 1))?;
    has(&last[1], &[("signal", Value::Null), ("reason", Value::Null)])?;
    let at = last[1]["time"].as_str().unwrap_or_default();
    expect(at.len() == 24 && at.ends_with('Z'), || format!("{}", last[1]))?;
    expect(text(&stage.home.join("last")) == format!("ended {JOB}\n"), || "variables".to_owned())?;
    // They are no part of the image; its own are given to a restart, which another signal ends.
    let again = ["restart", JOB, "--on", "ended=cat >> seen"];
    let mut again = stage.start(&again)?;
    stage.until_up(&mut again)?;
    stage.output(&["stop", JOB], "")?.expect(0)?;
    again.finish()?.expect(143)?;
    let last = told(&seen)?;
    expect(last.len() == 3, || format!("{last:?}"))?;
    has(&last[2], &wanted(143, 1))?;
    has(&last[2], &[("signal", 15.into())])?;
    stage.expect_gone()
}

/// A checkpoint that is refused is told of, with the reason.
pub fn hears_of_failures(stage: &Stage) -> Result<(), Failure> {
    const CLIENT: &str = "use IO::Socket; $s = IO::Socket::INET->new(PeerAddr => $ARGV[0]) or die; $| = 1; \
                          print qq(up\n); <STDIN>";
    let outside = own(TcpListener::bind("127.0.0.1:0"))?;
    let peer = own(outside.local_addr())?.to_string();
    let seen = stage.home.join("seen");
    let words = ["run", "--interval", "0", "--name", JOB, "--external", "fail"];
    let hook = ["--on", "failed=cat >> seen", "--", "perl", "-e", CLIENT, &peer];
    let mut running = stage.start(&[&words[..], &hook].concat())?;
    stage.until_up(&mut running)?;
    running.wait_for("up")?;
    let (_accepted, _) = own(outside.accept())?;
    for number in 1..=2 {
        stage.output(&["checkpoint", JOB], "")?.expect(125)?;
        until("the command has heard", || text(&seen).lines().count() == number)?;
    }
    let seen = told(&seen)?;
    has(&seen[1], &[("event", "failed".into()), ("checkpoint", 2.into())])?;
    let reason = seen[1]["reason"].as_str().unwrap_or_default();
    expect(reason.contains("outside of the job"), || format!("{}", seen[1]))?;
    running.say("\n")?;
    running.finish()?.expect(0)?;
    stage.expect_gone()
}

/// What a command says is shown, and that it fails is also in the log; the job notices nothing of one that does not end, nor
/// does a checkpoint. Who is told to end while that is waited for does not wait.
pub fn fails(stage: &Stage) -> Result<(), Failure> {
    let fails = "checkpoint=echo why >&2; exit 7";
    let slow = "ended=echo $$ > pid; sleep 1000 & sleep 1000";
    let mut running = run(stage, &[fails, "checkpoint=sleep 1000", slow], &["sh", "-c", WAITS])?;
    let since = Instant::now();
    for number in 1..=3 {
        let taken = stage.checkpoint()?;
        expect(taken == number, || format!("checkpoint {taken}"))?;
    }
    expect(since.elapsed() < LIMIT, || "a command holds checkpoints up".to_owned())?;
    let warning = format!("warning: on checkpoint: '{}' ended with status 7", &fails[11..]);
    until("the warning comes", || running.text().1.contains(&warning))?;
    let said = running.text().1;
    expect(said.contains("ckptd: on checkpoint: why\n"), || format!("{said:?}"))?;
    let marked =
        || text(&stage.log().unwrap_or_default()).contains(&format!("[ckptd: {warning}]\n"));
    until("the log has the warning", marked)?;
    running.say("\n")?;
    let pid = stage.home.join("pid");
    until("the last one is called", || text(&pid).ends_with('\n'))?;
    until("the job has ended", || {
        stage.json(&["status", JOB]).is_ok_and(|s| s["state"] == "ended")
    })?;
    running.signal(Signal::SIGINT)?;
    running.finish()?.expect(3)?;
    stage.expect_gone()
}

/// The end of a launcher that is killed is the job's, and is told of as such.
pub fn outlives(stage: &Stage) -> Result<(), Failure> {
    let seen = stage.home.join("seen");
    run(stage, &["ended=cat > seen"], &["sh", "-c", WAITS])?.kill()?;
    until("the command has heard", || text(&seen).ends_with('\n'))?;
    let seen = told(&seen)?;
    has(&seen[0], &[("event", "ended".into()), ("status", Value::Null)])?;
    let reason = seen[0]["reason"].as_str().unwrap_or_default();
    expect(reason.contains("ckptd was killed"), || format!("{}", seen[0]))?;
    stage.expect_gone()
}

/// Events that there are not, and commands that say nothing, are wrong usage, and make no job.
pub fn refused(stage: &Stage) -> Result<(), Failure> {
    for (hook, words) in [
        (
            "end=true",
            "there is no event \"end\"; events are checkpoint, failed, lost, moved, ended",
        ),
        ("true", "not of the form EVENT=COMMAND"),
        ("lost=", "the command is missing after lost="),
    ] {
        for command in [["run", "--on", hook, "true"], ["restart", "--on", hook, JOB]] {
            let wrong = stage.output(&command, "")?.expect(2)?;
            expect(wrong.err.contains(words), || format!("{wrong:?}"))?;
        }
    }
    let dmtcp = ["run", "--engine", "dmtcp", "--on", "ended=true", "true"];
    let wrong = stage.output(&dmtcp, "")?.expect(2)?;
    expect(wrong.err.contains("--on is for the native engine"), || format!("{wrong:?}"))?;
    let mut command = stage.command(&["run", "--name", JOB, "--", "true"]);
    command.env("CKPTD_RUN_ON", "ended=echo a,b > said\nended=cat > heard");
    Running::start(command)?.finish()?.expect(0)?;
    let said = text(&stage.home.join("said"));
    expect(said == "a,b\n", || format!("{said:?}"))?;
    if told(&stage.home.join("heard"))?.is_empty() {
        return fail("the second command was not called");
    }
    let listed = stage.output(&["ls"], "")?.expect(0)?;
    expect(listed.out.lines().count() == 2, || format!("{listed:?}"))?;
    stage.expect_gone()
}
