//! Instances: their sessions, their records, and what they are told.

use ckpt_node::{Event, Record};
use protocol::agent::AgentCommand;
use protocol::cluster::InstanceKey;

use super::Driver;
use super::failure::Failure;
use super::served::Served;
use crate::driver::instance::{Instance, InstanceError};
use crate::driver::report::Report;

impl Driver {
    /// Makes a folder and a session for a new instance.
    pub(super) fn serve(&mut self, record: &Record) -> Result<Instance, Failure> {
        let key = record.key.clone();
        let folder = self
            .parts
            .folders
            .make_instance(&key.job, key.instance)
            .map_err(Failure::system("create the instance's folder"))?;
        let (reports, of) = (self.parts.reports.clone(), key.clone());
        let report = move |event| reports.event(Event::Instance(of.clone(), event));
        let instance = Instance::new(folder.clone(), report).map_err(InstanceError::from)?;
        let served = Served::new(instance.clone(), folder);
        let written = served.write_record(record);
        written.map_err(Failure::system("write the instance's record"))?;
        // Instances that are served have the key.
        self.parts.keys.begin(&key.job)?;
        self.instances.insert(key, served);
        Ok(instance)
    }

    pub(super) fn write_record(&self, record: &Record) {
        let key = &record.key;
        self.with(key, |served| {
            if let Err(error) = served.write_record(record) {
                // The agent that takes the instance over would act on the older one.
                tracing::warn!(%key, %error, "the instance's record could not be written");
            }
        });
    }

    pub(super) fn command(&self, key: &InstanceKey, command: AgentCommand) {
        self.with(key, |served| {
            if matches!(command, AgentCommand::Freeze { .. }) {
                served.instance.session().machines(self.parts.peers.machines());
            }
            served.instance.session().command(command);
        });
    }

    /// Reports an event of the node, from a task.
    pub(super) fn reporter(&self, key: &InstanceKey) -> impl Fn(ckpt_node::RelayEvent) + use<> {
        let (reports, of) = (self.parts.reports.clone(), key.clone());
        move |event| reports.tell(Report::Relay(of.clone(), event))
    }
}
