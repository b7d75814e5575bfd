//! Commands on a cluster: how it is found, and what is said to it.
//!
//! - [`Cluster`]: a way to it, through the socket of this machine's agent or coordinator.
//! - `listing`: listings for people.

pub mod listing;

use crate::client::foreground::Host;
use crate::client::link::{Link, LinkError, ShortPath};
use crate::client::refusal::{refusal, unexpected};
use crate::client::{LOST_LIMIT, LOST_RETRY};
use crate::failure::Failure;
use crate::jobs::StateDir;
use crate::progress;
use coordinator::server::SOCKET as COORDINATOR_SOCKET;
use protocol::cluster::client::{Answer, Ask, NO_COORDINATOR};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Name of an agent's socket in its folder.
const AGENT_SOCKET: &str = "agent.sock";

/// The socket of an agent that serves all users of a machine.
const SYSTEM_SOCKET: &str = "/run/ckptd/agent.sock";

/// The folder of the agent that serves all users of a machine, as its unit has it.
const SYSTEM_AGENT: &str = "/var/lib/ckptd/agent";

/// The folder of the coordinator that serves everybody, as its unit has it.
const SYSTEM_COORDINATOR: &str = "/var/lib/ckptd/coordinator";

/// Whether this machine has joined a cluster: by an agent of this user's, or by the one for all users.
fn has_joined(dir: &Path, asked: bool) -> bool {
    let folders = [Some(dir), (!asked).then_some(Path::new(SYSTEM_AGENT))];
    folders.into_iter().flatten().any(ckpt_agent::driver::has_joined)
}

/// Where a coordinator on this machine keeps its things, unless told otherwise.
#[must_use]
pub fn coordinator_folder(dir: &Path) -> PathBuf {
    dir.join("coordinator")
}

/// The folder of the coordinator that runs on this machine, or has run: the user's own, else that of the one that serves
/// everybody unless a folder was asked for. One that answers goes before one that has left its socket behind.
#[must_use]
pub fn coordinator_here(dir: &Path, asked: bool) -> PathBuf {
    let own = coordinator_folder(dir);
    let of_all = PathBuf::from(SYSTEM_COORDINATOR);
    let socket = |folder: &Path| folder.join(COORDINATOR_SOCKET);
    let listens =
        |folder: &Path| UnixStream::connect(ShortPath::of(&socket(folder)).as_ref()).is_ok();
    let is_left = |folder: &Path| socket(folder).exists();
    let takes_all = || listens(&of_all) || (is_left(&of_all) && !is_left(&own));
    if !asked && !listens(&own) && takes_all() { of_all } else { own }
}

/// Whether the one that serves everybody on this machine has gone without taking its socket along.
fn has_left_coordinator(asked: bool) -> bool {
    !asked && Path::new(SYSTEM_COORDINATOR).join(COORDINATOR_SOCKET).exists()
}

/// A way to a cluster.
#[derive(Debug, Clone)]
pub struct Cluster {
    socket: PathBuf,
}

impl Cluster {
    /// The cluster of this machine, if it belongs to one: by the agent's socket in the folder of
    /// jobs, then the one for all users unless a folder was asked for, then that of a coordinator
    /// ([`coordinator_here`]).
    ///
    /// # Errors
    /// Where there is a socket, and nobody behind it.
    pub fn find(state: &StateDir, asked: bool) -> Result<Option<Self>, Failure> {
        let mut candidates = vec![state.path().join(AGENT_SOCKET)];
        if !asked {
            candidates.push(SYSTEM_SOCKET.into());
        }
        candidates.push(coordinator_here(state.path(), asked).join(COORDINATOR_SOCKET));
        Self::first_of(candidates)
    }

    /// The same, for what is meant for the cluster: where this machine has joined one, nobody else will do.
    ///
    /// # Errors
    /// Where this machine has joined a cluster, and its agent does not answer; and as [`Cluster::find`].
    pub fn find_if_joined(state: &StateDir, asked: bool) -> Result<Option<Self>, Failure> {
        match Self::find(state, asked) {
            Ok(Some(found)) => Ok(Some(found)),
            Ok(None) if !has_joined(state.path(), asked) && has_left_coordinator(asked) => {
                Err(Failure::of(
                    "run the job on the cluster",
                    "its coordinator is on this machine, and does not answer: 'systemctl start ckptd-coordinator' starts \
                     it; --local runs the job on this machine alone",
                ))
            }
            found if !has_joined(state.path(), asked) => found,
            Ok(None) | Err(_) => Err(Failure::of(
                "run the job on the cluster",
                "this machine has joined it, and its agent does not answer: 'systemctl start ckptd-agent', or 'ckptd \
                 agent', starts it; --local, without --group and --store, runs the job on this machine alone",
            )),
        }
    }

    /// The cluster whose coordinator runs on this machine.
    ///
    /// # Errors
    /// Where there is none.
    pub fn of_coordinator(folder: &Path) -> Result<Self, Failure> {
        let socket = folder.join(COORDINATOR_SOCKET);
        Self::first_of(vec![socket])?.ok_or_else(|| {
            Failure::of(
                "find the coordinator",
                format!(
                    "none runs on {}: start it by 'ckptd coordinator', or name its folder by \
                     --state",
                    folder.display()
                ),
            )
        })
    }

    /// Whether it takes this user for an operator: the coordinator's own user, or root, at its own socket.
    pub fn obeys_as_operator(&self) -> bool {
        let own = nix::unistd::geteuid().as_raw();
        own == 0 || std::fs::metadata(&self.socket).is_ok_and(|found| found.uid() == own)
    }

    /// The one behind a socket.
    pub fn at(socket: PathBuf) -> Self {
        Self { socket }
    }

    fn first_of(candidates: Vec<PathBuf>) -> Result<Option<Self>, Failure> {
        let mut dead = None;
        for socket in candidates {
            match UnixStream::connect(ShortPath::of(&socket).as_ref()) {
                Ok(_) => return Ok(Some(Self { socket })),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => {}
                Err(error) => dead = dead.or(Some((socket, error))),
            }
        }
        let Some((socket, error)) = dead else { return Ok(None) };
        let cause = if error.kind() == io::ErrorKind::ConnectionRefused {
            let (who, unit) = match socket.ends_with(COORDINATOR_SOCKET) {
                true => ("coordinator", "ckptd-coordinator"),
                false => ("agent", "ckptd-agent"),
            };
            format!(
                "nobody listens at {0}: 'systemctl start {unit}', or 'ckptd {who}', starts the {who} again; to have jobs on \
                 this machine alone from now on, remove {0}, for one job 'ckptd run --local'",
                socket.display()
            )
        } else {
            format!("{}: {error}", socket.display())
        };
        Err(Failure::of("talk to the cluster", cause))
    }

    /// The socket by which it is asked.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The cluster as what runs a job in the foreground.
    pub fn host(&self) -> Host {
        Host::Cluster(self.socket.clone())
    }

    /// The folder of who listens here: an agent keeps the images of jobs in it. The socket for all users of a machine
    /// leads to it by a link.
    pub fn folder(&self) -> Option<PathBuf> {
        let socket = std::fs::canonicalize(&self.socket).ok()?;
        socket.parent().map(Path::to_owned)
    }

    /// Asks for one thing and waits for the answer; lines for the user that come before it are
    /// printed.
    ///
    /// # Errors
    /// Where there is no answer, or it is a refusal.
    pub fn ask(&self, what: &str, ask: &Ask) -> Result<Answer, Failure> {
        let mut found = None;
        self.each(what, ask, |answer| {
            found = Some(answer);
            Ok(false)
        })?;
        found.ok_or_else(|| Failure::of(what, LinkError::Gone))
    }

    /// Begins a conversation.
    ///
    /// # Errors
    /// Where nobody is there.
    pub fn open(&self, ask: &Ask) -> Result<Link, LinkError> {
        Link::open(&self.socket, ask)
    }

    /// The answer to a question, for who has nobody to tell lines to; None: none has come within that time.
    ///
    /// # Errors
    /// Where nobody is there.
    pub fn answer_within(&self, ask: &Ask, limit: Duration) -> Result<Option<Answer>, LinkError> {
        let mut link = self.open(ask)?;
        loop {
            match link.next_within(limit)? {
                Some(Answer::Say { .. }) => {}
                answer => return Ok(answer),
            }
        }
    }

    /// Asks for what has several answers, until one has been taken that is the last.
    ///
    /// # Errors
    /// As [`Cluster::ask`]; those of `take`, which says whether more are to come.
    pub fn each(
        &self,
        what: &str,
        ask: &Ask,
        mut take: impl FnMut(Answer) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let mut link = self.open(ask).map_err(|error| Failure::of(what, error))?;
        while take(next_of(what, &mut link)?)? {}
        Ok(())
    }

    /// Asks for one thing, and stays connected.
    ///
    /// # Errors
    /// As [`Cluster::ask`].
    pub fn ask_and_stay(&self, what: &str, ask: &Ask) -> Result<(Answer, Link), Failure> {
        let mut link = self.open(ask).map_err(|error| Failure::of(what, error))?;
        Ok((next_of(what, &mut link)?, link))
    }

    /// Asks for something that is done by itself once it has been said, and that may be said again: while
    /// the cluster is without a coordinator, it is waited for.
    ///
    /// # Errors
    /// Where it is refused, or no coordinator comes within two minutes.
    pub fn insist(&self, what: &str, ask: &Ask) -> Result<(), Failure> {
        match self.answer_in_time(what, ask)? {
            Answer::Done { text } => {
                if let Some(text) = text {
                    progress::say(&text);
                }
                Ok(())
            }
            other => Err(unexpected(what, &other)),
        }
    }

    /// Asks for a listing. While the cluster is without a coordinator, it is waited for.
    ///
    /// # Errors
    /// As [`Cluster::insist`].
    pub fn listing_in_time(&self, what: &str, ask: &Ask) -> Result<serde_json::Value, Failure> {
        match self.answer_in_time(what, ask)? {
            Answer::Listing { value } => Ok(value),
            other => Err(unexpected(what, &other)),
        }
    }

    /// The answer to what may be said again.
    fn answer_in_time(&self, what: &str, ask: &Ask) -> Result<Answer, Failure> {
        let mut alone: Option<Instant> = None;
        loop {
            let lost = match self.try_order(ask) {
                Ok(Answer::Failed { reason, .. }) if reason == NO_COORDINATOR => reason,
                Ok(Answer::Failed { reason, status }) => return Err(refusal(what, reason, status)),
                Ok(answer) => return Ok(answer),
                Err(error @ (LinkError::Io(_) | LinkError::Gone)) => error.to_string(),
                Err(error) => return Err(Failure::of(what, error)),
            };
            if alone.is_none() {
                progress::say("the cluster is without its coordinator; waiting for one");
            }
            if alone.get_or_insert_with(Instant::now).elapsed() > LOST_LIMIT {
                return Err(Failure::of(what, lost));
            }
            std::thread::sleep(LOST_RETRY);
        }
    }

    fn try_order(&self, ask: &Ask) -> Result<Answer, LinkError> {
        let mut link = Link::open(&self.socket, ask)?;
        loop {
            match link.next()? {
                Answer::Say { text } => progress::say(&text),
                answer => return Ok(answer),
            }
        }
    }

    /// Asks for a listing.
    ///
    /// # Errors
    /// As [`Cluster::ask`].
    pub fn listing(&self, what: &str, ask: &Ask) -> Result<serde_json::Value, Failure> {
        match self.ask(what, ask)? {
            Answer::Listing { value } => Ok(value),
            other => Err(unexpected(what, &other)),
        }
    }

    /// Asks for something to be done.
    ///
    /// # Errors
    /// As [`Cluster::ask`].
    pub fn order(&self, what: &str, ask: &Ask) -> Result<(), Failure> {
        match self.ask(what, ask)? {
            Answer::Done { text } => {
                if let Some(text) = text {
                    progress::say(&text);
                }
                Ok(())
            }
            other => Err(unexpected(what, &other)),
        }
    }
}

/// The next answer; lines for the user that come before it are printed.
fn next_of(what: &str, link: &mut Link) -> Result<Answer, Failure> {
    loop {
        match link.next().map_err(|error| Failure::of(what, error))? {
            Answer::Say { text } => progress::say(&text),
            Answer::Failed { reason, status } => return Err(refusal(what, reason, status)),
            answer => return Ok(answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_dead_agent_is_told_of_unless_somebody_else_answers() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::find(Some(dir.path().to_owned())).unwrap();
        assert!(Cluster::find(&state, true).unwrap().is_none());
        assert!(Cluster::find_if_joined(&state, true).unwrap().is_none());
        let identity = dir.path().join("identity");
        std::fs::create_dir(&identity).unwrap();
        assert!(Cluster::find_if_joined(&state, true).unwrap().is_none(), "not certified yet");
        std::fs::write(identity.join("cert.pem"), "").unwrap();
        let text = Cluster::find_if_joined(&state, true).unwrap_err().to_string();
        assert!(text.contains("systemctl start ckptd-agent") && text.contains("--local"), "{text}");
        std::fs::remove_dir_all(&identity).unwrap();
        let socket = dir.path().join(AGENT_SOCKET);
        drop(UnixListener::bind(&socket).unwrap());
        let text = Cluster::find(&state, true).unwrap_err().to_string();
        assert!(text.contains("nobody listens"), "{text}");
        assert!(Cluster::find_if_joined(&state, true).is_err());
        let folder = coordinator_folder(state.path());
        std::fs::create_dir(&folder).unwrap();
        let _listener = UnixListener::bind(folder.join(COORDINATOR_SOCKET)).unwrap();
        let found = Cluster::find(&state, true).unwrap().unwrap();
        assert_eq!(found.socket, folder.join(COORDINATOR_SOCKET));
    }
}
