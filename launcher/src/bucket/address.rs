//! Bucket and key, as people write them.

use super::BucketError;
use std::fmt::{self, Display, Formatter};
use std::path::Path;

/// What an address begins with.
const SCHEME: &str = "s3://";
/// The longest key of S3, in bytes.
const MOST_KEY: usize = 1024;

/// A place in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    bucket: String,
    key: String,
}

impl Address {
    /// The address that a path is; `None`: it is a path.
    ///
    /// # Errors
    /// Where it begins as one, and is none.
    pub fn of(path: &Path) -> Result<Option<Self>, BucketError> {
        let Some(rest) = path.as_os_str().as_encoded_bytes().strip_prefix(SCHEME.as_bytes()) else {
            return Ok(None);
        };
        let wrong = || BucketError::NoAddress(path.display().to_string());
        let text = std::str::from_utf8(rest).map_err(|_| wrong())?;
        let (bucket, key) = text.split_once('/').unwrap_or((text, ""));
        let key = key.trim_matches('/');
        // docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html; other servers are less strict.
        let is_bucket = (1..=255).contains(&bucket.len())
            && bucket.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
        let is_key = key.len() <= MOST_KEY
            && !key.chars().any(char::is_control)
            && key.split('/').all(|part| !matches!(part, "." | ".."))
            && !key.contains("//");
        match is_bucket && is_key {
            true => Ok(Some(Self { bucket: bucket.to_owned(), key: key.to_owned() })),
            false => Err(wrong()),
        }
    }

    /// What is called so below it.
    #[must_use]
    pub fn below(&self, name: &str) -> Self {
        let key = match self.key.as_str() {
            "" => name.to_owned(),
            key => format!("{key}/{name}"),
        };
        Self { bucket: self.bucket.clone(), key }
    }

    /// The bucket.
    #[cfg(feature = "s3")]
    pub(super) fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The key.
    #[cfg(feature = "s3")]
    pub(super) fn key(&self) -> &str {
        &self.key
    }
}

impl Display for Address {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{SCHEME}{}/{}", self.bucket, self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_from_paths() {
        let of = |text: &str| Address::of(Path::new(text));
        for path in ["/kept", "kept", "s3/bucket", "S3://bucket/x", "-"] {
            assert!(matches!(of(path), Ok(None)), "{path}");
        }
        for wrong in ["s3://", "s3:///x", "s3://a b/x", "s3://a/../b", "s3://a//b//c", "s3://a/\n"]
        {
            assert!(matches!(of(wrong), Err(BucketError::NoAddress(_))), "{wrong}");
        }
        let told = |text| of(text).unwrap().unwrap().below("fold.ckptd").to_string();
        assert_eq!(told("s3://runs"), "s3://runs/fold.ckptd");
        assert_eq!(told("s3://runs/"), "s3://runs/fold.ckptd");
        assert_eq!(told("s3://runs/of/anna/"), "s3://runs/of/anna/fold.ckptd");
    }
}
