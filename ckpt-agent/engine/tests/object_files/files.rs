use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::harness::{alone, dump, dump_with, flags_of, same};

fn file_at(path: &Path, content: &str, options: &mut fs::OpenOptions, offset: u64) -> File {
    fs::write(path, content).unwrap();
    let mut file = options.open(path).unwrap();
    file.seek(SeekFrom::Start(offset)).unwrap();
    file
}

fn into_file(fd: OwnedFd) -> File {
    File::from(fd)
}

#[test]
fn offsets_flags_and_sharing() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let read = file_at(&path, "0123456789", File::options().read(true), 4);
    let dup = read.try_clone().unwrap();
    let other = file_at(&folder.path().join("o"), "x", File::options().append(true), 0);
    let new = dump(&[&read, &dup, &other]).unwrap().restore().unwrap().fds;
    assert!(same(&new[0], &new[1]) && !same(&new[0], &new[2]));
    assert_eq!(flags_of(&new[2]), libc::O_WRONLY | libc::O_APPEND);
    let mut text = String::new();
    into_file(new.into_iter().next().unwrap()).read_to_string(&mut text).unwrap();
    assert_eq!(text, "456789");
    assert_eq!(fs::read_to_string(&path).unwrap(), "0123456789");
}

#[test]
fn a_grown_file_is_put_back_and_its_tail_kept() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut file = file_at(&path, "before", File::options().read(true).write(true), 6);
    let reader = File::open(&path).unwrap();
    for round in 1..=2 {
        let image = dump(&[&reader, &file]).unwrap();
        file.write_all(b" after").unwrap();
        let new = image.restore().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "before");
        let tail = folder.path().join(format!("log.ckptd-tail-{round}"));
        assert_eq!(fs::read_to_string(&tail).unwrap(), " after");
        assert!(new.warnings[0].contains(tail.to_str().unwrap()), "{:?}", new.warnings);
        file = into_file(new.fds.into_iter().next_back().unwrap());
        assert_eq!(file.stream_position().unwrap(), 6);
    }
}

#[test]
fn changed_files_are_named_and_force_overrides() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("input");
    type Change = fn(&Path);
    let changes: [(&str, Change); 4] = [
        ("missing", |path| fs::remove_file(path).unwrap()),
        ("3 bytes", |path| fs::write(path, "abc").unwrap()),
        ("12 bytes", |path| fs::write(path, "abcdefabcdef").unwrap()),
        ("modified", |path| {
            let late = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
            File::options().write(true).open(path).unwrap().set_modified(late).unwrap();
        }),
    ];
    for (word, change) in changes {
        for force in [false, true] {
            let file = file_at(&path, "abcdef", File::options().read(true), 1);
            let image = dump(&[&file]).unwrap();
            change(&path);
            match image.restore_with(force) {
                Ok(new) => assert!(force && new.warnings[0].contains(word), "{:?}", new.warnings),
                Err(error) => {
                    let text = error.to_string();
                    let named = text.contains(path.to_str().unwrap()) && text.contains(word);
                    assert!(!force && named && text.contains("--force"), "{text}");
                }
            }
        }
    }
    // Written in place: the time is the job's own doing. Shorter is not.
    let file = file_at(&path, "abcdef", File::options().write(true), 1);
    let image = dump(&[&file]).unwrap();
    fs::write(&path, "ABCDEF").unwrap();
    image.restore().unwrap();
    let image = dump(&[&file]).unwrap();
    fs::write(&path, "A").unwrap();
    assert!(image.restore().unwrap_err().to_string().contains("1 bytes"));
}

#[test]
fn directories() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sub");
    fs::create_dir(&path).unwrap();
    let kept = File::open(&path).unwrap();
    let new = dump(&[&kept]).unwrap().restore().unwrap().fds;
    let old = kept.metadata().unwrap();
    let found = nix::sys::stat::fstat(&new[0]).unwrap();
    assert_eq!((found.st_dev, found.st_ino), (old.dev(), old.ino()));
    assert!(dump(&[&kept]).unwrap().restore().is_ok());
    let image = dump(&[&kept]).unwrap();
    fs::remove_dir(&path).unwrap();
    assert!(image.restore().unwrap_err().to_string().contains("sub"));
    let image = dump(&[&kept]).unwrap();
    let new = image.restore().unwrap().fds;
    assert_eq!(nix::sys::stat::fstat(&new[0]).unwrap().st_nlink, 0, "still removed");
    fs::create_dir(&path).unwrap();
    let kept = File::open(&path).unwrap();
    let session = folder.path().to_path_buf();
    let image = dump_with(&[&kept], |context| context.session_directories.push(session)).unwrap();
    fs::remove_dir(&path).unwrap();
    image.restore().unwrap();
    assert!(path.is_dir());
}

#[test]
fn places_without_an_open_file() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "content").unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("file", &link).unwrap();
    let open = |path: &Path, flags: i32| {
        File::options().read(true).custom_flags(libc::O_PATH | flags).open(path).unwrap()
    };
    let fds = [
        open(&path, 0),
        open(&link, libc::O_NOFOLLOW),
        open(folder.path(), libc::O_DIRECTORY),
        open(Path::new("/dev/null"), 0),
    ];
    let image = dump(&[&fds[0], &fds[1], &fds[2], &fds[3]]).unwrap();
    let new = image.restore().unwrap().fds;
    for (old, new) in fds.iter().zip(&new) {
        assert_ne!(flags_of(new) & libc::O_PATH, 0);
        let (old, new) = (nix::sys::stat::fstat(old).unwrap(), nix::sys::stat::fstat(new).unwrap());
        assert_eq!((old.st_ino, old.st_mode), (new.st_ino, new.st_mode));
    }
    // Deleted: the content travels, and the place can still be opened.
    let image = dump(&[&fds[0]]);
    fs::remove_file(&path).unwrap();
    image.unwrap().restore().unwrap_err();
    let new = dump(&[&fds[0]]).unwrap().restore().unwrap().fds;
    let again = crate::harness::again(&new[0], File::options().read(true));
    let mut text = String::new();
    into_file(again).read_to_string(&mut text).unwrap();
    assert_eq!(text, "content");
}

#[test]
fn devices_and_kernel_files() {
    let _alone = alone();
    let open = |path: &str| File::options().read(true).write(true).open(path).unwrap();
    let fds = ["/dev/null", "/dev/zero", "/dev/full"].map(open);
    let random = ["/dev/urandom", "/dev/random", "/proc/version", "/sys/kernel/mm"]
        .map(|path| File::open(path).unwrap());
    let mut version = String::new();
    let mut reader = &random[2];
    reader.seek(SeekFrom::Start(6)).unwrap();
    let image = dump(&[&fds[0], &fds[1], &fds[2], &random[0], &random[1], &random[2], &random[3]]);
    let new = image.unwrap().restore().unwrap().fds;
    let mut files = new.into_iter().map(File::from);
    for device in fds.iter().chain(&random[..2]) {
        let found = files.next().unwrap().metadata().unwrap();
        assert_eq!(found.rdev(), device.metadata().unwrap().rdev());
    }
    files.next().unwrap().read_to_string(&mut version).unwrap();
    assert_eq!(version, fs::read_to_string("/proc/version").unwrap()[6..]);
    let text = dump(&[&File::open("/proc/self/maps").unwrap()]).unwrap_err().to_string();
    assert!(text.contains("/maps shows a process that is not one of the job's"), "{text}");
}

#[test]
fn unknown_kinds_are_refused_by_name() {
    let _alone = alone();
    // A namespace has no kind of its own.
    let namespace = File::open("/proc/self/ns/uts").unwrap();
    let text = dump(&[&namespace]).unwrap_err().to_string();
    assert!(text.contains("process 42 (test)") && text.contains("uts:"), "{text}");
}
