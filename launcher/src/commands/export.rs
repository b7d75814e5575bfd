//! `ckptd export`.

mod images;
mod of_cluster;
mod output;

use super::{Context, dmtcp, target};
use crate::cli::ExportArguments;
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::jobs::{self, JobFolder};
use crate::progress::{Bar, Unit};
use crate::recipients::{KeyError, Recipients, Sealing};
use crate::text;
use ckpt_store::archive::{ArchiveError, Export, Interrupted};
use output::{Output, Target};
use rustix::process::{nice, set_parent_process_death_signal};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// The lowest priority (sched(7)).
const LOWEST: i32 = 19;

/// The exit status; that of a signal if one came.
pub fn perform(context: &Context, arguments: &ExportArguments) -> Result<u8, Failure> {
    let (wanted, file) = (&*arguments.job, &*arguments.file);
    let (name, only) = target::split(wanted)?;
    let what = format!("export {wanted}");
    let recipients =
        Recipients::named(&arguments.recipients).map_err(|error| Failure::of(&what, error))?;
    let recipients = recipients.as_ref();
    if arguments.beside_job {
        stand_back(arguments.urgent).map_err(|error| Failure::of(&what, error))?;
    }
    let target = Target::of(arguments).map_err(|error| Failure::of(&what, error))?;
    if let Some(cluster) = context.cluster_of(name)? {
        return of_cluster::perform(context, &cluster, wanted, &target, recipients);
    }
    let job = context.state.find_job(name)?;
    dmtcp::refuse(&job, "export")?;
    let history = jobs::load(&job)?;
    let record = match only {
        Some(number) => history.record(number),
        None => history.newest(),
    };
    let record = record.ok_or_else(|| {
        let which = only.map_or("no checkpoint".to_owned(), |n| format!("no checkpoint {n}"));
        Failure::of(&what, format!("{which} of it was committed"))
    })?;
    let failed = |error: Refusal| Failure::of(&what, error);
    // Standard output leaves nothing to clean up.
    let mut interrupts = (file != Path::new("-")).then(Interrupts::hold).transpose()?;
    let log = File::open(job.log()).ok().map(|log| (log, record.log_length));
    let export =
        Export::open(job.path(), record.checkpoint, log).map_err(|error| failed(error.into()))?;
    let out = target.open(export.bytes(), interrupts.as_ref());
    let about = format!("{}@{}", job.name(), record.checkpoint);
    let bar = Bar::new(about, Unit::Bytes, Some(export.bytes()));
    let mut signal = None;
    let mut watch = |bytes| {
        bar.inc(bytes);
        signal = interrupts.as_mut().and_then(Interrupts::came);
        if signal.is_some() { Err(Interrupted) } else { Ok(()) }
    };
    let result = out
        .map_err(Refusal::Place)
        .and_then(|out| write(export, &job, (out, recipients), &mut watch));
    bar.finish();
    // What waited for a network may have been given up before it was looked at here.
    let signal = signal.or_else(|| interrupts.as_mut().and_then(Interrupts::came));
    match (result, signal) {
        (Err(error), Some(signal)) => {
            eprintln!("ckptd: {}", failed(error));
            Ok(128 + signal)
        }
        (Err(error), None) => Err(failed(error)),
        (Ok(length), _) => {
            let size = text::size(length);
            eprintln!("ckptd: checkpoint {} of {}: {size}", record.checkpoint, job.name());
            Ok(0)
        }
    }
}

/// The job has the machine first, unless that is about to be taken away; and this ends with who has asked for it.
fn stand_back(is_urgent: bool) -> io::Result<()> {
    if !is_urgent {
        nice(LOWEST)?;
    }
    Ok(set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?)
}

/// Why no archive was written; the text is a cause.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{0}")]
    Archive(#[from] ArchiveError),
    #[error("{0}")]
    Key(#[from] KeyError),
    #[error("{0}")]
    Place(io::Error),
}

fn write(
    export: Export,
    job: &JobFolder,
    (out, recipients): (Output, Option<&Recipients>),
    watch: &mut dyn FnMut(u64) -> Result<(), Interrupted>,
) -> Result<u64, Refusal> {
    let out = Sealing::of(recipients, Counted::of(out))?;
    Ok(keep(export.write(job.record(), out, watch)?)?)
}

/// Ends the archive, and makes it durable, under its name; its length.
fn keep(written: Sealing<Counted<BufWriter<Output>>>) -> Result<u64, ArchiveError> {
    written.finish().map_err(ArchiveError::Write)?.keep()
}

/// Counts what passes.
struct Counted<W> {
    out: W,
    length: u64,
}

impl Counted<BufWriter<Output>> {
    fn of(out: Output) -> Self {
        Self { out: BufWriter::with_capacity(1 << 20, out), length: 0 }
    }

    /// Makes the archive durable, under its name; its length.
    fn keep(mut self) -> Result<u64, ArchiveError> {
        self.flush().map_err(ArchiveError::Write)?;
        let out = self.out.into_inner().map_err(|error| ArchiveError::Write(error.into_error()))?;
        out.keep().map_err(ArchiveError::Write)?;
        Ok(self.length)
    }
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.length += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
