//! Where a job is kept between two runs, such as two allocations: an archive of its newest checkpoint.
//!
//! - `place`: a folder (`folder`) or a bucket of S3.
//! - `beside`: checkpoints that go there while the job runs; which ones, `turns` decides.

mod beside;
mod folder;
mod place;
mod turns;

pub use beside::Beside;

use super::import::Brought;
use super::{Context, export, import};
use crate::cli::{ExportArguments, ImportArguments, RecipientArguments, StoreArguments};
use crate::failure::Failure;
use crate::jobs::check_name;
use crate::recipients::{Identities, Recipients};
use place::{Draft, Place};
use std::path::PathBuf;

/// Where a job is kept.
#[derive(Debug)]
pub struct Store {
    name: String,
    place: Place,
    every: Option<u32>,
    recipients: RecipientArguments,
    identity: Vec<PathBuf>,
}

impl Store {
    /// Of a job of that name; `None`: it is not to be kept.
    ///
    /// # Errors
    /// Where the job has no fit name, the store can't be written to, or keys are none.
    pub fn of(arguments: &StoreArguments, name: &str) -> Result<Option<Self>, Failure> {
        let StoreArguments { store, store_every, recipients, identity } = arguments;
        let Some(place) = store else {
            let has_keys =
                !recipients.recipient.is_empty() || !recipients.recipients_file.is_empty();
            if has_keys {
                let text = "wrong usage: --recipient is for what is in a --store";
                return Err(Failure::Usage(text.to_owned()));
            }
            return Ok(None);
        };
        if let Err(error) = check_name(name) {
            return Err(Failure::Usage(format!(
                "wrong usage: {name:?}: {error}: with --store, give the job a --name"
            )));
        }
        // Told before the job begins.
        let what = || format!("keep jobs in {}", place.display());
        let recipients_there = Recipients::named(recipients);
        recipients_there.map_err(|error| Failure::of(what(), error))?;
        Identities::of(identity).map_err(|error| Failure::of(what(), error))?;
        Ok(Some(Self {
            name: name.to_owned(),
            place: Place::of(place, name)?,
            every: *store_every,
            recipients: recipients.clone(),
            identity: identity.clone(),
        }))
    }

    /// What the job is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether there is something to go on from.
    ///
    /// # Errors
    /// Where the store does not tell: a job that began anew would overwrite it.
    pub fn has_job(&self) -> Result<bool, Failure> {
        let what = || format!("look for {}", self.place.archive().display());
        self.place.has_archive().map_err(|error| Failure::of(what(), error))
    }

    /// Brings the job here.
    ///
    /// # Errors
    /// Archives that are not taken.
    pub fn bring(&self, context: &Context) -> Result<(), Failure> {
        let arguments = ImportArguments {
            file: self.place.archive(),
            name: Some(self.name.clone()),
            user: None,
            identity: self.identity.clone(),
        };
        match import::bring(context, &arguments)? {
            Brought::Job { checkpoint, .. } => {
                let archive = arguments.file.display();
                eprintln!("ckptd: the job goes on from checkpoint {checkpoint}, kept in {archive}");
                Ok(())
            }
            Brought::Interrupted(signal) => {
                Err(Failure::of(format!("bring {}", self.name), format!("signal {signal} came")))
            }
        }
    }

    /// Keeps the job's newest checkpoint: the one before stays until this one is whole and durable.
    ///
    /// # Errors
    /// Full disks and their like.
    pub fn keep(&self, context: &Context) -> Result<(), Failure> {
        let archive = self.place.archive();
        let what = format!("keep {} in {}", self.name, archive.display());
        let draft = self.place.draft().map_err(|error| Failure::of(&what, error))?;
        let status = export::perform(context, &self.export(&self.name, &draft))?;
        if status != 0 {
            return Err(Failure::of(what, format!("the export ended with {status}")));
        }
        self.place.replace(draft).map_err(|error| Failure::of(&what, error))?;
        eprintln!("ckptd: the job is kept in {}", archive.display());
        Ok(())
    }

    /// What `export` takes for that.
    fn export(&self, job: &str, draft: &Draft) -> ExportArguments {
        ExportArguments {
            job: job.to_owned(),
            file: draft.target(),
            replace: true,
            beside_job: false,
            urgent: false,
            recipients: self.recipients.clone(),
        }
    }

    /// The job has come to its end: nothing is left to go on from.
    ///
    /// # Errors
    /// Where it can't be removed.
    pub fn remove(&self) -> Result<(), Failure> {
        let what = || format!("remove {}", self.place.archive().display());
        self.place.remove().map_err(|error| Failure::of(what(), error))
    }
}
