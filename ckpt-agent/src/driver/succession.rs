//! What a coordinator that carries on for a lost one asks of this agent.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use protocol::cluster::replica::SmallFile;
use protocol::cluster::succession::{CopiedFile, FromSuccessor, ToSuccessor};
use protocol::log_times;
use protocol::transport::{SuccessorConnection, TransportError};
use tokio::sync::oneshot;

use super::link::PIECE;
use super::replica;
use super::report::{Report, Reports};

/// Answers one that has shown a certificate of the role coordinator, until it has enough.
pub async fn serve(mut link: SuccessorConnection, reports: Reports, folder: PathBuf) {
    let remote = link.remote;
    if let Err(error) = talk(&mut link, &reports, &folder).await {
        tracing::warn!(%remote, %error, "a new coordinator was not answered");
    }
    link.sender.close().await;
}

async fn talk(
    link: &mut SuccessorConnection,
    reports: &Reports,
    folder: &Path,
) -> Result<(), TransportError> {
    while let Some((message, _)) = link.receiver.receive().await? {
        let (sender, answer) = oneshot::channel();
        match message {
            FromSuccessor::Ask => reports.tell(Report::StateAsked(sender)),
            FromSuccessor::Follow(followed) => {
                reports.tell(Report::FollowAsked(followed, sender));
            }
            FromSuccessor::Fetch => {
                give(link, folder).await?;
                continue;
            }
        }
        // The node does not answer any more when it is ending.
        let Ok(answer) = answer.await else { return Ok(()) };
        link.sender.send(&answer, &[]).await?;
    }
    Ok(())
}

/// Sends this node's copy.
async fn give(link: &mut SuccessorConnection, folder: &Path) -> Result<(), TransportError> {
    let small = SmallFile::ALL.map(|file| (CopiedFile::Small(file), folder.join(file.name())));
    let log = (CopiedFile::Log, folder.join(replica::LOG));
    let jobs = replica::jobs(folder).into_iter();
    let jobs = jobs.flat_map(|job| {
        let log = replica::job_log(folder, &job);
        let times = log.with_file_name(log_times::NAME);
        [(CopiedFile::JobLog(job.clone()), log), (CopiedFile::JobTimes(job), times)]
    });
    for (file, path) in small.into_iter().chain([log]).chain(jobs) {
        if !path.exists() {
            // There are no tokens yet, or no output.
            continue;
        }
        let failed = |error: std::io::Error| format!("read {}: {error}", path.display());
        let mut opened = match File::open(&path).map_err(failed) {
            Ok(opened) => opened,
            Err(reason) => return link.sender.send(&ToSuccessor::Failed { reason }, &[]).await,
        };
        let mut buffer = vec![0; PIECE];
        loop {
            match opened.read(&mut buffer).map_err(failed) {
                Ok(0) => break,
                Ok(read) => {
                    let piece = ToSuccessor::Piece { file: file.clone() };
                    link.sender.send(&piece, &buffer[..read]).await?;
                }
                Err(reason) => return link.sender.send(&ToSuccessor::Failed { reason }, &[]).await,
            }
        }
    }
    link.sender.send(&ToSuccessor::Sent, &[]).await
}
