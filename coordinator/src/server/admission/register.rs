//! The file with tokens and members.

use super::AdmissionError;
use protocol::cluster::NodeName;
use protocol::cluster::powers::Powers;
use protocol::transport::{Fingerprint, Shown};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

/// Version of the file.
const FORMAT: u32 = 3;

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 16 * 1024 * 1024;

/// A token that is out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IssuedToken {
    /// Hash of its secret.
    pub(super) secret: String,
    /// When it expires, in milliseconds since 1970 UTC.
    pub(super) expires_ms: u64,
    /// How often it may still be used.
    pub(super) uses: u32,
    /// What those may order who join with it.
    #[serde(default = "as_before")]
    pub(super) powers: Powers,
}

/// Who is a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Registered {
    /// The one key of it that is good. In files of before format 3, and until the member comes, that of its certificate.
    #[serde(alias = "certificate")]
    pub(super) key: Fingerprint,
    /// What it may order.
    pub(super) powers: Powers,
    /// The authority that has certified it last, and in which it believes. None, in files of before format 3: the only one
    /// that there was.
    #[serde(default)]
    pub(super) authority: Option<Fingerprint>,
}

impl Registered {
    /// Whether it is the one who has shown that.
    pub(super) fn is(&self, shown: &Shown) -> bool {
        self.key == shown.key || self.key == shown.certificate
    }
}

/// Those of members that joined before tokens had powers: all users of their machines were believed.
pub(super) fn as_before() -> Powers {
    Powers::of_all_users(false)
}

/// What the file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Register {
    format: u32,
    pub(super) tokens: Vec<IssuedToken>,
    /// In files of format 1: the certificates of members.
    #[serde(default, skip_serializing)]
    members: BTreeMap<NodeName, Fingerprint>,
    /// The members.
    #[serde(default)]
    pub(super) registered: BTreeMap<NodeName, Registered>,
    /// Users for whom tokens have named the members that speak for them. None is ever left out again: who has
    /// protected a user would not notice.
    #[serde(default)]
    pub(super) named: BTreeSet<String>,
    /// Members that alone get the cluster's key. None: none was ever named, and all get it that have a copy of the folder
    /// but workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) standbys: Option<BTreeSet<NodeName>>,
}

impl Register {
    /// As the file has it; empty, where there is none. `authority`: the cluster's.
    pub(super) fn open(path: &Path, authority: &Fingerprint) -> Result<Self, AdmissionError> {
        let failed = |reason: String| failed("read", path, reason);
        match fs::metadata(path) {
            Ok(found) if found.len() > MAX_FILE => return Err(failed("it is too large".into())),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { format: FORMAT, ..Self::default() });
            }
            Err(error) => return Err(failed(error.to_string())),
        }
        let text = fs::read(path).map_err(|error| failed(error.to_string()))?;
        let register: Self =
            protocol::json::read(&text).map_err(|error| failed(error.to_string()))?;
        if register.format > FORMAT {
            return Err(failed(format!(
                "it has format {}, this ckptd reads up to {FORMAT}: use a newer one",
                register.format
            )));
        }
        Ok(register.upgraded(authority))
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), AdmissionError> {
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::from);
        let written = text.and_then(|text| protocol::durable::replace(path, &text));
        written.map_err(|error| failed("write", path, error.to_string()))
    }

    /// In the form of this version.
    fn upgraded(mut self, authority: &Fingerprint) -> Self {
        for (node, key) in std::mem::take(&mut self.members) {
            let registered = Registered { key, powers: as_before(), authority: None };
            self.registered.insert(node, registered);
        }
        for known in self.registered.values_mut() {
            known.authority.get_or_insert_with(|| authority.clone());
        }
        self.format = FORMAT;
        self
    }
}

fn failed(action: &'static str, path: &Path, reason: String) -> AdmissionError {
    AdmissionError::File { action, path: path.to_owned(), reason }
}
