//! The pager: the process that fills the memory of a restored job while that runs.
//!
//! It is forked by the init's link, in the machine's namespaces: the job neither sees nor reaches it, and it outlives the job's
//! init, whose end closes the other copies of its descriptors before the kernel has killed the job. It ends when nothing is
//! missing any more, or nobody is left.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::Resource;

use super::super::error::{EngineError, Result};
use super::super::fault;
use super::super::graph::Pid;
use super::super::job_init::Channel;
use super::super::restore::Image;
use super::super::sys::clone3::{Shared as SharedParts, Side, SingleThreaded, fork_any};
use super::super::sys::page::page_size;
use super::super::sys::userfault::MissingPages;
use super::super::sys::{close_range, dup3, limits, pidfd, prctl, signals};
use super::super::tracking::Ranges;
use super::context::{Context, Windows};
use super::table::Table;
use super::work::Shared;
use super::{FromPager, ToPager};

const NAME: &CStr = c"ckptd-pager";
/// Its socket, as it numbers it.
const SOCKET: i32 = 3;
/// Numbers of children's memory begin here: below are those that the init has given.
const FIRST_CHILD: u32 = 1 << 31;
/// How often it tells how much is filled, and looks whether anything is done.
const REPORT: Duration = Duration::from_millis(25);
/// How long it waits for something to be told before it looks by itself.
const LOOK: Duration = Duration::from_millis(10);
/// How long after the init's end the job's processes may live on.
const LAST_BREATH: Duration = Duration::from_secs(60);

/// A pager, as the one that has forked it has it.
#[derive(Debug)]
pub struct Pager {
    /// For the init.
    pub socket: UnixStream,
    /// Its number.
    pub number: Pid,
}

/// Forks one.
///
/// # Errors
/// Failed system calls.
pub fn start() -> Result<Pager> {
    let failed = |error| EngineError::system("fork", "the process that fills memory", error);
    let (socket, theirs) = UnixStream::pair().map_err(failed)?;
    let side =
        fork_any(&SingleThreaded::check().map_err(failed)?, libc::SIGCHLD, SharedParts::default());
    match side.map_err(failed)? {
        Side::Parent(number) => Ok(Pager { socket, number }),
        Side::Child => {
            let status = i32::from(live(theirs).is_err());
            // SAFETY: ends this process at once, without running anything of its parent's.
            unsafe { libc::_exit(status) }
        }
    }
}

/// The pager's life.
fn live(socket: UnixStream) -> Result<()> {
    let channel = Channel::new(settle(socket)?);
    let mut pager = Own::new();
    let served = pager.serve(&channel);
    if let Err(error) = served {
        pager.shared.fail(error.to_string());
    }
    let Some(why) = pager.shared.failure.get().cloned() else { return Ok(()) };
    // First the reason: the init sees the ends of processes at once.
    let _ = channel.send(&FromPager::Failed(why.clone()), &[]);
    pager.kill();
    pager.wait_until_alone(&channel);
    Err(EngineError::Filling(why))
}

/// Keeps nothing of what the parent had but the socket.
fn settle(socket: UnixStream) -> Result<UnixStream> {
    let system = |call| move |errno| EngineError::system(call, "the pager", errno);
    prctl::set_pdeathsig(None).map_err(system("prctl"))?;
    // It is in nobody's session: no terminal's signal reaches it.
    nix::unistd::setsid().map_err(system("setsid"))?;
    signals::set_blocked(u64::MAX)
        .map_err(|error| EngineError::system("rt_sigprocmask", "the pager", error))?;
    let _ = prctl::set_name(NAME);
    // Without it the job would have to end.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    let null = std::fs::File::options().read(true).write(true).open("/dev/null");
    let null = null.map_err(|error| EngineError::system("open", "/dev/null", error))?;
    // SAFETY: takes over numbers of which this process, a fork, uses none from here on: what was theirs is the parent's.
    unsafe {
        for number in 0..SOCKET {
            libc::dup2(null.as_raw_fd(), number);
        }
        if socket.as_raw_fd() != SOCKET {
            dup3::dup3(socket.as_fd(), SOCKET, libc::O_CLOEXEC)
                .map_err(|error| EngineError::system("dup3", "the pager's socket", error))?;
        }
        std::mem::forget((socket, null));
        close_range::close(SOCKET as u32 + 1, u32::MAX)?;
    }
    if let Ok((_, hard)) = limits::own(Resource::RLIMIT_NOFILE) {
        let _ = limits::set_own(Resource::RLIMIT_NOFILE, hard, hard);
    }
    // SAFETY: it has just been put there.
    Ok(unsafe { UnixStream::from_raw_fd(SOCKET) })
}

/// What the pager's first thread has.
struct Own {
    shared: Arc<Shared>,
    contexts: Vec<Listed>,
    /// Each context that is not closed yet has a copy.
    open: Arc<()>,
    /// The job's processes.
    processes: Vec<OwnedFd>,
    next_child: u32,
    is_let_go: bool,
    is_init_gone: Option<Instant>,
    /// Bytes that were to be filled at first, and of which the init knows that they are.
    total: u64,
    told: u64,
}

/// A context that is listened to.
struct Listed {
    context: Arc<Context>,
    /// The init is asked to close its copy.
    is_done: bool,
}

impl Own {
    fn new() -> Self {
        Self {
            shared: Arc::default(),
            contexts: Vec::new(),
            open: Arc::default(),
            processes: Vec::new(),
            next_child: FIRST_CHILD,
            is_let_go: false,
            is_init_gone: None,
            total: 0,
            told: 0,
        }
    }

    /// Serves until nothing is missing any more, or nobody is left.
    fn serve(&mut self, channel: &Channel) -> Result<()> {
        let mut last = Instant::now();
        loop {
            if self.shared.is_failed.load(Ordering::Acquire) {
                return Ok(());
            }
            let (has_message, ready) = self.wait(channel)?;
            // Before what the init says: it is to know of a child before anything else happens.
            for index in ready {
                self.listen(index, channel)?;
            }
            if has_message && !self.hear(channel)? {
                self.is_init_gone = Some(Instant::now());
            }
            if last.elapsed() >= REPORT || has_message || self.is_init_gone.is_some() {
                last = Instant::now();
                self.sweep(channel);
            }
            let is_over = self.is_let_go || self.is_init_gone.is_some();
            // The last of them are closed by whichever thread has them still.
            if is_over && self.contexts.is_empty() && Arc::strong_count(&self.open) == 1 {
                let _ = channel.send(&FromPager::Filled, &[]);
                return Ok(());
            }
        }
    }

    /// Waits until somebody has something to tell: the init, and which contexts.
    fn wait(&self, channel: &Channel) -> Result<(bool, Vec<usize>)> {
        let listens = self.is_init_gone.is_none();
        let mut polled: Vec<PollFd<'_>> = Vec::with_capacity(self.contexts.len() + 1);
        let contexts = self.contexts.iter().map(|listed| listed.context.as_fd());
        polled.extend(contexts.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        if listens {
            polled.push(PollFd::new(channel.socket().as_fd(), PollFlags::POLLIN));
        }
        let limit = PollTimeout::try_from(LOOK).unwrap_or(PollTimeout::ZERO);
        match poll(&mut polled, limit) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(EngineError::system("poll", "the pager", errno)),
        }
        let is_ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        let has_message = listens && polled.pop().is_some_and(|fd| is_ready(&fd));
        let ready = polled.iter().enumerate().filter(|(_, fd)| is_ready(fd));
        Ok((has_message, ready.map(|(index, _)| index).collect()))
    }

    /// Takes what the kernel tells of a process's memory.
    fn listen(&mut self, index: usize, channel: &Channel) -> Result<()> {
        let Some(listed) = self.contexts.get(index) else { return Ok(()) };
        let parent = listed.context.clone();
        let news = parent.news()?;
        for (missing, table) in news.children {
            let id = self.next_child;
            self.next_child = self.next_child.checked_add(1).unwrap_or(FIRST_CHILD);
            let child = Arc::new(parent.child(id, missing, table));
            let failed = |error| EngineError::system("dup", "a userfaultfd", error);
            let copy = child.copy_of_descriptor().map_err(failed)?;
            // It may have ended.
            let _ = channel.send(&FromPager::Child { id }, &[copy]);
            self.total += child.bytes();
            self.add(child);
        }
        let mut work = self.shared.work();
        work.faults.extend(news.faults.into_iter().map(|address| (parent.clone(), address)));
        drop(work);
        self.shared.changed.notify_all();
        Ok(())
    }

    fn add(&mut self, context: Arc<Context>) {
        self.shared.work().contexts.push(context.clone());
        self.contexts.push(Listed { context, is_done: false });
    }

    /// Does what the init says. False: it has ended.
    fn hear(&mut self, channel: &Channel) -> Result<bool> {
        let Ok((told, descriptors)) = channel.receive::<ToPager>() else { return Ok(false) };
        match told {
            ToPager::Open { job_dir, checkpoint } => self.open(&job_dir, checkpoint)?,
            ToPager::Watch { id, pid, areas } => self.watch(id, pid, &areas, descriptors)?,
            ToPager::All => {
                // If the init has ended, that is heard.
                let _ = channel.send(&FromPager::Ready, &[]);
            }
            ToPager::Go => {
                self.is_let_go = true;
                let shared = self.shared.clone();
                start_thread("rest", move || {
                    fault::point("fill");
                    shared.work().is_let_go = true;
                    shared.changed.notify_all();
                })?;
            }
            ToPager::Closed { id } => self.drop_context(id),
        }
        Ok(true)
    }

    /// Opens the image, whose packs stay open from now on, and starts as many threads as there are cores.
    fn open(&mut self, job_dir: &Path, checkpoint: u64) -> Result<()> {
        if self.shared.image.set(Image::of(job_dir, checkpoint)?).is_err() {
            return Err(EngineError::odd("order", "a second image"));
        }
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..threads {
            let shared = self.shared.clone();
            start_thread("fill", move || shared.run())?;
        }
        Ok(())
    }

    fn watch(
        &mut self,
        id: u32,
        pid: Pid,
        areas: &[(u64, u64)],
        descriptors: Vec<OwnedFd>,
    ) -> Result<()> {
        let odd = || EngineError::odd("order", "descriptors or the image are missing");
        let mut descriptors = descriptors.into_iter();
        let (Some(missing), Some(process)) = (descriptors.next(), descriptors.next()) else {
            return Err(odd());
        };
        let image = self.shared.image.get().ok_or_else(odd)?;
        let process_image = image.read_processes(std::iter::once(pid))?.remove(&pid);
        let page = page_size();
        let all = process_image.ok_or_else(odd)?.pages;
        let mut table = Table::default();
        areas.iter().for_each(|(start, end)| table.watch(*start, *end));
        let ranges = Ranges::of(areas.to_vec());
        for window in &all {
            let waits = window.only(ranges.pages_from(window.address, page));
            waits.runs(page).into_iter().for_each(|(at, length)| table.add(at, at + length));
        }
        self.total += table.bytes();
        self.processes.push(process);
        let windows = Arc::new(Windows { all, page });
        let missing = MissingPages::copy_of(missing);
        let open = self.open.clone();
        self.add(Arc::new(Context::new(id, pid, missing, (windows, table), open)));
        Ok(())
    }

    /// The init has closed its copy: with this one the kernel ends its watch.
    fn drop_context(&mut self, id: u32) {
        let (gone, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.contexts).into_iter().partition(|one| one.context.id == id);
        self.contexts = left;
        gone.iter().for_each(|one| one.context.close());
        let mut work = self.shared.work();
        work.contexts.retain(|context| context.id != id);
        work.faults.retain(|(context, _)| context.id != id);
    }

    /// Looks what is done, and tells how much is filled.
    fn sweep(&mut self, channel: &Channel) {
        if let Some(since) = self.is_init_gone {
            self.forget_the_dead(since);
            return;
        }
        if !self.is_let_go {
            return;
        }
        for listed in self.contexts.iter_mut().filter(|listed| !listed.is_done) {
            listed.is_done = listed.context.is_done();
            if listed.is_done {
                let _ = channel.send(&FromPager::Done { id: listed.context.id }, &[]);
            }
        }
        let left: u64 = self.contexts.iter().map(|listed| listed.context.bytes()).sum();
        let bytes = self.total.saturating_sub(left);
        if bytes > self.told {
            self.told = bytes;
            let _ = channel.send(&FromPager::Progress { bytes }, &[]);
        }
    }

    /// Without the init the job's processes end, and those of which nothing is missing need nobody.
    fn forget_the_dead(&mut self, since: Instant) {
        let is_late = since.elapsed() > LAST_BREATH;
        let ended: Vec<u32> = self
            .contexts
            .iter()
            .map(|listed| &listed.context)
            .filter(|context| is_late || context.is_done() || !context.lives())
            .map(|context| context.id)
            .collect();
        ended.into_iter().for_each(|id| self.drop_context(id));
    }

    /// Kills the job's processes: none of them may see what is in place of its pages. Children are the init's to kill.
    fn kill(&self) {
        for process in &self.processes {
            // It may have ended.
            let _ = pidfd::kill(process.as_fd());
        }
    }

    /// Keeps all descriptors until nobody is left who could see zeros.
    fn wait_until_alone(&mut self, channel: &Channel) {
        while channel.receive::<ToPager>().is_ok() {}
        let since = Instant::now();
        while !self.contexts.is_empty() {
            self.forget_the_dead(since);
            std::thread::sleep(REPORT / 4);
        }
    }
}

fn start_thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    let started = std::thread::Builder::new().name(name.into()).spawn(run);
    started
        .map(drop)
        .map_err(|error| EngineError::system("clone", "a thread that fills memory", error))
}
