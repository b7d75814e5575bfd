use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use super::*;

/// A folder with a file that has not changed for long enough.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::write(place.file(), b"before").unwrap();
        place.rest();
        place
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("file")
    }

    fn rest(&self) {
        let stat = stat(&self.file());
        while !Stamp::of(&stat).is_older_than(now_ns()) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Reads ahead what this process's children may have changed, wherever it lies.
    fn copies(&self, seen: &Taken) -> Copies {
        let order = Order {
            members: &Members::Below(std::process::id() as i32),
            folders: vec![self.0.path().to_owned()],
            files_limit: 1 << 20,
            user: None,
            seen,
            cluster: false,
            copying: &Copying::default(),
        };
        let mut copies = Copies::default();
        copies.fill(&order, now_ns(), |_| true).unwrap();
        copies
    }
}

fn stat(path: &Path) -> FileStat {
    nix::sys::stat::stat(path).unwrap()
}

/// A process that has a file open for writing, until it is dropped.
struct Writer(Child);

impl Writer {
    fn of(path: &Path) -> Self {
        let file = File::options().append(true).open(path).unwrap();
        let mut command = Command::new("sleep");
        Self(command.arg("600").stdin(Stdio::null()).stdout(file).spawn().unwrap())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn bytes(data: &BlobData) -> Vec<u8> {
    data.extents.iter().flat_map(|extent| extent.bytes.clone().into_memory().unwrap()).collect()
}

#[test]
fn a_file_that_rests_is_read_ahead() {
    let place = Place::new();
    let mut copies = place.copies(&Taken::default());
    let data = copies.take(&stat(&place.file())).unwrap();
    assert_eq!((bytes(&data), data.length), (b"before".to_vec(), 6));
    assert!(copies.take(&stat(&place.file())).is_none(), "it is taken once");
}

#[test]
fn what_has_changed_since_is_read_again() {
    let place = Place::new();
    for change in ["write", "the old time", "replace"] {
        place.rest();
        let mut copies = place.copies(&Taken::default());
        match change {
            "write" => fs::write(place.file(), b"behind").unwrap(),
            "the old time" => {
                let before = stat(&place.file());
                fs::write(place.file(), b"beside").unwrap();
                let file = File::options().write(true).open(place.file()).unwrap();
                let time = super::super::super::sys::stat::time(modified_ns(&before));
                nix::sys::stat::futimens(&file, &time, &time).unwrap();
            }
            _ => {
                fs::write(place.0.path().join("other"), b"instead").unwrap();
                fs::rename(place.0.path().join("other"), place.file()).unwrap();
            }
        }
        assert!(copies.take(&stat(&place.file())).is_none(), "{change}");
    }
}

#[test]
fn what_has_just_changed_is_not_read_ahead() {
    let place = Place::new();
    fs::write(place.file(), b"now").unwrap();
    let mut copies = place.copies(&Taken::default());
    assert!(copies.take(&stat(&place.file())).is_none());
}

#[test]
fn somebody_may_be_within_a_call_that_writes() {
    let place = Place::new();
    let writer = Writer::of(&place.file());
    let mut copies = place.copies(&Taken::default());
    assert!(copies.take(&stat(&place.file())).is_none(), "open for writing");
    drop(writer);
    let mut copies = place.copies(&Taken::default());
    assert!(copies.take(&stat(&place.file())).is_some(), "closed again");
}

#[test]
fn nobody_is_if_nothing_has_changed_since_the_job_stood() {
    let place = Place::new();
    let _writer = Writer::of(&place.file());
    let mut seen = Taken::begin();
    seen.files.insert(identity(&stat(&place.file())), Stamp::of(&stat(&place.file())));
    let mut copies = place.copies(&seen);
    assert!(copies.take(&stat(&place.file())).is_some());
    File::options().append(true).open(place.file()).unwrap().write_all(b"!").unwrap();
    place.rest();
    let mut copies = place.copies(&seen);
    assert!(copies.take(&stat(&place.file())).is_none(), "a call may have begun");
}

#[test]
fn a_file_that_has_lost_its_name_is_found_where_it_is_open() {
    let place = Place::new();
    let _writer = Writer::of(&place.file());
    let opened = File::open(place.file()).unwrap();
    fs::remove_file(place.file()).unwrap();
    let stat = || nix::sys::stat::fstat(&opened).unwrap();
    while !Stamp::of(&stat()).is_older_than(now_ns()) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut seen = Taken::begin();
    seen.files.insert(identity(&stat()), Stamp::of(&stat()));
    let data = place.copies(&seen).take(&stat()).unwrap();
    assert_eq!(bytes(&data), b"before");
}

#[test]
fn a_mapping_may_be_written_through_without_a_sign() {
    let place = Place::new();
    let file = File::options().read(true).write(true).open(place.file()).unwrap();
    let key = identity(&stat(&place.file()));
    let mut busy = Busy::default();
    let own = std::process::id() as i32;
    busy.add_process(own, &|_| false).unwrap();
    assert!(!busy.is_mapped(key));
    let length = std::num::NonZeroUsize::new(6).unwrap();
    let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice, which nothing refers to.
    let at = unsafe { mmap(None, length, both, MapFlags::MAP_SHARED, &file, 0) }.unwrap();
    let mut busy = Busy::default();
    busy.add_process(own, &|_| false).unwrap();
    // SAFETY: it is the one from above.
    unsafe { munmap(at, 6) }.unwrap();
    assert!(busy.is_mapped(key), "descriptor {}", file.as_raw_fd());
}

#[test]
fn no_more_is_read_ahead_than_goes_into_an_image() {
    let place = Place::new();
    let large = File::create(place.0.path().join("large")).unwrap();
    large.set_len(2 << 20).unwrap();
    let stat_of = || stat(&place.0.path().join("large"));
    while !Stamp::of(&stat_of()).is_older_than(now_ns()) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut copies = place.copies(&Taken::default());
    assert!(copies.take(&stat_of()).is_none());
    assert!(copies.take(&stat(&place.file())).is_some());
}
