//! Copies of images that are damaged while nobody looks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::open_mpi::{ANSWER, end, start as start_queens};
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::Ckptd;
use crate::cluster::failure;
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[Case {
    name: "damaged-copies",
    about: "an orted's memory is damaged in every copy, a rank's in one: the job does without the orted",
    run: copies,
}];

/// A copy of an image: the folder of the instance and the checkpoint.
struct Copy {
    folder: PathBuf,
    checkpoint: u64,
}

/// A stretch of a pack.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Chunk {
    pack: String,
    offset: u64,
}

impl Copy {
    /// All copies of images on a node's disk, of the newest checkpoint that each has, by the instance.
    fn find(disk: &Path) -> Result<Vec<(String, Copy)>, Failure> {
        let mut found = Vec::new();
        let mut folders = vec![disk.to_owned()];
        while let Some(folder) = folders.pop() {
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for entry in entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
                let folder = entry.path();
                let name = entry.file_name().to_string_lossy().into_owned();
                if folder.parent().is_some_and(|above| above.ends_with("instances")) {
                    if let Some(checkpoint) = newest(&folder) {
                        found.push((name, Copy { folder, checkpoint }));
                    }
                } else {
                    folders.push(folder);
                }
            }
        }
        Ok(found)
    }

    /// Index files of processes: the program and the chunks. Which program it is the file tells only whoever has the key.
    fn processes(
        &self,
        programs: &BTreeMap<i64, String>,
    ) -> Result<Vec<(String, BTreeSet<Chunk>)>, Failure> {
        let folder = self.folder.join(format!("checkpoints/{}", self.checkpoint));
        let index = |name: &str| -> Result<Value, Failure> {
            let text = fs::read(folder.join(name)).map_err(failure("read an index"))?;
            serde_json::from_slice(&text)
                .map_err(|error| Failure(format!("{name} is no JSON: {error}")))
        };
        let mut processes = Vec::new();
        for (pid, program) in programs {
            // What is left of one that has ended has no index.
            let Ok(index) = index(&format!("process-{pid}.json")) else { continue };
            let mut chunks = BTreeSet::new();
            collect(&index, &mut chunks);
            processes.push((program.clone(), chunks));
        }
        Ok(processes)
    }

    /// Changes a byte in the memory of one process of a program that no other process has; whether there is any.
    fn wound(&self, programs: &BTreeMap<i64, String>, program: &str) -> Result<bool, Failure> {
        let processes = self.processes(programs)?;
        let Some(at) = processes.iter().position(|(name, _)| name == program) else {
            return Ok(false);
        };
        let others = processes.iter().enumerate().filter(|(index, _)| *index != at);
        let others: BTreeSet<&Chunk> = others.flat_map(|(_, (_, chunks))| chunks).collect();
        let own = processes[at].1.iter().find(|chunk| !others.contains(chunk));
        let chunk = own.ok_or_else(|| Failure(format!("{program} has no memory of its own")))?;
        let pack = self.folder.join(format!("packs/{}.tar", chunk.pack));
        let file = fs::OpenOptions::new().read(true).write(true).open(pack);
        let file = file.map_err(failure("open a pack"))?;
        let mut byte = [0];
        file.read_exact_at(&mut byte, chunk.offset).map_err(failure("read a pack"))?;
        byte[0] ^= 0x10;
        file.write_all_at(&byte, chunk.offset).map_err(failure("damage a pack"))?;
        Ok(true)
    }
}

/// The newest committed checkpoint of an instance's folder.
fn newest(folder: &Path) -> Option<u64> {
    let entries = fs::read_dir(folder.join("checkpoints")).ok()?.flatten();
    let committed = entries.filter(|entry| entry.path().join("COMMITTED").exists());
    committed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).max()
}

/// A reference to a chunk is [hash, pack, offset, stored, length, encoding].
fn collect(value: &Value, chunks: &mut BTreeSet<Chunk>) {
    match value {
        Value::Array(all) => {
            if let [Value::String(hash), Value::String(pack), offset, _, _, Value::String(_)] =
                &all[..]
            {
                if let (64, Some(offset)) = (hash.len(), offset.as_u64()) {
                    chunks.insert(Chunk { pack: pack.clone(), offset });
                }
            }
            all.iter().for_each(|one| collect(one, chunks));
        }
        Value::Object(all) => all.values().for_each(|one| collect(one, chunks)),
        _ => {}
    }
}

fn copies(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start_queens(&ckptd, &[], "nqueens")?;
    let stopped = ckptd.ckptd(1, &["stop", "queens", "--checkpoint"])?;
    check(stopped.status == 0, || format!("stop: {}", stopped.stderr))?;
    job.wait(LIMIT)?;
    damage(&ckptd)?;
    let mut again = ckptd.restart(1, "queens")?;
    again.wait_for("the job runs again", LIMIT, |status| {
        (status.state() == "running").then_some(())
    })?;
    end(&ckptd)?;
    again.must_end_with(ANSWER, JOB_LIMIT)?;
    let told = again.errors();
    let expected = ["is damaged: ", "not restored: orted", "the job is over, with status 0"];
    for text in expected {
        check(told.contains(text), || {
            again.explain(&Failure(format!("nothing tells \"{text}\""))).0
        })?;
    }
    // One orted of two: the other came back.
    check(told.matches("not restored: ").count() == 1, || format!("two went missing:\n{told}"))
}

/// The programs of processes, by their numbers, of each instance whose image lies on a node.
fn programs_on(
    ckptd: &Ckptd,
    number: usize,
) -> Result<BTreeMap<String, BTreeMap<i64, String>>, Failure> {
    let shown = ckptd.ckptd(number, &["inspect", "queens", "--json"])?;
    let value: Value = serde_json::from_str(&shown.stdout)
        .map_err(|error| Failure(format!("inspect on node{number}: {error}: {shown:?}")))?;
    let instances = value["instances"].as_array().into_iter().flatten().map(|instance| {
        let processes = instance["graph"]["processes"].as_array().into_iter().flatten();
        let programs = processes.filter_map(|process| {
            Some((process["pid"].as_i64()?, process["comm"].as_str()?.to_owned()))
        });
        (instance["instance"].to_string(), programs.collect())
    });
    Ok(instances.collect())
}

/// Damages an orted in all copies of one image, and a rank in one copy of another.
fn damage(ckptd: &Ckptd) -> Result<(), Failure> {
    let (mut all, mut programs) = (Vec::new(), BTreeMap::new());
    for number in 1..=3 {
        all.extend(Copy::find(&ckptd.node(number).disk())?);
        programs.extend(programs_on(ckptd, number)?);
    }
    let of = |instance: &String| {
        programs.get(instance).ok_or_else(|| Failure(format!("instance {instance} is not shown")))
    };
    let with_orted = |(_, programs): &(&String, &BTreeMap<i64, String>)| {
        programs.values().any(|name| name == "orted")
    };
    let mut instances = programs.iter().filter(with_orted).map(|(instance, _)| instance);
    let (Some(one), Some(other)) = (instances.next(), instances.next()) else {
        return Err(Failure("there are not two images with an orted".to_owned()));
    };
    let mut wounded = 0;
    for (_, copy) in all.iter().filter(|(instance, _)| instance == one) {
        wounded += usize::from(copy.wound(of(one)?, "orted")?);
    }
    check(wounded == 2, || format!("{wounded} copies of an orted instead of 2"))?;
    let copy = all.iter().find(|(instance, _)| instance == other);
    let hit = copy.map_or(Ok(false), |(_, copy)| copy.wound(of(other)?, "nqueens"))?;
    check(hit, || "there is no rank in it".to_owned())
}
