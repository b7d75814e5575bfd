//! The jobs whose images are changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ckptd_tests::account::Account;
use ckptd_tests::job::{Failure, Job};
use ckptd_tests::workspace::Workspace;
use ckptd_tests::{build, network, programs};

/// Programs with many kinds of kernel objects, several processes, and several sessions.
const PROGRAMS: &[&str] = &[
    "aioevents",
    "anon",
    "boundmount",
    "clocksforchildren",
    "container",
    "controlterminal",
    "deleteddirectory",
    "deletedfile",
    "devices",
    "directory",
    "endedleader",
    "epoll",
    "eventfd",
    "fanotify",
    "fifo",
    "fileattributes",
    "fileoffset",
    "folderattributes",
    "futex",
    "hardlinks",
    "hugefile",
    "hugepages",
    "hugeprivate",
    "hugesegment",
    "hugeshared",
    "icmpsocket",
    "inotify",
    "inplacefile",
    "iosignal",
    "ipcnumbers",
    "itimer",
    "lease",
    "limits",
    "localdescriptors",
    "lockedlater",
    "memfdseals",
    "memorysharers",
    "mptcplisten",
    "mqueue",
    "multicastqueue",
    "namespacefd",
    "nestedusers",
    "netlink",
    "networksockets",
    "opath",
    "opathgone",
    "orphan",
    "ownnamespaces",
    "pidfd",
    "pidnamespaceuser",
    "pipe",
    "pipeslots",
    "pivotroot",
    "pkeys",
    "posixtimer",
    "posixtimerthreads",
    "prctls",
    "processattr",
    "procfiles",
    "pty",
    "ptyexclusive",
    "ptyflow",
    "recordlocks",
    "removedcwd",
    "robust",
    "schedattr",
    "scmrights",
    "sealedmemory",
    "session",
    "sharedanon",
    "sharedcwd",
    "sharedfile",
    "sharedfiles",
    "signalepoll",
    "sigpending",
    "sysvqueue",
    "sysvsem",
    "sysvshm",
    "tcp4",
    "tcpbacklog",
    "tcplisten",
    "tcporphan",
    "tcppending",
    "tcprefused",
    "tcpshutfull",
    "temporaryfolder",
    "threaddirectories",
    "threads",
    "timerfd",
    "tmpfile",
    "tmpfsmount",
    "tree",
    "udplite",
    "udpmulticast",
    "udpsender",
    "unixabstract",
    "unixempty",
    "unixpair",
    "unixpath",
    "unixpeer",
    "uringevent",
    "uringfile",
    "uringnop",
    "uringpolled",
    "uringshared",
    "uringsingle",
    "userfault",
    "usernamespace",
    "zombie",
];
/// How long a program may take until it is ready.
const LIMIT: Duration = Duration::from_secs(30);

/// A job that was checkpointed once and killed.
pub struct Subject {
    /// The program's name, and the job's.
    pub name: String,
    /// Everything of it.
    pub home: PathBuf,
}

impl Subject {
    /// All below a test folder, by name.
    pub fn all(root: &Path) -> Result<Vec<Self>, Failure> {
        let failed = |e: std::io::Error| Failure(format!("{}: {e}", root.display()));
        let mut found = Vec::new();
        for entry in fs::read_dir(root.join("jobs")).map_err(failed)? {
            let home = entry.map_err(failed)?.path();
            let name = home.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.push(Self { name, home });
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    /// The job's folder.
    pub fn folder(&self) -> Result<PathBuf, Failure> {
        let state = self.home.join("state");
        let entries = fs::read_dir(&state).into_iter().flatten().flatten();
        let mut jobs = entries.map(|e| e.path()).filter(|path| path.join("job.json").exists());
        jobs.next().ok_or_else(|| Failure(format!("{} has no job", state.display())))
    }

    /// The folder of its checkpoint, which is the first one.
    pub fn checkpoint(&self) -> Result<PathBuf, Failure> {
        Ok(self.folder()?.join("checkpoints/1"))
    }

    /// The program's own folder.
    pub fn work(&self) -> PathBuf {
        self.home.join("w")
    }
}

/// Makes them. A program that skips itself on this machine is left out.
pub fn make(workspace: &Workspace, names: &[String]) -> Result<Vec<Subject>, Failure> {
    let failed = |e: &dyn std::fmt::Display| Failure(format!("failed to make images: {e}"));
    let sources = workspace.sources();
    let known = programs::list(&sources).map_err(|e| failed(&e))?;
    let wanted = |name: &str| match names {
        [] => PROGRAMS.contains(&name),
        some => some.iter().any(|wanted| wanted == name),
    };
    let jobs = workspace.root.path().join("jobs");
    fs::create_dir(&jobs).map_err(|e| failed(&e))?;
    for program in known.iter().filter(|program| !program.refused && wanted(&program.name)) {
        let executable = build::conformance(&program.source, &sources, &workspace.programs)
            .map_err(|e| failed(&e))?;
        let home = jobs.join(&program.name);
        let made = network::alone(|| checkpointed(workspace, &program.name, &executable, &home))?;
        if !made {
            fs::remove_dir_all(&home).map_err(|e| failed(&e))?;
        }
    }
    Subject::all(workspace.root.path())
}

/// Runs a program until it is ready, checkpoints it, and kills it.
fn checkpointed(
    workspace: &Workspace,
    name: &str,
    executable: &Path,
    home: &Path,
) -> Result<bool, Failure> {
    let mut job = Job::new(&workspace.ckptd, Account::User, home, name)?;
    let work = home.join("w");
    fs::create_dir(&work)
        .and_then(|()| Account::User.give(&work))
        .and_then(|()| Account::User.give(home))
        .map_err(|e| Failure(format!("failed to make {}: {e}", work.display())))?;
    job.run(&[&executable.display().to_string(), &work.display().to_string()])?;
    let deadline = Instant::now() + LIMIT;
    while !work.join("ready").exists() {
        if work.join("skipped").exists() {
            return Ok(false);
        }
        if job.ended()?.is_some() || Instant::now() >= deadline {
            return Err(Failure(format!("{name} is never ready\n{}", job.dump())));
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    job.must_checkpoint()?;
    job.kill()?;
    Ok(true)
}
