//! Two stores, tied by a channel.

use std::collections::BTreeMap;
use std::path::Path;

use protocol::agent::{CommitRecord, ImageSummary, InstanceId};
use protocol::cluster::peer::{ImageFile, PeerMessage};

use super::super::link::{Link, PeerLink};
use super::arrival::{Arrival, Packs};
use super::digest::digest;
use super::{
    CopyError, Offered, Wanted, complete, files, give, harm, is_here, mark, must_be, pull_image,
    take,
};
use ckpt_store::{Checkpoint, CheckpointWriter, ChunkRef, SealedCheckpoint};

/// A checkpoint with some chunks, sealed.
fn sealed(folder: &Path, number: u64) -> SealedCheckpoint {
    let writer = CheckpointWriter::create(folder, number).unwrap();
    for tag in 0..20_u64 {
        let bytes = (0..100_000).map(|i: u64| ((i * (tag + 3)) >> 5) as u8).collect();
        writer.submit(tag, bytes).unwrap();
    }
    let (mut index, chunks) = writer.finish_chunks().unwrap();
    let refs: Vec<_> = chunks.iter().map(|(_, chunk)| chunk).collect();
    let (graph, process) = refs.split_at(10);
    index.put_json("graph.json", &serde_json::json!({ "chunks": graph })).unwrap();
    let process = serde_json::json!({ "pid": 7, "chunks": process });
    index.put_json("process-7.json", &process).unwrap();
    index.seal().unwrap()
}

fn record(checkpoint: u64) -> CommitRecord {
    CommitRecord {
        format: CommitRecord::FORMAT,
        job: "job".to_owned(),
        checkpoint,
        restored_from: None,
        taken_at_ms: 1,
        committed_at_ms: 2,
        pause_us: 3,
        log_length: 4,
        copies: 2,
        degraded: false,
        suspended: false,
        summary: ImageSummary::default(),
        agents: vec![InstanceId(1)].into(),
    }
}

async fn offer_over(mut link: PeerLink, folder: &Path, number: u64) -> Result<(), CopyError> {
    let all = files::list(folder, number).await?;
    let wanted = match link.from.recv().await.unwrap().0 {
        PeerMessage::Want { paths, .. } => paths,
        PeerMessage::TransferFailed { reason, .. } => return Err(CopyError::Told(reason)),
        other => panic!("{other:?}"),
    };
    super::carry::push(&link, folder, &all, &wanted, 1).await?;
    match link.from.recv().await.unwrap().0 {
        PeerMessage::Stored { .. } => Ok(()),
        PeerMessage::TransferFailed { reason, .. } => Err(CopyError::Told(reason)),
        other => panic!("{other:?}"),
    }
}

async fn copy(from: &Path, to: &Path, number: u64) -> Result<(), CopyError> {
    let (near, mut far) = Link::pair();
    let all = files::list(from, number).await.unwrap();
    let arriving = tempfile::tempdir_in(to).unwrap();
    let offered = Offered { checkpoint: number, files: all, transfer: 1 };
    let taking = async { take(&mut far, arriving.path(), to, offered).await };
    let (offered, taken) = tokio::join!(offer_over(near, from, number), taking);
    assert_eq!(offered.is_ok(), taken.is_ok());
    taken
}

#[tokio::test]
async fn an_image_is_copied_before_it_is_committed_and_committed_in_both_places() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let image = sealed(one.path(), 3);
    copy(one.path(), two.path(), 3).await.unwrap();
    assert!(Checkpoint::open(two.path(), 3).is_err());
    image.commit(&record(3)).unwrap();
    let (near, mut far) = Link::pair();
    mark(&near, two.path().to_owned(), record(3)).await.unwrap();
    assert!(matches!(far.from.recv().await.unwrap().0, PeerMessage::Stored { .. }));
    for place in [one.path(), two.path()] {
        ckpt_store::verify(place, 3, |_| {}).unwrap();
        let checkpoint = Checkpoint::open(place, 3).unwrap();
        assert_eq!(checkpoint.mark().meta, serde_json::to_value(record(3)).unwrap());
    }
    use std::os::unix::fs::PermissionsExt;
    for file in files::list(two.path(), 3).await.unwrap() {
        let mode = std::fs::metadata(two.path().join(&file.path)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.path);
    }
}

#[tokio::test]
async fn a_damaged_copy_is_not_stored() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let _image = sealed(one.path(), 3);
    let pack = std::fs::read_dir(one.path().join("packs")).unwrap().next().unwrap().unwrap();
    let mut bytes = std::fs::read(pack.path()).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(pack.path(), bytes).unwrap();
    let reason = copy(one.path(), two.path(), 3).await.unwrap_err().to_string();
    assert!(reason.contains("not whole"), "{reason}");
}

/// What comes of an offer of such files, each of zeros, and which of them are wanted.
async fn offer_zeros(
    to: &Path,
    number: u64,
    files: Vec<ImageFile>,
) -> (Result<(), CopyError>, Vec<String>) {
    let (mut near, mut far) = Link::pair();
    let lengths: BTreeMap<_, _> =
        files.iter().map(|file| (file.path.clone(), file.length)).collect();
    let arriving = tempfile::tempdir_in(to).unwrap();
    let offered = Offered { checkpoint: number, files, transfer: 1 };
    let taking = async { take(&mut far, arriving.path(), to, offered).await };
    let offering = async {
        let PeerMessage::Want { paths, .. } = near.from.recv().await.unwrap().0 else {
            return Vec::new();
        };
        for path in &paths {
            let piece = PeerMessage::Piece { transfer: 1, path: path.clone(), offset: 0 };
            super::carry::send(&near, piece, vec![0; lengths[path] as usize]).await.unwrap();
        }
        super::carry::send(&near, PeerMessage::Sent { transfer: 1 }, Vec::new()).await.unwrap();
        near.from.recv().await.unwrap();
        paths
    };
    tokio::join!(taking, offering)
}

#[tokio::test]
async fn nothing_that_is_committed_is_replaced_by_an_offer() {
    let here = tempfile::tempdir().unwrap();
    sealed(here.path(), 3).commit(&record(3)).unwrap();
    let folder = here.path();
    let whole = || ckpt_store::verify(folder, 3, |_| {}).unwrap();
    let mut files = files::list(folder, 3).await.unwrap();
    files.retain(|file| !file.path.ends_with("COMMITTED"));
    // All of it is here, whatever it would be.
    let (taken, wanted) = offer_zeros(folder, 3, files.clone()).await;
    taken.unwrap();
    assert!(wanted.is_empty());
    whole();
    // Other lengths, under its number and another one.
    for (number, name) in [(3, "packs/"), (4, "packs/"), (3, "graph.json")] {
        let mut file = files.iter().find(|file| file.path.contains(name)).unwrap().clone();
        file.length = 7;
        let (taken, _) = offer_zeros(folder, number, vec![file.clone()]).await;
        assert!(matches!(taken, Err(CopyError::Differs(path)) if path == file.path));
        whole();
    }
    let more = ImageFile { path: "checkpoints/3/process-8.json".into(), length: 1 };
    let (taken, _) = offer_zeros(folder, 3, vec![more]).await;
    assert!(matches!(taken, Err(CopyError::Differs(_))));
    whole();
}

#[tokio::test]
async fn a_file_of_the_job_is_not_replaced_by_what_is_not_its_content() {
    let here = tempfile::tempdir().unwrap();
    let path = format!("files/{}", blake3::hash(b"data").to_hex());
    std::fs::create_dir(here.path().join("files")).unwrap();
    std::fs::write(here.path().join(&path), b"data").unwrap();
    let offered = vec![ImageFile { path: path.clone(), length: 5 }];
    let (taken, wanted) = offer_zeros(here.path(), 3, offered).await;
    assert!(matches!(taken, Err(CopyError::Content(refused)) if refused == path));
    assert_eq!(wanted, std::slice::from_ref(&path));
    assert_eq!(std::fs::read(here.path().join(&path)).unwrap(), b"data");
}

#[tokio::test]
async fn an_image_is_fetched_from_a_holder_and_is_whole_even_without_its_mark() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let _image = sealed(one.path(), 5);
    assert!(is_here(one.path(), 5).await && !is_here(two.path(), 5).await);
    let (mut near, mut far) = Link::pair();
    let giving = async { give(&mut far, one.path(), 5, 1).await };
    let fetching = async {
        let all = match near.from.recv().await.unwrap().0 {
            PeerMessage::Listing { files, .. } => files,
            other => panic!("{other:?}"),
        };
        files::check(&all, 5, true).unwrap();
        let lacking = files::lacking(two.path(), &all).await.unwrap();
        let arriving = two.path().join("arriving");
        let arrival = Arrival::new(&arriving, two.path(), 5, files::size(&lacking)).await.unwrap();
        let paths = lacking.iter().map(|file| file.path.clone()).collect();
        super::carry::send(&near, PeerMessage::Want { transfer: 1, paths }, vec![]).await.unwrap();
        super::carry::pull(&mut near, arrival.come(), &lacking).await?;
        assert!(!two.path().join("packs").exists(), "named before it is checked");
        arrival.settle(lacking, Packs::Keep).await
    };
    let (given, fetched) = tokio::join!(giving, fetching);
    given.unwrap();
    fetched.unwrap();
    complete(two.path(), 5).await.unwrap();
    ckpt_store::verify(two.path(), 5, |_| {}).unwrap();
}

/// Changes a byte of a process's memory in the image at checkpoint 5, or of the graph's.
fn damage(folder: &Path, index: &str) {
    let image = Checkpoint::open(folder, 5).unwrap();
    let index: serde_json::Value = image.read_json(index).unwrap();
    let chunk: ChunkRef = serde_json::from_value(index["chunks"][3].clone()).unwrap();
    let pack = folder.join(format!("packs/{}.tar", chunk.pack));
    let mut bytes = std::fs::read(&pack).unwrap();
    bytes[chunk.offset as usize + 7] ^= 1;
    std::fs::write(&pack, bytes).unwrap();
}

/// Has an image fetched: whose memory is damaged, None of those who are not wanted, and whether all of it came.
async fn fetched(
    from: &Path,
    to: &Path,
    without: &[i32],
    all: bool,
) -> Result<(Option<Vec<i32>>, bool), CopyError> {
    fetched_of("", from, to, without, all).await
}

/// The same of the image with that digest.
async fn fetched_of(
    digest: &str,
    from: &Path,
    to: &Path,
    without: &[i32],
    all: bool,
) -> Result<(Option<Vec<i32>>, bool), CopyError> {
    let (near, mut far) = Link::pair();
    let without = without.iter().copied().collect();
    let (instance, checkpoint) = (InstanceId(1), 5);
    let job = "job";
    let arriving = &to.join("arriving");
    let folder = to;
    let wanted = Wanted { job, instance, checkpoint, digest, folder, arriving, without: &without };
    let giving = async {
        assert!(matches!(far.from.recv().await.unwrap().0, PeerMessage::Fetch { .. }));
        give(&mut far, from, checkpoint, 5).await
    };
    let (_, pulled) = tokio::join!(giving, pull_image(near, wanted, None, all));
    let pulled = pulled?;
    let processes = pulled.harm.map(|harm| harm.processes.into_iter().collect());
    Ok((processes, pulled.all))
}

#[tokio::test]
async fn a_copy_in_which_only_a_departed_process_is_damaged_will_do() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    sealed(one.path(), 5).commit(&record(5)).unwrap();
    assert_eq!(harm(one.path(), 5).await, None);
    damage(one.path(), "process-7.json");
    assert_eq!(fetched(one.path(), two.path(), &[], false).await.unwrap(), (Some(vec![7]), true));
    assert!(!two.path().join("checkpoints").exists(), "what is damaged got a name");
    assert_eq!(fetched(one.path(), two.path(), &[7], false).await.unwrap(), (None, true));
    damage(one.path(), "graph.json");
    assert_eq!(fetched(one.path(), two.path(), &[7], true).await.unwrap().0, Some(vec![7]));
    assert!(harm(one.path(), 5).await.unwrap().useless);
    // Nothing at all is to be had of one whose index is gone.
    std::fs::remove_file(one.path().join("checkpoints/5/graph.json")).unwrap();
    assert_eq!(fetched(one.path(), two.path(), &[7], true).await.unwrap(), (Some(vec![]), true));
}

#[tokio::test]
async fn what_is_damaged_here_comes_again() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    sealed(one.path(), 5).commit(&record(5)).unwrap();
    assert_eq!(fetched(one.path(), two.path(), &[], false).await.unwrap(), (None, true));
    damage(two.path(), "process-7.json");
    assert_eq!(fetched(one.path(), two.path(), &[], false).await.unwrap(), (Some(vec![7]), false));
    assert_eq!(fetched(one.path(), two.path(), &[], true).await.unwrap(), (None, true));
    assert_eq!(harm(two.path(), 5).await, None);
}

#[tokio::test]
async fn pieces_out_of_place_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = |length| ImageFile { path: "packs/00000000000a.tar".to_owned(), length };
    let cases: [&[(u64, usize)]; 4] = [&[(1, 4)], &[(0, 11)], &[(0, 5), (4, 5)], &[(0, 5)]];
    for case in cases {
        let (mut near, far) = Link::pair();
        let lacking = files::lacking(folder.path(), &[file(10)]).await.unwrap();
        let arriving = folder.path().join("arriving");
        let arrival = Arrival::new(&arriving, folder.path(), 3, 10).await.unwrap();
        for (offset, length) in case {
            let path = "packs/00000000000a.tar".to_owned();
            let piece = PeerMessage::Piece { transfer: 1, path, offset: *offset };
            far.to.send((piece, vec![1; *length])).await.unwrap();
        }
        far.to.send((PeerMessage::Sent { transfer: 1 }, vec![])).await.unwrap();
        let pulled = super::carry::pull(&mut near, arrival.come(), &lacking).await;
        assert!(pulled.is_err(), "{case:?}");
        assert!(!folder.path().join("packs/00000000000a.tar").exists());
    }
}

/// Whoever keeps a copy can write another image, with a mark and hashes of its own.
#[tokio::test]
async fn a_copy_that_is_whole_and_not_the_committed_one_is_refused() {
    let [one, other, two, three] = [(); 4].map(|()| tempfile::tempdir().unwrap());
    let image = sealed(one.path(), 5);
    let committed = digest(one.path(), 5).unwrap();
    image.commit(&record(5)).unwrap();
    assert_eq!(digest(one.path(), 5).unwrap(), committed, "the mark changes nothing");
    sealed(other.path(), 5).commit(&record(5)).unwrap();
    let folder = other.path().join("checkpoints/5");
    let mut graph = std::fs::read(folder.join("graph.json")).unwrap();
    graph.push(b' ');
    std::fs::write(folder.join("graph.json"), graph).unwrap();
    std::fs::remove_file(folder.join("COMMITTED")).unwrap();
    complete(other.path(), 5).await.unwrap();
    assert_eq!(fetched(other.path(), three.path(), &[], false).await.unwrap().0, None);
    must_be(three.path(), 5, "").await.unwrap();
    let reason = must_be(three.path(), 5, &committed).await.unwrap_err().to_string();
    assert!(reason.contains("not the one that was committed"), "{reason}");
    let refused = fetched_of(&committed, other.path(), two.path(), &[], false).await.unwrap();
    assert_eq!(refused.0, Some(vec![]));
    assert!(!is_here(two.path(), 5).await, "what was refused is left");
    let taken = fetched_of(&committed, one.path(), two.path(), &[], false).await.unwrap();
    assert_eq!(taken.0, None);
    must_be(two.path(), 5, &committed).await.unwrap();
}

#[tokio::test]
async fn index_files_of_an_older_attempt_do_not_count() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let _image = sealed(one.path(), 5);
    let left = two.path().join("checkpoints/5");
    std::fs::create_dir_all(&left).unwrap();
    std::fs::write(left.join("process-99.json"), "{}").unwrap();
    copy(one.path(), two.path(), 5).await.unwrap();
    complete(two.path(), 5).await.unwrap();
    must_be(two.path(), 5, &digest(one.path(), 5).unwrap()).await.unwrap();
}

/// A holder that sends something else in the place of a pack that other checkpoints here need.
#[tokio::test]
async fn a_pack_is_not_replaced_by_one_that_lacks_what_others_need() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    sealed(one.path(), 5).commit(&record(5)).unwrap();
    fetched(one.path(), two.path(), &[], false).await.unwrap();
    // Another checkpoint here needs all of it; of this one's the graph alone is left.
    let (old, new) = (two.path().join("checkpoints/5"), two.path().join("checkpoints/4"));
    std::fs::create_dir(&new).unwrap();
    for name in ["graph.json", "process-7.json"] {
        std::fs::copy(old.join(name), new.join(name)).unwrap();
    }
    complete(two.path(), 4).await.unwrap();
    damage(one.path(), "process-7.json");
    let taken = fetched(one.path(), two.path(), &[7], true).await;
    assert!(matches!(taken, Err(CopyError::Damage(_))), "{taken:?}");
    ckpt_store::verify(two.path(), 4, |_| {}).unwrap();
    ckpt_store::verify(two.path(), 5, |_| {}).unwrap();
}

#[tokio::test]
async fn no_more_is_taken_than_there_is_room_for() {
    let here = tempfile::tempdir().unwrap();
    let offered = vec![ImageFile { path: "packs/00000000000a.tar".into(), length: u64::MAX / 2 }];
    let (taken, wanted) = offer_zeros(here.path(), 3, offered).await;
    assert!(matches!(taken, Err(CopyError::NoRoom { .. })), "{taken:?}");
    assert!(wanted.is_empty());
}
