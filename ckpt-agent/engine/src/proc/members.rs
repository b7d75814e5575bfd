//! Which of the machine's processes are a job's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::walk::{all_processes, descendants, groups, is_ended, parent, start_time};
use crate::error::{EngineError, Result};
use crate::sys::signals;

/// Rounds in which those of a tree that were born meanwhile are stopped.
const ROUNDS: usize = 100;
/// Of more than these, born while others are being stopped, the rest is killed as it comes.
const MOST_STOPPED: usize = 100_000;

/// The processes of a job, living or dead.
#[derive(Debug, Clone)]
pub enum Members {
    /// All that descend from the job's init, a process of ckptd's, by its number on this machine.
    Below(i32),
    /// A process that ckptd has not started, and all that descend from it.
    Tree(Tree),
}

impl Members {
    /// Their numbers on this machine, parents before their children.
    ///
    /// # Errors
    /// Where /proc cannot be read or there are too many.
    pub fn list(&self) -> Result<Vec<i32>> {
        match self {
            Self::Below(init) => descendants(*init),
            Self::Tree(tree) => tree.list(),
        }
    }

    /// How many of them live.
    pub fn living(&self) -> usize {
        self.list().unwrap_or_default().into_iter().filter(|pid| !is_ended(*pid)).count()
    }

    /// Stops all of them, parents before their children, so that none sees another's end and does something about it: reads
    /// the end of a pipe, starts a killed worker again.
    pub fn stop(&self) {
        let rounds = match self {
            Self::Below(_) => usize::MAX,
            Self::Tree(_) => ROUNDS,
        };
        let mut stopped = BTreeSet::new();
        for _ in 0..rounds {
            let all = self.list().unwrap_or_default();
            let new: Vec<i32> = all.into_iter().filter(|pid| !stopped.contains(pid)).collect();
            if new.is_empty() || stopped.len() > MOST_STOPPED {
                return;
            }
            for pid in new {
                // It may just have ended.
                let _ = signals::send(pid, libc::SIGSTOP);
                stopped.insert(pid);
            }
        }
    }

    /// Kills those that live now; whether any did.
    ///
    /// A number can't have become a stranger's: a child of the caller is reaped by the caller only, and one that a
    /// process further down has reaped was read from the list of that one's living or dead children a moment ago, in the
    /// course of which the kernel would have had to give out all other numbers.
    pub fn kill_living(&self) -> bool {
        let mut alive = false;
        for pid in self.list().unwrap_or_default() {
            if is_ended(pid) {
                continue;
            }
            alive = true;
            let _ = signals::send(pid, libc::SIGKILL);
        }
        alive
    }

    /// Finds those that [`Members::list`] could not see by itself. Takes a look at each process of the machine where
    /// ckptd has not started the job.
    ///
    /// # Errors
    /// As [`Members::list`].
    pub fn gather(&self) -> Result<()> {
        match self {
            Self::Below(_) => Ok(()),
            Self::Tree(tree) => tree.gather(),
        }
    }
}

/// A process that ckptd has not started, with those that descend from it. No process of ckptd's is above them to which
/// orphans would fall: a member whose parent ends stays one if it has been listed before, or is found by its session or
/// its process group ([`Tree::gather`]). Clones know of the same ones.
#[derive(Debug, Clone)]
pub struct Tree {
    root: i32,
    known: Arc<Mutex<Known>>,
}

/// What the last look has found.
#[derive(Debug, Default)]
struct Known {
    /// The members, each with the time of its start: no later process of its number is taken for it.
    started: BTreeMap<i32, u64>,
    /// Sessions and process groups that members have made.
    groups: BTreeSet<i32>,
}

impl Tree {
    /// Of a process, as this machine numbers it.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn of(root: i32) -> Result<Self> {
        let started = start_time(root).ok_or(EngineError::Gone(root))?;
        let known = Known { started: BTreeMap::from([(root, started)]), ..Known::default() };
        Ok(Self { root, known: Arc::new(Mutex::new(known)) })
    }

    /// Its first process.
    pub fn root(&self) -> i32 {
        self.root
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn list(&self) -> Result<Vec<i32>> {
        let mut known = self.known();
        known.started.retain(|pid, started| start_time(*pid) == Some(*started));
        let mut found = Vec::new();
        if known.started.contains_key(&self.root) {
            found.push(self.root);
            found.extend(descendants(self.root)?);
        }
        let mut listed: BTreeSet<i32> = found.iter().copied().collect();
        // Those that were below it, and whose parents have ended. Dead ones are children of strangers.
        let is_orphan = |pid: &&i32| !listed.contains(*pid) && !is_ended(**pid);
        let orphans: BTreeSet<i32> = known.started.keys().filter(is_orphan).copied().collect();
        let is_first = |pid: &&i32| parent(**pid).is_none_or(|parent| !orphans.contains(&parent));
        for first in orphans.iter().filter(is_first) {
            let below = std::iter::once(*first).chain(descendants(*first)?);
            found.extend(below.filter(|pid| listed.insert(*pid)));
        }
        known.started.retain(|pid, _| listed.contains(pid));
        for pid in &found {
            if !known.started.contains_key(pid) {
                known.started.extend(start_time(*pid).map(|started| (*pid, started)));
            }
        }
        Ok(found)
    }

    /// Looks through all processes of the machine for members whose parents have ended before they were listed: those in
    /// sessions and process groups that members have made. Others of them nobody can tell.
    ///
    /// # Errors
    /// As [`Members::list`].
    pub fn gather(&self) -> Result<()> {
        let members: BTreeSet<i32> = self.list()?.into_iter().collect();
        let mut known = self.known();
        let outside = groups(self.root).unwrap_or_default();
        let is_own = |number: i32, known: &Known| {
            // Whoever has made it, and has ended since, was no stranger: those in the first one's session and group are
            // in that, or have left it for one of their own.
            members.contains(&number)
                || known.groups.contains(&number)
                || (!outside.contains(&number) && is_ended(number))
        };
        let all = members.iter().filter_map(|pid| groups(*pid)).flatten();
        let own = all.filter(|number| *number > 0 && is_own(*number, &known)).collect();
        known.groups = own;
        if known.groups.is_empty() {
            return Ok(());
        }
        let ckptd = std::process::id() as i32;
        for pid in all_processes()? {
            let is_of = |found: [i32; 2]| found.iter().any(|number| known.groups.contains(number));
            if pid != ckptd && !members.contains(&pid) && groups(pid).is_some_and(is_of) {
                known.started.extend(start_time(pid).map(|started| (pid, started)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    /// The number that a shell tells in its first line.
    fn told(shell: &mut Child) -> i32 {
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        line.trim().parse().unwrap()
    }

    #[test]
    fn an_orphan_stays_a_member() {
        // The middle one tells the number of its child, and ends when its input does.
        let script = "sh -c 'sleep 60 & echo $!; read line'; sleep 60";
        let mut root = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let sleeper = told(&mut root);
        let members = Members::Tree(Tree::of(root.id() as i32).unwrap());
        let all = members.list().unwrap();
        assert_eq!((all[0], all.last()), (root.id() as i32, Some(&sleeper)));

        drop(root.stdin.take());
        while descendants(root.id() as i32).unwrap().contains(&sleeper) {
            std::thread::yield_now();
        }
        assert!(members.list().unwrap().contains(&sleeper));

        let kill = |pid: i32| signals::send(pid, libc::SIGKILL);
        kill(sleeper).unwrap();
        while !is_ended(sleeper) {
            std::thread::yield_now();
        }
        assert!(!members.list().unwrap().contains(&sleeper));
        let rest = members.list().unwrap();
        rest.iter().rev().for_each(|pid| kill(*pid).unwrap());
        root.wait().unwrap();
        // The others die when the kernel comes to it.
        while rest.iter().any(|pid| !is_ended(*pid)) {
            std::thread::yield_now();
        }
        assert!(members.list().unwrap().is_empty());
    }

    #[test]
    fn an_orphan_is_found_by_its_session() {
        // Both parents of the sleeper have ended before anybody looks.
        let script = "setsid sh -c 'sh -c \"sleep 60 & echo \\$!\"'; sleep 60";
        let mut root = Command::new("sh")
            .args(["-c", script])
            .process_group(0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let sleeper = told(&mut root);
        let tree = Tree::of(root.id() as i32).unwrap();
        let members = Members::Tree(tree);
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        members.gather().unwrap();
        let all = members.list().unwrap();
        assert!(!all.contains(&(child.id() as i32)));
        for pid in all.into_iter().chain([sleeper]) {
            let _ = signals::send(pid, libc::SIGKILL);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        root.wait().unwrap();
    }
}
