use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};

use ckpt_engine::graph::{Lock, LockKind};
use ckpt_engine::locks;
use ckpt_engine::objects::FdInfo;
use nix::fcntl::{FcntlArg, fcntl};

use crate::harness::{alone, dump};

fn shown(fd: impl AsFd) -> Vec<Lock> {
    let path = format!("/proc/self/fdinfo/{}", fd.as_fd().as_raw_fd());
    let mut found = locks::read(&FdInfo::read(&path).unwrap()).unwrap();
    found.sort_by_key(|lock| (lock.start, lock.length));
    found
}

fn range(kind: i32, start: i64, length: i64) -> libc::flock {
    libc::flock {
        l_type: kind as _,
        l_whence: libc::SEEK_SET as _,
        l_start: start,
        l_len: length,
        l_pid: 0,
    }
}

#[test]
fn locks_of_descriptions_move_to_the_new_ones() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locked");
    let open = || File::options().read(true).write(true).create(true).truncate(false).open(&path);
    let (ranges, whole, shared) = (open().unwrap(), open().unwrap(), open().unwrap());
    fcntl(&ranges, FcntlArg::F_OFD_SETLK(&range(libc::F_WRLCK, 5, 10))).unwrap();
    fcntl(&ranges, FcntlArg::F_OFD_SETLK(&range(libc::F_RDLCK, 100, 0))).unwrap();
    let flock = Lock {
        kind: LockKind::Flock,
        exclusive: false,
        start: 0,
        length: 0,
        holder: None,
        broken: None,
    };
    locks::restore_of_description(whole.as_fd(), &flock).unwrap();
    locks::restore_of_description(shared.as_fd(), &flock).unwrap();
    let image = dump(&[&ranges, &whole, &shared]).unwrap();
    let before = [shown(&ranges), shown(&whole), shown(&shared)];
    assert_eq!(before[0].len(), 2);
    assert_eq!(before[1][0].kind, LockKind::Flock);
    let taken = dump(&[&ranges, &whole, &shared]).unwrap();
    let text = taken.restore().unwrap_err().to_string();
    assert!(text.contains("another process has locked") && text.contains("locked"), "{text}");
    drop((ranges, whole, shared));
    let new = image.restore().unwrap().fds;
    assert_eq!([shown(&new[0]), shown(&new[1]), shown(&new[2])], before);
}

#[test]
fn locks_of_a_process_are_seen() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = File::create(folder.path().join("locked")).unwrap();
    fcntl(&file, FcntlArg::F_SETLK(&range(libc::F_WRLCK, 7, 3))).unwrap();
    let found = shown(&file);
    let expected = Lock {
        kind: LockKind::Process,
        exclusive: true,
        start: 7,
        length: 3,
        holder: None,
        broken: None,
    };
    assert_eq!(found, [expected]);
    fcntl(&file, FcntlArg::F_SETLK(&range(libc::F_UNLCK, 0, 0))).unwrap();
    assert_eq!(shown(&file), []);
}

#[test]
fn leases_are_seen_whoever_took_them() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leased");
    std::fs::write(&path, "x").unwrap();
    let file = File::open(&path).unwrap();
    let mut lease = std::process::Command::new("python3");
    lease.arg("-c").arg("import fcntl; fcntl.fcntl(0, fcntl.F_SETLEASE, fcntl.F_RDLCK)");
    let status = lease.stdin(file.try_clone().unwrap()).status().unwrap();
    assert!(status.success());
    let expected = Lock {
        kind: LockKind::Lease,
        exclusive: false,
        start: 0,
        length: 0,
        holder: None,
        broken: None,
    };
    assert_eq!(shown(&file), [expected]);
}
