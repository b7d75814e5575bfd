//! Checkpoints that go to the store while the job runs. Each is exported by a process of its own, at low priority: whatever
//! becomes of it, the job runs on.

use super::Store;
use super::turns::{Turn, Turns};
use crate::INNER_CALL;
use crate::cli::RecipientArguments;
use crate::client::commits::OnCommit;
use crate::commands::Context;
use crate::last_line::last_line;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::agent::CheckpointNumber;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two looks at an export.
const LOOK: Duration = Duration::from_millis(100);
/// How long one that is told to end may take.
const ENDING: Duration = Duration::from_secs(5);
/// How long one may take that is asked for when the machines are about to be taken away.
const AT_ONCE: Duration = Duration::from_secs(300);
/// How long none has a turn then.
const QUIET: Duration = Duration::from_secs(600);

/// What puts checkpoints into the store while the job runs. Dropped, it gives the one up that is on its way.
pub struct Beside(Arc<Inner>);

struct Inner {
    store: Arc<Store>,
    /// The folder that was asked for on the command line.
    dir: Option<PathBuf>,
    loud: bool,
    turns: Mutex<Turns>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// The one that is on its way is given up.
    gives_up: AtomicBool,
    /// When one was last put there out of turn.
    quiet_since: Mutex<Option<Instant>>,
    /// Why the last one is not there.
    failure: Mutex<Option<String>>,
}

impl Beside {
    /// Begins to. `loud`: each is told of.
    pub fn start(store: &Arc<Store>, context: &Context, loud: bool) -> Self {
        Self(Arc::new(Inner {
            store: store.clone(),
            dir: context.asked_dir.clone(),
            loud,
            turns: Mutex::new(Turns::of(store.every)),
            writer: Mutex::default(),
            gives_up: AtomicBool::new(false),
            quiet_since: Mutex::default(),
            failure: Mutex::default(),
        }))
    }

    /// What the job tells of its checkpoints; `None`: none has a turn.
    pub fn on_commit(&self) -> Option<OnCommit> {
        self.0.store.every?;
        let inner = self.0.clone();
        Some(OnCommit::new(move |checkpoint| inner.committed(checkpoint)))
    }

    /// Puts a checkpoint there at once. For a while after that none has a turn: the job is about to be taken away, and those that
    /// it takes now may have its end in them.
    ///
    /// # Errors
    /// The cause.
    pub fn keep_now(&self, checkpoint: CheckpointNumber) -> Result<(), String> {
        *held(&self.0.quiet_since) = Some(Instant::now());
        self.give_up();
        self.0.gives_up.store(false, Ordering::SeqCst);
        let since = Instant::now();
        self.0.export(checkpoint, &["--urgent"], &|| since.elapsed() > AT_ONCE)?;
        let archive = self.0.store.place.archive();
        eprintln!("ckptd: the job is kept in {}, as of checkpoint {checkpoint}", archive.display());
        Ok(())
    }

    /// Gives up what is on its way, which ends within a limit.
    fn give_up(&self) {
        self.0.gives_up.store(true, Ordering::SeqCst);
        let writer = held(&self.0.writer).take();
        if let Some(writer) = writer {
            let _ = writer.join();
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        held(&self.0.turns).end();
        self.give_up();
    }
}

impl Inner {
    fn committed(self: &Arc<Self>, checkpoint: CheckpointNumber) {
        if held(&self.quiet_since).is_some_and(|since| since.elapsed() < QUIET) {
            return;
        }
        let turn = held(&self.turns).committed(checkpoint);
        match turn {
            Turn::Pass | Turn::Skip { tell: false } => {}
            Turn::Skip { tell: true } => eprintln!(
                "ckptd: checkpoint {checkpoint} does not go to the store: the one before is still on its way there; this is \
                 not said again"
            ),
            Turn::Write(checkpoint) => {
                let own = self.clone();
                let thread = std::thread::Builder::new().name("store".to_owned());
                match thread.spawn(move || own.write(checkpoint)) {
                    Ok(writer) => *held(&self.writer) = Some(writer),
                    Err(error) => self.written(checkpoint, Err(error.to_string())),
                }
            }
        }
    }

    fn write(&self, checkpoint: CheckpointNumber) {
        let given_up = || self.gives_up.load(Ordering::SeqCst);
        let written = self.export(checkpoint, &[], &given_up);
        self.written(checkpoint, written);
    }

    fn written(&self, checkpoint: CheckpointNumber, written: Result<(), String>) {
        let failure = written.err();
        let given_up = self.gives_up.load(Ordering::SeqCst);
        match &failure {
            None if self.loud => {
                let archive = self.store.place.archive();
                eprintln!("ckptd: checkpoint {checkpoint} is in the store: {}", archive.display());
            }
            Some(_) if given_up => {}
            // What lasts is told once.
            Some(reason) if Some(reason) != held(&self.failure).as_ref() => {
                eprintln!("ckptd: warning: checkpoint {checkpoint} is not in the store: {reason}");
            }
            _ => {}
        }
        *held(&self.failure) = failure;
        held(&self.turns).written();
    }

    /// Has a checkpoint exported, until it is given up; the text of a failure is a cause.
    fn export(
        &self,
        checkpoint: CheckpointNumber,
        options: &[&str],
        given_up: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        let cause = |error: io::Error| error.to_string();
        let draft = self.store.place.draft().map_err(cause)?;
        let said = tempfile::tempfile().map_err(cause)?;
        let own = std::env::current_exe().map_err(cause)?;
        let mut command = Command::new(own);
        command.env(INNER_CALL, "1");
        if let Some(dir) = &self.dir {
            command.arg("--dir").arg(dir);
        }
        command.args(["export", "--replace", "--beside-job"]).args(options);
        if let Some(run) = self.store.place.claim() {
            command.args(["--claim", run]);
        }
        command.args(recipients(&self.store.recipients)).arg("--");
        command.arg(format!("{}@{checkpoint}", self.store.here)).arg(draft.target());
        let errors = said.try_clone().map_err(cause)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        // What is typed is for the job.
        let mut child = command.process_group(0).spawn().map_err(cause)?;
        let status = wait(&mut child, given_up).map_err(cause)?;
        if !status.success() {
            return Err(last_line(said).unwrap_or_else(|| format!("the export ended: {status}")));
        }
        // What the job has come to is decided elsewhere by now.
        if given_up() {
            return Err("it was given up".to_owned());
        }
        self.store.place.replace(draft).map_err(cause)
    }
}

/// Waits for an export's end, and brings it about where it is given up.
fn wait(child: &mut Child, given_up: &dyn Fn() -> bool) -> io::Result<ExitStatus> {
    let mut since: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        match since {
            None if given_up() => {
                since = Some(Instant::now());
                if let Ok(pid) = i32::try_from(child.id()) {
                    let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
                }
            }
            Some(since) if since.elapsed() > ENDING => child.kill()?,
            _ => {}
        }
        std::thread::sleep(LOOK);
    }
}

fn recipients(arguments: &RecipientArguments) -> Vec<&Path> {
    let keys = arguments.recipient.iter().flat_map(|key| ["--recipient", key]);
    let files = arguments.recipients_file.iter();
    let files = files.flat_map(|file| [Path::new("--recipients-file"), file]);
    keys.map(Path::new).chain(files).collect()
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_is_told_for_whom() {
        let arguments = RecipientArguments {
            recipient: vec!["age1x".to_owned()],
            recipients_file: vec!["/keys".into()],
        };
        let words = ["--recipient", "age1x", "--recipients-file", "/keys"].map(Path::new);
        assert_eq!(recipients(&arguments), words);
    }
}
