//! Whether the checkpoints of a job of DMTCP are whole, as far as this machine can tell.

use super::records;
use crate::EXIT_FAILED;
use crate::cli::EngineSetting;
use crate::commands::{print, print_json};
use crate::failure::Failure;
use crate::jobs::{self, JobFolder};
use serde::Serialize;
use std::collections::BTreeSet;

/// The verdict on an image; the keys stay as they are.
#[derive(Debug, Serialize)]
struct Verdict {
    checkpoint: u64,
    image: String,
    host: String,
    /// Nodes whose agents keep it: they check every byte where they use it.
    holders: Vec<String>,
    /// What is wrong with it.
    damage: Option<String>,
}

/// Exit status 0 where every image is whole or kept by agents.
pub fn verify(job: &JobFolder, only: Option<u64>, json: bool) -> Result<u8, Failure> {
    let what = format!("verify {}", job.name());
    let history = jobs::load(job)?;
    let mut verdicts = Vec::new();
    let mut wanted: Vec<u64> = history.committed().map(|(record, _)| record.checkpoint).collect();
    wanted.retain(|number| only.is_none_or(|only| only == *number));
    if let (Some(only), true) = (only, wanted.is_empty()) {
        return Err(Failure::of(what, format!("there is no checkpoint {only}")));
    }
    for checkpoint in wanted {
        let description = records::images(job)
            .description(checkpoint)
            .map_err(|error| Failure::of(what.clone(), error))?;
        for image in description.images {
            let (holders, damage) = match &image.share {
                Some(place) => (place.holders.iter().map(ToString::to_string).collect(), None),
                None => {
                    let checked = records::images(job).checked(checkpoint, &image);
                    (Vec::new(), checked.err().map(|damage| damage.to_string()))
                }
            };
            let (image, host) = (image.path, image.host);
            verdicts.push(Verdict { checkpoint, image, host, holders, damage });
        }
    }
    if json {
        print_json(&verdicts)?;
    } else {
        for verdict in &verdicts {
            let Verdict { checkpoint, image, host, holders, damage } = verdict;
            let how = match damage {
                Some(damage) => damage.clone(),
                None if holders.is_empty() => "whole".to_owned(),
                None => format!("kept by the agents of {}", holders.join(", ")),
            };
            print(&format!("{checkpoint} {host} {image}: {how}\n"))?;
        }
    }
    let damaged = verdicts.iter().any(|verdict| verdict.damage.is_some());
    Ok(if damaged { EXIT_FAILED } else { 0 })
}

/// What is to be said of images of the newest checkpoint that nobody keeps but their own machines.
pub fn unkept(job: &JobFolder) -> Option<String> {
    if job.record().settings.engine != EngineSetting::Dmtcp {
        return None;
    }
    let newest = jobs::load(job).ok()?.newest()?.checkpoint;
    let images = records::images(job).description(newest).ok()?.images;
    let left: Vec<_> =
        images.iter().filter(|image| image.share.is_none() && image.file.is_none()).collect();
    let hosts: BTreeSet<&str> = left.iter().map(|image| image.host.as_str()).collect();
    (!left.is_empty()).then(|| {
        format!(
            "{} of {} images of checkpoint {newest} of {} are on {} only, where no agent of ckptd runs",
            left.len(),
            images.len(),
            job.name(),
            hosts.into_iter().collect::<Vec<_>>().join(", ")
        )
    })
}
