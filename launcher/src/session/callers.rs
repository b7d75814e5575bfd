//! Commands that reach a running job by the socket in its folder: they speak as with a cluster
//! ([`protocol::cluster::client`]), about this one job.

use crate::client::launcher::socket;
use crate::client::link::ShortPath;
use coordinator::Ticket;
use protocol::cluster::VERSIONS;
use protocol::cluster::client::{Answer, Ask, MAX_ASK};
use protocol::control::{LiveStatus, Reply};
use protocol::frame;
use protocol::task;
use protocol::transport::{AnswerQueue, Audience, ClientEvent, CommandSocket};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Events that may wait to be looked at.
const MAX_WAITING: usize = 64;

/// How long the last answers may take, once the job has ended.
const CLOSING_LIMIT: Duration = Duration::from_secs(1);

/// A caller's number.
pub type Caller = u64;

/// The socket in a job's folder, until it is dropped.
#[derive(Debug)]
pub struct Server {
    end: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Server {
    /// Makes the socket; the caller holds the job's lock, so one that is there is a dead one's. What callers do is
    /// received from the channel: nothing, where the socket can't be made.
    pub fn start(job_dir: &Path) -> (io::Result<Self>, mpsc::Receiver<ClientEvent>) {
        let (sender, events) = mpsc::channel(MAX_WAITING);
        (Self::listen(job_dir, sender), events)
    }

    fn listen(job_dir: &Path, sender: mpsc::Sender<ClientEvent>) -> io::Result<Self> {
        let path = ShortPath::of(&socket(job_dir));
        // Nobody else gets at it before its mode is set: the folder is 0700.
        let socket = CommandSocket::bind(path.as_ref(), Audience::Owner)?;
        let (end, ended) = oneshot::channel();
        let tell = move |event| {
            let sender = sender.clone();
            async move { sender.send(event).await.is_ok() }
        };
        let task = task::spawn(socket.serve(tell, async { drop(ended.await) }));
        Ok(Self { end: Some(end), task })
    }

    /// Takes no more callers, and lets those that have an answer get it.
    pub async fn close(mut self) {
        self.end.take();
        let _ = tokio::time::timeout(CLOSING_LIMIT, &mut self.task).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What a caller does, once it has said hello.
#[derive(Debug)]
pub enum Called {
    /// It asks for something.
    Asks(Caller, Ask),
    /// It has gone.
    Gone(Caller),
}

#[derive(Debug)]
struct Connected {
    answers: AnswerQueue,
    greeted: bool,
}

/// Who is connected, and who waits for what.
#[derive(Debug)]
pub struct Callers {
    job: String,
    name: String,
    open: HashMap<Caller, Connected>,
    waiting: BTreeMap<Ticket, Caller>,
    next_ticket: Ticket,
}

impl Callers {
    /// Of the job of that id and name, with nobody there yet.
    pub fn new(job: &str, name: &str) -> Self {
        Self {
            job: job.to_owned(),
            name: name.to_owned(),
            open: HashMap::new(),
            waiting: BTreeMap::new(),
            next_ticket: 0,
        }
    }

    /// Takes what a caller does; None where there is nothing left to do about it.
    pub fn take(&mut self, event: ClientEvent) -> Option<Called> {
        match event {
            ClientEvent::Opened { number, answers, .. } => {
                self.open.insert(number, Connected { answers, greeted: false });
                None
            }
            ClientEvent::Line { number, line } => self.line(number, &line),
            ClientEvent::Closed { number } => {
                self.open.remove(&number);
                Some(Called::Gone(number))
            }
        }
    }

    fn line(&mut self, caller: Caller, line: &str) -> Option<Called> {
        // It may have had its last answer.
        let connected = self.open.get_mut(&caller)?;
        let refused = match (frame::decode::<Ask>(line, MAX_ASK), connected.greeted) {
            (Err(error), _) => format!("read the request: {error}"),
            (Ok(Ask::Hello { version }), _) if version.common(VERSIONS).is_some() => {
                connected.greeted = true;
                return None;
            }
            (Ok(Ask::Hello { version }), _) => format!(
                "talk to the job: this ckptd speaks version {version}, the job's launcher {VERSIONS}"
            ),
            (Ok(_), false) => "talk to the job: no hello came first".to_owned(),
            (Ok(ask), true) => match of_job(&ask) {
                Some(job) if job != self.job && job != self.name => {
                    format!("find job {job}: this is {}", self.name)
                }
                _ => return Some(Called::Asks(caller, ask)),
            },
        };
        self.refuse(caller, refused);
        None
    }

    /// A ticket for a caller who waits for the coordinator's reply.
    pub fn ticket(&mut self, caller: Caller) -> Ticket {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting.insert(ticket, caller);
        ticket
    }

    /// Whether anybody waits for a reply.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The reply that belongs to a ticket has come. Who waited for it may have gone.
    pub fn reply(&mut self, ticket: Ticket, reply: Reply) {
        if let Some(caller) = self.waiting.remove(&ticket) {
            self.answer_last(caller, &reply.into());
        }
    }

    /// Answers; more is to come. One that has gone, or does not read, is left.
    pub fn answer(&mut self, caller: Caller, answer: &Answer) {
        if self.open.get(&caller).is_some_and(|connected| !connected.answers.answer(answer)) {
            self.open.remove(&caller);
        }
    }

    /// Answers for the last time.
    pub fn answer_last(&mut self, caller: Caller, answer: &Answer) {
        self.answer(caller, answer);
        self.open.remove(&caller);
    }

    /// Tells what the job is doing.
    pub fn tell_status(&mut self, caller: Caller, live: &LiveStatus) {
        // It has no keys that are not strings and no foreign types: it always has a form.
        let value = serde_json::to_value(live).unwrap_or_default();
        self.answer_last(caller, &Answer::Listing { value });
    }

    /// Says why something is not done.
    pub fn refuse(&mut self, caller: Caller, reason: String) {
        self.answer_last(caller, &Answer::Failed { reason, status: crate::EXIT_FAILED });
    }

    /// Refuses what only a cluster can do.
    pub fn refuse_without_cluster(&mut self, caller: Caller) {
        let reason = format!("ask that of {}: it runs without a cluster", self.name);
        self.refuse(caller, reason);
    }
}

/// The job that is meant.
fn of_job(ask: &Ask) -> Option<&str> {
    match ask {
        Ask::Attach { job, .. } | Ask::Checkpoint { job } | Ask::Stop { job, .. } => Some(job),
        Ask::Status { job } => job.as_deref(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::launcher::{AskError, ask};
    use protocol::cluster::Versions;
    use std::io::Write;
    use std::path::PathBuf;

    fn status() -> Ask {
        Ask::Status { job: Some("fold".into()) }
    }

    async fn asked(job_dir: PathBuf, question: Ask) -> Result<Answer, AskError> {
        let asking = move || ask(&job_dir, &question, Some(Duration::from_secs(5)));
        tokio::task::spawn_blocking(asking).await.unwrap()
    }

    /// Answers every question with its own words, until the socket is dropped.
    fn echo(mut events: mpsc::Receiver<ClientEvent>) {
        let mut callers = Callers::new("fold-1", "fold");
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                if let Some(Called::Asks(caller, ask)) = callers.take(event) {
                    callers.refuse(caller, format!("{ask:?}"));
                }
            }
        });
    }

    async fn refusal(job_dir: &Path, question: Ask) -> String {
        match asked(job_dir.to_owned(), question).await.unwrap() {
            Answer::Failed { reason, .. } => reason,
            other => panic!("{other:?}"),
        }
    }

    /// The answer to a line that is none of the conversation.
    async fn said(job_dir: &Path, line: &'static [u8]) -> String {
        let path = socket(job_dir);
        let saying = move || {
            let mut stream = std::os::unix::net::UnixStream::connect(path)?;
            stream.write_all(line)?;
            io::read_to_string(stream)
        };
        tokio::task::spawn_blocking(saying).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn only_questions_about_this_job_are_taken() {
        let dir = tempfile::tempdir().unwrap();
        let (server, events) = Server::start(dir.path());
        let server = server.unwrap();
        echo(events);
        assert!(refusal(dir.path(), status()).await.contains("Status"));
        let other = Ask::Checkpoint { job: "other".into() };
        assert_eq!(refusal(dir.path(), other).await, "find job other: this is fold");
        let malformed = said(dir.path(), b"hello\n").await;
        assert!(malformed.contains("malformed message"), "{malformed}");
        let hello = Ask::Hello { version: Versions::between(900, 901).unwrap() };
        let version = refusal(dir.path(), hello).await;
        assert!(version.contains("speaks version 900 to 901"), "{version}");
        server.close().await;
        let gone = asked(dir.path().to_owned(), status()).await;
        assert!(matches!(gone, Err(AskError::NotRunning)), "{gone:?}");
    }

    #[tokio::test]
    async fn a_long_path_is_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("x".repeat(200));
        std::fs::create_dir(&deep).unwrap();
        let (server, events) = Server::start(&deep);
        let _server = server.unwrap();
        echo(events);
        assert!(refusal(&deep, status()).await.contains("Status"));
    }

    #[tokio::test]
    async fn replies_find_who_waits() {
        let dir = tempfile::tempdir().unwrap();
        let (server, mut events) = Server::start(dir.path());
        let _server = server.unwrap();
        let asking =
            tokio::spawn(asked(dir.path().to_owned(), Ask::Checkpoint { job: "fold-1".into() }));
        let mut callers = Callers::new("fold-1", "fold");
        let caller = loop {
            match callers.take(events.recv().await.unwrap()) {
                Some(Called::Asks(caller, Ask::Checkpoint { .. })) => break caller,
                other => assert!(other.is_none(), "{other:?}"),
            }
        };
        let ticket = callers.ticket(caller);
        assert!(callers.is_waiting());
        callers.reply(ticket, Reply::Failed("no".into()));
        assert!(!callers.is_waiting());
        let answer = asking.await.unwrap().unwrap();
        assert!(matches!(answer, Answer::Failed { reason, .. } if reason == "no"));
    }
}
