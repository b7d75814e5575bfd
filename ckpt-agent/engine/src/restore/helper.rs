//! What a helper does to itself, as ordinary code, before its memory is replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use super::super::control_groups;
use super::super::graph::{Descriptor, FileId, Pid, ProcessState, SignalAction};
use super::super::names;
use super::super::objects::{ControllingTerminal, RestoreContext, give_mode, removed_directory};
use super::super::split::standin::{self, Link};
use super::super::sys::clone3::Shared;
use super::super::sys::dup3::dup3;
use super::super::sys::file_user::FileUser;
use super::super::sys::restrained::{OVER_PRIORITIES, Restrained};
use super::super::sys::signals::set_action;
use super::super::sys::tty;
use super::orders::{Order, Orders};
use super::tree::{HelperError, Here, Hooks};

/// The hooks of the process tree: descriptors, directories, limits, signal actions.
pub struct Preparation<'a> {
    /// What the helpers have to know, each its own.
    pub(super) orders: &'a Orders,
    /// Parked descriptions.
    pub context: &'a RestoreContext<'a>,
    /// Sessions with a controlling terminal.
    pub terminals: Vec<ControllingTerminal>,
    /// Links of stand-ins.
    pub links: Vec<Link>,
    /// Which processes of this part stand in for those of others.
    pub(super) stand_ins: BTreeSet<Pid>,
}

type Outcome<T = ()> = Result<T, HelperError>;

impl Hooks for Preparation<'_> {
    fn terminal(&self, pid: Pid) -> Outcome {
        for terminal in self.terminals.iter().filter(|terminal| terminal.session == pid) {
            let slave = self.slave(terminal)?;
            tty::take_controlling(&slave)
                .map_err(HelperError::system("make its terminal the controlling one"))?;
        }
        Ok(())
    }

    fn shared(&self, pid: Pid) -> Shared {
        self.context.graph.sharing_of(pid).map_or_else(Shared::default, |one| Shared {
            descriptors: one.descriptors,
            directories: one.directories,
        })
    }

    fn prepare(&self, pid: Pid, here: Here<'_>) -> Outcome {
        self.foreground(pid, here)?;
        if self.stands_in(pid) {
            let mut kept: Vec<i32> = self.links_of(pid).map(Link::number).collect();
            let shells = &self.context.graph.remote_shells;
            let shell = shells.iter().find(|shell| shell.pid == pid);
            // In another part it is a mere placeholder, without a link.
            if let Some(shell) = shell.filter(|_| !kept.is_empty()) {
                kept.extend(self.streams(&shell.descriptors)?);
            }
            return standin::prepare(&kept);
        }
        let order = self.orders.read(pid)?;
        self.enter_directory(&order)?;
        let mode = nix::sys::stat::Mode::from_bits_truncate(order.umask as libc::mode_t);
        nix::sys::stat::umask(mode);
        if !self.shared(pid).descriptors {
            self.descriptors(&order.descriptors)?;
        }
        if !self.context.rehearsal {
            self.enter_groups(&order)?;
            let user = self.context.user.as_ref();
            let _restrained = user.map(|_| Restrained::begin(OVER_PRIORITIES)).transpose()?;
            own_settings(&order);
            if let Some(login) = order.login_user.filter(|_| user.is_none()) {
                // An image must not have root's agent tell the audit log that somebody else was at work. Else it takes what the
                // job needed itself (CAP_AUDIT_CONTROL, or that nobody has logged in).
                let _ = std::fs::write("/proc/self/loginuid", login.to_string());
            }
        }
        // The last ones: from here on this code must not rely on any handler.
        let all: Vec<(i32, [u64; 4])> = all_actions(&order.actions);
        for (signal, words) in all {
            // SAFETY: every signal is blocked here, and stays blocked until the memory that the handlers
            // lie in is in place.
            unsafe { set_action(signal, words) }
                .map_err(HelperError::system(format!("set action of signal {signal}")))?;
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

impl Preparation<'_> {
    /// Where it can't, it stays in those of whoever restarts the job; the init says so.
    fn enter_groups(&self, order: &Order) -> Outcome {
        if order.control_groups.is_empty() {
            return Ok(());
        }
        let user = self.context.user.as_ref();
        let acting = user.map(|user| FileUser::begin(user.uid, user.gid, &user.groups));
        let _acting = acting.transpose()?;
        control_groups::enter(&order.control_groups);
        Ok(())
    }

    fn enter_directory(&self, order: &Order) -> Outcome {
        let Some(path) = &order.working_directory else { return Ok(()) };
        let what = format!("enter directory {path}");
        // An image can name any directory: root must not bring a user into one that is closed to them.
        let user = self.context.user.as_ref();
        let acting = user.map(|user| FileUser::begin(user.uid, user.gid, &user.groups));
        let _acting = acting.transpose()?;
        let Some(mode) = order.removed_directory else {
            return std::env::set_current_dir(names::path(path)).map_err(HelperError::system(what));
        };
        let key = order.removed_inode.map(|inode| (path.clone(), inode));
        match key.and_then(|key| self.context.removed.get(&key)) {
            Some(made) => nix::unistd::fchdir(&made.folder),
            None => {
                let folder = removed_directory(path)?;
                nix::unistd::fchdir(&folder).and_then(|()| give_mode(&folder, mode))
            }
        }
        .map_err(HelperError::system(what))
    }
}

/// Every signal has its action set: those not in the image are SIG_DFL.
fn all_actions(actions: &[SignalAction]) -> Vec<(i32, [u64; 4])> {
    (1..=64)
        .filter(|signal| *signal != libc::SIGKILL && *signal != libc::SIGSTOP)
        .map(|signal| {
            let saved = actions.iter().find(|action| action.signal == signal);
            (signal, saved.map_or([0; 4], |action| action.words))
        })
        .collect()
}

/// Settings that may need a privilege which this restore has not: then they stay as they are.
fn own_settings(order: &Order) {
    if order.nice != 0 {
        // SAFETY: takes numbers only.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, order.nice) };
    }
    let _ = std::fs::write("/proc/self/oom_score_adj", order.oom_score_adj.to_string());
    if let Some(filter) = order.core_filter {
        let _ = std::fs::write("/proc/self/coredump_filter", format!("{filter:#x}"));
    }
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
        self.stand_ins.contains(&pid)
    }

    /// Puts the standard streams of a remote shell in place; their numbers.
    fn streams(&self, descriptors: &[Descriptor]) -> Outcome<Vec<i32>> {
        let mut made = Vec::new();
        for descriptor in descriptors {
            let parked = self.context.parked(descriptor.file)?;
            // SAFETY: standard streams are this helper's own.
            unsafe { dup3(parked, descriptor.fd, libc::O_CLOEXEC) }
                .map_err(HelperError::system("put a stream in place"))?;
            made.push(descriptor.fd);
        }
        Ok(made)
    }

    fn links_of(&self, pid: Pid) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(move |link| link.owner() == pid)
    }

    /// A descriptor of a controlling terminal's slave side.
    fn slave(&self, terminal: &ControllingTerminal) -> Outcome<OwnedFd> {
        let parked = |file| self.context.parked(file);
        let here = |file: Option<FileId>| file.filter(|id| self.context.needs(*id));
        match (here(terminal.slave), here(terminal.master)) {
            (Some(slave), _) => {
                parked(slave)?.try_clone_to_owned().map_err(HelperError::system("dup"))
            }
            (None, Some(master)) => {
                tty::open_peer(parked(master)?, libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC)
                    .map_err(HelperError::system("open the terminal"))
            }
            (None, None) => Err(HelperError::NoTerminal(terminal.session)),
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

    /// Gives each number (the second) what is at another one (the first).
    fn rearrange(&self, moves: &[(i32, i32)]) -> Outcome {
        let mut aside = None;
        for step in shuffle(moves) {
            let (kept, from, to);
            match step {
                Step::Aside { from } => {
                    // SAFETY: something is parked there still.
                    let parked = unsafe { BorrowedFd::borrow_raw(from) };
                    let copy = fcntl(parked, FcntlArg::F_DUPFD_CLOEXEC(self.context.first_free))
                        .map_err(HelperError::system(format!("put descriptor {from} aside")))?;
                    // SAFETY: fcntl just returned this number for us alone.
                    aside = Some(unsafe { OwnedFd::from_raw_fd(copy) });
                    continue;
                }
                Step::Copy { from: at, to: number } => {
                    // SAFETY: something is parked there still.
                    (from, to) = (unsafe { BorrowedFd::borrow_raw(at) }, number);
                }
                Step::Back { to: number } => {
                    kept = aside.take().expect("nothing is taken back that was not put aside");
                    (from, to) = (kept.as_fd(), number);
                }
            }
            // SAFETY: the target number belongs to the process that this helper becomes, and what is parked there
            // is not wanted any more.
            unsafe { dup3(from, to, 0) }
                .map_err(HelperError::system(format!("put descriptor {to} in place")))?;
        }
        Ok(())
    }

    /// Final numbers; what is parked above all of them stays until the mappings are made.
    fn descriptors(&self, descriptors: &[Descriptor]) -> Outcome {
        let mut moves = Vec::with_capacity(descriptors.len());
        for descriptor in descriptors {
            let parked = self.context.parked(descriptor.file)?;
            moves.push((parked.as_raw_fd(), descriptor.fd));
        }
        self.rearrange(&moves)?;
        let mut next = 0;
        for descriptor in descriptors {
            if descriptor.fd > next {
                close_range(next, descriptor.fd - 1)?;
            }
            next = descriptor.fd + 1;
            let flags = if descriptor.close_on_exec { libc::FD_CLOEXEC } else { 0 };
            // SAFETY: the number was put in place right above, and belongs to the process that this helper becomes.
            let fd = unsafe { BorrowedFd::borrow_raw(descriptor.fd) };
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::from_bits_retain(flags)))
                .map_err(HelperError::system(format!("mark descriptor {}", descriptor.fd)))?;
        }
        if next < self.context.first_free {
            close_range(next, self.context.first_free - 1)?;
        }
        Ok(())
    }
}

/// A step on the way of descriptors to their final numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// From one number to another, which nobody needs any more.
    Copy { from: i32, to: i32 },
    /// To a number that neither is parked at nor in use.
    Aside { from: i32 },
    /// From there.
    Back { to: i32 },
}

/// In which order each number (the second) gets what is at another (the first) before that is overwritten.
/// What has to be put aside is only ever one at a time.
fn shuffle(moves: &[(i32, i32)]) -> Vec<Step> {
    let mut sources: BTreeMap<i32, i32> = moves.iter().map(|(from, to)| (*to, *from)).collect();
    sources.retain(|to, from| to != from);
    // How often what is at a number is still wanted.
    let mut wanted: BTreeMap<i32, usize> = BTreeMap::new();
    for (from, _) in moves {
        *wanted.entry(*from).or_default() += 1;
    }
    let is_free = |wanted: &BTreeMap<i32, usize>, at: &i32| wanted.get(at).is_none_or(|n| *n == 0);
    let mut ready: Vec<i32> = sources.keys().copied().filter(|to| is_free(&wanted, to)).collect();
    let mut steps = Vec::with_capacity(moves.len());
    let mut aside = None;
    loop {
        while let Some(to) = ready.pop() {
            let Some(from) = sources.remove(&to) else { continue };
            if aside == Some(from) {
                aside = None;
                steps.push(Step::Back { to });
                continue;
            }
            steps.push(Step::Copy { from, to });
            if let Some(left) = wanted.get_mut(&from) {
                *left -= 1;
                if *left == 0 {
                    ready.push(from);
                }
            }
        }
        // What is left are rings.
        let Some((to, _)) = sources.first_key_value() else { return steps };
        steps.push(Step::Aside { from: *to });
        aside = Some(*to);
        ready.push(*to);
    }
}

fn close_range(first: i32, last: i32) -> Outcome {
    // SAFETY: closes numbers that no owned descriptor of this helper has: those are parked above.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    nix::errno::Errno::result(closed).map(drop).map_err(HelperError::system("close_range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each number has in the end what the other one had at first, in the room of one more.
    fn check(moves: &[(i32, i32)]) {
        let mut table: BTreeMap<i32, i32> = moves.iter().map(|(from, _)| (*from, *from)).collect();
        let mut aside = None;
        for step in shuffle(moves) {
            match step {
                Step::Aside { from } => {
                    assert!(aside.replace(table[&from]).is_none(), "{moves:?}");
                }
                Step::Copy { from, to } => drop(table.insert(to, table[&from])),
                Step::Back { to } => drop(table.insert(to, aside.take().unwrap())),
            }
        }
        for (from, to) in moves {
            assert_eq!(table[to], *from, "{moves:?}");
        }
    }

    #[test]
    fn nothing_is_overwritten_that_is_still_wanted() {
        check(&[]);
        check(&[(70, 0), (70, 1), (71, 2)]);
        check(&[(64, 64), (65, 66), (66, 65), (64, 67)]);
        check(&[(1, 2), (2, 3), (3, 1), (3, 7), (4, 5), (5, 4), (9, 9)]);
        let mut seed = 1_u64;
        for _ in 0..2000 {
            let mut next = |below: u64| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (seed >> 33) % below
            };
            let count = 1 + next(12);
            let targets: std::collections::BTreeSet<i32> =
                (0..next(12)).map(|_| next(12) as i32).collect();
            let moves: Vec<_> =
                targets.into_iter().map(|to| (4 + next(count) as i32, to)).collect();
            check(&moves);
        }
    }
}
