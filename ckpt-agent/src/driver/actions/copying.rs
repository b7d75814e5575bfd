//! Images of instances on their way to other nodes, and the marks of their commits.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use ckpt_node::{Copied, CopyImage, Event};
use protocol::agent::{CheckpointNumber, CommitRecord};
use protocol::cluster::image::ImageFacts;
use protocol::cluster::{InstanceKey, NodeName};
use protocol::task;

use super::Driver;
use super::failure::Failure;
use super::launching::Whose;
use crate::driver::copies::{Away, AwayDisk, CopyError, Way};
use crate::driver::peers::Peers;
use crate::driver::shortage::Shortage;
use crate::driver::{copies, host};
use ckpt_engine::fault;

impl Driver {
    pub(super) fn read_efforts(&mut self, key: &InstanceKey) {
        let gauge = self.parts.gauge.clone();
        self.with_mut(key, |served| {
            let init = served.init;
            let idle = gauge.idle_permille(init);
            served.efforts = Some(task::spawn_blocking(move || host::efforts(init, idle)));
        });
    }

    /// An image is about to be written: says where.
    pub(super) fn find_room(
        &mut self,
        key: &InstanceKey,
        checkpoint: CheckpointNumber,
        partners: Vec<NodeName>,
    ) {
        let (room, peers) = (self.parts.gauge.room(), self.parts.peers.clone());
        let of = key.clone();
        self.with_mut(key, |served| {
            let lasts = served.shortage.lasts(room, Instant::now());
            served.away = (lasts && !partners.is_empty()).then(|| {
                let way = Way::Partners { peers, key: of, partners };
                Arc::new(Away::new(way, &served.folder, checkpoint))
            });
            let disk = match &served.away {
                Some(away) => Arc::new(AwayDisk(away.clone())),
                None => served.shortage.disk(),
            };
            served.instance.session().write_on(disk);
        });
    }

    /// Copies an image to as many partners as are wanted, as far as it can. One that was written at a partner is completed
    /// there.
    pub(super) fn copy_image(&mut self, copy: CopyImage) {
        let (key, checkpoint) = (copy.key.clone(), copy.checkpoint);
        let whose = self.whose(&copy.user);
        let (peers, reports) = (self.parts.peers.clone(), self.parts.reports.clone());
        let own = self.parts.name.clone();
        self.with_mut(&key, |served| {
            served.shortage.wrote(copy.summary.stored_bytes);
            let efforts = served.efforts.take();
            let away = served.away.take().filter(|away| away.checkpoint() == checkpoint);
            let place = Place { own, folder: served.folder.clone(), peers };
            let shortage = served.shortage.clone();
            let task = task::spawn(async move {
                fault::point("copy");
                let CopyImage { key, checkpoint, summary, callers, .. } = copy.clone();
                let Stored { facts, holders, warnings } = match away {
                    Some(away) => place.complete_away(away, whose, callers, &shortage).await,
                    None => place.copy(copy, whose, &shortage).await,
                };
                let mut facts = facts.map_err(|failure| failure.to_string());
                if let (Ok(facts), Some(efforts)) = (&mut facts, efforts) {
                    facts.efforts = efforts.await.ok();
                }
                fault::point("copied");
                let copied = Copied { key, checkpoint, summary, facts, holders, warnings };
                reports.event(Event::Copied(Box::new(copied)));
            });
            served.copying = Some(task.abort_handle());
        });
    }

    pub(super) fn stop_copying(&mut self, key: &InstanceKey) {
        self.with_mut(key, |served| {
            if let Some(task) = served.copying.take() {
                task.abort();
            }
        });
    }

    pub(super) fn mark_copies(
        &self,
        key: InstanceKey,
        record: CommitRecord,
        holders: Vec<NodeName>,
    ) {
        let (peers, reports) = (self.parts.peers.clone(), self.parts.reports.clone());
        task::spawn(async move {
            let mut result = Ok(());
            for node in &holders {
                if let Err(reason) = copies::commit(&peers, node, &key, &record).await {
                    result = Err(format!("the copy on {node} lacks its commit mark: {reason}"));
                }
            }
            fault::point("marked");
            reports.event(Event::Marked(key, record.checkpoint, result));
        });
    }
}

/// An instance's folder on this node.
struct Place {
    own: NodeName,
    folder: PathBuf,
    peers: Peers,
}

/// Where an image is durable now.
struct Stored {
    facts: Result<ImageFacts, Failure>,
    holders: Vec<NodeName>,
    warnings: Vec<String>,
}

impl Place {
    /// Of an image that lies here.
    async fn copy(self, copy: CopyImage, whose: Whose, shortage: &Shortage) -> Stored {
        let CopyImage { key, checkpoint, partners, copies: wanted, callers, .. } = copy;
        let place = self.folder.clone();
        let gather = move || {
            let user = whose.look_up()?;
            Ok::<_, Failure>(copies::facts(&place, checkpoint, user.as_ref(), callers)?)
        };
        let facts = task::blocking(gather).await;
        if let Err(Failure::Copy(
            CopyError::File { source, .. } | CopyError::Files { source, .. },
        )) = &facts
        {
            shortage.note(source);
        }
        let mut holders = vec![self.own];
        let mut warnings = Vec::new();
        for node in partners {
            if holders.len() > wanted {
                break;
            }
            match copies::offer(&self.peers, &node, &key, &self.folder, checkpoint).await {
                Ok(()) => holders.push(node),
                Err(reason) => warnings.push(format!("no copy on {node}: {reason}")),
            }
        }
        Stored { facts, holders, warnings }
    }

    /// Of an image that was written at a partner.
    async fn complete_away(
        self,
        away: Arc<Away>,
        whose: Whose,
        callers: bool,
        shortage: &Shortage,
    ) -> Stored {
        let finish = move || {
            let user = whose.look_up()?;
            Ok::<_, Failure>(away.finish(user.as_ref(), callers)?)
        };
        let (node, facts) = match task::blocking(finish).await {
            Ok(stored) => stored,
            Err(failure) => {
                return Stored { facts: Err(failure), holders: Vec::new(), warnings: Vec::new() };
            }
        };
        let own = &self.own;
        let news = shortage.is_news().then(|| {
            format!(
                "there is no room on {own}: {node} keeps its part of checkpoints until there is"
            )
        });
        Stored { facts: Ok(facts), holders: vec![node], warnings: news.into_iter().collect() }
    }
}
