//! Where a machine keeps the key of a job whose images it may read: in the job's folder, open to its user alone.
//!
//! ```text
//! DIR/JOB/key                       of all images below
//! DIR/JOB/checkpoints/…             of a job that is alone on its machine
//! DIR/JOB/instances/N/checkpoints/… of instances of a cluster's job
//! ```

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use protocol::cluster::image_key::{Encryption, JobKey};
use protocol::durable;
use serde::{Deserialize, Serialize};

use super::disk::open_regular;
use super::error::{Damage, StoreError};
use super::sealing::ImageKey;

/// Its name.
const KEY: &str = "key";
/// The folder of a job's instances.
const INSTANCES: &str = "instances";
/// Version of the file.
const FORMAT: u32 = 1;
/// The longest one, in bytes.
const LONGEST: u64 = 4096;

#[derive(Debug, Serialize, Deserialize)]
struct KeyFile {
    format: u32,
    key: JobKey,
    encryption: Encryption,
}

/// Keeps the key of the job whose folder that is, durably.
///
/// # Errors
/// What the kernel refuses.
pub fn keep_key(job: &Path, key: &JobKey, encryption: Encryption) -> Result<(), StoreError> {
    let path = job.join(KEY);
    let file = KeyFile { format: FORMAT, key: key.clone(), encryption };
    let written = || -> io::Result<()> {
        let text = serde_json::to_vec(&file)?;
        if fs::read(&path).is_ok_and(|known| known == text) {
            return Ok(());
        }
        durable::replace(&path, &text)
    };
    written().map_err(|error| StoreError::io("write", &path, &error))
}

/// Removes the key from a job's folder. What is not there is gone.
///
/// # Errors
/// What the kernel refuses.
pub fn forget_key(job: &Path) -> Result<(), StoreError> {
    let path = job.join(KEY);
    for path in [durable::draft_of(&path), path] {
        match fs::remove_file(&path) {
            Err(error)
                if !matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Err(StoreError::io("remove", &path, &error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The key for the images that lie in `folder`, a job's or an instance's; none, where this machine has none.
///
/// # Errors
/// [`Damage::Key`] if it can't be read.
pub fn key_of(folder: &Path) -> Result<Option<ImageKey>, Damage> {
    for path in places(folder) {
        match open_regular(&path) {
            Ok(file) => return read(&path, file).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Damage::io(&path, &error)),
        }
    }
    Ok(None)
}

fn places(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let above = folder.parent().filter(|above| above.ends_with(INSTANCES));
    let job = above.and_then(Path::parent).map(|job| job.join(KEY));
    std::iter::once(folder.join(KEY)).chain(job)
}

fn read(path: &Path, file: File) -> Result<ImageKey, Damage> {
    let mut text = Vec::new();
    let read = file.take(LONGEST).read_to_end(&mut text);
    read.map_err(|error| Damage::io(path, &error))?;
    let bad = |reason: String| Damage::Key { path: path.to_owned(), reason };
    let file: KeyFile = protocol::json::read(&text).map_err(|error| bad(error.to_string()))?;
    match file.format > FORMAT {
        true => Err(bad("it was written by a newer ckptd".to_owned())),
        false => Ok(ImageKey::new(&file.key, file.encryption)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_job_and_its_instances_have_one_key_which_only_its_user_can_read() {
        let dir = tempfile::tempdir().unwrap();
        let job = dir.path().join("job");
        let instance = job.join("instances/7");
        fs::create_dir_all(&instance).unwrap();
        assert!(key_of(&instance).unwrap().is_none());
        let key = JobKey::new([3; 32]);
        for encryption in [Encryption::Shared, Encryption::Apart] {
            keep_key(&job, &key, encryption).unwrap();
            for folder in [&job, &instance] {
                let found = key_of(folder).unwrap().unwrap();
                assert_eq!(found.encryption(), encryption);
            }
        }
        let mode = fs::metadata(job.join(KEY)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        // Not that of any folder above.
        assert!(key_of(&job.join("other/7")).unwrap().is_none());
        forget_key(&job).unwrap();
        forget_key(&job).unwrap();
        assert!(key_of(&instance).unwrap().is_none());
        fs::write(job.join(KEY), b"{}").unwrap();
        assert!(matches!(key_of(&instance), Err(Damage::Key { .. })));
    }
}
