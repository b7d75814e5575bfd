//! What every case needs: an instance's folder, orders, a look at the job's progress.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ckpt_engine::{InstanceOrder, RestoreOrder, Session};
use protocol::agent::{
    AgentCommand, AgentEvent, CommitRecord, ImageSummary, InstanceEvent, InstanceId,
};
use protocol::cluster::InstanceKey;
use protocol::launch::{External, LaunchSpec, RestoreSpec};

use super::Outcome;

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(10);
/// How long a job is watched that must not move.
const STILL: Duration = Duration::from_millis(400);

/// A job whose file grows by a line every few milliseconds, and whose first process ends never.
pub const COUNTER: &str =
    "i=0; while :; do i=$((i+1)); echo $i >> count; echo $i; sleep 0.01; done";

/// The folders of a case. Dropping it kills every init that it has seen.
pub struct World {
    folder: tempfile::TempDir,
    inits: Vec<i32>,
}

impl Drop for World {
    fn drop(&mut self) {
        for init in &self.inits {
            let still_init = fs::read_to_string(format!("/proc/{init}/cmdline"))
                .is_ok_and(|line| line.starts_with(ckpt_engine::INIT_NAME));
            if still_init {
                let init = nix::unistd::Pid::from_raw(*init);
                let _ = nix::sys::signal::kill(init, nix::sys::signal::Signal::SIGKILL);
            }
        }
    }
}

impl World {
    /// Fresh folders.
    pub fn new() -> Outcome<Self> {
        // Not in a session directory, whose files would travel and come back.
        let folder = tempfile::Builder::new().prefix("ckptd-instance").tempdir_in("/var/tmp")?;
        fs::create_dir(folder.path().join("store"))?;
        Ok(Self { folder, inits: Vec::new() })
    }

    /// The instance's folder.
    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Where its init is found.
    pub fn socket(&self) -> PathBuf {
        self.store().join("init.sock")
    }

    /// A file of the job.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Notes an init, so that it does not outlive the case.
    pub fn saw(&mut self, init: i32) -> i32 {
        self.inits.push(init);
        init
    }

    /// Bytes that the job has written.
    pub fn count(&self) -> u64 {
        fs::metadata(self.file("count")).map_or(0, |metadata| metadata.len())
    }

    /// The job must go on.
    pub fn moves(&self, when: &str) -> Outcome {
        let before = self.count();
        until(&format!("the job moves {when}"), || self.count() > before + 20)
    }

    /// The job must stand still.
    pub fn stands(&self, when: &str) -> Outcome {
        let before = self.count();
        std::thread::sleep(STILL);
        let after = self.count();
        if before == after {
            return Ok(());
        }
        Err(format!("the job moves {when}: from {before} to {after}").into())
    }
}

/// Waits for something.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) -> Outcome {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > LIMIT {
            return Err(format!("waited in vain: {what}").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// CLOCK_BOOTTIME, ns.
pub fn boottime() -> u64 {
    // Every kernel that this runs on has it.
    let Ok(time) = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME) else { return 0 };
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// The order for an instance kept there, with a lease of so many milliseconds.
pub fn order(store: &Path, lease_ms: u64) -> InstanceOrder {
    InstanceOrder {
        identity: InstanceKey { job: "job".into(), epoch: 3, instance: InstanceId(7) },
        host_name: "phone-2".into(),
        hosts: "127.0.0.1 localhost\n10.1.2.3 phone-1\n".into(),
        socket: store.join("init.sock"),
        calls: None,
        lease_until_ns: boottime() + lease_ms * 1_000_000,
        hold: false,
        root_instance: true,
        external: External::Warn,
        user: None,
        shell: None,
        watch: None,
        crowded: false,
    }
}

/// The order for a restore that is held.
pub fn restore_order(store: &Path, checkpoint: u64) -> RestoreOrder {
    RestoreOrder {
        image_dir: None,
        // The file that the job appends to has grown since.
        spec: RestoreSpec {
            checkpoint,
            force: true,
            external: External::Warn,
            window: None,
            file_check: None,
        },
        part: None,
        instance: Some(InstanceOrder { hold: true, ..order(store, 60_000) }),
        connections: Vec::new(),
        absent: Vec::new(),
    }
}

/// A shell script, in the folder above the store; the streams are pipes.
pub fn script(text: &str) -> LaunchSpec {
    let store = std::env::args_os().nth(2).map(PathBuf::from);
    let folder = store.as_deref().and_then(Path::parent).map(Path::to_owned);
    script_in(text, folder.unwrap_or_else(|| "/".into()))
}

/// A shell script in a folder.
pub fn script_in(text: &str, folder: PathBuf) -> LaunchSpec {
    let program = ["/bin/sh", "-c", text].map(OsString::from).to_vec();
    LaunchSpec {
        environment: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
        ..LaunchSpec::through_pipes(program, folder)
    }
}

/// A session of this process.
pub struct Here {
    /// The session, which ends with this value.
    pub session: Session,
    /// What it tells.
    pub events: Receiver<InstanceEvent>,
}

impl Here {
    /// Starts one.
    pub fn start(world: &World) -> Outcome<Self> {
        let (sender, events) = channel();
        let session = Session::start(world.store(), move |event| {
            let _ = sender.send(event);
        })?;
        Ok(Self { session, events })
    }

    /// The next event that is no warning and no progress.
    pub fn event(&self) -> Outcome<InstanceEvent> {
        loop {
            match self.events.recv_timeout(LIMIT)? {
                InstanceEvent::Agent(AgentEvent::Warning { .. } | AgentEvent::Progress { .. }) => {}
                event => return Ok(event),
            }
        }
    }

    fn step(&self, command: AgentCommand) -> Outcome<AgentEvent> {
        self.session.command(command);
        match self.event()? {
            InstanceEvent::Agent(AgentEvent::Failed { reason, .. }) => Err(reason.into()),
            InstanceEvent::Agent(event) => Ok(event),
            other => Err(format!("{other:?}").into()),
        }
    }

    /// A whole checkpoint.
    pub fn checkpoint(&self, checkpoint: u64) -> Outcome {
        self.step(AgentCommand::Freeze { checkpoint })?;
        self.step(AgentCommand::Quiesce { checkpoint })?;
        self.step(AgentCommand::Snapshot { checkpoint })?;
        self.step(AgentCommand::Resume { checkpoint })?;
        self.step(AgentCommand::Write { checkpoint })?;
        let record = CommitRecord {
            format: CommitRecord::FORMAT,
            job: "job".into(),
            checkpoint,
            restored_from: None,
            taken_at_ms: 0,
            committed_at_ms: 0,
            pause_us: 0,
            log_length: 0,
            copies: 1,
            degraded: false,
            suspended: false,
            summary: ImageSummary::default(),
            agents: vec![InstanceId(7)].into(),
        };
        self.step(AgentCommand::Commit { checkpoint, record }).map(drop)
    }
}

/// Whether a process is there and has not ended.
pub fn exists(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status"))
        .is_ok_and(|status| !status.lines().any(|line| line.starts_with("State:\tZ")))
}

/// Whether an init holds everything below it.
pub fn held_by(init: i32) -> bool {
    let all = traced(init);
    !all.is_empty() && all.iter().all(|(_, tracer)| *tracer == init)
}

/// Whether nothing is below an init any more, not even what has ended and was not waited for.
pub fn is_alone(init: i32) -> bool {
    ckpt_engine::proc::descendants(init).is_ok_and(|all| all.is_empty())
}

/// Living processes below an init, with what each is traced by, by their machine's numbers.
pub fn traced(init: i32) -> Vec<(i32, i32)> {
    let all = ckpt_engine::proc::descendants(init).unwrap_or_default();
    all.into_iter()
        .filter_map(|pid| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            if status.lines().any(|line| line.starts_with("State:\tZ")) {
                return None;
            }
            let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:"))?;
            Some((pid, line.trim().parse().ok()?))
        })
        .collect()
}
