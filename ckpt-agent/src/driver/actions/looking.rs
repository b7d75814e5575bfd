//! Users who look at images of their jobs: this agent's folders are open to nobody else, so it reads for them, beside its event
//! loop. The coordinator has said which images they may know of.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ckpt_node::Event;
use protocol::cluster::client::Answer;
use protocol::cluster::look::{Finding, ImageName, Look};
use protocol::task;

use super::Driver;
use crate::look::{Content, judge_number};

/// The most bytes of an image's index files that are passed on; an answer of one line holds them.
const LONGEST_INDEX: u64 = 8 * 1024 * 1024;
/// The most of several images: a client that does not read them as fast is not left for it.
const MOST_PASSED_ON: u64 = 32 * 1024 * 1024;

impl Driver {
    pub(super) fn look(&mut self, client: u64, job: String, images: Vec<ImageName>, look: Look) {
        let gone = Arc::new(AtomicBool::new(false));
        self.readers.insert(client, gone.clone());
        let (folders, reports) = (self.parts.folders.clone(), self.parts.reports.clone());
        let keys = self.parts.keys.clone();
        task::spawn_blocking(move || {
            // Without it what is encrypted can't be read, and the finding says so.
            let _loan = folders.job(&job).is_dir().then(|| keys.lend(&job));
            let mut left = MOST_PASSED_ON;
            for image in images {
                if gone.load(Ordering::Relaxed) {
                    break;
                }
                let folder = folders.instance(&job, image.instance);
                let finding = read(&folder, image, look, &mut left);
                let line = serde_json::to_string(&Answer::Image { image, finding });
                if let Ok(line) = line {
                    reports.event(Event::Looked(client, Some(line)));
                }
            }
            reports.event(Event::Looked(client, None));
        });
    }

    /// Nobody listens to what is read for that command any more.
    pub(super) fn stop_look(&mut self, client: u64) {
        if let Some(gone) = self.readers.remove(&client) {
            gone.store(true, Ordering::Relaxed);
        }
    }
}

fn read(folder: &Path, image: ImageName, look: Look, left: &mut u64) -> Finding {
    let number = image.checkpoint;
    let finding = match look {
        Look::Verify => judge_number(folder, number, |_| {}),
        Look::Inspect => match Content::read_bounded(folder, number, LONGEST_INDEX.min(*left)) {
            Ok(content) => {
                *left = left.saturating_sub(content.index_length());
                match protocol::json::to_value(&content) {
                    Ok(value) => Finding::Content { value },
                    Err(error) => Finding::Unread { reason: error.to_string() },
                }
            }
            Err(error) => Finding::Unread { reason: error.to_string() },
        },
    };
    // The job's own newer checkpoints may have taken its place while it was read.
    let is_there = || folder.join("checkpoints").join(number.to_string()).exists();
    match finding {
        Finding::Damaged { .. } | Finding::Unread { .. } if !is_there() => Finding::Missing,
        finding => finding,
    }
}
