//! Whose traffic may go over a machine's network as it is.

use protocol::cluster::agent::JobTraffic;
use protocol::cluster::settings::Traffic;

/// Whether a machine that offers this suits a job that wants that.
#[must_use]
pub fn suits(wanted: Traffic, offered: Option<JobTraffic>) -> bool {
    match wanted {
        Traffic::Clear => true,
        Traffic::Encrypted => offered.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_encrypted_goes_only_where_that_is_done() {
        let offer = Some(JobTraffic { port: 1 });
        assert!(suits(Traffic::Encrypted, offer) && suits(Traffic::Clear, offer));
        assert!(suits(Traffic::Clear, None));
        assert!(!suits(Traffic::Encrypted, None));
    }
}
