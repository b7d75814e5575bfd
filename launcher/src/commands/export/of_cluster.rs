//! `ckptd export` of a cluster's job. Its images are fetched one after the other into a folder beside the archive, checked
//! there, and added to it.

use super::images::{Miss, Source, Watched};
use super::output::{Output, Target};
use super::{Counted, keep};
use crate::client::refusal::unexpected;
use crate::cluster::Cluster;
use crate::commands::{Context, target};
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::progress::{Bar, Unit};
use crate::recipients::{KeyError, Recipients, Sealing};
use crate::text;
use ckpt_agent::images::{self, CopyError};
use ckpt_store::archive::{ArchiveError, Beside, ExportAll};
use protocol::cluster::client::{Answer, Ask};
use protocol::cluster::portable::SealedJob;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The exit status; that of a signal if one came.
pub fn perform(
    context: &Context,
    cluster: &Cluster,
    wanted: &str,
    target: &Target<'_>,
    recipients: Option<&Recipients>,
) -> Result<u8, Failure> {
    let (name, checkpoint) = target::split(wanted)?;
    let what = format!("export {wanted}");
    let ask = Ask::Portable { job: name.to_owned(), checkpoint, stays: true };
    // Until the archive is written: a job that runs on would have its checkpoint collected meanwhile.
    let (sealed, _stays) = match cluster.ask_and_stay(&what, &ask)? {
        (Answer::Portable { job }, link) => (job, link),
        (other, _) => return Err(unexpected(&what, &other)),
    };
    let job =
        sealed.read().map_err(|error| Failure::of(&what, format!("its description {error}")))?;
    let bytes = job.images.values().map(|image| image.bytes).fold(0, u64::saturating_add);
    let about = format!("{}@{}", job.name, job.record.checkpoint);
    let room = room(context, target)?;
    let interrupts = Interrupts::hold()?;
    let opened = target.open(bytes, Some(&interrupts)).map_err(Refusal::from);
    let watched = Watched::new(Bar::new(about, Unit::Bytes, Some(bytes)), interrupts);
    let source = Source { cluster, job: &job, watched: &watched };
    let written = opened.and_then(|out| write(&source, &sealed, &room, (out, recipients)));
    match (written, watched.signal()) {
        (Err(error), Some(signal)) => {
            eprintln!("ckptd: {}", Failure::of(what, error));
            Ok(128 + signal)
        }
        (Err(error), None) => Err(Failure::of(what, error)),
        (Ok(length), _) => {
            let (size, checkpoint) = (text::size(length), job.record.checkpoint);
            eprintln!("ckptd: checkpoint {checkpoint} of {}: {size}", job.name);
            Ok(0)
        }
    }
}

/// Why no archive was written; the text is a cause.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{0}")]
    Archive(#[from] ArchiveError),
    #[error("{0}")]
    Key(#[from] KeyError),
    #[error("{0}")]
    Miss(#[from] Miss),
    #[error("{0}")]
    Place(#[from] std::io::Error),
    #[error("{0}")]
    Image(#[from] CopyError),
}

/// Where images lie until they are in the archive: beside it, where there is room for it. Nothing is left there.
fn room(context: &Context, target: &Target<'_>) -> Result<PathBuf, Failure> {
    match target.folder() {
        Some(folder) => Ok(folder.to_owned()),
        None => Ok(context.state.passing_through()?.path().to_owned()),
    }
}

fn write(
    source: &Source<'_>,
    sealed: &SealedJob,
    room: &Path,
    (out, recipients): (Output, Option<&Recipients>),
) -> Result<u64, Refusal> {
    let staging = tempfile::Builder::new()
        .prefix(".ckptd-export-")
        .permissions(std::fs::Permissions::from_mode(0o700))
        .tempdir_in(room)?;
    let log = source.log(tempfile::tempfile_in(staging.path())?)?;
    let job = source.job;
    let checkpoint = job.record.checkpoint;
    let instances = job.images.keys().map(|instance| instance.0).collect();
    // Images were counted when they came.
    let mut watch = |_| source.watched.tick(0);
    let out = Sealing::of(recipients, Counted::of(out))?;
    let mut archive = ExportAll::begin(out, checkpoint, instances, sealed, Some(log), &mut watch)?;
    for (instance, image) in &job.images {
        let folder = staging.path().join(instance.0.to_string());
        source.image(*instance, image, &folder)?;
        let beside = images::beside(&folder, checkpoint)?;
        let beside = beside.into_iter().map(|(name, length)| Beside { name, length });
        archive.image(&folder, &beside.collect::<Vec<_>>())?;
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(keep(archive.finish()?)?)
}
