//! Where the images of a checkpoint are had from.

use super::damaged::{DamagedCopies, Presence, Source};
use super::departed::Departing;
use crate::cluster::entry::ImageRecord;
use crate::cluster::members::Members;
use crate::cluster::text;
use protocol::agent::{CheckpointNumber, InstanceId};
use protocol::cluster::NodeName;
use std::collections::BTreeMap;

/// The copies of a checkpoint's images.
pub(super) struct Copies<'a> {
    pub(super) checkpoint: CheckpointNumber,
    pub(super) images: &'a BTreeMap<InstanceId, ImageRecord>,
    pub(super) damaged: &'a DamagedCopies,
}

/// Why the images can't be had.
pub(super) enum Unavailable {
    /// Not before one of these machines is back.
    Later { holders: Vec<NodeName> },
    /// Never, as far as anybody knows.
    Lost {
        /// Which image, and what became of its copies.
        what: String,
        /// Which machines would have to be back.
        back: Option<String>,
    },
}

impl Copies<'_> {
    /// The images that are needed, each with the machines it can be had from. Daemons that no sound copy has depart.
    pub(super) fn sources(
        &self,
        members: &Members,
        departing: &mut Departing,
    ) -> Result<BTreeMap<InstanceId, ImageRecord>, Unavailable> {
        let mut images = self.images.clone();
        for (instance, image) in &mut images {
            if departing.is_whole(*instance, image) {
                continue;
            }
            match self.source(members, *instance) {
                Source::Whole(holders) => image.holders = holders,
                Source::Without(holders, daemons) => {
                    departing.pids.entry(*instance).or_default().extend(daemons);
                    image.holders = holders;
                }
                Source::Later(holders) => return Err(Unavailable::Later { holders }),
                Source::Lost => return Err(self.lost(members, departing, *instance)),
            }
        }
        Ok(images)
    }

    fn source(&self, members: &Members, instance: InstanceId) -> Source {
        self.damaged.source(self.checkpoint, instance, self.images, |node| {
            match members.is_connected(node) {
                true => Presence::Connected,
                false if members.is_gone(node) => Presence::Gone,
                false => Presence::Away,
            }
        })
    }

    fn sound(&self, instance: InstanceId, image: &ImageRecord) -> Vec<NodeName> {
        self.damaged.sound(self.checkpoint, instance, image)
    }

    /// Of an image that is nowhere: what is told of it.
    fn lost(&self, members: &Members, departing: &Departing, instance: InstanceId) -> Unavailable {
        let all = self.images.get(&instance).map_or(&[][..], |image| &image.holders);
        let sound = self.images.get(&instance).map(|image| self.sound(instance, image));
        let sound = sound.unwrap_or_default();
        let how = match sound.len() == all.len() {
            true => format!("gone with {}", names(&sound)),
            false => format!("gone or damaged ({})", names(all)),
        };
        let (instance, checkpoint) = (instance.0, self.checkpoint);
        let what = format!(
            "every copy of the image of instance {instance} at checkpoint {checkpoint} is {how}"
        );
        let needed = self.images.iter().filter(|(number, image)| {
            !departing.is_whole(**number, image) && self.source(members, **number) == Source::Lost
        });
        let needed = needed.map(|(number, image)| self.sound(*number, image)).collect();
        Unavailable::Lost { what, back: text::must_be_back(&needed) }
    }
}

/// "node1, node2"
pub(super) fn names(nodes: &[NodeName]) -> String {
    nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ")
}
