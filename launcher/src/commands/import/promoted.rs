//! A job of one machine from an archive, where there is a cluster: an operator makes it a job of the cluster, with a single
//! part.

use super::to_cluster::{JobLog, hand_over, owner};
use super::{Context, Refusal, Watch, Wish, commit_record};
use crate::cli::{EngineSetting, IntervalSetting, Placement};
use crate::cluster::Cluster;
use crate::jobs::{Incoming, JobRecord};
use ckpt_agent::images::{self, Launched};
use ckpt_store::archive::{Import, free};
use protocol::agent::{CommitRecord, InstanceId};
use protocol::cluster::NodeName;
use protocol::cluster::agent::JobUser;
use protocol::cluster::client::RunRequest;
use protocol::cluster::image_key::Encryption;
use protocol::cluster::portable::{FORMAT, PortableImage, PortableJob, SealedJob};
use protocol::cluster::settings::{self, Interval, JobSettings};
use protocol::launch::LaunchSpec;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

/// What a machine is called whose name is none for a node.
const NAMELESS: &str = "elsewhere";
/// The speed of a core of an unknown machine, in thousandths.
const SPEED: u32 = 1000;

/// The job's name and the checkpoint's number.
pub(super) fn take(
    context: &Context,
    cluster: &Cluster,
    wish: Wish<'_>,
    import: Import<impl Read>,
    watch: Watch<'_>,
) -> Result<(String, u64), Refusal> {
    let about = import.about();
    let record = JobRecord::adopt(about.job.clone())?;
    if record.settings.engine != EngineSetting::Native {
        return Err(Refusal::Unfit(
            "it is a job of DMTCP's, which no cluster can restore".to_owned(),
        ));
    }
    let (key, log_length) = (about.key.clone(), about.log.as_ref().map_or(0, |log| log.length));
    let user = wish.user.map(owner).transpose()?;
    let incoming = Incoming::new(&context.state.passing_through()?)?;
    let folder = incoming.path().join(InstanceId::EMBEDDED.0.to_string());
    std::fs::create_dir(&folder).map_err(Refusal::Folder)?;
    let mark = import.unpack(&folder, &free, &mut *watch)?;
    if let Some(key) = &key {
        ckpt_store::keep_key(&folder, key, Encryption::Shared)?;
    }
    let launched = images::launched(&folder, mark.checkpoint)?;
    let image = PortableImage {
        node: machine(&record.host)?,
        logical_node: machine(&record.host)?,
        speed_permille: SPEED,
        digest: images::digest(&folder, mark.checkpoint)?,
        bytes: mark.totals.bytes,
        root: launched.root,
    };
    let committed = commit_record(mark.meta, mark.checkpoint)?;
    let job = describe(record, committed, image, launched, user.clone());
    let text = serde_json::to_string(&job).map_err(Refusal::Description)?;
    // No cluster has sealed it.
    let sealed = SealedJob { text, seal: String::new(), key };
    let log = folder.join("log");
    let log = JobLog { path: &log, length: log_length };
    let name = hand_over(cluster, incoming.path(), wish.name, user, sealed, &log, watch)?;
    Ok((name, mark.checkpoint))
}

/// The machine where it ran, as a node.
fn machine(host: &str) -> Result<NodeName, Refusal> {
    let label = host.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let name = label.parse().or_else(|_| NAMELESS.parse());
    name.map_err(|error| Refusal::Unfit(format!("it ran on {host:?}: {error}")))
}

fn describe(
    record: JobRecord,
    committed: CommitRecord,
    image: PortableImage,
    launched: Launched,
    user: Option<JobUser>,
) -> PortableJob {
    let settings = settings(&record);
    let program = record.command.into_iter().map(Into::into).collect();
    let launch = LaunchSpec {
        stdin: launched.streams,
        stdout: launched.streams,
        stderr: launched.streams,
        kept: launched.kept,
        ..LaunchSpec::through_pipes(program, PathBuf::from(record.working_directory))
    };
    PortableJob {
        format: FORMAT,
        id: record.id,
        name: record.name,
        user: user.unwrap_or(JobUser { uid: record.uid, name: String::new() }),
        request: RunRequest { name: None, launch, settings, detach: false, anywhere: false },
        created_at_ms: record.created_at_ms,
        record: committed,
        epoch: 1,
        images: BTreeMap::from([(InstanceId::EMBEDDED, image)]),
        addresses: BTreeMap::new(),
        departed: Vec::new(),
    }
}

/// Those that it had; what only a cluster has is as for any new job of the cluster.
fn settings(record: &JobRecord) -> JobSettings {
    let kept = &record.settings;
    JobSettings {
        interval: match kept.interval {
            IntervalSetting::Seconds(seconds) => Interval::Seconds(seconds),
            IntervalSetting::Auto => Interval::Auto,
        },
        keep: kept.keep,
        external: kept.external,
        placement: match kept.placement {
            Placement::Process => settings::Placement::Process,
            Placement::Node => settings::Placement::Node,
        },
        rehearse: kept.rehearse,
        ..JobSettings::default()
    }
}
