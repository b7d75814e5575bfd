//! Users who look at images of their jobs: this agent's folders are open to nobody else, so it reads for them, beside its event
//! loop. The coordinator has said which images they may know of.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use protocol::cluster::client::Answer;
use protocol::cluster::look::{Finding, ImageName, Look};

use super::Node;
use crate::daemon::event::Event;
use crate::daemon::folders::is_job_id;
use crate::look::{Content, judge_number};

/// Users for whom something is read at a time.
const MOST_READERS: usize = 4;
/// The most bytes of an image's index files that are passed on; an answer of one line holds them.
const LONGEST_INDEX: u64 = 8 * 1024 * 1024;
/// The most of several images: a client that does not read them as fast is not left for it.
const MOST_PASSED_ON: u64 = 32 * 1024 * 1024;

/// A user for whom images are being read.
#[derive(Debug)]
pub(super) struct Reader {
    client: u64,
    uid: u32,
    /// Nobody listens any more.
    gone: Arc<AtomicBool>,
}

impl Node {
    pub(super) fn look(&mut self, client: u64, job: &str, images: Vec<ImageName>, look: Look) {
        let Some(uid) = self.clients.user(client) else { return };
        let refusal = if !is_job_id(job) {
            Some(format!("{job:?} is no id of a job"))
        } else if self.readers.iter().any(|reader| reader.uid == uid) {
            Some("images are being read for this user: try again when that is done".to_owned())
        } else if self.readers.len() >= MOST_READERS {
            Some("images are being read for several users: try again".to_owned())
        } else {
            None
        };
        if let Some(reason) = refusal {
            let reason = format!("look at images: {reason}");
            self.answer(client, &Answer::Failed { reason, status: 125 });
            return self.clients.answer(client, None);
        }
        let gone = Arc::new(AtomicBool::new(false));
        self.readers.push(Reader { client, uid, gone: gone.clone() });
        let folders = self.parts.folders.clone();
        let (events, job) = (self.parts.events.clone(), job.to_owned());
        tokio::task::spawn_blocking(move || {
            let mut left = MOST_PASSED_ON;
            for image in images {
                if gone.load(Ordering::Relaxed) {
                    break;
                }
                let folder = folders.instance(&job, image.instance);
                let finding = read(&folder, image, look, &mut left);
                let line = serde_json::to_string(&Answer::Image { image, finding });
                events.tell(Event::Looked(client, line.ok()));
            }
            events.tell(Event::Looked(client, None));
        });
    }

    /// Something was found, or that was all.
    pub(super) fn looked(&mut self, client: u64, found: Option<String>) {
        match found {
            Some(line) => self.clients.answer(client, Some(line)),
            None => {
                self.readers.retain(|reader| reader.client != client);
                self.answer(client, &Answer::Done { text: None });
                self.clients.answer(client, None);
            }
        }
    }

    /// Nobody listens to what is read for these any more.
    pub(super) fn readers_gone(&self, is_gone: impl Fn(u64) -> bool) {
        for reader in self.readers.iter().filter(|reader| is_gone(reader.client)) {
            reader.gone.store(true, Ordering::Relaxed);
        }
    }

    fn answer(&mut self, client: u64, answer: &Answer) {
        // Without a line the conversation is over.
        self.clients.answer(client, serde_json::to_string(answer).ok());
    }
}

fn read(folder: &Path, image: ImageName, look: Look, left: &mut u64) -> Finding {
    let number = image.checkpoint;
    let finding = match look {
        Look::Verify => judge_number(folder, number, |_| {}),
        Look::Inspect => match Content::read_bounded(folder, number, LONGEST_INDEX.min(*left)) {
            Ok(content) => {
                *left = left.saturating_sub(content.index_length());
                match serde_json::to_value(content) {
                    Ok(value) => Finding::Content { value },
                    Err(error) => Finding::Unread { reason: error.to_string() },
                }
            }
            Err(reason) => Finding::Unread { reason },
        },
    };
    // The job's own newer checkpoints may have taken its place while it was read.
    let is_there = || folder.join("checkpoints").join(number.to_string()).exists();
    match finding {
        Finding::Damaged { .. } | Finding::Unread { .. } if !is_there() => Finding::Missing,
        finding => finding,
    }
}
