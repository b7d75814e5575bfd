//! Grows process trees in a fresh user, PID and mount namespace and compares them with what /proc
//! says. Run as root it repeats everything as an ordinary user.

#[path = "../../../tests/harness.rs"]
mod harness;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use ckpt_engine::graph::{Pid, ProcessNode, ProcessState};
use ckpt_engine::restore::tree::{HelperError, Here, Hooks, grow, plan};
use harness::Asked;

const CASE: &str = "--grow";

type Outcome = Result<(), String>;
type Case = (&'static str, fn() -> Outcome);

const CASES: &[Case] = &[
    ("pipelines_of_a_shell", pipelines_of_a_shell),
    ("daemons_and_orphans", daemons_and_orphans),
    ("subreapers", subreapers),
    ("process_groups_without_leaders", process_groups_without_leaders),
    ("children_from_before_setsid", children_from_before_setsid),
    ("zombies", zombies),
    ("exit_signals", exit_signals),
    ("session_of_init", session_of_init),
    ("a_thousand_processes", a_thousand_processes),
    ("a_long_line_of_descent", a_long_line_of_descent),
    ("failed_preparation", failed_preparation),
    ("panic_in_a_helper", panic_in_a_helper),
    ("number_taken", number_taken),
];

/// In the machine's own namespaces.
const AMONG_OTHERS: &[Case] = &[
    ("others_around", others_around),
    ("new_numbers", new_numbers),
    ("failure_among_others", failure_among_others),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name] = arguments.as_slice() {
        if flag == CASE {
            return run_case(name);
        }
    }
    let asked = Asked::new(&arguments);
    if asked.lists(all_cases().map(|(name, _)| *name)) {
        return ExitCode::SUCCESS;
    }
    match run_all(&asked) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failed) => {
            println!("test result: FAILED. {failed} failed");
            ExitCode::FAILURE
        }
        Err(text) => {
            println!("failed to run the tests: {text}");
            ExitCode::FAILURE
        }
    }
}

fn run_all(asked: &Asked) -> Result<usize, String> {
    // An ordinary user may not be able to reach the build folder.
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let open = || fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path(), open()).map_err(|error| error.to_string())?;
    let program = folder.path().join("tree");
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    fs::copy(own, &program).map_err(|error| error.to_string())?;
    fs::set_permissions(&program, open()).map_err(|error| error.to_string())?;
    let root = nix::unistd::geteuid().is_root();
    let mut failed = 0;
    for ordinary in [false, true] {
        if ordinary && !root {
            continue;
        }
        let user = if ordinary || !root { "ordinary user" } else { "root" };
        for (name, _) in all_cases().filter(|(name, _)| asked.wants(name)) {
            let passed = spawn(&program, name, ordinary)?;
            println!("test {name} ({user}) ... {}", if passed { "ok" } else { "FAILED" });
            failed += usize::from(!passed);
        }
    }
    Ok(failed)
}

/// Into namespaces of its own, as their process 1.
const UNSHARE: &[&str] =
    &["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"];

fn all_cases() -> impl Iterator<Item = &'static Case> {
    CASES.iter().chain(AMONG_OTHERS)
}

fn spawn(program: &Path, name: &str, ordinary: bool) -> Result<bool, String> {
    let mut words = vec!["timeout", "-k", "1", "60"];
    if ordinary {
        words.extend(["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups"]);
    }
    if CASES.iter().any(|(known, _)| *known == name) {
        words.extend(UNSHARE);
    }
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(program).args([CASE, name]).current_dir("/");
    let status = command.status().map_err(|error| format!("{}: {error}", words[0]))?;
    Ok(status.success())
}

fn run_case(name: &str) -> ExitCode {
    let Some((_, case)) = all_cases().find(|(known, _)| *known == name) else {
        println!("no case is named {name}");
        return ExitCode::FAILURE;
    };
    match case() {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            println!("{name}: {text}");
            ExitCode::FAILURE
        }
    }
}

fn node(pid: Pid, ppid: Pid, pgid: Pid, sid: Pid) -> ProcessNode {
    let (comm, state) = (String::new(), ProcessState::Alive);
    let (exit_signal, inside) = (libc::SIGCHLD, None);
    ProcessNode { pid, ppid, pgid, sid, comm, exit_signal, subreaper: false, state, inside }
}

fn subreaper(mut node: ProcessNode) -> ProcessNode {
    node.subreaper = true;
    node
}

fn zombie(mut node: ProcessNode, status: i32) -> ProcessNode {
    node.state = ProcessState::Zombie { status, user: None };
    node
}

fn told_by(mut node: ProcessNode, exit_signal: i32) -> ProcessNode {
    node.exit_signal = exit_signal;
    node
}

/// Compares with the record from inside of each helper what only it can see.
struct Inspect<'a>(&'a [ProcessNode]);

impl Hooks for Inspect<'_> {
    fn terminal(&self, _: Pid) -> Result<(), HelperError> {
        let found = nix::unistd::getsid(None).map_err(HelperError::system("getsid"))?.as_raw();
        let (what, wanted) = ("session", std::process::id() as Pid);
        if found == wanted { Ok(()) } else { Err(HelperError::Misplaced { what, found, wanted }) }
    }

    fn prepare(&self, pid: Pid, _: Here<'_>) -> Result<(), HelperError> {
        let node = self.0.iter().find(|node| node.pid == pid);
        let node = node.ok_or(HelperError::NotHere(pid))?;
        let found = nix::sys::prctl::get_child_subreaper();
        let found = found.map_err(HelperError::system("prctl"))?;
        if found == node.subreaper { Ok(()) } else { Err(told(&format!("subreaper: {found}"))) }
    }
}

fn check(nodes: &[ProcessNode]) -> Outcome {
    let plan = plan(nodes).map_err(|error| error.to_string())?;
    let mut grown = grow(&plan, &Inspect(nodes)).map_err(|error| error.to_string())?.kept;
    grown.sort_unstable();
    let mut alive: Vec<Pid> = nodes
        .iter()
        .filter(|node| node.state == ProcessState::Alive)
        .map(|node| node.pid)
        .collect();
    alive.sort_unstable();
    if grown != alive {
        return Err(format!("grown are {grown:?} instead of {alive:?}"));
    }
    let mut found = read_all()?;
    for node in nodes {
        let seen = found.remove(&node.pid).ok_or(format!("{} is not there", node.pid))?;
        compare(node, &seen)?;
    }
    if found.is_empty() { Ok(()) } else { Err(format!("left over: {found:?}")) }
}

#[derive(Debug)]
struct Seen {
    stat: Vec<String>,
    status: BTreeMap<String, String>,
}

fn compare(node: &ProcessNode, seen: &Seen) -> Outcome {
    // proc_pid_stat(5) counts from 1, and the first two fields are cut off here.
    let field = |number: usize| seen.stat.get(number - 3).map_or("", String::as_str);
    let mut wanted = vec![
        ("ppid", field(4), node.ppid.to_string()),
        ("pgrp", field(5), node.pgid.to_string()),
        ("session", field(6), node.sid.to_string()),
        ("exit_signal", field(38), node.exit_signal.to_string()),
    ];
    match node.state {
        ProcessState::Alive | ProcessState::StandIn => {
            wanted.push(("state", field(3), "S".to_owned()))
        }
        ProcessState::Zombie { status, .. } => {
            wanted.push(("state", field(3), "Z".to_owned()));
            // Nobody may look at the status of one that was kept from dumping a core, but its parent.
            if status & 0x80 == 0 {
                wanted.push(("exit_code", field(52), status.to_string()));
            }
        }
    }
    let status = |name: &str| seen.status.get(name).map_or("", String::as_str);
    if node.state == ProcessState::Alive {
        let blocked: u64 = !(1 << (libc::SIGKILL - 1)) & !(1 << (libc::SIGSTOP - 1));
        wanted.push(("SigBlk", status("SigBlk"), format!("{blocked:016x}")));
        wanted.push(("SigPnd", status("SigPnd"), "0".repeat(16)));
        wanted.push(("ShdPnd", status("ShdPnd"), "0".repeat(16)));
        wanted.push(("SigIgn", status("SigIgn"), "0".repeat(16)));
    }
    for (what, found, wanted) in wanted {
        if found != wanted {
            return Err(format!("process {}: {what} is {found} instead of {wanted}", node.pid));
        }
    }
    Ok(())
}

fn read_all() -> Result<BTreeMap<Pid, Seen>, String> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir("/proc").map_err(|error| error.to_string())? {
        let name = entry.map_err(|error| error.to_string())?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<Pid>().ok()) else { continue };
        if pid == 1 {
            continue;
        }
        // A helper that has just ticked may still be on its way to sleep.
        for _ in 0..200 {
            let seen = read(pid)?;
            let settled = seen.stat.first().is_some_and(|state| state != "R");
            all.insert(pid, seen);
            if settled {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    Ok(all)
}

fn read(pid: Pid) -> Result<Seen, String> {
    let text = |file: &str| {
        fs::read_to_string(format!("/proc/{pid}/{file}")).map_err(|error| format!("{pid}: {error}"))
    };
    let stat = text("stat")?;
    let (_, fields) = stat.rsplit_once(')').ok_or("stat without a name")?;
    let status = text("status")?
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key.to_owned(), value.trim().to_owned()))
        .collect();
    Ok(Seen { stat: fields.split_whitespace().map(str::to_owned).collect(), status })
}

fn pipelines_of_a_shell() -> Outcome {
    check(&[
        node(10, 1, 10, 10),
        node(11, 10, 11, 10),
        node(12, 10, 11, 10),
        node(13, 12, 11, 10),
        node(20, 10, 20, 10),
        node(30, 10, 10, 10),
    ])
}

fn daemons_and_orphans() -> Outcome {
    check(&[
        // Double fork: the leader of session 11 has ended.
        node(12, 1, 11, 11),
        node(13, 12, 13, 11),
        // An orphan of a session whose leader lives elsewhere.
        node(20, 1, 20, 20),
        node(21, 20, 21, 21),
        node(22, 1, 22, 21),
        node(23, 22, 23, 23),
        // Numbers against the order of ancestry.
        node(9, 300, 9, 9),
        node(300, 9000, 8, 8),
        node(9000, 1, 8, 8),
    ])
}

fn subreapers() -> Outcome {
    check(&[
        subreaper(node(10, 1, 10, 10)),
        node(12, 10, 11, 11),
        subreaper(node(15, 12, 15, 15)),
        node(17, 15, 16, 16),
        node(18, 10, 16, 16),
        node(19, 1, 16, 16),
        node(20, 15, 16, 16),
        zombie(node(21, 10, 16, 16), 0x300),
    ])
}

fn process_groups_without_leaders() -> Outcome {
    check(&[
        node(10, 1, 10, 10),
        // Leader 11 has ended.
        node(12, 10, 11, 10),
        // 13 and 14 have changed places; 15 has left its group to another.
        node(13, 10, 14, 10),
        node(14, 10, 13, 10),
        node(15, 10, 11, 10),
        node(16, 15, 15, 10),
        // A whole session without its leader, with groups of ended leaders.
        node(22, 1, 21, 20),
        node(23, 22, 20, 20),
        node(24, 22, 22, 20),
    ])
}

fn children_from_before_setsid() -> Outcome {
    check(&[
        node(10, 1, 10, 10),
        node(11, 10, 11, 11),
        node(12, 11, 10, 10),
        node(13, 11, 11, 11),
        node(14, 11, 14, 14),
        node(15, 14, 10, 10),
    ])
}

fn zombies() -> Outcome {
    check(&[
        node(10, 1, 10, 10),
        zombie(node(11, 10, 11, 10), 7 << 8),
        zombie(node(12, 10, 11, 10), libc::SIGKILL),
        zombie(node(13, 10, 13, 13), libc::SIGSEGV | 0x80),
        zombie(node(14, 1, 14, 14), libc::SIGTERM),
        node(15, 1, 14, 14),
        zombie(node(16, 15, 14, 14), 0),
        zombie(node(17, 1, 17, 17), 255 << 8),
        zombie(node(18, 10, 18, 10), 40),
        zombie(node(19, 15, 14, 14), libc::SIGPIPE),
        zombie(node(20, 1, 20, 20), libc::SIGSEGV | 0x80),
    ])?;
    for (pid, wanted) in [(14, libc::SIGTERM), (17, 255 << 8), (20, libc::SIGSEGV)] {
        let status = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(pid), None);
        let found = match status.map_err(|error| error.to_string())? {
            nix::sys::wait::WaitStatus::Exited(_, code) => code << 8,
            nix::sys::wait::WaitStatus::Signaled(_, signal, core) => {
                signal as i32 | if core { 0x80 } else { 0 }
            }
            other => return Err(format!("{other:?}")),
        };
        if found != wanted {
            return Err(format!("process {pid} ended with {found:#x} instead of {wanted:#x}"));
        }
    }
    Ok(())
}

fn exit_signals() -> Outcome {
    check(&[
        node(10, 1, 10, 10),
        told_by(node(11, 10, 10, 10), 0),
        told_by(node(12, 10, 12, 10), libc::SIGUSR1),
        zombie(told_by(node(13, 10, 10, 10), libc::SIGUSR1), 0x100),
        zombie(told_by(node(14, 10, 10, 10), 0), 0x200),
        zombie(told_by(node(15, 10, 10, 10), libc::SIGRTMIN()), 0x300),
    ])
}

fn session_of_init() -> Outcome {
    check(&[node(5, 1, 1, 1), node(6, 5, 6, 1), node(7, 1, 4, 1), node(8, 5, 8, 8)])
}

fn a_thousand_processes() -> Outcome {
    let mut nodes = vec![node(2, 1, 2, 2)];
    nodes.extend((3..700).map(|pid| node(pid, pid / 2, pid - pid % 5, 2)).filter(|n| n.pgid > 2));
    for node in nodes.iter_mut().skip(1).filter(|node| [1, 3, 4].contains(&node.ppid)) {
        node.ppid = 2;
    }
    nodes.extend(
        (0..300).map(|number| node(1001 + 2 * number, 1, 1000 + 2 * number, 1000 + 2 * number)),
    );
    check(&nodes)
}

fn a_long_line_of_descent() -> Outcome {
    let line: Vec<ProcessNode> =
        (2..600).map(|pid| node(pid, pid - 1, pid - pid % 2, pid - pid % 2)).collect();
    check(&line)
}

/// A failure with that text, and another one behind it.
fn told(text: &str) -> HelperError {
    HelperError::system(text)(std::io::Error::other("no"))
}

struct Fails(fn(Pid) -> Result<(), HelperError>);

impl Hooks for Fails {
    fn terminal(&self, _: Pid) -> Result<(), HelperError> {
        Ok(())
    }
    fn prepare(&self, pid: Pid, _: Here<'_>) -> Result<(), HelperError> {
        (self.0)(pid)
    }
}

fn fails_with(
    hook: fn(Pid) -> Result<(), HelperError>,
    nodes: &[ProcessNode],
    wanted: &str,
) -> Outcome {
    let plan = plan(nodes).map_err(|error| error.to_string())?;
    let text = match grow(&plan, &Fails(hook)) {
        Ok(grown) => return Err(format!("grew {grown:?}")),
        Err(error) => error.to_string(),
    };
    if text == wanted { Ok(()) } else { Err(format!("says {text:?} instead of {wanted:?}")) }
}

fn nobody_left() -> Outcome {
    let left = read_all()?;
    if left.is_empty() { Ok(()) } else { Err(format!("left over: {:?}", left.keys())) }
}

fn failed_preparation() -> Outcome {
    let hook = |pid| if pid == 11 { Err(told("dup3\nto 7")) } else { Ok(()) };
    let nodes = [
        node(10, 1, 10, 10),
        node(11, 10, 11, 10),
        node(14, 1, 13, 13),
        zombie(node(15, 14, 13, 13), 0),
    ];
    fails_with(hook, &nodes, "process 11: dup3 to 7: no")?;
    nobody_left()?;
    // All numbers are free again.
    check(&nodes)
}

fn panic_in_a_helper() -> Outcome {
    let hook = |pid| if pid == 10 { panic!("at the disco") } else { Ok(()) };
    fails_with(hook, &[node(10, 1, 10, 10)], "process 10: internal error: at the disco")?;
    nobody_left()
}

fn number_taken() -> Outcome {
    let mut stranger =
        Command::new("sleep").arg("60").spawn().map_err(|error| error.to_string())?;
    let taken = Pid::try_from(stranger.id()).map_err(|error| error.to_string())?;
    let (above, below) = (taken + 1, taken + 2);
    let nodes = [
        node(above, 1, above, above),
        node(taken, above, above, above),
        node(below, 1, below, below),
    ];
    let wanted = format!("process {above}: fork of process {taken}: the number is taken");
    fails_with(|_| Ok(()), &nodes, &wanted)?;
    let left: Vec<Pid> = read_all()?.into_keys().collect();
    if left != [taken] {
        return Err(format!("left are {left:?}"));
    }
    stranger.kill().map_err(|error| error.to_string())?;
    stranger.wait().map(drop).map_err(|error| error.to_string())
}

/// A tree with everything that refers to numbers: groups, sessions, orphans, a leader that has ended, a zombie.
fn one_of_everything() -> Vec<ProcessNode> {
    vec![
        node(9000, 1, 9000, 9000),
        node(9001, 9000, 9001, 9000),
        node(9002, 9000, 9001, 9000),
        subreaper(node(9003, 1, 9003, 9003)),
        node(9004, 9003, 9010, 9010),
        node(9005, 1, 9011, 9000),
        zombie(node(9006, 9001, 9001, 9000), 3 << 8),
    ]
}

/// Grows a tree below this process, which is process 1 of nothing, and compares it by the numbers that it got.
fn check_among_others(nodes: &[ProcessNode]) -> Outcome {
    let own = std::process::id() as Pid;
    let text = |error: nix::errno::Errno| error.to_string();
    nix::sys::prctl::set_child_subreaper(true).map_err(text)?;
    let plan = plan(nodes).map_err(|error| error.to_string())?;
    let grown = grow(&plan, &Inspect(nodes)).map_err(|error| error.to_string())?;
    let here = |pid: Pid| grown.numbers.get(&pid).copied().ok_or(format!("{pid} is nowhere"));
    if here(1)? != own {
        return Err(format!("init is {} instead of {own}", here(1)?));
    }
    for node in nodes {
        let pid = here(node.pid)?;
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|e| e.to_string())?;
        let words: Vec<&str> =
            text.rsplit_once(") ").map_or("", |(_, rest)| rest).split_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<Pid>().ok());
        let found = [number(1), number(2), number(3)];
        let wanted = [here(node.ppid)?, here(node.pgid)?, here(node.sid)?].map(Some);
        if found != wanted {
            return Err(format!("process {}: {found:?} instead of {wanted:?}", node.pid));
        }
    }
    for pid in &grown.kept {
        let pid = nix::unistd::Pid::from_raw(here(*pid)?);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).map_err(text)?;
    }
    Ok(())
}

fn others_around() -> Outcome {
    check_among_others(&one_of_everything())
}

/// Nobody's own number can be had: it is this process's.
fn new_numbers() -> Outcome {
    let own = std::process::id() as Pid;
    check_among_others(&[node(own, 1, own, own), node(own + 1, own, own, own)])
}

fn failure_among_others() -> Outcome {
    nix::sys::prctl::set_child_subreaper(true).map_err(|error| error.to_string())?;
    let hook = |pid| if pid == 9002 { Err(told("dup3")) } else { Ok(()) };
    fails_with(hook, &one_of_everything(), "process 9002: dup3: no")?;
    let path = format!("/proc/self/task/{}/children", std::process::id());
    let left = fs::read_to_string(path).map_err(|error| error.to_string())?;
    if left.trim().is_empty() { Ok(()) } else { Err(format!("left over: {left}")) }
}
