//! What tasks write: N.out and N.err in the folder of results.

use ckptd_farm::Task;
use protocol::room::Room;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Where less is free, no task is begun.
const LEAST_ROOM: u64 = 1 << 20;
/// The most earlier outputs that are kept of a task.
const MOST_ASIDE: u32 = 10_000;

/// The folder of results.
#[derive(Debug)]
pub struct Outputs {
    folder: PathBuf,
}

impl Outputs {
    /// That one, which is made if it is not there.
    ///
    /// # Errors
    /// Where it can't be made.
    pub fn of(folder: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn path(&self, task: Task, stream: &str) -> PathBuf {
        self.folder.join(format!("{}.{stream}", task.0))
    }

    /// Empty files for both streams of a task. What an earlier try has written is put aside.
    ///
    /// # Errors
    /// Where they can't be made.
    pub fn begin(&self, task: Task) -> io::Result<(File, File)> {
        Ok((fresh(&self.path(task, "out"))?, fresh(&self.path(task, "err"))?))
    }

    /// Writes to what a task has told, in its place.
    pub fn tell(&self, task: Task, text: &str) {
        let file = File::options().append(true).open(self.path(task, "err"));
        // A full disk is told of by others.
        let _ = file.and_then(|mut file| file.write_all(text.as_bytes()));
    }

    /// Whether there is room for what a task writes. One that finds none would fail by that.
    pub fn has_room(&self) -> bool {
        Room::of(&self.folder).is_none_or(|room| room.free >= LEAST_ROOM)
    }

    /// How much a task has written.
    pub fn written(&self, task: Task) -> u64 {
        let length = |stream| fs::metadata(self.path(task, stream)).map_or(0, |found| found.len());
        length("out").saturating_add(length("err"))
    }
}

fn fresh(path: &Path) -> io::Result<File> {
    // A restart opens it again, and cuts it back: at its end then, too.
    let make = || File::options().append(true).create_new(true).mode(0o644).open(path);
    match make() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    if fs::metadata(path)?.len() == 0 {
        fs::remove_file(path)?;
        return make();
    }
    for number in 1..=MOST_ASIDE {
        let mut aside = path.as_os_str().to_owned();
        aside.push(format!(".{number}"));
        if !Path::new(&aside).exists() {
            fs::rename(path, &aside)?;
            return make();
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_try_has_written_is_put_aside() {
        let dir = tempfile::tempdir().unwrap();
        let outputs = Outputs::of(dir.path().join("results")).unwrap();
        for text in ["one", "", "two", "three"] {
            let (mut out, _) = outputs.begin(Task(7)).unwrap();
            out.write_all(text.as_bytes()).unwrap();
        }
        let read = |name: &str| fs::read_to_string(outputs.folder().join(name)).unwrap();
        assert_eq!(
            (read("7.out.1"), read("7.out.2"), read("7.out")),
            ("one".into(), "two".into(), "three".into())
        );
        assert_eq!(outputs.written(Task(7)), 5);
        assert_eq!(fs::read_dir(outputs.folder()).unwrap().count(), 4);
    }
}
