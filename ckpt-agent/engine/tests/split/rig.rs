//! Instances: started, dumped, killed, and brought back in parts.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use ckpt_engine::dump::{DumpSettings, Frozen, freeze_job, write_image};
use ckpt_engine::graph::{OuterEnd, Pid, RelayEnd, RelayKind};
use ckpt_engine::inodes::ahead::Taken;
use ckpt_engine::inodes::copying::Copying;
use ckpt_engine::job_init::{Channel, Order, Report, Task, World};
use ckpt_engine::objects::{External, HeldRelay, Shown, StdioRole};
use ckpt_engine::restore::{Image as Opened, Past, Processes};
use ckpt_engine::split::standin::Message;
use ckpt_engine::split::{Holdings, PartOrder, Unit, units};
use ckpt_engine::sys::spawn::with_descriptor;
use ckpt_store::WriterOptions;
use nix::poll::{PollFd, PollFlags, poll};
use protocol::agent::{CommitRecord, ExitKind};
use protocol::launch::{LaunchSpec, RestoreSpec, StreamKind};

use super::carrier::{Carrier, Side};
use super::program;

pub type Outcome<T = ()> = Result<T, String>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// How long a job may take to its end.
const LIMIT: Duration = Duration::from_secs(20);

/// How often a job's processes wait for something while some rounds of its work pass.
const WORK: u64 = 100;

/// A running instance.
pub struct Instance {
    monitor: Child,
    init: i32,
    channel: Channel,
    root: Pid,
    console: BTreeMap<StdioRole, OwnedFd>,
    relays: Vec<Arc<Side>>,
    dir: PathBuf,
    number: u64,
    /// By how many ns CLOCK_MONOTONIC was ordered to be ahead of the machine's.
    clock: i64,
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(self.init),
            nix::sys::signal::Signal::SIGKILL,
        );
        let _ = self.monitor.wait();
    }
}

/// A committed image of an instance.
pub struct Image {
    dir: PathBuf,
    number: u64,
    /// Memory that the copies of its processes have for themselves alone after all of it was read, in KiB.
    pub copied: u64,
    /// What was added to the store, in KiB.
    pub stored: u64,
}

impl Image {
    fn open(&self) -> Outcome<(Opened, Processes)> {
        Opened::open(&self.dir, self.number).map_err(text)
    }

    pub fn units(&self) -> Outcome<Vec<Unit>> {
        let (opened, processes) = self.open()?;
        Ok(units(&opened.graph, &Holdings::of(&opened.graph, processes.values()), true))
    }
}

pub struct Rig {
    folder: tempfile::TempDir,
    carrier: Carrier,
    listener: Option<UnixListener>,
    instances: u32,
    splits: u32,
}

impl Rig {
    pub fn new() -> Outcome<Self> {
        let folder = tempfile::tempdir().map_err(text)?;
        Ok(Self { folder, carrier: Carrier::default(), listener: None, instances: 0, splits: 0 })
    }

    pub fn launch_program(&mut self, kind: &str) -> Outcome<Instance> {
        let own = std::env::current_exe().map_err(text)?;
        self.launch(&[&own.to_string_lossy(), program::FLAG, kind])
    }

    pub fn launch(&mut self, program: &[&str]) -> Outcome<Instance> {
        let spec = LaunchSpec {
            environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
            stderr: StreamKind::WithStdout,
            ..LaunchSpec::through_pipes(program.iter().map(Into::into).collect(), "/".into())
        };
        let dir = self.new_dir()?;
        self.start(
            &Order {
                task: Task::Launch(spec),
                clocks: None,
                world: World::Own,
                number: None,
                keepsake: Default::default(),
                instance: None,
                connections: 0,
                low_heap: false,
                rehearsal: None,
                stages: false,
            },
            dir,
            0,
            None,
        )
    }

    /// Where remote shells say who they are.
    pub fn listen(&mut self) -> Outcome<PathBuf> {
        let path = self.folder.path().join("shells");
        self.listener = Some(UnixListener::bind(&path).map_err(text)?);
        Ok(path)
    }

    /// Takes over what a remote shell gives.
    pub fn accept_shell(&mut self, mut instance: Instance) -> Outcome<Instance> {
        let (socket, _) = self.listener.as_ref().ok_or("no listener")?.accept().map_err(text)?;
        let ((pid, ppid), fds): ((Pid, Pid), _) = Channel::new(socket).receive().map_err(text)?;
        let kinds = [
            RelayKind::Link { parent: ppid, child: pid },
            RelayKind::Descriptor { pid, fd: 0 },
            RelayKind::Descriptor { pid, fd: 1 },
        ];
        let ids = ["shell", "shell#fd0", "shell#fd1"];
        for ((fd, kind), id) in fds.into_iter().zip(kinds).zip(ids) {
            let end = RelayEnd { id: id.into(), side: 0, kind };
            instance.relays.push(self.carrier.add(Side::new(end, fd, &[], false)));
        }
        self.echo(&instance);
        Ok(instance)
    }

    fn echo(&mut self, instance: &Instance) {
        let find = |wanted: i32| {
            instance.relays.iter().find(
                |side| matches!(side.end.kind, RelayKind::Descriptor { fd, .. } if fd == wanted),
            )
        };
        if let (Some(input), Some(output)) = (find(0), find(1)) {
            self.carrier.echo(input, output);
        }
    }

    /// What is told to a remote program: any signal ends it.
    fn remote_end(&self, instance: &Instance) -> Outcome {
        for side in &instance.relays {
            let RelayKind::Link { .. } = side.end.kind else { continue };
            let paired = !self.carrier.unpaired().contains(&&side.end);
            let Some(fd) = side.fd().filter(|_| !paired) else { continue };
            let mut polled = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
            poll(&mut polled, 5000u16).map_err(text)?;
            let mut bytes = [0; 64];
            let length = nix::unistd::read(&*fd, &mut bytes).map_err(text)?;
            match Message::decode(&bytes[..length]) {
                Some(Message::Signal { signal, .. }) => {
                    let message = Message::Ended { status: signal }.encode();
                    nix::unistd::write(&*fd, &message).map_err(text)?;
                    // Copies of the shell's streams would keep the job's output open.
                    let streams = instance
                        .relays
                        .iter()
                        .filter(|side| matches!(side.end.kind, RelayKind::Descriptor { .. }));
                    streams.for_each(|side| side.close());
                }
                other => return Err(format!("a remote shell says {other:?}")),
            }
        }
        Ok(())
    }

    fn new_dir(&mut self) -> Outcome<PathBuf> {
        self.instances += 1;
        let dir = self.folder.path().join(self.instances.to_string());
        std::fs::create_dir(&dir).map_err(text)?;
        Ok(dir)
    }

    /// Brings back a part, or all of it.
    pub fn restore(&mut self, image: &Image, part: Option<PartOrder>) -> Outcome<Instance> {
        let spec = RestoreSpec {
            checkpoint: image.number,
            force: false,
            external: protocol::launch::External::Warn,
            window: None,
            file_check: None,
        };
        let task = Task::Restore { job_dir: image.dir.clone(), spec, part };
        let dir = self.new_dir()?;
        let states = image.open()?.0.relay_states().map_err(text)?;
        let past = Past::of(&image.dir, image.number).map_err(text)?;
        self.start(
            &Order {
                clocks: Some(past.clocks),
                world: World::Own,
                number: None,
                task,
                keepsake: Default::default(),
                instance: None,
                connections: 0,
                low_heap: false,
                rehearsal: None,
                stages: false,
            },
            dir,
            image.number,
            Some(states),
        )
    }

    /// Every unit in a part of its own.
    pub fn split(&mut self, image: &Image) -> Outcome<Vec<Instance>> {
        self.splits += 1;
        let origin = format!("test/{}@{}", self.splits, image.number);
        let units = image.units()?;
        let mut assignment = BTreeMap::new();
        for (part, unit) in units.iter().enumerate() {
            assignment.extend(unit.pids.iter().map(|pid| (*pid, part as u32)));
        }
        let mut instances = Vec::new();
        for part in 0..units.len() as u32 {
            let order = PartOrder { assignment: assignment.clone(), part, origin: origin.clone() };
            instances.push(self.restore(image, Some(order))?);
        }
        let unpaired = self.carrier.unpaired();
        if !unpaired.is_empty() {
            return Err(format!("relays without a peer: {unpaired:?}"));
        }
        Ok(instances)
    }

    fn start(
        &mut self,
        order: &Order,
        dir: PathBuf,
        number: u64,
        states: Option<Vec<(RelayEnd, Vec<u8>, bool)>>,
    ) -> Outcome<Instance> {
        let (ours, theirs) = UnixStream::pair().map_err(text)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0(ckpt_engine::INIT_NAME).env_clear();
        let monitor = with_descriptor(&mut command, theirs.into(), 3).map_err(text)?;
        let channel = Channel::new(ours);
        let mut instance = Instance {
            monitor,
            init: 0,
            channel,
            root: 0,
            console: BTreeMap::new(),
            relays: Vec::new(),
            dir,
            number,
            clock: order.clocks.map_or(0, |(monotonic, _)| monotonic),
        };
        instance.channel.send(order, &[]).map_err(text)?;
        let states = states.unwrap_or_default();
        loop {
            let (report, mut fds) = instance.channel.receive::<Report>().map_err(text)?;
            match report {
                Report::Init(pid) => instance.init = pid,
                Report::Outer { end: OuterEnd::Relay(end) } => {
                    let fd = fds.pop().ok_or("no descriptor of a relay")?;
                    let known = states.iter().find(|(other, ..)| *other == end);
                    let (bytes, closed) =
                        known.map_or((&[][..], false), |(_, bytes, closed)| (bytes, *closed));
                    instance.relays.push(self.carrier.add(Side::new(end, fd, bytes, closed)));
                }
                Report::Outer { .. } => return Err("an end that is no relay's".into()),
                Report::Failed(reason) => return Err(reason),
                Report::Ready { root, console, .. } => {
                    instance.root = root.unwrap_or(0);
                    instance.console = console.into_iter().zip(fds).collect();
                    self.echo(&instance);
                    return Ok(instance);
                }
                other => return Err(format!("not ready but {other:?}")),
            }
        }
    }

    /// Takes a checkpoint of all instances at one moment, and ends them.
    pub fn dump(&mut self, instances: Vec<Instance>) -> Outcome<Vec<Image>> {
        for _ in 0..100 {
            let mut all = Vec::new();
            for instance in &instances {
                all.push(freeze_job(settings(instance)?).map_err(text)?);
            }
            self.carrier.drain();
            match self.finish_dump(&instances, all)? {
                Some(images) => {
                    self.carrier.stop();
                    drop(instances);
                    return Ok(images);
                }
                None => {
                    self.carrier.go_on();
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
        Err("stand-ins never have nothing to do".into())
    }

    fn finish_dump(&self, instances: &[Instance], all: Vec<Frozen>) -> Outcome<Option<Vec<Image>>> {
        let mut quiesced = Vec::new();
        for frozen in all {
            match frozen.quiesce() {
                Ok(one) => quiesced.push(one),
                Err(error) if error.passes() => return Ok(None),
                Err(error) => return Err(text(error)),
            }
        }
        // Nobody goes on before the last one has been read.
        let mut snapshots = Vec::new();
        for (instance, mut quiesced) in instances.iter().zip(quiesced) {
            let states = instance.relays.iter().map(|side| {
                let (bytes, closed) = side.state();
                (side.end.clone(), bytes, closed)
            });
            quiesced.set_relay_states(states.collect());
            snapshots.push(quiesced.snapshot().map_err(text)?);
        }
        let mut images = Vec::new();
        for (instance, snapshot) in instances.iter().zip(&mut snapshots) {
            let data = snapshot.take_data().ok_or("no data")?;
            let number = instance.number + 1;
            let copies: Vec<i32> = data.processes.iter().map(|dump| dump.snapshot_pid).collect();
            let (sealed, summary, _) = write_image(
                data,
                &instance.dir,
                number,
                &WriterOptions::default(),
                &AtomicU64::new(0),
            )
            .map_err(text)?;
            let copied = copies.into_iter().map(own_memory).sum::<Outcome<u64>>()?;
            let record = CommitRecord {
                format: CommitRecord::FORMAT,
                job: "test".into(),
                checkpoint: number,
                restored_from: None,
                taken_at_ms: 0,
                committed_at_ms: 0,
                pause_us: 0,
                log_length: 0,
                copies: 1,
                degraded: false,
                suspended: false,
                agents: Vec::new().into(),
                summary: Default::default(),
            };
            sealed.commit(&record).map_err(text)?;
            let (dir, stored) = (instance.dir.clone(), summary.stored_bytes / 1024);
            images.push(Image { dir, number, copied, stored });
        }
        Ok(Some(images))
    }

    /// Waits until the processes of these instances together have done some rounds of work.
    pub fn let_work(&self, instances: &[Instance]) -> Outcome {
        let waits = || -> Outcome<BTreeMap<Pid, u64>> {
            let mut waits = BTreeMap::new();
            for instance in instances {
                for pid in ckpt_engine::proc::descendants(instance.init).map_err(text)? {
                    waits.insert(pid, waits_of(pid));
                }
            }
            Ok(waits)
        };
        let (before, begun) = (waits()?, Instant::now());
        while begun.elapsed() < LIMIT {
            let since = |(pid, now): (&Pid, &u64)| {
                now.saturating_sub(before.get(pid).copied().unwrap_or(0))
            };
            if waits()?.iter().map(since).sum::<u64>() >= WORK {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err("the job does no work".into())
    }

    /// Waits until a job has said this.
    pub fn await_word(&self, job: &Instance, word: &str) -> Outcome {
        let stdout = job.console.get(&StdioRole::Stdout).ok_or("no standard output")?;
        let mut said = vec![0; word.len()];
        File::from(stdout.try_clone().map_err(text)?).read_exact(&mut said).map_err(text)?;
        match said == word.as_bytes() {
            true => Ok(()),
            false => Err(format!("{:?} instead of {word:?}", String::from_utf8_lossy(&said))),
        }
    }

    /// Memory of all processes of a job, in KiB; what some have in common counts once.
    pub fn memory(&self, job: &Instance) -> Outcome<u64> {
        let all = ckpt_engine::proc::descendants(job.init).map_err(text)?;
        all.into_iter().map(|pid| rollup(pid, "Pss:")).sum()
    }

    /// By how many ns the clock of all processes of a job is ahead of what it would be if it had gone on from the order
    /// to restore it.
    pub fn clocks(&self, job: &Instance) -> Outcome<i64> {
        let of = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/time")).map_err(text);
        let own = of(job.init)?;
        for pid in ckpt_engine::proc::descendants(job.init).map_err(text)? {
            if of(pid)? != own {
                return Err(format!("process {pid} has a time namespace of its own"));
            }
        }
        let offsets = std::fs::read_to_string(format!("/proc/{}/timens_offsets", job.init));
        let offsets = offsets.map_err(text)?;
        let monotonic = offsets.lines().find_map(|line| line.strip_prefix("monotonic"));
        let mut words = monotonic.unwrap_or_default().split_ascii_whitespace();
        let mut number = || words.next()?.parse::<i64>().ok();
        match (number(), number()) {
            (Some(seconds), Some(rest)) => Ok(seconds * 1_000_000_000 + rest - job.clock),
            _ => Err(format!("no clock in {offsets:?}")),
        }
    }

    /// Lets the job come to its end: its status, and what the instances say.
    pub fn finish(&mut self, mut instances: Vec<Instance>) -> Outcome<(u8, Vec<String>)> {
        let at = instances.iter().position(|instance| instance.root != 0);
        let lead = instances.swap_remove(at.ok_or("no instance has the first process")?);
        let stream = |role| lead.console.get(&role).ok_or(format!("no {role:?}"));
        let mut stdin = File::from(stream(StdioRole::Stdin)?.try_clone().map_err(text)?);
        // What went wrong before that, the job says.
        let _ = stdin.write_all(b"q");
        self.remote_end(&lead)?;
        let mut said = vec![read_until_end(stream(StdioRole::Stdout)?)?];
        let status = match lead.channel.receive::<Report>().map_err(text)?.0 {
            Report::Ended(ExitKind::Exited(status)) => status,
            other => return Err(format!("the job ended with {other:?}")),
        };
        for other in &instances {
            if let Some(stdout) = other.console.get(&StdioRole::Stdout) {
                said.push(read_until_end(stdout)?);
            }
        }
        said.retain(|text| !text.is_empty());
        self.carrier.stop();
        Ok((status, said))
    }
}

/// How often a process has waited for something; none where it has ended meanwhile.
fn waits_of(pid: Pid) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

/// Memory that a process has in common with nobody, in KiB.
fn own_memory(pid: i32) -> Outcome<u64> {
    Ok(rollup(pid, "Private_Dirty:")? + rollup(pid, "Private_Clean:")?)
}

fn rollup(pid: i32, name: &str) -> Outcome<u64> {
    let all = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).map_err(text)?;
    let line = all.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
    number.ok_or_else(|| format!("{name} of process {pid} is not told"))
}

fn read_until_end(stdout: &OwnedFd) -> Outcome<String> {
    let begun = Instant::now();
    let mut said = Vec::new();
    while begun.elapsed() < LIMIT {
        let mut polled = [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)];
        if poll(&mut polled, 100u8).map_err(text)? == 0 {
            continue;
        }
        let mut bytes = [0; 256];
        match nix::unistd::read(stdout, &mut bytes).map_err(text)? {
            0 => return String::from_utf8(said).map_err(text),
            length => said.extend_from_slice(&bytes[..length]),
        }
    }
    Err(format!("no end, after {:?}", String::from_utf8_lossy(&said)))
}

fn settings(instance: &Instance) -> Outcome<DumpSettings> {
    let mut stdio = HashMap::new();
    for (role, end) in &instance.console {
        let stat = nix::sys::stat::fstat(end).map_err(text)?;
        stdio.insert((stat.st_dev, stat.st_ino), *role);
    }
    let mut relays = Vec::new();
    for side in &instance.relays {
        if let Some(fd) = side.fd() {
            relays.push(HeldRelay::of(side.end.clone(), &*fd).map_err(text)?);
        }
    }
    Ok(DumpSettings {
        cluster: false,
        machines: Default::default(),
        init: instance.init,
        members: ckpt_engine::proc::Members::Below(instance.init),
        root: instance.root,
        session_directories: Vec::new(),
        kept: protocol::launch::Kept::default(),
        user: None,
        external: External::Fail,
        stdio,
        terminal: None,
        relays,
        offers: Vec::new(),
        freeze_limit: Duration::from_secs(2),
        seen: Taken::default(),
        shown: Shown::default(),
        copying: Copying::default(),
        tracking: Default::default(),
        checkpoint: 0,
    })
}
