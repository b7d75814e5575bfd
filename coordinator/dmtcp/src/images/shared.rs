//! Images of a cluster's machines: their agents take them in, partners get copies, and what is lost is restarted from these.

use super::{ImageError, Images, Kept, Place};
use crate::cluster::{AnswerError, Cluster};
use crate::machine::{Checkpoint, Image};
use crate::places::{self, KeptShare, Share};
use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use protocol::cluster::agent::JobUser;
use protocol::cluster::dmtcp::{DmtcpImage, DmtcpPath, JOB_PREFIX};
use std::collections::BTreeMap;

/// What an agent is told of an image. Of a process on this machine the user is known, and the agent is this machine's.
fn named(image: &Image) -> DmtcpPath {
    DmtcpPath { path: image.name.path.clone(), owner: image.owner.map(JobUser::of) }
}

/// Machines on which each image is to be, its own included.
pub const COPIES: usize = 2;

impl Images {
    fn job_id(&self) -> String {
        format!("{JOB_PREFIX}{}", self.job)
    }

    fn image(&self, instance: u32, checkpoint: u64) -> DmtcpImage {
        DmtcpImage { job: self.job_id(), instance: InstanceId(instance), checkpoint }
    }

    /// Has agents take the images of their machines in, and others copy them: what is kept, by its place in the checkpoint.
    ///
    /// # Errors
    /// Why a machine that has an agent could not keep its images: then the checkpoint must not count. A lacking copy is only said.
    pub(super) fn take_in(
        &self,
        cluster: &Cluster,
        number: u64,
        checkpoint: &Checkpoint,
    ) -> Result<BTreeMap<usize, Kept>, ImageError> {
        let shares = places::shares(&checkpoint.images, &cluster.members());
        let mut numbers = self.instances();
        let mut awaited = Vec::new();
        for share in shares.kept {
            let next = numbers.values().max().map_or(1, |highest| highest.saturating_add(1));
            let instance = *numbers.entry(share.node.clone()).or_insert(next);
            let named = |index: &usize| named(&checkpoint.images[*index]);
            let files = share.images.iter().map(named).collect();
            let image = self.image(instance, number);
            awaited.push((cluster.take_in(&share.node, &image, files), image, share));
        }
        let mut taken = Vec::new();
        for (answer, image, share) in awaited {
            let files = answer.wait().map_err(|source| of_agent(&share.node, source))?;
            if files.len() != share.images.len() {
                return Err(ImageError::NotAll(share.node));
            }
            taken.push((image, share, files));
        }
        let mut kept = BTreeMap::new();
        let copies: Vec<_> = taken
            .iter()
            .map(|(image, share, _)| {
                let partner = share.partners.first()?;
                Some((cluster.copy(partner, image, vec![share.node.clone()]), partner.clone()))
            })
            .collect();
        for ((image, share, files), copy) in taken.into_iter().zip(copies) {
            let mut holders = vec![share.node.clone()];
            if let Some((answer, partner)) = copy {
                match answer.wait() {
                    Ok(_) => holders.push(partner),
                    Err(reason) => {
                        tracing::warn!(
                            "no copy of the images of {} on {partner}: {reason}",
                            share.node
                        )
                    }
                }
            }
            copy_to_others(cluster, &image, &share, &mut holders);
            let place = Place { instance: image.instance.0, node: share.node.clone(), holders };
            for (index, file) in share.images.into_iter().zip(files) {
                let image = &checkpoint.images[index];
                kept.insert(
                    index,
                    Kept {
                        host: image.name.host.clone(),
                        path: file.path,
                        program: image.program.clone(),
                        file: None,
                        bytes: file.bytes,
                        blake3: Some(file.blake3),
                        share: Some(place.clone()),
                    },
                );
            }
        }
        Ok(kept)
    }

    /// The numbers that machines have in the job: they stay.
    fn instances(&self) -> BTreeMap<NodeName, u32> {
        let mut numbers = BTreeMap::new();
        for checkpoint in self.numbers() {
            let Ok(description) = self.description(checkpoint) else { continue };
            let places = description.images.into_iter().filter_map(|image| image.share);
            numbers.extend(places.map(|place| (place.node, place.instance)));
        }
        numbers
    }

    /// Where the images of a checkpoint are, of each machine once.
    ///
    /// # Errors
    /// An image that no agent keeps.
    pub fn places(&self, number: u64) -> Result<Vec<KeptShare>, ImageError> {
        let mut shares: BTreeMap<u32, KeptShare> = BTreeMap::new();
        for image in self.description(number)?.images {
            let Some(Place { instance, node, holders }) = image.share else {
                let Kept { path, host, .. } = image;
                return Err(ImageError::WithoutAgent { path, host, checkpoint: number });
            };
            shares.insert(instance, KeptShare { instance, node, holders });
        }
        Ok(shares.into_values().collect())
    }

    /// Has agents restart a checkpoint: those of its machines that are there, and others in the stead of those that are not.
    ///
    /// # Errors
    /// See [`ImageError`].
    pub fn restart(&self, cluster: &Cluster, number: u64) -> Result<(), ImageError> {
        let shares = self.places(number)?;
        let there: Vec<NodeName> =
            cluster.members().into_iter().map(|member| member.name).collect();
        let placed = places::placement(&shares, &there).map_err(ImageError::NowhereThere)?;
        let mut awaited = Vec::new();
        for (instance, node) in placed {
            let Some(share) = shares.iter().find(|share| share.instance == instance) else {
                continue;
            };
            if node != share.node {
                tracing::info!("{node} restarts the processes of {}", share.node);
            }
            let image = self.image(instance, number);
            awaited.push((cluster.restart(&node, &image, share.holders.clone()), node));
        }
        for (answer, node) in awaited {
            answer.wait().map_err(|source| of_agent(&node, source))?;
        }
        Ok(())
    }

    /// Has agents remove all but these checkpoints of the job.
    pub(super) fn collect_shared(&self, cluster: &Cluster, kept: &[u64]) {
        let mut instances: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for number in kept {
            for share in self.places(*number).unwrap_or_default() {
                instances.entry(share.instance).or_default().push(*number);
            }
        }
        if instances.is_empty() {
            return;
        }
        let kept: Vec<(u32, Vec<u64>)> = instances.into_iter().collect();
        // Who is not there hears it after a later checkpoint.
        for member in cluster.members() {
            cluster.keep(&member.name, self.job_id(), &kept);
        }
    }
}

fn of_agent(node: &NodeName, source: AnswerError) -> ImageError {
    ImageError::Agent { node: node.clone(), source }
}

/// Has partners but the first copy an image until it is in enough places: the first could not, or there are not enough yet.
fn copy_to_others(
    cluster: &Cluster,
    image: &DmtcpImage,
    share: &Share,
    holders: &mut Vec<NodeName>,
) {
    for partner in share.partners.iter().skip(1) {
        if holders.len() >= COPIES {
            return;
        }
        if cluster.copy(partner, image, vec![share.node.clone()]).wait().is_ok() {
            holders.push(partner.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Identity;
    use crate::wire::ImageName;
    use std::net::Ipv4Addr;

    #[test]
    fn an_agent_is_told_whose_process_names_an_image() {
        let path = "/home/ckpt_p.dmtcp".to_owned();
        let of = |owner| Image {
            name: ImageName { host: "here".into(), shell: String::new(), path: path.clone() },
            identity: Identity::default(),
            program: "p".into(),
            remote: Ipv4Addr::LOCALHOST,
            owner,
        };
        let told = named(&of(Some(4_000_000)));
        assert_eq!((told.path, told.owner.map(|owner| owner.uid)), (path.clone(), Some(4_000_000)));
        assert_eq!(named(&of(None)).owner, None);
    }
}
