//! Namespaces that processes of the job have made for themselves: which they are, and what of them can be kept. Decided
//! before the first call is made inside of any process.

mod content;
mod entered;
mod home;
mod in_networks;
mod ipc;
mod memory_files;
mod mounts;
mod network;
mod objects;
mod pids;
mod places;
mod related;
mod seen;
mod segments;
mod time;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use procfs::process::Process;

use super::super::error::{EngineError, Refusal, Result};
use super::super::freeze::StoppedProcess;
use super::super::graph::{
    MountSource, NamespaceContent, OwnNamespace, ProcessNode, Sharing, TIME_OF_CHILDREN,
};
use super::super::proc::mounts::Mounts;
use super::super::proc::root_directory;
use super::super::sys::related::{GET_PARENT, GET_USER, related, user_name};
use super::super::sys::restrained::SYS_ADMIN;
use super::super::trace::Remote;
use content::{UTS_ROOM, host_and_domain};
pub use in_networks::check_kept;
use memory_files::Maker;
pub use pids::tell_peers;
pub use places::Places;
pub use related::{MOST_NETWORKS, Networks};

/// What a refusal advises.
const WAY_OUT: &str = "run the job without containers of its own";

/// Files below /proc/PID/ns, and what they are called. The user namespace comes first: others belong to it.
const KINDS: [(&str, &str); 8] = [
    ("user", "a user namespace"),
    ("uts", "a UTS namespace"),
    ("ipc", "an IPC namespace"),
    ("net", "a network namespace"),
    ("mnt", "a mount namespace"),
    ("cgroup", "a cgroup namespace"),
    (time::OWN, "a time namespace"),
    (TIME_OF_CHILDREN, "a time namespace"),
];
/// Those that each thread can change for itself, without any of its process's other threads.
const OF_THREADS: [&str; 8] =
    ["uts", "ipc", "net", "mnt", "cgroup", pids::OF_CHILDREN, time::OWN, TIME_OF_CHILDREN];

/// Namespaces of a job's processes that are not its init's.
#[derive(Debug, Default)]
pub struct Own {
    /// All of them.
    pub all: Vec<OwnNamespace>,
    /// Those that a process is in, by its number on this machine, as places in the list.
    of: BTreeMap<i32, Vec<u32>>,
    /// Time namespaces that the children of a process will be in, where it is not in them itself, by its number likewise.
    of_children: BTreeMap<i32, u32>,
    /// PID namespaces that the children of a process will be in, likewise.
    pids_of_children: BTreeMap<i32, u32>,
    /// The job's processes.
    processes: BTreeSet<i32>,
    /// Places by the kernel's name of the namespace.
    known: HashMap<(&'static str, String), u32>,
    /// User namespaces in which no process has been met, but in another one within them.
    empty: BTreeSet<u32>,
    /// Who is in mount namespaces with mounts of their own, by their places.
    makers: BTreeMap<u32, Maker>,
    /// What is mounted in mount namespaces, by their places.
    mounts: BTreeMap<u32, Mounts>,
    /// Mounts that are as in the job's own mount namespace, by their numbers.
    unchanged: BTreeSet<i32>,
    /// System V objects, where any process is in an IPC namespace of its own.
    lists: segments::Lists,
    /// Where files are found among the job's own mounts, where any process has others.
    found: Option<Arc<Places>>,
}

impl Own {
    /// Looks at the namespaces of all processes of a job.
    ///
    /// # Errors
    /// A refusal of what can't be kept, with the number of its process on this machine; failed calls.
    pub fn find(init: i32, processes: &[StoppedProcess]) -> Result<Self, (i32, EngineError)> {
        let first = processes.first().map_or(init, |process| process.host_pid);
        home::check(init).map_err(|error| (first, error))?;
        let processes_here = processes.iter().map(|process| process.host_pid).collect();
        let mut own = Self { processes: processes_here, ..Self::default() };
        let of_init = KINDS.map(|(file, _)| name_of(init, file));
        for process in processes {
            own.look_at(init, &of_init, process).map_err(|error| (process.host_pid, error))?;
        }
        own.check_entered()?;
        own.check_seen(init, processes)?;
        own.check_ipc(init, processes)?;
        Ok(own)
    }

    fn look_at(
        &mut self,
        init: i32,
        of_init: &[Option<String>],
        process: &StoppedProcess,
    ) -> Result<()> {
        let pid = process.host_pid;
        let mut places = Vec::new();
        for ((file, what), of_init) in KINDS.iter().zip(of_init) {
            // A kernel without such namespaces has one of them.
            let (Some(of_init), Some(name)) = (of_init, name_of(pid, file)) else { continue };
            if *file == TIME_OF_CHILDREN {
                if Some(&name) != name_of(pid, time::OWN).as_ref() {
                    let place = self.place(init, pid, (file, what), name)?;
                    self.check_founder(pid, place, &places)?;
                }
            } else if *of_init != name {
                places.push(self.place(init, pid, (file, what), name)?);
            }
        }
        self.check_threads(process)?;
        if places.is_empty() {
            return Ok(());
        }
        if places.iter().any(|place| self.all[*place as usize].content.is_user()) {
            content::check_one_user(process)?;
        }
        self.of.insert(pid, places);
        Ok(())
    }

    /// The place of a namespace in the list, where it comes to stand when it is first met.
    fn place(
        &mut self,
        init: i32,
        pid: i32,
        (file, what): (&'static str, &str),
        name: String,
    ) -> Result<u32> {
        let key = if file == TIME_OF_CHILDREN { time::OWN } else { file };
        if let Some(place) = self.known.get(&(key, name.clone())).copied() {
            if self.empty.remove(&place) {
                self.all[place as usize].content = content::user(pid)?;
            }
            return Ok(place);
        }
        let mut told = None;
        let content = match file {
            "user" => content::user(pid)?,
            "uts" => NamespaceContent::Uts { host: String::new(), domain: String::new() },
            "ipc" => objects::content_of(told.insert(ipc::content(pid)?)),
            "net" => network::content(pid)?,
            "mnt" => {
                let owner = self.owner(init, pid, file, what)?;
                self.mounts(init, pid, owner.is_none())?
            }
            "cgroup" => NamespaceContent::Cgroup,
            time::OWN | TIME_OF_CHILDREN => time::content(init, pid, file, &self.processes)?,
            _ => return Err(refuse(format!("is in {what} of its own"))),
        };
        let owner = self.owner(init, pid, file, what)?;
        if owner.is_some() && content.is_user() {
            content::check_within(pid, &content)?;
        }
        let place = self.all.len() as u32;
        if let Some(told) = told {
            self.check_owners(init, owner, &told)?;
            self.lists.insert(Some(place), told);
        }
        self.all.push(OwnNamespace { owner, content });
        self.known.insert((key, name), place);
        Ok(place)
    }

    /// Notes that a process has made a time namespace for its children that it is not in itself; so does one at a restart,
    /// while it has the rights that it takes. `places`: what the process is in.
    fn check_founder(&mut self, pid: i32, place: u32, places: &[u32]) -> Result<()> {
        let founded = &self.all[place as usize];
        let NamespaceContent::Time { fixed, .. } = founded.content else { return Ok(()) };
        let own = places.iter().map(|place| &self.all[*place as usize]);
        let mut own = own.filter(|one| one.content.is_time());
        if founded.owner.is_none() && own.any(|own| own.owner.is_some()) {
            let what = "is in a time namespace of other users than that of its children";
            return Err(refuse(what.to_owned()));
        }
        if self.of_children.values().any(|other| *other == place) {
            let what = "has children in a time namespace that it is not in, and shares that with another process";
            return Err(refuse(what.to_owned()));
        }
        if !fixed {
            time::check_copy(pid)?;
        }
        self.of_children.insert(pid, place);
        Ok(())
    }

    /// What is mounted in a mount namespace. `of_job`: it belongs to the job's user namespace.
    fn mounts(&mut self, init: i32, pid: i32, of_job: bool) -> Result<NamespaceContent> {
        let of = |pid: i32| content::file_of(pid, "mountinfo");
        let seer = self.at_root(pid)?;
        let (home, own) = (of(init)?, of(seer)?);
        let same = content::mounted(&home) == content::mounted(&own);
        let (home, own) = (tree(&home)?, tree(&own)?);
        let place = self.all.len() as u32;
        let content = if same {
            self.unchanged.extend(own.all.iter().map(|mount| mount.id));
            NamespaceContent::Mounts
        } else {
            let maker = content::maker(pid, of_job)?;
            let planned = mounts::plan(pid, &home, &own, maker)?;
            self.makers.insert(place, maker);
            self.unchanged.extend(planned.unchanged);
            planned.content
        };
        self.mounts.insert(place, own);
        Ok(content)
    }

    /// A process in the mount namespace of this one that works at its root: one with another root directory is told of
    /// the mounts below that alone.
    fn at_root(&self, pid: i32) -> Result<i32> {
        let name = name_of(pid, "mnt");
        let is_one = |other: &i32| {
            name_of(*other, "mnt") == name
                && root_directory(*other).is_ok_and(|root| root.is_none())
        };
        let mut all = std::iter::once(pid).chain(self.processes.iter().copied());
        all.find(is_one).ok_or_else(|| {
            refuse("is in a mount namespace of its own with another root directory, as all processes there are".to_owned())
        })
    }

    /// Whichever process makes a namespace again, files there must become the same user's.
    fn check_maker(&self, place: u32, pid: i32) -> Result<()> {
        let of_job = self.all[place as usize].owner.is_none();
        match self.makers.get(&place) == Some(&content::maker(pid, of_job)?) {
            true => Ok(()),
            false => Err(refuse("is another user than others among the same mounts".to_owned())),
        }
    }

    /// Looks at what all processes have open, in a job with mounts of its own.
    fn check_seen(
        &mut self,
        init: i32,
        processes: &[StoppedProcess],
    ) -> Result<(), (i32, EngineError)> {
        if !self.all.iter().any(|one| one.content.has_own_mounts()) {
            return Ok(());
        }
        let places = self.places(init).map_err(|error| (init, error))?;
        for process in processes {
            let pid = process.host_pid;
            let checked = seen::check(&places, pid);
            let inside = self.place_among(pid, NamespaceContent::has_own_mounts);
            let same = inside.map_or(Ok(()), |place| self.check_maker(place, pid));
            checked.and(same).map_err(|error| (pid, error))?;
        }
        self.found = Some(Arc::new(places));
        Ok(())
    }

    /// The namespace of a process that is one of these, as a place in the list.
    fn place_among(&self, pid: i32, is_one: impl Fn(&NamespaceContent) -> bool) -> Option<u32> {
        let places = self.of.get(&pid).into_iter().flatten();
        places.copied().find(|place| is_one(&self.all[*place as usize].content))
    }

    fn places(&mut self, init: i32) -> Result<Places> {
        let home = tree(&content::file_of(init, "mountinfo")?)?;
        let is_mounts = |content: &NamespaceContent| content.flag() == libc::CLONE_NEWNS;
        let of = |pid: &i32| Some((*pid, self.place_among(*pid, is_mounts)?));
        let of = self.of.keys().filter_map(of).collect();
        let unchanged = std::mem::take(&mut self.unchanged);
        Places::new(init, home, std::mem::take(&mut self.mounts), of, unchanged)
    }

    /// The user namespace that a namespace belongs to; that of a user namespace is the one that it was made in.
    fn owner(&mut self, init: i32, pid: i32, file: &str, what: &str) -> Result<Option<u32>> {
        let path = format!("/proc/{pid}/ns/{file}");
        let opened =
            File::open(&path).map_err(|error| EngineError::system("open", &path, error))?;
        let request = if file == "user" { GET_PARENT } else { GET_USER };
        let owner = related(&opened, request)?;
        let name = user_name(&owner)?;
        let of_job = name_of(init, "user");
        if of_job.as_ref() == Some(&name) {
            return Ok(None);
        }
        let within = || refuse(format!("is in {what} within another one of its own"));
        let known = self.known.get(&("user", name.clone())).copied();
        if file != "user" && known.is_some() {
            return Ok(known);
        }
        // Who may not look at that one is not in the one around it.
        let outermost = related(&owner, GET_PARENT).and_then(user_name);
        if outermost.ok().is_none_or(|outermost| Some(outermost) != of_job) {
            return Err(within());
        }
        if known.is_some() {
            return Ok(known);
        }
        let place = self.all.len() as u32;
        let content = match file {
            "user" => {
                self.empty.insert(place);
                content::around(&content::user(pid)?).ok_or_else(within)?
            }
            // It has entered one of another process's, which comes later.
            _ => {
                let mut all = self.processes.iter();
                let is_in = |pid: &&i32| name_of(**pid, "user").as_ref() == Some(&name);
                let other = all.find(is_in).ok_or_else(|| refuse(entered::NOBODY.to_owned()))?;
                content::user(*other)?
            }
        };
        self.all.push(OwnNamespace { owner: None, content });
        self.known.insert(("user", name), place);
        Ok(Some(place))
    }

    /// Where files are found among the job's own mounts, where any process has others.
    pub fn found(&self) -> Option<Arc<Places>> {
        self.found.clone()
    }

    /// Network namespaces; `None`: the kernel has none.
    pub fn networks(&self, init: i32) -> Option<Networks> {
        let number = |pid: i32| Some(std::fs::metadata(format!("/proc/{pid}/ns/net")).ok()?.ino());
        let is_one = |content: &NamespaceContent| content.flag() == libc::CLONE_NEWNET;
        let of = |pid: &i32| Some((*pid, self.place_among(*pid, is_one)?));
        let own: BTreeMap<u64, (u32, i32)> = (self.of.keys().filter_map(of))
            .filter_map(|(pid, place)| Some((number(pid)?, (place, pid))))
            .collect();
        // Of the capabilities(7) that this takes, whoever has this one has all.
        let has_right = || {
            let status = Process::new(init).and_then(|process| process.status());
            status.is_ok_and(|status| status.capeff & 1 << SYS_ADMIN != 0)
        };
        let may_be_made = !own.is_empty() && has_right();
        let home = number(init)?;
        let cookie = related::own_cookie(home);
        let is_down = |place: &u32| {
            let content = self.all.get(*place as usize).map(|one| &one.content);
            matches!(content, Some(NamespaceContent::Network { loopback_up: false }))
        };
        let down = own.values().map(|(place, _)| *place).filter(is_down).collect();
        Some(Networks { home, own, down, may_be_made, used: BTreeSet::new(), cookie })
    }

    /// Notes in which network namespaces sockets were made: a restart makes those before there are processes, for the job's
    /// user namespace. Whether any of them belonged to another one, which then has no rights over it.
    ///
    /// # Errors
    /// A refusal of who mounts a sysfs, which takes such rights, with the number of its process on this machine.
    pub fn have_sockets(&mut self, used: &BTreeSet<u32>) -> Result<bool, (i32, EngineError)> {
        let is_lost = |place: &u32| {
            used.contains(place)
                && self.all.get(*place as usize).is_some_and(|one| one.owner.is_some())
        };
        let has_sysfs = |place: &u32| match self.all.get(*place as usize).map(|one| &one.content) {
            Some(NamespaceContent::OwnMounts { mounts, .. }) => mounts.iter().any(|mount| {
                mount.file_system == "sysfs" && matches!(mount.source, MountSource::Made { .. })
            }),
            _ => false,
        };
        let both = |places: &Vec<u32>| places.iter().any(is_lost) && places.iter().any(has_sysfs);
        if let Some((pid, _)) = self.of.iter().find(|(_, places)| both(places)) {
            let what = "has mounted a sysfs of a network namespace of its own with sockets in it";
            return Err((*pid, refuse(what.to_owned())));
        }
        let mut disowned = false;
        for place in used {
            let Some(one) = self.all.get_mut(*place as usize) else { continue };
            if let NamespaceContent::Network { loopback_up } = one.content {
                one.content = NamespaceContent::OwnNetwork { loopback_up };
            }
            disowned |= one.owner.take().is_some();
        }
        Ok(disowned)
    }

    /// Who is in namespaces of its own must have directories and memory of its own: both unshare(2) and setns(2) ask for that.
    ///
    /// # Errors
    /// The refusal.
    pub fn check_sharing(
        &self,
        sharing: &[Sharing],
        nodes: &BTreeMap<i32, ProcessNode>,
    ) -> Result<()> {
        for one in sharing.iter().filter(|one| one.directories || one.memory) {
            let node = nodes.values().find(|node| node.pid == one.pid);
            let Some(node) = node.filter(|_| !self.of.is_empty()) else { continue };
            let shared = if one.memory { "memory" } else { "directories" };
            let what =
                format!("shares its {shared} with its parent, in a job with namespaces of its own");
            return Err(refuse(what).of(node.pid, &node.comm));
        }
        Ok(())
    }

    /// The namespaces of a process, as places in the list.
    pub fn of(&self, pid: i32) -> Vec<u32> {
        self.of.get(&pid).cloned().unwrap_or_default()
    }

    /// The time namespace that the children of a process will be in, where it is another than its own.
    pub fn time_of_children(&self, pid: i32) -> Option<u32> {
        self.of_children.get(&pid).copied()
    }

    /// The PID namespace that the children of a process will be in, where it is another than its own.
    pub fn pids_of_children(&self, pid: i32) -> Option<u32> {
        self.pids_of_children.get(&pid).copied()
    }

    /// Whether there are PID namespaces of the job's own. Copies of processes would show in them: their first process is who
    /// gets orphans.
    pub fn has_pids(&self) -> bool {
        self.all.iter().any(|one| matches!(one.content, NamespaceContent::Pid))
    }

    /// Whether a child of this process would be the first one in its time namespace.
    pub fn would_fix_clocks(&self, pid: i32) -> bool {
        let place = self.time_of_children(pid);
        let content = place.and_then(|place| self.all.get(place as usize)).map(|one| &one.content);
        matches!(content, Some(NamespaceContent::Time { fixed: false, .. }))
    }

    /// Asks for what only a process itself tells of its namespaces: the names of uname(2).
    ///
    /// # Errors
    /// Failed calls.
    pub fn ask(&mut self, pid: i32, remote: &mut Remote<'_>) -> Result<()> {
        for place in self.of.get(&pid).into_iter().flatten() {
            let NamespaceContent::Uts { host, domain } = &mut self.all[*place as usize].content
            else {
                continue;
            };
            let at = remote.scratch_data()?;
            remote.call("uname", libc::SYS_uname, &[at])?;
            let mut answer = [0; UTS_ROOM as usize];
            remote.memory().read(at, &mut answer)?;
            (*host, *domain) = host_and_domain(&answer);
        }
        Ok(())
    }

    /// All threads of a process must be in the same ones.
    fn check_threads(&self, process: &StoppedProcess) -> Result<()> {
        let Some((leader, others)) = process.threads.split_first() else { return Ok(()) };
        if others.is_empty() {
            return Ok(());
        }
        let of = |tid: i32| OF_THREADS.map(|file| name_of(tid, file));
        let of_leader = of(leader.tid());
        match others.iter().all(|thread| of(thread.tid()) == of_leader) {
            true => Ok(()),
            false => Err(refuse("has threads in different namespaces".to_owned())),
        }
    }
}

/// A namespace of a process as the kernel names it; `None`: there are none of this kind, or it does not tell.
fn name_of(pid: i32, file: &str) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/{pid}/ns/{file}")).ok()?;
    Some(link.to_str()?.to_owned())
}

/// The text of mountinfo, as a tree.
fn tree(text: &str) -> Result<Mounts> {
    Mounts::parse(text).ok_or_else(|| EngineError::odd("mountinfo", text))
}

fn refuse(what: String) -> EngineError {
    Refusal::new(what, WAY_OUT).into()
}
