//! Which machines can run which images. Most of either are alike: each kind is compared with each once.

use super::{Image, Machine, misfit};
use protocol::cluster::image::Requirements;
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug)]
pub(super) struct Fit {
    /// The kind of each image.
    images: Vec<usize>,
    /// The kind of each machine.
    machines: Vec<usize>,
    /// By kind of image and kind of machine: why they do not fit.
    misfits: Vec<Vec<Option<String>>>,
}

impl Fit {
    pub(super) fn new(images: &[Image], machines: &[Machine]) -> Self {
        let (of_images, wanted) = kinds(images.iter().map(|image| &image.requirements));
        let (of_machines, offers) = kinds(machines.iter().map(|machine| &machine.offer));
        let row = |image: &usize| {
            let wanted = &images[*image].requirements;
            offers.iter().map(|machine| misfit(&machines[*machine], wanted)).collect()
        };
        let misfits = wanted.iter().map(row).collect();
        Self { images: of_images, machines: of_machines, misfits }
    }

    pub(super) fn is(&self, image: usize, machine: usize) -> bool {
        self.misfits[self.images[image]][self.machines[machine]].is_none()
    }

    /// Whether no machine can run an image.
    pub(super) fn is_for_none(&self, image: usize) -> bool {
        self.misfits[self.images[image]].iter().all(Option::is_some)
    }

    /// Machines that can't run an image, and why.
    pub(super) fn misfits(&self, image: usize) -> impl Iterator<Item = (usize, &String)> {
        let row = &self.misfits[self.images[image]];
        let has_some = row.iter().any(Option::is_some);
        let machines = if has_some { self.machines.as_slice() } else { &[] };
        let machines = machines.iter().enumerate();
        machines.filter_map(|(machine, kind)| Some((machine, row[*kind].as_ref()?)))
    }

    /// Whether two images can be run by the same machines.
    pub(super) fn are_alike(&self, one: usize, other: usize) -> bool {
        let row = |image: usize| self.misfits[self.images[image]].iter().map(Option::is_none);
        self.images[one] == self.images[other] || row(one).eq(row(other))
    }
}

/// The kind of each, and the first of each kind.
fn kinds<'a>(all: impl Iterator<Item = &'a Requirements>) -> (Vec<usize>, Vec<usize>) {
    let (mut known, mut firsts) = (BTreeMap::new(), Vec::new());
    let kind = |(index, one): (usize, &'a Requirements)| {
        *known.entry(one).or_insert_with(|| {
            firsts.push(index);
            firsts.len() - 1
        })
    };
    let of = all.enumerate().map(kind).collect();
    (of, firsts)
}
