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
    let done = match kind.strip_prefix("shell:") {
        Some(socket) => shell_parent(socket),
        None if kind == "large" => large(),
        None if kind == "forked" => forked(),
        None => parent(kind),
    };
    match done {
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
            let code = match middle(kind).and_then(|()| child(kind, theirs)) {
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
    finish(kind, &mut socket, &mut pipe, &mut terminal, child)
}

fn finish(
    kind: &str,
    socket: &mut std::fs::File,
    pipe: &mut std::fs::File,
    terminal: &mut std::fs::File,
    child: Pid,
) -> Outcome {
    let signal = match kind {
        // The child's child is to see it.
        "killed" | "orphan" => Some(Signal::SIGTERM),
        "shot" => Some(Signal::SIGKILL),
        "interrupt" => {
            terminal.write_all(b"\x03").map_err(text)?;
            Some(Signal::SIGINT)
        }
        _ => None,
    };
    let wanted = if let Some(signal) = signal {
        if kind != "interrupt" {
            kill(child, signal).map_err(text)?;
        }
        WaitStatus::Signaled(child, signal, false)
    } else {
        socket.write_all(&u32::MAX.to_le_bytes()).map_err(text)?;
        WaitStatus::Exited(child, 7)
    };
    let status = waitpid(child, None).map_err(text)?;
    if kind == "orphan" {
        let mut adopted = [0; 8];
        socket.read_exact(&mut adopted).map_err(|error| format!("the orphan: {error}"))?;
        if &adopted != b"adopted!" {
            return Err(format!("the orphan says {adopted:?}"));
        }
    }
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

/// A process between the parent and the child, which does nothing but wait for its end; and a session
/// with a terminal.
fn middle(kind: &str) -> Outcome {
    if kind == "orphan" {
        #[allow(unsafe_code, reason = "fork is")]
        // SAFETY: this program has one thread.
        if let ForkResult::Parent { .. } = unsafe { fork() }.map_err(text)? {
            for fd in 0..64 {
                let _ = nix::unistd::close(fd);
            }
            loop {
                nix::unistd::pause();
            }
        }
    }
    Ok(())
}

fn child(kind: &str, ends: Ends) -> Outcome {
    if kind == "interrupt" {
        nix::unistd::setsid().map_err(text)?;
        ckpt_engine::sys::tty::take_controlling(&ends.terminal).map_err(text)?;
    }
    let mut socket = std::fs::File::from(ends.socket);
    let mut pipe = std::fs::File::from(ends.pipe);
    let mut terminal = std::fs::File::from(ends.terminal);
    let parent = getppid();
    loop {
        let mut word = [0; 4];
        if kind == "orphan" && getppid() != parent {
            // Init, whose number is 1.
            let answer: &[u8] = if getppid().as_raw() == 1 { b"adopted!" } else { b"by whom?" };
            return socket.write_all(answer).map_err(text);
        }
        if kind == "orphan" {
            use nix::poll::{PollFd, PollFlags, poll};
            let mut polled = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
            if poll(&mut polled, 5u8).map_err(text)? == 0 {
                continue;
            }
        }
        socket.read_exact(&mut word).map_err(text)?;
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

/// Bytes that the large one fills and then only reads.
pub const LARGE: u64 = 64 << 20;

fn large() -> Outcome {
    let memory: Vec<u64> = (0..LARGE / 8).map(|word| word.wrapping_mul(0x9e37_79b9)).collect();
    println!("filled");
    while !must_finish() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let right = |(at, word): (usize, &u64)| *word == (at as u64).wrapping_mul(0x9e37_79b9);
    match memory.iter().enumerate().all(right) {
        true => Ok(()),
        false => Err("the memory is another".into()),
    }
}

/// A parent and its children, each of which writes to single pages of what they have in common.
fn forked() -> Outcome {
    const CHILDREN: usize = 4;
    let mut memory: Vec<u64> = (0..LARGE / 8).map(first_word).collect();
    let (go, stay) = nix::unistd::pipe().map_err(text)?;
    let (told, tell) = nix::unistd::pipe().map_err(text)?;
    let mut children = Vec::new();
    for own in 1..=CHILDREN {
        #[allow(unsafe_code, reason = "fork is")]
        // SAFETY: this program has one thread.
        match unsafe { fork() }.map_err(text)? {
            ForkResult::Parent { child } => children.push(child),
            ForkResult::Child => {
                drop(stay);
                memory
                    .iter_mut()
                    .enumerate()
                    .for_each(|(at, word)| *word = word_of(own, at, *word));
                let _ = nix::unistd::write(&tell, b"x");
                let _ = nix::unistd::read(&go, &mut [0]);
                let right =
                    |(at, word): (usize, &u64)| *word == word_of(own, at, first_word(at as u64));
                std::process::exit(if memory.iter().enumerate().all(right) { 7 } else { 8 });
            }
        }
    }
    std::fs::File::from(told).read_exact(&mut [0; CHILDREN]).map_err(text)?;
    println!("filled");
    while !must_finish() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    drop(stay);
    for child in children {
        let status = waitpid(child, None).map_err(text)?;
        if status != WaitStatus::Exited(child, 7) {
            return Err(format!("the child ended with {status:?}"));
        }
    }
    match memory.iter().enumerate().all(|(at, word)| *word == first_word(at as u64)) {
        true => Ok(()),
        false => Err("the parent's memory is another".into()),
    }
}

fn first_word(at: u64) -> u64 {
    (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// What a child makes of a word: every so many pages another one, and some pages zeros.
fn word_of(own: usize, at: usize, word: u64) -> u64 {
    const PAGE: usize = 65536 / 8;
    match (at / PAGE + own) % 37 {
        0 => word ^ own as u64,
        1 => 0,
        _ => word,
    }
}

/// A parent that talks to a remote shell.
fn shell_parent(socket: &str) -> Outcome {
    let (input, to) = nix::unistd::pipe().map_err(text)?;
    let (from, output) = nix::unistd::pipe().map_err(text)?;
    #[allow(unsafe_code, reason = "fork is")]
    // SAFETY: this program has one thread.
    let side = unsafe { fork() }.map_err(text)?;
    let ForkResult::Parent { child } = side else {
        drop((to, from));
        let _ = shell(socket, &input, &output);
        std::process::exit(9);
    };
    drop((input, output));
    let (mut to, mut from) = (std::fs::File::from(to), std::fs::File::from(from));
    let mut round = 0;
    while !must_finish() {
        to.write_all(format!("round {round}\n").as_bytes()).map_err(text)?;
        expect(&mut from, &format!("round {round}\n"))?;
        round += 1;
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    kill(child, Signal::SIGTERM).map_err(text)?;
    let status = waitpid(child, None).map_err(text)?;
    let wanted = WaitStatus::Signaled(child, Signal::SIGTERM, false);
    if status == wanted && round > 100 {
        return Ok(());
    }
    Err(format!("after {round} rounds the remote shell ended with {status:?}"))
}

fn shell(socket: &str, input: &OwnedFd, output: &OwnedFd) -> Outcome {
    use ckpt_engine::job_init::Channel;
    let channel = Channel::new(std::os::unix::net::UnixStream::connect(socket).map_err(text)?);
    nix::unistd::dup2_stdin(input).map_err(text)?;
    nix::unistd::dup2_stdout(output).map_err(text)?;
    let flags = SockFlag::empty();
    let (link, agent) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).map_err(text)?;
    let copy = |fd: &OwnedFd| fd.try_clone().map_err(text);
    let numbers = (std::process::id() as i32, getppid().as_raw());
    channel.send(&numbers, &[agent, copy(input)?, copy(output)?]).map_err(text)?;
    ckpt_engine::split::standin::become_remote_shell(link, None).map(drop).map_err(text)
}
