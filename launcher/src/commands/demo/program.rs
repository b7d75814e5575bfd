//! The job: a program of several processes that counts, and knows nothing of checkpoints. One leads and hands out pieces of
//! the work; the workers, on all machines, connect to it by TCP.

use super::error::DemoError;
use super::queens::{self, Piece};
use super::{PART, ckptd};
use crate::INNER_CALL;
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The name of the process that leads, as the kernel and `ckptd status` tell it.
pub const LEADER: &str = "queens";
/// What the name of a worker begins with.
pub const WORKER: &str = "worker ";
/// What a piece takes at least: on any machine there is to be something to see.
const PACE: Duration = Duration::from_millis(300);
/// How long workers may take to come.
const COMING: Duration = Duration::from_secs(30);
/// How long a worker may take to say who it is.
const GREETING: Duration = Duration::from_secs(5);
/// Between two looks for one.
const LOOK: Duration = Duration::from_millis(10);
/// How often the leader tells how far it is.
const REPORTS: usize = 6;
/// The longest line that is read, in bytes.
const MAX_LINE: u64 = 200;

/// What the job says when all workers have come.
pub fn all_have_come(workers: usize) -> String {
    format!("all {workers} workers have come")
}

/// What it says last, if it is right.
pub fn answer() -> String {
    result(queens::WAYS)
}

fn result(ways: u64) -> String {
    format!("{} queens can be placed in {ways} ways", queens::SIZE)
}

/// What it says of how far it is.
pub const PROGRESS: &str = "pieces of the work are done";

/// Starts a worker on each of these machines, and leads them; the exit status.
pub fn lead(machines: &[String]) -> u8 {
    ended(LEADER, do_all(machines))
}

fn ended(name: &str, done: Result<(), DemoError>) -> u8 {
    match done {
        Ok(()) => 0,
        Err(error) => {
            // Nobody may be there to read it.
            let _ = writeln!(io::stderr(), "{name}: {error}");
            1
        }
    }
}

fn do_all(machines: &[String]) -> Result<(), DemoError> {
    let failed = |what| DemoError::system::<io::Error>(what);
    call_itself(LEADER);
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(failed("listen"))?;
    let port = listener.local_addr().map_err(failed("listen"))?.port();
    let own = nix::unistd::gethostname().map_err(DemoError::system("find its machine"))?;
    let own = own.to_string_lossy().into_owned();
    let job = format!("{own}:{port}");
    let mut workers = Vec::new();
    for (index, machine) in machines.iter().enumerate() {
        let number = (index + 1).to_string();
        let mut command =
            if *machine == own { local(&number, &job)? } else { remote(machine, &number, &job)? };
        workers.push(command.stdin(Stdio::null()).spawn().map_err(failed("start a worker"))?);
    }
    let streams = gather(&listener, machines.len()).map_err(failed("wait for the workers"))?;
    tell(&all_have_come(machines.len()))?;
    let ways = hand_out(streams).map_err(failed("hear from a worker"))?;
    for worker in &mut workers {
        end(worker)?;
    }
    tell(&result(ways))
}

fn tell(line: &str) -> Result<(), DemoError> {
    say(line).map_err(DemoError::system("write to standard output"))
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Under this name a process is found in listings.
fn call_itself(name: &str) {
    // Without /proc it has the executable's.
    let _ = std::fs::write("/proc/self/comm", name);
}

fn local(number: &str, job: &str) -> Result<Command, DemoError> {
    let mut command = ckptd()?;
    command.args([PART, "worker", number, job]);
    Ok(command)
}

/// As mpirun starts a process of another machine.
fn remote(machine: &str, number: &str, job: &str) -> Result<Command, DemoError> {
    let mut command = ckptd()?;
    let quoted = quoted(&command.get_program().to_string_lossy());
    let inner = format!("{INNER_CALL}=1");
    command.args(["rsh", machine, &inner, "exec", &quoted, PART, "worker", number, job]);
    Ok(command)
}

/// As one word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Connections of so many workers, each of which has said who it is.
fn gather(listener: &TcpListener, count: usize) -> io::Result<Vec<BufReader<TcpStream>>> {
    let until = Instant::now() + COMING;
    listener.set_nonblocking(true)?;
    let mut found = Vec::new();
    while found.len() < count {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(Some(GREETING))?;
                let mut stream = BufReader::new(stream);
                let name = line(&mut stream)?;
                stream.get_ref().set_read_timeout(None)?;
                say(&name)?;
                found.push(stream);
            }
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Err(_) if Instant::now() > until => return Err(io::ErrorKind::TimedOut.into()),
            Err(_) => std::thread::sleep(LOOK),
        }
    }
    Ok(found)
}

fn line(from: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut text = String::new();
    from.by_ref().take(MAX_LINE).read_line(&mut text)?;
    match text.strip_suffix('\n') {
        Some(line) => Ok(line.to_owned()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Has the workers do all pieces; the sum of what they have counted.
fn hand_out(streams: Vec<BufReader<TcpStream>>) -> io::Result<u64> {
    let pieces = queens::pieces();
    let all = pieces.len();
    let left = Arc::new(Mutex::new(VecDeque::from(pieces)));
    let (sender, counted) = channel();
    for stream in streams {
        let (left, sender) = (left.clone(), sender.clone());
        std::thread::spawn(move || serve(stream, &left, &sender));
    }
    drop(sender);
    let (mut ways, mut done) = (0, 0);
    for counted in counted {
        ways += counted?;
        done += 1;
        if done % (all / REPORTS) == 0 && done < all {
            say(&format!("{done} of {all} {PROGRESS}"))?;
        }
    }
    if done == all { Ok(ways) } else { Err(io::Error::other("a worker has ended")) }
}

/// Hands pieces to one worker until none is left.
fn serve(
    mut stream: BufReader<TcpStream>,
    left: &Mutex<VecDeque<Piece>>,
    sender: &Sender<io::Result<u64>>,
) {
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    while let Some((first, second)) = next() {
        let counted = writeln!(stream.get_mut(), "{first} {second}")
            .and_then(|()| line(&mut stream))
            .and_then(|text| text.parse().map_err(io::Error::other));
        let is_over = counted.is_err();
        if sender.send(counted).is_err() || is_over {
            return;
        }
    }
    // The end of the connection ends the worker.
}

fn end(worker: &mut Child) -> Result<(), DemoError> {
    let status = worker.wait().map_err(DemoError::system("wait for a worker"))?;
    match status.success() {
        true => Ok(()),
        false => {
            let cause = io::Error::other(format!("it ended with {status}"));
            Err(DemoError::System { what: "wait for a worker", cause })
        }
    }
}

/// Does pieces of the work until there are no more; the exit status.
pub fn work(number: usize, job: &str) -> u8 {
    let name = format!("{WORKER}{number}");
    call_itself(&name);
    ended(&name, serve_leader(number, job).map_err(DemoError::system("work")))
}

fn serve_leader(number: usize, job: &str) -> io::Result<()> {
    let mut stream = BufReader::new(TcpStream::connect(job)?);
    let machine = nix::unistd::gethostname().unwrap_or_default();
    writeln!(stream.get_mut(), "worker {number} on {}", machine.to_string_lossy())?;
    loop {
        let piece = match line(&mut stream) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        let began = Instant::now();
        let ways = queens::count(read(&piece).ok_or(io::ErrorKind::InvalidData)?);
        std::thread::sleep(PACE.saturating_sub(began.elapsed()));
        writeln!(stream.get_mut(), "{ways}")?;
    }
}

fn read(piece: &str) -> Option<Piece> {
    let (first, second) = piece.split_once(' ')?;
    Some((first.parse().ok()?, second.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word() {
        assert_eq!(quoted("/opt/it's here/ckptd"), r"'/opt/it'\''s here/ckptd'");
    }

    #[test]
    fn pieces_are_read_as_they_are_written() {
        assert_eq!(read("3 11"), Some((3, 11)));
        assert_eq!(read("3"), None);
        assert_eq!(read("3 -1"), None);
    }

    #[test]
    fn workers_do_all_of_the_work() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let job = listener.local_addr().unwrap().to_string();
        let workers = [1, 2].map(|number| {
            let job = job.clone();
            std::thread::spawn(move || {
                let mut stream = BufReader::new(TcpStream::connect(job).unwrap());
                writeln!(stream.get_mut(), "worker {number}").unwrap();
                while let Ok(text) = line(&mut stream) {
                    let ways = queens::count(read(&text).unwrap());
                    writeln!(stream.get_mut(), "{ways}").unwrap();
                }
            })
        });
        let streams = gather(&listener, 2).unwrap();
        assert_eq!(hand_out(streams).unwrap(), queens::WAYS);
        for worker in workers {
            worker.join().unwrap();
        }
    }
}
