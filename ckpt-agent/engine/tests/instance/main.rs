//! Instances of a cluster with real processes: their inits outlive agents that are killed. Run as root it
//! repeats everything as an ordinary user.

mod agent_process;
mod cases;
#[path = "../../../../tests/harness.rs"]
mod harness;
mod rights;
mod world;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use harness::Asked;

/// What a case says when it has failed.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const CASE: &str = "--case";

fn main() -> ExitCode {
    if std::env::args_os().next().is_some_and(|name| name == ckpt_engine::INIT_NAME) {
        return ExitCode::from(ckpt_engine::run_init());
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [CASE, name] => return run_case(name),
        [agent_process::FLAG, folder] => return agent_process::serve(Path::new(folder)),
        _ => {}
    }
    let asked = Asked::new(&arguments);
    if asked.lists(cases::ALL.iter().map(|(name, _)| *name)) {
        return ExitCode::SUCCESS;
    }
    match run_all(&asked) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failed) => {
            println!("test result: FAILED. {failed} failed");
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("failed to run the tests: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_all(asked: &Asked) -> Outcome<usize> {
    // An ordinary user may not be able to reach the build folder.
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let program = folder.path().join("instance");
    fs::copy(std::env::current_exe()?, &program)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let root = nix::unistd::geteuid().is_root();
    let mut failed = 0;
    for ordinary in [false, true] {
        if ordinary && !root {
            continue;
        }
        let user = if ordinary || !root { "ordinary user" } else { "root" };
        for (name, _) in cases::ALL.iter().filter(|(name, _)| asked.wants(name)) {
            let passed = spawn(&program, name, ordinary)?;
            println!("test {name} ({user}) ... {}", if passed { "ok" } else { "FAILED" });
            failed += usize::from(!passed);
        }
    }
    Ok(failed)
}

fn spawn(program: &Path, name: &str, ordinary: bool) -> Outcome<bool> {
    let mut words = vec!["timeout", "-k", "1", "60"];
    if ordinary {
        words.extend(["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups"]);
    }
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(program).args([CASE, name]).current_dir("/");
    Ok(command.status()?.success())
}

fn run_case(name: &str) -> ExitCode {
    let Some((_, case)) = cases::ALL.iter().find(|(known, _)| *known == name) else {
        println!("no case is named {name}");
        return ExitCode::FAILURE;
    };
    match world::World::new().and_then(|mut world| case(&mut world)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}
