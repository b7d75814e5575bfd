//! `ckptd farm logs`.

use super::outlook::Outlook;
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
/// How much of one stream is passed on at a time, in bytes: the other one has something to say, too.
const MOST: u64 = 1 << 20;

pub fn perform(context: &Context, name: &str, task: u32, follow: bool) -> Result<(), Failure> {
    let folder = open::find(context, name)?;
    if task > folder.record().tasks {
        return Err(FarmError::NoTask { name: name.to_owned(), task }.into());
    }
    let [mut out, mut err] = Stream::newest(&folder, Task(task));
    let mut ends = Ends::of(&folder);
    let mut outlook = Outlook::of(&folder);
    loop {
        // What was written before it had ended is read after that.
        ends.read()?;
        outlook.look(|| format!("task {task}"))?;
        let is_over = !follow
            || ends.end(Task(task)).is_some()
            || outlook.is_stuck(Task(task))
            || !folder.is_running();
        let is_all = out.pass(&mut io::stdout().lock()).map_err(Failure::Output)?
            & err.pass(&mut io::stderr().lock()).map_err(Failure::Output)?;
        match (is_all, is_over) {
            (false, _) => {}
            (true, true) => return Ok(()),
            (true, false) => std::thread::sleep(LOOK),
        }
    }
}

/// What a task writes to one of its streams: a file for each try, of which earlier ones are put aside under numbers.
pub struct Stream {
    path: PathBuf,
    open: Option<File>,
    read: u64,
    /// The number that the open one will have, or the first one if none is open.
    number: u32,
}

impl Stream {
    /// What a task writes to standard output, and to standard error, in all its tries.
    pub fn all(folder: &FarmFolder, task: Task) -> [Self; 2] {
        ["out", "err"].map(|stream| {
            let path = folder.results().join(format!("{}.{stream}", task.0));
            Self { path, open: None, read: 0, number: 1 }
        })
    }

    /// The same from the newest try on.
    fn newest(folder: &FarmFolder, task: Task) -> [Self; 2] {
        Self::all(folder, task).map(|mut stream| {
            while stream.aside().exists() {
                stream.number += 1;
            }
            stream
        })
    }

    /// Passes on what has come meanwhile; whether that was all.
    ///
    /// # Errors
    /// Where it can't be read, or not be passed on.
    pub fn pass(&mut self, to: &mut dyn Write) -> io::Result<bool> {
        let mut left = MOST;
        loop {
            // First: whoever puts a file aside writes no more to it.
            let is_newest = self.open.as_ref().is_some_and(|open| is_at(open, &self.path));
            self.pass_open(to, &mut left)?;
            if left == 0 {
                to.flush()?;
                return Ok(false);
            }
            if is_newest || !self.open_next()? {
                to.flush()?;
                return Ok(true);
            }
        }
    }

    /// Passes on what has come of the file that is open, and no more than `left`.
    fn pass_open(&mut self, to: &mut dyn Write, left: &mut u64) -> io::Result<()> {
        let Some(file) = &mut self.open else { return Ok(()) };
        // Where the task has gone on from a checkpoint, what came after that was cut off.
        self.read = self.read.min(file.metadata()?.len());
        file.seek(SeekFrom::Start(self.read))?;
        let mut buffer = vec![0; 64 * 1024];
        while *left > 0 {
            let most = buffer.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
            match file.read(&mut buffer[..most])? {
                0 => return Ok(()),
                count => {
                    to.write_all(&buffer[..count])?;
                    self.read += count as u64;
                    *left -= count as u64;
                }
            }
        }
        Ok(())
    }

    /// Goes on to the file of the next try, once all was read of one that was put aside; whether there is one.
    fn open_next(&mut self) -> io::Result<bool> {
        // One that was empty is not put aside.
        if self.open.as_ref().is_some_and(|open| is_at(open, &self.aside())) {
            self.number += 1;
        }
        let newest = match open(&self.aside())? {
            Some(next) => Some(next),
            None => match open(&self.path)? {
                // It may have been put aside itself, or the one before it just now.
                Some(newest) => Some(open(&self.aside())?.unwrap_or(newest)),
                None => None,
            },
        };
        let Some(next) = newest else { return Ok(false) };
        (self.open, self.read) = (Some(next), 0);
        Ok(true)
    }

    fn aside(&self) -> PathBuf {
        let mut path = self.path.as_os_str().to_owned();
        path.push(format!(".{}", self.number));
        path.into()
    }
}

/// A file, if it is there.
fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        file => file.map(Some),
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(own), Ok(there)) = (file.metadata(), std::fs::metadata(path)) else { return false };
    (own.dev(), own.ino()) == (there.dev(), there.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// As many tries as there are between two looks, empty ones among them: nothing is missing or there twice.
    #[test]
    fn all_of_each_try_is_passed_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.out");
        let mut stream = Stream { path: path.clone(), open: None, read: 0, number: 1 };
        let mut passed = Vec::new();
        let mut aside = 0;
        let mut begin = || {
            if fs::metadata(&path).is_ok_and(|found| found.len() > 0) {
                aside += 1;
                fs::rename(&path, dir.path().join(format!("1.out.{aside}"))).unwrap();
            }
            let _ = fs::remove_file(&path);
            File::options().append(true).create(true).open(&path).unwrap()
        };
        assert!(stream.pass(&mut passed).unwrap());
        let mut first = begin();
        assert!(stream.pass(&mut passed).unwrap());
        first.write_all(b"one ").unwrap();
        assert!(stream.pass(&mut passed).unwrap());
        first.write_all(b"more ").unwrap();
        begin().write_all(b"two ").unwrap();
        begin().write_all(b"three ").unwrap();
        begin();
        assert!(stream.pass(&mut passed).unwrap());
        begin();
        begin().write_all(b"four").unwrap();
        assert!(stream.pass(&mut passed).unwrap() && stream.pass(&mut passed).unwrap());
        assert_eq!(String::from_utf8(passed).unwrap(), "one more two three four");
    }

    #[test]
    fn much_is_passed_on_in_parts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.out");
        let text: Vec<u8> = (0..=MOST).map(|at| (at % 251) as u8).collect();
        fs::write(&path, &text).unwrap();
        let mut stream = Stream { path, open: None, read: 0, number: 1 };
        let mut passed = Vec::new();
        assert!(!stream.pass(&mut passed).unwrap());
        assert_eq!(passed.len() as u64, MOST);
        assert!(stream.pass(&mut passed).unwrap());
        assert!(passed == text);
    }
}
