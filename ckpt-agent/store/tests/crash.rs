//! The world stops at the n-th file operation of a writer or a collector, for every n: what was
//! committed before stays readable, the new checkpoint is whole or refused, and the next writer
//! clears away the rest. Once as a process is killed (all that was written stays), once as the
//! power goes (what was not synced is lost).

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use ckpt_store::*;
use nix::errno::Errno;

/// Passes operations on until the limit, and then refuses all of them.
#[derive(Clone)]
struct Frail(Arc<Mutex<State>>);

struct State {
    left: usize,
    done: usize,
    fate: Fate,
    /// Files with bytes that may be lost, and how many are safe.
    unsynced: Vec<(PathBuf, u64)>,
    /// Names that may be lost: undone in reverse order.
    unsynced_names: Vec<Name>,
}

enum Name {
    Made(PathBuf),
    Renamed(PathBuf, PathBuf),
}

#[derive(Clone, Copy)]
enum Fate {
    /// Nothing is possible any more, not even cleaning up.
    Stop,
    /// This one operation fails, the others work.
    FailOnce(Errno),
}

impl Frail {
    fn new(left: usize, fate: Fate) -> Self {
        let (unsynced, unsynced_names) = Default::default();
        Self(Arc::new(Mutex::new(State { left, done: 0, fate, unsynced, unsynced_names })))
    }

    fn step<T>(&self, operation: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.0.lock().unwrap();
        state.done += 1;
        let at_limit = state.done == state.left.saturating_add(1);
        match state.fate {
            Fate::Stop if state.done > state.left => Err(Errno::EIO.into()),
            Fate::FailOnce(errno) if at_limit => Err(errno.into()),
            _ => operation(&mut state),
        }
    }

    fn reached_the_limit(&self) -> bool {
        let state = self.0.lock().unwrap();
        state.done > state.left
    }

    fn lose_what_was_not_synced(&self) {
        let mut state = self.0.lock().unwrap();
        for (path, safe) in state.unsynced.drain(..) {
            if let Ok(file) = fs::OpenOptions::new().write(true).open(path) {
                file.set_len(safe).unwrap();
            }
        }
        for name in state.unsynced_names.drain(..).rev() {
            match name {
                Name::Made(path) if path.is_dir() => drop(fs::remove_dir_all(path)),
                Name::Made(path) => drop(fs::remove_file(path)),
                Name::Renamed(from, to) => drop(fs::rename(to, from)),
            }
        }
    }
}

impl Disk for Frail {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.step(|state| {
            RealDisk.make_dir(path)?;
            state.unsynced_names.push(Name::Made(path.to_path_buf()));
            Ok(())
        })
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.step(|state| {
            let inner = RealDisk.create(path)?;
            state.unsynced_names.push(Name::Made(path.to_path_buf()));
            state.unsynced.push((path.to_path_buf(), 0));
            Ok(Box::new(FrailFile { disk: self.clone(), path: path.to_path_buf(), inner }) as _)
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(|state| {
            RealDisk.rename(from, to)?;
            for (path, _) in &mut state.unsynced {
                if path == from {
                    *path = to.to_path_buf();
                }
            }
            state.unsynced_names.push(Name::Renamed(from.to_path_buf(), to.to_path_buf()));
            Ok(())
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.step(|_| RealDisk.remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.step(|_| RealDisk.remove_dir(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.step(|state| {
            state.unsynced_names.retain(|name| match name {
                Name::Made(made) | Name::Renamed(_, made) => made.parent() != Some(path),
            });
            Ok(())
        })
    }
}

struct FrailFile {
    disk: Frail,
    path: PathBuf,
    inner: Box<dyn DiskFile>,
}

impl DiskFile for FrailFile {
    fn append(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let Self { disk, inner, .. } = self;
        disk.step(|_| inner.append(parts))
    }

    fn sync(&mut self) -> io::Result<()> {
        let Self { disk, path, .. } = self;
        disk.step(|state| {
            state.unsynced.retain(|(unsynced, _)| unsynced != path);
            Ok(())
        })
    }
}

/// A disk without limit. It does not really sync either: power goes by simulation only.
fn sound() -> Frail {
    Frail::new(usize::MAX, Fate::Stop)
}

/// 3 MiB that differ for each seed, made once.
fn noise(seed: u64) -> Vec<u8> {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let made = BYTES.get_or_init(|| {
        let mut bytes = vec![0; 3 << 20];
        blake3::Hasher::new().finalize_xof().fill(&mut bytes);
        bytes
    });
    let mut bytes = made.clone();
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes
}

fn write(job: &Path, number: u64, disk: Arc<dyn Disk>) -> Result<(), StoreError> {
    let options = WriterOptions { threads: 1, disk, ..WriterOptions::default() };
    let writer = CheckpointWriter::create_with(job, number, &options)?;
    // More than one group, so that the pack grows in several steps.
    for part in 0..3 {
        writer.submit(part, noise(100 * number + part))?;
    }
    writer.submit(5, vec![1; 5000])?;
    let (mut index, chunks) = writer.finish_chunks()?;
    index.put_json("graph.json", &"graph")?;
    index.put_json("1.json", &chunks.iter().collect::<Vec<_>>())?;
    index.seal()?.commit(&())?;
    Ok(())
}

fn packs(job: &Path) -> usize {
    fs::read_dir(job.join("packs")).map_or(0, |listing| listing.count())
}

fn committed(job: &Path) -> BTreeSet<u64> {
    let states = list(job).unwrap();
    let whole = states.iter().filter(|found| matches!(found.state, CheckpointState::Committed(_)));
    whole.map(|found| found.number).collect()
}

fn checkpoint_one() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 1, Arc::new(sound())).unwrap();
    dir
}

#[test]
fn a_writer_stopped_anywhere_harms_nothing() {
    for power_goes in [false, true] {
        for limit in 0.. {
            let dir = checkpoint_one();
            let job = dir.path();
            let disk = Frail::new(limit, Fate::Stop);
            let result = write(job, 2, Arc::new(disk.clone()));
            if power_goes {
                disk.lose_what_was_not_synced();
            }
            verify(job, 1, |_| {}).unwrap();
            for found in list(job).unwrap() {
                match found.state {
                    CheckpointState::Committed(_) => {
                        verify(job, found.number, |_| {}).unwrap();
                    }
                    CheckpointState::Incomplete => assert_eq!(found.number, 2),
                    CheckpointState::Damaged(damage) => panic!("operation {limit}: {damage}"),
                }
            }
            if result.is_ok() {
                assert!(committed(job).contains(&2), "operation {limit}: what is told is true");
            }
            // The next one finds room, and clears away what is left.
            write(job, 3, Arc::new(sound())).unwrap();
            let whole = committed(job);
            assert!(whole.contains(&1) && whole.contains(&3), "operation {limit}");
            assert_eq!(list(job).unwrap().len(), whole.len(), "operation {limit}");
            assert_eq!(packs(job), whole.len(), "operation {limit}");
            if !disk.reached_the_limit() {
                assert!(result.is_ok() && limit > 20, "{limit} operations: {result:?}");
                break;
            }
        }
    }
}

#[test]
fn an_operation_that_fails_anywhere_is_an_error_and_leaves_nothing() {
    for errno in [Errno::ENOSPC, Errno::EDQUOT, Errno::EIO, Errno::EFBIG, Errno::EROFS] {
        for limit in 0.. {
            let dir = checkpoint_one();
            let job = dir.path();
            let disk = Frail::new(limit, Fate::FailOnce(errno));
            let result = write(job, 2, Arc::new(disk.clone()));
            if !disk.reached_the_limit() {
                result.unwrap();
                break;
            }
            let error = result.unwrap_err();
            let right = match errno {
                Errno::ENOSPC => matches!(error, StoreError::NoSpace { .. }),
                Errno::EDQUOT => matches!(error, StoreError::Quota { .. }),
                Errno::EIO => matches!(error, StoreError::Device { .. }),
                Errno::EFBIG => matches!(error, StoreError::FileSize { .. }),
                _ => matches!(error, StoreError::Kernel { errno: Errno::EROFS, .. }),
            };
            assert!(right, "operation {limit}: {error}");
            assert_eq!(list(job).unwrap().len(), 1, "operation {limit}");
            assert_eq!(packs(job), 1, "operation {limit}");
            verify(job, 1, |_| {}).unwrap();
        }
    }
}

#[test]
fn a_collector_stopped_anywhere_harms_nothing() {
    for limit in 0.. {
        let dir = checkpoint_one();
        let job = dir.path();
        write(job, 2, Arc::new(sound())).unwrap();
        let disk = Frail::new(limit, Fate::Stop);
        let result = collect_on(&disk, job, &[2]);
        verify(job, 2, |_| {}).unwrap();
        if committed(job).contains(&1) {
            verify(job, 1, |_| {}).unwrap();
        }
        collect_on(&sound(), job, &[2]).unwrap();
        assert_eq!(committed(job), [2].into());
        assert_eq!((list(job).unwrap().len(), packs(job)), (1, 1), "operation {limit}");
        if !disk.reached_the_limit() {
            assert!(limit > 5);
            result.unwrap();
            break;
        }
    }
}
