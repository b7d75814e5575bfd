//! The thread that answers.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use protocol::cluster::NodeName;
use protocol::cluster::addresses::AddressMap;
use protocol::cluster::agent::MovedListener;

use super::super::error::{EngineError, Result};
use super::Installed;
use super::address_map::Addresses;
use super::answer::{Answerer, Later, Verdict};
use super::connecting::Connecting;
use super::filter::Pass;
use super::names::{Name, NamedSocket, Names};
use super::notify::{Listener, Notification};

/// How often calls that wait are looked at: whose thread waits no more keeps a socket open.
const LOOK: Duration = Duration::from_millis(250);

/// What the thread and the rest of the init both know.
#[derive(Debug)]
pub struct Shared {
    state: Mutex<State>,
    /// Wakes the thread.
    wake: EventFd,
    /// Wakes the init.
    news: EventFd,
}

#[derive(Debug, Default)]
struct State {
    addresses: Arc<Addresses>,
    names: Names,
    listeners: Vec<MovedListener>,
    /// Connections that were accepted for processes which have not got them yet.
    unheard: usize,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is complete before the lock is given back.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address map; `None`: there is nothing to be done about any call.
    pub(super) fn busy_addresses(&self) -> Option<Arc<Addresses>> {
        let state = self.state();
        let busy = !state.addresses.is_quiet() || !state.names.is_empty();
        busy.then(|| state.addresses.clone())
    }

    pub(super) fn rename(&self, cookie: u64, change: impl FnOnce(&mut Name)) {
        change(self.state().names.of(cookie));
    }

    pub(super) fn forget_peer(&self, cookie: u64) {
        let mut state = self.state();
        if state.names.get(cookie).peer.is_some() {
            state.names.of(cookie).peer = None;
        }
    }

    pub(super) fn name(
        &self,
        cookie: u64,
        local: Option<std::net::SocketAddr>,
        peer: Option<std::net::SocketAddr>,
    ) -> Name {
        self.state().names.name(cookie, local, peer)
    }

    pub(super) fn announce(&self, listener: MovedListener) {
        let mut state = self.state();
        if !state.listeners.contains(&listener) {
            // One that is bound again has replaced the one before.
            state.listeners.retain(|known| known.logical != listener.logical);
            state.listeners.push(listener);
            drop(state);
            let _ = self.news.write(1);
        }
    }

    /// Adds a socket that has a port and does not listen yet. Others that are known by that port stay as long as they
    /// have theirs.
    pub(super) fn claim(&self, claim: MovedListener, is_bound: impl Fn(u16) -> bool) {
        let mut state = self.state();
        state
            .listeners
            .retain(|known| known.logical != claim.logical || is_bound(known.actual.port()));
        if !state.listeners.contains(&claim) {
            state.listeners.push(claim);
        }
        drop(state);
        let _ = self.news.write(1);
    }

    pub(super) fn withdraw(&self, listener: MovedListener) {
        let mut state = self.state();
        state.listeners.retain(|known| *known != listener);
        drop(state);
        let _ = self.news.write(1);
    }

    pub(super) fn set_unheard(&self, count: usize) {
        self.state().unheard = count;
    }
}

/// What is known of processes and sockets that were restored.
#[derive(Debug, Default)]
pub struct Restored {
    /// What single sockets are called.
    pub names: Vec<NamedSocket>,
    /// The listening sockets.
    pub listeners: Vec<MovedListener>,
    /// Where the processes' stacks begin.
    pub stacks: HashSet<u64>,
}

/// The init's hand on it.
#[derive(Debug)]
pub struct Late {
    shared: Arc<Shared>,
    pass: Pass,
    logical: String,
    machine: NodeName,
}

impl Late {
    /// Starts the thread.
    ///
    /// # Errors
    /// No threads, no descriptors left.
    pub fn start(
        installed: Installed,
        (logical, machine): (&str, &NodeName),
        addresses: AddressMap,
        restored: Restored,
    ) -> Result<Self> {
        let Restored { names, listeners, stacks } = restored;
        let event = || {
            EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
                .map_err(|errno| EngineError::system("eventfd", "late connections", errno))
        };
        let addresses = Addresses::new(addresses, logical, machine);
        let state = State {
            names: Names::new(names, addresses.clone()),
            addresses: Arc::new(addresses),
            listeners,
            unheard: 0,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), wake: event()?, news: event()? });
        let Installed { listener, pass } = installed;
        let (listener, of) = (Arc::new(listener), shared.clone());
        std::thread::Builder::new()
            .name("late".into())
            .spawn(move || {
                // They are the init's.
                let _ = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), None);
                let answerer = Answerer::new(listener.clone(), pass, of.clone(), stacks);
                serve(&listener, answerer, &of);
            })
            .map_err(|error| {
                EngineError::system("start", "the thread for late connections", error)
            })?;
        Ok(Self { shared, pass, logical: logical.to_owned(), machine: machine.clone() })
    }

    /// Something has moved.
    pub fn set_addresses(&self, addresses: AddressMap) {
        let addresses = Addresses::new(addresses, &self.logical, &self.machine);
        let mut state = self.shared.state();
        let names = state.names.list();
        state.names = Names::new(names, addresses.clone());
        state.addresses = Arc::new(addresses);
        drop(state);
        let _ = self.shared.wake.write(1);
    }

    /// Connections that were being made at the checkpoint are asked for again. How many can't be.
    pub fn ask(&self, sockets: Vec<Connecting>) -> usize {
        let addresses = self.shared.state().addresses.clone();
        let (mut next_port, mut failed) = (0, 0);
        for socket in sockets {
            match socket.ask(self.pass, &addresses, &mut next_port) {
                Ok(Some(named)) => self.shared.rename(named.cookie, |name| *name = named.name),
                Ok(None) => {}
                Err(_) => failed += 1,
            }
        }
        failed
    }

    /// Readable when there is a new listener.
    pub fn news(&self) -> &impl AsFd {
        &self.shared.news
    }

    /// All listeners that are known. What [`Late::news`] told of is taken.
    pub fn listeners(&self) -> Vec<MovedListener> {
        let _ = self.shared.news.read();
        self.shared.state().listeners.clone()
    }

    /// What single sockets are called, and whether a connection is under way to a process that stands still.
    pub fn names(&self) -> (Vec<NamedSocket>, bool) {
        let state = self.shared.state();
        (state.names.list(), state.unheard > 0)
    }
}

/// A call that waits.
struct Waiting {
    call: Notification,
    later: Later,
    since: Instant,
}

fn serve(listener: &Listener, mut answerer: Answerer, shared: &Shared) {
    let mut waiting: Vec<Waiting> = Vec::new();
    loop {
        let (asked, news, ready) = wait(listener, shared, &waiting);
        if news {
            let _ = shared.wake.read();
        }
        if asked {
            match listener.receive() {
                Ok(Some(call)) => {
                    // A thread makes one call at a time.
                    waiting.retain(|other| other.call.tid != call.tid);
                    judge(&mut answerer, call, Instant::now(), false, &mut waiting);
                }
                Ok(None) => {}
                // Nothing can be done; calls would wait for ever, and a pause keeps the machine usable.
                Err(_) => std::thread::sleep(LOOK),
            }
        }
        for (at, one) in std::mem::take(&mut waiting).into_iter().enumerate() {
            if !listener.is_valid(one.call.id) {
                continue;
            }
            let over = matches!(one.later, Later::News(limit) if one.since.elapsed() >= limit);
            let ready = ready.get(at).copied().unwrap_or(false);
            if over || ready || (news && matches!(one.later, Later::News(_))) {
                judge(&mut answerer, one.call, one.since, over, &mut waiting);
            } else {
                waiting.push(one);
            }
        }
    }
}

/// Waits: whether there is a call, news, and which of those that wait have a connection.
fn wait(listener: &Listener, shared: &Shared, waiting: &[Waiting]) -> (bool, bool, Vec<bool>) {
    let mut polled = vec![
        PollFd::new(listener.as_fd(), PollFlags::POLLIN),
        PollFd::new(shared.wake.as_fd(), PollFlags::POLLIN),
    ];
    let mut places = Vec::new();
    let mut limit = (!waiting.is_empty()).then_some(LOOK);
    for one in waiting {
        match &one.later {
            Later::Readable(fd) => {
                places.push(Some(polled.len()));
                polled.push(PollFd::new(fd.as_fd(), PollFlags::POLLIN));
            }
            Later::News(news) => {
                places.push(None);
                let left = news.saturating_sub(one.since.elapsed()) + Duration::from_millis(1);
                limit = limit.map(|limit| limit.min(left));
            }
        }
    }
    let limit = limit.map_or(PollTimeout::NONE, |limit| {
        PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX)
    });
    if poll(&mut polled, limit).is_err() {
        return (false, false, Vec::new());
    }
    let ready = |at: usize| {
        polled.get(at).and_then(PollFd::revents).is_some_and(|events| !events.is_empty())
    };
    let ready_places = places.into_iter().map(|place| place.is_some_and(ready)).collect();
    (ready(0), ready(1), ready_places)
}

fn judge(
    answerer: &mut Answerer,
    call: Notification,
    since: Instant,
    waited: bool,
    waiting: &mut Vec<Waiting>,
) {
    match answerer.judge(&call, waited) {
        Verdict::GoOn => {
            answerer.listener.go_on(call.id);
        }
        Verdict::Done(result) => {
            if !answerer.listener.answer(call.id, result) {
                if let Ok(value) = result {
                    answerer.unheard(&call, value);
                }
            }
        }
        Verdict::Accepted { socket, close_on_exec, listener } => {
            match answerer.listener.give(call.id, socket.as_fd(), close_on_exec) {
                Ok(()) => {}
                Err(errno @ (nix::errno::Errno::EMFILE | nix::errno::Errno::ENFILE)) => {
                    answerer.unheard_connection(listener, socket);
                    answerer.listener.answer(call.id, Err(errno));
                }
                Err(_) => answerer.unheard_connection(listener, socket),
            }
        }
        Verdict::Later(later) => waiting.push(Waiting { call, later, since }),
    }
}
