//! `ckptd import`.

mod alone;
mod promoted;
mod to_cluster;

use super::{Context, print};
use crate::bucket::{Address, BucketError, Download, GiveUp};
use crate::cli::ImportArguments;
use crate::client::link::LinkError;
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::jobs::{Incoming, JobError, JobRecord, RecordError, Wanted};
use crate::progress::{Bar, Unit};
use crate::recipients::{Identities, KeyError, Opened};
use ckpt_agent::images::CopyError;
use ckpt_store::CommitMark;
use ckpt_store::archive::{ArchiveError, Import, Interrupted, free};
use protocol::agent::{CommitRecord, InstanceId};
use protocol::cluster::image_key::{Encryption, JobKey};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

/// What the job is to become.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// Its name; None: the one that it had.
    pub name: Option<&'a str>,
    /// Whose it is to be; None: whoever imports it.
    pub user: Option<&'a str>,
}

/// The exit status; that of a signal if one came.
pub fn perform(context: &Context, arguments: &ImportArguments) -> Result<u8, Failure> {
    // Before threads are made.
    let mut interrupts = Interrupts::hold()?;
    match bring(context, arguments, &mut interrupts)? {
        Brought::Interrupted(signal) => Ok(128 + signal),
        Brought::Job { name, checkpoint, .. } => {
            let resume = context.resume_command(&name);
            eprintln!("ckptd: checkpoint {checkpoint} is here; go on from it with: {resume}");
            print(&format!("{name}\n"))?;
            Ok(0)
        }
    }
}

/// What has become of an import.
pub enum Brought {
    /// The job is here.
    Job {
        /// What it is called here.
        name: String,
        /// Its checkpoint.
        checkpoint: u64,
        /// A signal that came too late to interrupt it.
        signal: Option<u8>,
    },
    /// A signal came.
    Interrupted(u8),
}

/// Brings a job here, unless a signal comes.
///
/// # Errors
/// Archives that are not taken.
pub fn bring(
    context: &Context,
    arguments: &ImportArguments,
    interrupts: &mut Interrupts,
) -> Result<Brought, Failure> {
    let file = &*arguments.file;
    let what = format!("import {}", file.display());
    let identities =
        Identities::of(&arguments.identity).map_err(|error| Failure::of(&what, error))?;
    let wish = Wish { name: arguments.name.as_deref(), user: arguments.user.as_deref() };
    let give_up = interrupts.give_up().map_err(|error| Failure::of(&what, error))?;
    let (opened, download) = match open(file, &give_up) {
        Ok(opened) => opened,
        Err(error) => return interrupted(interrupts, Failure::of(&what, error)),
    };
    let from = interrupts.reader(opened).map_err(|error| Failure::of(&what, error))?;
    let bar = Bar::new(file.display().to_string(), Unit::Bytes, None);
    let mut signal = None;
    let result = take(context, wish, (from, identities.as_ref()), &mut |bytes| {
        bar.inc(bytes);
        signal = interrupts.came();
        if signal.is_some() { Err(Interrupted) } else { Ok(()) }
    });
    bar.finish();
    let signal = signal.or_else(|| interrupts.came());
    let result = match (result, download) {
        // If the way here was what failed, that says more.
        (Err(refusal), Some(download)) if signal.is_none() => {
            Err(download.end().map_or_else(Refusal::Bucket, |()| refusal))
        }
        (result, _) => result,
    };
    match (result, signal) {
        (Err(refusal), Some(signal)) => {
            eprintln!("ckptd: {}", Failure::of(what, refusal));
            Ok(Brought::Interrupted(signal))
        }
        (Err(refusal), None) => Err(Failure::of(what, refusal)),
        (Ok((name, checkpoint)), signal) => Ok(Brought::Job { name, checkpoint, signal }),
    }
}

/// What a failure is whose cause may be a signal.
fn interrupted(interrupts: &mut Interrupts, failure: Failure) -> Result<Brought, Failure> {
    let Some(signal) = interrupts.came() else { return Err(failure) };
    eprintln!("ckptd: {failure}");
    Ok(Brought::Interrupted(signal))
}

/// The archive, and what brings it here if it is in a bucket.
fn open(file: &Path, give_up: &GiveUp) -> Result<(File, Option<Download>), BucketError> {
    if file == Path::new("-") {
        return Ok((io::stdin().as_fd().try_clone_to_owned().map(File::from)?, None));
    }
    match Address::of(file)? {
        Some(object) => {
            let (opened, download) = Download::begin(&object, give_up)?;
            Ok((opened, Some(download)))
        }
        None => Ok((File::open(file)?, None)),
    }
}

type Watch<'a> = &'a mut dyn FnMut(u64) -> Result<(), Interrupted>;

/// Why an archive is not taken; the text is a cause.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{0}")]
    Bucket(BucketError),
    #[error("{0}")]
    Archive(#[from] ArchiveError),
    #[error("{0}")]
    Key(#[from] KeyError),
    #[error("failed to {0}")]
    Job(#[from] JobError),
    #[error("failed to {0}")]
    Store(#[from] ckpt_store::StoreError),
    #[error("{0}")]
    Unfit(String),
    #[error(
        "this machine belongs to no cluster, so the job is to be whoever's imports it: leave --user away"
    )]
    User,
    #[error("its job.json: {0}")]
    Record(#[from] RecordError),
    #[error("the record of its commit is not one: {0}")]
    NoCommit(#[source] serde_json::Error),
    #[error(
        "the record of its commit has format {0}, this ckptd knows up to {known}; use a newer ckptd",
        known = CommitRecord::FORMAT
    )]
    NewerCommit(u32),
    #[error("the record of its commit is that of another checkpoint")]
    OtherCommit,
    #[error("{0}")]
    Cluster(#[from] Failure),
    #[error("{0}")]
    Link(#[from] LinkError),
    #[error("failed to read the log that came with it: {0}")]
    Log(io::Error),
    #[error("failed to create a folder: {0}")]
    Folder(io::Error),
    #[error("its image: {0}")]
    Image(#[from] CopyError),
    #[error("failed to describe it to the cluster: {0}")]
    Description(serde_json::Error),
}

fn take(
    context: &Context,
    wish: Wish<'_>,
    (from, identities): (impl Read, Option<&Identities>),
    watch: &mut dyn FnMut(u64) -> Result<(), Interrupted>,
) -> Result<(String, u64), Refusal> {
    let opened = Opened::of(from, identities)?;
    if identities.is_some() && matches!(opened, Opened::Plain(_)) {
        eprintln!("ckptd: the archive is not encrypted: --identity is not needed");
    }
    let import = Import::open(opened)?;
    if !import.about().instances.is_empty() {
        return to_cluster::take(context, wish, import, watch);
    }
    if wish.user.is_some() {
        let cluster = context.cluster()?.ok_or(Refusal::User)?;
        return promoted::take(context, &cluster, wish, import, watch);
    }
    take_own(context, wish.name, import, watch)
}

/// A job of one machine.
fn take_own(
    context: &Context,
    name: Option<&str>,
    import: Import<impl Read>,
    watch: &mut dyn FnMut(u64) -> Result<(), Interrupted>,
) -> Result<(String, u64), Refusal> {
    let (job, key) = (import.about().job.clone(), import.about().key.clone());
    let record = JobRecord::adopt(job)?;
    let wanted = Wanted::of(name, &record);
    wanted.check(&context.state)?;
    let incoming = Incoming::new(&context.state)?;
    let mark = import.unpack(incoming.path(), &free, watch)?;
    settle(context, incoming, &wanted, record, mark, key.as_ref())
}

/// What was unpacked becomes a job of this machine.
fn settle(
    context: &Context,
    incoming: Incoming,
    wanted: &Wanted,
    record: JobRecord,
    mark: CommitMark,
    key: Option<&JobKey>,
) -> Result<(String, u64), Refusal> {
    let committed = commit_record(mark.meta, mark.checkpoint)?;
    let folder = incoming.path().to_owned();
    if let Some(key) = key {
        ckpt_store::keep_key(&folder, key, Encryption::Shared)?;
    }
    let job = incoming.publish(&context.state, wanted, record, |id| {
        let committed = CommitRecord { job: id.to_owned(), ..committed };
        ckpt_store::tell_anew(&folder, mark.checkpoint, &committed).map_err(Refusal::from)
    })?;
    Ok((job.name().to_owned(), mark.checkpoint))
}

/// The record of the commit, as it is for the one copy here.
fn commit_record(meta: serde_json::Value, checkpoint: u64) -> Result<CommitRecord, Refusal> {
    let record: CommitRecord = protocol::json::of_value(&meta).map_err(Refusal::NoCommit)?;
    if record.format > CommitRecord::FORMAT {
        return Err(Refusal::NewerCommit(record.format));
    }
    if record.checkpoint != checkpoint {
        return Err(Refusal::OtherCommit);
    }
    let agents = vec![InstanceId::EMBEDDED];
    Ok(CommitRecord {
        restored_from: None,
        copies: 1,
        degraded: false,
        agents: agents.into(),
        ..record
    })
}
