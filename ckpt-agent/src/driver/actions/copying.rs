//! Images of instances on their way to other nodes, and the marks of their commits.

use ckpt_node::{Copied, CopyImage, Event};
use protocol::agent::CommitRecord;
use protocol::cluster::{InstanceKey, NodeName};
use protocol::task;

use super::Driver;
use super::failure::Failure;
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

    /// Copies an image to as many partners as are wanted, as far as it can.
    pub(super) fn copy_image(&mut self, copy: CopyImage) {
        let CopyImage { key, checkpoint, summary, user, partners, copies: wanted, callers } = copy;
        let whose = self.whose(&user);
        let own = self.parts.name.clone();
        let (peers, reports) = (self.parts.peers.clone(), self.parts.reports.clone());
        let of = key.clone();
        self.with_mut(&key, |served| {
            let (folder, efforts) = (served.folder.clone(), served.efforts.take());
            let task = task::spawn(async move {
                fault::point("copy");
                let place = folder.clone();
                let gather = move || {
                    let user = whose.look_up()?;
                    Ok::<_, Failure>(copies::facts(&place, checkpoint, user.as_ref(), callers)?)
                };
                let mut facts = task::blocking(gather).await.map_err(|failure| failure.to_string());
                if let (Ok(facts), Some(efforts)) = (&mut facts, efforts) {
                    facts.efforts = efforts.await.ok();
                }
                let mut holders = vec![own];
                let mut warnings = Vec::new();
                for node in partners {
                    if holders.len() > wanted {
                        break;
                    }
                    match copies::offer(&peers, &node, &of, &folder, checkpoint).await {
                        Ok(()) => holders.push(node),
                        Err(reason) => warnings.push(format!("no copy on {node}: {reason}")),
                    }
                }
                fault::point("copied");
                let copied = Copied { key: of, checkpoint, summary, facts, holders, warnings };
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
