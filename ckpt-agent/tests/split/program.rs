//! The jobs: a parent and a child that check what they get from each other, until the parent reads
//! a byte from its standard input.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getppid};

/// Before the name of a program.
pub const FLAG: &str = "--program";

type Outcome<T = ()> = Result<T, String>;

static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: i32) {
    SIGNALS.fetch_add(1, Ordering::SeqCst);
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Runs a program; what it has to say goes to its standard output.
pub fn run(kind: &str) -> ExitCode {
    match parent(kind) {
        Ok(()) => {
            println!("ok");
            ExitCode::from(3)
        }
        Err(error) => {
            println!("{error}");
            ExitCode::from(4)
        }
    }
}

struct Ends {
    pipe: OwnedFd,
    socket: OwnedFd,
    terminal: OwnedFd,
}

fn make() -> Outcome<(Ends, Ends)> {
    let (read, write) = nix::unistd::pipe().map_err(text)?;
    let (one, other) =
        socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::empty()).map_err(text)?;
    let pty = nix::pty::openpty(None, None);
    let pty = pty.map_err(text)?;
    Ok((
        Ends { pipe: read, socket: one, terminal: pty.master },
        Ends { pipe: write, socket: other, terminal: pty.slave },
    ))
}

fn parent(kind: &str) -> Outcome {
    let handler = SigAction::new(SigHandler::Handler(count), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY-free test code would be nicer; the handler only counts.
    #[allow(unsafe_code, reason = "signal handlers are")]
    // SAFETY: the handler touches an atomic only.
    unsafe { sigaction(Signal::SIGUSR1, &handler) }.map_err(text)?;
    let (mine, theirs) = make()?;
    #[allow(unsafe_code, reason = "fork is")]
    // SAFETY: this program has one thread.
    let side = unsafe { fork() }.map_err(text)?;
    match side {
        ForkResult::Child => {
            drop(mine);
            let code = match child(kind, theirs) {
                Ok(()) => 7,
                Err(error) => {
                    eprintln!("child: {error}");
                    8
                }
            };
            std::process::exit(code);
        }
        ForkResult::Parent { child } => {
            drop(theirs);
            lead(kind, mine, child)
        }
    }
}

fn does(kind: &str, what: &str) -> bool {
    kind == what || kind == "all"
}

/// What the parent and the child do in turns: the parent asks by a byte on the socket (all kinds but
/// `pipe` and `terminal` need nothing else), the child answers everywhere.
fn lead(kind: &str, ends: Ends, child: Pid) -> Outcome {
    let mut socket = std::fs::File::from(ends.socket);
    let mut pipe = std::fs::File::from(ends.pipe);
    let mut terminal = std::fs::File::from(ends.terminal);
    let mut sent = 0u32;
    for round in 0u32.. {
        if must_finish() {
            break;
        }
        if does(kind, "signals") && round % 4 == 0 {
            kill(child, Signal::SIGUSR1).map_err(text)?;
            sent += 1;
        }
        if does(kind, "terminal") {
            terminal.write_all(format!("ask {round}\n").as_bytes()).map_err(text)?;
        }
        socket.write_all(&round.to_le_bytes()).map_err(text)?;
        if does(kind, "terminal") {
            // Echo and answer, the newline made two by the terminal, once.
            expect(&mut terminal, &format!("ask {round}\r\n"))?;
            expect(&mut terminal, &format!("tty {round}\r\n"))?;
        }
        if does(kind, "pipe") {
            expect(&mut pipe, &format!("pipe {round}\n"))?;
        }
        let mut answer = [0; 8];
        socket.read_exact(&mut answer).map_err(|error| format!("the socket: {error}"))?;
        let (low, high) = answer.split_at(4);
        if low != (round * 2).to_le_bytes() {
            return Err(format!("round {round}: answer {low:?}"));
        }
        if does(kind, "signals") && round % 4 == 3 {
            // A signal may be on its way over a relay still; but none is ever lost or made up.
            let seen = u32::from_le_bytes([high[0], high[1], high[2], high[3]]);
            if seen > sent {
                return Err(format!("{sent} signals were sent, {seen} seen"));
            }
            wait_until(
                || SIGNALS.load(Ordering::SeqCst) >= (round + 1) / 4,
                "signals of the child",
            )?;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    finish(kind, &mut socket, &mut pipe, child)
}

fn finish(kind: &str, socket: &mut std::fs::File, pipe: &mut std::fs::File, child: Pid) -> Outcome {
    if kind == "orphan" {
        // The child must see that its parent is gone; it writes to the job's standard error.
        return Ok(());
    }
    let wanted = if kind == "killed" {
        kill(child, Signal::SIGTERM).map_err(text)?;
        WaitStatus::Signaled(child, Signal::SIGTERM, false)
    } else {
        socket.write_all(&u32::MAX.to_le_bytes()).map_err(text)?;
        WaitStatus::Exited(child, 7)
    };
    let status = waitpid(child, None).map_err(text)?;
    if status != wanted {
        return Err(format!("the child ended with {status:?} instead of {wanted:?}"));
    }
    let mut rest = Vec::new();
    pipe.read_to_end(&mut rest).map_err(text)?;
    let wanted: &[u8] = if does(kind, "pipe") { b"last\n" } else { b"" };
    if rest != wanted {
        return Err(format!("the pipe ends with {:?}", String::from_utf8_lossy(&rest)));
    }
    Ok(())
}

fn child(kind: &str, ends: Ends) -> Outcome {
    let mut socket = std::fs::File::from(ends.socket);
    let mut pipe = std::fs::File::from(ends.pipe);
    let mut terminal = std::fs::File::from(ends.terminal);
    let parent = getppid();
    loop {
        let mut word = [0; 4];
        if let Err(error) = socket.read_exact(&mut word) {
            if kind == "orphan" {
                break;
            }
            return Err(text(error));
        }
        let round = u32::from_le_bytes(word);
        if round == u32::MAX {
            break;
        }
        if getppid() != parent {
            return Err(format!("the parent is {} instead of {parent}", getppid()));
        }
        if does(kind, "terminal") {
            let mut line = [0; 64];
            let length = terminal.read(&mut line).map_err(text)?;
            if line[..length] != *format!("ask {round}\n").as_bytes() {
                return Err(format!("round {round}: terminal input {:?}", &line[..length]));
            }
            terminal.write_all(format!("tty {round}\n").as_bytes()).map_err(text)?;
        }
        if does(kind, "pipe") {
            pipe.write_all(format!("pipe {round}\n").as_bytes()).map_err(text)?;
        }
        if does(kind, "signals") && round % 4 == 3 {
            wait_until(|| SIGNALS.load(Ordering::SeqCst) >= (round + 1) / 4, "signals")?;
            kill(parent, Signal::SIGUSR1).map_err(text)?;
        }
        let seen = SIGNALS.load(Ordering::SeqCst);
        let answer = [(round * 2).to_le_bytes(), seen.to_le_bytes()].concat();
        socket.write_all(&answer).map_err(text)?;
    }
    if kind == "orphan" {
        wait_until(|| getppid() != parent, "another parent")?;
        println!("adopted");
        return Ok(());
    }
    if does(kind, "pipe") {
        pipe.write_all(b"last\n").map_err(text)?;
    }
    Ok(())
}

fn expect(from: &mut std::fs::File, wanted: &str) -> Outcome {
    let mut found = vec![0; wanted.len()];
    from.read_exact(&mut found).map_err(|error| format!("instead of {wanted:?}: {error}"))?;
    if found == wanted.as_bytes() {
        return Ok(());
    }
    Err(format!("{:?} instead of {wanted:?}", String::from_utf8_lossy(&found)))
}

fn wait_until(mut done: impl FnMut() -> bool, what: &str) -> Outcome {
    for _ in 0..5000 {
        if done() {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Err(format!("no {what}"))
}

/// Whether there is something on standard input.
fn must_finish() -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let stdin = std::io::stdin();
    let mut polled = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}
