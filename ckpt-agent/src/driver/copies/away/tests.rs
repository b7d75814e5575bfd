use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ckpt_store::{
    Checkpoint, CheckpointWriter, Disk, SealedCheckpoint, StoreError, WriterOptions, keep_key,
};
use protocol::cluster::image_key::{Encryption, JobKey};
use protocol::cluster::peer::{ImageFile, PeerMessage};
use protocol::task;
use serde_json::json;
use tempfile::TempDir;

use super::super::{CopyError, digest, own_files, take_stream};
use super::{Away, AwayDisk, Way};
use crate::driver::copies::carry;
use crate::driver::link::{Link, PeerLink};

const CHECKPOINT: u64 = 3;

/// Two instance's folders, and a file of the job.
struct Rig {
    here: TempDir,
    there: TempDir,
    data: TempDir,
}

impl Rig {
    fn new() -> Self {
        let new = || tempfile::tempdir().unwrap();
        let rig = Self { here: new(), there: new(), data: new() };
        std::fs::write(rig.file(), vec![7; 600_000]).unwrap();
        rig
    }

    fn file(&self) -> PathBuf {
        self.data.path().join("data")
    }

    fn away(&self, link: Option<PeerLink>) -> Arc<Away> {
        Arc::new(Away::new(Way::Made(Mutex::new(link)), self.here.path(), CHECKPOINT))
    }

    /// The other side, until it has done.
    fn takes(&self, mut link: PeerLink) -> tokio::task::JoinHandle<Result<(), CopyError>> {
        let folder = self.there.path().to_owned();
        task::spawn(async move {
            let arriving = folder.join(".arriving");
            take_stream(&mut link, &arriving, &folder, CHECKPOINT, CHECKPOINT).await
        })
    }

    /// A checkpoint of noise, with a file of the job that it only names.
    async fn write(&self, away: &Arc<Away>) -> Result<SealedCheckpoint, StoreError> {
        let disk: Arc<dyn Disk> = Arc::new(AwayDisk(away.clone()));
        let (folder, file) = (self.here.path().to_owned(), self.file());
        let written = task::spawn_blocking(move || {
            let options = WriterOptions { disk, reuse_from: Some(1), ..WriterOptions::default() };
            let writer = CheckpointWriter::create_with(&folder, CHECKPOINT, &options)?;
            for tag in 0..20_u64 {
                let mut noise = vec![0; 1_000_000];
                let mut hasher = blake3::Hasher::new();
                hasher.update(&tag.to_le_bytes()).finalize_xof().fill(&mut noise);
                writer.submit(tag, noise)?;
            }
            let (mut index, chunks) = writer.finish_chunks()?;
            let refs: Vec<_> = chunks.iter().map(|(_, chunk)| chunk).collect();
            index.put_json("graph.json", &graph(&file, &json!(refs)))?;
            index.seal()
        });
        written.await.unwrap()
    }

    /// What of the image lies here.
    fn left_here(&self) -> Vec<PathBuf> {
        let folders = ["checkpoints", "packs", "files"].map(|part| self.here.path().join(part));
        let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok());
        entries.flatten().map(|entry| entry.unwrap().path()).collect()
    }
}

fn graph(file: &Path, chunks: &serde_json::Value) -> serde_json::Value {
    let found = std::fs::metadata(file).unwrap();
    let modified_ns = found.mtime() * 1_000_000_000 + found.mtime_nsec();
    json!({
        "version": 1, "architecture": "x86_64", "page_size": 4096,
        "clocks": {"monotonic_ns": 0, "boottime_ns": 0, "realtime_ns": 0}, "vdso": "",
        "processes": [], "inodes": [], "blobs": [], "chunks": chunks,
        "files": [{"flags": 0, "object": {
            "kind": "regular", "content": "by_path", "path": file, "offset": 0,
            "size": found.len(), "modified_ns": modified_ns,
        }}],
    })
}

async fn goes_whole(rig: &Rig) -> String {
    let (near, far) = Link::pair();
    let (away, taking) = (rig.away(Some(near)), rig.takes(far));
    let sealed = rig.write(&away).await.unwrap();
    let finish = move || away.finish(None, true);
    let (node, facts) = task::blocking(finish).await.unwrap();
    taking.await.unwrap().unwrap();
    assert_eq!(node.to_string(), "node2");
    assert_eq!(facts.at_stake, Vec::<String>::new());
    sealed.commit(&()).unwrap();
    assert_eq!(rig.left_here(), Vec::<PathBuf>::new());
    ckpt_store::commit_copy(rig.there.path(), CHECKPOINT, &()).unwrap();
    facts.digest
}

#[tokio::test]
async fn an_image_is_whole_at_a_partner_and_nothing_of_it_is_here() {
    let rig = Rig::new();
    let told = goes_whole(&rig).await;
    let there = rig.there.path();
    assert_eq!(digest(there, CHECKPOINT).unwrap(), told);
    ckpt_store::verify(there, CHECKPOINT, |_| {}).unwrap();
    assert!(Checkpoint::open(there, CHECKPOINT).unwrap().mark().totals.bytes >= 20_000_000);
    std::fs::remove_file(rig.file()).unwrap();
    own_files::place(there, CHECKPOINT, None);
    assert_eq!(std::fs::read(rig.file()).unwrap(), vec![7; 600_000]);
}

#[tokio::test]
async fn with_a_key_it_is_encrypted_and_checked_there_without_it() {
    let rig = Rig::new();
    keep_key(rig.here.path(), &JobKey::new([5; 32]), Encryption::Shared).unwrap();
    let told = goes_whole(&rig).await;
    let there = rig.there.path();
    assert_eq!(digest(there, CHECKPOINT).unwrap(), told);
    assert!(Checkpoint::open(there, CHECKPOINT).unwrap().mark().sealed);
    let read = Checkpoint::open(there, CHECKPOINT).unwrap();
    assert!(read.read_json::<serde_json::Value>("graph.json").is_err());
    keep_key(there, &JobKey::new([5; 32]), Encryption::Shared).unwrap();
    read.read_json::<serde_json::Value>("graph.json").unwrap();
}

#[tokio::test]
async fn of_an_image_that_is_given_up_nothing_is_there() {
    let rig = Rig::new();
    let (near, far) = Link::pair();
    let (away, taking) = (rig.away(Some(near)), rig.takes(far));
    let sealed = rig.write(&away).await.unwrap();
    drop(sealed);
    assert!(matches!(taking.await.unwrap(), Err(CopyError::Gone)));
    assert!(!rig.there.path().join("packs").exists());
    assert_eq!(rig.left_here(), Vec::<PathBuf>::new());
    let finish = move || away.finish(None, true);
    assert!(matches!(task::blocking(finish).await, Err(CopyError::Gone)));
}

#[tokio::test]
async fn where_nobody_takes_it_the_write_fails_and_says_so() {
    let rig = Rig::new();
    let away = rig.away(None);
    let failed = rig.write(&away).await.err().unwrap();
    assert!(matches!(failed, StoreError::NotTaken { .. }), "{failed}");
    assert!(failed.to_string().contains("could not go elsewhere"), "{failed}");
    assert_eq!(rig.left_here(), Vec::<PathBuf>::new());
}

/// What comes of such messages.
async fn answer(messages: Vec<(PeerMessage, Vec<u8>)>) -> CopyError {
    let rig = Rig::new();
    let (mut near, far) = Link::pair();
    let taking = rig.takes(far);
    near.from.recv().await.unwrap();
    for (message, body) in messages {
        // The other side may have gone by then.
        let _ = carry::send(&near, message, body).await;
    }
    let refused = taking.await.unwrap().unwrap_err();
    let parts = std::fs::read_dir(rig.there.path()).unwrap().map(|entry| entry.unwrap().path());
    assert!(parts.into_iter().all(|path| path.ends_with(".arriving")), "something is left");
    refused
}

#[tokio::test]
async fn nothing_is_believed_of_what_comes() {
    let transfer = CHECKPOINT;
    let piece = |path: &str, offset: u64| {
        (PeerMessage::Piece { transfer, path: path.to_owned(), offset }, vec![1; 10])
    };
    let sent = || (PeerMessage::Sent { transfer }, Vec::new());
    let pack = "packs/0123456789ab.tar";
    for name in ["../x", "checkpoints/3/COMMITTED", "checkpoints/4/graph.json", "/etc/x", ""] {
        let refused = answer(vec![piece(name, 0)]).await;
        assert!(matches!(refused, CopyError::NotOfImage(_)), "{name}: {refused}");
    }
    let out_of_place = [
        vec![piece(pack, 1)],
        vec![piece(pack, 0), piece(pack, 5)],
        vec![piece(pack, 0), piece("checkpoints/3/graph.json", 0), piece(pack, 10)],
        vec![(piece(pack, 0).0, Vec::new())],
    ];
    for messages in out_of_place {
        let refused = answer(messages).await;
        assert!(matches!(refused, CopyError::OutOfPlace(_)), "{refused}");
    }
    let refused = answer(vec![piece(pack, 0), sent()]).await;
    assert!(matches!(refused, CopyError::NotWhole(_)), "{refused}");
    let content = format!("files/{}", "0a".repeat(32));
    let refused = answer(vec![piece(&content, 0), sent()]).await;
    assert!(matches!(refused, CopyError::Content(_)), "{refused}");
    let files = vec![ImageFile { path: pack.to_owned(), length: 10 }];
    let refused = answer(vec![(PeerMessage::Listing { transfer, files }, Vec::new())]).await;
    assert!(matches!(refused, CopyError::Unwanted(_)), "{refused}");
}
