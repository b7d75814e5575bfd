//! Where an archive goes.

use crate::bucket::{Address, BucketError, GiveUp, Over, Upload};
use crate::cli::ExportArguments;
use crate::interrupts::Interrupts;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Where it is to go.
#[derive(Debug)]
pub enum Target<'a> {
    /// Standard output.
    Standard,
    /// A file.
    File {
        /// Its path.
        path: &'a Path,
        /// Whether there may be one already.
        replace: bool,
    },
    /// An object of a bucket.
    Bucket {
        /// Which one.
        object: Address,
        /// What there may be already.
        over: Over,
    },
}

impl<'a> Target<'a> {
    /// What was named.
    ///
    /// # Errors
    /// Where it is no address of a bucket, and begins as one.
    pub fn of(arguments: &'a ExportArguments) -> Result<Self, BucketError> {
        let (path, replace) = (&*arguments.file, arguments.replace);
        if path == Path::new("-") {
            return Ok(Self::Standard);
        }
        Ok(match Address::of(path)? {
            Some(object) => {
                let over = match (&arguments.claim, replace) {
                    (Some(run), _) => Over::Claimed(run.clone()),
                    (None, true) => Over::Anything,
                    (None, false) => Over::Nothing,
                };
                Self::Bucket { object, over }
            }
            None => Self::File { path, replace },
        })
    }

    /// The folder in which the archive is to be, where it is in one.
    pub fn folder(&self) -> Option<&Path> {
        let Self::File { path, .. } = self else { return None };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        Some(folder.unwrap_or(Path::new(".")))
    }

    /// Begins to write it, about so many bytes, unless a signal comes.
    ///
    /// # Errors
    /// Where it can't be written there.
    pub fn open(&self, bytes: u64, interrupts: Option<&Interrupts>) -> io::Result<Output> {
        match self {
            Self::Standard if io::stdout().is_terminal() => {
                Err(io::Error::other("standard output is a terminal; redirect it"))
            }
            Self::Standard => Ok(Output::Standard(io::stdout())),
            Self::File { path, replace: false } if path.symlink_metadata().is_ok() => {
                Err(there(path))
            }
            Self::File { path, replace } => {
                let folder = self.folder().unwrap_or(Path::new("."));
                let unfinished =
                    tempfile::Builder::new().prefix(".ckptd-export-").tempfile_in(folder)?;
                let path = path.to_path_buf();
                Ok(Output::File { unfinished, path, replace: *replace })
            }
            Self::Bucket { object, over } => {
                let give_up = match interrupts {
                    Some(interrupts) => interrupts.give_up()?,
                    None => GiveUp::when(|| false),
                };
                let upload = Upload::begin(object, bytes, over.clone(), give_up);
                let upload = upload.map_err(io::Error::other)?;
                Ok(Output::Bucket(Box::new(upload)))
            }
        }
    }
}

/// Where it goes.
pub enum Output {
    /// Standard output.
    Standard(io::Stdout),
    /// A file of another name in the same folder, 0600, until it is whole; removed if it never is.
    File {
        /// It.
        unfinished: tempfile::NamedTempFile,
        /// Its name.
        path: PathBuf,
        /// Whether there may be one of that name.
        replace: bool,
    },
    /// An object that is not there until it is whole.
    Bucket(Box<Upload>),
}

impl Output {
    /// Makes it durable, and gives it its name.
    pub fn keep(self) -> io::Result<()> {
        match self {
            Self::Standard(_) => Ok(()),
            Self::File { unfinished, path, replace: true } => {
                unfinished.as_file().sync_all()?;
                unfinished.persist(&path).map(drop).map_err(|error| error.error)
            }
            Self::File { unfinished, path, replace: false } => {
                unfinished.as_file().sync_all()?;
                unfinished.persist_noclobber(&path).map_err(|error| match error.error.kind() {
                    io::ErrorKind::AlreadyExists => there(&path),
                    _ => error.error,
                })?;
                Ok(())
            }
            Self::Bucket(upload) => upload.keep().map_err(io::Error::other),
        }
    }
}

fn there(path: &Path) -> io::Error {
    io::Error::other(format!("{} is there already; choose another name", path.display()))
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Standard(out) => out.write(bytes),
            Self::File { unfinished, .. } => unfinished.write(bytes),
            Self::Bucket(upload) => upload.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Standard(out) => out.flush(),
            Self::File { unfinished, .. } => unfinished.flush(),
            Self::Bucket(upload) => upload.flush(),
        }
    }
}
