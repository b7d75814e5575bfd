//! A coordinator carries on for one whose machine is lost.
//!
//! 1. It makes sure that the lost one does not answer any more, neither itself nor some member (`survey`).
//! 2. Of all copies of the lost one's folder that can be reached it takes the newest (`copy`).
//! 3. It tells every member that it is the coordinator now, of a higher term. Agents follow the highest
//!    term that they have heard of; one that follows another already ends the attempt.
//! 4. From then on it is a coordinator like any other: the copy, with one entry more, is its log.
//!    Members that were not there are told later (`herald`), and so is the lost one, which then
//!    ends.

mod copy;
mod herald;
mod marker;
mod survey;

use super::ServeError;
use crate::cluster::ClusterEntry;
use crate::cluster::{ClusterMachine, ClusterSettings, SeededSecrets};
use crate::event::Time;
use copy::Copied;
use protocol::cluster::NodeName;
use protocol::cluster::succession::Followed;
use protocol::transport::{Authority, Identity, Role, Sealer, Successor};
use std::path::{Path, PathBuf};
use survey::{Members, Survey};

pub use herald::announce;
pub use marker::Marker;

/// The folder of an agent's copy, in the agent's folder.
pub const REPLICA: &str = "replica";
/// The folder of an agent's certificate, in the agent's folder.
const IDENTITY: &str = "identity";

/// A copy that has been found and prepared, before anybody has been told.
#[derive(Debug)]
pub struct Prepared {
    copied: Copied,
    successor: Successor,
    sealer: Sealer,
    members: Members,
    survey: Survey,
    /// Where the lost coordinator was.
    lost: Vec<String>,
    /// The machine whose copy it is.
    from: NodeName,
    /// What the lost coordinator's grace was, in seconds.
    pub grace: f64,
}

/// What it came to.
#[derive(Debug)]
pub struct TakenOver {
    /// How the new coordinator is known.
    pub followed: Followed,
    /// The line for the user.
    pub text: String,
}

/// Finds the newest copy, and lays it down in `state` under names that don't count yet.
///
/// # Errors
/// Where there is none, the lost coordinator is not lost, or the copy can't be used.
pub async fn prepare(agent: &Path, state: &Path) -> Result<Prepared, ServeError> {
    let here = Identity::load(&agent.join(IDENTITY))?.ok_or_else(|| no_copy(agent))?;
    let here = here.name().clone();
    let folder = agent.join(REPLICA);
    let own = copy::look(&folder)?.ok_or_else(|| no_copy(agent))?;
    let known = members(&copy::entries(&folder)?)?;
    if !known.contains_key(&here) {
        return Err(ServeError::Recovery(format!(
            "{here} is no member of the cluster any more: run it on a machine that is"
        )));
    }
    let authority = copy::authority(&folder)?;
    let credentials = authority.issue(&Role::Coordinator)?;
    let successor = Successor::new(&credentials, Followed::default())?;
    let sealer = Sealer::new(&credentials)?;
    let survey = survey::survey(&successor, &known, &own.note.addresses).await?;
    let best = survey.newest().filter(|(_, copy)| copy::is_newer(copy, &own));
    let (from, source, chosen): (NodeName, PathBuf, _) = match best {
        None => (here, folder.clone(), own),
        Some((node, copy)) => {
            let fetched = copy::room(state)?;
            survey::fetch(&successor, node, known.get(node).copied(), &fetched).await?;
            (node.clone(), fetched, copy.clone())
        }
    };
    let copied = copy::lay_down(&source, &folder, state, &chosen)?;
    let members = members(&copied.entries)?;
    let grace = chosen.note.grace_s;
    let lost = chosen.note.addresses;
    Ok(Prepared { copied, successor, sealer, members, survey, lost, from, grace })
}

impl Prepared {
    /// Tells all members who can be reached, and makes the copy the log of this coordinator.
    ///
    /// # Errors
    /// Where one of them follows another coordinator by now.
    pub async fn take_over(
        self,
        addresses: &[String],
        claim: String,
        at_ms: u64,
    ) -> Result<TakenOver, ServeError> {
        let highest = self.survey.highest_term().max(self.copied.term);
        let term = highest.max(1) + 1;
        let (claimed, addresses) = (claim.clone(), addresses.to_vec());
        let followed = Followed { term, claim: claimed, addresses, seal: None };
        let followed = followed.sealed(&self.sealer)?;
        let successor = self.successor.with(followed.clone());
        survey::claim(&successor, &self.members, &self.survey).await?;
        let (from, lost) = (self.from.clone(), self.lost.clone());
        self.copied.finish(&ClusterEntry::TermBegun { term, claim, from, lost, at_ms })?;
        let mut text = format!(
            "carrying on from the copy of the log that {} held: {} entries, the last {} s old; \
             {} of {} members answered; term {term}",
            self.from,
            self.copied.entries.len(),
            self.copied.age_ms / 1000,
            self.survey.count(),
            self.members.len(),
        );
        if let Some((node, other)) = self.survey.ahead_of(self.copied.term) {
            text += &format!(
                "; {node} has heard of a coordinator of term {}, at {}, and nobody has a copy of its \
                 log: what that one decided is lost",
                other.term,
                other.addresses.join(", "),
            );
        }
        Ok(TakenOver { followed, text })
    }
}

fn no_copy(agent: &Path) -> ServeError {
    ServeError::Recovery(format!(
        "no copy of a coordinator's log is in {}: run it on a machine that holds images of jobs, with \
         the --dir of its agent",
        agent.display()
    ))
}

/// The members by a log.
fn members(entries: &[ClusterEntry]) -> Result<Members, ServeError> {
    let machine = ClusterMachine::recover(
        ClusterSettings::default(),
        SeededSecrets::new([0; 32]),
        Time::default(),
        entries.iter().cloned(),
        &std::collections::BTreeMap::new(),
    )?;
    Ok(machine.members().into_iter().collect())
}

/// The certificate authority of a folder that has one.
fn open_authority(folder: &Path) -> Result<Authority, ServeError> {
    Ok(Authority::open(folder)?)
}
