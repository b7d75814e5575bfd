//! Hostile images: valid JSON with impossible content. Real images of conformance programs are changed, by hand and by
//! chance, sealed again, and restored: by an ordinary user, and by root for that user. Each restore must be refused by
//! one line or make a job with that user's powers, and leave nothing behind.
//!
//! A case is replayed by its number and the seed: `CKPTD_SEED=SEED target/debug/graphs --case NUMBER`.

mod child;
mod examine;
mod guard;
mod image;
mod impossible;
mod material;
mod mutate;
mod outside;
mod restore;
mod shard;
mod subjects;

use std::process::{Command, ExitCode, Stdio};

use ckpt_engine::UserOrder;
use ckptd_tests::account::running_as_root;
use ckptd_tests::huge_pages::{HugeFolder, HugePages};
use ckptd_tests::workspace::Workspace;
use clap::Parser;

/// Whose jobs they are, and the groups that he is in: as everywhere in these tests.
pub const USER: u32 = 1000;
/// See [`USER`].
pub const GROUPS: &[u32] = &[27, 1000, 54321];

/// Changes the graphs of real images, restores them, and expects refusals or jobs without any privilege.
#[derive(Debug, Clone, Parser)]
struct Options {
    /// Images to change: of every conformance program whose name is one of these
    names: Vec<String>,
    /// Graphs changed by chance that are restored
    #[arg(long, default_value_t = from_environment("CKPTD_GRAPHS", 160))]
    count: u64,
    /// Graphs changed by chance that are read and planned, without a restore
    #[arg(long, default_value_t = from_environment("CKPTD_GRAPHS_EXAMINED", 3000))]
    examined: u64,
    /// Each change that was written by hand for each image, not for two of them
    #[arg(long)]
    all: bool,
    /// What chance begins with
    #[arg(long, default_value_t = from_environment("CKPTD_SEED", 1))]
    seed: u64,
    /// This case alone
    #[arg(long)]
    case: Option<u64>,
    /// Keep the test folder
    #[arg(long)]
    keep: bool,
    /// Which part of the cases, in namespaces of its own
    #[arg(long, hide = true)]
    shard: Option<u64>,
    /// How many parts there are
    #[arg(long, hide = true, default_value_t = 1)]
    shards: u64,
    /// The test folder of all parts
    #[arg(long, hide = true, default_value = "/")]
    root: std::path::PathBuf,
}

/// A number that the environment sets, as `CKPTD_SEED`.
fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn main() -> ExitCode {
    if std::env::args_os().next().is_some_and(|name| name == ckpt_engine::INIT_NAME) {
        return ExitCode::from(ckpt_engine::run_init());
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [child::FLAG, folder, number] => return child::serve(folder, number, None),
        [child::FLAG, folder, number, "root"] => {
            let user = UserOrder { uid: USER, gid: USER, groups: GROUPS.to_vec() };
            return child::serve(folder, number, Some(user));
        }
        _ => {}
    }
    let options = Options::parse();
    let outcome = match options.shard {
        Some(shard) => shard::run(&options, shard),
        None => run(&options),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("graphs: {error}");
            ExitCode::from(2)
        }
    }
}

/// Enough for all shards.
const HUGE_PAGES: u32 = 256;

/// Makes the images, and has the cases done by as many processes as there are processors.
fn run(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    if !running_as_root() {
        println!("skip: restores for another user need root");
        return Ok(true);
    }
    let mut workspace = Workspace::new()?;
    let own = workspace.keep(&std::env::current_exe()?)?;
    let _lent = HugePages::lend(HUGE_PAGES);
    let _mounted = HugeFolder::mount();
    let subjects = subjects::make(&workspace, &options.names)?;
    println!("{} images, seed {}", subjects.len(), options.seed);
    let shards = match options.case {
        Some(_) => 1,
        None => std::thread::available_parallelism()?.get() as u64,
    };
    let mut running = Vec::new();
    for shard in 0..shards {
        // The second shell is the first process of the namespace: it reaps what is left to it.
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["--ipc", "--net", "--uts", "sh", "-c"]);
        // A new network lets nobody have ICMP sockets.
        let ready = "ip link set lo up; echo 0 2147483647 > /proc/sys/net/ipv4/ping_group_range; \"$@\"; exit $?";
        command.arg(ready).arg("sh").arg(&own);
        command.args(std::env::args_os().skip(1));
        command.args(["--shard", &shard.to_string(), "--shards", &shards.to_string(), "--root"]);
        command.arg(workspace.root.path()).stdin(Stdio::null());
        running.push(command.spawn()?);
    }
    let mut whole = true;
    for mut shard in running {
        whole &= shard.wait()?.success();
    }
    if !whole || options.keep {
        workspace.root.disable_cleanup(true);
        println!("files are in {}", workspace.root.path().display());
    }
    Ok(whole)
}
