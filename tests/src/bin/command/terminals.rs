//! Jobs on a terminal: the keys, the settings, an interactive shell over restarts.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus};

use ckptd_tests::account::{Account, running_as_root};
use ckptd_tests::job::Failure;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::termios::{Termios, tcgetattr};

use super::stage::{Heard, JOB, Stage, expect, fail, own, until};

/// A terminal with one ckptd on it.
pub struct Terminal {
    pub keyboard: File,
    pub screen: Heard,
    /// Kept open, so that the settings can be read when ckptd has ended.
    line: OwnedFd,
    before: Termios,
    pub child: Child,
}

fn nix<T>(result: nix::Result<T>) -> Result<T, Failure> {
    own(result.map_err(std::io::Error::from))
}

impl Terminal {
    /// Starts ckptd as the leader of a new session on a new terminal of 33 rows and 77 columns.
    pub fn start(stage: &Stage, arguments: &[&str]) -> Result<Terminal, Failure> {
        let command = stage.wrapped(&["setsid", "--ctty"], arguments);
        Terminal::with(Terminal::pair(stage)?, command)
    }

    fn pair(stage: &Stage) -> Result<OpenptyResult, Failure> {
        let size = Winsize { ws_row: 33, ws_col: 77, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = nix(openpty(Some(&size), None))?;
        for end in [&pair.master, &pair.slave] {
            nix(fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)))?;
        }
        if stage.account == Account::User && running_as_root() {
            use std::os::unix::fs::MetadataExt;
            let owner = own(std::fs::metadata(&stage.home))?.uid();
            nix(nix::unistd::fchown(&pair.slave, Some(owner.into()), None))?;
        }
        Ok(pair)
    }

    /// Starts a program of the user's without ckptd, likewise.
    pub fn start_alone(stage: &Stage, words: &[&str]) -> Result<Terminal, Failure> {
        let all: Vec<&str> = ["setsid", "--ctty"].iter().chain(words).copied().collect();
        Terminal::with(Terminal::pair(stage)?, stage.alone(&all))
    }

    fn with(pair: OpenptyResult, mut command: Command) -> Result<Terminal, Failure> {
        let end = || own(pair.slave.try_clone());
        command.stdin(end()?).stdout(end()?).stderr(end()?);
        let before = nix(tcgetattr(&pair.slave))?;
        let child = own(command.spawn())?;
        drop(command);
        let keyboard = File::from(own(pair.master.try_clone())?);
        let screen = Heard::of(File::from(pair.master));
        Ok(Terminal { keyboard, screen, line: pair.slave, before, child })
    }

    pub fn up(&self, stage: &Stage) -> Result<(), Failure> {
        until("the job answers", || stage.is_up())
            .map_err(|f| Failure(format!("{f}; on the screen: {:?}", self.screen.text())))
    }

    pub fn type_in(&mut self, text: &str) -> Result<(), Failure> {
        own(self.keyboard.write_all(text.as_bytes()))
    }

    fn end(&mut self) -> Result<ExitStatus, Failure> {
        let mut status = None;
        let child = &mut self.child;
        until("ckptd ends", || {
            status = child.try_wait().ok().flatten();
            status.is_some()
        })
        .map_err(|f| Failure(format!("{f}; on the screen: {:?}", self.screen.text())))?;
        let after = nix(tcgetattr(self.line.as_fd()))?;
        if after != self.before {
            return fail("the terminal's settings are not put back");
        }
        status.ok_or_else(|| Failure("no status".into()))
    }

    pub fn expect_status(&mut self, code: i32) -> Result<(), Failure> {
        let status = self.end()?;
        expect(status.code() == Some(code), || {
            format!("{status} and not {code}; on the screen: {:?}", self.screen.text())
        })
    }

    /// Whether ckptd has made it raw.
    pub fn is_raw(&self) -> bool {
        tcgetattr(self.line.as_fd()).is_ok_and(|now| now != self.before)
    }

    /// The settings come back all the same.
    pub fn kill(mut self) -> Result<(), Failure> {
        let settings = || tcgetattr(self.line.as_fd());
        until("the terminal is raw", || self.is_raw())?;
        own(self.child.kill())?;
        own(self.child.wait())?;
        until("the terminal is put back", || settings().is_ok_and(|now| now == self.before))
    }
}

const RUN: &[&str] = &["run", "--interval", "0", "--name", JOB, "--"];

pub fn run<'a>(words: &[&'a str]) -> Vec<&'a str> {
    RUN.iter().copied().chain(words.iter().copied()).collect()
}

/// The job has a terminal of the same size, and Ctrl-C ends it with the resume line.
pub fn interrupt(stage: &Stage) -> Result<(), Failure> {
    let script = "test -t 0 && test -t 1 && test -t 2 && stty size; echo ready; sleep 100";
    let mut terminal = Terminal::start(stage, &run(&["sh", "-c", script]))?;
    terminal.screen.wait_for("33 77")?;
    terminal.screen.wait_for("ready")?;
    terminal.up(stage)?;
    stage.checkpoint()?;
    terminal.type_in("\x03")?;
    terminal.expect_status(130)?;
    terminal.screen.wait_for(&format!("ckptd restart {JOB}"))?;
    stage.expect_gone()
}

/// An interactive bash goes on, on a new terminal, three times.
pub fn interactive_shell(stage: &Stage) -> Result<(), Failure> {
    let mut terminal = Terminal::start(stage, &run(&["bash", "--norc", "--noprofile", "-i"]))?;
    terminal.up(stage)?;
    terminal.type_in("PS1='$ '; sum=40; echo sum is $sum\n")?;
    terminal.screen.wait_for("sum is 40")?;
    for generation in 1..=3 {
        stage.checkpoint()?;
        terminal.kill()?;
        stage.expect_gone()?;
        terminal = Terminal::start(stage, &["restart", JOB])?;
        terminal.up(stage)?;
        terminal.type_in("sum=$((sum + 1)); echo sum is $sum\n")?;
        terminal.screen.wait_for(&format!("sum is {}", 40 + generation))?;
        // Job control: a child in the foreground is interrupted, the shell is not.
        terminal.type_in("sleep 100; echo interrupted $?\n")?;
        until("sleep is in the foreground", || stage.is_in_foreground("sleep"))?;
        terminal.type_in("\x03")?;
        terminal.type_in("echo still there\n")?;
        terminal.screen.wait_for("\nstill there")?;
    }
    terminal.type_in("exit 7\n")?;
    terminal.expect_status(7)?;
    stage.expect_gone()
}

/// `ckptd top` shows the job and its checkpoint, and gives the terminal back, whatever ends it.
pub fn top(stage: &Stage) -> Result<(), Failure> {
    let running = stage.run(&["sh", "-c", "echo ready; sleep 100"])?;
    running.wait_for("ready")?;
    stage.checkpoint()?;
    let plain = stage.output(&["top"], "")?.expect(0)?;
    let whole = ["this machine: 1 node, 1 job running", "sleep 100", "checkpoint 1:", "PROCESS"];
    expect(whole.iter().all(|word| plain.out.contains(word)), || format!("{plain:?}"))?;
    for end in ["q", "\x1b", "\x03", "signal"] {
        let mut terminal = Terminal::start(stage, &["top", "--every", "1s"])?;
        // Only cells that change are drawn: between two words the cursor jumps.
        terminal.screen.wait_for("sleep")?;
        terminal.screen.wait_for("checkpoint")?;
        let code = if end == "signal" {
            let pid = nix::unistd::Pid::from_raw(terminal.child.id() as i32);
            nix(nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM))?;
            143
        } else {
            terminal.type_in(end)?;
            0
        };
        terminal.expect_status(code).map_err(|f| Failure(format!("{end:?}: {f}")))?;
        // Back from the second screen.
        terminal.screen.wait_for("\x1b[?1049l")?;
    }
    // A filter that nothing fits leaves no job of which there could be a checkpoint; all about the job, and back.
    let mut terminal = Terminal::start(stage, &["top", "--every", "1s"])?;
    terminal.screen.wait_for("sleep")?;
    terminal.type_in("/nobody\rc")?;
    terminal.screen.wait_for("filter:")?;
    terminal.type_in("\x1b")?;
    std::thread::sleep(std::time::Duration::from_millis(300));
    terminal.type_in("d")?;
    terminal.screen.wait_for("scroll")?;
    terminal.type_in("dc")?;
    let taken = |number: u32| {
        let listed = stage.output(&["status"], "").and_then(|listed| listed.expect(0));
        listed.is_ok_and(|listed| listed.out.contains(&format!("\n{number}  ")))
    };
    until("a second checkpoint", || taken(2))?;
    expect(!taken(3), || "a third checkpoint".to_owned())?;
    terminal.type_in("q")?;
    terminal.expect_status(0)?;
    running.kill()?;
    stage.expect_gone()
}

/// A job from a terminal is restarted without one, with its output in a pipe.
pub fn terminal_then_pipe(stage: &Stage) -> Result<(), Failure> {
    let script = "echo ready; while [ ! -e go ]; do sleep 0.02; done; echo right; exit 4";
    let terminal = Terminal::start(stage, &run(&["sh", "-c", script]))?;
    terminal.screen.wait_for("ready")?;
    terminal.up(stage)?;
    stage.checkpoint()?;
    terminal.kill()?;
    stage.expect_gone()?;
    let running = stage.restart(&[])?;
    own(std::fs::write(stage.home.join("go"), ""))?;
    let ended = running.finish()?.expect(4)?;
    // A terminal's line discipline ends lines with a carriage return too.
    expect(ended.out.trim_end() == "right", || format!("{ended:?}"))?;
    stage.expect_gone()
}

/// Whether a process is stopped.
pub fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" T"))
}

/// The number in `tick N` that was shown last.
fn last_tick(terminal: &Terminal) -> Option<u64> {
    let text = terminal.screen.text();
    text.lines().rev().find_map(|line| line.trim().strip_prefix("tick ")?.parse().ok())
}

/// A job that Ctrl-Z has stopped is told as stopped, can be checkpointed, stays stopped, goes on and can be stopped for
/// good; and a restart from such a checkpoint runs.
pub fn suspended(stage: &Stage) -> Result<(), Failure> {
    let script = "n=0; while :; do n=$((n+1)); echo tick $n; sleep 0.05; done";
    let mut terminal = Terminal::start(stage, &run(&["sh", "-c", script]))?;
    terminal.screen.wait_for("tick 3")?;
    terminal.up(stage)?;
    let launcher = terminal.child.id();
    terminal.type_in("\x1a")?;
    until("ckptd is stopped", || is_stopped(launcher))?;
    let stood = last_tick(&terminal);
    for _ in 0..2 {
        let told = std::time::Instant::now();
        let listed = stage.json(&["ls"])?;
        expect(listed[0]["state"] == "stopped" && told.elapsed().as_secs() < 3, || {
            format!("after {:?}: {listed}", told.elapsed())
        })?;
        stage.checkpoint()?;
        until("ckptd is stopped again", || is_stopped(launcher))?;
    }
    let now = last_tick(&terminal);
    expect(now == stood, || format!("it went on while it was stopped: {stood:?}, {now:?}"))?;
    // As the shell does for `fg` and `bg`.
    let wake = || {
        let pid = nix::unistd::Pid::from_raw(launcher as i32);
        nix(nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT))
    };
    wake()?;
    until("it goes on", || last_tick(&terminal) > stood)?;
    expect(stage.json(&["status", JOB])?["state"] == "running", || "it does not run".into())?;
    terminal.type_in("\x1a")?;
    until("ckptd is stopped", || is_stopped(launcher))?;
    let stood = last_tick(&terminal);
    stage.output(&["stop", JOB, "--checkpoint"], "")?.expect(0)?;
    terminal.expect_status(143)?;
    stage.expect_gone()?;
    let mut terminal = Terminal::start(stage, &["restart", JOB])?;
    until("the restarted job runs", || last_tick(&terminal) > stood)?;
    terminal.up(stage)?;
    terminal.type_in("\x1a")?;
    let launcher = terminal.child.id();
    until("ckptd is stopped", || is_stopped(launcher))?;
    stage.output(&["stop", JOB], "")?.expect(0)?;
    terminal.expect_status(143)?;
    stage.expect_gone()
}
