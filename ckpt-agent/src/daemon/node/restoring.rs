//! Instances that are brought back, and those that outlived an agent.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use protocol::cluster::InstanceKey;
use protocol::cluster::addresses::AddressBook;
use protocol::cluster::agent::{DEPARTED, FromAgent, OuterSocket, PrepareOrder, Rewire, Skipped};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::Node;
use super::instance::{Instance, RECORD, Record, SOCKET, State};
use super::launching::{own_or, user_on};
use crate::daemon::control::{Adopted, Control, RestoreSetup, Setup};
use crate::daemon::copies::{self, Lacking, Wanted};
use crate::daemon::event::Event;
use crate::daemon::wiring;
use crate::fault;

/// How long making all connections of an instance may take.
const WIRE_LIMIT: Duration = Duration::from_secs(20);
/// The longest record of an instance.
const LONGEST_RECORD: u64 = 1024 * 1024;

impl Node {
    pub(super) fn prepare(&mut self, order: PrepareOrder) {
        let key = order.key.clone();
        fault::point("prepare");
        if self.instances.contains_key(&key) {
            return tracing::warn!(%key, "the instance is here already");
        }
        if let Err(reason) = self.new_instance(Record::of_prepare(&order), State::Preparing) {
            self.instances.remove(&key);
            return self.tell(FromAgent::NotMade { key, reason });
        }
        let whose = self.whose(&order.user);
        let (folders, folder) =
            (self.parts.folders.clone(), self.parts.folders.instance(&key.job, order.image));
        let (peers, events, busy) =
            (self.parts.peers.clone(), self.parts.events.clone(), self.parts.busy.clone());
        let own = self.parts.name.clone();
        let holders: Vec<_> = order.holders.iter().filter(|node| **node != own).cloned().collect();
        let (image, checkpoint, part) = (order.image, order.checkpoint, order.part);
        let (assignment, of) = (order.assignment.clone(), key.clone());
        // A copy that lies here, but does not count, may be damaged.
        let counts = order.holders.contains(&own);
        let without = departed(&order);
        let digest = order.digest.clone();
        tokio::spawn(async move {
            let result = async {
                let user = spawn_blocking(move || whose.look_up()).await;
                let user = user.unwrap_or_else(|error| Err(error.to_string()))?;
                events.tell(Event::RunBy(of.clone(), own_or(user.as_ref())));
                // Several parts of one image may be wanted here: it is fetched once.
                let lock = busy.fetching(&folder);
                let _alone = lock.lock().await;
                let made = folders.make_instance(&of.job, image);
                made.map_err(|error| format!("create the image's folder: {error}"))?;
                let mut is_here = copies::is_here(&folder, checkpoint).await;
                if is_here && counts {
                    if let Err(reason) = copies::must_be(&folder, checkpoint, &digest).await {
                        tracing::warn!(key = %of, reason, "another copy is fetched");
                        copies::reject(&folder, checkpoint).await;
                        is_here = false;
                    }
                }
                if !is_here || !counts {
                    let (job, folder, without) = (of.job.as_str(), folder.as_path(), &without);
                    let (instance, digest) = (image, digest.as_str());
                    let wanted = Wanted { job, instance, checkpoint, digest, folder, without };
                    let fetched = copies::fetch(&peers, &holders, wanted).await;
                    if let Err(mut lacking) = fetched {
                        if counts {
                            let harm = copies::harm(folder, checkpoint).await;
                            lacking.damaged.extend(harm.map(|harm| harm.at(own)));
                        }
                        return Err(lacking);
                    }
                }
                copies::complete(&folder, checkpoint).await?;
                fault::point("fetched");
                let of_part = move || {
                    copies::place(&folder, checkpoint, user.as_ref());
                    wiring::outer_sockets(&folder, checkpoint, &assignment, part)
                };
                let sockets = spawn_blocking(of_part).await;
                Ok(sockets.unwrap_or_else(|error| Err(error.to_string()))?)
            };
            let result = result.await;
            events.tell(Event::Prepared(of, result));
        });
        if let Some(instance) = self.instances.get_mut(&key) {
            instance.prepare = Some(Box::new(order));
        }
    }

    /// Nothing is left of an instance that was to be made.
    pub(super) fn not_made(&self, key: &InstanceKey, lacking: Lacking) {
        let (key, Lacking { reason, damaged: copies }) = (key.clone(), lacking);
        self.tell(match copies.is_empty() {
            true => FromAgent::NotMade { key, reason },
            false => FromAgent::Damaged { key, copies, reason },
        });
    }

    pub(super) fn prepared(
        &mut self,
        key: &InstanceKey,
        result: Result<Vec<OuterSocket>, Lacking>,
    ) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        if instance.state != State::Preparing {
            return;
        }
        match result {
            Ok(sockets) => {
                instance.state = State::Prepared;
                self.tell(FromAgent::Prepared { key: key.clone(), sockets });
            }
            Err(lacking) => {
                self.instances.remove(key);
                self.not_made(key, lacking);
                self.check_kills();
            }
        }
    }

    pub(super) fn restore(
        &mut self,
        key: &InstanceKey,
        connections: Vec<Rewire>,
        skipped: Vec<Skipped>,
    ) {
        let Some(whose) = self.instances.get(key).map(|known| self.whose(&known.record.user))
        else {
            let reason = "it was not prepared here".to_owned();
            return self.tell(FromAgent::NotMade { key: key.clone(), reason });
        };
        let crowded = self.instances.iter().any(|(other, instance)| {
            let node = |instance: &Instance| instance.record.logical_node.clone();
            let same = || self.instances.get(key).map(node) == Some(node(instance));
            other.job == key.job && other != key && same()
        });
        let Some(instance) = self.instances.get_mut(key) else { return };
        let Some(order) = instance.prepare.clone().filter(|_| instance.state == State::Prepared)
        else {
            return;
        };
        instance.state = State::Starting;
        let socket = instance.folder.join(SOCKET);
        let control = instance.control.clone();
        fault::point("rewire");
        instance.skipped.clone_from(&skipped);
        let mut setup = Setup {
            key: key.clone(),
            host_name: order.logical_node.to_string(),
            hosts: order.hosts.clone(),
            socket,
            lease_until: self.lease.until(),
            is_root: order.is_root,
            external: order.settings.external,
            user: None,
            shell: None,
            // What has moved is told before it goes.
            watch: self.watch(&order.settings, AddressBook::default()),
            crowded,
        };
        let image = self.parts.folders.instance(&key.job, order.image);
        let wire = self.parts.wire.clone();
        let (events, of) = (self.parts.events.clone(), key.clone());
        let (own, folder, checkpoint) = (self.parts.name.clone(), image.clone(), order.checkpoint);
        let without = departed(&order);
        tokio::spawn(async move {
            let result = async {
                let user = spawn_blocking(move || whose.look_up()).await;
                setup.user = user.unwrap_or_else(|error| Err(error.to_string()))?;
                copies::must_be(&image, order.checkpoint, &order.digest).await?;
                let deadline = Instant::now() + WIRE_LIMIT;
                let mut made =
                    wiring::connect(&wire, &image, order.checkpoint, connections, deadline).await?;
                fault::point("rewired");
                let (folder, checkpoint) = (image.clone(), order.checkpoint);
                let alone =
                    spawn_blocking(move || wiring::without_peers(&folder, checkpoint, &skipped));
                let alone = alone.await.unwrap_or_else(|error| Err(error.to_string()))?;
                made.extend(alone.natives);
                let restore = RestoreSetup {
                    setup,
                    image,
                    checkpoint: order.checkpoint,
                    force: order.force,
                    window: order.window,
                    assignment: order.assignment,
                    part: order.part,
                    // The same on every machine that gets a part of this image in this epoch.
                    origin: format!(
                        "{}/{}@{}.{}",
                        of.job, order.image.0, order.checkpoint, of.epoch
                    ),
                    connections: made,
                    absent: alone.fars,
                };
                spawn_blocking(move || control.restore(restore))
                    .await
                    .unwrap_or_else(|error| Err(error.to_string()))
            };
            let mut result = result.await.map_err(Lacking::from);
            if let Err(lacking) = &mut result {
                // Chunks are checked when they are used: so the copy may be why.
                let harm = copies::harm(&folder, checkpoint).await;
                let harm = harm.filter(|harm| !harm.spares_others(&without));
                lacking.damaged.extend(harm.map(|harm| harm.at(own)));
            }
            fault::point("restored");
            events.tell(Event::Made(of, result));
        });
    }

    pub(super) fn go(&mut self, key: &InstanceKey) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        if instance.state == State::Running && !instance.held {
            return self.tell(FromAgent::Running { key: key.clone() });
        }
        if instance.state != State::Complete && !instance.held {
            return;
        }
        instance.held = false;
        fault::point("go");
        let (control, events, of) =
            (instance.control.clone(), self.parts.events.clone(), key.clone());
        tokio::task::spawn_blocking(move || events.tell(Event::Running(of, control.go())));
    }

    pub(super) fn running(&mut self, key: &InstanceKey, result: Result<(), String>) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        match result {
            Ok(()) => {
                if instance.state == State::Complete {
                    instance.state = State::Running;
                }
                self.tell(FromAgent::Running { key: key.clone() });
            }
            Err(reason) => {
                self.tell(FromAgent::NotMade { key: key.clone(), reason });
                self.kill_instances(std::slice::from_ref(key));
            }
        }
    }

    /// Looks for instances that outlived the agent before.
    pub fn look_for_survivors(&self) {
        let (name, allow_root) = (self.parts.name.clone(), self.parts.profile.allow_root);
        let (folders, start, events) = (
            self.parts.folders.clone(),
            self.parts.start_control.clone(),
            self.parts.events.clone(),
        );
        spawn_blocking(move || {
            for job in folders.jobs() {
                for number in folders.instances(&job) {
                    let folder = folders.instance(&job, number);
                    let Some(mut record) = read_record(&folder.join(RECORD)) else { continue };
                    if record.uid.is_none() {
                        // Nobody but an agent of before has left it out.
                        let user = user_on(&name, allow_root, &record.user);
                        record.uid = user.ok().map(|user| own_or(user.as_ref()));
                    }
                    if record.key.job != job || record.key.instance != number {
                        continue;
                    }
                    let (reports, of) = (events.clone(), record.key.clone());
                    let report = move |event| reports.tell(Event::Instance(of.clone(), event));
                    let Ok(control) = start(folder.clone(), Box::new(report)) else { continue };
                    match control.adopt(&folder.join(SOCKET)) {
                        Ok(adopted) if adopted.key == record.key => {
                            let record = Box::new(record);
                            events.tell(Event::Found(control, record, Box::new(adopted)));
                        }
                        Ok(adopted) => {
                            tracing::warn!(key = %adopted.key, "a stranger is left alone");
                        }
                        Err(reason) => {
                            tracing::debug!(key = %record.key, reason, "nothing lives there");
                            let _ = std::fs::remove_file(folder.join(RECORD));
                        }
                    }
                }
            }
            events.tell(Event::AllFound);
        });
    }

    pub(super) fn found(&mut self, control: Arc<dyn Control>, record: Record, adopted: Adopted) {
        let key = record.key.clone();
        tracing::info!(%key, held = adopted.held, "took over an instance that outlived its agent");
        let folder = self.parts.folders.instance(&key.job, key.instance);
        let mut instance = Instance::new(record, control, folder, State::Running);
        instance.adopted = true;
        instance.init = adopted.started.init;
        instance.held = adopted.held;
        instance.ended = adopted.ended;
        instance.end_told = adopted.ended.is_some();
        instance.empty = adopted.empty;
        instance.listeners.clone_from(&adopted.started.moved);
        instance.relays_lost = lost_with_agent(&instance.record, &adopted);
        self.instances.insert(key.clone(), instance);
        if adopted.touched {
            // Bytes or registers are lost with the agent before: it can only be rolled back.
            tracing::warn!(%key, "it cannot go on: the agent before died in the middle of a step");
            return self.kill_instances(&[key]);
        }
        if let Err(reason) = self.tie(&key, adopted.started) {
            tracing::warn!(%key, "{reason}");
            self.kill_instances(&[key]);
        }
    }

    pub(super) fn all_found(&mut self) {
        self.looked_for = true;
        if self.coordinator.is_some() {
            self.say_hello();
        }
    }
}

/// Processes of an image that nobody brings back.
fn departed(order: &PrepareOrder) -> BTreeSet<i32> {
    let all = order.assignment.iter();
    all.filter(|(_, part)| **part == DEPARTED).map(|(pid, _)| *pid).collect()
}

/// Whether bytes may have been in the agent that died: what it had read and not passed on yet.
fn lost_with_agent(record: &Record, adopted: &Adopted) -> Option<String> {
    // The link of a remote shell ends in the agent: without it, nobody learns how the program ends.
    let linked = record.shell.is_some() && !record.is_root && adopted.ended.is_none();
    let lost = linked || !adopted.started.relays.is_empty();
    lost.then(|| "the agent that carried bytes between nodes was started again".to_owned())
}

fn read_record(path: &std::path::Path) -> Option<Record> {
    use std::io::Read;
    let mut text = Vec::new();
    std::fs::File::open(path).ok()?.take(LONGEST_RECORD).read_to_end(&mut text).ok()?;
    let record: Record = protocol::json::read(&text).ok()?;
    (record.format == super::instance::FORMAT).then_some(record)
}
