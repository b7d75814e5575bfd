//! What is shown, step by step. This process is the first one in its PID namespace: with it everything ends.

use super::daemons::{Coordinator, GRACE, Status};
use super::error::DemoError;
use super::job::{self, Job};
use super::machines::{BRIDGE, BRIDGE_ADDRESS, COMMON_BITS, Machine, TOKEN};
use super::picture::{Frame, picture};
use super::{Account, apart, daemons, inside, mount_proc, program};
use crate::text;
use ckpt_engine::sys::loopback;
use ckpt_engine::sys::rtnetlink::Network;
use nix::sys::signal::SigSet;
use std::fs;
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// How many machines there are.
const MACHINES: u8 = 3;
/// How long they may take to join, and the job to go on.
const LIMIT: Duration = Duration::from_secs(30);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// Shows it.
pub fn perform(folder: &Path, account: Account) -> Result<(), DemoError> {
    prepare()?;
    let began = Instant::now();
    let (coordinator, mut machines) = make_machines(folder, account)?;
    let mut job = run_job(&machines)?;
    take_checkpoint(&coordinator, &mut job, &machines)?;
    lose_machine(&coordinator, &mut job, &mut machines)?;
    step(5, "The job goes on, and does again what it had done since the checkpoint.")?;
    job.must_be_right()?;
    let took = began.elapsed().as_secs();
    step(
        6,
        &format!(
            "The right answer, exit status 0, after {took} s. The program knows nothing of all this."
        ),
    )?;
    say("   Everything that was started ends now, and nothing is left. What comes next:\n\
         \x20  ckptd run COMMAND...        a program of your own, on this machine; Ctrl-C ends it\n\
         \x20  ckptd restart latest        it goes on from its newest checkpoint\n\
         \x20  ckptd help tutorial         both, and a cluster of real machines\n")
}

/// What the kernel gives a first process only if that asks for it.
fn prepare() -> Result<(), DemoError> {
    mount_proc().map_err(|errno| DemoError::Powerless {
        what: "mount /proc in a PID namespace",
        cause: errno.into(),
    })?;
    // What the user's process holds up for itself would be held up in everything that is started.
    SigSet::empty().thread_set_mask().map_err(DemoError::system("let signals come"))?;
    std::thread::spawn(|| {
        // Nothing ever comes: the end is that of the user's process.
        let _ = io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    loopback::bring_up()
        .and_then(|()| {
            let mut network = Network::open()?;
            network.make_bridge(BRIDGE, BRIDGE_ADDRESS)?;
            network.set_address(BRIDGE, daemons::ADDRESS, COMMON_BITS)
        })
        .map_err(DemoError::Network)
}

fn make_machines(
    folder: &Path,
    account: Account,
) -> Result<(Coordinator, Vec<Machine>), DemoError> {
    step(
        1,
        "A cluster: a coordinator, and three machines made of namespaces, each with an agent.",
    )?;
    let coordinator = Coordinator::start(folder)?;
    command(&format!("ckptd coordinator --grace {GRACE}"))?;
    let token = coordinator.token(MACHINES.into())?;
    command("ckptd token --uses 3")?;
    protocol::durable::replace(&folder.join(TOKEN), token.as_bytes())
        .map_err(DemoError::system("write the token"))?;
    let mut machines = Vec::new();
    for number in 1..=MACHINES {
        let machine = Machine::start(number, folder, account)?;
        command(&format!(
            "ckptd agent --join-file token          on {}, {}",
            machine.name, machine.address
        ))?;
        machines.push(machine);
    }
    let joined = until("the machines have not joined", || {
        Ok((coordinator.members()? >= machines.len()).then_some(()))
    });
    joined.map_err(|error| explained(error, &machines))?;
    say("   All three are members.\n")?;
    Ok((coordinator, machines))
}

/// With what the agents have said last.
fn explained(error: DemoError, machines: &[Machine]) -> DemoError {
    let logs = machines.iter().map(|machine| machine.folder.join(inside::LOG));
    let logs = logs.map(|log| fs::read_to_string(log).unwrap_or_default());
    let said: Vec<String> = logs
        .filter_map(|log| log.lines().rfind(|line| !line.contains(" INFO ")).map(str::to_owned))
        .collect();
    match said.is_empty() {
        true => error,
        false => DemoError::Command { what: error.to_string(), said: said.join("; ") },
    }
}

fn run_job(machines: &[Machine]) -> Result<Job, DemoError> {
    step(
        2,
        "A job on node1: a program counts the ways to place 14 queens, with two workers on each machine.",
    )?;
    let mut job = Job::start(machines)?;
    command(&job.command)?;
    let all = program::all_have_come(machines.len() * job::WORKERS);
    job.shows_until(&all, "the workers had not come")?;
    Ok(job)
}

fn take_checkpoint(
    coordinator: &Coordinator,
    job: &mut Job,
    machines: &[Machine],
) -> Result<(), DemoError> {
    step(3, "A checkpoint, which 'ckptd run' takes every 30 s by itself, and at once on demand.")?;
    command(&format!("ckptd checkpoint {}", job::NAME))?;
    let mut asked = apart()?;
    if let Some(first) = machines.first() {
        asked.arg("--dir").arg(&first.folder).args(["checkpoint", job::NAME]);
    }
    daemons::output(&mut asked, "take a checkpoint")?;
    let status = coordinator.job(job::NAME)?;
    if let Some((bytes, pause_us, copies)) = status.checkpoint() {
        say(&format!(
            "   {} of memory; the job stood still for {}; each image is on {} now.\n   Who is where:\n\n",
            text::size(bytes),
            text::micros(pause_us),
            text::count(copies, "machine"),
        ))?;
    }
    show_places(&status, machines, None)?;
    say("\n")?;
    job.shows_until(program::PROGRESS, "the job had gone on")
}

fn lose_machine(
    coordinator: &Coordinator,
    job: &mut Job,
    machines: &mut Vec<Machine>,
) -> Result<(), DemoError> {
    let Some(lost) = machines.pop() else { return Ok(()) };
    let name = lost.name.clone();
    step(
        4,
        &format!("{name} dies: SIGKILL to all that runs there at once, its agent and two workers."),
    )?;
    lost.kill()?;
    say(&format!(
        "   The coordinator waits {GRACE} s for a word of it, and brings its processes back elsewhere.\n"
    ))?;
    let status = until("the job did not go on", || {
        job.shows_what_came()?;
        let status = coordinator.job(job::NAME)?;
        Ok(status.recovered_ms().is_some().then_some(status))
    })?;
    if let Some(ms) = status.recovered_ms() {
        say(&format!("   After {:.1} s all of the job runs again:\n\n", ms as f64 / 1e3))?;
    }
    show_places(&status, machines, Some(name))
}

fn show_places(
    status: &Status,
    machines: &[Machine],
    dead: Option<String>,
) -> Result<(), DemoError> {
    let alive = machines.iter().map(|machine| Frame { name: machine.name.clone(), is_dead: false });
    let dead = dead.map(|name| Frame { name, is_dead: true });
    let frames: Vec<Frame> = alive.chain(dead).collect();
    say(&picture(&frames, &status.places()))
}

/// Waits until something is there.
fn until<T>(
    what: &'static str,
    mut look: impl FnMut() -> Result<Option<T>, DemoError>,
) -> Result<T, DemoError> {
    let limit = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if Instant::now() > limit {
            return Err(DemoError::Late { what, limit_s: LIMIT.as_secs() });
        }
        std::thread::sleep(LOOK);
    }
}

fn step(number: u8, text: &str) -> Result<(), DemoError> {
    match io::stdout().is_terminal() {
        true => say(&format!("\n\x1b[1m{number}. {text}\x1b[0m\n")),
        false => say(&format!("\n{number}. {text}\n")),
    }
}

/// A command, as a user would give it.
fn command(text: &str) -> Result<(), DemoError> {
    say(&format!("   $ {text}\n"))
}

fn say(text: &str) -> Result<(), DemoError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(DemoError::Output)
}
