//! The secret from which keys of images follow: in a file of its own, not derived from the cluster's key, so that one can be
//! replaced without the other.

use super::{ServeError, io_error};
use crate::cluster::ImageSecret;
use protocol::cluster::image_key::JobKey;
use protocol::cluster::replica::SmallFile;
use protocol::transport::random;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The longest file, in bytes: 64 digits and a line feed.
const LONGEST: u64 = 65;

/// The secret of the coordinator whose folder that is; a new one, where there is none.
///
/// # Errors
/// Where it can't be read, or made.
pub fn open(state: &Path) -> Result<ImageSecret, ServeError> {
    let path = state.join(SmallFile::ImageSecret.name());
    let failed = |action: &str| io_error(format!("{action} {}", path.display()));
    match File::open(&path) {
        Ok(file) => read(file).map_err(failed("read")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make(&path).map_err(failed("make"))
        }
        Err(error) => Err(failed("open")(error)),
    }
}

fn read(file: File) -> io::Result<ImageSecret> {
    let mut text = String::new();
    file.take(LONGEST + 1).read_to_string(&mut text)?;
    let digits = text.strip_suffix('\n').unwrap_or(&text).to_owned();
    let secret = JobKey::try_from(digits).map_err(io::Error::other)?;
    Ok(ImageSecret(*secret.bytes()))
}

fn make(path: &Path) -> io::Result<ImageSecret> {
    let mut bytes = [0; 32];
    random(&mut bytes).map_err(|_| io::Error::other("the system has no randomness"))?;
    let text = String::from(JobKey::new(bytes)) + "\n";
    protocol::durable::replace(path, text.as_bytes())?;
    Ok(ImageSecret(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn it_is_made_once_and_read_by_its_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let secret = open(folder.path()).unwrap();
        assert_eq!(open(folder.path()).unwrap(), secret);
        let path = folder.path().join("images.key");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(open(other.path()).unwrap(), secret);
        fs::write(&path, "short\n").unwrap();
        assert!(
            open(folder.path()).is_err(),
            "no other one takes the place of one that is damaged"
        );
    }
}
