//! A job of a cluster from an archive. It is unpacked into a folder of the user's and checked there; the agent takes the
//! images over from that folder, the coordinator gets the rest.

use super::{Context, Refusal, Watch, Wish, alone};
use crate::client::link::Link;
use crate::client::refusal::unexpected;
use crate::cluster::Cluster;
use crate::jobs::Incoming;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ckpt_store::archive::{About, Import, Interrupted, free};
use protocol::agent::InstanceId;
use protocol::cluster::agent::JobUser;
use protocol::cluster::client::{Answer, Ask};
use protocol::cluster::portable::{ImportRequest, PortableJob, SealedJob};
use protocol::database::users::Account;
use protocol::log_times;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::time::Duration;

/// How often it is looked whether a signal has come while nothing else does.
const LOOK: Duration = Duration::from_millis(200);
/// Bytes of the log that are sent at a time: with what base64 adds, a line that needs no place of its own.
const PIECE: u64 = 128 << 10;

/// The job's name and the checkpoint's number.
pub(super) fn take(
    context: &Context,
    wish: Wish<'_>,
    import: Import<impl Read>,
    watch: Watch<'_>,
) -> Result<(String, u64), Refusal> {
    let sealed: SealedJob = protocol::json::of_value(&import.about().job)
        .map_err(|error| Refusal::Unfit(format!("its description is not one: {error}")))?;
    let job = sealed.read().map_err(|error| Refusal::Unfit(format!("its description {error}")))?;
    check(&job, import.about())?;
    let Some(cluster) = context.cluster()? else {
        return alone::take(context, wish, &job, sealed.key.as_ref(), import, watch);
    };
    let owner = wish.user.map(owner).transpose()?;
    let incoming = Incoming::new(&context.state.passing_through()?)?;
    let log_length = import.about().log.as_ref().map_or(0, |log| log.length);
    let place = |instance: u32| incoming.path().join(instance.to_string());
    import.unpack_all(incoming.path(), place, &free, &mut *watch)?;
    let log = incoming.path().join("log");
    let job_log = JobLog { path: &log, length: log_length };
    let name = hand_over(&cluster, incoming.path(), wish.name, owner, sealed, &job_log, watch)?;
    Ok((name, job.record.checkpoint))
}

/// Whether the description is that of what is in the archive.
fn check(job: &PortableJob, about: &About) -> Result<(), Refusal> {
    let own = about.instances.iter().map(|instance| InstanceId(*instance));
    if !own.eq(job.images.keys().copied()) || job.record.checkpoint != about.checkpoint {
        let reason = "its description is that of another job or checkpoint";
        return Err(Refusal::Unfit(reason.to_owned()));
    }
    Ok(())
}

/// The user of this machine whose job it is to be.
pub(super) fn owner(name: &str) -> Result<JobUser, Refusal> {
    let account = Account::of_name(name)
        .ok_or_else(|| Refusal::Unfit(format!("there is no user {name:?} on this machine")))?;
    Ok(JobUser { uid: account.uid, name: account.name })
}

/// The output of a job, from an archive.
pub(super) struct JobLog<'a> {
    /// Where it was unpacked; where nothing is, it is empty.
    pub(super) path: &'a Path,
    /// Its length in bytes.
    pub(super) length: u64,
}

/// Gives the cluster the images that lie in that folder, each in `INSTANCE/`, and what it must know of the job. Returns
/// the job's name on the cluster.
pub(super) fn hand_over(
    cluster: &Cluster,
    folder: &Path,
    name: Option<&str>,
    owner: Option<JobUser>,
    job: SealedJob,
    job_log: &JobLog<'_>,
    watch: Watch<'_>,
) -> Result<String, Refusal> {
    let folder = fs::canonicalize(folder).map_err(Refusal::Log)?;
    let folder = folder.to_str().map(str::to_owned).ok_or_else(|| {
        Refusal::Unfit(format!("the name of {} is no UTF-8: use --dir", folder.display()))
    })?;
    let (name, log_length) = (name.map(str::to_owned), job_log.length);
    let request = ImportRequest { name, owner, job, folder, log_length };
    let mut link = cluster.open(&Ask::Import(Box::new(request)))?;
    match next(&mut link, watch)? {
        Answer::Accepted { .. } => {}
        other => return Err(unexpected("import the job", &other).into()),
    }
    let times = log_times::read(&job_log.path.with_file_name(log_times::NAME), log_length);
    let mut sent = 0;
    let mut log = match File::open(job_log.path) {
        Ok(log) => Some(log),
        Err(error) if error.kind() == ErrorKind::NotFound && log_length == 0 => None,
        Err(error) => return Err(Refusal::Log(error)),
    };
    loop {
        let mut bytes = Vec::new();
        if let Some(log) = &mut log {
            log.take(PIECE).read_to_end(&mut bytes).map_err(Refusal::Log)?;
        }
        let start = sent;
        sent += bytes.len() as u64;
        let times = times.between(start, sent);
        link.send(&Ask::ImportLog { bytes: STANDARD.encode(&bytes), times })?;
        match next(&mut link, watch)? {
            Answer::Taken if !bytes.is_empty() => {}
            Answer::Imported { name } if bytes.is_empty() => return Ok(name),
            other => return Err(unexpected("import the job", &other).into()),
        }
    }
}

fn next(
    link: &mut Link,
    watch: &mut dyn FnMut(u64) -> Result<(), Interrupted>,
) -> Result<Answer, Refusal> {
    loop {
        watch(0).map_err(ckpt_store::archive::ArchiveError::from)?;
        match link.next_within(LOOK)? {
            Some(Answer::Say { text }) => eprintln!("ckptd: {text}"),
            Some(Answer::Failed { reason, .. }) => {
                let reason = reason.strip_prefix("import the job: ").unwrap_or(&reason);
                return Err(Refusal::Unfit(reason.to_owned()));
            }
            Some(answer) => return Ok(answer),
            None => {}
        }
    }
}
