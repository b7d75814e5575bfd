//! What the coordinator wants done with images of DMTCP's processes.

use ckpt_engine::sys::standing::acts_for_all_but_root;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use ckpt_node::Event;
use protocol::cluster::NodeName;
use protocol::cluster::agent::JobUser;
use protocol::cluster::dmtcp::{DmtcpImage, DmtcpOrder, DmtcpPath};
use protocol::task;
use tokio::process::Command;

use super::Driver;
use super::failure::Failure;
use crate::driver::copies::{self, Wanted};
use crate::driver::dmtcp::{self, PutOut};
use crate::driver::user::{User, UserError};

/// DMTCP's program that restarts images.
const RESTART: &str = "dmtcp_restart";

/// Where what it says goes, in the job's folder.
const LOG: &str = "dmtcp_restart.log";

impl Driver {
    pub(super) fn dmtcp(&mut self, order: DmtcpOrder) {
        let image = match &order {
            DmtcpOrder::TakeIn { image, .. } | DmtcpOrder::Restart { image, .. } => image.clone(),
        };
        // As for phones, which there is no DMTCP for: the rest is not in the executable then.
        if !cfg!(feature = "dmtcp") {
            let failed = Err(Failure::WithoutDmtcp.to_string());
            return self.events.push_back(Event::Dmtcp(image, failed));
        }
        let folder = match self.parts.folders.make_instance(&image.job, image.instance) {
            Ok(folder) => folder,
            Err(error) => {
                let failed = Err(error.to_string());
                return self.events.push_back(Event::Dmtcp(image, failed));
            }
        };
        match order {
            DmtcpOrder::TakeIn { files, .. } => self.take_in_images(image, folder, files),
            DmtcpOrder::Restart { holders, host, port, .. } => {
                self.restart_images(image, folder, holders, host, port);
            }
        }
    }

    fn take_in_images(&self, image: DmtcpImage, folder: PathBuf, files: Vec<DmtcpPath>) {
        let (reports, busy) = (self.parts.reports.clone(), self.parts.busy.clone());
        let folders = self.parts.folders.clone();
        let (checkpoint, users) = (image.checkpoint, self.users());
        task::spawn(async move {
            busy.take(&folder, checkpoint).await;
            let (job, instance) = (image.job.clone(), image.instance);
            let take_in = move || {
                // Whoever was removing something there may have removed the folder.
                let made = folders.make_instance(&job, instance);
                let place = made.map_err(Failure::system("create the image's folder"))?;
                Ok::<_, Failure>(dmtcp::take_in(&place, checkpoint, &files, users)?)
            };
            let taken = task::blocking(take_in).await.map_err(|failure| failure.to_string());
            busy.end_commit(&folder, checkpoint);
            reports.event(Event::Dmtcp(image, taken));
        });
    }

    fn restart_images(
        &self,
        image: DmtcpImage,
        folder: PathBuf,
        holders: Vec<NodeName>,
        host: IpAddr,
        port: u16,
    ) {
        let (reports, busy) = (self.parts.reports.clone(), self.parts.busy.clone());
        let (peers, own) = (self.parts.peers.clone(), self.parts.name.clone());
        let arriving = self.parts.folders.arriving();
        let users = self.users();
        let log = self.parts.folders.job(&image.job).join(LOG);
        let checkpoint = image.checkpoint;
        task::spawn(async move {
            let restarted = async {
                let lock = busy.fetching(&folder);
                let _alone = lock.lock().await;
                if !copies::is_here(&folder, checkpoint).await {
                    let others: Vec<NodeName> =
                        holders.into_iter().filter(|node| *node != own).collect();
                    let wanted = Wanted {
                        job: &image.job,
                        instance: image.instance,
                        checkpoint,
                        digest: "",
                        folder: &folder,
                        arriving: &arriving,
                        without: &BTreeSet::new(),
                    };
                    copies::fetch(&peers, &others, wanted).await.map_err(Failure::Lacking)?;
                }
                let put_out = move || dmtcp::put_out(&folder, checkpoint, users);
                let out = task::blocking(put_out).await?;
                for group in out {
                    start(&group, host, port, &log)
                        .map_err(Failure::system(format!("execute {RESTART} on {own}")))?;
                }
                Ok::<_, Failure>(Vec::new())
            };
            let result = restarted.await.map_err(|failure| failure.to_string());
            reports.event(Event::Dmtcp(image, result));
        });
    }

    /// Who an owner of images is on this machine.
    fn users(&self) -> impl Fn(&JobUser) -> Result<Option<User>, UserError> + Send + 'static {
        let hosts = self.hosts();
        move |wanted| hosts.account_of(wanted)
    }
}

/// Starts `dmtcp_restart`. Its processes are DMTCP's from then on: they outlive this agent.
fn start(group: &PutOut, host: IpAddr, port: u16, log: &Path) -> io::Result<()> {
    let said = File::options().append(true).create(true).open(log)?;
    if group.user.is_some() && acts_for_all_but_root() {
        // It would keep the agent's groups.
        let reason = "only an agent of root's restarts processes of DMTCP for other users";
        return Err(io::Error::other(reason));
    }
    let mut command = Command::new(RESTART);
    command
        .args(["--join-coordinator", "--coord-host", &host.to_string()])
        .args(["--coord-port", &port.to_string()])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(said.try_clone()?)
        .stderr(said)
        .process_group(0);
    if let Some(folder) = &group.folder {
        command.arg("--ckptdir").arg(folder);
    }
    if let Some(user) = &group.user {
        command.uid(user.uid).gid(user.gid);
        command.env("HOME", &user.home).env("USER", &user.name).env("LOGNAME", &user.name);
    }
    let mut child = command.args(&group.images).spawn()?;
    task::spawn(async move {
        match child.wait().await {
            Ok(status) if status.success() => {}
            Ok(status) => tracing::warn!("{RESTART} ended with {status}"),
            Err(error) => tracing::warn!("{RESTART}: {error}"),
        }
    });
    Ok(())
}
