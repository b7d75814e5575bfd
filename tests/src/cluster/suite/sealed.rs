//! What machines that only keep copies of a job's images can learn from them.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::images::packs;
use super::open_mpi::end;
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::{Background, HOME, failure, until};
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[Case {
    name: "images-encrypted",
    about: "a worker keeps a copy in which nothing of the job can be found; its node dies, and the job ends right on the \
            worker, which has got the key for that long",
    run: encrypted,
}];

/// The secret in both its forms.
struct Marker {
    bytes: [u8; 32],
    digits: String,
}

impl Marker {
    fn new() -> Result<Self, Failure> {
        let mut bytes = [0; 32];
        let mut source = fs::File::open("/dev/urandom").map_err(failure("open /dev/urandom"))?;
        source.read_exact(&mut bytes).map_err(failure("read /dev/urandom"))?;
        let digits = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { bytes, digits })
    }
}

fn encrypted(stage: &Stage) -> Result<(), Failure> {
    // The search must find what it looks for where it is.
    let plain = hold_secret(stage, Some("off"))?;
    let found = [plain.finds(&plain.marker.bytes)?, plain.finds(plain.marker.digits.as_bytes())?];
    check(found.iter().all(|paths| !paths.is_empty()), || {
        format!("what lies there in clear is not found: {found:?}")
    })?;
    let with_file = found[1].iter().any(|path| path.parent().is_some_and(|p| p.ends_with("files")));
    check(with_file, || format!("the job's file is not found: {:?}", found[1]))?;
    check(plain.keys()?.is_empty(), || "there are keys without encryption".into())?;
    drop(plain);

    for how in [None, Some("apart")] {
        let field = hold_secret(stage, how)?;
        for wanted in [&field.marker.bytes[..], field.marker.digits.as_bytes()] {
            let found = field.finds(wanted)?;
            check(found.is_empty(), || format!("{how:?}: the secret is in {found:?}"))?;
        }
        let keys = field.keys()?;
        check(keys.is_empty(), || format!("{how:?}: who keeps copies has keys: {keys:?}"))?;
        if how.is_none() {
            field.go_on_there()?;
        }
    }
    Ok(())
}

/// A job on node1 whose image a worker, node2, keeps, too.
struct Field {
    ckptd: Ckptd,
    marker: Marker,
    _worker: Background,
}

fn hold_secret(stage: &Stage, encryption: Option<&'static str>) -> Result<Field, Failure> {
    let ckptd = stage.cluster_of(Setup { agents: 1, encryption, ..Setup::new(2) })?;
    let token = ckptd.new_token(&["--role", "worker"])?;
    let worker = ckptd.join(2, &token, "node2")?;
    ckptd.wait_for_members(&[1, 2])?;
    let marker = Marker::new()?;
    let file = format!("{HOME}/marker");
    let place = ckptd.node(1).disk().join("home/marker");
    fs::write(&place, format!("{}\n", marker.digits)).map_err(failure("write the marker"))?;
    // The coordinator's log, which whoever keeps copies has, too, tells the command that was given.
    let script = format!("M=$(cat {file}); SECRET=$M exec secret $M {file}");
    let mut job = ckptd.run(1, "secret", &["--interval", "0"], &["bash", "-c", &script])?;
    job.wait_for_output("started", LIMIT)?;
    job.checkpoint()?;
    check(!packs(&ckptd, 2).is_empty(), || "node2 has no copy".into())?;
    drop(job);
    Ok(Field { ckptd, marker, _worker: worker })
}

impl Field {
    /// Files of the worker in which these bytes are, as they are or in a zstd frame.
    fn finds(&self, wanted: &[u8]) -> Result<Vec<PathBuf>, Failure> {
        let mut found = Vec::new();
        for path in files(&self.ckptd.node(2).disk()) {
            // One that is gone meanwhile was none of an image.
            let Ok(bytes) = fs::read(&path) else { continue };
            if has(&bytes, wanted) || in_frames(&bytes, wanted) {
                found.push(path);
            }
        }
        Ok(found)
    }

    /// The worker's files of keys.
    fn keys(&self) -> Result<Vec<PathBuf>, Failure> {
        let mut files = files(&self.ckptd.node(2).disk());
        files.retain(|path| {
            path.file_name().is_some_and(|name| name == "key" || name == "images.key")
        });
        Ok(files)
    }

    /// The job's node dies: the worker gets the key, and keeps it for as long as the job is there.
    fn go_on_there(&self) -> Result<(), Failure> {
        let ckptd = &self.ckptd;
        ckptd.kill_node(1)?;
        let head = ckptd.coordinator_node();
        let mut attached = head.spawn(&["ckptd", "attach", "secret"], &[])?;
        let keys = until("the worker has the key", LIMIT, || {
            let keys = self.keys()?;
            Ok((!keys.is_empty()).then_some(keys))
        });
        let keys = keys.map_err(|failure| ckptd.explain(&failure))?;
        let mode =
            |path: &Path| fs::metadata(path).map(|found| found.permissions().mode() & 0o7777);
        let alone =
            keys.len() == 1 && keys[0].ends_with("key") && mode(&keys[0]).ok() == Some(0o600);
        check(alone, || format!("keys of the worker: {keys:?}"))?;
        end(ckptd)?;
        let status = attached.wait(JOB_LIMIT).map_err(|failure| ckptd.explain(&failure))?;
        let output = attached.output();
        check(status == 0 && output.contains("secret: right"), || {
            attached.explain(&Failure(format!("attach ended with {status}: {output}"))).0
        })?;
        until("the worker has no key any more", LIMIT, || Ok(self.keys()?.is_empty().then_some(())))
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found
}

fn has(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// What begins a zstd frame.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The longest chunk.
const LONGEST: u64 = 4 << 20;

fn in_frames(bytes: &[u8], wanted: &[u8]) -> bool {
    let starts = bytes.windows(MAGIC.len()).enumerate().filter(|(_, start)| *start == MAGIC);
    starts.into_iter().any(|(at, _)| {
        let mut unpacked = Vec::new();
        let decoder = zstd::Decoder::new(&bytes[at..]).map(zstd::Decoder::single_frame);
        // Of what is none, nothing comes, or an error after something.
        let _ = decoder.map(|decoder| decoder.take(LONGEST).read_to_end(&mut unpacked));
        has(&unpacked, wanted)
    })
}
