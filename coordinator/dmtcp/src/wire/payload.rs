//! What payloads hold: strings that end with a NUL, one behind the other.

use super::WireError;

/// The first `count` strings of a payload. What is no UTF-8 in them is replaced.
///
/// # Errors
/// Where there are fewer.
pub fn payload_strings<const COUNT: usize>(
    payload: &[u8],
    what: &'static str,
) -> Result<[String; COUNT], WireError> {
    let mut strings: [String; COUNT] = std::array::from_fn(|_| String::new());
    let mut rest = payload;
    for string in &mut strings {
        let end = rest.iter().position(|byte| *byte == 0).ok_or(WireError::Payload(what))?;
        *string = String::from_utf8_lossy(&rest[..end]).into_owned();
        rest = &rest[end + 1..];
    }
    Ok(strings)
}

/// Where a worker's image is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageName {
    /// The host's name, as the worker tells it.
    pub host: String,
    /// `ssh` or `rsh`, by which the process was started there; empty for neither.
    pub shell: String,
    /// The file.
    pub path: String,
}

impl ImageName {
    /// The name in a payload.
    ///
    /// # Errors
    /// Where there is none.
    pub fn of(payload: &[u8]) -> Result<Self, WireError> {
        let [path, shell, host] = payload_strings(payload, "a path, a shell and a host")?;
        if path.is_empty() || host.is_empty() {
            return Err(WireError::Payload("an image's path and host"));
        }
        if !matches!(shell.as_str(), "" | "ssh" | "rsh") {
            return Err(WireError::Payload("ssh or rsh as the shell"));
        }
        Ok(Self { host, shell, path })
    }

    /// The payload of this name.
    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        [&self.path, &self.shell, &self.host]
            .into_iter()
            .flat_map(|text| text.bytes().chain([0]))
            .collect()
    }
}
