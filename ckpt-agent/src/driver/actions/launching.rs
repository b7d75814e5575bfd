//! Instances that are launched, and the users of jobs on this machine.

use std::path::PathBuf;

use crate::driver::host::is_known;
use ckpt_engine::sys::standing::{acts_for_all, acts_for_all_but_root};
use ckpt_node::{Event, Lacking, Launch, Record, shell_link};
use nix::unistd::Uid;
use protocol::cluster::NodeName;
use protocol::cluster::addresses::AddressMap;
use protocol::cluster::agent::{InstanceSettings, JobUser, Takes};
use protocol::database::users::{Account, name_of};
use protocol::launch::LaunchSpec;
use protocol::task;

use super::Driver;
use super::failure::Failure;
use super::served::SOCKET;
use crate::driver::report::Report;
use crate::driver::shell_call::{self, SOCKET as SHELL_SOCKET};
use crate::driver::user::{User, UserError};
use ckpt_engine::InstanceOrder;
use ckpt_engine::late::Watch;

impl Driver {
    pub(super) fn launch(&mut self, launch: Launch) {
        let Launch { mut order, lease_until } = launch;
        let key = order.key.clone();
        let instance = match self.serve(&Record::of_launch(&order)) {
            Ok(instance) => instance,
            Err(failure) => {
                return self.events.push_back(Event::Made(key, Err(Lacking::from(failure))));
            }
        };
        let calls = self.calls();
        set(&mut order.launch, shell_call::VARIABLE, calls.clone().into_os_string());
        let is_shell = order.shell.is_some();
        if is_shell {
            // The job's first process has it from the command that runs the job.
            if let Some(baseline) = order.settings.cpu_baseline {
                baseline.hold(&mut order.launch.environment);
            }
        }
        let whose = self.whose(&order.user);
        let mut setup = InstanceOrder {
            identity: key.clone(),
            host_name: order.logical_node.to_string(),
            hosts: order.hosts.to_string(),
            socket: self.parts.folders.instance(&key.job, key.instance).join(SOCKET),
            calls: Some(calls),
            lease_until_ns: lease_until,
            hold: false,
            root_instance: order.is_root,
            external: order.settings.external,
            user: None,
            shell: is_shell.then(|| shell_link(&key)),
            watch: self.watch(&order.settings, order.addresses),
            crowded: false,
        };
        let (reports, mut launch) = (self.parts.reports.clone(), order.launch);
        task::spawn_blocking(move || {
            let result = whose.look_up().map_err(Failure::from).and_then(|user| {
                reports.event(Event::RunBy(key.clone(), own_or(user.as_ref())));
                if is_shell {
                    at_home(&mut launch, user.as_ref());
                }
                setup.user = user.as_ref().map(User::order);
                Ok(instance.launch(launch, setup)?)
            });
            reports.tell(Report::Started(key, result.map_err(Lacking::from)));
        });
    }

    /// Where `ckptd rsh` calls this agent.
    pub(super) fn calls(&self) -> PathBuf {
        self.parts.folders.dir().join(SHELL_SOCKET)
    }

    /// What an init is told of late connections.
    pub(super) fn watch(
        &self,
        settings: &InstanceSettings,
        addresses: AddressMap,
    ) -> Option<Watch> {
        let machine = self.parts.name.clone();
        settings.rewire_connect.then_some(Watch { machine, addresses })
    }

    /// For whom this node runs jobs.
    pub(super) fn hosts(&self) -> Hosts {
        let profile = &self.parts.profile;
        let shared = profile.takes == Takes::Everybody;
        Hosts { node: self.parts.name.clone(), allow_root: profile.allow_root, shared }
    }

    /// Whose processes an instance's are, to be looked up where that may take its time.
    pub(super) fn whose(&self, wanted: &JobUser) -> Whose {
        Whose { hosts: self.hosts(), wanted: wanted.clone() }
    }
}

/// A job's user on this node. A directory service may take ten seconds to say who that is, so it is never asked on
/// the event loop: heartbeats would stay away for longer than the lease.
#[derive(Debug, Clone)]
pub(super) struct Whose {
    hosts: Hosts,
    wanted: JobUser,
}

impl Whose {
    /// The user of the same name; None: this agent's own, if it is not root. Blocks.
    ///
    /// # Errors
    /// See [`UserError`].
    pub(super) fn look_up(&self) -> Result<Option<User>, UserError> {
        self.hosts.account_of(&self.wanted)
    }
}

/// As sshd sets it: the variables of the user, and a folder that is there.
fn at_home(launch: &mut LaunchSpec, user: Option<&User>) {
    let own = Account::of_uid(Uid::effective().as_raw());
    let own = own.map(|own| (own.name, own.home, own.shell));
    let of = user.map(|user| (user.name.clone(), user.home.clone(), user.shell.clone()));
    // A user whom no database knows keeps the variables that were sent.
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

/// The number of the user of an instance's processes: this process's own, where there is none.
pub(super) fn own_or(user: Option<&User>) -> u32 {
    user.map_or_else(|| Uid::effective().as_raw(), |user| user.uid)
}

/// For whom a node runs jobs, as its owner has said.
#[derive(Debug, Clone)]
pub(super) struct Hosts {
    node: NodeName,
    /// Whether an agent of root runs jobs as root.
    allow_root: bool,
    /// Whether an agent of another user runs other users' jobs, as its own user.
    shared: bool,
}

impl Hosts {
    /// The same, where only a user's own files are read: whose jobs may run here does not matter.
    pub(super) fn of_everybody(self) -> Self {
        Self { allow_root: true, shared: true, ..self }
    }

    /// Who a job's user is here; None: this process's own user. Blocks.
    ///
    /// # Errors
    /// See [`UserError`].
    pub(super) fn account_of(&self, wanted: &JobUser) -> Result<Option<User>, UserError> {
        let node = &self.node;
        let own = Uid::effective();
        if !acts_for_all() {
            let name = name_of(own.as_raw());
            return match self.shared || wanted.name == name {
                true => Ok(None),
                false => Err(UserError::Alone { node: node.clone(), name }),
            };
        }
        let known = Account::of_name(&wanted.name);
        let known = match known {
            Some(known) => known,
            None => Account::of_uid(wanted.uid)
                .filter(|_| wanted.name == wanted.uid.to_string())
                .ok_or_else(|| {
                let (name, node) = (wanted.name.clone(), node.clone());
                UserError::Unknown { name, node }
            })?,
        };
        if acts_for_all_but_root() && !is_known(known.uid) {
            return Err(UserError::Numberless { node: node.clone(), name: known.name });
        }
        if known.uid == 0 {
            return match self.allow_root {
                true => Ok(None),
                false => Err(UserError::Root(node.clone())),
            };
        }
        let groups = known
            .groups()
            .map_err(|source| UserError::Groups { name: known.name.clone(), source })?;
        Ok(Some(User {
            name: known.name,
            uid: known.uid,
            gid: known.gid,
            groups,
            home: known.home,
            shell: known.shell,
        }))
    }
}
