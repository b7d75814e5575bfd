//! An archive on its way out of a bucket, range by range, into a pipe. What of it is right, the import checks.

use super::client::{Object, unless, wait};
use super::connector::Patience;
use super::{Address, BucketError, GiveUp};
use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt};
use std::fs::File;
use std::io::{self, Write};
use std::thread::JoinHandle;
use std::time::Instant;

/// Bytes that are asked for at once.
const RANGE: u64 = 8 << 20;
/// How often a range is asked for, if that fails sooner than it may take.
const TRIES: usize = 3;

/// What fills the pipe.
pub struct Download(JoinHandle<Result<(), BucketError>>);

impl Download {
    /// Begins it; the pipe's other end. Given up, it ends.
    ///
    /// # Errors
    /// Where there is no such archive, or it is given up.
    pub fn begin(address: &Address, give_up: &GiveUp) -> Result<(File, Self), BucketError> {
        let asked = Object::of(address, Patience::SMALL)?;
        let found = wait(unless(give_up, async {
            let found = asked.store.head(&asked.path).await;
            found.map_err(|error| asked.told(&error))
        }))?;
        let object = Object::of(address, Patience::for_bytes(RANGE as usize))?;
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC).map_err(io::Error::from)?;
        let writer = File::from(writer);
        let thread = std::thread::Builder::new().name("download".to_owned());
        let version = Version { size: found.size, tag: found.e_tag };
        let give_up = give_up.clone();
        let fills =
            thread.spawn(move || wait(unless(&give_up, fill(&object, &version, writer))))?;
        Ok((File::from(reader), Self(fills)))
    }

    /// Why nothing more has come, where that is not for the end. The other end of the pipe is closed.
    ///
    /// # Errors
    /// What has failed.
    pub fn end(self) -> Result<(), BucketError> {
        self.0.join().unwrap_or(Err(BucketError::GivenUp))
    }
}

/// What is read, all of it: it may be replaced meanwhile.
struct Version {
    size: u64,
    tag: Option<String>,
}

async fn fill(object: &Object, version: &Version, mut pipe: File) -> Result<(), BucketError> {
    let mut at = 0;
    while at < version.size {
        let end = version.size.min(at + RANGE);
        let bytes = range(object, version, at, end).await?;
        match pipe.write_all(bytes.as_ref()) {
            // Nobody reads any more.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
        at = end;
    }
    Ok(())
}

async fn range(
    object: &Object,
    version: &Version,
    start: u64,
    end: u64,
) -> Result<impl AsRef<[u8]> + use<>, BucketError> {
    let limit = Patience::for_bytes(RANGE as usize).request;
    let (mut tries, since) = (0, Instant::now());
    loop {
        tries += 1;
        let options = GetOptions {
            if_match: version.tag.clone(),
            range: Some(GetRange::Bounded(start..end)),
            ..GetOptions::default()
        };
        let got = match object.store.get_opts(&object.path, options).await {
            Ok(got) if got.range == (start..end) => got.bytes().await,
            Ok(_) => return Err(BucketError::Replaced),
            Err(error) => Err(error),
        };
        match got {
            Ok(bytes) if bytes.len() as u64 == end - start => return Ok(bytes),
            Ok(_) => return Err(BucketError::Replaced),
            Err(error) => match object.told(&error) {
                BucketError::Other { .. } if tries < TRIES && since.elapsed() < limit => {}
                told => return Err(told),
            },
        }
    }
}
