//! Standard streams as pipes and files, exit statuses, signals.

use std::fs::{self, File};
use std::io::Read;
use std::process::Stdio;

use ckptd_tests::job::Failure;
use nix::sys::signal::Signal;

use super::stage::{JOB, Running, Stage, expect, fail, own, until};

/// Input, output and error are passed on, apart and unchanged.
pub fn pipes(stage: &Stage) -> Result<(), Failure> {
    let script = "tr a-z A-Z; echo 'to error' >&2; exit 3";
    let ended = stage.output(&["run", "--", "sh", "-c", script], "hello\nworld\n")?.expect(3)?;
    expect(ended.out == "HELLO\nWORLD\n" && ended.err == "to error\n", || format!("{ended:?}"))?;
    stage.expect_gone()
}

/// Streams that are files.
pub fn files(stage: &Stage) -> Result<(), Failure> {
    let path = |name: &str| stage.home.join(name);
    own(fs::write(path("in"), "one\ntwo\n"))?;
    let mut command = stage.command(&["run", "--", "sh", "-c", "cat; echo done; echo err >&2"]);
    command.stdin(own(File::open(path("in")))?);
    command.stdout(own(File::create(path("out")))?);
    command.stderr(own(File::create(path("err")))?);
    let status = own(command.status())?;
    let text = |name: &str| fs::read_to_string(path(name)).unwrap_or_default();
    let (out, err) = (text("out"), text("err"));
    expect(status.success() && out == "one\ntwo\ndone\n" && err == "err\n", || {
        format!("{status}: {out:?}, {err:?}")
    })
}

/// The job's own status, and 128+N for signals.
pub fn statuses(stage: &Stage) -> Result<(), Failure> {
    for (script, code) in
        [("exit 0", 0), ("exit 42", 42), ("kill -TERM $$", 143), ("kill -9 $$", 137)]
    {
        stage.output(&["run", "--", "sh", "-c", script], "")?.expect(code)?;
    }
    let missing = stage.output(&["run", "--", "/no/such/program"], "")?;
    expect(
        missing.status.code().is_some_and(|code| code >= 125)
            && missing.err.starts_with("ckptd: failed to ")
            && missing.err.lines().count() == 1,
        || format!("{missing:?}"),
    )?;
    stage.output(&["run"], "")?.expect(2)?;
    let misspelled = stage.output(&["run", "--intreval", "5", "true"], "")?.expect(2)?;
    expect(misspelled.err.contains("'--interval'"), || format!("{misspelled:?}"))?;
    stage.output(&["run", "--interval", "-3", "true"], "")?.expect(2).map(drop)
}

/// A reader that goes away ends a writer, as without ckptd.
pub fn early_reader(stage: &Stage) -> Result<(), Failure> {
    let mut command = stage.command(&["run", "--", "yes"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = own(command.spawn())?;
    if let Some(mut out) = child.stdout.take() {
        let mut line = [0; 2];
        own(out.read_exact(&mut line))?;
    }
    let mut status = None;
    until("yes ends when nobody reads", || {
        status = child.try_wait().ok().flatten();
        status.is_some()
    })?;
    stage.expect_gone()?;
    expect(status.and_then(|s| s.code()) == Some(141), || format!("{status:?}"))
}

/// A job that reads a pipe goes on with the new one after a restart.
pub fn pipes_of_three_generations(stage: &Stage) -> Result<(), Failure> {
    let script = "while read line; do echo got $line; done; echo over; exit 5";
    let mut running = stage.run(&["sh", "-c", script])?;
    for generation in 1..=3 {
        running.say(&format!("line{generation}\n"))?;
        running.wait_for(&format!("got line{generation}"))?;
        stage.checkpoint()?;
        running.kill()?;
        stage.expect_gone()?;
        running = stage.restart(&[])?;
    }
    running.say("last\n")?;
    let ended = running.finish()?.expect(5)?;
    expect(ended.out == "got last\nover\n", || format!("{ended:?}"))?;
    stage.expect_gone()
}

/// SIGINT, SIGTERM and SIGHUP to ckptd end the job in order, and the message says how to resume.
pub fn deadly_signals(stage: &Stage) -> Result<(), Failure> {
    let script = "trap 'echo told; exit 9' INT TERM HUP; echo ready; while :; do sleep 0.02; done";
    let mut running = stage.run(&["sh", "-c", script])?;
    running.wait_for("ready")?;
    stage.checkpoint()?;
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        running.signal(signal)?;
        let ended = running.finish()?.expect(9)?;
        let resume = format!("ckptd restart {JOB}");
        expect(ended.out.contains("told") && ended.err.contains(&resume), || {
            format!("{signal}: {ended:?}")
        })?;
        stage.expect_gone()?;
        running = stage.restart(&[])?;
    }
    running.kill()?;
    stage.expect_gone()
}

/// A job that ignores what ends others: the second Ctrl-C sends SIGTERM, the third SIGKILL.
pub fn stubborn_job(stage: &Stage) -> Result<(), Failure> {
    let script = "trap '' INT TERM HUP; echo ready; while :; do sleep 0.02; done";
    let running = stage.run(&["sh", "-c", script])?;
    running.wait_for("ready")?;
    for _ in 0..3 {
        running.signal(Signal::SIGINT)?;
        // Two at once would be one to ckptd, which says nothing between them.
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    let started = std::time::Instant::now();
    let ended = running.finish()?;
    if started.elapsed().as_secs() >= 5 {
        return fail(format!("the third interrupt waited {:?}", started.elapsed()));
    }
    expect(ended.status.code() == Some(137), || format!("{ended:?}"))?;
    stage.expect_gone()
}

/// Signals that mean nothing to ckptd are the job's first process's, as without ckptd: what it handles does not end it,
/// its children get none of them, and what it does not handle ends it.
pub fn foreign_signals(stage: &Stage) -> Result<(), Failure> {
    const SIGNALS: [i32; 6] = [10, 12, 14, 24, 27, 36];
    let traps: Vec<String> =
        SIGNALS.iter().map(|signal| format!("trap 'echo got {signal}.' {signal}")).collect();
    let script = format!(
        "sleep 1000 & child=$!; {}; echo ready; while [ ! -e go ]; do sleep 0.02 <&- & wait $!; done; \
         kill -0 $child && echo child lives; trap - USR1; echo bare; while :; do sleep 0.02; done",
        traps.join("; ")
    );
    let send = |running: &Running, signal: i32| {
        let pid = running.child.id().to_string();
        let status =
            std::process::Command::new("kill").args([&format!("-{signal}"), &pid]).status();
        expect(own(status)?.success(), || format!("signal {signal} could not be sent"))
    };
    let mut running = stage.run(&["sh", "-c", &script])?;
    running.wait_for("ready")?;
    stage.checkpoint()?;
    for _ in 0..2 {
        for signal in SIGNALS {
            send(&running, signal)?;
            running.wait_for(&format!("got {signal}."))?;
        }
        running.kill()?;
        stage.expect_gone()?;
        running = stage.restart(&[])?;
    }
    own(fs::write(stage.home.join("go"), ""))?;
    running.wait_for("child lives\nbare")?;
    send(&running, 10)?;
    running.finish()?.expect(138)?;
    stage.expect_gone()
}

/// Without namespaces, too, a job's programs inherit no capability that the one who runs it hands on.
pub fn capabilities(stage: &Stage) -> Result<(), Failure> {
    let handed = ["setpriv", "--inh-caps", "+net_raw", "--ambient-caps", "+net_raw"];
    let script = "grep Cap[IA] /proc/self/status";
    for numbers in ["CKPTD_NAMESPACES=", "CKPTD_NAMESPACES=none"] {
        let words = [&handed[..], &["env", numbers]].concat();
        let arguments = ["run", "--name", "c", "--interval", "0", "--", "sh", "-c", script];
        let ended = stage.start_wrapped(&words, &arguments)?.finish()?.expect(0)?;
        let none = format!("CapInh:\t{0:016x}\nCapAmb:\t{0:016x}\n", 0);
        expect(ended.out == none, || format!("{numbers}: {ended:?}"))?;
        stage.output(&["rm", "c"], "")?.expect(0)?;
    }
    Ok(())
}
