//! Open files and folders of /proc that show a process or a thread (proc_pid(5)). They are opened once the processes are there:
//! until then each is a placeholder.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::statfs::{FsType, fstatfs};
use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::Pid;
use super::super::sys::procfs_ended;
use super::nsfile;
use super::paths::{leads_to_it, without_mark};
use super::{DumpContext, Fate, FdInfo, ObjectKind, Probe, RestoreContext, Saved, reopen};

/// Magic number of procfs (include/uapi/linux/magic.h).
const PROCFS: u32 = 0x9fa0;
/// Where it is mounted.
const MOUNTED: &str = "/proc/";
/// The longest path below a process's folder, bytes.
const LONGEST: usize = 4000;
/// Folders whose entries come and go while the process lives.
const OF_DESCRIPTORS: [&str; 3] = ["fd/", "fdinfo/", "map_files/"];
/// Links that lead out of /proc.
const LINKS: [&str; 3] = ["cwd", "exe", "root"];
/// Folders of such.
const OF_LINKS: [&str; 2] = ["fd/", "map_files/"];
/// The first process of a PID namespace, which every machine has.
const FIRST: Pid = 1;

/// A file of /proc that shows a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFile {
    /// The process; none: it, or the thread, has ended, and the file shows nothing any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<Pid>,
    /// The thread, where it is below task/.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<Pid>,
    /// Its path below the folder of the process, or of the thread; empty: the folder itself.
    pub name: String,
    /// File offset, bytes; of a folder where reading goes on.
    pub offset: u64,
}

/// A path below /proc taken apart: the process, the thread, what is below.
fn take_apart(link: &str) -> Option<(Pid, Option<Pid>, &str)> {
    let split = |path: &'_ str| -> Option<(Pid, usize)> {
        let first = path.split('/').next()?;
        Some((first.parse().ok().filter(|number| *number > 0)?, first.len()))
    };
    let below = link.strip_prefix(MOUNTED)?;
    let (pid, length) = split(below)?;
    let rest = below.get(length..)?.trim_start_matches('/');
    match rest.strip_prefix("task/").and_then(|tasks| Some((tasks, split(tasks)?))) {
        Some((tasks, (tid, length))) => {
            Some((pid, Some(tid), tasks.get(length..)?.trim_start_matches('/')))
        }
        None => Some((pid, None, rest)),
    }
}

/// What comes behind the place of a link that leads out of /proc, to whatever its process has there: its own name and more.
fn of_link(name: &str) -> Option<&str> {
    let in_folder = OF_LINKS.iter().find_map(|folder| name.strip_prefix(folder));
    let first = name.split('/').next().unwrap_or_default();
    in_folder.or_else(|| LINKS.contains(&first).then_some(name))
}

/// Refuses a file of a process in another /proc than the job's, which has other numbers for processes.
///
/// # Errors
/// The refusal.
pub fn check_device(probe: &Probe, context: &DumpContext) -> Result<()> {
    let Some(home) = context.proc_device else { return Ok(()) };
    let is_in_proc =
        || fstatfs(&probe.copy).is_ok_and(|found| found.filesystem_type() == FsType(PROCFS as _));
    if probe.inode().0 == home || take_apart(&probe.link).is_none() || !is_in_proc() {
        return Ok(());
    }
    let what = format!("{} in a /proc of its own, in a job with PID namespaces", probe.link);
    Err(Refusal::new(what, "close it while checkpoints are taken").into())
}

impl ProcessFile {
    /// Its path, with these numbers.
    ///
    /// # Errors
    /// [`EngineError::Damaged`] for one that leads elsewhere.
    pub fn path(&self, pid: Pid, thread: Option<Pid>) -> Result<String> {
        self.check()?;
        let mut path = format!("{MOUNTED}{pid}");
        if let Some(thread) = thread {
            path.push_str(&format!("/task/{thread}"));
        }
        if !self.name.is_empty() {
            path.push('/');
            path.push_str(&self.name);
        }
        Ok(path)
    }

    /// Refuses what no dump writes.
    fn check(&self) -> Result<()> {
        let odd = |part: &str| part.is_empty() || part == "." || part == "..";
        let parts = self.name.split('/').any(odd) && !self.name.is_empty();
        // Threads have a field of their own, and nothing is below a link.
        let through = of_link(&self.name).is_some_and(|below| below.contains('/'))
            || self.name.starts_with("task/");
        if parts || through || self.name.len() > LONGEST || self.name.contains('\0') {
            return Err(EngineError::Damaged(format!("the file {:?} of a process", self.name)));
        }
        Ok(())
    }

    /// Opens that of a process that has ended.
    ///
    /// # Errors
    /// [`EngineError::Damaged`]; [`EngineError::Unfit`] where this kernel has no such file.
    pub fn open_of_ended(&self, flags: i32, context: &RestoreContext<'_>) -> Result<OwnedFd> {
        self.check()?;
        let user = context.user.as_ref().map(|user| (user.uid, user.gid, user.groups.as_slice()));
        let flags = self.wanted(flags);
        procfs_ended::open(&self.name, self.thread.is_some(), flags, user)?
            .map_err(|errno| self.unfit(errno))
    }

    /// Whether it is a namespace.
    pub fn is_namespace(&self) -> bool {
        nsfile::is_file(&self.name)
    }

    /// The flags that it is opened with again.
    pub fn wanted(&self, flags: i32) -> i32 {
        // Nobody has what such a link leads to open as a file of /proc: only the link itself (O_PATH).
        let is_link = of_link(&self.name).is_some();
        let kept = match self.is_namespace() {
            true => 0,
            false if is_link => libc::O_NOFOLLOW,
            false => flags & libc::O_NOFOLLOW,
        };
        // F_GETFL tells of it, and no call takes it away again.
        reopen::wanted(flags) & !libc::O_NOFOLLOW | kept
    }

    /// Why it is not there.
    pub fn unfit(&self, errno: Errno) -> EngineError {
        let of = match self.pid {
            Some(pid) => format!("process {pid}"),
            None => "a process that has ended".to_owned(),
        };
        EngineError::Unfit {
            what: format!(
                "{:?} of {of} cannot be opened in /proc here ({})",
                self.name,
                errno.desc()
            ),
            way_out: "restart on a machine whose kernel has it, with the rights that the job had"
                .to_owned(),
        }
    }

    /// Puts the offset back. Files of memory have offsets above those of lseek(2)'s answers (FMODE_UNSIGNED_OFFSET).
    ///
    /// # Errors
    /// One that it does not take.
    pub fn seek(&self, fd: impl AsFd) -> Result<()> {
        let fd = fd.as_fd();
        // SAFETY: plain numbers, and a descriptor that is borrowed for the call.
        unsafe { libc::lseek(fd.as_raw_fd(), self.offset as libc::off_t, libc::SEEK_SET) };
        let found = FdInfo::of_own(fd)?.position()?;
        if found != self.offset && self.offset != 0 {
            return Err(EngineError::system("lseek", &self.name, Errno::EINVAL));
        }
        Ok(())
    }
}

impl ObjectKind for ProcessFile {
    fn recognise(probe: &Probe) -> bool {
        let is_of_process = || {
            take_apart(&probe.link).is_some_and(|(pid, ..)| pid != FIRST)
                && fstatfs(&probe.copy)
                    .is_ok_and(|found| found.filesystem_type() == FsType(PROCFS as _))
        };
        is_of_process() || nsfile::is_one(probe)
    }

    fn dump(probe: &Probe, context: &mut DumpContext) -> Result<Self> {
        if nsfile::is_one(probe) {
            let (pid, name) = nsfile::name_of(probe, context)?;
            return Ok(Self { pid: Some(pid), thread: None, name, offset: 0 });
        }
        let Some((pid, thread, name)) = take_apart(without_mark(&probe.link)) else {
            return Err(probe.unknown().into());
        };
        let mut file =
            Self { pid: None, thread, name: name.to_owned(), offset: probe.info.position()? };
        let passing = |what: &str| {
            let what = format!("{} {what}", probe.link);
            Err(Refusal::passing(what, "close it while checkpoints are taken").into())
        };
        if !leads_to_it(probe) {
            // Its process or thread is gone: whoever has that number is another one. The mark of what is deleted shows at folders
            // of processes only (fs/proc/base.c, proc_flush_pid()).
            return match OF_DESCRIPTORS.iter().any(|folder| name.starts_with(folder)) {
                true => passing("is not there any more, but for whoever has it open"),
                false => Ok(file),
            };
        }
        let known = |number: Pid| context.pids.values().any(|known| *known == number);
        if !known(pid) || !thread.is_none_or(known) {
            return passing("shows a process that is not one of the job's");
        }
        file.pid = Some(pid);
        Ok(file)
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        all.iter().try_for_each(|saved| context.await_process(saved.id))
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Undivided
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::try_dump;
    use super::*;

    #[test]
    fn paths_are_taken_apart() {
        assert_eq!(take_apart("/proc/12/maps"), Some((12, None, "maps")));
        assert_eq!(take_apart("/proc/12"), Some((12, None, "")));
        assert_eq!(take_apart("/proc/12/task"), Some((12, None, "task")));
        assert_eq!(take_apart("/proc/12/task/13"), Some((12, Some(13), "")));
        assert_eq!(take_apart("/proc/12/task/13/net/dev"), Some((12, Some(13), "net/dev")));
        for other in ["/proc/meminfo", "/proc/0/maps", "/proc/-1", "/proc", "/tmp/12/maps"] {
            assert_eq!(take_apart(other), None, "{other}");
        }
    }

    fn named(name: &str) -> ProcessFile {
        ProcessFile { pid: Some(12), thread: None, name: name.to_owned(), offset: 0 }
    }

    #[test]
    fn paths_stay_below_the_process() {
        assert_eq!(named("net/dev").path(7, None).unwrap(), "/proc/7/net/dev");
        assert_eq!(named("").path(7, Some(8)).unwrap(), "/proc/7/task/8");
        let long = "a/".repeat(3000) + "a";
        for through in
            ["root/etc/passwd", "cwd/a", "exe/a", "fd/7/a", "map_files/1-2/a", "task/8/exe"]
        {
            assert!(named(through).path(7, None).is_err(), "{through}");
        }
        for bad in ["../7/maps", "a/../../x", "/etc/passwd", "a//b", "a\0b", "./a", "a/", &long] {
            assert!(named(bad).path(7, None).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn links_that_lead_out_of_proc_are_not_followed() {
        for link in ["exe", "cwd", "root", "fd/7", "map_files/1000-2000"] {
            assert!(named(link).path(7, None).is_ok(), "{link}");
            assert_ne!(named(link).wanted(libc::O_RDWR) & libc::O_NOFOLLOW, 0, "{link}");
        }
        for other in ["", "fd", "fdinfo/7", "map_files", "ns/net", "rooted", "task"] {
            assert_eq!(named(other).wanted(libc::O_RDWR) & libc::O_NOFOLLOW, 0, "{other}");
        }
    }

    #[test]
    fn an_image_gets_no_descriptor_of_who_restores() {
        let own = std::fs::File::open("/etc/passwd").unwrap();
        let name = format!("fd/{}", own.as_raw_fd());
        let file = ProcessFile { pid: None, ..named(&name) };
        let graph = super::super::testing::dump(&[]).graph();
        let kept = super::super::testing::Kept(Vec::new());
        let context = RestoreContext::new(&graph, &kept, false, 512);
        assert!(file.open_of_ended(libc::O_RDONLY, &context).is_err());
    }

    #[test]
    fn a_process_outside_of_the_job_is_refused_for_the_moment() {
        let parent = std::os::unix::process::parent_id();
        let of_parent = std::fs::File::open(format!("/proc/{parent}/stat")).unwrap();
        let refused = try_dump(&[of_parent.as_fd()], DumpContext::default()).map(drop);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("not one of the job's"), "{refused}");
    }

    #[test]
    fn folders_and_files_of_the_own_process_are_known() {
        for path in ["/proc/self/fd", "/proc/self/maps", "/proc/thread-self/stat", "/proc/self"] {
            let open = std::fs::File::open(path).unwrap();
            let probe = super::super::testing::probe(&open);
            assert!(ProcessFile::recognise(&probe), "{}", probe.link);
        }
    }

    #[test]
    fn offsets_of_memory_are_put_back() {
        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        for offset in [0, 4096, 0xffff_ffff_ff60_0000] {
            let file = ProcessFile { offset, ..named("mem") };
            file.seek(&memory).unwrap();
            assert_eq!(FdInfo::of_own(memory.as_fd()).unwrap().position().unwrap(), offset);
        }
    }

    #[test]
    fn the_file_of_one_that_has_ended_shows_nothing() {
        let file = ProcessFile { pid: None, ..named("status") };
        let graph = super::super::testing::dump(&[]).graph();
        let kept = super::super::testing::Kept(Vec::new());
        let context = RestoreContext::new(&graph, &kept, false, 512);
        let open = file.open_of_ended(libc::O_RDONLY, &context).unwrap();
        let error = nix::unistd::read(&open, &mut [0; 16]).unwrap_err();
        assert_eq!(error, Errno::ESRCH);
    }
}
