//! Images of a job from an archive: they are taken over from the folder of the user who imports it, and get their place only
//! when all of them have been checked.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use ckpt_node::Event;
use protocol::agent::InstanceId;
use protocol::cluster::image::ImageFacts;
use protocol::cluster::portable::AdoptOrder;
use protocol::task;

use super::Driver;
use super::failure::Failure;
use crate::driver::copies;
use crate::driver::folders::Folders;
use crate::driver::keys::Keys;
use crate::driver::user::User;
use ckpt_engine::fault;

impl Driver {
    pub(super) fn adopt(&mut self, order: AdoptOrder) {
        let (folders, reports) = (self.parts.folders.clone(), self.parts.reports.clone());
        let (hosts, keys) = (self.hosts().of_everybody(), self.parts.keys.clone());
        let (client, job) = (order.client, order.job.clone());
        task::spawn(async move {
            let adopted = task::blocking(move || {
                let user = hosts.account_of(&order.user)?;
                adopt(&folders, &keys, &order, user.as_ref())
            });
            let result = adopted.await.map_err(|failure| failure.to_string());
            reports.event(Event::Adopted(client, job, result));
        });
    }
}

/// A job's folder that is not one yet. Dropped, it is removed.
struct Incoming(PathBuf);

impl Incoming {
    fn new(folders: &Folders, job: &str) -> Result<Self, Failure> {
        let path = folders.incoming(job);
        let failed = |source| create_failed(&path, source);
        if let Some(parent) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(failed)?;
        }
        DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        Ok(Self(path))
    }

    /// Gives it its place, where nothing may be.
    fn publish(self, place: &Path) -> Result<(), Failure> {
        let failed = |source| create_failed(place, source);
        // rename(2) would take the place of an empty folder.
        if fs::symlink_metadata(place).is_ok() {
            return Err(Failure::Occupied(place.to_owned()));
        }
        fs::rename(&self.0, place).map_err(failed)?;
        let synced = place.parent().map_or(Ok(()), |above| File::open(above)?.sync_all());
        synced.map_err(failed)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // After it has its place there is nothing left here.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn create_failed(path: &Path, source: io::Error) -> Failure {
    Failure::System { what: format!("create {}", path.display()), source }
}

fn adopt(
    folders: &Folders,
    keys: &Keys,
    order: &AdoptOrder,
    user: Option<&User>,
) -> Result<BTreeMap<InstanceId, ImageFacts>, Failure> {
    let incoming = Incoming::new(folders, &order.job)?;
    keys.write_to(&incoming.0, &order.job)?;
    let mut room = ckpt_store::archive::free(&incoming.0).map_err(Failure::FreeSpace)?;
    let instances = incoming.0.join("instances");
    let mut facts = BTreeMap::new();
    for (instance, digest) in &order.images {
        let from = Path::new(&order.folder).join(instance.0.to_string());
        let to = instances.join(instance.0.to_string());
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&to);
        made.map_err(|source| create_failed(&to, source))?;
        let (record, callers) = (&order.record, order.callers);
        let taken = copies::take_over(&from, &to, user, record, digest, callers, &mut room);
        let failed = |source| Failure::OfInstance { instance: *instance, source };
        facts.insert(*instance, taken.map_err(failed)?);
    }
    // Nothing of the job runs here.
    ckpt_store::forget_key(&incoming.0)?;
    fault::point("adopted");
    incoming.publish(&folders.job(&order.job))?;
    Ok(facts)
}
