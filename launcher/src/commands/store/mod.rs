//! Where a job is kept between two runs, such as two allocations: an archive of its newest checkpoint.
//!
//! - `place`: a folder (`folder`) or a bucket of S3.
//! - `kept`: how a job runs that is kept.
//! - `beside`: checkpoints that go there while the job runs; which ones, `turns` decides.
//! - `patience`: the last one, where the store fails.

mod beside;
mod folder;
pub mod kept;
mod patience;
mod place;
mod turns;

pub use beside::Beside;

use super::import::Brought;
use super::{Context, clustered, export, import};
use crate::cli::{ExportArguments, ImportArguments, RecipientArguments, StoreArguments};
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::jobs::{JobError, check_name};
use crate::recipients::{Identities, Recipients};
use place::{Draft, Place};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Names and ids of all jobs that are here.
fn taken_names(context: &Context) -> Result<BTreeSet<String>, Failure> {
    let cluster = context.cluster()?;
    let own = match context.state.jobs(|_| {}) {
        // The folder may be the agent's alone: then no command of this user finds a job there.
        Err(_) if cluster.is_some() => Vec::new(),
        own => own?,
    };
    let mut names: BTreeSet<String> =
        own.iter().flat_map(|job| [job.name().to_owned(), job.id().to_owned()]).collect();
    if let Some(cluster) = cluster {
        let listed = clustered::jobs(&cluster)?;
        for job in listed.as_array().into_iter().flatten() {
            let words = ["name", "id"].into_iter().filter_map(|key| job.get(key)?.as_str());
            names.extend(words.map(str::to_owned));
        }
    }
    Ok(names)
}

/// Refuses keys for what is nowhere.
fn refuse_lone_keys(arguments: &StoreArguments) -> Result<(), Failure> {
    if arguments.has_lone_keys() {
        let text = "wrong usage: --recipient is for what is in a --store";
        return Err(Failure::Usage(text.to_owned()));
    }
    Ok(())
}

/// Refuses to keep a job that has no name, or one that is none.
fn fit_name(name: &str) -> Result<(), Failure> {
    let cause = match check_name(name) {
        Ok(()) => return Ok(()),
        Err(_) if name.is_empty() => "with --store, give the job a --name".to_owned(),
        Err(JobError::BadName { reason, .. }) => {
            format!(
                "{name:?} is no name of a job: {reason}; with --store, give the job a fit --name"
            )
        }
        Err(error) => return Err(error.into()),
    };
    Err(Failure::Usage(format!("wrong usage: {cause}")))
}

/// What a store has of a job.
pub enum Found {
    /// Nothing: it is to begin.
    Nothing,
    /// The job, which is here now.
    Job,
    /// A signal came, before that was known or the job was here.
    Interrupted(u8),
}

/// Why a job's checkpoint is not in its store.
#[derive(Debug)]
pub enum Unkept {
    /// By a signal to this process.
    Interrupted(Failure),
    /// The store fails.
    Failed(Failure),
}

impl From<Failure> for Unkept {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Unkept> for Failure {
    fn from(unkept: Unkept) -> Self {
        match unkept {
            Unkept::Interrupted(failure) | Unkept::Failed(failure) => failure,
        }
    }
}

/// Where a job is kept.
#[derive(Debug)]
pub struct Store {
    /// What the job is called there.
    name: String,
    /// What it is called here.
    here: String,
    place: Place,
    every: Option<u32>,
    recipients: RecipientArguments,
    identity: Vec<PathBuf>,
    /// Whether it is told that there is nothing to go on from.
    expects_job: bool,
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
            return refuse_lone_keys(arguments).map(|()| None);
        };
        fit_name(name)?;
        // Told before the job begins.
        let what = || format!("keep jobs in {}", place.display());
        let recipients_there = Recipients::named(recipients);
        recipients_there.map_err(|error| Failure::of(what(), error))?;
        Identities::of(identity).map_err(|error| Failure::of(what(), error))?;
        let give_up = interrupts.give_up().map_err(|error| Failure::of(what(), error))?;
        Ok(Some(Self {
            name: name.to_owned(),
            here: name.to_owned(),
            place: Place::of(place, name, &give_up)?,
            every: *store_every,
            recipients: recipients.clone(),
            identity: identity.clone(),
            expects_job: false,
        }))
    }

    /// The same, where the job has run before: if nothing of it is there, that is told.
    pub fn expecting_job(self) -> Self {
        Self { expects_job: true, ..self }
    }

    /// The same, where other jobs may be: the job gets a name here that none of them has. One that a killed run has left
    /// stays as it is: whether it or what is in the store is newer is not known.
    ///
    /// # Errors
    /// Where jobs can't be listed.
    pub fn beside_others(mut self, context: &Context) -> Result<Self, Failure> {
        let taken = taken_names(context)?;
        let mut number = 1_u32;
        while taken.contains(&self.here) {
            number += 1;
            self.here = format!("{}.{number}", self.name);
        }
        if number > 1 {
            let (name, here) = (&self.name, &self.here);
            eprintln!("ckptd: a job {name} is here already: this one is called {here} here");
        }
        Ok(self)
    }

    /// What the job is called here.
    pub fn here(&self) -> &str {
        &self.here
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

    /// Whether there is nothing to go on from, as far as the store tells.
    pub fn is_empty(&self) -> bool {
        let has_job = Interrupts::hold().and_then(|interrupts| self.has_job(&interrupts));
        has_job.is_ok_and(|has_job| !has_job)
    }

    /// Brings the job here, if it is kept.
    ///
    /// # Errors
    /// Stores that do not tell, and archives that are not taken.
    pub fn bring(&self, context: &Context, interrupts: &mut Interrupts) -> Result<Found, Failure> {
        match self.has_job(interrupts) {
            Ok(true) => {}
            Ok(false) => {
                if self.expects_job {
                    let archive = self.place.archive();
                    eprintln!(
                        "ckptd: {} is not there: the job begins anew, though it has run before",
                        archive.display()
                    );
                }
                return Ok(Found::Nothing);
            }
            Err(failure) => return interrupts.came().map(Found::Interrupted).ok_or(failure),
        }
        let arguments = ImportArguments {
            file: self.place.archive(),
            name: Some(self.here.clone()),
            user: None,
            identity: self.identity.clone(),
        };
        match import::bring(context, &arguments, interrupts)? {
            Brought::Job { checkpoint, signal: None, .. } => {
                let archive = arguments.file.display();
                eprintln!("ckptd: the job goes on from checkpoint {checkpoint}, kept in {archive}");
                Ok(Found::Job)
            }
            Brought::Job { signal: Some(signal), .. } => {
                // As it is in the store.
                kept::forget(context, &self.here);
                Ok(Found::Interrupted(signal))
            }
            Brought::Interrupted(signal) => Ok(Found::Interrupted(signal)),
        }
    }

    /// Keeps the job's newest checkpoint: the one before stays until this one is whole and durable.
    ///
    /// # Errors
    /// Full disks and their like.
    pub fn keep(&self, context: &Context) -> Result<(), Unkept> {
        let archive = self.place.archive();
        let what = format!("keep {} in {}", self.name, archive.display());
        let draft = self.place.draft().map_err(|error| Failure::of(&what, error))?;
        let status = export::perform(context, &self.export(&draft))?;
        if status != 0 {
            // A signal has ended it, as it has told.
            let ended = Failure::of(what, format!("the export ended with {status}"));
            return Err(Unkept::Interrupted(ended));
        }
        self.place.replace(draft).map_err(|error| Failure::of(&what, error))?;
        eprintln!("ckptd: the job is kept in {}", archive.display());
        Ok(())
    }

    /// What `export` takes for that.
    fn export(&self, draft: &Draft) -> ExportArguments {
        ExportArguments {
            job: self.here.clone(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_is_kept_has_a_fit_name() {
        fit_name("simulate").unwrap();
        let said = |name: &str| {
            let failure = fit_name(name).unwrap_err();
            assert_eq!(failure.exit_status(), 2);
            failure.to_string()
        };
        assert_eq!(said(""), "wrong usage: with --store, give the job a --name");
        assert_eq!(
            said("a b"),
            "wrong usage: \"a b\" is no name of a job: only letters, digits, '.', '_' and '-' are allowed; with --store, \
             give the job a fit --name"
        );
    }
}
