//! Damaged images: refused by name, the older checkpoint offered, and good for a restart.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ckptd_tests::account::Account;
use ckptd_tests::job::Failure;
use serde_json::Value;

use super::worker::{Bench, Worker};

const LIMIT: Duration = Duration::from_secs(30);

/// What is done to checkpoint 2.
pub struct Harm {
    /// Its name in the report.
    pub name: &'static str,
    inflict: fn(&Parts) -> std::io::Result<()>,
    /// Words of which the refusal must have one.
    named: fn(&Parts) -> Vec<String>,
}

/// The files of checkpoint 2 that the first one does not share.
pub struct Parts {
    checkpoint: PathBuf,
    process: PathBuf,
    pack: PathBuf,
    /// Where the bytes of a chunk are in the pack, and how many.
    chunk: (u64, u64),
}

/// Every kind of damage.
pub const HARMS: &[Harm] = &[
    Harm { name: "index-flip", inflict: |p| flip_middle(&p.process), named: process_name },
    Harm { name: "index-cut", inflict: |p| cut(&p.process), named: process_name },
    Harm { name: "index-missing", inflict: |p| fs::remove_file(&p.process), named: process_name },
    Harm { name: "graph-flip", inflict: |p| flip_middle(&p.graph()), named: |_| graph_name() },
    Harm { name: "graph-cut", inflict: |p| cut(&p.graph()), named: |_| graph_name() },
    Harm { name: "mark-flip", inflict: |p| flip_middle(&p.mark()), named: |_| mark_name() },
    Harm { name: "mark-cut", inflict: |p| cut(&p.mark()), named: |_| mark_name() },
    Harm { name: "chunk-flip", inflict: flip_chunk, named: pack_name },
    Harm { name: "chunk-cut", inflict: cut_chunk, named: pack_name },
    Harm { name: "pack-longer", inflict: |p| lengthen(&p.pack), named: pack_name },
    Harm { name: "pack-missing", inflict: |p| fs::remove_file(&p.pack), named: pack_name },
    Harm {
        name: "newer-mark",
        inflict: |p| {
            reseal(&p.mark(), |text| text.replacen("checkpoint 1\n", "checkpoint 99\n", 1))
        },
        named: |_| vec!["newer".into()],
    },
    Harm {
        name: "newer-graph",
        inflict: |p| rewrite_graph(p, |graph| graph["version"] = 99.into()),
        named: |_| vec!["version".into(), "newer".into()],
    },
    Harm {
        name: "other-architecture",
        inflict: |p| rewrite_graph(p, |graph| graph["architecture"] = "s390x".into()),
        named: |_| vec!["s390x".into()],
    },
    Harm {
        name: "other-processor",
        inflict: |p| {
            rewrite_graph(p, |graph| {
                for offer in graph["offers"].as_array_mut().into_iter().flatten() {
                    offer["features"] = serde_json::json!(["fpu", NOWHERE]);
                }
            })
        },
        named: |_| vec![NOWHERE.into()],
    },
];

/// A feature that no processor has.
const NOWHERE: &str = "quaternions";

fn process_name(parts: &Parts) -> Vec<String> {
    parts.process.file_name().map(|n| n.to_string_lossy().into_owned()).into_iter().collect()
}

fn pack_name(parts: &Parts) -> Vec<String> {
    parts.pack.file_stem().map(|n| n.to_string_lossy().into_owned()).into_iter().collect()
}

fn graph_name() -> Vec<String> {
    vec!["graph.json".into()]
}

fn mark_name() -> Vec<String> {
    vec!["commit mark".into(), "COMMITTED".into()]
}

impl Parts {
    fn mark(&self) -> PathBuf {
        self.checkpoint.join("COMMITTED")
    }

    fn graph(&self) -> PathBuf {
        self.checkpoint.join("graph.json")
    }

    /// Finds them in a job's folder.
    fn find(job: &Path) -> std::io::Result<Parts> {
        let old = references(&job.join("checkpoints/1"))?;
        let checkpoint = job.join("checkpoints/2");
        let mut best: Option<(u64, PathBuf, (u64, u64), String)> = None;
        for (process, reference) in references(&checkpoint)? {
            let fresh = !old.iter().any(|(_, other)| other.0 == reference.0);
            if fresh && best.as_ref().is_none_or(|b| b.0 < reference.2) {
                let place = (reference.1, reference.2);
                best = Some((reference.2, process, place, reference.0));
            }
        }
        let none = || std::io::Error::other("checkpoint 2 shares every chunk with checkpoint 1");
        let (_, process, chunk, pack) = best.ok_or_else(none)?;
        let pack = job.join("packs").join(format!("{pack}.tar"));
        Ok(Parts { checkpoint, process, pack, chunk })
    }
}

/// The file that refers to a chunk; the chunk's pack, offset and length.
type Reference = (PathBuf, (String, u64, u64));

/// All references to chunks of a checkpoint's processes: file, and (pack, offset, stored length).
fn references(checkpoint: &Path) -> std::io::Result<Vec<Reference>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(checkpoint)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".json") && name != "graph.json" {
            let value: Value = serde_json::from_slice(&fs::read(&path)?)?;
            let mut references = Vec::new();
            collect(&value, &mut references);
            found.extend(references.into_iter().map(|r| (path.clone(), r)));
        }
    }
    Ok(found)
}

/// A reference is `[hash, pack, offset, stored, length, "p" or "z"]`.
fn collect(value: &Value, found: &mut Vec<(String, u64, u64)>) {
    match value {
        Value::Array(items) => {
            if let [Value::String(_), Value::String(pack), offset, stored, _, Value::String(_)] =
                items.as_slice()
            {
                if let (Some(offset), Some(stored)) = (offset.as_u64(), stored.as_u64()) {
                    found.push((pack.clone(), offset, stored));
                    return;
                }
            }
            items.iter().for_each(|item| collect(item, found));
        }
        Value::Object(members) => members.values().for_each(|member| collect(member, found)),
        _ => {}
    }
}

fn change(path: &Path, edit: impl FnOnce(&mut Vec<u8>)) -> std::io::Result<()> {
    let mut bytes = fs::read(path)?;
    edit(&mut bytes);
    fs::write(path, bytes)
}

fn flip_middle(path: &Path) -> std::io::Result<()> {
    change(path, |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
    })
}

fn cut(path: &Path) -> std::io::Result<()> {
    change(path, |bytes| bytes.truncate(bytes.len() / 2))
}

fn lengthen(path: &Path) -> std::io::Result<()> {
    change(path, |bytes| bytes.extend_from_slice(&[0; 512]))
}

fn flip_chunk(parts: &Parts) -> std::io::Result<()> {
    let (offset, stored) = parts.chunk;
    change(&parts.pack, |bytes| bytes[(offset + stored / 2) as usize] ^= 1)
}

fn cut_chunk(parts: &Parts) -> std::io::Result<()> {
    let (offset, stored) = parts.chunk;
    change(&parts.pack, |bytes| bytes.truncate((offset + stored / 2) as usize))
}

/// Changes the text of a commit mark and gives it a right checksum again.
fn reseal(mark: &Path, edit: impl FnOnce(&str) -> String) -> std::io::Result<()> {
    let text = fs::read_to_string(mark)?;
    let (body, _) =
        text.rsplit_once("blake3 ").ok_or_else(|| std::io::Error::other("no trailer"))?;
    let body = edit(body);
    let hash = blake3::hash(body.as_bytes()).to_hex();
    fs::write(mark, format!("{body}blake3 {hash}\n"))
}

/// Changes graph.json, and makes the commit mark fit it.
fn rewrite_graph(parts: &Parts, edit: impl FnOnce(&mut Value)) -> std::io::Result<()> {
    let mut graph: Value = serde_json::from_slice(&fs::read(parts.graph())?)?;
    edit(&mut graph);
    let bytes = serde_json::to_vec(&graph)?;
    fs::write(parts.graph(), &bytes)?;
    reseal(&parts.mark(), |body| {
        let lines: Vec<&str> = body.lines().collect();
        let mut mark: Value = serde_json::from_str(lines[1]).unwrap_or_default();
        for file in mark["files"].as_array_mut().into_iter().flatten() {
            if file["name"] == "graph.json" {
                file["length"] = bytes.len().into();
                file["hash"] = blake3::hash(&bytes).to_hex().to_string().into();
            }
        }
        format!("{}\n{mark}\n", lines[0])
    })
}

/// Damage that shows only when pages are read.
pub fn of_chunks() -> impl Iterator<Item = &'static Harm> {
    HARMS.iter().filter(|harm| harm.name == "chunk-flip")
}

/// A job with two checkpoints that was killed, and a copy of its state to start every case from.
pub struct Killed {
    worker: Worker,
    copy: PathBuf,
}

impl Killed {
    /// Runs, checkpoints twice and kills.
    pub fn new(bench: &Bench, account: Account) -> Result<Killed, Failure> {
        let mut worker = bench.worker("images", account)?;
        worker.run(&["--interval", "0"], 4, false)?;
        for expected in [1, 2] {
            // The job rewrites memory all the time: what it has done by now matters to nobody, only that it is something.
            std::thread::sleep(Duration::from_millis(100));
            let number = worker.job.must_checkpoint()?;
            if number != expected {
                return Err(Failure(format!("checkpoint {number} where {expected} was due")));
            }
        }
        worker.job.kill()?;
        let copy = bench.root().join("images.copy");
        copy_folder(&worker.job.state(), &copy)?;
        Ok(Killed { worker, copy })
    }

    fn put_back(&self) -> Result<(), Failure> {
        let state = self.worker.job.state();
        fs::remove_dir_all(&state).map_err(|e| Failure(format!("failed to remove: {e}")))?;
        copy_folder(&self.copy, &state)
    }

    /// Harms checkpoint 2, and expects its refusal and a right end from checkpoint 1.
    pub fn suffer(&mut self, harm: &Harm) -> Result<(), Failure> {
        self.put_back()?;
        let failed = |e| Failure(format!("failed to do the damage: {e}"));
        let parts = Parts::find(&self.worker.job.folder()?).map_err(failed)?;
        (harm.inflict)(&parts).map_err(failed)?;
        self.expect_refusal(&(harm.named)(&parts))?;
        self.worker.must_be_whole(&[1])?;
        let whole = self.worker.verdicts()?.iter().any(|(n, v)| *n == 2 && v == "whole");
        // What the engine alone understands is whole to the store.
        if whole && !["newer-graph", "other-architecture", "other-processor"].contains(&harm.name) {
            return Err(Failure("verify finds nothing wrong with checkpoint 2".into()));
        }
        self.worker.job.restart(&["--checkpoint", "1"])?;
        self.worker.job.wait_until_up()?;
        let next = self.worker.job.must_checkpoint()?;
        if next <= 2 {
            return Err(Failure(format!("the number {next} was given again")));
        }
        self.worker.finish()
    }

    /// Harms checkpoint 2, whose pages are read while the job runs already; expects the job's end with one line, and a right
    /// end from checkpoint 1.
    pub fn suffer_on_demand(&mut self, harm: Option<&Harm>) -> Result<(), Failure> {
        self.put_back()?;
        let failed = |e| Failure(format!("failed to do the damage: {e}"));
        let parts = Parts::find(&self.worker.job.folder()?).map_err(failed)?;
        self.worker.job.set("CKPTD_PAGES", "demand");
        let names = match harm {
            Some(harm) => {
                (harm.inflict)(&parts).map_err(failed)?;
                (harm.named)(&parts)
            }
            None => vec!["the process that fills the job's memory has ended".to_owned()],
        };
        self.worker.job.set("CKPTD_FAULT", if harm.is_none() { "fill" } else { "" });
        self.worker.job.restart(&[])?;
        let status = self.worker.job.wait(LIMIT)?;
        self.worker.job.set("CKPTD_FAULT", "");
        let errors = self.worker.job.errors();
        let told: Vec<&str> =
            errors.lines().filter(|line| line.starts_with("ckptd: failed to ")).collect();
        let is_right = matches!(told.as_slice(), [line]
            if line.contains("keep ") && names.iter().any(|name| line.contains(name.as_str())));
        if status.code() != Some(125) || !is_right {
            return Err(Failure(format!("{status}; not one line with {names:?}: {errors:?}")));
        }
        if !self.worker.job.processes().is_empty() {
            return Err(Failure(format!("processes are left\n{}", self.worker.job.dump())));
        }
        self.worker.job.restart(&["--checkpoint", "1"])?;
        self.worker.job.wait_until_up()?;
        self.worker.job.must_checkpoint()?;
        self.worker.finish()
    }

    fn expect_refusal(&mut self, names: &[String]) -> Result<(), Failure> {
        let job = &mut self.worker.job;
        let (status, stdout, stderr) =
            job.ckptd(&["verify", &format!("{}@2", job.name()), "--rehearse"])?;
        let told = stderr.starts_with("ckptd: failed to rehearse the restart of ")
            && names.iter().any(|name| stderr.contains(name.as_str()));
        if status.code() != Some(125) || !told {
            return Err(Failure(format!(
                "{status}; the rehearsal does not tell of {names:?}: {stdout:?} {stderr:?}"
            )));
        }
        job.restart(&[])?;
        let status = job.wait(LIMIT)?;
        let errors = job.errors();
        let offer = format!("ckptd restart {} --checkpoint 1", job.name());
        let right = status.code() == Some(125)
            && errors.lines().count() == 1
            && errors.starts_with("ckptd: failed to restart ")
            && errors.contains(&offer)
            && names.iter().any(|name| errors.contains(name.as_str()));
        if right {
            return Ok(());
        }
        Err(Failure(format!("{status}; not one line with {names:?} and \"{offer}\": {errors:?}")))
    }

    /// Without its commit mark the newest checkpoint was never finished: the one before it serves.
    pub fn lack_the_mark(&mut self) -> Result<(), Failure> {
        self.put_back()?;
        let mark = self.worker.job.folder()?.join("checkpoints/2/COMMITTED");
        fs::remove_file(mark).map_err(|e| Failure(format!("failed to do the damage: {e}")))?;
        let unfinished = ("unfinished".to_owned(), 2);
        if !self.worker.verdicts()?.into_iter().any(|(n, v)| (v, n) == unfinished) {
            return Err(Failure("verify does not call checkpoint 2 unfinished".into()));
        }
        self.worker.job.restart(&[])?;
        self.worker.job.wait_until_up()?;
        let (from, errors) = (self.worker.restored_from()?, self.worker.job.errors());
        if from != Some(1) || !errors.contains("checkpoint 2 was not finished") {
            return Err(Failure(format!("restarted from {from:?}, and said {errors:?}")));
        }
        self.worker.finish()
    }

    /// Files that are not ckptd's, wherever they may lie, are in nobody's way.
    pub fn bear_strangers(&mut self) -> Result<(), Failure> {
        self.put_back()?;
        let job = self.worker.job.folder()?;
        for place in ["", "checkpoints", "checkpoints/2", "packs"] {
            let folder = job.join(place);
            let strange = |name: &str| fs::write(folder.join(name), b"not ckptd's\n");
            strange("README")
                .and_then(|()| strange(".hidden"))
                .and_then(|()| strange("stranger.tar"))
                .and_then(|()| fs::create_dir(folder.join("a folder")))
                .map_err(|e| Failure(format!("failed to make strange files: {e}")))?;
        }
        let _ = fs::write(self.worker.job.state().join("stray"), b"not a job\n");
        self.worker.must_be_whole(&[1, 2])?;
        self.worker.job.restart(&[])?;
        self.worker.job.wait_until_up()?;
        self.worker.job.must_checkpoint()?;
        self.worker.finish()
    }
}

fn copy_folder(from: &Path, to: &Path) -> Result<(), Failure> {
    let status = Command::new("cp").arg("-a").arg("--").arg(from).arg(to).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        other => Err(Failure(format!("failed to copy {}: {other:?}", from.display()))),
    }
}
