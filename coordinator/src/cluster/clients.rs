//! What commands ask.

use super::ClusterMachine;
use super::entry::{Cause, ClusterEntry};
use super::event::{ClientId, ClusterAction, Now};
use super::job::console::Attached;
use super::job::ledger::Ledger;
use super::job::{Job, State, naming};
use super::rollback::Beginning;
use super::shared::Client;
use super::shared::Shared;
use crate::event::Event;
use protocol::cluster::NodeName;
use protocol::cluster::agent::{JobUser, ToAgent};
use protocol::cluster::client::{Answer, Ask, LogPlace, RestartRequest, RunRequest};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use thiserror::Error;

/// Clients at a time.
const MOST_CLIENTS: usize = 4096;

/// Jobs remembered.
const MOST_JOBS: usize = 4096;

/// Signals by which a user or a system wants a job ended; the same on every architecture of Linux (signal(7)):
/// SIGHUP, SIGINT, SIGQUIT, SIGPIPE and SIGTERM. What others mean is the job's to decide.
const ENDING: [i32; 5] = [1, 2, 3, 13, 15];

/// Why no job is the one that was asked for.
#[derive(Debug, Error)]
pub(super) enum FindError {
    #[error("find the newest job: there is none")]
    NoJobs,
    #[error("find job {0}: there is none of that name; see 'ckptd ls'")]
    Unknown(String),
    #[error("find job {wanted}: it may be {}", candidates.join(", "))]
    Ambiguous { wanted: String, candidates: Vec<String> },
}

impl ClusterMachine {
    pub(super) fn client_opened(&mut self, client: ClientId, user: JobUser) {
        if self.shared.clients.len() >= MOST_CLIENTS {
            self.shared.fail(&client, "reach the cluster: it has too many clients");
            return;
        }
        self.shared.clients.insert(client, Client { user: Some(user), job: None });
    }

    pub(super) fn client_line(&mut self, now: Now, client: &ClientId, line: &str) {
        let known = self.shared.clients.get(client).and_then(|client| client.user.clone());
        let Some(user) = known else { return };
        match protocol::json::read::<Ask>(line.as_bytes()) {
            Ok(ask) => self.asked(now, client, &user, ask),
            Err(error) => {
                let reason = format!("understand what was asked: {error}");
                self.shared.answer_last(client, Answer::Failed { reason, status: 125 });
            }
        }
    }

    pub(super) fn client_gone(&mut self, client: &ClientId) {
        self.shared.clients.remove(client);
        self.forget_rehearsals(client);
        for job in self.jobs.values_mut() {
            job.client_gone(client);
        }
        for leaving in self.leaving.values_mut() {
            leaving.clients.retain(|waiting| waiting != client);
        }
    }

    /// Forgets a node's clients of connections older than this one, and what was being rehearsed over them.
    pub(super) fn forget_clients_of(&mut self, node: &NodeName, before: u64) {
        self.rehearsals_lost(node);
        let gone: Vec<ClientId> = self
            .shared
            .clients
            .keys()
            .filter(|client| client.node.as_ref() == Some(node) && client.connection < before)
            .cloned()
            .collect();
        for client in gone {
            self.client_gone(&client);
        }
    }

    pub(super) fn asked(&mut self, now: Now, client: &ClientId, user: &JobUser, ask: Ask) {
        let known = self.shared.clients.entry(client.clone()).or_default();
        known.user = Some(user.clone());
        let of_connection = known.job.clone();
        match ask {
            Ask::Hello { version } if version == protocol::cluster::VERSION => {}
            Ask::Hello { version } => {
                let reason = format!(
                    "speak with the cluster: this command's version is {version}, its is {}",
                    protocol::cluster::VERSION
                );
                self.shared.fail(client, reason);
            }
            Ask::Run(request) => self.run(now, client, user, *request),
            Ask::Restart(request) => self.restart(now, client, user, *request),
            Ask::Attach { job, window, shown } => self.attach(client, user, &job, window, shown),
            Ask::Log { job, from } => self.log(client, user, &job, from),
            Ask::Input { bytes } => {
                if let Some(job) = of_connection.and_then(|job| self.jobs.get_mut(&job)) {
                    job.typed(&mut self.shared, client, &bytes);
                }
            }
            Ask::Resize { window } => {
                if let Some(job) = of_connection.and_then(|job| self.jobs.get_mut(&job)) {
                    job.resize(&mut self.shared, client, window);
                }
            }
            Ask::Signal { signal } => {
                if let Some(job) = of_connection.and_then(|job| self.jobs.get_mut(&job)) {
                    if !ENDING.contains(&signal) {
                        job.forward(&mut self.shared, signal);
                    } else if job.is_running() {
                        let event = Event::Interrupt { signal, delivered: false };
                        job.feed(now, &mut self.shared, event);
                        job.release_end(now, &mut self.shared);
                    } else {
                        job.kill_all(now, &mut self.shared);
                    }
                }
            }
            Ask::Checkpoint { job } => self.checkpoint(now, client, user, &job),
            Ask::Stop { job, checkpoint } => self.stop(now, client, user, &job, checkpoint),
            Ask::Jobs => {
                let value = self.list_jobs(now, user);
                self.shared.answer_last(client, Answer::Listing { value });
            }
            Ask::Status { job } => match self.list_status(now, user, job.as_deref()) {
                Ok(value) => self.shared.answer_last(client, Answer::Listing { value }),
                Err(error) => self.shared.fail(client, error.to_string()),
            },
            Ask::Nodes => {
                let value = self.list_nodes(now);
                self.shared.answer_last(client, Answer::Listing { value });
            }
            Ask::RemoveNode { node } => self.remove_node(now, client, user, &node),
            Ask::Leave { node } => self.leave(now, client, user, node),
            Ask::Token { .. } => {
                let reason = "make a token: only the coordinator's own socket gives them";
                self.shared.fail(client, reason.to_owned());
            }
            Ask::Remove { job } => self.remove_job(client, user, &job),
            Ask::Rehearse { job, checkpoint } => {
                self.rehearse(now, client, user, &job, checkpoint);
            }
            Ask::Look { job, checkpoint, look } => {
                self.look(client, user, &job, checkpoint, look);
            }
        }
    }

    pub(super) fn is_operator(&self, user: &JobUser) -> bool {
        user.uid == 0 || user.uid == self.shared.settings.operator
    }

    /// The job that is meant, by name, id, unambiguous beginning of an id, or `latest`. Jobs of others
    /// are only there for root.
    pub(super) fn find(&self, user: &JobUser, wanted: &str) -> Result<String, FindError> {
        let mut own: Vec<&Job> = self
            .jobs
            .values()
            .filter(|job| user.uid == 0 || job.ledger.user.uid == user.uid)
            .collect();
        own.sort_by_key(|job| (job.ledger.created_at_ms, job.ledger.id.clone()));
        if wanted == naming::LATEST {
            let newest = own.last().map(|job| job.ledger.id.clone());
            return newest.ok_or(FindError::NoJobs);
        }
        let exact =
            own.iter().rev().find(|job| job.ledger.name == wanted || job.ledger.id == wanted);
        if let Some(job) = exact {
            return Ok(job.ledger.id.clone());
        }
        let mut candidates: Vec<String> = own
            .iter()
            .map(|job| job.ledger.id.clone())
            .filter(|id| !wanted.is_empty() && id.starts_with(wanted))
            .collect();
        let wanted = wanted.to_owned();
        match candidates.len() {
            0 => Err(FindError::Unknown(wanted)),
            1 => Ok(candidates.remove(0)),
            _ => Err(FindError::Ambiguous { wanted, candidates }),
        }
    }

    /// The job that is meant, or an answer to who asked.
    pub(super) fn wanted(
        &mut self,
        client: &ClientId,
        user: &JobUser,
        wanted: &str,
    ) -> Option<(&mut Job, &mut Shared)> {
        match self.find(user, wanted) {
            Ok(id) => Some((self.jobs.get_mut(&id)?, &mut self.shared)),
            Err(error) => {
                self.shared.fail(client, error.to_string());
                None
            }
        }
    }

    fn run(&mut self, now: Now, client: &ClientId, user: &JobUser, request: RunRequest) {
        let refusal = if request.launch.program.is_empty() {
            Some("run the job: a command is needed".to_owned())
        } else if self.jobs.len() >= MOST_JOBS {
            Some(format!("run the job: the cluster remembers {MOST_JOBS} jobs; see 'ckptd rm'"))
        } else {
            request.name.as_deref().and_then(|name| {
                let taken = || {
                    let same = |job: &Job| job.ledger.name == name || job.ledger.id == name;
                    self.jobs.values().any(same).then_some("there is a job of that name")
                };
                naming::refusal(name)
                    .or_else(taken)
                    .map(|why| format!("name the job {name:?}: {why}"))
            })
        };
        if let Some(refusal) = refusal {
            self.shared.answer_last(client, Answer::Failed { reason: refusal, status: 2 });
            return;
        }
        let program = request.launch.program.first().map_or(OsStr::new("job"), |name| name);
        let stem = request.name.clone().unwrap_or_else(|| naming::stem(program));
        let used = self.jobs.keys().chain(&self.removed_jobs).map(String::as_str);
        let id = naming::fresh_id(&stem, used);
        let detach = request.detach;
        let window = request.launch.window;
        let entry = ClusterEntry::JobCreated {
            job: id.clone(),
            name: request.name.clone().unwrap_or_else(|| id.clone()),
            user: user.clone(),
            client_node: client.node.clone(),
            request: Box::new(request),
            at_ms: now.unix_ms,
        };
        let Some(mut ledger) = Ledger::begin(&entry) else { return };
        ledger.familiar = self.shared.members.present();
        self.shared.append(entry);
        let mut job = Job::new(ledger);
        job.console.set_window(window);
        job.console.attach(Attached::until_start(client.clone(), detach));
        if let Some(known) = self.shared.clients.get_mut(client) {
            known.job = Some(id.clone());
        }
        job.begin_epoch(now, &mut self.shared, Beginning::of(now, Cause::Run, None));
        self.jobs.insert(id.clone(), job);
        self.shared.answer(client, Answer::Accepted { job: id });
    }

    fn restart(&mut self, now: Now, client: &ClientId, user: &JobUser, request: RestartRequest) {
        let Some((job, shared)) = self.wanted(client, user, &request.job) else { return };
        let (id, name) = (job.ledger.id.clone(), job.ledger.name.clone());
        let newest = job.ledger.history.newest().map(|record| record.checkpoint);
        let refusal = match request.checkpoint.or(newest) {
            _ if !job.is_over() => Some("it runs".to_owned()),
            None => Some("it has no committed checkpoint".to_owned()),
            Some(number) if job.ledger.history.record(number).is_none() => {
                Some(format!("it has no committed checkpoint {number}"))
            }
            Some(_) => None,
        };
        if let Some(refusal) = refusal {
            shared.fail(client, format!("restart {name}: {refusal}"));
            return;
        }
        if let Some(settings) = request.settings {
            let settings = Box::new(settings);
            job.record(shared, ClusterEntry::Settings { job: id.clone(), settings });
        }
        job.console.set_window(request.window);
        job.console.attach(Attached::until_start(client.clone(), request.detach));
        if let Some(known) = shared.clients.get_mut(client) {
            known.job = Some(id.clone());
        }
        // Anything that is left of it anywhere is ended first.
        let members = &shared.members;
        job.nodes_with_stale_instances.extend(
            members.iter().map(|(node, _)| node).filter(|node| !members.is_gone(node)).cloned(),
        );
        let begin = Beginning::of(now, Cause::Restart, request.checkpoint.or(newest));
        job.begin_epoch(now, shared, begin.forced(request.force));
        shared.answer(client, Answer::Accepted { job: id });
    }

    fn attach(
        &mut self,
        client: &ClientId,
        user: &JobUser,
        wanted: &str,
        window: Option<protocol::launch::WindowSize>,
        shown: Option<LogPlace>,
    ) {
        let Some((job, shared)) = self.wanted(client, user, wanted) else { return };
        let id = job.ledger.id.clone();
        let end = job.ledger.history.end().and_then(|end| end.status);
        if let (true, Some(status)) = (job.is_over(), end) {
            // As one who was away when it ended: the status, and where to read the rest.
            let text = format!(
                "{} has ended; what it has written is in its log, {}/{id}/log on the coordinator's machine",
                job.ledger.name, shared.settings.jobs_folder
            );
            let checkpoint = job.ledger.history.newest().map(|record| record.checkpoint);
            match shown {
                Some(shown) => job.show_again(shared, client, shown),
                None => shared.answer(client, Answer::Say { text }),
            }
            shared.answer_last(client, Answer::Ended { status, checkpoint });
            return;
        }
        if job.is_over() {
            let reason = format!("attach to {}: it does not run", job.ledger.name);
            shared.fail(client, reason);
            return;
        }
        let answer = Answer::Started {
            job: id.clone(),
            name: job.ledger.name.clone(),
            terminal: job.has_terminal(),
            // What is shown again moves it on.
            at: shown.unwrap_or_else(|| job.log_place()),
        };
        job.console.attach(Attached::to_running(client.clone(), shown));
        shared.answer(client, answer);
        if let Some(shown) = shown {
            job.show_again(shared, client, shown);
        }
        if let Some(known) = shared.clients.get_mut(client) {
            known.job = Some(id);
        }
        if let Some(window) = window {
            job.resize(shared, client, window);
        }
    }

    fn log(&mut self, client: &ClientId, user: &JobUser, wanted: &str, from: LogPlace) {
        let Some((job, shared)) = self.wanted(client, user, wanted) else { return };
        let answer = job.send_log(shared, client, from);
        shared.answer_last(client, answer);
    }

    fn checkpoint(&mut self, now: Now, client: &ClientId, user: &JobUser, wanted: &str) {
        let Some((job, shared)) = self.wanted(client, user, wanted) else { return };
        if job.is_running() {
            let ticket = job.tickets.issue(client.clone());
            job.feed(now, shared, Event::Request { ticket });
        } else {
            let how = if job.is_over() { "it does not run" } else { "it is not complete yet" };
            let reason = format!("checkpoint {}: {how}", job.ledger.name);
            shared.fail(client, reason);
        }
    }

    fn stop(
        &mut self,
        now: Now,
        client: &ClientId,
        user: &JobUser,
        wanted: &str,
        checkpoint: bool,
    ) {
        let Some((job, shared)) = self.wanted(client, user, wanted) else { return };
        match &job.state {
            State::Running(_) => {
                let ticket = job.tickets.issue(client.clone());
                job.feed(now, shared, Event::Stop { ticket, checkpoint });
                job.release_end(now, shared);
            }
            State::Making(_) if checkpoint => {
                let reason = format!("checkpoint {}: it is not complete yet", job.ledger.name);
                shared.fail(client, reason);
            }
            State::Making(_) => {
                job.tickets.issue(client.clone());
                job.kill_all(now, shared);
            }
            State::Over => {
                let reason = format!("stop {}: it does not run", job.ledger.name);
                shared.fail(client, reason);
            }
        }
    }

    fn remove_node(&mut self, now: Now, client: &ClientId, user: &JobUser, node: &NodeName) {
        if !self.is_operator(user) {
            let reason = format!("turn {node} out: only root and the coordinator's user may");
            self.shared.fail(client, reason);
        } else if self.shared.members.get(node).is_none() {
            self.shared.fail(client, format!("turn {node} out: there is no such node"));
        } else {
            // Whether it ever had a copy, and what became of that, is not known of one that is away.
            let copy = match self.shared.members.is_connected(node) {
                true => {
                    "it is told to remove its copy of the coordinator's log and of the authority's key"
                }
                false => {
                    "it is not there: if it had a copy of the coordinator's log, that is still on its disk, with \
                     the authority's key; remove it there, or make a new cluster if you don't trust its owner"
                }
            };
            let text = Some(format!("{node} is turned out, its certificate revoked; {copy}"));
            self.shared.answer_last(client, Answer::Done { text });
            self.turn_out(now, node);
        }
    }

    fn remove_job(&mut self, client: &ClientId, user: &JobUser, wanted: &str) {
        let Some((job, shared)) = self.wanted(client, user, wanted) else { return };
        if !job.is_over() {
            let reason = format!("forget {}: it runs; see 'ckptd stop'", job.ledger.name);
            shared.fail(client, reason);
            return;
        }
        let id = job.ledger.id.clone();
        self.jobs.remove(&id);
        self.removed_jobs.insert(id.clone());
        self.shared.append(ClusterEntry::JobRemoved { job: id.clone() });
        self.shared.broadcast(&ToAgent::Keep { job: id.clone(), images: BTreeMap::new().into() });
        self.shared.act(ClusterAction::RemoveJob { job: id });
        self.shared.answer_last(client, Answer::Done { text: None });
    }
}
