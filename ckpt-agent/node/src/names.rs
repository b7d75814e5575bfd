//! Names that the coordinator and the agents give to things.

use protocol::cluster::InstanceKey;

/// The longest id of a job, in bytes.
const LONGEST_ID: usize = 128;

/// Whether a job's id can be the name of a folder and leads nowhere else.
#[must_use]
pub fn is_job_id(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=LONGEST_ID).contains(&id.len()) && !id.starts_with('.') && id.bytes().all(plain)
}

/// Name of the link between a process that called `ckptd rsh` and the instance that this began: what
/// belongs to it keeps that name through all rollbacks.
#[must_use]
pub fn shell_link(instance: &InstanceKey) -> String {
    format!("{}/{}#link", instance.job, instance.instance.0)
}
