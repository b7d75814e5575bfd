//! Where things are: the repository, the command under test, and a private folder for one run.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// One run's folders.
pub struct Workspace {
    /// The repository's root.
    pub repository: PathBuf,
    /// The command under test: a copy, where every account may execute it.
    pub ckptd: PathBuf,
    /// Built programs, for every account to execute.
    pub programs: PathBuf,
    /// A private folder below /tmp, removed when the run is over.
    pub root: tempfile::TempDir,
}

/// Why a run could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The command is not built.
    #[error("failed to find {path}: build it with \"cargo build\", or name it in CKPTD")]
    NoCommand {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A folder could not be made.
    #[error("failed to prepare the test folder: {0}")]
    Folder(#[from] std::io::Error),
}

impl Workspace {
    /// Prepares a run. The command is `$CKPTD`, else the `ckptd` beside this executable.
    ///
    /// # Errors
    /// When the command is not there, or a folder cannot be made.
    pub fn new() -> Result<Workspace, WorkspaceError> {
        // On another machine than the one that built this there is none, and programs come built.
        let written = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let repository = written.canonicalize().unwrap_or(written);
        let beside = std::env::current_exe()?.with_file_name("ckptd");
        let built = std::env::var_os("CKPTD").map_or(beside, PathBuf::from);
        if !built.is_file() {
            return Err(WorkspaceError::NoCommand { path: built });
        }
        let root = tempfile::Builder::new().prefix("ckptd-t-").tempdir_in("/tmp")?;
        std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o755))?;
        let programs = root.path().join("bin");
        std::fs::create_dir(&programs)?;
        let ckptd = programs.join("ckptd");
        std::fs::copy(built, &ckptd)?;
        Ok(Workspace { repository, ckptd, programs, root })
    }

    /// Copies a program to where every account may execute it.
    ///
    /// # Errors
    /// When it is not there, or there is no room.
    pub fn keep(&self, program: &Path) -> std::io::Result<PathBuf> {
        let copy = self.programs.join(program.file_name().unwrap_or_default());
        std::fs::copy(program, &copy)?;
        Ok(copy)
    }

    /// The folder of the C sources.
    pub fn sources(&self) -> PathBuf {
        self.repository.join("tests/programs")
    }
}
