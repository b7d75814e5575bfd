//! Jobs that come from archives: their logs by way of the client, their images by the agent of its machine. Until both are
//! there nothing in the log speaks of the job, and nobody sees it.

use super::ClusterMachine;
use super::callers::Caller;
use super::clients::MOST_JOBS;
use super::entry::{ClusterEntry, ImageRecord, JobImported};
use super::event::{ClientId, ClusterAction, Now, Written};
use super::job::console::Console;
use super::job::ledger::Ledger;
use super::job::{Job, naming};
use crate::settings::SECOND;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use protocol::agent::{CommitRecord, InstanceId};
use protocol::cluster::NodeName;
use protocol::cluster::agent::{JobUser, ToAgent};
use protocol::cluster::client::Answer;
use protocol::cluster::image::ImageFacts;
use protocol::cluster::image_key::JobKey;
use protocol::cluster::portable::{AdoptOrder, ImportRequest, PortableError, PortableJob};
use protocol::cluster::settings::Daemons;
use protocol::log_times::{MOST as MOST_PIECES, Piece};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use thiserror::Error;

/// Imports at a time.
const MOST_IMPORTS: usize = 16;
/// The longest log that comes with a job, in bytes.
const LONGEST_LOG: u64 = 4 << 30;
/// From one word of the client to the next, in nanoseconds.
const PATIENCE: u64 = 120 * SECOND;
/// For the agent, in nanoseconds: images may be many.
const ADOPTION: u64 = 7200 * SECOND;
/// The longest piece of it, in bytes.
const LONGEST_PIECE: usize = 1 << 20;

/// Why a job is not taken over.
#[derive(Debug, Error)]
enum ImportError {
    #[error("no agent listens at this socket")]
    NoAgent,
    #[error("another import of this user is under way: try again after that")]
    AnotherOfUser,
    #[error("several users are importing jobs: try again")]
    ManyImports,
    #[error("the cluster remembers {MOST_JOBS} jobs; see 'ckptd rm'")]
    ManyJobs,
    #[error("its description {0}")]
    Description(#[source] PortableError),
    #[error(
        "it is not an archive of this cluster's own jobs, so only an operator may import it, for another user with \
         --user"
    )]
    Foreign,
    #[error("only an operator may import a job for another user")]
    ForAnother,
    #[error("its log is longer than it can be")]
    LongLog,
    #[error("{name:?} can't be its name: {why}; choose one with --name")]
    Name { name: String, why: &'static str },
}

/// Imports that are under way, by who asked for them.
#[derive(Debug, Default)]
pub(super) struct Imports(BTreeMap<ClientId, Import>);

impl Imports {
    /// The ids of the jobs that are being imported.
    pub(super) fn ids(&self) -> impl Iterator<Item = &String> {
        self.0.values().map(|import| &import.id)
    }

    /// The key of a job that is being imported.
    pub(super) fn key(&self, job: &str) -> Option<&JobKey> {
        self.0.values().find(|import| import.id == job).and_then(|import| import.key.as_ref())
    }
}

#[derive(Debug)]
struct Import {
    id: String,
    name: String,
    owner: JobUser,
    user: JobUser,
    node: NodeName,
    job: PortableJob,
    /// The key of its images.
    key: Option<JobKey>,
    folder: String,
    /// Bytes of its log.
    log_length: u64,
    /// Those that are still to come.
    lacking: u64,
    /// Whether the agent has been told.
    ordered: bool,
    /// When it is given up.
    until: u64,
}

impl ClusterMachine {
    /// Begins to take a job over. Its log follows.
    pub(super) fn import(
        &mut self,
        now: Now,
        client: &ClientId,
        caller: &Caller,
        request: ImportRequest,
    ) {
        let folder = request.folder.clone();
        match self.check_import(now, client, caller, request) {
            Err(reason) => self.shared.fail(client, format!("import the job: {reason}")),
            Ok(import) => {
                tracing::debug!(job = import.id, folder, "an import begins");
                // The id is new: what is there of it was left by a coordinator that was killed.
                self.clear_import(&import.id, &import.node);
                let id = import.id.clone();
                self.imports.0.insert(client.clone(), import);
                self.shared.answer(client, Answer::Accepted { job: id });
            }
        }
    }

    fn check_import(
        &self,
        now: Now,
        client: &ClientId,
        caller: &Caller,
        request: ImportRequest,
    ) -> Result<Import, ImportError> {
        let node = client.node.clone().ok_or(ImportError::NoAgent)?;
        if self.imports.0.values().any(|import| import.user.name == caller.account.name) {
            return Err(ImportError::AnotherOfUser);
        }
        if self.imports.0.len() >= MOST_IMPORTS {
            return Err(ImportError::ManyImports);
        }
        if self.jobs.len() >= MOST_JOBS {
            return Err(ImportError::ManyJobs);
        }
        // A root agent brings images back as root, before it becomes the job's user: it must know where they are from.
        if !caller.is_operator() && !self.shared.settings.archive_key.has_sealed(&request.job) {
            return Err(ImportError::Foreign);
        }
        // Only now: of others not even the description is read.
        let job = request.job.read().map_err(ImportError::Description)?;
        if request.owner.is_some() && !caller.is_operator() {
            return Err(ImportError::ForAnother);
        }
        // It may be shorter where a coordinator's machine was lost.
        if request.log_length > job.record.log_length || request.log_length > LONGEST_LOG {
            return Err(ImportError::LongLog);
        }
        let owner = request.owner.unwrap_or_else(|| caller.user.clone());
        let own_name = (job.name != job.id).then(|| job.name.clone());
        let name = request.name.or(own_name);
        if let Some(name) = &name {
            let refusal = naming::refusal(name).or_else(|| self.taken_for_import(&owner, name));
            if let Some(why) = refusal {
                return Err(ImportError::Name { name: name.clone(), why });
            }
        }
        let program = job.request.launch.program.first().map_or(OsStr::new("job"), |name| name);
        let stem = name.clone().unwrap_or_else(|| naming::stem(program));
        let id = self.fresh_id(&stem);
        Ok(Import {
            name: name.unwrap_or_else(|| id.clone()),
            id,
            owner,
            // What it has in a folder there it reads as that account, whoever it has logged in as.
            user: caller.account.clone(),
            node,
            log_length: request.log_length,
            lacking: request.log_length,
            folder: request.folder,
            key: request.job.key,
            job,
            ordered: false,
            until: now.nanos.saturating_add(PATIENCE),
        })
    }

    /// Why an import can't become a job of that user by that name.
    fn taken_for_import(&self, owner: &JobUser, name: &str) -> Option<&'static str> {
        let same = |import: &Import| import.owner.name == owner.name && import.name == name;
        let under_way = self.imports.0.values().any(same);
        under_way.then_some("there is a job of that name").or_else(|| self.taken(owner, name))
    }

    /// A piece of the log has come; after the last the agent takes the images.
    pub(super) fn import_log(
        &mut self,
        now: Now,
        client: &ClientId,
        bytes: &str,
        times: Vec<Piece>,
    ) {
        let Some(import) = self.imports.0.get_mut(client).filter(|import| !import.ordered) else {
            return self.shared.fail(client, "import a log: nothing is being imported");
        };
        let bytes = STANDARD.decode(bytes).ok().filter(|bytes| bytes.len() <= LONGEST_PIECE);
        // As many as a log has at most.
        let bytes = bytes.filter(|_| times.len() <= MOST_PIECES);
        let fits = |bytes: &Vec<u8>| bytes.len() as u64 <= import.lacking;
        let ends = |bytes: &Vec<u8>| !bytes.is_empty() || import.lacking == 0;
        let Some(bytes) = bytes.filter(fits).filter(ends) else {
            self.forget_import(client);
            return self.shared.fail(client, "import the job: its log is not what was announced");
        };
        if bytes.is_empty() {
            import.ordered = true;
            import.until = now.nanos.saturating_add(ADOPTION);
            let order = import.order(client.number);
            let node = import.node.clone();
            return self.shared.send(&node, ToAgent::Adopt(Box::new(order)));
        }
        import.lacking -= bytes.len() as u64;
        import.until = now.nanos.saturating_add(PATIENCE);
        let job = import.id.clone();
        self.shared.act(ClusterAction::Log { job, bytes, written: Written::Before(times) });
        self.shared.answer(client, Answer::Taken);
    }

    /// The agent has the images, or not.
    pub(super) fn adopted(
        &mut self,
        now: Now,
        client: &ClientId,
        id: &str,
        facts: BTreeMap<InstanceId, ImageFacts>,
        failure: Option<String>,
    ) {
        let known = self.imports.0.get(client).is_some_and(|import| import.id == id);
        if !known {
            // Whoever asked has gone meanwhile: nobody is to have them. What is a job's is kept as that says.
            if let (Some(node), false) = (&client.node, self.jobs.contains_key(id)) {
                self.clear_import(id, &node.clone());
            }
            return;
        }
        let Some(import) = self.imports.0.remove(client) else { return };
        let lacks = import.job.images.iter().any(|(instance, image)| {
            facts.get(instance).is_none_or(|facts| facts.digest != image.digest)
        });
        let failure = failure.or_else(|| lacks.then(|| "images are missing".to_owned()));
        if let Some(reason) = failure {
            self.clear_import(&import.id, &import.node);
            return self.shared.fail(client, format!("import the job: {reason}"));
        }
        let name = import.name.clone();
        self.take_over_import(now, import, facts);
        self.shared.answer_last(client, Answer::Imported { name });
    }

    fn take_over_import(
        &mut self,
        now: Now,
        import: Import,
        facts: BTreeMap<InstanceId, ImageFacts>,
    ) {
        let (node, id) = (import.node.clone(), import.id.clone());
        let (checkpoint, length) = (import.job.record.checkpoint, import.log_length);
        let secret = &self.shared.settings.image_secret;
        let image_key = import.key.as_ref().map(|key| secret.wrap(&id, key));
        let imported = JobImported { image_key, ..import.entry(now, facts) };
        let mut ledger = Ledger::of_import(imported.clone());
        ledger.familiar = self.shared.members.present();
        for instance in ledger.images.values().flat_map(BTreeMap::keys) {
            self.shared.members.note_image(&node, &id, *instance, checkpoint);
        }
        self.shared.append(ClusterEntry::JobImported(Box::new(imported)));
        let mut job = Job::new(ledger);
        job.console = Console::at(length, 0);
        self.jobs.insert(id, job);
    }

    /// Gives up imports of clients that say nothing.
    pub(super) fn check_imports(&mut self, now: Now) {
        let late = self.imports.0.iter().find(|(_, import)| import.until <= now.nanos);
        if let Some(client) = late.map(|(client, _)| client.clone()) {
            self.forget_import(&client);
            self.shared.fail(&client, "import the job: it takes too long");
        }
    }

    /// When one is given up.
    pub(super) fn imports_deadline(&self) -> Option<u64> {
        self.imports.0.values().map(|import| import.until).min()
    }

    /// Nobody waits for an import any more.
    pub(super) fn forget_import(&mut self, client: &ClientId) {
        if let Some(import) = self.imports.0.remove(client) {
            self.clear_import(&import.id, &import.node);
        }
    }

    /// Removes what there is of a job that is none.
    fn clear_import(&mut self, id: &str, node: &NodeName) {
        self.shared.act(ClusterAction::RemoveJob { job: id.to_owned() });
        let images = BTreeMap::new().into();
        self.shared.send(node, ToAgent::Keep { job: id.to_owned(), images });
    }
}

impl Import {
    fn record(&self) -> CommitRecord {
        let copies = 1;
        CommitRecord {
            job: self.id.clone(),
            restored_from: None,
            copies,
            degraded: self.job.request.settings.copies > copies,
            ..self.job.record.clone()
        }
    }

    fn order(&self, client: u64) -> AdoptOrder {
        let digest = |image: &protocol::cluster::portable::PortableImage| image.digest.clone();
        let images = self.job.images.iter();
        AdoptOrder {
            client,
            user: self.user.clone(),
            job: self.id.clone(),
            folder: self.folder.clone(),
            images: images.map(|(instance, image)| (*instance, digest(image))).collect(),
            record: self.record(),
            callers: self.job.request.settings.daemons != Daemons::Fallback,
        }
    }

    fn entry(self, now: Now, mut facts: BTreeMap<InstanceId, ImageFacts>) -> JobImported {
        let record = self.record();
        let PortableJob { request, images, epoch, addresses, departed, .. } = self.job;
        let images = images.into_iter().filter_map(|(instance, image)| {
            let mut facts = facts.remove(&instance)?;
            facts.root = facts.root.filter(|_| image.root);
            let record = ImageRecord {
                node: image.node,
                logical_node: image.logical_node,
                holders: vec![self.node.clone()],
                speed_permille: image.speed_permille,
                facts,
            };
            Some((instance, record))
        });
        let images = images.collect();
        JobImported {
            job: self.id,
            name: self.name,
            user: self.owner,
            client_node: Some(self.node),
            request,
            epoch,
            record,
            images,
            addresses,
            departed,
            image_key: None,
            at_ms: now.unix_ms,
        }
    }
}
