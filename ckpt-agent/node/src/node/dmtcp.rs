//! What was done with images of DMTCP's processes.

use protocol::cluster::agent::FromAgent;
use protocol::cluster::dmtcp::{DmtcpFile, DmtcpImage, DmtcpOrder, DmtcpReport, JOB_PREFIX};

use super::Node;
use crate::Action;
use crate::names::is_job_id;

impl Node {
    pub(super) fn dmtcp(&mut self, order: DmtcpOrder) {
        let (DmtcpOrder::TakeIn { image, .. } | DmtcpOrder::Restart { image, .. }) = &order;
        if is_job_id(&image.job) && image.job.starts_with(JOB_PREFIX) {
            return self.voice.act(Action::Dmtcp(order));
        }
        let reason = format!("{:?} is no id of a job of DMTCP", image.job);
        self.dmtcp_done(image.clone(), Err(reason));
    }

    pub(super) fn dmtcp_done(&mut self, image: DmtcpImage, result: Result<Vec<DmtcpFile>, String>) {
        let (files, failure) = match result {
            Ok(files) => (files, None),
            Err(reason) => (Vec::new(), Some(reason)),
        };
        self.voice.tell(FromAgent::Dmtcp(DmtcpReport { image, files, failure }));
    }
}
