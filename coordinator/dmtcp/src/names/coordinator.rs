//! ckptd as dmtcp_coordinator.

use super::error::CallError;
use super::options::{VARIABLES, VERSION, parse, refuse, with_ignored};
use super::{Native, failed};
use crate::DEFAULT_PORT;
use crate::machine::Command as Wanted;
use crate::server::{Network, Options, Order, Port, Status};
use clap::builder::ArgAction;
use clap::{CommandFactory, Parser};
use protocol::task;
use std::ffi::OsString;
use std::fs;
use std::io::BufRead;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// What may be typed while it runs.
const TYPED: &str = "\
On standard input: l list, s status, c checkpoint, kc checkpoint and kill, i interval, k kill, q quit.";

/// Serves DMTCP's own programs and ckptd's under their names
///
/// This is ckptd under DMTCP's name.
#[derive(Debug, Parser)]
#[command(name = "dmtcp_coordinator", version = VERSION, after_help = TYPED)]
#[command(args_override_self = true)]
struct Asked {
    /// Where it listens; 0: any free one [default: $DMTCP_COORD_PORT, else 7779]
    #[arg(short = 'p', long = "coord-port", alias = "port", value_name = "PORT")]
    #[arg(default_value_t = DEFAULT_PORT, hide_default_value = true)]
    given_port: u16,
    /// Write its port there
    #[arg(long, value_name = "FILE")]
    port_file: Option<PathBuf>,
    /// Write its host, port and pid there
    #[arg(long, value_name = "FILE")]
    status_file: Option<PathBuf>,
    /// Where restart scripts are written [default: $DMTCP_CHECKPOINT_DIR, else here]
    #[arg(short = 'd', long = "ckptdir", value_name = "DIR")]
    #[arg(default_value = ".", hide_default_value = true)]
    directory: PathBuf,
    /// Time between checkpoints, 0 for none [default: $DMTCP_CHECKPOINT_INTERVAL]
    #[arg(short, long, value_name = "SECONDS")]
    #[arg(default_value_t = 0, hide_default_value = true)]
    interval: u32,
    /// End with the last process
    #[arg(long)]
    exit_on_last: bool,
    /// End all processes with the first checkpoint
    #[arg(long = "kill-after-ckpt")]
    kill_after: bool,
    /// End after so long in any case
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// End after so long without a process; not at all if negative [default: 8 hours]
    #[arg(long = "stale-timeout", value_name = "SECONDS", allow_negative_numbers = true)]
    #[arg(default_value_t = 8 * 60 * 60, hide_default_value = true)]
    stale: i64,
    /// Go into the background
    #[arg(long)]
    daemon: bool,
    /// Without notes
    #[arg(short, long, action = ArgAction::Count)]
    quiet: u8,
    /// Listen at another address than the machine's own
    #[arg(long = "dmtcp-listen", value_name = "ADDR")]
    listen: Option<IpAddr>,
    /// Who may connect from outside; DMTCP has no authentication
    #[arg(long = "dmtcp-allow", value_name = "NETWORK")]
    allow: Vec<Network>,
    /// Of DMTCP's, and means nothing here
    #[arg(long, hide = true)]
    write_kv_data: bool,
    /// Where it listens
    #[arg(value_name = "PORT")]
    bare_port: Option<u16>,
}

impl Asked {
    fn port(&self) -> u16 {
        self.bare_port.unwrap_or(self.given_port)
    }
}

/// Does it; the exit status.
pub fn perform(native: &dyn Native, arguments: &[OsString]) -> u8 {
    let asked = match parse::<Asked>(with_ignored(Asked::command()), &VARIABLES[2..], arguments) {
        Ok((asked, _)) => asked,
        Err(error) => return refuse::<Asked>(&error, 1),
    };
    let done = if asked.daemon { detach(arguments, &asked) } else { serve(native, &asked) };
    done.unwrap_or_else(|error| {
        eprintln!("dmtcp_coordinator: failed to {error}");
        failed()
    })
}

/// Goes on in the background, and returns when that one listens.
fn detach(arguments: &[OsString], asked: &Asked) -> Result<u8, CallError> {
    let failed = CallError::system("go into the background");
    let folder = tempfile::tempdir().map_err(&failed)?;
    let own = folder.path().join("port");
    let file = asked.port_file.clone().unwrap_or(own);
    // What is there already is of another one.
    let _ = fs::remove_file(&file);
    let mut child = Command::new("/proc/self/exe")
        .arg0("dmtcp_coordinator")
        .args(arguments.iter().filter(|word| *word != "--daemon"))
        .arg("--port-file")
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Signals of the terminal are not for it.
        .process_group(0)
        .spawn()
        .map_err(&failed)?;
    for _ in 0..1000 {
        if fs::metadata(&file).is_ok_and(|file| file.len() > 0) {
            return Ok(0);
        }
        if let Ok(Some(status)) = child.try_wait() {
            return Err(CallError::Ended { port: asked.port(), status });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(CallError::NotBegun)
}

fn serve(native: &dyn Native, asked: &Asked) -> Result<u8, CallError> {
    if asked.quiet == 0 {
        native.tell_what_happens();
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CallError::system("start the event loop"))?;
    let status = runtime.block_on(coordinate(asked));
    runtime.shutdown_background();
    status
}

async fn coordinate(asked: &Asked) -> Result<u8, CallError> {
    let directory =
        std::path::absolute(&asked.directory).map_err(CallError::file("find", &asked.directory))?;
    let mut options = Options {
        allow: asked.allow.clone(),
        interval: asked.interval,
        exit_on_last: asked.exit_on_last,
        kill_after: asked.kill_after,
        ..Options::local(asked.port(), directory)
    };
    if let Some(ip) = asked.listen {
        options.listen = SocketAddr::new(ip, asked.port());
    }
    let port = Port::bind(options).await?;
    let address = port.address();
    let write = |file: &Option<PathBuf>, text: String| match file {
        Some(file) => fs::write(file, text).map_err(CallError::file("write to", file)),
        None => Ok(()),
    };
    let pid = std::process::id();
    write(
        &asked.status_file,
        format!("Host: {}\nPort: {}\nPID: {pid}\n", address.ip(), address.port()),
    )?;
    write(&asked.port_file, format!("{}\n", address.port()))?;
    if asked.quiet == 0 {
        println!("dmtcp_coordinator (ckptd) listens at {address}; ? and return for help");
    }
    let (orders, receiver) = mpsc::channel(16);
    let served = task::spawn(port.serve(Arc::new(Mutex::new(())), receiver));
    let (lines, typed) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if lines.blocking_send(line).is_err() {
                return;
            }
        }
    });
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .map_err(CallError::system("watch for signals"))?;
    let mut interrupt = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())
        .map_err(CallError::system("watch for signals"))?;
    let quit = orders.clone();
    let status = tokio::select! {
        _ = served => 0,
        () = commands(typed, orders.clone()) => 0,
        () = timeouts(asked, orders) => 1,
        _ = terminate.recv() => 0,
        _ = interrupt.recv() => {
            // As DMTCP's: its processes end with it.
            let _ = quit.send(Order::Command(Wanted::Kill)).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
            0
        }
    };
    if let Some(file) = &asked.port_file {
        let _ = fs::remove_file(file);
    }
    Ok(status)
}

/// Returns when it is time to end.
async fn timeouts(asked: &Asked, orders: mpsc::Sender<Order>) {
    let mut alone = 0;
    let mut since = 0;
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        since += 1;
        if asked.timeout.is_some_and(|limit| limit > 0 && since > limit) {
            return;
        }
        alone = match status(&orders).await {
            Some(status) if status.peers > 0 => 0,
            _ => alone + 1,
        };
        if asked.stale > 0 && alone > asked.stale {
            return;
        }
    }
}

async fn status(orders: &mpsc::Sender<Order>) -> Option<Status> {
    let (sender, answer) = oneshot::channel();
    orders.send(Order::Status(sender)).await.ok()?;
    answer.await.ok()
}

/// Does what is typed. At the end of the input nobody types any more, and it goes on.
async fn commands(mut typed: mpsc::Receiver<String>, orders: mpsc::Sender<Order>) {
    while let Some(line) = typed.recv().await {
        let order = match line.trim().to_lowercase().as_str() {
            "" => continue,
            "l" | "t" => {
                let (sender, answer) = oneshot::channel();
                let _ = orders.send(Order::List(sender)).await;
                eprint!("{}", answer.await.unwrap_or_default());
                continue;
            }
            "s" | "i" => {
                if let Some(Status { peers, interval, is_running, .. }) = status(&orders).await {
                    let running = if is_running { "yes" } else { "no" };
                    println!("NUM_PEERS={peers}\nRUNNING={running}\nCKPT_INTERVAL={interval}");
                }
                continue;
            }
            "c" | "bc" => Wanted::Checkpoint,
            "kc" | "ck" => Wanted::CheckpointAndKill,
            "k" => Wanted::Kill,
            "q" => Wanted::Quit,
            _ => {
                eprint!("{}", Asked::command().render_help());
                continue;
            }
        };
        let _ = orders.send(Order::Command(order)).await;
    }
    std::future::pending().await
}
