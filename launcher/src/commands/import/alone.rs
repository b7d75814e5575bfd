//! A job of a cluster from an archive, where there is none: one of a single instance becomes a job of this machine.

use super::{Context, Refusal, Watch, Wish, settle};
use crate::cli::{EngineSetting, IntervalSetting, Placement};
use crate::jobs::{Incoming, JobRecord, JobSettings, Wanted};
use ckpt_store::archive::{Import, free};
use protocol::cluster::image_key::JobKey;
use protocol::cluster::portable::PortableJob;
use protocol::cluster::settings::{self, Interval};
use std::io::Read;

/// The job's name and the checkpoint's number.
pub(super) fn take(
    context: &Context,
    wish: Wish<'_>,
    job: &PortableJob,
    key: Option<&JobKey>,
    import: Import<impl Read>,
    watch: Watch<'_>,
) -> Result<(String, u64), Refusal> {
    if job.images.len() != 1 {
        return Err(Refusal::Unfit(format!(
            "it is a job of a cluster, in {} parts, and this machine belongs to none: import it on a machine that does, \
             or join one by 'ckptd agent --join-file FILE'",
            job.images.len()
        )));
    }
    if wish.user.is_some() {
        return Err(Refusal::User);
    }
    let record = record(job);
    let wanted = Wanted::of(wish.name, &record);
    wanted.check(&context.state)?;
    let incoming = Incoming::new(&context.state)?;
    let folder = incoming.path().to_owned();
    let marks = import.unpack_all(&folder, |_| folder.clone(), &free, watch)?;
    let Some(mark) = marks.into_values().next() else {
        return Err(Refusal::Unfit("it has no image".to_owned()));
    };
    settle(context, incoming, &wanted, record, mark, key)
}

fn record(job: &PortableJob) -> JobRecord {
    let launch = &job.request.launch;
    let kept = &job.request.settings;
    let settings = JobSettings {
        interval: match kept.interval {
            Interval::Seconds(seconds) => IntervalSetting::Seconds(seconds),
            Interval::Auto => IntervalSetting::Auto,
        },
        keep: kept.keep,
        copies: 1,
        external: kept.external,
        placement: match kept.placement {
            settings::Placement::Process => Placement::Process,
            settings::Placement::Node => Placement::Node,
        },
        engine: EngineSetting::Native,
        rehearse: kept.rehearse,
    };
    let words = launch.program.iter().map(|word| word.to_string_lossy().into_owned());
    let folder = launch.working_directory.to_string_lossy().into_owned();
    JobRecord::new(job.id.clone(), job.name.clone(), words.collect(), folder, settings)
}
