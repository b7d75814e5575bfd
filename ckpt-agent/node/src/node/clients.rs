//! Local commands, and those of them that look at images: this agent's folders are open to nobody else, so it reads for
//! them. The coordinator has said which images they may know of.

use std::collections::{BTreeMap, BTreeSet};

use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use protocol::cluster::agent::{FromAgent, JobUser};
use protocol::cluster::client::{Answer, NO_COORDINATOR};
use protocol::cluster::image::ImageFacts;
use protocol::cluster::look::{ImageName, Look};
use protocol::cluster::portable::AdoptOrder;

use super::{Node, Voice};
use crate::Action;
use crate::names::is_job_id;

/// Users for whom something is read at a time.
const MOST_READERS: usize = 4;

/// Local commands that are connected.
#[derive(Debug, Default)]
pub(super) struct Clients {
    /// Their users' numbers.
    open: BTreeMap<u64, u32>,
    /// Those that get no more answers, and have not gone: each has its place at the coordinator until then.
    over: BTreeSet<u64>,
    /// Commands for which images are being read, and their users' numbers.
    readers: BTreeMap<u64, u32>,
}

impl Clients {
    /// The coordinator is gone: so are all conversations.
    pub fn close_all(&mut self, voice: &mut Voice) {
        self.open.clear();
        self.over.clear();
        voice.act(Action::CloseClients);
        self.readers.keys().for_each(|client| voice.act(Action::StopLook(*client)));
    }
}

impl Node {
    pub(super) fn client_opened(&mut self, client: u64, user: JobUser) {
        if self.is_welcome() {
            self.clients.open.insert(client, user.uid);
            self.voice.tell(FromAgent::ClientOpened { client, user });
        } else {
            self.voice.act(Action::RefuseClient(client, NO_COORDINATOR));
        }
    }

    pub(super) fn client_closed(&mut self, client: u64) {
        if self.clients.readers.contains_key(&client) {
            self.voice.act(Action::StopLook(client));
        }
        let over = self.clients.over.remove(&client);
        if self.clients.open.remove(&client).is_some() || over {
            self.voice.tell(FromAgent::ClientClosed { client });
        }
    }

    /// Passes a line on to a local command; None: the conversation is over.
    pub(super) fn pass_on(&mut self, client: u64, line: Option<String>) {
        if line.is_none() && self.clients.open.remove(&client).is_some() {
            self.clients.over.insert(client);
        }
        self.voice.act(Action::Answer(client, line));
    }

    pub(super) fn look(&mut self, client: u64, job: String, images: Vec<ImageName>, look: Look) {
        if self.begin_reading(client, &job) {
            self.voice.act(Action::Look { client, job, images, look });
        }
    }

    pub(super) fn give(&mut self, client: u64, job: String, image: ImageName, holder: NodeName) {
        if self.begin_reading(client, &job) {
            self.voice.act(Action::Give { client, job, image, holder });
        }
    }

    /// The coordinator waits for the end of it, whatever becomes of the command.
    pub(super) fn adopt(&mut self, order: Box<AdoptOrder>) {
        match is_job_id(&order.job) {
            true => self.voice.act(Action::Adopt(order)),
            false => {
                let reason = format!("{:?} is no id of a job", order.job);
                self.adopted(order.client, order.job, Err(reason));
            }
        }
    }

    pub(super) fn adopted(
        &mut self,
        client: u64,
        job: String,
        result: Result<BTreeMap<InstanceId, ImageFacts>, String>,
    ) {
        let (facts, failure) = match result {
            Ok(facts) => (facts, None),
            Err(reason) => (BTreeMap::new(), Some(reason)),
        };
        self.voice.tell(FromAgent::Adopted { client, job, facts, failure });
    }

    /// Whether images may be read for a command now; else it has been told why not.
    fn begin_reading(&mut self, client: u64, job: &str) -> bool {
        // It has gone meanwhile.
        let Some(uid) = self.clients.open.get(&client).copied() else { return false };
        let readers = &self.clients.readers;
        let refusal = if !is_job_id(job) {
            Some(format!("{job:?} is no id of a job"))
        } else if readers.values().any(|reader| *reader == uid) {
            Some("images are being read for this user: try again when that is done".to_owned())
        } else if readers.len() >= MOST_READERS {
            Some("images are being read for several users: try again".to_owned())
        } else {
            None
        };
        if let Some(reason) = refusal {
            let reason = format!("look at images: {reason}");
            self.answer(client, &Answer::Failed { reason, status: 125 });
            self.pass_on(client, None);
            return false;
        }
        self.clients.readers.insert(client, uid);
        true
    }

    /// Something was found, or that was all.
    pub(super) fn looked(&mut self, client: u64, found: Option<String>) {
        match found {
            Some(line) => self.pass_on(client, Some(line)),
            None => {
                self.clients.readers.remove(&client);
                self.answer(client, &Answer::Done { text: None });
                self.pass_on(client, None);
            }
        }
    }

    fn answer(&mut self, client: u64, answer: &Answer) {
        // Without a line the conversation is over.
        self.pass_on(client, serde_json::to_string(answer).ok());
    }
}
