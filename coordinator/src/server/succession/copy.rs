//! Copies of a lost coordinator's folder: an agent's, one that is fetched, and what is made of them.

use super::{Marker, open_authority};
use crate::cluster::ClusterEntry;
use crate::journal::{self, Journal};
use crate::server::replication::Source;
use crate::server::{ServeError, io_error};
use protocol::cluster::Term;
use protocol::cluster::replica::{SmallFile, generation_of};
use protocol::cluster::succession::Copy;
use protocol::durable::remove_if_there;
use protocol::log_times;
use protocol::transport::{Authorities, Authority};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where a copy is fetched to, in the coordinator's folder.
const FETCHED: &str = "fetched";
/// The log before it counts.
const NEW_LOG: &str = "cluster.log.new";

/// A copy in the folder of the coordinator to be.
#[derive(Debug)]
pub struct Copied {
    state: PathBuf,
    /// All entries.
    pub entries: Vec<ClusterEntry>,
    /// The term of whoever wrote it.
    pub term: Term,
    /// Milliseconds since anything was written to it.
    pub age_ms: u64,
}

fn failed(action: &str, path: &Path) -> impl FnOnce(io::Error) -> ServeError {
    io_error(format!("{action} {}", path.display()))
}

/// The copy in a folder, if there is one that is whole.
///
/// # Errors
/// Where it can't be read.
pub fn look(folder: &Path) -> Result<Option<Copy>, ServeError> {
    Copy::in_folder(folder).map_err(|(path, error)| failed("read", &path)(error))
}

/// Whether one copy says more than another.
pub fn is_newer(copy: &Copy, than: &Copy) -> bool {
    let extent = |copy: &Copy| (copy.note.term, copy.generation, copy.length, copy.output);
    extent(copy) > extent(than)
}

/// The entries of the log in a folder.
///
/// # Errors
/// Where it can't be read, or is damaged.
pub fn entries(folder: &Path) -> Result<Vec<ClusterEntry>, ServeError> {
    let path = Source::new(folder).log();
    let mut file = File::open(&path).map_err(failed("open", &path))?;
    let text = journal::content(&mut file, &path)?;
    let entries = journal::entries::<ClusterEntry>(&text)?;
    Ok(entries.into_iter().map(|(entry, _)| entry).collect())
}

/// The term of whoever wrote these entries.
fn term_of(entries: &[ClusterEntry]) -> Term {
    let term = |entry: &ClusterEntry| match entry {
        ClusterEntry::TermBegun { term, .. } => Some(*term),
        _ => None,
    };
    entries.iter().filter_map(term).max().unwrap_or(1)
}

/// The authority of a copy.
///
/// # Errors
/// Where the copy has none, or not its key.
pub fn authority(folder: &Path) -> Result<Authority, ServeError> {
    for file in [SmallFile::Authority, SmallFile::AuthorityKey] {
        let path = folder.join(file.name());
        if file == SmallFile::AuthorityKey && !path.exists() {
            return Err(ServeError::Recovery(
                "this machine has a copy of the coordinator's log, but not the cluster's key: run it on a standby \
                 that an operator has named (ckptd nodes --standby), or, where none is, on a member that is no mere worker"
                    .to_owned(),
            ));
        }
        fs::metadata(&path).map_err(failed("read", &path))?;
    }
    open_authority(folder)
}

/// An empty folder for what is fetched.
///
/// # Errors
/// Where it can't be made.
pub fn room(state: &Path) -> Result<PathBuf, ServeError> {
    let folder = state.join(FETCHED);
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed("remove", &folder)(error));
        }
        _ => {}
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder.join("jobs"))
        .map_err(failed("create", &folder))?;
    Ok(folder)
}

/// Copies a copy into the folder of the coordinator to be, with the authority from the copy of this machine, `own`. Its log
/// does not count yet.
///
/// # Errors
/// Where that folder belongs to another cluster, or has a newer log; where it can't be written.
pub fn lay_down(
    source: &Path,
    own: &Path,
    state: &Path,
    chosen: &Copy,
) -> Result<Copied, ServeError> {
    let found = entries(source)?;
    let term = term_of(&found);
    let old = Source::new(state).log();
    if old.exists() {
        let known = entries(state)?;
        let length = fs::metadata(&old).map_err(failed("read", &old))?.len();
        let generation = generation_of(&old).map_err(failed("read", &old))?;
        if (term_of(&known), generation, length) >= (term, chosen.generation, chosen.length) {
            return Err(ServeError::Recovery(format!(
                "{} has a log that is not older than any copy: start it without --recover",
                state.display()
            )));
        }
        if !is_of_one_cluster(source, state)? {
            return Err(ServeError::Recovery(format!(
                "{} belongs to another cluster: give another --state",
                state.display()
            )));
        }
    }
    for file in SmallFile::ALL {
        // Who has the newest log need not have the key.
        let from = if file == SmallFile::Register { source } else { own }.join(file.name());
        if from.exists() {
            copy(&from, &state.join(file.name()))?;
        }
    }
    let jobs = source.join("jobs");
    for job in fs::read_dir(&jobs).map_err(failed("list", &jobs))? {
        let job = job.map_err(failed("list", &jobs))?;
        let from = job.path().join("log");
        if from.exists() {
            let folder = state.join("jobs").join(job.file_name());
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(0o700);
            builder.create(&folder).map_err(failed("create", &folder))?;
            copy(&from, &folder.join("log"))?;
            let times = job.path().join(log_times::NAME);
            match times.exists() {
                true => copy(&times, &folder.join(log_times::NAME))?,
                // What an older log here had does not count for this one.
                false => forget(&folder.join(log_times::NAME))?,
            }
        }
    }
    let log = Source::new(source).log();
    copy(&log, &state.join(NEW_LOG))?;
    Ok(Copied { state: state.to_owned(), entries: found, term, age_ms: chosen.age_ms })
}

/// Whether two folders are of one cluster, which may have exchanged its authority since one of them was written.
fn is_of_one_cluster(one: &Path, other: &Path) -> Result<bool, ServeError> {
    let [one, other] = [Authorities::known_in(one)?, Authorities::known_in(other)?];
    Ok(other.is_empty() || one.iter().any(|authority| other.contains(authority)))
}

fn forget(path: &Path) -> Result<(), ServeError> {
    remove_if_there(path).map_err(failed("remove", path))
}

fn copy(from: &Path, to: &Path) -> Result<(), ServeError> {
    let done = || -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(to)?;
        io::copy(&mut File::open(from)?, &mut file)?;
        file.sync_all()
    };
    done().map_err(failed("copy to", to))
}

impl Copied {
    /// From here on it counts, with one entry more.
    ///
    /// # Errors
    /// Where it can't be written.
    pub fn finish(&self, last: &ClusterEntry) -> Result<(), ServeError> {
        let new = self.state.join(NEW_LOG);
        let log = Source::new(&self.state).log();
        let opened = self.entries.first().cloned();
        let opened = opened.ok_or_else(|| ServeError::Recovery("the copy is empty".to_owned()))?;
        let (mut journal, _) = Journal::open(&new, opened)?;
        journal.append(last)?;
        if log.exists() {
            let kept = self.state.join(format!("cluster.log.before-term-{}", self.term + 1));
            fs::rename(&log, &kept).map_err(failed("put aside", &log))?;
        }
        Marker::remove(&self.state).map_err(failed("clean up", &self.state))?;
        fs::rename(&new, &log).map_err(failed("rename", &new))?;
        let folder = File::open(&self.state).and_then(|folder| folder.sync_all());
        folder.map_err(failed("sync", &self.state))?;
        // It has served.
        let _ = fs::remove_dir_all(self.state.join(FETCHED));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;
    use crate::cluster::shorten;
    use crate::server::LOG;
    use protocol::cluster::replica::NOTE;

    /// A copy with a log of these entries.
    fn copy_of(entries: &[ClusterEntry]) -> (tempfile::TempDir, Copy) {
        let folder = tempfile::tempdir().unwrap();
        let (mut log, _) = Journal::open(&folder.path().join(LOG), entries[0].clone()).unwrap();
        entries[1..].iter().for_each(|entry| log.append(entry).unwrap());
        let note = r#"{"term":1,"addresses":[],"grace_s":1.0}"#;
        fs::write(folder.path().join(NOTE), note).unwrap();
        let copy = look(folder.path()).unwrap().unwrap();
        (folder, copy)
    }

    #[test]
    fn a_log_that_was_made_shorter_is_newer_than_the_one_before() {
        let mut entries = vec![ClusterEntry::Opened { format: 1 }];
        let drained = |on| ClusterEntry::NodeDrained { node: "n".parse().unwrap(), on };
        entries.extend((0..100).map(|number| drained(number % 2 == 0)));
        let (_old, old) = copy_of(&entries);
        entries = shorten(Time::default(), &entries).unwrap();
        let (_new, new) = copy_of(&entries);
        assert!(new.length < old.length && is_newer(&new, &old) && !is_newer(&old, &new));
        entries.push(drained(true));
        let (_longer, longer) = copy_of(&entries);
        assert!(is_newer(&longer, &new));
        let (_newest, newest) = copy_of(&shorten(Time::default(), &entries).unwrap());
        assert_eq!((old.generation, new.generation, newest.generation), (0, 1, 2));
        assert!(is_newer(&newest, &longer));
    }
}
