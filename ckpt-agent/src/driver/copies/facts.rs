//! What a coordinator must know of an image.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use protocol::agent::CheckpointNumber;
use protocol::cluster::image::{ImageFacts, ProcessFacts, Requirements, Unit};

use super::digest::digest;
use super::error::CopyError;
use super::own_files::{Named, stash};
use crate::driver::user::User;
use ckpt_engine::dump::process_file;
use ckpt_engine::graph::{Backing, Graph, MappedFile, ProcessImage, ProcessState, offer};
use ckpt_engine::objects::{Object, Regular};
use ckpt_engine::split::{Holdings, units};

/// Folders whose files are part of the system: every machine that can run the job has them, and a restore
/// checks that they are the same.
const SYSTEM: [&str; 12] = [
    "/usr/",
    "/lib/",
    "/lib64/",
    "/lib32/",
    "/bin/",
    "/sbin/",
    "/etc/",
    "/opt/",
    "/nix/store/",
    "/proc/",
    "/sys/",
    "/dev/",
];

/// Facts of an image that lies in that folder. Files of that user's job that it only names are put beside
/// it on the way. `callers`: who may yet need a daemon stays with it.
///
/// # Errors
/// See [`CopyError`].
pub fn facts(
    folder: &Path,
    checkpoint: CheckpointNumber,
    user: Option<&User>,
    callers: bool,
) -> Result<ImageFacts, CopyError> {
    let stashed = |named: &BTreeSet<Named>| stash(folder, checkpoint, named, user);
    facts_with(folder, checkpoint, callers, stashed)
}

/// Facts of an image that came from elsewhere, with the job's files beside it.
///
/// # Errors
/// See [`CopyError`].
pub fn facts_of_complete(
    folder: &Path,
    checkpoint: CheckpointNumber,
    callers: bool,
) -> Result<ImageFacts, CopyError> {
    facts_with(folder, checkpoint, callers, |_| Ok(Vec::new()))
}

fn facts_with(
    folder: &Path,
    checkpoint: CheckpointNumber,
    callers: bool,
    stash: impl FnOnce(&BTreeSet<Named>) -> Result<Vec<String>, CopyError>,
) -> Result<ImageFacts, CopyError> {
    let graph: Graph = ckpt_store::read_index(folder, checkpoint, "graph.json")?;
    let mut images = BTreeMap::new();
    for node in graph.processes.iter().filter(|node| node.state == ProcessState::Alive) {
        let name = process_file(node.pid);
        let image: ProcessImage = ckpt_store::read_index(folder, checkpoint, &name)?;
        images.insert(node.pid, image);
    }
    let processes: Vec<ProcessFacts> = graph
        .processes
        .iter()
        .filter_map(|node| {
            let image = images.get(&node.pid)?;
            Some(ProcessFacts {
                pid: node.pid,
                parent: node.ppid,
                name: node.comm.clone(),
                threads: u32::try_from(image.threads.len()).unwrap_or(u32::MAX),
                bytes: image.pages.iter().map(|window| window.bytes(graph.page_size)).sum(),
            })
        })
        .collect();
    Ok(ImageFacts {
        root: (graph.root != 0 && images.contains_key(&graph.root)).then_some(graph.root),
        units: placement_units(&graph, images.values(), &processes, callers),
        processes,
        requirements: Requirements {
            architecture: graph.architecture.clone(),
            page_size: graph.page_size,
            vdso: graph.vdso.clone(),
            any_vdso: graph.vdso_image.is_some(),
            features: offer::wanted(&graph.offers, images.values())
                .into_iter()
                .map(str::to_owned)
                .collect(),
            memory_top: images
                .values()
                .flat_map(|image| &image.areas)
                .map(|area| area.end)
                .max()
                .unwrap_or(0),
        },
        at_stake: stash(&named_files(&graph, images.values()))?,
        // With the list that has just been written.
        digest: digest(folder, checkpoint)?,
        efforts: None,
    })
}

fn placement_units<'a>(
    graph: &Graph,
    images: impl Iterator<Item = &'a ProcessImage>,
    processes: &[ProcessFacts],
    callers: bool,
) -> Vec<Unit> {
    // Of a child that lives elsewhere, its stand-in is here.
    let lives = |state: &ProcessState| matches!(state, ProcessState::Alive | ProcessState::StandIn);
    let children = graph.processes.iter().filter(|node| lives(&node.state));
    let parents: BTreeSet<i32> = children.map(|node| node.ppid).collect();
    let alive: BTreeSet<i32> = processes.iter().map(|process| process.pid).collect();
    units(graph, &Holdings::of(graph, images), callers)
        .into_iter()
        .map(|unit| {
            // Daemons and shells are parents; what computes is none, as a rule.
            let works = |pid: &&i32| alive.contains(pid) && !parents.contains(pid);
            let load = unit.pids.iter().filter(works).count();
            let because = match unit.pids.len() {
                0 | 1 => String::new(),
                _ => "they share memory, a terminal or a descriptor".to_owned(),
            };
            Unit {
                pids: unit.pids,
                bytes: unit.bytes,
                load: u32::try_from(load).unwrap_or(u32::MAX),
                because,
            }
        })
        .collect()
}

/// Files that the image only names, and that may be on this machine alone.
fn named_files<'a>(
    graph: &Graph,
    images: impl Iterator<Item = &'a ProcessImage>,
) -> BTreeSet<Named> {
    let mut files = BTreeSet::new();
    let mut in_image = BTreeSet::new();
    let mapped = |file: &MappedFile| Named {
        path: file.path.clone(),
        size: file.size,
        modified_ns: file.modified_ns,
        written: false,
    };
    for image in images {
        files.insert(mapped(&image.executable));
        for area in &image.areas {
            if let Backing::File { file, .. } = &area.backing {
                files.insert(mapped(file));
            }
        }
    }
    for file in &graph.files {
        if let Object::Regular(Regular::ByPath(named)) = &file.object {
            if named.in_place.is_some() {
                in_image.insert(named.path.as_str());
            }
            files.insert(Named {
                path: named.path.clone(),
                size: named.size,
                modified_ns: named.modified_ns,
                written: file.flags & libc::O_ACCMODE != libc::O_RDONLY,
            });
        }
    }
    // Whoever only reads it may be in another part than who has its content.
    let read: BTreeSet<String> =
        files.iter().filter(|file| !file.written).map(|file| file.path.clone()).collect();
    files.retain(|file| !in_image.contains(file.path.as_str()) || read.contains(&file.path));
    let own = |path: &str| path.starts_with('/') && !SYSTEM.iter().any(|dir| path.starts_with(dir));
    files.retain(|file| own(&file.path) && !file.path.ends_with(" (deleted)"));
    // A file that is open for writing somewhere is so for all.
    let written: BTreeSet<String> =
        files.iter().filter(|file| file.written).map(|file| file.path.clone()).collect();
    files.retain(|file| file.written || !written.contains(&file.path));
    files
}
