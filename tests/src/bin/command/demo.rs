//! The demonstration of the executable alone.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ckptd_tests::account::Account;
use ckptd_tests::job::Failure;
use nix::sys::signal::Signal;

use super::stage::{Finished, Running, Stage, expect, fail, own};
use super::terminals::Terminal;

/// How long it may take.
const LIMIT: Duration = Duration::from_secs(90);
/// What it says once its job runs.
const RUNS: &str = "all 6 workers have come";

/// A folder for temporary files, in which nothing may be left.
fn temporary(stage: &Stage) -> Result<PathBuf, Failure> {
    let folder = stage.home.join("tmp");
    if !folder.exists() {
        own(fs::create_dir(&folder).and_then(|()| stage.account.give(&folder)))?;
    }
    Ok(folder)
}

/// Starts it by `words`.
fn start(stage: &Stage, words: &[&str]) -> Result<Running, Failure> {
    let ckptd = stage.ckptd().display().to_string();
    let mut command = stage.alone(&[words, &[&ckptd, "demo"]].concat());
    command.env("TMPDIR", temporary(stage)?);
    Running::start(command)
}

fn finish(mut running: Running) -> Result<Finished, Failure> {
    let until = Instant::now() + LIMIT;
    while own(running.child.try_wait())?.is_none() {
        if Instant::now() > until {
            return fail(format!("it did not end: {:?}", running.text()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    running.finish()
}

/// No process, and no file.
fn nothing_is_left(stage: &Stage) -> Result<(), Failure> {
    stage.expect_gone()?;
    let left: Vec<_> = own(fs::read_dir(temporary(stage)?))?.flatten().collect();
    expect(left.is_empty(), || format!("left over: {left:?}"))
}

/// A machine is lost, its processes go on on the two others, and the answer is right.
pub fn shown(stage: &Stage) -> Result<(), Failure> {
    let done = finish(start(stage, &[])?)?.expect(0)?;
    let words = [
        "All three are members",
        RUNS,
        "each image is on 2 machines",
        "node3 dies",
        "| dead",
        "14 queens can be placed in 365596 ways",
        "The right answer, exit status 0",
    ];
    expect(words.iter().all(|word| done.out.contains(word)), || format!("{done:?}"))?;
    expect(done.out.matches("< node3").count() == 2, || format!("who moved: {done:?}"))?;
    expect(done.err.is_empty(), || format!("{done:?}"))?;
    nothing_is_left(stage)
}

/// Signals and keys end it with all that it has started.
pub fn interrupted(stage: &Stage) -> Result<(), Failure> {
    for (signal, status) in [(Signal::SIGTERM, 143), (Signal::SIGKILL, 0)] {
        let running = start(stage, &[])?;
        running.wait_for("ckptd coordinator")?;
        if signal == Signal::SIGKILL {
            running.wait_for(RUNS)?;
            running.kill()?;
            nothing_is_left(stage)?;
            continue;
        }
        running.signal(signal)?;
        let done = finish(running)?.expect(status)?;
        expect(done.err.contains("nothing of it is left"), || format!("{done:?}"))?;
        nothing_is_left(stage)?;
    }
    let folder = format!("TMPDIR={}", temporary(stage)?.display());
    let ckptd = stage.ckptd().display().to_string();
    let mut terminal = Terminal::start_alone(stage, &["env", &folder, &ckptd, "demo"])?;
    terminal.screen.wait_for(RUNS)?;
    terminal.type_in("\x03")?;
    terminal.expect_status(130)?;
    terminal.screen.wait_for("nothing of it is left")?;
    nothing_is_left(stage)
}

/// What is missing is told in a line, with a way out.
pub fn refused(stage: &Stage) -> Result<(), Failure> {
    let (words, told): (&[&str], _) = match stage.account {
        Account::Root => (&["setpriv", "--bounding-set=-sys_admin", "--"], "--privileged"),
        Account::User => {
            // In a user namespace of its own, so that the limit is of nobody else's.
            let script = "echo 0 > /proc/sys/user/max_user_namespaces; exec \"$@\"";
            let own = ["unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c"];
            (&[&own[..], &[script, "sh"]].concat(), "max_user_namespaces")
        }
    };
    let done = finish(start(stage, words)?)?.expect(125)?;
    expect(
        done.err.lines().count() == 1
            && done.err.starts_with("ckptd: failed to show the demonstration: ")
            && done.err.contains(told),
        || format!("{done:?}"),
    )?;
    nothing_is_left(stage)
}
