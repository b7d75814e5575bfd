//! How a job is started or restored, and the streams that come back.

use crate::agent::CheckpointNumber;
use crate::cluster::NodeName;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// A job to be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// The program and its arguments; never empty. A program without a slash is searched in the
    /// `PATH` of `environment`.
    pub program: Vec<OsString>,
    /// The whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The working directory, absolute.
    pub working_directory: PathBuf,
    /// What the job's standard input is to be.
    pub stdin: StreamKind,
    /// What the job's standard output is to be.
    pub stdout: StreamKind,
    /// What the job's standard error is to be.
    pub stderr: StreamKind,
    /// Size of the job's terminal, where it gets one.
    pub window: Option<WindowSize>,
    /// Settings of the job's terminal: the kernel's `struct termios` as the TCGETS ioctl fills it
    /// (four 32-bit words of flags, `c_line`, 19 control characters; 36 bytes on x86-64 and
    /// aarch64, ioctl_tty(2)). None: the kernel's defaults.
    pub termios: Option<Vec<u8>>,
    /// What of the file system is the job's, and its host name.
    #[serde(default)]
    pub kept: Kept,
    /// What to do about connections to outside of the job, where it has this machine alone. In a cluster the job's
    /// settings say.
    #[serde(default)]
    pub external: External,
    /// Files that the job finds in its folder of temporary files. An agent that does not know of them leaves them out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<GivenFile>,
}

/// A file that a job finds in its folder of temporary files ($TMPDIR).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenFile {
    /// Its name in that folder.
    pub name: String,
    /// What is in it.
    pub content: String,
    /// Variables of the job's environment whose value is its path, unless they are set.
    pub variables: Vec<String>,
}

impl GivenFile {
    /// Whether it may be made: nothing but a file in that folder, of a size that such lists have.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        const LONGEST_NAME: usize = 64;
        const MOST_BYTES: usize = 1 << 20;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let name = (1..=LONGEST_NAME).contains(&self.name.len()) && self.name.bytes().all(plain);
        name && self.content.len() <= MOST_BYTES
    }
}

/// Processes that ckptd has not started, to be made a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptSpec {
    /// The first of them, as this machine numbers it; all that descend from it belong to the job.
    pub pid: i32,
    /// What of the file system is the job's.
    pub kept: Kept,
    /// What to do about connections to outside of the job.
    pub external: External,
}

impl LaunchSpec {
    /// Of a program whose streams are pipes, with nothing in its environment.
    #[must_use]
    pub fn through_pipes(program: Vec<OsString>, working_directory: PathBuf) -> Self {
        Self {
            program,
            environment: Vec::new(),
            working_directory,
            stdin: StreamKind::Pipe,
            stdout: StreamKind::Pipe,
            stderr: StreamKind::Pipe,
            window: None,
            termios: None,
            kept: Kept::default(),
            external: External::default(),
            given: Vec::new(),
        }
    }
}

/// What of the file system is a job's, and the host name that is its own: it is in each image, and goes back with the
/// job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Folders whose whole content is, open or not; absolute paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folders: Vec<PathBuf>,
    /// The one of them that is made for the job's temporary files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temporary: Option<PathBuf>,
    /// How many bytes of files go into an image at most; `None`: [`FILES_LIMIT`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_limit: Option<u64>,
    /// By what a restart tells whether a file that is not in the image has changed.
    #[serde(default, skip_serializing_if = "FileCheck::is_default")]
    pub file_check: FileCheck,
    /// The host name inside, where that is another than the logical node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_name: Option<NodeName>,
}

/// By what a restart tells whether a file that is not in the image, and that the job only reads, has changed since the
/// checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileCheck {
    /// By its size.
    Size,
    /// By its size and the time of its modification.
    #[default]
    Mtime,
    /// By its content. Where the checkpoint has no hash of it, as with [`FileCheck::Mtime`].
    Hash,
}

impl FileCheck {
    /// For images and messages, which leave it out then.
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Bytes of files that go into an image unless the user says otherwise.
pub const FILES_LIMIT: u64 = 1 << 30;

impl Kept {
    /// All folders whose whole content is the job's.
    pub fn all_folders(&self) -> impl Iterator<Item = &PathBuf> {
        self.temporary.iter().chain(&self.folders)
    }

    /// Bytes of files that go into an image.
    pub fn limit(&self) -> u64 {
        self.files_limit.unwrap_or(FILES_LIMIT)
    }
}

/// What one standard stream of a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamKind {
    /// The job's pseudo-terminal, one for all streams that ask for it; it is the controlling
    /// terminal of the job's first process.
    Terminal,
    /// A pipe of its own, whose other end comes back in [`Console`].
    Pipe,
    /// For standard error only: the same pipe as standard output, so that the order of what is
    /// written to both stays as it was.
    WithStdout,
    /// The caller's own descriptor of the same number is passed on: a standard input that is a
    /// regular file or /dev/null.
    Inherit,
}

/// A terminal's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
    /// Width in pixels, 0 where unknown.
    pub x_pixels: u16,
    /// Height in pixels, 0 where unknown.
    pub y_pixels: u16,
}

/// A job to be brought back. Its streams are of the kinds that it was launched with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreSpec {
    /// The committed checkpoint to restore.
    pub checkpoint: CheckpointNumber,
    /// Go on although files outside of the image have changed or are missing.
    pub force: bool,
    /// What to do about connections to outside of the job.
    pub external: External,
    /// Size of the job's terminal, where it has one.
    pub window: Option<WindowSize>,
    /// By what changed files are told, if not as the job was run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_check: Option<FileCheck>,
}

/// What is done about connections to outside of the job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum External {
    /// Restored as reset, and said.
    #[default]
    Warn,
    /// Refused at checkpoint time.
    Fail,
}

/// The launcher's ends of a job's standard streams.
#[derive(Debug, Default)]
pub struct Console {
    /// The master side of the job's pseudo-terminal.
    pub terminal: Option<OwnedFd>,
    /// Write end of the pipe that is the job's standard input.
    pub stdin: Option<OwnedFd>,
    /// Read end of the pipe that is the job's standard output.
    pub stdout: Option<OwnedFd>,
    /// Read end of the pipe that is the job's standard error.
    pub stderr: Option<OwnedFd>,
}
