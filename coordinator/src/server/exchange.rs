//! A cluster whose key may be in other hands gets a new authority.
//!
//! It is exchanged while no coordinator runs: each member comes anew to the one that is started next, and gets a certificate
//! of the new authority before anything else is said. The coordinator knows it by its key, which stays. So whoever has the
//! old authority's key can make certificates, but no keys that are in the list. What such a one can still do is to take in
//! members that have not come since: until then, these know nothing but the old authority.

use super::admission::Admission;
use super::audit_log::AuditLog;
use super::succession::Marker;
use super::{ServeError, io_error, lock, superseded};
use protocol::clock::wall_ms;
use protocol::cluster::NodeName;
use protocol::cluster::audit::AuditEvent;
use protocol::cluster::replica::SmallFile;
use protocol::transport::Fingerprint;
use std::path::Path;

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchanged {
    /// The new authority.
    pub authority: Fingerprint,
    /// The members, each of which gets a new certificate when it comes.
    pub members: Vec<NodeName>,
}

/// Gives the cluster of that folder a new authority.
///
/// # Errors
/// Where there is no cluster, its coordinator runs, or another one has taken over; where the folder can't be written.
pub fn exchange_authority(state: &Path) -> Result<Exchanged, ServeError> {
    if !state.join(SmallFile::AuthorityKey.name()).exists() {
        return Err(ServeError::NoCluster(state.to_owned()));
    }
    let _lock = lock(state)?;
    let marker = Marker::of(state).map_err(io_error(format!("read {}", state.display())))?;
    if let Some(marker) = marker {
        return Err(superseded(state, marker));
    }
    let mut audit = AuditLog::open(state).map_err(io_error("open the audit log"))?;
    let mut admission = Admission::open(state)?;
    admission.exchange_authority()?;
    let authority = admission.authority().fingerprint();
    let event = AuditEvent::Exchanged { authority: authority.to_string() };
    audit.append(wall_ms(), event).map_err(io_error("write to the audit log"))?;
    if let Some(file) = audit.take_unsynced() {
        file.sync_all().map_err(io_error("write to the audit log"))?;
    }
    let members = admission.of_before().cloned().collect();
    Ok(Exchanged { authority, members })
}
