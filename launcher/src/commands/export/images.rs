//! The images of a cluster's job, fetched one by one through the agent, and its log.

use crate::client::link::{Link, LinkError};
use crate::client::refusal::unexpected;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::progress::Bar;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ckpt_agent::images;
use ckpt_store::archive::Interrupted;
use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use protocol::cluster::client::{Answer, Ask, LogPlace};
use protocol::cluster::look::ImageName;
use protocol::cluster::peer::ImageFile;
use protocol::cluster::portable::{PortableImage, PortableJob};
use protocol::log_times::Piece;
use std::cell::{Cell, RefCell};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// How often it is looked whether a signal has come while nothing else does.
const LOOK: Duration = Duration::from_millis(200);
/// Machines from which one image is asked for.
const MOST_HOLDERS: usize = 64;

/// Who is told of what is done, and whether it is to go on.
pub struct Watched {
    bar: Bar,
    interrupts: RefCell<Interrupts>,
    signal: Cell<Option<u8>>,
}

impl Watched {
    pub fn new(bar: Bar, interrupts: Interrupts) -> Self {
        Self { bar, interrupts: RefCell::new(interrupts), signal: Cell::new(None) }
    }

    /// So many bytes more.
    pub fn tick(&self, bytes: u64) -> Result<(), Interrupted> {
        self.bar.inc(bytes);
        if self.signal.get().is_none() {
            self.signal.set(self.interrupts.borrow_mut().came());
        }
        if self.signal.get().is_some() { Err(Interrupted) } else { Ok(()) }
    }

    /// The signal that has come, once all is over.
    pub fn signal(&self) -> Option<u8> {
        self.bar.finish();
        // What waited for a network may have been given up before it was looked at.
        self.signal.get().or_else(|| self.interrupts.borrow_mut().came())
    }
}

/// Why an image is not here; the text is a cause.
#[derive(Debug, thiserror::Error)]
pub enum Miss {
    /// The cluster does not answer.
    #[error("{0}")]
    Link(#[from] LinkError),
    /// It has refused.
    #[error("{0}")]
    Refused(String),
    /// The machine that was to give it could not, or what it gave is damaged.
    #[error("{reason}")]
    Holder { node: NodeName, reason: String },
    /// What came can't be kept.
    #[error("write what has come: {0}")]
    Disk(#[from] io::Error),
    #[error("{0}")]
    Interrupted(#[from] Interrupted),
    #[error("{0}")]
    Other(#[from] Failure),
}

/// Where images come from.
pub struct Source<'a> {
    pub cluster: &'a Cluster,
    pub job: &'a PortableJob,
    pub watched: &'a Watched,
}

impl Source<'_> {
    /// Brings an image into the folder, from the first machine that has it whole.
    pub fn image(
        &self,
        instance: InstanceId,
        image: &PortableImage,
        folder: &Path,
    ) -> Result<(), Miss> {
        let (mut avoid, mut last) = (Vec::new(), None);
        loop {
            DirBuilder::new().mode(0o700).create(folder)?;
            match self.ask_holder(instance, image, folder, &avoid) {
                Err(Miss::Holder { node, reason }) if avoid.len() < MOST_HOLDERS => {
                    avoid.push(node);
                    last = Some(reason);
                    fs::remove_dir_all(folder)?;
                }
                // Nobody else has it: why the last one could not give it says more.
                Err(Miss::Refused(refusal)) => {
                    return Err(Miss::Refused(last.unwrap_or(refusal)));
                }
                other => return other,
            }
        }
    }

    fn ask_holder(
        &self,
        instance: InstanceId,
        image: &PortableImage,
        folder: &Path,
        avoid: &[NodeName],
    ) -> Result<(), Miss> {
        let checkpoint = self.job.record.checkpoint;
        let name = ImageName { instance, checkpoint };
        let ask = Ask::Image { job: self.job.id.clone(), image: name, avoid: avoid.to_vec() };
        let mut link = self.cluster.open(&ask)?;
        let node = match self.next(&mut link)? {
            Answer::Holder { node } => node,
            Answer::Failed { reason, .. } => return Err(Miss::Refused(reason)),
            other => return Err(unexpected("export", &other).into()),
        };
        let of_holder = |reason: String| Miss::Holder { node: node.clone(), reason };
        self.receive(&mut link, folder, &of_holder)?;
        let record = &self.job.record;
        ckpt_store::commit_copy(folder, checkpoint, record)
            .map_err(|error| of_holder(error.to_string()))?;
        let damaged = |reason: &dyn std::fmt::Display| {
            of_holder(format!("the image of {node} is damaged: {reason}"))
        };
        if images::digest(folder, checkpoint).map_err(|error| damaged(&error))? != image.digest {
            return Err(damaged(&"it is not the one that was committed"));
        }
        let mut interrupted = Ok(());
        ckpt_store::verify(folder, checkpoint, |_| {
            if interrupted.is_ok() {
                interrupted = self.watched.tick(0);
            }
        })
        .map_err(|damage| damaged(&damage))?;
        Ok(interrupted?)
    }

    /// The next answer.
    fn next(&self, link: &mut Link) -> Result<Answer, Miss> {
        loop {
            self.watched.tick(0)?;
            match link.next_within(LOOK)? {
                Some(Answer::Say { text }) => eprintln!("ckptd: {text}"),
                Some(answer) => return Ok(answer),
                None => {}
            }
        }
    }

    fn receive(
        &self,
        link: &mut Link,
        folder: &Path,
        of_holder: &impl Fn(String) -> Miss,
    ) -> Result<(), Miss> {
        let mut incoming: Option<Incoming<'_>> = None;
        loop {
            let answer = match self.next(link) {
                // The coordinator or the agent is gone, and may be back soon; not so this image.
                Err(Miss::Link(error)) => return Err(of_holder(error.to_string())),
                other => other?,
            };
            match (answer, &mut incoming) {
                (Answer::Files { files }, None) => {
                    images::check(&files, self.job.record.checkpoint)
                        .map_err(|error| of_holder(error.to_string()))?;
                    incoming = Some(Incoming::new(folder, files)?);
                }
                (Answer::Piece { path, offset, bytes }, Some(incoming)) => {
                    let bytes = STANDARD.decode(bytes).map_err(|e| of_holder(e.to_string()))?;
                    if !incoming.piece(&path, offset, &bytes)? {
                        return Err(of_holder(format!("a piece of {path:?} is out of place")));
                    }
                    self.watched.tick(bytes.len() as u64)?;
                }
                (Answer::Done { .. }, Some(incoming)) if incoming.is_whole() => return Ok(()),
                (Answer::Done { .. }, _) => return Err(of_holder("files are missing".to_owned())),
                (Answer::Failed { reason, .. }, _) => return Err(of_holder(reason)),
                (other, _) => return Err(unexpected("export", &other).into()),
            }
        }
    }

    /// Brings the job's log up to the checkpoint; the file, its length, and when it was written.
    pub fn log(&self, mut file: File) -> Result<(File, u64, Vec<Piece>), Miss> {
        let wanted = self.job.record.log_length;
        let mut from = LogPlace::default();
        let mut length = 0;
        let mut times = Vec::new();
        while length < wanted {
            let ask = Ask::Log { job: self.job.id.clone(), from, times: true };
            let mut link = self.cluster.open(&ask)?;
            let (next, whole) = loop {
                match self.next(&mut link)? {
                    Answer::Output { bytes, .. } => {
                        let refused = |e: base64::DecodeError| Miss::Refused(e.to_string());
                        let bytes = STANDARD.decode(bytes).map_err(refused)?;
                        let most = bytes.len().min((wanted - length) as usize);
                        file.write_all(&bytes[..most])?;
                        length += most as u64;
                    }
                    Answer::Times { pieces } => times.extend(pieces),
                    Answer::Log { start, .. } if start != from.length => {
                        let reason = "the job went back behind the checkpoint meanwhile: try again";
                        return Err(Miss::Refused(reason.to_owned()));
                    }
                    Answer::Log { next, length, .. } => break (next, next.length >= length),
                    Answer::Failed { reason, .. } => return Err(Miss::Refused(reason)),
                    other => return Err(unexpected("export", &other).into()),
                }
            };
            from = next;
            if whole {
                break;
            }
        }
        file.rewind()?;
        Ok((file, length, times))
    }
}

/// Files that come, one after the other.
struct Incoming<'a> {
    folder: &'a Path,
    files: std::iter::Peekable<std::vec::IntoIter<ImageFile>>,
    current: Option<(ImageFile, File, u64)>,
}

impl<'a> Incoming<'a> {
    fn new(folder: &'a Path, files: Vec<ImageFile>) -> io::Result<Self> {
        for parent in files.iter().filter_map(|file| Path::new(&file.path).parent()) {
            DirBuilder::new().recursive(true).mode(0o700).create(folder.join(parent))?;
        }
        DirBuilder::new().recursive(true).mode(0o700).create(folder.join("packs"))?;
        let mut incoming = Self { folder, files: files.into_iter().peekable(), current: None };
        incoming.pass_empty()?;
        Ok(incoming)
    }

    fn create(&self, path: &str) -> io::Result<File> {
        let place = self.folder.join(path);
        File::options().write(true).create_new(true).mode(0o600).open(place)
    }

    /// Of empty files no piece comes.
    fn pass_empty(&mut self) -> io::Result<()> {
        while let Some(file) = self.files.next_if(|file| file.length == 0) {
            self.create(&file.path)?;
        }
        Ok(())
    }

    /// Writes a piece; false where it does not belong there.
    fn piece(&mut self, path: &str, offset: u64, bytes: &[u8]) -> io::Result<bool> {
        if self.current.is_none() {
            let Some(file) = self.files.next_if(|file| file.path == path) else { return Ok(false) };
            let made = self.create(&file.path)?;
            self.current = Some((file, made, 0));
        }
        let Some((file, made, at)) = &mut self.current else { return Ok(false) };
        let end = offset.saturating_add(bytes.len() as u64);
        if file.path != path || offset != *at || end > file.length || bytes.is_empty() {
            return Ok(false);
        }
        made.write_all(bytes)?;
        *at = end;
        if end == file.length {
            self.current = None;
            self.pass_empty()?;
        }
        Ok(true)
    }

    fn is_whole(&self) -> bool {
        self.current.is_none() && self.files.len() == 0
    }
}
