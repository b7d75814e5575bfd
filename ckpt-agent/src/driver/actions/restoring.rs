//! Instances that are brought back, and those that outlived an agent.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use ckpt_node::{BootTime, Event, FORMAT, Lacking, Record, Restore};
use protocol::cluster::addresses::AddressMap;
use protocol::cluster::agent::{DEPARTED, PrepareOrder};
use protocol::task;
use tokio::time::Instant;

use super::Driver;
use super::failure::Failure;
use super::launching::own_or;
use super::served::SOCKET;
use crate::driver::copies::{self, Wanted};
use crate::driver::folders::RECORD;
use crate::driver::instance::{Instance, absent_end};
use crate::driver::report::Found;
use crate::driver::report::Report;
use crate::driver::user::User;
use crate::driver::wiring;
use ckpt_engine::fault;
use ckpt_engine::{InstanceOrder, PartOrder, RestoreOrder};
use protocol::launch::RestoreSpec;

/// How long making all connections of an instance may take.
const WIRE_LIMIT: Duration = Duration::from_secs(20);
/// The longest record of an instance.
const LONGEST_RECORD: u64 = 1024 * 1024;

impl Driver {
    pub(super) fn prepare(&mut self, order: PrepareOrder) {
        fault::point("prepare");
        let key = order.key.clone();
        if let Err(failure) = self.serve(&Record::of_prepare(&order)) {
            return self.events.push_back(Event::Prepared(key, Err(Lacking::from(failure))));
        }
        let whose = self.whose(&order.user);
        let (folders, folder) =
            (self.parts.folders.clone(), self.parts.folders.instance(&key.job, order.image));
        let (peers, reports, busy) =
            (self.parts.peers.clone(), self.parts.reports.clone(), self.parts.busy.clone());
        let (own, arriving) = (self.parts.name.clone(), folders.arriving());
        let holders: Vec<_> = order.holders.iter().filter(|node| **node != own).cloned().collect();
        let (image, checkpoint, part) = (order.image, order.checkpoint, order.part);
        let (assignment, of) = (order.assignment.clone(), key.clone());
        // A copy that lies here, but does not count, may be damaged.
        let counts = order.holders.contains(&own);
        let without = departed(&order);
        let digest = order.digest.clone();
        task::spawn(async move {
            let result = async {
                let user = task::spawn_blocking(move || whose.look_up()).await??;
                reports.event(Event::RunBy(of.clone(), own_or(user.as_ref())));
                // Several parts of one image may be wanted here: it is fetched once.
                let lock = busy.fetching(&folder);
                let _alone = lock.lock().await;
                let made = folders.make_instance(&of.job, image);
                made.map_err(Failure::system("create the image's folder"))?;
                let mut is_here = copies::is_here(&folder, checkpoint).await;
                if is_here && counts {
                    if let Err(reason) = copies::must_be(&folder, checkpoint, &digest).await {
                        tracing::warn!(key = %of, %reason, "another copy is fetched");
                        copies::reject(&folder, checkpoint).await;
                        is_here = false;
                    }
                }
                if !is_here || !counts {
                    let (job, folder, without) = (of.job.as_str(), folder.as_path(), &without);
                    let (instance, digest) = (image, digest.as_str());
                    let arriving = arriving.as_path();
                    let wanted =
                        Wanted { job, instance, checkpoint, digest, folder, arriving, without };
                    let fetched = copies::fetch(&peers, &holders, wanted).await;
                    if let Err(mut lacking) = fetched {
                        if counts {
                            let harm = copies::harm(folder, checkpoint).await;
                            lacking.damaged.extend(harm.map(|harm| harm.at(own)));
                        }
                        return Err(Failure::Lacking(lacking));
                    }
                }
                copies::complete(&folder, checkpoint).await?;
                fault::point("fetched");
                let of_part = move || {
                    copies::place(&folder, checkpoint, user.as_ref());
                    wiring::outer_sockets(&folder, checkpoint, &assignment, part)
                };
                Ok(task::blocking(of_part).await?)
            };
            let result = result.await.map_err(Lacking::from);
            reports.event(Event::Prepared(of, result));
        });
    }

    pub(super) fn restore(&mut self, restore: Restore) {
        let Restore { order, lease_until, connections, skipped, crowded } = restore;
        let key = order.key.clone();
        let Some(served) = self.instances.get(&key) else {
            return tracing::error!(%key, "nothing serves this instance");
        };
        fault::point("rewire");
        let instance = served.instance.clone();
        let whose = self.whose(&order.user);
        let socket = served.folder.join(SOCKET);
        let mut setup = self.setup(&order, socket, lease_until, crowded);
        let image = self.parts.folders.instance(&key.job, order.image);
        let wires = self.parts.wires.clone();
        let connections = self.encrypted(connections);
        let (reports, of) = (self.parts.reports.clone(), key.clone());
        let (own, folder, checkpoint) = (self.parts.name.clone(), image.clone(), order.checkpoint);
        let without = departed(&order);
        task::spawn(async move {
            let result = async {
                let user = task::spawn_blocking(move || whose.look_up()).await??;
                setup.user = user.as_ref().map(User::order);
                copies::must_be(&image, order.checkpoint, &order.digest).await?;
                let deadline = Instant::now() + WIRE_LIMIT;
                let checkpoint = order.checkpoint;
                let made = wiring::connect(&wires, &of, &image, checkpoint, connections, deadline);
                let mut connections = made.await?;
                fault::point("rewired");
                let (folder, checkpoint) = (image.clone(), order.checkpoint);
                let alone =
                    task::blocking(move || wiring::without_peers(&folder, checkpoint, &skipped));
                let alone = alone.await?;
                connections.extend(alone.natives);
                // The same on every machine that gets a part of this image in this epoch.
                let origin =
                    format!("{}/{}@{}.{}", of.job, order.image.0, order.checkpoint, of.epoch);
                let spec = RestoreSpec {
                    checkpoint: order.checkpoint,
                    force: order.force,
                    external: setup.external,
                    window: order.window,
                    file_check: None,
                };
                let fars = alone.fars.into_iter();
                let restore = RestoreOrder {
                    image_dir: Some(image),
                    spec,
                    connections,
                    absent: fars.map(|(file, far)| (absent_end(&origin, file), far)).collect(),
                    part: Some(PartOrder {
                        assignment: order.assignment,
                        part: order.part,
                        origin,
                    }),
                    instance: Some(setup),
                };
                Ok(task::spawn_blocking(move || instance.restore(restore)).await??)
            };
            let mut result = result.await.map_err(|failure: Failure| Lacking::from(failure));
            if let Err(lacking) = &mut result {
                // Chunks are checked when they are used: so the copy may be why.
                let harm = copies::harm(&folder, checkpoint).await;
                let harm = harm.filter(|harm| !harm.spares_others(&without));
                lacking.damaged.extend(harm.map(|harm| harm.at(own)));
            }
            fault::point("restored");
            reports.tell(Report::Started(of, result));
        });
    }

    /// What an instance's init is told before it restores; its user is looked up later.
    fn setup(
        &self,
        order: &PrepareOrder,
        socket: PathBuf,
        lease_until: BootTime,
        crowded: bool,
    ) -> InstanceOrder {
        InstanceOrder {
            identity: order.key.clone(),
            host_name: order.logical_node.to_string(),
            hosts: order.hosts.to_string(),
            socket,
            calls: Some(self.calls()),
            lease_until_ns: lease_until,
            hold: true,
            root_instance: order.is_root,
            external: order.settings.external,
            user: None,
            shell: None,
            // What has moved is told before it goes.
            watch: self.watch(&order.settings, AddressMap::default()),
            crowded,
        }
    }

    /// Looks for instances that outlived the agent before.
    pub fn look_for_survivors(&self) {
        let hosts = self.hosts();
        let (folders, reports) = (self.parts.folders.clone(), self.parts.reports.clone());
        let keys = self.parts.keys.clone();
        task::spawn_blocking(move || {
            for job in folders.jobs() {
                for number in folders.instances(&job) {
                    let folder = folders.instance(&job, number);
                    let Some(mut record) = read_record(&folder.join(RECORD)) else { continue };
                    if record.uid.is_none() {
                        // Nobody but an agent of before has left it out.
                        let user = hosts.account_of(&record.user);
                        record.uid = user.ok().map(|user| own_or(user.as_ref()));
                    }
                    if record.key.job != job || record.key.instance != number {
                        continue;
                    }
                    let (told, of) = (reports.clone(), record.key.clone());
                    let report = move |event| told.event(Event::Instance(of.clone(), event));
                    let instance = match Instance::new(folder.clone(), report) {
                        Ok(instance) => instance,
                        Err(error) => {
                            tracing::error!(key = %record.key, %error, "can't be taken over");
                            continue;
                        }
                    };
                    match instance.adopt(&folder.join(SOCKET)) {
                        Ok((started, adopted)) if adopted.identity == record.key => {
                            keys.outlived(&record.key.job);
                            let found = Found { instance, record, started, adopted };
                            reports.tell(Report::Found(Box::new(found)));
                        }
                        Ok((_, adopted)) => {
                            tracing::warn!(key = %adopted.identity, "a stranger is left alone");
                        }
                        Err(reason) => {
                            tracing::debug!(key = %record.key, %reason, "nothing lives there");
                            let _ = std::fs::remove_file(folder.join(RECORD));
                        }
                    }
                }
            }
            keys.sweep();
            reports.event(Event::AllFound);
        });
    }
}

/// Processes of an image that nobody brings back.
fn departed(order: &PrepareOrder) -> BTreeSet<i32> {
    let all = order.assignment.iter();
    all.filter(|(_, part)| **part == DEPARTED).map(|(pid, _)| *pid).collect()
}

fn read_record(path: &std::path::Path) -> Option<Record> {
    use std::io::Read;
    let mut text = Vec::new();
    std::fs::File::open(path).ok()?.take(LONGEST_RECORD).read_to_end(&mut text).ok()?;
    let record: Record = protocol::json::read(&text).ok()?;
    (record.format == FORMAT).then_some(record)
}
