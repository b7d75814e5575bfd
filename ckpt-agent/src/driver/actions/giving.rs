//! Images that a job's user takes elsewhere: they go to its command piece by piece, beside the event loop, from this
//! machine's folders or from another's agent. The coordinator has said which image it is.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ckpt_node::Event;
use protocol::cluster::NodeName;
use protocol::cluster::client::Answer;
use protocol::cluster::look::ImageName;
use protocol::task;

use super::Driver;
use crate::driver::copies::{self, Passing};

impl Driver {
    pub(super) fn give(&mut self, client: u64, job: String, image: ImageName, holder: NodeName) {
        let Some(answers) = self.clients.answers(client) else {
            // It has gone meanwhile.
            return self.events.push_back(Event::Looked(client, None));
        };
        let gone = Arc::new(AtomicBool::new(false));
        self.readers.insert(client, gone.clone());
        let (folders, reports) = (self.parts.folders.clone(), self.parts.reports.clone());
        let (peers, own) = (self.parts.peers.clone(), self.parts.name.clone());
        task::spawn(async move {
            let to = Passing { answers, gone };
            let passed = if holder == own {
                let folder = folders.instance(&job, image.instance);
                copies::pass_on(&folder, image.checkpoint, &to).await
            } else {
                copies::pass_through(&peers, &holder, &job, image, &to).await
            };
            if let Err(reason) = passed {
                let reason = format!("get an image from {holder}: {reason}");
                let answer = Answer::Failed { reason, status: 125 };
                reports.event(Event::Looked(client, Some(answer.line())));
            }
            reports.event(Event::Looked(client, None));
        });
    }
}
