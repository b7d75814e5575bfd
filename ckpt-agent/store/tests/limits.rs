//! A full disk and a limit on the size of files. One test, because the limit is the process's.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::fs;
use std::path::Path;

use ckpt_store::*;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

fn write(job: &Path, number: u64, mib: u64) -> Result<(), StoreError> {
    let writer = CheckpointWriter::create(job, number)?;
    for part in 0..mib {
        let mut bytes = vec![0; 1 << 20];
        let seed = (number << 32 | part).to_le_bytes();
        blake3::Hasher::new().update(&seed).finalize_xof().fill(&mut bytes);
        writer.submit(part, bytes)?;
    }
    let (mut index, chunks) = writer.finish_chunks()?;
    index.put_json("1.json", &chunks.iter().collect::<Vec<_>>())?;
    index.seal()?.commit(&())?;
    Ok(())
}

fn check_unharmed(job: &Path) {
    verify(job, 1, |_| {}).unwrap();
    assert_eq!(list(job).unwrap().len(), 1);
    assert_eq!(fs::read_dir(job.join("packs")).unwrap().count(), 1);
}

#[test]
fn limits_of_the_machine_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 1, 2).unwrap();

    // Passing it would end the process with SIGXFSZ.
    let (soft, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, 12 << 20, hard).unwrap();
    let result = write(dir.path(), 2, 40);
    setrlimit(Resource::RLIMIT_FSIZE, soft, hard).unwrap();
    let error = result.unwrap_err();
    assert!(matches!(error, StoreError::FileSize { .. }), "{error}");
    assert!(error.to_string().contains("ulimit -f"), "{error}");
    check_unharmed(dir.path());
    setrlimit(Resource::RLIMIT_FSIZE, 100, hard).unwrap();
    let result = write(dir.path(), 2, 0);
    setrlimit(Resource::RLIMIT_FSIZE, soft, hard).unwrap();
    assert!(matches!(result.unwrap_err(), StoreError::FileSize { .. }));
    check_unharmed(dir.path());

    if nix::unistd::geteuid().is_root() {
        full_disk();
    }
}

fn full_disk() {
    let small = tempfile::tempdir().unwrap();
    let options = Some("size=12m,mode=700");
    let mounted = mount(Some("tmpfs"), small.path(), Some("tmpfs"), MsFlags::empty(), options);
    if mounted.is_err() {
        // Root of a container may not mount; the failing disk of crash.rs covers it.
        return;
    }
    let job = small.path().join("job");
    let result = std::panic::catch_unwind(|| {
        write(&job, 1, 2).unwrap();
        let error = write(&job, 2, 40).unwrap_err();
        assert!(matches!(error, StoreError::NoSpace { .. }), "{error}");
        check_unharmed(&job);
        // There is room again.
        write(&job, 2, 2).unwrap();
    });
    umount2(small.path(), MntFlags::MNT_DETACH).unwrap();
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}
