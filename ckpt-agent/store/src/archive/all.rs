//! Writing the images of all instances of a job into one archive.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use protocol::log_times::Piece;
use serde::Serialize;

use super::beside::{Beside, complaint};
use super::export::{ImageExport, Tar, json, measure};
use super::{ALL_IMAGES, About, ArchiveError, LogPart, Watch, members};

/// An archive that is being written: [`begin`](Self::begin), each image, [`finish`](Self::finish).
pub struct ExportAll<'a, W: Write> {
    tar: Tar<'a, W>,
    checkpoint: u64,
    due: std::vec::IntoIter<u32>,
    log: Option<(File, LogPart)>,
}

impl<'a, W: Write> ExportAll<'a, W> {
    /// Begins one of checkpoint `number`, with the images of these instances, rising, and the first bytes of
    /// the job's output, with what is known of when they were written.
    ///
    /// # Errors
    /// What `out` refuses, or that the output can't be read.
    pub fn begin(
        out: W,
        number: u64,
        instances: Vec<u32>,
        job: &impl Serialize,
        log: Option<(File, u64, Vec<Piece>)>,
        watch: Watch<'a>,
    ) -> Result<Self, ArchiveError> {
        let log = log.map(|(file, length, times)| measure(file, length, times)).transpose();
        let log = log.map_err(ArchiveError::Read)?.filter(|(_, log)| log.length > 0);
        let about = About {
            format: ALL_IMAGES,
            checkpoint: number,
            log: log.as_ref().map(|(_, log)| log.clone()),
            job: protocol::json::to_value(job).map_err(json)?,
            key: None,
            instances,
        };
        let tar = Tar::begin(out, &about, watch)?;
        Ok(Self { tar, checkpoint: number, due: about.instances.into_iter(), log })
    }

    /// Adds the image of the next instance, which lies in `folder` with what is beside it.
    ///
    /// # Errors
    /// Damage found, or what `out` refuses.
    pub fn image(&mut self, folder: &Path, beside: &[Beside]) -> Result<(), ArchiveError> {
        let Some(instance) = self.due.next() else {
            return Err(ArchiveError::About("it has more images than were announced".to_owned()));
        };
        let name = members::of_instance(instance);
        ImageExport::open(folder, self.checkpoint)?.append(&mut self.tar, &name)?;
        if let Some(complaint) = complaint(beside) {
            return Err(ArchiveError::Member {
                name: members::beside(&name),
                reason: complaint.to_owned(),
            });
        }
        let list = serde_json::to_vec(beside).map_err(json)?;
        self.tar.append(&members::beside(&name), list.len() as u64, list.as_slice())?;
        for file in beside {
            let Some(path) = file.place(folder, self.checkpoint) else { continue };
            let opened = File::open(path).map_err(ArchiveError::Read)?;
            self.tar.append(&members::piece(&name, &file.name), file.length, opened)?;
        }
        Ok(())
    }

    /// Ends it.
    ///
    /// # Errors
    /// Where images are missing, or what `out` refuses.
    pub fn finish(mut self) -> Result<W, ArchiveError> {
        if self.due.next().is_some() {
            return Err(ArchiveError::About("it has fewer images than were announced".to_owned()));
        }
        if let Some((file, part)) = self.log.take() {
            self.tar.log(&file, &part)?;
        }
        self.tar.finish()
    }
}
