//! What the members know of coordinators, and which copies they have.

use super::copy::is_newer;
use crate::server::{LOG, ServeError, io_error};
use protocol::cluster::replica::SmallFile;
use protocol::cluster::succession::{CopiedFile, Copy, Followed, FromSuccessor, ToSuccessor};
use protocol::cluster::{NodeName, Term};
use protocol::log_times;
use protocol::transport::{Connection, Successor, TransportError};
use std::collections::BTreeMap;
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// All members, and where their agents are.
pub type Members = BTreeMap<NodeName, SocketAddr>;

type Link = Connection<FromSuccessor, ToSuccessor>;

/// How long a member may take to answer.
const LIMIT: Duration = Duration::from_secs(4);
/// How long somebody may go on to say that the lost coordinator answers: until its agent has noticed.
const DOUBT: Duration = Duration::from_secs(6);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(300);
/// How long a copy may be silent while it is fetched.
const SILENCE: Duration = Duration::from_secs(20);

/// What a member has answered.
#[derive(Debug, Clone)]
struct Seen {
    followed: Followed,
    answers: bool,
    copy: Option<Copy>,
}

/// What all have answered.
#[derive(Debug, Clone, Default)]
pub struct Survey(BTreeMap<NodeName, Seen>);

impl Survey {
    /// The newest copy.
    pub fn newest(&self) -> Option<(&NodeName, &Copy)> {
        let mut newest: Option<(&NodeName, &Copy)> = None;
        for (node, seen) in &self.0 {
            if let Some(copy) = &seen.copy {
                if newest.is_none_or(|(_, than)| is_newer(copy, than)) {
                    newest = Some((node, copy));
                }
            }
        }
        newest
    }

    /// The highest term that anybody has heard of.
    pub fn highest_term(&self) -> Term {
        self.0.values().map(|seen| seen.followed.term).max().unwrap_or(0)
    }

    /// Somebody who has heard of a higher term than that of the copy.
    pub fn ahead_of(&self, term: Term) -> Option<(&NodeName, &Followed)> {
        let mut seen = self.0.iter().map(|(node, seen)| (node, &seen.followed));
        seen.find(|(_, followed)| followed.term > term)
    }

    /// How many have answered.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    fn addresses(&self, also: &[String]) -> Vec<String> {
        let known = self.0.values().flat_map(|seen| seen.followed.addresses.iter());
        let mut addresses: Vec<String> = known.chain(also).cloned().collect();
        addresses.sort();
        addresses.dedup();
        addresses
    }
}

/// Asks all members. The lost coordinator, who was at these addresses, must be lost for all of them.
///
/// # Errors
/// Where it is not.
pub async fn survey(
    successor: &Successor,
    members: &Members,
    addresses: &[String],
) -> Result<Survey, ServeError> {
    let began = Instant::now();
    loop {
        let survey = ask_all(successor, members).await;
        for address in survey.addresses(addresses) {
            if timeout(LIMIT, successor.tell_coordinator(&address)).await.is_ok_and(|it| it.is_ok())
            {
                return Err(ServeError::Recovery(format!(
                    "the coordinator at {address} still answers: end it first"
                )));
            }
        }
        let heard = survey.0.iter().find(|(_, seen)| seen.answers);
        let Some((node, seen)) = heard else { return Ok(survey) };
        if began.elapsed() > DOUBT {
            let at = survey.addresses(addresses);
            let at =
                if seen.followed.addresses.is_empty() { &at } else { &seen.followed.addresses };
            return Err(ServeError::Recovery(format!(
                "the coordinator at {} still answers {node}: end it first",
                at.join(", ")
            )));
        }
        sleep(PAUSE).await;
    }
}

async fn ask_all(successor: &Successor, members: &Members) -> Survey {
    let answers = each(successor, members, |mut link| async move {
        link.sender.send(&FromSuccessor::Ask, &[]).await?;
        link.receiver.receive().await
    });
    let mut survey = Survey::default();
    for (node, answer) in answers.await {
        if let Some((ToSuccessor::State { followed, answers, copy }, _)) = answer {
            survey.0.insert(node, Seen { followed, answers, copy });
        }
    }
    survey
}

/// Talks to all members at one time. Those that can't be reached are left out.
async fn each<T, F>(
    successor: &Successor,
    members: &Members,
    talk: impl Fn(Link) -> F + Clone + Send + Sync + 'static,
) -> Vec<(NodeName, T)>
where
    T: Send + 'static,
    F: Future<Output = Result<T, TransportError>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for (node, address) in members.clone() {
        let (successor, talk) = (successor.clone(), talk.clone());
        tasks.spawn(async move {
            let conversation = async {
                let link = successor.connect_agent(&node, address).await?;
                talk(link).await
            };
            match timeout(LIMIT, conversation).await {
                Ok(Ok(answer)) => Some((node, answer)),
                Ok(Err(error)) => {
                    tracing::info!("{node} does not answer: {error}");
                    None
                }
                Err(_) => {
                    tracing::info!("{node} does not answer");
                    None
                }
            }
        });
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

/// Tells all who have answered that there is a new coordinator.
///
/// # Errors
/// Where one of them follows another one by now.
pub async fn claim(
    successor: &Successor,
    members: &Members,
    survey: &Survey,
) -> Result<(), ServeError> {
    let there = members.iter().filter(|(node, _)| survey.0.contains_key(*node));
    let there: Members = there.map(|(node, address)| (node.clone(), *address)).collect();
    let followed = successor.followed().clone();
    let answers = each(successor, &there, move |mut link| {
        let followed = followed.clone();
        async move {
            link.sender.send(&FromSuccessor::Follow(followed), &[]).await?;
            link.receiver.receive().await
        }
    });
    for (node, answer) in answers.await {
        if let Some((ToSuccessor::Refused { followed }, _)) = answer {
            return Err(ServeError::Recovery(format!(
                "{node} follows a coordinator of term {} at {} by now: end that one, or leave it to it",
                followed.term,
                followed.addresses.join(", ")
            )));
        }
    }
    Ok(())
}

/// Fetches a copy into a folder.
///
/// # Errors
/// Where it does not come whole.
pub async fn fetch(
    successor: &Successor,
    node: &NodeName,
    address: Option<SocketAddr>,
    folder: &Path,
) -> Result<(), ServeError> {
    let failed =
        |reason: String| ServeError::Recovery(format!("fetch the copy of {node}: {reason}"));
    let address = address.ok_or_else(|| failed("it is no member".to_owned()))?;
    let connection = timeout(LIMIT, successor.connect_agent(node, address));
    let mut link = connection.await.map_err(|_| failed("it does not answer".to_owned()))??;
    link.sender.send(&FromSuccessor::Fetch, &[]).await?;
    loop {
        let received = timeout(SILENCE, link.receiver.receive());
        let received = received.await.map_err(|_| failed("it does not answer".to_owned()))??;
        match received {
            Some((ToSuccessor::Piece { file }, body)) => keep(folder, &file, &body)?,
            Some((ToSuccessor::Sent, _)) => return Ok(()),
            Some((ToSuccessor::Failed { reason }, _)) => return Err(failed(reason)),
            _ => return Err(failed("it broke off".to_owned())),
        }
    }
}

fn keep(folder: &Path, file: &CopiedFile, body: &[u8]) -> Result<(), ServeError> {
    let path = match file {
        CopiedFile::Log => folder.join(LOG),
        CopiedFile::Small(SmallFile::Register) => folder.join(SmallFile::Register.name()),
        CopiedFile::Small(file) => folder.join(file.name()),
        CopiedFile::JobLog(job) | CopiedFile::JobTimes(job) => {
            let plain = !job.is_empty() && !job.starts_with('.') && !job.contains('/');
            if !plain {
                return Err(ServeError::Recovery(format!("{job:?} is no job's id")));
            }
            let name = match file {
                CopiedFile::JobTimes(_) => log_times::NAME,
                _ => "log",
            };
            folder.join("jobs").join(job).join(name)
        }
    };
    let write = || -> std::io::Result<()> {
        if let Some(above) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(above)?;
        }
        OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?.write_all(body)
    };
    write().map_err(io_error(format!("write {}", path.display())))
}
