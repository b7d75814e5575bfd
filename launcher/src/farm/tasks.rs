//! The commands of a run: a file in which each ends with a NUL, which no command can hold. Those of an open farm are words, in
//! its spool.

use super::FarmError;
use super::limits::MOST_TASKS;
use super::open::{Spool, Submission};
use super::template::Combined;
use super::workflow::{Step, Steps};
use ckptd_farm::{Limits, Task};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// The file's name in the run's folder.
pub const TASKS: &str = "tasks";
/// The longest command: the kernel takes no longer argument (MAX_ARG_STRLEN, execve(2)).
const LONGEST: usize = 128 * 1024 - 1;

/// What the words of a command line are.
#[derive(Debug)]
pub enum Collected {
    /// So many tasks were written.
    Tasks(u32),
    /// They make no sense.
    Usage(&'static str),
}

/// Writes the commands that the words of a command line mean into that folder.
///
/// # Errors
/// Where they can't be read, are none, or can't be written.
pub fn collect(words: &[OsString], folder: &Path) -> Result<Collected, FarmError> {
    let mut writer = Writer::new(folder)?;
    if let Some(combined) = Combined::of(words, MOST_TASKS.into())? {
        combined.each(|command| writer.add(command))?;
        return writer.finish();
    }
    let [file] = words else {
        return Ok(Collected::Usage(
            "a file of commands stands alone, with the options before it; values come after ':::'",
        ));
    };
    let path = Path::new(file);
    let mut source: Box<dyn BufRead> = match file == "-" {
        true => Box::new(io::stdin().lock()),
        false => Box::new(BufReader::new(File::open(path).map_err(FarmError::io("open", path))?)),
    };
    let mut line = Vec::new();
    loop {
        line.clear();
        // One byte more than may be shows that there is more.
        let mut limited = source.by_ref().take(LONGEST as u64 + 2);
        limited.read_until(b'\n', &mut line).map_err(FarmError::io("read", path))?;
        if line.is_empty() {
            return writer.finish();
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        let text = line.trim_ascii();
        if !text.is_empty() && !text.starts_with(b"#") {
            writer.add(&line)?;
        }
    }
}

/// Writes the commands of a run.
pub struct Writer {
    file: BufWriter<File>,
    folder: std::path::PathBuf,
    number: u32,
}

impl Writer {
    /// Into that folder.
    ///
    /// # Errors
    /// Where there is such a file, or it can't be made.
    pub fn new(folder: &Path) -> Result<Self, FarmError> {
        let path = folder.join(TASKS);
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path);
        let file = BufWriter::new(file.map_err(FarmError::io("create", &path))?);
        Ok(Self { file, folder: folder.to_owned(), number: 0 })
    }

    /// One more.
    ///
    /// # Errors
    /// Where it can't be one, or can't be written.
    pub fn add(&mut self, command: &[u8]) -> Result<(), FarmError> {
        self.number += 1;
        let bad = |reason| FarmError::BadTask { number: self.number.into(), reason };
        if self.number > MOST_TASKS {
            return Err(bad("a run has 500,000 at most"));
        }
        if command.len() > LONGEST {
            return Err(bad("the kernel takes no command of 128 KiB or more"));
        }
        if command.contains(&0) {
            return Err(bad("there is a NUL in it"));
        }
        let written = self.file.write_all(command).and_then(|()| self.file.write_all(&[0]));
        written.map_err(FarmError::io("write", self.folder.join(TASKS)))
    }

    /// Has them on the disk.
    ///
    /// # Errors
    /// Where that fails.
    pub fn finish(mut self) -> Result<Collected, FarmError> {
        let synced = self.file.flush().and_then(|()| self.file.get_ref().sync_all());
        synced.map_err(FarmError::io("write", self.folder.join(TASKS)))?;
        match self.number {
            0 => Ok(Collected::Usage("there is no task")),
            number => Ok(Collected::Tasks(number)),
        }
    }
}

/// The commands of a run, on the disk; where each begins is in memory.
#[derive(Debug)]
pub struct Tasks {
    source: Source,
    steps: Option<Steps>,
}

#[derive(Debug)]
enum Source {
    /// Lines for the shell.
    Lines {
        file: File,
        /// Where each begins, and where the last one ends.
        places: Vec<u64>,
    },
    /// What was submitted.
    Spool(Spool),
}

impl Tasks {
    /// Opens the file of so many.
    ///
    /// # Errors
    /// Where it can't be read, or is of others.
    pub fn open(path: &Path, number: u32) -> Result<Self, FarmError> {
        let failed = FarmError::io("read", path);
        let read = || -> io::Result<Self> {
            let file = File::open(path)?;
            let mut places = vec![0];
            let mut reader = BufReader::with_capacity(1 << 16, &file);
            let mut at = 0;
            loop {
                let found = reader.fill_buf()?;
                if found.is_empty() {
                    break;
                }
                let ends = found.iter().enumerate().filter(|(_, byte)| **byte == 0);
                places.extend(ends.map(|(index, _)| at + index as u64 + 1));
                let length = found.len();
                at += length as u64;
                reader.consume(length);
            }
            match places.len() as u64 == u64::from(number) + 1 {
                true => Ok(Self { source: Source::Lines { file, places }, steps: None }),
                false => Err(io::Error::other(format!("it has not {number} commands"))),
            }
        };
        read().map_err(failed)
    }

    /// Those that were submitted to an open farm.
    pub fn of_spool(spool: Spool) -> Self {
        Self { source: Source::Spool(spool), steps: None }
    }

    /// What was submitted, if they are of an open farm.
    pub fn spool(&mut self) -> Option<&mut Spool> {
        match &mut self.source {
            Source::Lines { .. } => None,
            Source::Spool(spool) => Some(spool),
        }
    }

    /// How many were submitted, if they are of an open farm.
    pub fn submitted(&self) -> Option<u32> {
        match &self.source {
            Source::Lines { .. } => None,
            Source::Spool(spool) => Some(spool.number()),
        }
    }

    /// What holds for each, if they are of an open farm.
    ///
    /// # Errors
    /// Where that can't be read.
    pub fn limits(&self) -> Result<Option<Vec<Limits>>, FarmError> {
        match &self.source {
            Source::Lines { .. } => Ok(None),
            Source::Spool(spool) => spool.limits().map(Some),
        }
    }

    /// A task as it was submitted, if they are of an open farm.
    pub fn submission(&self, task: Task) -> Option<io::Result<Submission>> {
        match &self.source {
            Source::Lines { .. } => None,
            Source::Spool(spool) => Some(spool.submission(task)),
        }
    }

    /// With what a workflow says of them.
    pub fn with(self, steps: Steps) -> Self {
        Self { steps: Some(steps), ..self }
    }

    /// Whether they are of a workflow.
    pub fn are_steps(&self) -> bool {
        self.steps.is_some()
    }

    /// What a workflow says of a task, if they are of one.
    pub fn step(&self, task: Task) -> Option<io::Result<Step>> {
        self.steps.as_ref().map(|steps| steps.step(task))
    }

    /// The id of a task for which others are skipped, if they are of a workflow.
    pub fn reason(&self, task: Task) -> Option<io::Result<String>> {
        self.steps.as_ref().map(|steps| steps.reason(task))
    }

    /// A task's command, as it would be written for the shell.
    ///
    /// # Errors
    /// Where it can't be read.
    pub fn command(&self, task: Task) -> io::Result<Vec<u8>> {
        let (file, places) = match &self.source {
            Source::Lines { file, places } => (file, places),
            Source::Spool(spool) => return spool.shown(task),
        };
        let place = |index: usize| places.get(index).copied();
        let index = task.0 as usize;
        let (Some(from), Some(to)) = (index.checked_sub(1).and_then(place), place(index)) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        // Without the NUL. In range: what was written was shorter.
        let mut command = vec![0; (to - from) as usize - 1];
        file.read_exact_at(&mut command, from)?;
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(text: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tasks.txt");
        std::fs::write(&file, text).unwrap();
        match collect(&[file.into()], dir.path()).map_err(|error| error.to_string())? {
            Collected::Usage(reason) => Err(reason.to_owned()),
            Collected::Tasks(number) => {
                let tasks = Tasks::open(&dir.path().join(TASKS), number).unwrap();
                assert!(
                    tasks.command(Task(0)).is_err() && tasks.command(Task(number + 1)).is_err()
                );
                Ok((1..=number).map(|task| tasks.command(Task(task)).unwrap()).collect())
            }
        }
    }

    #[test]
    fn a_line_is_a_task() {
        let text = b"echo a\n\n  # nothing\n echo \xff \nlast";
        assert_eq!(collected(text).unwrap(), [&b"echo a"[..], b" echo \xff ", b"last"]);
    }

    #[test]
    fn what_is_none_is_refused() {
        assert!(collected(b"\n#\n").unwrap_err().contains("no task"));
        assert!(collected(b"a\0b\n").unwrap_err().contains("NUL"));
        let mut long = vec![b'x'; LONGEST];
        assert_eq!(collected(&long).unwrap().len(), 1);
        long.push(b'x');
        long.push(b'\n');
        assert!(collected(&long).unwrap_err().contains("128 KiB"));
    }
}
