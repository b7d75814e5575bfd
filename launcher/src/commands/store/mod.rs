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
use crate::interrupts::Interrupts;
use crate::jobs::check_name;
use crate::recipients::{Identities, Recipients};
use place::{Draft, Place};
use std::path::PathBuf;

/// What a store has of a job.
pub enum Found {
    /// Nothing: it is to begin.
    Nothing,
    /// The job, which is here now.
    Job,
    /// A signal came, before that was known or the job was here.
    Interrupted(u8),
}

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
    /// Of a job of that name; `None`: it is not to be kept. What waits for the store ends when a signal comes.
    ///
    /// # Errors
    /// Where the job has no fit name, the store can't be written to, or keys are none.
    pub fn of(
        arguments: &StoreArguments,
        name: &str,
        interrupts: &Interrupts,
    ) -> Result<Option<Self>, Failure> {
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
        let give_up = interrupts.give_up().map_err(|error| Failure::of(what(), error))?;
        Ok(Some(Self {
            name: name.to_owned(),
            place: Place::of(place, name, &give_up)?,
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
    fn has_job(&self, interrupts: &Interrupts) -> Result<bool, Failure> {
        let found = interrupts.give_up().and_then(|give_up| self.place.has_archive(&give_up));
        found.map_err(|error| {
            Failure::of(format!("look for {}", self.place.archive().display()), error)
        })
    }

    /// Brings the job here, if it is kept.
    ///
    /// # Errors
    /// Stores that do not tell, and archives that are not taken.
    pub fn bring(&self, context: &Context, interrupts: &mut Interrupts) -> Result<Found, Failure> {
        match self.has_job(interrupts) {
            Ok(true) => {}
            Ok(false) => return Ok(Found::Nothing),
            Err(failure) => return interrupts.came().map(Found::Interrupted).ok_or(failure),
        }
        let arguments = ImportArguments {
            file: self.place.archive(),
            name: Some(self.name.clone()),
            user: None,
            identity: self.identity.clone(),
        };
        match import::bring(context, &arguments, interrupts)? {
            Brought::Job { checkpoint, signal: None, .. } => {
                let archive = arguments.file.display();
                eprintln!("ckptd: the job goes on from checkpoint {checkpoint}, kept in {archive}");
                Ok(Found::Job)
            }
            Brought::Job { signal: Some(signal), .. } | Brought::Interrupted(signal) => {
                Ok(Found::Interrupted(signal))
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
            claim: self.place.claim().map(str::to_owned),
            recipients: self.recipients.clone(),
        }
    }

    /// The job has come to its end: nothing is left to go on from.
    ///
    /// # Errors
    /// Where it can't be removed.
    pub fn remove(&self) -> Result<(), Failure> {
        let interrupts = Interrupts::hold()?;
        let removed = interrupts.give_up().and_then(|give_up| self.place.remove(&give_up));
        removed.map_err(|error| {
            Failure::of(format!("remove {}", self.place.archive().display()), error)
        })
    }
}
