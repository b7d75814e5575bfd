//! Commands on this node, at the agent's Unix socket: their lines go to the coordinator, its answers come
//! back. Nothing is understood here.

use ckpt_engine::sys::standing::{NOBODY, acts_for_all, acts_for_all_but_root};
use std::collections::HashMap;
use std::io;
use std::path::Path;

use ckpt_node::Event;
use protocol::cluster::agent::JobUser;
use protocol::cluster::client::Answer;
use protocol::task;
use protocol::transport::{AnswerQueue, Audience, ClientEvent, CommandSocket};

use super::report::{Report, Reports};

/// Name of the socket in the agent's folder.
pub const SOCKET: &str = "agent.sock";

/// What such a client is told.
pub const NOT_TOLD_APART: &str = "give orders here as root or nobody: this machine's agent is not root's and can't tell \
                                  them apart; be another user, or use another machine";

/// Whether an agent that acts for all users but root sees who that is.
pub fn is_told_apart(user: &JobUser) -> bool {
    user.uid != NOBODY || !acts_for_all_but_root()
}

/// All clients.
#[derive(Debug, Default)]
pub struct Clients {
    open: HashMap<u64, AnswerQueue>,
}

impl Clients {
    /// One has connected.
    pub fn add(&mut self, client: u64, answers: AnswerQueue) {
        self.open.insert(client, answers);
    }

    /// One has gone.
    pub fn remove(&mut self, client: u64) {
        self.open.remove(&client);
    }

    /// The way back to one, for what is too much for the event loop.
    pub fn answers(&self, client: u64) -> Option<AnswerQueue> {
        self.open.get(&client).cloned()
    }

    /// Says why nothing is done for a client, and ends the conversation.
    pub fn refuse(&mut self, client: u64, reason: &str) {
        if let Some(answers) = self.open.remove(&client) {
            // It may have gone.
            let _ = answers.answer(&Answer::Failed { reason: reason.to_owned(), status: 125 });
        }
    }

    /// An answer, or the end of the conversation.
    pub fn answer(&mut self, client: u64, line: Option<String>) {
        let Some(line) = line else {
            self.open.remove(&client);
            return;
        };
        // One that has gone meanwhile is not there any more.
        if self.open.get(&client).is_some_and(|answers| !answers.put(line)) {
            tracing::warn!(client, "a local client does not read its answers and is left");
            self.open.remove(&client);
        }
    }

    /// The coordinator is gone: so are all conversations.
    pub fn close_all(&mut self) {
        self.open.clear();
    }
}

/// Listens. The socket is for everybody where this agent runs jobs of several users, that is as root; what
/// each may do is for the coordinator to say.
///
/// # Errors
/// As bind(2).
pub fn listen(dir: &Path, reports: Reports) -> io::Result<()> {
    let audience = match acts_for_all() {
        true => Audience::Everybody,
        false => Audience::Owner,
    };
    let socket = CommandSocket::bind(&dir.join(SOCKET), audience)?;
    let tell = move |event| {
        let reports = reports.clone();
        async move {
            match event {
                ClientEvent::Opened { number: client, uid, answers } => {
                    // The user's name and groups may have to be asked for on the network.
                    let user = task::spawn_blocking(move || JobUser::of(uid)).await;
                    let Ok(user) = user else { return false };
                    reports.tell(Report::ClientOpened { client, user, answers });
                }
                ClientEvent::Line { number: client, line } => {
                    reports.event(Event::ClientLine { client, line });
                }
                ClientEvent::Closed { number } => reports.tell(Report::ClientClosed(number)),
            }
            true
        }
    };
    task::spawn(socket.serve(tell, std::future::pending()));
    Ok(())
}
