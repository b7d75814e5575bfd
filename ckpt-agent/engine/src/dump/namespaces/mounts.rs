//! A mount namespace in which other things are mounted than in the job's: how it is made again from what the job has
//! mounted, or why not.

use std::collections::{BTreeMap, BTreeSet};

use super::super::super::error::Result;
use super::super::super::graph::{MountSource, NamespaceContent, OwnMount};
use super::super::super::proc::mounts::{Mount, Mounts, below, flags, joined};
use super::memory_files::{self, Maker};
use super::refuse;

/// A mount namespace of a process, beside the job's.
#[derive(Debug)]
pub(super) struct Planned {
    /// How it is made.
    pub content: NamespaceContent,
    /// Numbers of mounts that are as in the job's.
    pub unchanged: BTreeSet<i32>,
}

/// Plans how the mounts of a process are made again from those of the job.
pub(super) fn plan(pid: i32, home: &Mounts, own: &Mounts, maker: Maker) -> Result<Planned> {
    let mut plan = Plan { pid, home, own, maker, along: BTreeMap::new(), made: Vec::new() };
    for mount in &own.all {
        plan.check(mount)?;
    }
    let (top, of_job) = (&own.all[own.root], &home.all[home.root]);
    let pivot = !(is_same(top, of_job) && plan.matches(home.root, "/", own.root, "/"));
    if pivot {
        plan.along.clear();
    } else {
        plan.along.insert(own.root, home.root);
        plan.changed_ones(!pivot);
    }
    plan.emit(own.root)?;
    let is_unchanged =
        |(place, of_job): (&usize, &usize)| own.all[*place].options == home.all[*of_job].options;
    let kept = plan.along.iter().filter(|one| !pivot && is_unchanged(*one));
    let unchanged = kept.map(|(place, _)| own.all[*place].id).collect();
    if plan.made.len() > OwnMount::MOST {
        return Err(with("more than a thousand mounts"));
    }
    let private = !top.propagation.contains("master:");
    Ok(Planned {
        content: NamespaceContent::OwnMounts { mounts: plan.made, pivot, private },
        unchanged,
    })
}

fn with(what: impl std::fmt::Display) -> super::EngineError {
    refuse(format!("is in a mount namespace of its own, with {what}"))
}

fn is_same(one: &Mount, other: &Mount) -> bool {
    (&one.device, &one.root) == (&other.device, &other.root)
}

struct Plan<'m> {
    pid: i32,
    home: &'m Mounts,
    own: &'m Mounts,
    maker: Maker,
    /// Those that come with a copy, and what they are among the job's.
    along: BTreeMap<usize, usize>,
    made: Vec<OwnMount>,
}

impl Plan<'_> {
    fn check(&self, mount: &Mount) -> Result<()> {
        let at = &mount.at;
        if mount.propagation.contains("shared:") || mount.propagation.contains("unbindable") {
            return Err(with(format_args!("mounts that propagate ({at})")));
        }
        if flags(&mount.options).is_none() {
            return Err(with(format_args!("the options {} of {at}", mount.options)));
        }
        Ok(())
    }

    /// Finds all that lies on one of the job's mounts, below a folder, on one of the namespace's. False: something of it
    /// is not there.
    fn matches(&mut self, of_job: usize, from: &str, place: usize, at: &str) -> bool {
        let (home, own) = (self.home, self.own);
        for child in home.children(of_job) {
            let mount = &home.all[*child];
            let Some(rest) = below(&mount.at, from) else { continue };
            let same = own.children(place).iter().find(|other| {
                let other = &own.all[**other];
                is_same(mount, other) && below(&other.at, at) == Some(rest)
            });
            let Some(same) = same else { return false };
            self.along.insert(*same, *child);
            if !self.matches(*child, from, *same, at) {
                return false;
            }
        }
        true
    }

    fn push(&mut self, place: usize, source: MountSource) {
        let Mount { at, root, file_system, from, options, .. } = self.own.all[place].clone();
        let is_made = matches!(source, MountSource::Made { .. });
        let from = if is_made && from != file_system { from } else { String::new() };
        self.made.push(OwnMount { at, root, file_system, from, options, source });
    }

    /// Lists those that have come along since they were last listed; `changed_only`: if their options are others.
    fn changed_ones(&mut self, changed_only: bool) {
        for (place, of_job) in self.along.clone() {
            let changed = self.own.all[place].options != self.home.all[of_job].options;
            if changed || !changed_only {
                self.push(place, MountSource::Along { changed });
            }
        }
    }

    /// Lists a mount and all that lies on it. Of two that lie on one, the deeper mount point comes first: the other may cover it.
    fn emit(&mut self, place: usize) -> Result<()> {
        if !self.along.contains_key(&place) {
            self.source(place)?;
        }
        let own = self.own;
        let mut children = own.children(place).to_vec();
        children.sort_by_key(|child| std::cmp::Reverse(own.all[*child].at.matches('/').count()));
        // A cover of the root has as many slashes as what lies right below it.
        children.sort_by_key(|child| own.all[*child].at == own.all[place].at);
        children.into_iter().try_for_each(|child| self.emit(child))
    }

    fn source(&mut self, place: usize) -> Result<()> {
        let own = self.own;
        let mount = &own.all[place];
        if self.home.all.iter().any(|one| one.device == mount.device) {
            return match self.path_of(mount) {
                // Options that are fixed for a copy are not for a new one.
                Some((.., of_job)) if self.is_wider(mount, of_job) => self.make(place),
                Some((path, of_job)) => self.bind(place, path, of_job),
                None => {
                    Err(with(format_args!("{} of something that the job has nowhere", mount.at)))
                }
            };
        }
        self.make(place)
    }

    /// Where the job's mounts show the same.
    fn path_of(&self, mount: &Mount) -> Option<(String, usize)> {
        let home = self.home;
        let candidates = home.all.iter().enumerate().filter(|(_, one)| one.device == mount.device);
        candidates.into_iter().find_map(|(place, one)| {
            let path = joined(&one.at, below(&mount.root, &one.root)?);
            (home.shown_at(&path) == place).then_some((path, place))
        })
    }

    /// Whether this is all of /proc with fewer restrictions than the job's.
    fn is_wider(&self, mount: &Mount, of_job: usize) -> bool {
        let fewer = |of_job: &str| {
            let (own, theirs) = (flags(&mount.options), flags(of_job));
            own.zip(theirs).is_some_and(|(own, theirs)| {
                let restrictions =
                    libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
                theirs & restrictions & !own != 0
            })
        };
        mount.file_system == "proc" && mount.root == "/" && fewer(&self.home.all[of_job].options)
    }

    fn bind(&mut self, place: usize, path: String, of_job: usize) -> Result<()> {
        let at = self.own.all[place].at.clone();
        let listed = std::mem::take(&mut self.along);
        let whole = self.matches(of_job, &path, place, &at);
        let found = std::mem::replace(&mut self.along, listed);
        if !whole && !found.is_empty() {
            return Err(with(format_args!("{at} without some of what is mounted in {path}")));
        }
        let recursive = whole && !found.is_empty();
        self.push(place, MountSource::Bound { path, recursive });
        let listed = std::mem::replace(&mut self.along, found);
        self.changed_ones(false);
        self.along.extend(listed);
        Ok(())
    }

    /// Whether this is a part of a /proc over that part itself, as containers have them to make these read-only.
    fn is_in_place(&self, mount: &Mount) -> bool {
        let is_whole = |one: &Mount| {
            one.device == mount.device
                && one.root == "/"
                && mount.at == joined(&one.at, &mount.root)
        };
        self.own.all.iter().any(is_whole)
    }

    fn make(&mut self, place: usize) -> Result<()> {
        let mount = &self.own.all[place];
        let at = &mount.at;
        let is_other = |one: &Mount| one.device == mount.device && one.id != mount.id;
        let kind = mount.file_system.as_str();
        if matches!(kind, "tmpfs" | "devpts") && self.own.all.iter().any(is_other) {
            return Err(with(format_args!("one {kind} in several places ({at})")));
        }
        if self.own.shown_at(at) != place && matches!(kind, "tmpfs" | "devpts") {
            return Err(with(format_args!("a {kind} that another mount covers ({at})")));
        }
        let mut entries = Vec::new();
        let data = match kind {
            "tmpfs" => {
                let data = chosen(mount, &["size", "nr_inodes", "nr_blocks", "mode", "huge"])?;
                entries = memory_files::read(self.pid, mount, self.maker)?;
                data
            }
            "devpts" if mount.root == "/" => {
                memory_files::refuse_terminals(self.pid, mount)?;
                chosen(mount, &["mode", "ptmxmode"])?
            }
            "proc" | "sysfs" if mount.root == "/" => chosen(mount, &[])?,
            "proc" if self.is_in_place(mount) => chosen(mount, &[])?,
            _ => return Err(with(format_args!("a file system of type {kind} ({at})"))),
        };
        self.push(place, MountSource::Made { data, entries });
        Ok(())
    }
}

/// Those options of a file system that it is made with again.
fn chosen(mount: &Mount, known: &[&str]) -> Result<String> {
    let mut kept = Vec::new();
    for option in mount.data.split(',') {
        let name = option.split('=').next().unwrap_or(option);
        match name {
            "rw" | "inode64" | "inode32" => {}
            // Those of whoever makes it, which its root tells as well.
            "uid" | "gid" if mount.file_system == "tmpfs" => {}
            _ if known.contains(&name) => kept.push(option),
            _ => {
                let (kind, at) = (&mount.file_system, &mount.at);
                return Err(with(format_args!("a {kind} with the option {option} ({at})")));
            }
        }
    }
    Ok(kept.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: &str = "1 0 8:1 / / rw,relatime - ext4 /dev/a rw\n\
        2 1 0:5 / /dev rw,nosuid - devtmpfs none rw\n\
        3 2 0:6 / /dev/pts rw - devpts none rw\n\
        4 1 0:9 / /proc rw,nosuid - proc proc rw\n";
    const MAKER: Maker = Maker { user: 0, group: 0, may_own: true };

    fn planned(own: &str) -> Result<(Vec<OwnMount>, bool)> {
        let (home, own) = (Mounts::parse(HOME).unwrap(), Mounts::parse(own).unwrap());
        match plan(1, &home, &own, MAKER)?.content {
            NamespaceContent::OwnMounts { mounts, pivot, .. } => Ok((mounts, pivot)),
            other => panic!("{other:?}"),
        }
    }

    fn copied() -> String {
        HOME.replace("2 1 ", "12 11 ")
            .replace("3 2 ", "13 12 ")
            .replace("1 0 ", "11 10 ")
            .replace("4 1 ", "14 11 ")
    }

    #[test]
    fn binds_are_told_from_what_came_along() {
        let own = copied()
            + "15 11 8:1 /a /b ro,relatime - ext4 /dev/a rw\n\
               16 11 0:5 / /mnt/dev rw,nosuid - devtmpfs none rw\n\
               17 16 0:6 / /mnt/dev/pts ro - devpts none rw\n";
        let (mounts, pivot) = planned(&own).unwrap();
        let ats: Vec<&str> = mounts.iter().map(|mount| mount.at.as_str()).collect();
        assert_eq!((ats, pivot), (vec!["/mnt/dev", "/mnt/dev/pts", "/b"], false));
        let bound = |path: &str, recursive| MountSource::Bound { path: path.to_owned(), recursive };
        assert_eq!(mounts[0].source, bound("/dev", true));
        assert_eq!(mounts[1].source, MountSource::Along { changed: true });
        assert_eq!(mounts[2].source, bound("/a", false));
    }

    #[test]
    fn another_root_is_built_from_scratch() {
        let own = copied().replace("rw,relatime", "ro,relatime")
            + "15 11 0:9 / /proc rw,nosuid - proc proc rw\n";
        let (mounts, pivot) = planned(&own).unwrap();
        assert!(!pivot);
        assert_eq!(mounts[0].source, MountSource::Along { changed: true });
        assert_eq!(mounts.len(), 2);
        let without = "11 10 8:1 / / ro,relatime - ext4 /dev/a rw\n\
            12 11 0:5 / /dev rw,nosuid - devtmpfs none rw\n\
            13 12 0:6 / /dev/pts rw - devpts none rw\n";
        assert!(planned(without).is_err());
        let (mounts, pivot) = planned(without.lines().next().unwrap()).unwrap();
        assert_eq!((mounts.len(), pivot), (1, true));
    }

    #[test]
    fn what_cannot_be_made_again_is_refused() {
        for line in [
            "15 11 0:77 / /mnt rw - overlay none rw\n",
            "15 11 0:5 / /mnt rw shared:1 - devtmpfs none rw\n",
            "15 11 0:5 / /mnt rw,idmapped - devtmpfs none rw\n",
            "15 11 0:77 / /mnt rw - proc none rw,hidepid=2\n",
        ] {
            assert!(planned(&(copied() + line)).is_err(), "{line}");
        }
    }
}
