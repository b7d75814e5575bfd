//! Instances that are started, and what is tied to their streams.

use std::sync::Arc;

use nix::unistd::Uid;
use protocol::cluster::addresses::AddressBook;
use protocol::cluster::agent::{FromAgent, InstanceSettings, JobUser, LaunchOrder, RelayLink};
use protocol::cluster::baseline::Baseline;
use protocol::cluster::{InstanceKey, NodeName};
use protocol::database::users::Account;
use protocol::launch::LaunchSpec;

use super::Node;
use super::instance::{Instance, Record, SOCKET, State};
use crate::daemon::console::{self, Keeps};
use crate::daemon::control::{Control, RelayEnd, Setup, Started, User};
use crate::daemon::copies::Lacking;
use crate::daemon::event::Event;
use crate::daemon::folders::is_job_id;
use crate::daemon::relay::{self, Carried, Order};
use crate::daemon::shell_call::{self, SOCKET as SHELL_SOCKET};
use crate::engine::late::Watch;

impl Node {
    pub(super) fn launch(&mut self, mut order: LaunchOrder) {
        let key = order.key.clone();
        if let Some(known) = self.instances.get(&key) {
            tracing::warn!(%key, state = ?known.state, "the instance is here already");
            return;
        }
        let suits = self.holds(order.settings.cpu_baseline);
        let made =
            suits.and_then(|()| self.new_instance(Record::of_launch(&order), State::Starting));
        let control = match made {
            Ok(made) => made,
            Err(reason) => {
                self.instances.remove(&key);
                return self.tell(FromAgent::NotMade { key, reason });
            }
        };
        let socket = self.parts.folders.dir().join(SHELL_SOCKET);
        set(&mut order.launch, shell_call::VARIABLE, socket.into_os_string());
        let is_shell = order.shell.is_some();
        if is_shell {
            // The job's first process has it from the command that runs the job.
            if let Some(baseline) = order.settings.cpu_baseline {
                baseline.hold(&mut order.launch.environment);
            }
        }
        let whose = self.whose(&order.user);
        let mut setup = Setup {
            key: key.clone(),
            host_name: order.logical_node.to_string(),
            hosts: order.hosts,
            socket: self.parts.folders.instance(&key.job, key.instance).join(SOCKET),
            lease_until: self.lease.until(),
            is_root: order.is_root,
            external: order.settings.external,
            user: None,
            shell: order.shell.as_ref().map(|_| shell_link(&key)),
            watch: self.watch(&order.settings, order.book),
            crowded: false,
        };
        let (events, mut launch) = (self.parts.events.clone(), order.launch);
        tokio::task::spawn_blocking(move || {
            let result = whose.look_up().and_then(|user| {
                events.tell(Event::RunBy(key.clone(), own_or(user.as_ref())));
                if is_shell {
                    at_home(&mut launch, user.as_ref());
                }
                setup.user = user;
                control.launch(launch, setup)
            });
            events.tell(Event::Made(key, result.map_err(Lacking::from)));
        });
    }

    /// Whether this machine has what the job's processes are promised.
    fn holds(&self, wanted: Option<Baseline>) -> Result<(), String> {
        let lacking = wanted.and_then(|wanted| {
            wanted.lacking(&self.parts.profile.features).map(|feature| (wanted, feature))
        });
        lacking.map_or(Ok(()), |(wanted, feature)| {
            Err(format!("its CPU lacks {feature}, which is part of {wanted} (--cpu-baseline)"))
        })
    }

    /// What an init is told of late connections.
    pub(super) fn watch(&self, settings: &InstanceSettings, book: AddressBook) -> Option<Watch> {
        let machine = self.parts.name.clone();
        settings.rewire_connect.then_some(Watch { machine, book })
    }

    /// A folder and a hand for a new instance.
    pub(super) fn new_instance(
        &mut self,
        record: Record,
        state: State,
    ) -> Result<Arc<dyn Control>, String> {
        let key = record.key.clone();
        if !is_job_id(&key.job) {
            return Err(format!("{:?} is no job's id", key.job));
        }
        let folder = self
            .parts
            .folders
            .make_instance(&key.job, key.instance)
            .map_err(|error| format!("create the instance's folder: {error}"))?;
        let (events, of) = (self.parts.events.clone(), key.clone());
        let report = move |event| events.tell(Event::Instance(of.clone(), event));
        let control = (self.parts.start_control)(folder.clone(), Box::new(report))?;
        let instance = Instance::new(record, control.clone(), folder, state);
        instance.write_record().map_err(|error| format!("write the instance's record: {error}"))?;
        self.instances.insert(key, instance);
        Ok(control)
    }

    /// Whose processes an instance's are, to be looked up where that may take its time.
    pub(super) fn whose(&self, wanted: &JobUser) -> Whose {
        let (node, allow_root) = (self.parts.name.clone(), self.parts.profile.allow_root);
        Whose { node, allow_root, wanted: wanted.clone() }
    }

    /// Who runs an instance has been looked up.
    pub(super) fn run_by(&mut self, key: &InstanceKey, uid: u32) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        instance.record.uid = Some(uid);
        if let Err(error) = instance.write_record() {
            // The agent that takes the instance over would look the user up again.
            tracing::warn!(%key, %error, "the instance's record could not be written");
        }
    }

    pub(super) fn made(&mut self, key: &InstanceKey, result: Result<Started, Lacking>) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        let started = match result {
            Ok(started) => started,
            Err(lacking) => {
                let dying = instance.state == State::Dying;
                self.instances.remove(key);
                self.parts.hub.forget(key);
                if !dying {
                    self.not_made(key, lacking);
                }
                return self.check_kills();
            }
        };
        instance.init = started.init;
        instance.listeners.clone_from(&started.moved);
        if instance.state == State::Dying {
            return self.finish_off(key);
        }
        let is_restored = instance.prepare.is_some();
        instance.state = if is_restored { State::Complete } else { State::Running };
        instance.control.lease(self.lease.until());
        let root = started.root.unwrap_or_default();
        let sinks = started.sinks.iter().map(|(side, _)| side.clone());
        let sides = started.relays.iter().map(|end| end.side.clone()).chain(sinks).collect();
        let outputs = started.outputs.clone();
        let (moved, warnings) = (started.moved.clone(), started.warnings.clone());
        if let Err(reason) = self.tie(key, started) {
            self.tell(FromAgent::NotMade { key: key.clone(), reason });
            return self.kill_instances(std::slice::from_ref(key));
        }
        if is_restored {
            let (key, listeners) = (key.clone(), moved);
            self.tell(FromAgent::Restored { key, relays: sides, outputs, listeners, warnings });
        } else {
            self.tell(FromAgent::Launched { key: key.clone(), root });
            warnings.into_iter().for_each(|text| self.warn(key, text));
        }
        // Where it was over before this was known here.
        if self.instances.get(key).is_some_and(|instance| instance.empty) {
            self.emptied(key);
        }
    }

    /// Ties an instance's streams and relays to what carries them.
    pub(super) fn tie(&mut self, key: &InstanceKey, started: Started) -> Result<(), String> {
        let Some(instance) = self.instances.get(key) else { return Ok(()) };
        let failed = |error: std::io::Error| format!("carry the streams of {key}: {error}");
        let mut handles = Vec::new();
        let caller = instance.record.shell.clone().filter(|_| !instance.adopted);
        let (events, of) = (self.parts.events.clone(), key.clone());
        let report = move |report| events.tell(Event::Console(of.clone(), report));
        let keeps = match (instance.record.is_root, instance.adopted) {
            (false, _) => Keeps::Nothing,
            (true, false) => Keeps::All,
            (true, true) => Keeps::Continued,
        };
        let console = console::start(started.console, keeps, report).map_err(failed)?;
        for end in started.relays {
            // Of a launched one all relays lead to the shell; others are told of theirs.
            let link = caller.as_ref().map(|call| RelayLink {
                side: end.side.clone(),
                peer: call.caller.clone(),
                node: call.node.clone(),
            });
            handles.push(self.carry(key, end, link).map_err(failed)?);
        }
        let absent = self.hold_absent(key, started.absent).map_err(failed)?;
        let shell = started.shell_link.map(|link| self.serve_shell(key, link)).transpose();
        let shell = shell.map_err(failed)?;
        if let Some(instance) = self.instances.get_mut(key) {
            instance.shell = shell;
            instance.absent = absent;
            for link in std::mem::take(&mut instance.links) {
                match handles.iter().find(|relay| relay.side == link.side) {
                    Some(relay) => relay.order(Order::Link(link)),
                    None => instance.links.push(link),
                }
            }
            instance.relays.extend(handles);
            instance.console = console;
            instance.tell_shell();
        }
        for (side, prefix) in started.sinks {
            self.sink(key, side, prefix, None).map_err(failed)?;
        }
        Ok(())
    }

    pub(super) fn carry(
        &self,
        key: &InstanceKey,
        end: RelayEnd,
        link: Option<RelayLink>,
    ) -> std::io::Result<relay::RelayHandle> {
        let (events, of) = (self.parts.events.clone(), key.clone());
        let report = move |event| events.tell(Event::Relay(of.clone(), event));
        let RelayEnd { side, kind, native, shared, gated, prefix } = end;
        let carried = Carried { key: key.clone(), side, kind, prefix, link, gated };
        relay::start(&self.parts.hub, carried, native, shared, report)
    }
}

/// A job's user on this node. A directory service may take ten seconds to say who that is, so it is never asked on
/// the event loop: heartbeats would stay away for longer than the lease.
#[derive(Debug, Clone)]
pub(super) struct Whose {
    node: NodeName,
    allow_root: bool,
    wanted: JobUser,
}

impl Whose {
    /// The user of the same name; None: this agent's own, if it is not root. Blocks.
    ///
    /// # Errors
    /// One line.
    pub(super) fn look_up(&self) -> Result<Option<User>, String> {
        user_on(&self.node, self.allow_root, &self.wanted)
    }
}

/// As sshd sets it: the variables of the user, and a folder that is there.
fn at_home(launch: &mut LaunchSpec, user: Option<&User>) {
    let own = Account::of_uid(Uid::effective().as_raw());
    let own = own.map(|own| (own.name, own.home, own.shell));
    let of = user.map(|user| (user.name.clone(), user.home.clone(), user.shell.clone()));
    let Some((name, home, shell)) = of.or(own) else { return };
    set(launch, "USER", name.clone().into());
    set(launch, "LOGNAME", name.into());
    set(launch, "HOME", home.clone().into_os_string());
    set(launch, "SHELL", shell.into_os_string());
    if !launch.working_directory.is_dir() {
        launch.working_directory = if home.is_dir() { home } else { "/".into() };
    }
}

/// Sets a variable.
fn set(launch: &mut LaunchSpec, name: &str, value: std::ffi::OsString) {
    launch.environment.retain(|(known, _)| known != name);
    launch.environment.push((name.into(), value));
}

/// Name of the link between a process that called `ckptd rsh` and the instance that this began: what
/// belongs to it keeps that name through all rollbacks.
#[must_use]
pub fn shell_link(instance: &InstanceKey) -> String {
    format!("{}/{}#link", instance.job, instance.instance.0)
}

/// The number of the user of an instance's processes: this process's own, where there is none.
pub(super) fn own_or(user: Option<&User>) -> u32 {
    user.map_or_else(|| Uid::effective().as_raw(), |user| user.uid)
}

/// Who that user is on a node; None: this process's own.
///
/// # Errors
/// One line.
pub(super) fn user_on(
    node: &NodeName,
    allow_root: bool,
    wanted: &JobUser,
) -> Result<Option<User>, String> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    let known = Account::of_name(&wanted.name);
    let known = match known {
        Some(known) => known,
        None => Account::of_uid(wanted.uid)
            .filter(|_| wanted.name == wanted.uid.to_string())
            .ok_or_else(|| format!("there is no user {:?} on {node}", wanted.name))?,
    };
    if known.uid == 0 {
        let refused = || format!("{node} runs no jobs as root; start its agent with --allow-root");
        return if allow_root { Ok(None) } else { Err(refused()) };
    }
    let groups =
        known.groups().map_err(|error| format!("find the groups of {}: {error}", known.name))?;
    Ok(Some(User {
        name: known.name,
        uid: known.uid,
        gid: known.gid,
        groups,
        home: known.home,
        shell: known.shell,
    }))
}
