//! Process 1 of an instance in a cluster while the instance lives: it reaps, serves one agent after the
//! other, and freezes everything when the lease has run out with no agent there.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use protocol::agent::ExitKind;

use super::super::dump::find_stand_ins;
use super::super::error::{EngineError, Result};
use super::super::freeze::{
    FrozenJob, StoppedProcess, freeze, keep_ends, settle_lingering, take_ends,
};
use super::super::graph::{OuterEnd, Pid};
use super::super::late::{self, Connecting, Late};
use super::super::proc::Members;
use super::super::restore::Standing;
use super::super::sys::reap::{Reaped, exit_kind, reap_any};
use super::bring_back::Begun;
use super::channel::Channel;
use super::instance::{InstanceOrder, Instruction, Introduction, Keepsake};
use super::lease::Lease;
use super::world::kill_all;
use super::{Report, init_socket};

/// How long stopping all threads may take.
const FREEZE_LIMIT: Duration = Duration::from_secs(2);
/// Pause before a freeze that failed is tried again: an agent that was killed may not have let go yet.
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// Failures of which nobody needs to hear.
const PASSING_TRIES: u32 = 10;
/// How often threads that would not stop are looked at.
const SETTLE_STEP: Duration = Duration::from_millis(5);
/// How long the rest of the job may take to die with its first process, before its end is told.
const DYING: Duration = Duration::from_millis(200);
/// Lines kept for the next agent.
const MOST_WARNINGS: usize = 100;
/// How often the folder of an agent that has gone is looked for, once all is over.
const LOOK_FOR_FOLDER: Duration = Duration::from_secs(5);

/// Why everything stands still.
enum Hold {
    /// It was restored and has never run.
    Fresh(Standing),
    /// The lease had run out, or an agent died with its hands in the job.
    Frozen {
        /// Dropping it lets everything run.
        _job: FrozenJob,
    },
}

/// What an instance's init knows.
pub struct InstanceInit {
    order: InstanceOrder,
    keepsake: Keepsake,
    root: Option<Pid>,
    ended: Option<ExitKind>,
    empty: bool,
    /// Copies of what the agent was given.
    kept: Vec<(OuterEnd, OwnedFd)>,
    /// Answers calls for connections that are made after a move.
    late: Option<Late>,
    /// Connections that are to be asked for before it runs.
    connecting: Vec<Connecting>,
    agent: Option<Channel>,
    listener: UnixListener,
    lease: Lease,
    hold: Option<Hold>,
    touching: bool,
    touched: bool,
    warnings: Vec<String>,
    /// No freeze is tried before.
    next_try: Option<Instant>,
    /// Freezes that have failed since the agent left.
    tries: u32,
    children: SignalFd,
}

impl InstanceInit {
    /// Of an instance that is there. `agent` started it.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn new(
        order: InstanceOrder,
        keepsake: Keepsake,
        begun: Begun,
        late: Option<Late>,
        agent: Channel,
        listener: UnixListener,
        lease: Lease,
    ) -> Result<Self> {
        let mut children = SigSet::empty();
        children.add(Signal::SIGCHLD);
        let failed = |errno| EngineError::system("signalfd", "SIGCHLD", errno);
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&children), None).map_err(failed)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let children = SignalFd::with_flags(&children, flags).map_err(failed)?;
        keep_ends();
        let streams = begun.console.into_iter().map(|(role, fd)| (OuterEnd::Stream(role), fd));
        Ok(Self {
            order,
            keepsake,
            root: begun.root,
            ended: None,
            empty: false,
            kept: streams.chain(begun.outer).collect(),
            late,
            connecting: begun.connecting,
            agent: Some(agent),
            listener,
            lease,
            hold: begun.standing.map(Hold::Fresh),
            touching: false,
            touched: false,
            warnings: Vec::new(),
            next_try: None,
            tries: 0,
            children,
        })
    }

    /// Serves until it is told to end, or until an agent leaves that has never let the instance run.
    ///
    /// # Errors
    /// Failed system calls.
    pub fn serve(mut self) -> Result<()> {
        if self.hold.is_none() {
            self.ask();
        }
        let served = self.run();
        // Before anything is let go by being dropped. The rest is killed when this process ends.
        kill_all();
        let _ = std::fs::remove_file(&self.order.socket);
        served
    }

    fn run(&mut self) -> Result<()> {
        loop {
            self.reap()?;
            let lingering = settle_lingering();
            self.keep_the_lease()?;
            if self.is_forgotten()? {
                return Ok(());
            }
            if self.wait(lingering)? == Next::End {
                return Ok(());
            }
        }
    }

    fn is_over(&self) -> bool {
        self.empty || (self.order.root_instance && self.ended.is_some())
    }

    /// Whether all is over, and nobody has come for it as long as the lease was.
    fn is_left(&self) -> Result<bool> {
        Ok(self.agent.is_none() && self.is_over() && self.lease.is_over()?)
    }

    /// Whether nobody asks for what is over any more. An agent that comes again wants to know how it has ended, as long as it
    /// has the folder of before.
    fn is_forgotten(&self) -> Result<bool> {
        Ok(self.is_left()? && !self.order.socket.exists())
    }

    // --- what happens ---

    fn wait(&mut self, lingering: bool) -> Result<Next> {
        let other = match &self.agent {
            Some(agent) => agent.socket().as_fd(),
            None => self.listener.as_fd(),
        };
        let mut polled = vec![
            PollFd::new(self.children.as_fd(), PollFlags::POLLIN),
            PollFd::new(other, PollFlags::POLLIN),
        ];
        let news = self.late.as_ref().map(|late| {
            polled.push(PollFd::new(late.news().as_fd(), PollFlags::POLLIN));
            polled.len() - 1
        });
        let is_left = self.is_left()?;
        if self.agent.is_none() && self.hold.is_none() && self.next_try.is_none() && !is_left {
            polled.push(PollFd::new(self.lease.timer(), PollFlags::POLLIN));
        }
        let limit = if lingering { Some(SETTLE_STEP) } else { None };
        let until_try = self.next_try.map(|at| at.saturating_duration_since(Instant::now()));
        let until_look = is_left.then_some(LOOK_FOR_FOLDER);
        let limit = [limit, until_try, until_look].into_iter().flatten().min();
        let limit = limit.map_or(PollTimeout::NONE, |limit| {
            // Rounded up: a limit of less than a millisecond must not become a busy loop.
            PollTimeout::try_from(limit + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut polled, limit) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(EngineError::system("poll", "the instance", errno)),
        }
        let has_come = |at: usize| polled[at].revents().is_some_and(|events| !events.is_empty());
        let (called, news) = (has_come(1), news.is_some_and(has_come));
        if news {
            self.report_listeners();
        }
        while let Ok(Some(_)) = self.children.read_signal() {}
        match (called, self.agent.is_some()) {
            (false, _) => Ok(Next::GoOn),
            (true, true) => self.listen(),
            (true, false) => {
                self.let_in();
                Ok(Next::GoOn)
            }
        }
    }

    fn listen(&mut self) -> Result<Next> {
        let Some(agent) = &self.agent else { return Ok(Next::GoOn) };
        let Ok((instruction, _)) = agent.receive::<Instruction>() else {
            return Ok(self.left_alone());
        };
        match instruction {
            Instruction::Go => {
                self.go()?;
                self.report(&Report::Running);
            }
            Instruction::Lease { until_ns } => self.lease.renew(until_ns)?,
            Instruction::Touching(touching) => self.touching = touching,
            Instruction::Addresses(addresses) => {
                if let Some(late) = &self.late {
                    late.set_addresses(addresses);
                }
            }
            Instruction::Names => {
                let (sockets, unsettled) =
                    self.late.as_ref().map_or((Vec::new(), false), Late::names);
                self.report(&Report::Names { sockets, unsettled });
            }
            Instruction::Close { end } => self.kept.retain(|(known, _)| *known != end),
            Instruction::HandOver => {
                self.touching = false;
                return Ok(self.left_alone());
            }
            Instruction::Kill => return Ok(Next::End),
        }
        Ok(Next::GoOn)
    }

    /// The agent has gone.
    fn left_alone(&mut self) -> Next {
        self.agent = None;
        self.tries = 0;
        if matches!(self.hold, Some(Hold::Fresh(_))) {
            // Nobody knows of it but the agent that is gone, and it has never run.
            return Next::End;
        }
        if std::mem::take(&mut self.touching) {
            self.touched = true;
        }
        Next::GoOn
    }

    fn let_in(&mut self) {
        let introduced = init_socket::accept(&self.listener).and_then(|socket| {
            let agent = Channel::new(socket);
            self.introduce(&agent).map_err(io::Error::other)?;
            Ok(agent)
        });
        // Whoever was not let in may come again.
        if let Ok(agent) = introduced {
            self.agent = Some(agent);
            self.next_try = None;
            self.warnings.clear();
        }
    }

    fn introduce(&self, agent: &Channel) -> std::result::Result<(), super::ChannelError> {
        let mut console = Vec::new();
        let mut streams = Vec::new();
        let mut outer = Vec::new();
        for (end, fd) in &self.kept {
            let copy = fd.try_clone().map_err(|error| {
                nix::errno::Errno::from_raw(error.raw_os_error().unwrap_or(libc::EMFILE))
            })?;
            match end {
                OuterEnd::Stream(role) => {
                    console.push(*role);
                    streams.push(copy);
                }
                OuterEnd::Relay(_) => outer.push((end.clone(), copy)),
            }
        }
        let introduction = Introduction {
            identity: self.order.identity.clone(),
            root: self.root,
            root_instance: self.order.root_instance,
            console,
            outer: outer.len() as u32,
            held: self.hold.is_some(),
            lease_until_ns: self.lease.end(),
            touched: self.touched,
            ended: self.ended,
            empty: self.empty,
            listeners: self.late.as_ref().map_or(Vec::new(), Late::listeners),
            keepsake: self.keepsake.clone(),
            warnings: self.warnings.clone(),
        };
        agent.send(&Report::Introduction(Box::new(introduction)), &streams)?;
        for (end, fd) in outer {
            agent.send(&Report::Outer { end }, &[fd])?;
        }
        Ok(())
    }

    /// An agent that does not hear it has gone: that shows at the next look at its socket.
    fn report(&self, report: &Report) {
        if let Some(agent) = &self.agent {
            let _ = agent.send(report, &[]);
        }
    }

    fn report_listeners(&self) {
        if let Some(late) = &self.late {
            self.report(&Report::Listens(late.listeners()));
        }
    }

    fn warn(&mut self, line: String) {
        if self.warnings.len() < MOST_WARNINGS && !self.warnings.contains(&line) {
            self.warnings.push(line);
        }
    }

    // --- standing still ---

    fn go(&mut self) -> Result<()> {
        self.touched = false;
        match self.hold.take() {
            Some(Hold::Fresh(standing)) => {
                self.ask();
                standing.go().map(drop)
            }
            // Dropping lets them go.
            Some(Hold::Frozen { .. }) | None => Ok(()),
        }
    }

    /// Connections that were being made at the checkpoint.
    fn ask(&mut self) {
        let sockets = std::mem::take(&mut self.connecting);
        let failed = match &self.late {
            Some(late) => late.ask(sockets),
            None => late::ask_all(sockets),
        };
        if failed > 0 {
            self.warn(format!(
                "connections that were being made at the checkpoint and that this machine's network can't ask for: {failed}"
            ));
        }
    }

    /// Freezes everything where there is nobody who may let it run.
    fn keep_the_lease(&mut self) -> Result<()> {
        if self.agent.is_some() || self.hold.is_some() || self.is_over() {
            self.next_try = None;
            return Ok(());
        }
        if self.next_try.is_some_and(|at| Instant::now() < at) {
            return Ok(());
        }
        if !self.touched && !self.lease.is_over()? {
            return Ok(());
        }
        let own = Members::Below(std::process::id() as i32);
        let stand_ins = find_stand_ins(&own, &[]);
        match stand_ins.and_then(|(found, _)| freeze(&own, found, FREEZE_LIMIT)) {
            Ok(frozen) => {
                // They must not run on when this process is killed.
                frozen.processes.iter().for_each(StoppedProcess::die_with_tracer);
                self.hold = Some(Hold::Frozen { _job: frozen });
                self.next_try = None;
            }
            Err(error) => {
                self.tries += 1;
                if self.tries > PASSING_TRIES {
                    self.warn(format!("the job is not held without an agent: {error}"));
                }
                self.next_try = Some(Instant::now() + TRY_AGAIN);
            }
        }
        Ok(())
    }

    // --- ends ---

    fn reap(&mut self) -> Result<()> {
        for (pid, status) in take_ends() {
            if let Some(kind) = exit_kind(status) {
                self.gone(pid, kind);
            }
        }
        loop {
            match reap_any().map_err(|errno| EngineError::system("wait", "the instance", errno))? {
                Reaped::Ended(pid, kind) => self.gone(pid, kind),
                Reaped::Stopped => {}
                Reaped::Nothing => return Ok(()),
                Reaped::NoChildren => {
                    self.nobody_left();
                    return Ok(());
                }
            }
        }
    }

    fn gone(&mut self, pid: i32, kind: ExitKind) {
        if self.root != Some(pid) {
            return;
        }
        self.root = None;
        self.ended = Some(kind);
        if self.order.root_instance {
            kill_all();
            let begun = Instant::now();
            // Snapshot processes of a checkpoint stay until the agent lets go of them.
            while begun.elapsed() < DYING && !matches!(reap_any(), Ok(Reaped::NoChildren) | Err(_))
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.hold = None;
            self.report(&Report::Ended(kind));
        } else {
            self.report(&Report::RootEnded(kind));
        }
    }

    fn nobody_left(&mut self) {
        if self.order.root_instance || self.empty {
            return;
        }
        self.empty = true;
        self.hold = None;
        self.report(&Report::Empty);
    }
}

/// What to do after something has happened.
#[derive(PartialEq, Eq)]
enum Next {
    GoOn,
    End,
}
