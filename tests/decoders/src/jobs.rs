//! The files in which the launcher keeps jobs of one machine, and the agent its membership.

use crate::random::Random;
use crate::room;
use crate::sample::samples;
use ckptd::jobs::JobRecord;
use protocol::cluster::succession::Followed;
use protocol::transport::Identity;
use std::fs;

/// Reads a job's record, and a membership of which this is one file after the other.
pub fn state_files(bytes: &[u8]) {
    let Ok(folder) = room() else { return };
    let path = folder.path().join("job.json");
    if fs::write(&path, bytes).is_ok() {
        let _ = JobRecord::read(&path, "a");
    }
    if let Ok(value) = serde_json::from_slice(bytes) {
        if let Ok(record) = JobRecord::adopt(value) {
            let _ = record.settings.coordinator();
        }
    }
    let files = ["key.pem", "cert.pem", "ca.pem", "coordinator", "followed.json"];
    for file in files {
        let _ = fs::write(folder.path().join(file), bytes);
    }
    let _ = Identity::load(folder.path());
}

/// Records of jobs, and who is followed.
pub fn seeds(random: &mut Random) -> Vec<Vec<u8>> {
    let mut values = samples::<JobRecord>(random);
    for value in &mut values {
        value["id"] = "a".into();
    }
    values.extend(samples::<Followed>(random));
    values.iter().map(|value| value.to_string().into_bytes()).collect()
}
