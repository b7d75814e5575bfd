//! What commands ask.

use super::ClusterMachine;
use super::audit::Noted;
use super::callers::Caller;
use super::entry::{Cause, ClusterEntry, JobCreated};
use super::event::{ClientId, ClusterAction, Now};
use super::job::console::Attached;
use super::job::ledger::Ledger;
use super::job::{Job, State, naming};
use super::rollback::Beginning;
use super::shared::Client;
use super::shared::Shared;
use crate::event::Event;
use protocol::cluster::agent::{JobUser, ToAgent};
use protocol::cluster::audit::short;
use protocol::cluster::client::{Answer, Ask, LogPlace, RestartRequest, RunRequest};
use protocol::cluster::{NodeName, VERSIONS};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use thiserror::Error;

/// Clients at a time.
const MOST_CLIENTS: usize = 4096;

/// Those of one member, or of the coordinator's own socket: its agent lets no more in at a time.
const MOST_OF_ONE: usize = 256;

const TOO_MANY_ORDERS: &str = "obey: this machine has given too many orders for users for whom it does not speak; try \
                               again in a minute";

/// Jobs remembered.
pub(super) const MOST_JOBS: usize = 4096;

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
        let of_one = self.shared.clients.keys().filter(|other| other.node == client.node).count();
        if of_one >= MOST_OF_ONE {
            self.shared.fail(&client, "reach the cluster: this machine has too many clients");
            return;
        }
        self.shared.clients.insert(client, Client::of(user));
    }

    pub(super) fn client_line(&mut self, now: Now, client: &ClientId, line: &str) {
        // One that was refused has been told so, but may have written before it heard of it.
        let Some(known) = self.shared.clients.get(client) else { return };
        let user = known.user.clone();
        match protocol::json::read::<Ask>(line.as_bytes()) {
            Ok(ask) => self.asked(now, client, user, ask),
            Err(error) => {
                let reason = format!("understand what was asked: {error}");
                self.shared.answer_last(client, Answer::Failed { reason, status: 125 });
            }
        }
    }

    /// Notes that what a client wants from now on is wanted by somebody at the coordinator's page.
    fn at_page(&mut self, client: &ClientId, caller: &Caller, name: &str) {
        if client.node.is_some() || !caller.is_operator() {
            let reason =
                "speak for the page: only the coordinator's own user does, at its own socket";
            return self.shared.fail(client, reason);
        }
        if let Some(known) = self.shared.clients.get_mut(client) {
            known.page = if name.is_empty() { "-".to_owned() } else { short(name) };
        }
    }

    pub(super) fn client_gone(&mut self, client: &ClientId) {
        self.shared.clients.remove(client);
        self.forget_rehearsals(client);
        self.forget_import(client);
        self.shared.logins.client_gone(client);
        for job in self.jobs.values_mut() {
            job.client_gone(client);
        }
        for leaving in self.leaving.values_mut() {
            leaving.clients.retain(|waiting| waiting != client);
        }
        for drain in self.drains.values_mut() {
            drain.clients.retain(|waiting| waiting != client);
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

    /// One arm for each question, in a table without steps of its own.
    pub(super) fn asked(&mut self, now: Now, client: &ClientId, user: JobUser, ask: Ask) {
        // One of the coordinator's own socket is known from its first question on.
        let known = self.shared.clients.entry(client.clone());
        known.or_insert_with(|| Client::of(user.clone()));
        let caller = &self.shared.caller(now, client, user);
        if let Some(known) = self.shared.clients.get_mut(client) {
            known.by_login |= caller.by_login;
        }
        let noted = self.shared.audit(now, client, caller, &ask);
        if let Some(reason) = caller.refusal(&ask) {
            return self.shared.fail(client, reason);
        }
        // Nothing is done of which there is no line.
        if let Noted::LeftOut = noted {
            return self.shared.fail(client, TOO_MANY_ORDERS);
        }
        match ask {
            Ask::Hello { version } if version.common(VERSIONS).is_some() => {}
            Ask::Hello { version } => {
                let reason = format!(
                    "speak with the cluster: this command's version is {version}, its is {VERSIONS}"
                );
                self.shared.fail(client, reason);
            }
            Ask::Run(request) => self.run(now, client, caller, *request),
            Ask::Restart(request) => {
                let wanted = request.job.clone();
                self.with_job(client, caller, &wanted, |job, shared| {
                    job.restart(now, shared, client, *request);
                });
            }
            Ask::Attach { job, window, shown } => {
                self.with_job(client, caller, &job, |job, shared| {
                    job.attach(shared, client, window, shown);
                })
            }
            Ask::Log { job, from, times } => self.with_job(client, caller, &job, |job, shared| {
                let answer = job.send_log(shared, client, from, times);
                shared.answer_last(client, answer);
            }),
            Ask::LogSince { job, at_ms } => self.with_job(client, caller, &job, |job, shared| {
                job.tell_log_since(shared, client, at_ms);
                shared.close(client);
            }),
            Ask::Events { job, known } => self.with_job(client, caller, &job, |job, shared| {
                let answer = job.tell_events(known);
                shared.answer_last(client, answer);
            }),
            Ask::Note { job, text } => self.with_job(client, caller, &job, |job, shared| {
                job.note(now, shared, client, &text);
            }),
            Ask::Input { bytes } => self.with_attached(client, |job, shared| {
                job.typed(shared, client, &bytes);
            }),
            Ask::Resize { window } => self.with_attached(client, |job, shared| {
                job.resize(shared, client, window);
            }),
            Ask::Signal { signal } => self.with_attached(client, |job, shared| {
                job.signalled(now, shared, signal);
            }),
            Ask::Checkpoint { job } => self.with_job(client, caller, &job, |job, shared| {
                job.checkpoint_for(now, shared, client);
            }),
            Ask::Stop { job, checkpoint } => self.with_job(client, caller, &job, |job, shared| {
                job.stop(now, shared, client, checkpoint);
            }),
            Ask::Jobs => {
                let value = self.list_jobs(now, caller);
                self.shared.answer_last(client, Answer::Listing { value });
            }
            Ask::Status { job } => match self.list_status(now, caller, job.as_deref()) {
                Ok(value) => self.shared.answer_last(client, Answer::Listing { value }),
                Err(error) => self.shared.fail(client, error.to_string()),
            },
            Ask::Nodes => {
                let value = self.list_nodes(now, caller);
                self.shared.answer_last(client, Answer::Listing { value });
            }
            Ask::Attention => {
                let value = self.list_attention(now, caller);
                self.shared.answer_last(client, Answer::Listing { value });
            }
            Ask::Page { name } => self.at_page(client, caller, &name),
            Ask::RemoveNode { node } => self.remove_node(now, client, caller, &node),
            Ask::Standby { node, on } => self.name_standby(client, caller, node, on),
            Ask::Leave { node } => self.leave(now, client, caller, node),
            Ask::Drain { node, wait } => self.drain(now, client, caller, node, wait),
            Ask::Uncordon { node } => self.uncordon(now, client, caller, &node),
            Ask::Token { .. } => self
                .shared
                .fail(client, "make a token: only the coordinator's own socket gives them"),
            Ask::Remove { job } => self.remove_job(client, caller, &job),
            Ask::Rehearse { job, checkpoint } => {
                self.rehearse(now, client, caller, &job, checkpoint);
            }
            Ask::Portable { job, checkpoint, stays } => {
                self.portable(client, caller, &job, (checkpoint, stays));
            }
            Ask::Image { job, image, avoid } => self.give(client, caller, &job, image, &avoid),
            Ask::Audit { from } => self.show_audit(client, caller, from),
            Ask::Import(request) => self.import(now, client, caller, *request),
            Ask::ImportLog { bytes, times } => {
                self.import_log(now, client, &bytes, times);
            }
            Ask::Look { job, checkpoint, look } => {
                self.look(client, caller, &job, checkpoint, look);
            }
            Ask::AddKey { user, key } => self.add_key(now, client, caller, user, &key),
            Ask::RemoveKey { user, fingerprint } => {
                self.remove_key(client, caller, user, fingerprint);
            }
            Ask::Keys { user } => {
                let value = self.list_keys(caller, user.as_deref());
                self.shared.answer_last(client, Answer::Listing { value });
            }
            Ask::Login { user, valid_s } => self.begin_login(now, client, caller, user, valid_s),
            Ask::Prove { signature } => self.prove(now, client, &signature),
            Ask::Logout { all } => self.log_out(client, caller, all),
            Ask::Logins => {
                let value = self.list_logins(now, client, caller);
                self.shared.answer_last(client, Answer::Listing { value });
            }
        }
    }

    /// The job that is meant, by name, id, unambiguous beginning of an id, or `latest`. Jobs of others
    /// are only there for operators.
    pub(super) fn find(&self, caller: &Caller, wanted: &str) -> Result<&Job, FindError> {
        let mut own: Vec<&Job> =
            self.jobs.values().filter(|job| caller.may_see(&job.ledger.user)).collect();
        own.sort_by_key(|job| (job.ledger.created_at_ms, job.ledger.id.clone()));
        if wanted == naming::LATEST {
            return own.last().copied().ok_or(FindError::NoJobs);
        }
        if let Some(job) = own.iter().rev().find(|job| job.is_called(&caller.user, wanted)) {
            return Ok(job);
        }
        if let Some(job) = own.iter().find(|job| job.ledger.id == wanted) {
            return Ok(job);
        }
        // An operator may mean those of several users by a name.
        let is_named = own.iter().any(|job| job.ledger.name == wanted);
        own.retain(|job| match is_named {
            true => job.ledger.name == wanted,
            false => !wanted.is_empty() && job.ledger.id.starts_with(wanted),
        });
        let wanted = wanted.to_owned();
        match own[..] {
            [] => Err(FindError::Unknown(wanted)),
            [job] => Ok(job),
            _ => {
                let candidates = own.iter().map(|job| job.ledger.id.clone()).collect();
                Err(FindError::Ambiguous { wanted, candidates })
            }
        }
    }

    /// Does what a client asks of the job that it means. Where none is meant, the client is told.
    fn with_job(
        &mut self,
        client: &ClientId,
        caller: &Caller,
        wanted: &str,
        act: impl FnOnce(&mut Job, &mut Shared),
    ) {
        let found = self.find(caller, wanted).map(|job| job.ledger.id.clone());
        match found.and_then(|id| self.jobs.get_mut(&id).ok_or(FindError::Unknown(id))) {
            Ok(job) => act(job, &mut self.shared),
            Err(error) => self.shared.fail(client, error.to_string()),
        }
    }

    /// Does what a client asks of the job whose output it gets. What it types after that was removed, or without any,
    /// is for nobody.
    fn with_attached(&mut self, client: &ClientId, act: impl FnOnce(&mut Job, &mut Shared)) {
        let attached = self.shared.clients.get(client).and_then(|client| client.job.as_ref());
        if let Some(job) = attached.and_then(|job| self.jobs.get_mut(job)) {
            act(job, &mut self.shared);
        }
    }

    /// Why a job can't be run, and the command's exit status.
    fn refusal_of_run(&self, caller: &Caller, request: &RunRequest) -> Option<(String, u8)> {
        if request.launch.program.is_empty() {
            return Some(("run the job: a command is needed".to_owned(), 2));
        }
        if self.jobs.len() >= MOST_JOBS {
            let full =
                format!("run the job: the cluster remembers {MOST_JOBS} jobs; see 'ckptd rm'");
            return Some((full, 2));
        }
        if let Some(nowhere) = self.shared.members.nowhere(&caller.user, &request.settings) {
            return Some((format!("run the job: {nowhere}"), 125));
        }
        let name = request.name.as_deref()?;
        let why = naming::refusal(name).or_else(|| self.taken(&caller.user, name))?;
        Some((format!("name the job {name:?}: {why}"), 2))
    }

    /// Why a job of that user can't have that name: each user has names of its own, and ids are everybody's.
    pub(super) fn taken(&self, user: &JobUser, name: &str) -> Option<&'static str> {
        let taken =
            self.jobs.values().any(|job| job.is_called(user, name) || job.ledger.id == name);
        taken.then_some("there is a job of that name")
    }

    /// An id that no job has or had, and that is no job's name either.
    pub(super) fn fresh_id(&self, stem: &str) -> String {
        let names = self.jobs.values().map(|job| &job.ledger.name);
        let ids = self.jobs.keys().chain(&self.removed_jobs).chain(self.imports.ids());
        naming::fresh_id(stem, ids.chain(names).map(String::as_str))
    }

    fn run(&mut self, now: Now, client: &ClientId, caller: &Caller, request: RunRequest) {
        if let Some((reason, status)) = self.refusal_of_run(caller, &request) {
            return self.shared.answer_last(client, Answer::Failed { reason, status });
        }
        let program = request.launch.program.first().map_or(OsStr::new("job"), |name| name);
        let stem = request.name.clone().unwrap_or_else(|| naming::stem(program));
        let id = self.fresh_id(&stem);
        let detach = request.detach;
        let window = request.launch.window;
        let created = JobCreated {
            job: id.clone(),
            name: request.name.clone().unwrap_or_else(|| id.clone()),
            user: caller.user.clone(),
            client_node: client.node.clone(),
            request,
            at_ms: now.unix_ms,
        };
        let mut ledger = Ledger::begin(created.clone());
        ledger.familiar = self.shared.members.present();
        self.shared.append(ClusterEntry::JobCreated(Box::new(created)));
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

    fn remove_node(&mut self, now: Now, client: &ClientId, caller: &Caller, node: &NodeName) {
        if !caller.is_operator() {
            let reason = format!(
                "turn {node} out: only an operator may, on the coordinator's machine or a member of --role operator"
            );
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
            let keys = match self.shared.logins.keys_by(node) {
                0 => String::new(),
                number => format!("; keys of users that came by it are given up: {number}"),
            };
            let text = Some(format!("{node} is turned out, its certificate revoked; {copy}{keys}"));
            let answer = Answer::Done { text };
            // Who is told so may rely on it. Only over the connection of the one that is turned out nothing comes after.
            if client.node.as_ref() == Some(node) {
                self.shared.answer_last(client, answer);
                self.turn_out(now, node);
            } else {
                self.turn_out(now, node);
                self.shared.answer_last(client, answer);
            }
        }
    }

    fn show_audit(&mut self, client: &ClientId, caller: &Caller, from: u64) {
        if !caller.is_operator() {
            return self.shared.fail(
                client,
                "show the audit log: only an operator may, on the coordinator's machine or a member of --role operator",
            );
        }
        self.shared.act(ClusterAction::ShowAudit { client: client.clone(), from });
    }

    fn remove_job(&mut self, client: &ClientId, caller: &Caller, wanted: &str) {
        let id = match self.find(caller, wanted) {
            Ok(job) if job.is_over() => job.ledger.id.clone(),
            Ok(job) => {
                let reason = format!("forget {}: it runs; see 'ckptd stop'", job.ledger.name);
                return self.shared.fail(client, reason);
            }
            Err(error) => return self.shared.fail(client, error.to_string()),
        };
        self.jobs.remove(&id);
        self.removed_jobs.insert(id.clone());
        self.shared.append(ClusterEntry::JobRemoved { job: id.clone() });
        self.shared.broadcast(ToAgent::Keep { job: id.clone(), images: BTreeMap::new().into() });
        self.shared.act(ClusterAction::RemoveJob { job: id });
        self.shared.answer_last(client, Answer::Done { text: None });
    }
}

impl Job {
    /// Whether that user means this job of its own by that name or id.
    fn is_called(&self, user: &JobUser, name: &str) -> bool {
        self.ledger.user.name == user.name && (self.ledger.name == name || self.ledger.id == name)
    }

    fn restart(
        &mut self,
        now: Now,
        shared: &mut Shared,
        client: &ClientId,
        request: RestartRequest,
    ) {
        let (id, name) = (self.ledger.id.clone(), self.ledger.name.clone());
        let newest = self.ledger.history.newest().map(|record| record.checkpoint);
        let refusal = match request.checkpoint.or(newest) {
            _ if !self.is_over() => Some("it runs".to_owned()),
            None => Some("it has no committed checkpoint".to_owned()),
            Some(number) if self.ledger.history.record(number).is_none() => {
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
            self.record(shared, ClusterEntry::Settings { job: id.clone(), settings });
        }
        self.console.set_window(request.window);
        self.console.attach(Attached::until_start(client.clone(), request.detach));
        if let Some(known) = shared.clients.get_mut(client) {
            known.job = Some(id.clone());
        }
        // Anything that is left of it anywhere is ended first.
        let members = &shared.members;
        self.nodes_with_stale_instances.extend(
            members.iter().map(|(node, _)| node).filter(|node| !members.is_gone(node)).cloned(),
        );
        let begin = Beginning::of(now, Cause::Restart, request.checkpoint.or(newest));
        self.begin_epoch(now, shared, begin.forced(request.force));
        shared.answer(client, Answer::Accepted { job: id });
    }

    fn attach(
        &mut self,
        shared: &mut Shared,
        client: &ClientId,
        window: Option<protocol::launch::WindowSize>,
        shown: Option<LogPlace>,
    ) {
        let id = self.ledger.id.clone();
        let end = self.ledger.history.end().and_then(|end| end.status);
        if let (true, Some(status)) = (self.is_over(), end) {
            // As one who was away when it ended: the status, and where to read the rest.
            let text = format!(
                "{} has ended; what it has written is in its log, {}/{id}/log on the coordinator's machine",
                self.ledger.name, shared.settings.jobs_folder
            );
            let checkpoint = self.ledger.history.newest().map(|record| record.checkpoint);
            match shown {
                Some(shown) => self.show_again(shared, client, shown),
                None => shared.answer(client, Answer::Say { text }),
            }
            shared.answer_last(client, Answer::Ended { status, checkpoint });
            return;
        }
        if self.is_over() {
            let reason = format!("attach to {}: it does not run", self.ledger.name);
            shared.fail(client, reason);
            return;
        }
        let answer = Answer::Started {
            job: id.clone(),
            name: self.ledger.name.clone(),
            terminal: self.has_terminal(),
            // What is shown again moves it on.
            at: shown.unwrap_or_else(|| self.log_place()),
        };
        self.console.attach(Attached::to_running(client.clone(), shown));
        shared.answer(client, answer);
        if let Some(shown) = shown {
            self.show_again(shared, client, shown);
        }
        if let Some(known) = shared.clients.get_mut(client) {
            known.job = Some(id);
        }
        if let Some(window) = window {
            self.resize(shared, client, window);
        }
    }

    /// A signal that came to the command of who looks at the job.
    fn signalled(&mut self, now: Now, shared: &mut Shared, signal: i32) {
        if !ENDING.contains(&signal) {
            self.forward(shared, signal);
        } else if self.is_running() {
            self.feed(now, shared, Event::Interrupt { signal, delivered: false });
            self.release_end(now, shared);
        } else if !self.is_over() {
            self.kill_all(now, shared);
        }
    }

    fn checkpoint_for(&mut self, now: Now, shared: &mut Shared, client: &ClientId) {
        if self.is_running() {
            let ticket = self.tickets.issue(client.clone());
            self.feed(now, shared, Event::Request { ticket });
        } else {
            let how = if self.is_over() { "it does not run" } else { "it is not complete yet" };
            let reason = format!("checkpoint {}: {how}", self.ledger.name);
            shared.fail(client, reason);
        }
    }

    fn stop(&mut self, now: Now, shared: &mut Shared, client: &ClientId, checkpoint: bool) {
        match &self.state {
            State::Running(_) => {
                let ticket = self.tickets.issue(client.clone());
                self.feed(now, shared, Event::Stop { ticket, checkpoint });
                self.release_end(now, shared);
            }
            State::Making(_) if checkpoint => {
                let reason = format!("checkpoint {}: it is not complete yet", self.ledger.name);
                shared.fail(client, reason);
            }
            State::Making(_) => {
                self.tickets.issue(client.clone());
                self.kill_all(now, shared);
            }
            State::Over => {
                let reason = format!("stop {}: it does not run", self.ledger.name);
                shared.fail(client, reason);
            }
        }
    }
}
