//! `ckptd farm logs`.

use super::{Context, open};
use crate::failure::Failure;
use crate::farm::{Ends, FarmError, FarmFolder};
use ckptd_farm::Task;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(100);

pub fn perform(context: &Context, name: &str, task: u32, follow: bool) -> Result<(), Failure> {
    let folder = open::find(context, name)?;
    if task > folder.record().tasks {
        return Err(FarmError::NoTask { name: name.to_owned(), task }.into());
    }
    let [mut out, mut err] = Stream::both(&folder, Task(task));
    let mut ends = Ends::of(&folder);
    loop {
        // What was written before it had ended is read after that.
        ends.read()?;
        let is_over = !follow || ends.end(Task(task)).is_some() || !folder.is_running();
        out.pass(&mut io::stdout().lock()).map_err(Failure::Output)?;
        err.pass(&mut io::stderr().lock()).map_err(Failure::Output)?;
        if is_over {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
}

/// What a task writes.
pub struct Stream {
    path: PathBuf,
    open: Option<File>,
    read: u64,
}

impl Stream {
    fn of(path: PathBuf) -> Self {
        Self { path, open: None, read: 0 }
    }

    /// What a task writes to standard output, and to standard error.
    pub fn both(folder: &FarmFolder, task: Task) -> [Self; 2] {
        ["out", "err"].map(|stream| Self::of(folder.results().join(format!("{}.{stream}", task.0))))
    }

    /// Passes on what has come meanwhile.
    ///
    /// # Errors
    /// Where it can't be read, or not be passed on.
    pub fn pass(&mut self, to: &mut dyn Write) -> io::Result<()> {
        // A new try has a file of its own.
        if self.open.as_ref().is_none_or(|open| !is_at(open, &self.path)) {
            match File::open(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                file => self.open = Some(file?),
            }
            self.read = 0;
        }
        let Some(file) = &mut self.open else { return Ok(()) };
        // Where the task has gone on from a checkpoint, what came after that was cut off.
        self.read = self.read.min(file.metadata()?.len());
        file.seek(SeekFrom::Start(self.read))?;
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match file.read(&mut buffer)? {
                0 => return to.flush(),
                count => {
                    to.write_all(&buffer[..count])?;
                    self.read += count as u64;
                }
            }
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(own), Ok(there)) = (file.metadata(), std::fs::metadata(path)) else { return false };
    (own.dev(), own.ino()) == (there.dev(), there.ino())
}
