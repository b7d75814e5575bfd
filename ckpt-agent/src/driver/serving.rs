//! What other agents ask of this one.

use ckpt_node::is_job_id;
use protocol::cluster::peer::PeerMessage;
use protocol::cluster::{NodeName, VERSIONS};

use super::busy::Busy;
use super::copies::{self, CopyError, Offered};
use super::folders::Folders;
use super::grants::{GrantError, Grants};
use super::link::PeerLink;
use super::relay::Hub;
use super::tree::Lines;
use crate::driver::traffic::Traffic;

/// Why another agent did not get what it asked for.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    /// It named a job as none is named.
    #[error("{0:?} is no job's id")]
    NoJob(String),
    /// There is no folder for the copy.
    #[error(transparent)]
    Folder(#[from] std::io::Error),
    /// The coordinator has not granted it.
    #[error(transparent)]
    Grant(#[from] GrantError),
    /// The copy came to nothing.
    #[error(transparent)]
    Copy(#[from] CopyError),
}

/// What is needed to serve.
#[derive(Clone)]
pub struct Server {
    /// Relays of this node.
    pub hub: Hub,
    /// Where images are.
    pub folders: Folders,
    /// Whose copies are taken, and who may have some.
    pub grants: Grants,
    /// Lines of the command tree; None: this agent takes no part in it.
    pub tree: Option<Lines>,
    /// Which of them are in the making.
    pub busy: Busy,
    /// What takes packets of jobs; None: they are not encrypted here.
    pub traffic: Option<Traffic>,
}

impl Server {
    /// Serves one connection until it ends, or its other side says what makes no sense.
    pub async fn serve(&self, from: NodeName, mut link: PeerLink) {
        match link.from.recv().await {
            Some((PeerMessage::Hello { version }, _)) if version.common(VERSIONS).is_some() => {}
            _ => return tracing::warn!(%from, "refused: it did not greet"),
        }
        while let Some((message, body)) = link.from.recv().await {
            let result = match message {
                PeerMessage::Tree(first) => {
                    if let Some(lines) = &self.tree {
                        lines.serve(from, link, *first).await;
                    }
                    return;
                }
                PeerMessage::Packets => {
                    match &self.traffic {
                        Some(traffic) => traffic.serve(from, link, body),
                        None => {
                            tracing::warn!(%from, "refused: no traffic of jobs is encrypted here")
                        }
                    }
                    return;
                }
                PeerMessage::Relay { .. }
                | PeerMessage::RelayTaken { .. }
                | PeerMessage::RelayEnd { .. }
                | PeerMessage::RelayPaused { .. }
                | PeerMessage::RelayAsk { .. } => {
                    self.hub.deliver(&from, message, body);
                    Ok(())
                }
                other => self.image(&from, other, &mut link).await,
            };
            if let Err(reason) = result {
                return tracing::warn!(%from, "a copy of an image failed: {reason}");
            }
        }
    }

    async fn image(
        &self,
        from: &NodeName,
        message: PeerMessage,
        link: &mut PeerLink,
    ) -> Result<(), ServeError> {
        if let Err(refused) = self.granted(from, &message) {
            // The other side learns why, as far as it still listens.
            let _ = copies::refuse(link, refused.to_string()).await;
            return Err(refused);
        }
        match message {
            PeerMessage::Offer { transfer, key, checkpoint, files, .. } => {
                let folder = self.folders.instance(&key.job, key.instance);
                self.busy.take(&folder, checkpoint).await;
                let made = self.folders.make_instance(&key.job, key.instance);
                if let Err(error) = made {
                    self.busy.end_commit(&folder, checkpoint);
                    return Err(error.into());
                }
                let offered = Offered { checkpoint, files, transfer };
                let taken = copies::take(link, &self.folders.arriving(), &folder, offered).await;
                if taken.is_err() {
                    self.busy.end_commit(&folder, checkpoint);
                }
                Ok(taken?)
            }
            PeerMessage::Fetch { transfer, job, instance, checkpoint, .. } => {
                let folder = self.folders.instance(&job, instance);
                Ok(copies::give(link, &folder, checkpoint, transfer).await?)
            }
            PeerMessage::Commit { key, record, .. } => {
                let folder = self.folders.instance(&key.job, key.instance);
                let checkpoint = record.checkpoint;
                let marked = copies::mark(link, folder.clone(), record).await;
                self.busy.end_commit(&folder, checkpoint);
                Ok(marked?)
            }
            other => Err(CopyError::unexpected(&other).into()),
        }
    }

    /// Whether the coordinator has granted what the other side wants. Looked at before anything is made of it.
    fn granted(&self, from: &NodeName, message: &PeerMessage) -> Result<(), ServeError> {
        let known = |job: &str| match is_job_id(job) {
            true => Ok(()),
            false => Err(ServeError::NoJob(job.to_owned())),
        };
        match message {
            PeerMessage::Offer { key, grant, .. } | PeerMessage::Commit { key, grant, .. } => {
                known(&key.job)?;
                Ok(self.grants.may_offer(from, grant.as_deref(), key)?)
            }
            PeerMessage::Fetch { job, instance, checkpoint, grant, .. } => {
                known(job)?;
                let image = (*instance, *checkpoint);
                Ok(self.grants.may_fetch(from, grant.as_deref(), job, image)?)
            }
            _ => Ok(()),
        }
    }
}
