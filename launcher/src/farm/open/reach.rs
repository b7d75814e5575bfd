//! Asking the worker of an open farm, and starting it where there is none.

use super::gate::Gate;
use super::request::{Reply, Request, SOCKET};
use super::stopped::{is_stopped, note_start};
use crate::INNER_CALL;
use crate::cli::FarmSettings;
use crate::client::link::ShortPath;
use crate::failure::Failure;
use crate::farm::guard::{self, Charge};
use crate::farm::{FarmError, FarmFolder, MARK, TASK};
use crate::interrupts::Interrupts;
use crate::last_line::last_line;
use nix::sys::signal::{SigSet, Signal};
use protocol::frame;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What the guard and the worker say, in the farm's folder.
const LOG: &str = "log";
/// The most of it that is kept, twice.
const MOST_SAID: u64 = 1 << 20;
/// The longest reply, in bytes.
const MAX_REPLY: usize = 4 * 1024 * 1024;
/// How long a worker may take to answer, or to read.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long one may take to begin, or, with last checkpoints, to end.
const LONGEST: Duration = Duration::from_secs(120);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(10);
/// How often a worker is started in vain.
const TRIES: u32 = 3;

/// Asks the worker of a farm; None: there is none, or it has gone before it answered.
///
/// # Errors
/// Where it does not answer, or not in its language.
pub fn ask(folder: &FarmFolder, request: Request) -> Result<Option<Reply>, FarmError> {
    let talk = || -> io::Result<Option<Reply>> {
        let mut stream = UnixStream::connect(ShortPath::of(&folder.path().join(SOCKET)).as_ref())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let line = frame::encode(&request, super::MAX_REQUEST).map_err(io::Error::other)? + "\n";
        stream.write_all(line.as_bytes())?;
        let mut answer = String::new();
        BufReader::new(stream).take(MAX_REPLY as u64 + 1).read_line(&mut answer)?;
        match answer.strip_suffix('\n') {
            Some(line) => Ok(Some(frame::decode(line, MAX_REPLY).map_err(io::Error::other)?)),
            None => Ok(None),
        }
    };
    match talk() {
        Ok(reply) => Ok(reply),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => {
            let is_late =
                matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
            let late =
                || format!("it has not answered for {} s, and may be stopped", PATIENCE.as_secs());
            let source = if is_late { io::Error::other(late()) } else { error };
            Err(FarmError::Unanswered { name: folder.name().to_owned(), source })
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::NotFound | Kind::ConnectionRefused | Kind::ConnectionReset | Kind::BrokenPipe
    )
}

/// Who wants a farm to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// A user, who may have stopped it before.
    Asked,
    /// Somebody who waits for its tasks: one that was stopped stays so.
    Awaited,
}

/// What has come of starting a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Started {
    /// There is one.
    Runs,
    /// There is none: somebody has stopped the farm.
    Stopped,
    /// It has ended at once.
    Ended,
}

/// Sees to it that a worker runs the farm and knows of so many tasks.
///
/// # Errors
/// Where none can be started.
pub fn begin(folder: &FarmFolder, tasks: u32) -> Result<(), FarmError> {
    note_start(folder)?;
    reach(folder, tasks, Wish::Asked)
}

/// Sees to it that a worker runs the farm, unless somebody has stopped that, or does so meanwhile.
///
/// # Errors
/// Where none can be started.
pub fn go_on(folder: &FarmFolder) -> Result<(), FarmError> {
    reach(folder, 0, Wish::Awaited)
}

fn reach(folder: &FarmFolder, tasks: u32, wish: Wish) -> Result<(), FarmError> {
    let since = Instant::now();
    let mut failures = 0;
    while since.elapsed() < LONGEST {
        match ask(folder, Request::Look { tasks })? {
            Some(Reply::Refused { reason }) => return Err(not_begun(folder, reason)),
            Some(Reply::Ending {}) => {}
            Some(_) => return Ok(()),
            None if folder.is_running() => {}
            None => match start(folder, wish)? {
                Started::Runs => continue,
                Started::Stopped => return Ok(()),
                Started::Ended if failures >= TRIES => {
                    return Err(not_begun(folder, last_said(folder)));
                }
                Started::Ended => failures += 1,
            },
        }
        std::thread::sleep(LOOK);
    }
    Err(not_begun(folder, format!("it does not answer within {} s", LONGEST.as_secs())))
}

fn not_begun(folder: &FarmFolder, reason: String) -> FarmError {
    FarmError::NotBegun { name: folder.name().to_owned(), reason }
}

/// Starts a worker, unless there is one.
fn start(folder: &FarmFolder, wish: Wish) -> Result<Started, FarmError> {
    // Of many that want that at a time, one does it; and who stops a farm has it while that is noted.
    let _gate = Gate::wait_to_start(folder.path())?;
    if ask(folder, Request::Status {})?.is_some() || folder.is_running() {
        return Ok(Started::Runs);
    }
    match wish {
        Wish::Asked => note_start(folder)?,
        Wish::Awaited if is_stopped(folder) => return Ok(Started::Stopped),
        Wish::Awaited => {}
    }
    let failed = FarmError::io("start", folder.path());
    let mut guard = spawn(folder).map_err(failed)?;
    let since = Instant::now();
    while since.elapsed() < LONGEST {
        if ask(folder, Request::Status {})?.is_some() {
            return Ok(Started::Runs);
        }
        if guard.try_wait().map_err(FarmError::io("start", folder.path()))?.is_some() {
            return Ok(Started::Ended);
        }
        std::thread::sleep(LOOK);
    }
    Ok(Started::Ended)
}

fn spawn(folder: &FarmFolder) -> io::Result<Child> {
    let path = folder.path().join(LOG);
    if fs::metadata(&path).is_ok_and(|found| found.len() > MOST_SAID) {
        fs::rename(&path, folder.path().join(format!("{LOG}.1")))?;
    }
    let log = File::options().append(true).create(true).mode(0o600).open(&path)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("ckptd").args(["farm", "serve"]).arg(folder.path()).current_dir("/");
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    // Whoever submits may be a task itself, whose end is not this one's.
    command.env(INNER_CALL, "1").env_remove(MARK).env_remove(TASK);
    // What this command holds up is to come to the farm.
    Interrupts::spawn_with(SigSet::empty(), &mut command)
}

/// What was said last about a worker that has ended.
fn last_said(folder: &FarmFolder) -> String {
    let path = folder.path().join(LOG);
    let last = File::open(&path).ok().and_then(last_line);
    let last = last.unwrap_or_else(|| "its worker has ended".to_owned());
    format!("{} ({})", last.trim_start_matches("failed to "), path.display())
}

/// Waits until nobody runs the farm.
///
/// # Errors
/// Where it takes too long.
pub fn until_gone(folder: &FarmFolder) -> Result<(), FarmError> {
    let since = Instant::now();
    while folder.is_running() {
        if since.elapsed() > LONGEST {
            let (name, limit) = (folder.name(), LONGEST.as_secs());
            return Err(FarmError::Refused(format!(
                "stop {name}: it has not ended within {limit} s; 'ckptd farm stop --now {name}' ends it without last checkpoints"
            )));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Closes what whoever has begun the farm had open beside its streams, such as a lock or a pipe that others wait for: nobody
/// expects that to live on in the background.
fn close_inherited() -> io::Result<()> {
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    let all: Vec<i32> = fs::read_dir("/proc/self/fd")?.flatten().filter_map(number).collect();
    for fd in all.into_iter().filter(|fd| *fd > 2) {
        // That of the listing is closed already.
        let _ = nix::unistd::close(fd);
    }
    Ok(())
}

/// Is the guard of an open farm: in a session of its own, which nobody's terminal ends.
///
/// # Errors
/// As of any other run.
pub fn serve(path: PathBuf) -> Result<u8, Failure> {
    nix::unistd::setsid().map_err(FarmError::process("begin a session"))?;
    close_inherited().map_err(FarmError::process("close what was inherited"))?;
    // That whoever came first has ignored some (nohup, a shell's &) is of no task that others submit.
    for signal in
        [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGPIPE]
    {
        let taken = ckpt_engine::sys::signals::take_default(signal as i32);
        taken.map_err(FarmError::io("take signals as usual for", &path))?;
    }
    let folder = FarmFolder::open(path)?;
    let settings: FarmSettings = folder.record().settings.clone();
    let resume = format!("ckptd farm start {}", folder.name());
    guard::run(&Charge { folder: &folder, settings: &settings, quiet: true, resume })
}
