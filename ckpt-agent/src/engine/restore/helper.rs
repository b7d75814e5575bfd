//! What a helper does to itself, as ordinary code, before its memory is replaced.

use std::os::fd::{BorrowedFd, OwnedFd};

use super::super::graph::{Descriptor, FileId, Pid, ProcessImage, ProcessState};
use super::super::locks;
use super::super::objects::{ControllingTerminal, RestoreContext};
use super::super::split::standin::{self, Link};
use super::super::sys::dup3::dup3;
use super::super::sys::signals::set_action;
use super::super::sys::tty;
use super::image::Image;
use super::tree::{Here, Hooks};

/// The hooks of the process tree: descriptors, directories, limits, signal actions.
pub struct Preparation<'a> {
    /// The image.
    pub image: &'a Image,
    /// Parked descriptions.
    pub context: &'a RestoreContext<'a>,
    /// Sessions with a controlling terminal.
    pub terminals: Vec<ControllingTerminal>,
    /// Links of stand-ins.
    pub links: Vec<Link>,
}

type Outcome<T = ()> = Result<T, String>;

fn failed<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}

impl Hooks for Preparation<'_> {
    fn terminal(&self, pid: Pid) -> Outcome {
        for terminal in self.terminals.iter().filter(|terminal| terminal.session == pid) {
            let slave = self.slave(terminal)?;
            tty::take_controlling(&slave)
                .map_err(failed("make its terminal the controlling one"))?;
        }
        Ok(())
    }

    fn prepare(&self, pid: Pid, here: Here<'_>) -> Outcome {
        self.foreground(pid, here)?;
        if self.stands_in(pid) {
            let mut kept: Vec<i32> = self.links_of(pid).map(Link::number).collect();
            let shells = &self.image.graph.remote_shells;
            let shell = shells.iter().find(|shell| shell.pid == pid);
            // In another part it is a mere placeholder, without a link.
            if let Some(shell) = shell.filter(|_| !kept.is_empty()) {
                kept.extend(self.streams(&shell.descriptors)?);
            }
            return standin::prepare(&kept);
        }
        let process =
            self.image.processes.get(&pid).ok_or_else(|| format!("process {pid} has no image"))?;
        std::env::set_current_dir(&process.working_directory)
            .map_err(failed(&format!("enter directory {}", process.working_directory)))?;
        let mode = nix::sys::stat::Mode::from_bits_truncate(process.umask as libc::mode_t);
        nix::sys::stat::umask(mode);
        self.descriptors(process)?;
        for (fd, lock) in &process.locks {
            // SAFETY: the descriptor was put there right above and stays open in this helper.
            let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
            locks::restore_of_process(fd, lock).map_err(failed("lock a file"))?;
        }
        own_settings(process);
        // The last ones: from here on this code must not rely on any handler.
        let all: Vec<(i32, [u64; 4])> = all_actions(process);
        for (signal, words) in all {
            // SAFETY: every signal is blocked here, and stays blocked until the memory that the handlers
            // lie in is in place.
            unsafe { set_action(signal, words) }
                .map_err(failed(&format!("set action of signal {signal}")))?;
        }
        Ok(())
    }

    fn wants_number(&self, pid: Pid) -> bool {
        !self.context.crowded || self.is_known_by_number(pid)
    }

    fn wait(&self, pid: Pid, here: Here<'_>) -> ! {
        if self.stands_in(pid) {
            standin::live(self.links_of(pid).map(|link| link.in_this_process(here)).collect());
        }
        loop {
            nix::unistd::pause();
        }
    }
}

/// Every signal has its action set: those not in the image are SIG_DFL.
fn all_actions(process: &ProcessImage) -> Vec<(i32, [u64; 4])> {
    (1..=64)
        .filter(|signal| *signal != libc::SIGKILL && *signal != libc::SIGSTOP)
        .map(|signal| {
            let saved = process.actions.iter().find(|action| action.signal == signal);
            (signal, saved.map_or([0; 4], |action| action.words))
        })
        .collect()
}

/// Settings that may need a privilege which this restore has not: then they stay as they are.
fn own_settings(process: &ProcessImage) {
    if process.nice != 0 {
        // SAFETY: takes numbers only.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, process.nice) };
    }
    let _ = std::fs::write("/proc/self/oom_score_adj", process.oom_score_adj.to_string());
}

impl Preparation<'_> {
    /// Whether anybody in this part waits for the process by its number. A number is here twice where a child and its parent are in
    /// different parts on one machine: each has a stand-in beside the other. The parent's program waits for the child's
    /// stand-in and remembers its number, so that one gets it; of its own number a program makes less use, of its parent's
    /// hardly any.
    fn is_known_by_number(&self, pid: Pid) -> bool {
        let nodes = || self.context.part.iter().flat_map(|part| &part.nodes);
        let Some(node) = nodes().find(|node| node.pid == pid) else { return true };
        let away =
            nodes().any(|other| other.pid == node.ppid && other.state == ProcessState::StandIn);
        match node.state {
            ProcessState::StandIn => {
                nodes().any(|other| other.pid == node.ppid && other.state != ProcessState::StandIn)
            }
            _ => !away,
        }
    }

    fn stands_in(&self, pid: Pid) -> bool {
        let nodes = self.context.part.iter().flat_map(|part| &part.nodes);
        nodes.into_iter().any(|node| node.pid == pid && node.state == ProcessState::StandIn)
    }

    /// Puts the standard streams of a remote shell in place; their numbers.
    fn streams(&self, descriptors: &[Descriptor]) -> Outcome<Vec<i32>> {
        let mut made = Vec::new();
        for descriptor in descriptors {
            let parked = self.context.parked(descriptor.file).map_err(|error| error.to_string())?;
            // SAFETY: standard streams are this helper's own.
            unsafe { dup3(parked, descriptor.fd, libc::O_CLOEXEC) }
                .map_err(failed("put a stream in place"))?;
            made.push(descriptor.fd);
        }
        Ok(made)
    }

    fn links_of(&self, pid: Pid) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(move |link| link.owner() == pid)
    }

    /// A descriptor of a controlling terminal's slave side.
    fn slave(&self, terminal: &ControllingTerminal) -> Outcome<OwnedFd> {
        let parked = |file| self.context.parked(file).map_err(|error| error.to_string());
        let here = |file: Option<FileId>| file.filter(|id| self.context.needs(*id));
        match (here(terminal.slave), here(terminal.master)) {
            (Some(slave), _) => parked(slave)?.try_clone_to_owned().map_err(failed("dup")),
            (None, Some(master)) => {
                tty::open_peer(parked(master)?, libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC)
                    .map_err(failed("open the terminal"))
            }
            (None, None) => Err(format!("the terminal of session {} is lost", terminal.session)),
        }
    }

    fn foreground(&self, pid: Pid, here: Here<'_>) -> Outcome {
        for terminal in &self.terminals {
            if terminal.session != pid {
                continue;
            }
            // A group whose last member has gone is the foreground group of nobody.
            let Some(group) = terminal.foreground.and_then(here) else { continue };
            let slave = self.slave(terminal)?;
            let _ = nix::unistd::tcsetpgrp(&slave, nix::unistd::Pid::from_raw(group));
        }
        Ok(())
    }

    /// Final numbers below the parked ones; what is parked stays until the mappings are made.
    fn descriptors(&self, process: &ProcessImage) -> Outcome {
        let mut next = 0;
        for descriptor in &process.descriptors {
            if descriptor.fd > next {
                close_range(next, descriptor.fd - 1)?;
            }
            next = descriptor.fd + 1;
            let parked = self.context.parked(descriptor.file).map_err(|error| error.to_string())?;
            let flags = if descriptor.close_on_exec { libc::O_CLOEXEC } else { 0 };
            // SAFETY: the target number belongs to the process that this helper becomes.
            unsafe { dup3(parked, descriptor.fd, flags) }
                .map_err(failed(&format!("put descriptor {} in place", descriptor.fd)))?;
        }
        if next < self.context.first_free {
            close_range(next, self.context.first_free - 1)?;
        }
        Ok(())
    }
}

fn close_range(first: i32, last: i32) -> Outcome {
    // SAFETY: closes numbers that no owned descriptor of this helper has: those are parked above.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    nix::errno::Errno::result(closed).map(drop).map_err(failed("close_range"))
}
