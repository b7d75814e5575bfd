//! How full the coordinator's disk is: looked at now and then, by a thread that may wait for the disk.

use protocol::room::Room;
use std::path::PathBuf;
use tokio::task::JoinHandle;

/// From one look to the next, in nanoseconds.
const AGAIN: u64 = 10_000_000_000;

/// Looks at the disk of a folder.
#[derive(Debug)]
pub struct RoomWatch {
    folder: PathBuf,
    due: u64,
    look: Option<JoinHandle<Option<Room>>>,
}

impl RoomWatch {
    /// Of that folder, from now on.
    pub fn of(folder: PathBuf) -> Self {
        Self { folder, due: 0, look: None }
    }

    /// What was found, where something new was. Called at least twice a second; never waits.
    pub async fn look(&mut self, now: u64) -> Option<Room> {
        if let Some(look) = self.look.take_if(|look| look.is_finished()) {
            return look.await.ok().flatten();
        }
        if self.look.is_none() && now >= self.due {
            self.due = now.saturating_add(AGAIN);
            let folder = self.folder.clone();
            self.look = Some(tokio::task::spawn_blocking(move || Room::of(&folder)));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn looks_once_in_a_while_and_does_not_wait() {
        let folder = tempfile::tempdir().unwrap();
        let mut watch = RoomWatch::of(folder.path().to_owned());
        let found = loop {
            if let Some(found) = watch.look(5).await {
                break found;
            }
            tokio::task::yield_now().await;
        };
        assert!(found.size > 0);
        assert_eq!(watch.look(6).await, None);
        assert!(watch.look.is_none() && watch.due == AGAIN + 5);
        assert_eq!(watch.look(AGAIN + 5).await, None);
        assert!(watch.look.is_some());
    }
}
