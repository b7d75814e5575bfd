//! ckptd as dmtcp_coordinator.

use super::options::{default_port, variable};
use ckpt_dmtcp::DEFAULT_PORT;
use ckpt_dmtcp::machine::{Checkpoint, Command as Wanted, Notice};
use ckpt_dmtcp::server::{Network, Options, Order, Port, Recorder, Status};
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

const USAGE: &str = "\
Usage: dmtcp_coordinator [OPTIONS] [PORT]

  -p, --coord-port PORT   where it listens; 0: any free one [default: $DMTCP_COORD_PORT, else 7779]
      --port-file FILE    write its port there
      --status-file FILE  write its host, port and pid there
      --ckptdir DIR       where restart scripts are written [default: $DMTCP_CHECKPOINT_DIR, else here]
  -i, --interval SECONDS  time between checkpoints, 0 for none [default: $DMTCP_CHECKPOINT_INTERVAL]
      --exit-on-last      end with the last process
      --kill-after-ckpt   end all processes with the first checkpoint
      --timeout SECONDS   end after so long in any case
      --stale-timeout SECONDS
                          end after so long without a process [default: 8 hours]
      --daemon            go into the background
  -q, --quiet             without notes
      --dmtcp-listen ADDR listen at another address than the machine's own
      --dmtcp-allow NETWORK
                          who may connect from outside; DMTCP has no authentication
      --help, --version

On standard input: l list, s status, c checkpoint, kc checkpoint and kill, i interval, k kill, q quit.

This is ckptd under DMTCP's name. It serves DMTCP's own programs and ckptd's under their names.
";

#[derive(Debug, Default)]
struct Asked {
    port: u16,
    listen: Option<IpAddr>,
    allow: Vec<Network>,
    port_file: Option<PathBuf>,
    status_file: Option<PathBuf>,
    directory: Option<PathBuf>,
    interval: u32,
    exit_on_last: bool,
    kill_after: bool,
    timeout: Option<u64>,
    stale: Option<u64>,
    daemon: bool,
    quiet: bool,
}

/// Does it; the exit status.
pub fn perform(arguments: &[OsString]) -> u8 {
    let asked = match parse(arguments) {
        Ok(Some(asked)) => asked,
        Ok(None) => {
            print!("{USAGE}");
            return 0;
        }
        Err(wrong) => {
            eprintln!("dmtcp_coordinator: wrong usage: {wrong}");
            return 1;
        }
    };
    let done = if asked.daemon { detach(arguments, &asked) } else { serve(&asked) };
    done.unwrap_or_else(|error| {
        eprintln!("dmtcp_coordinator: failed to {error}");
        super::failed()
    })
}

fn parse(arguments: &[OsString]) -> Result<Option<Asked>, String> {
    fn number<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, String> {
        text.parse().map_err(|_| format!("{what} {text:?} makes no sense"))
    }
    let mut asked = Asked {
        port: default_port()?.unwrap_or(DEFAULT_PORT),
        directory: variable(&["DMTCP_CHECKPOINT_DIR"]).map(PathBuf::from),
        ..Asked::default()
    };
    if let Some(text) = variable(&["DMTCP_CHECKPOINT_INTERVAL"]) {
        asked.interval = number(&text, "DMTCP_CHECKPOINT_INTERVAL")?;
    }
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let word = word.to_str().ok_or_else(|| format!("{word:?} is no text"))?;
        let mut value = || {
            let value = words.next().and_then(|value| value.to_str());
            value.map(str::to_owned).ok_or_else(|| format!("{word} needs a value behind it"))
        };
        match word {
            "--help" | "-h" => return Ok(None),
            "--version" => {
                println!("dmtcp_coordinator (ckptd) {}", env!("CARGO_PKG_VERSION"));
                std::process::exit(0);
            }
            "-p" | "--port" | "--coord-port" => asked.port = number(&value()?, word)?,
            "-i" | "--interval" => asked.interval = number(&value()?, word)?,
            "--port-file" => asked.port_file = Some(value()?.into()),
            "--status-file" => asked.status_file = Some(value()?.into()),
            "--ckptdir" | "-d" => asked.directory = Some(value()?.into()),
            "--dmtcp-listen" => asked.listen = Some(number(&value()?, word)?),
            "--dmtcp-allow" => asked.allow.push(number(&value()?, word)?),
            "--exit-on-last" => asked.exit_on_last = true,
            "--kill-after-ckpt" => asked.kill_after = true,
            "--timeout" => asked.timeout = Some(number(&value()?, word)?),
            "--stale-timeout" => asked.stale = u64::try_from(number::<i64>(&value()?, word)?).ok(),
            "--daemon" => asked.daemon = true,
            "-q" | "--quiet" | "-qq" => asked.quiet = true,
            "--tmpdir" | "-t" | "--coord-logfile" => drop(value()?),
            "--write-kv-data" => {}
            _ if word.starts_with("-p") => asked.port = number(&word[2..], "-p")?,
            _ if word.starts_with("-i") => asked.interval = number(&word[2..], "-i")?,
            _ if !word.starts_with('-') => asked.port = number(word, "the port")?,
            _ => return Err(format!("there is no option {word}; --help lists them")),
        }
    }
    if asked.stale.is_none() && !arguments.iter().any(|word| word == "--stale-timeout") {
        asked.stale = Some(8 * 60 * 60);
    }
    Ok(Some(asked))
}

/// Goes on in the background, and returns when that one listens.
fn detach(arguments: &[OsString], asked: &Asked) -> Result<u8, String> {
    let failed = |why: &dyn std::fmt::Display| format!("go into the background: {why}");
    let folder = tempfile::tempdir().map_err(|error| failed(&error))?;
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
        .map_err(|error| failed(&error))?;
    for _ in 0..1000 {
        if fs::metadata(&file).is_ok_and(|file| file.len() > 0) {
            return Ok(0);
        }
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!(
                "listen at port {}: the coordinator ended with {status}; another one may have the port",
                asked.port
            ));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(failed(&"it does not begin"))
}

/// Checkpoints are the workers' and their users' business.
struct Unrecorded;

impl Recorder for Unrecorded {
    fn commit(&mut self, _: &Checkpoint) -> Result<(), String> {
        Ok(())
    }

    fn notice(&mut self, _: &Notice) {}
}

fn serve(asked: &Asked) -> Result<u8, String> {
    if !asked.quiet {
        crate::commands::tell_what_happens();
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("start the event loop: {error}"))?;
    let status = runtime.block_on(coordinate(asked));
    runtime.shutdown_background();
    status
}

async fn coordinate(asked: &Asked) -> Result<u8, String> {
    let directory = asked.directory.clone().unwrap_or_else(|| ".".into());
    let directory = std::path::absolute(&directory)
        .map_err(|error| format!("find {}: {error}", directory.display()))?;
    let mut options = Options {
        allow: asked.allow.clone(),
        interval: asked.interval,
        exit_on_last: asked.exit_on_last,
        kill_after: asked.kill_after,
        ..Options::local(asked.port, directory)
    };
    if let Some(ip) = asked.listen {
        options.listen = SocketAddr::new(ip, asked.port);
    }
    let port = Port::bind(options).await.map_err(|error| error.to_string())?;
    let address = port.address();
    let write = |file: &Option<PathBuf>, text: String| match file {
        Some(file) => {
            fs::write(file, text).map_err(|error| format!("write to {}: {error}", file.display()))
        }
        None => Ok(()),
    };
    let pid = std::process::id();
    write(
        &asked.status_file,
        format!("Host: {}\nPort: {}\nPID: {pid}\n", address.ip(), address.port()),
    )?;
    write(&asked.port_file, format!("{}\n", address.port()))?;
    if !asked.quiet {
        println!("dmtcp_coordinator (ckptd) listens at {address}; ? and return for help");
    }
    let (orders, receiver) = mpsc::channel(16);
    let recorder: Arc<Mutex<dyn Recorder>> = Arc::new(Mutex::new(Unrecorded));
    let served = tokio::spawn(port.serve(recorder, receiver));
    let (lines, typed) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if lines.blocking_send(line).is_err() {
                return;
            }
        }
    });
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .map_err(|error| format!("watch for signals: {error}"))?;
    let mut interrupt = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())
        .map_err(|error| format!("watch for signals: {error}"))?;
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
        if asked.stale.is_some_and(|limit| limit > 0 && alone > limit) {
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
                eprint!("{USAGE}");
                continue;
            }
        };
        let _ = orders.send(Order::Command(order)).await;
    }
    std::future::pending().await
}
