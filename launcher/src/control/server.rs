//! Answering those who ask.

use super::ShortPath;
use futures_util::{SinkExt, StreamExt};
use protocol::control::{Greeting, Reply, Request, VERSION};
use protocol::frame::{self, MAX_REPLY, MAX_REQUEST};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::codec::{Framed, LinesCodec};

/// Callers at one time; more wait in the listener's queue.
const MAX_CALLERS: u32 = 64;

/// How long a caller may take to say what it wants.
const GREETING_LIMIT: Duration = Duration::from_secs(10);

/// How long the last answers may take, once the job has ended.
const CLOSING_LIMIT: Duration = Duration::from_secs(1);

/// A request, and the way back to the one who made it.
#[derive(Debug)]
pub struct Asked {
    /// What is wanted.
    pub request: Request,
    /// Takes the answer.
    pub reply: oneshot::Sender<Reply>,
}

/// Listens on a job's socket until it is dropped.
#[derive(Debug)]
pub struct Server {
    task: tokio::task::JoinHandle<()>,
    places: Arc<Semaphore>,
}

impl Server {
    /// Makes the socket; the caller holds the job's lock, so one that is there is a dead one's.
    ///
    /// # Errors
    /// Where it can't be made.
    pub fn start(job_dir: &Path, asked: mpsc::Sender<Asked>) -> io::Result<Self> {
        let short = ShortPath::of(job_dir)?;
        match fs::remove_file(&short.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Nobody else gets at it before the mode is set: the folder is 0700.
        let listener = UnixListener::bind(&short.path)?;
        fs::set_permissions(&short.path, Permissions::from_mode(0o600))?;
        let places = Arc::new(Semaphore::new(MAX_CALLERS as usize));
        let task = tokio::spawn(listen(listener, asked, places.clone()));
        Ok(Self { task, places })
    }

    /// Takes no more callers, and lets those that have an answer get it.
    pub async fn close(self) {
        self.task.abort();
        let answered = self.places.acquire_many(MAX_CALLERS);
        let _ = tokio::time::timeout(CLOSING_LIMIT, answered).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(listener: UnixListener, asked: mpsc::Sender<Asked>, places: Arc<Semaphore>) {
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let asked = asked.clone();
                tokio::spawn(async move {
                    if may_ask(&stream) {
                        // A caller that goes away or talks nonsense is its own loss.
                        let _ = serve(stream, asked).await;
                    }
                    drop(place);
                });
            }
            // Out of descriptors, most likely: others must close some first.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Whether the caller is the job's own user, or root (SO_PEERCRED, unix(7)).
fn may_ask(stream: &UnixStream) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}

async fn serve(
    stream: UnixStream,
    asked: mpsc::Sender<Asked>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut lines = Framed::new(stream, LinesCodec::new_with_max_length(MAX_REQUEST));
    let reply = match tokio::time::timeout(GREETING_LIMIT, lines.next()).await? {
        None => return Ok(()),
        Some(Err(error)) => Reply::Failed(format!("read the request: {error}")),
        Some(Ok(line)) => match frame::decode::<Greeting>(&line, MAX_REQUEST) {
            Err(error) => Reply::Failed(format!("read the request: {error}")),
            Ok(greeting) if greeting.version != VERSION => Reply::Failed(format!(
                "talk to the job: this ckptd speaks version {}, the job's launcher {VERSION}",
                greeting.version
            )),
            Ok(greeting) => {
                let (reply, answer) = oneshot::channel();
                asked.send(Asked { request: greeting.request, reply }).await?;
                tokio::select! {
                    answer = answer => answer?,
                    // The caller has gone; whoever reads on would wait for nobody.
                    _ = lines.next() => return Ok(()),
                }
            }
        },
    };
    lines.send(frame::encode(&reply, MAX_REPLY)?).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    async fn answered(job_dir: &Path, line: Vec<u8>) -> String {
        let path = job_dir.join("socket");
        tokio::task::spawn_blocking(move || {
            let mut stream = std::os::unix::net::UnixStream::connect(path).unwrap();
            stream.write_all(&line).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        })
        .await
        .unwrap()
    }

    #[tokio::test]
    async fn nonsense_is_refused_and_sense_is_answered() {
        let dir = tempfile::tempdir().unwrap();
        let (sender, mut receiver) = mpsc::channel(1);
        let _server = Server::start(dir.path(), sender).unwrap();
        let mode = fs::metadata(dir.path().join("socket")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        tokio::spawn(async move {
            while let Some(asked) = receiver.recv().await {
                let _ = asked.reply.send(Reply::Failed(format!("{:?}", asked.request)));
            }
        });
        let malformed = answered(dir.path(), b"hello\n".to_vec()).await;
        assert!(malformed.contains("malformed message"), "{malformed}");
        let other =
            answered(dir.path(), b"{\"version\":7,\"request\":\"status\"}\n".to_vec()).await;
        assert!(other.contains("speaks version 7"), "{other}");
        let mut long = vec![b'x'; MAX_REQUEST + 10];
        long.push(b'\n');
        let long = answered(dir.path(), long).await;
        assert!(long.contains("read the request"), "{long}");
        let path = dir.path().to_owned();
        let reply = tokio::task::spawn_blocking(move || {
            super::super::ask(&path, Request::Status, Some(Duration::from_secs(5)))
        })
        .await
        .unwrap()
        .unwrap();
        assert_eq!(reply, Reply::Failed("Status".to_owned()));
    }

    #[tokio::test]
    async fn a_long_path_is_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("x".repeat(200));
        fs::create_dir(&deep).unwrap();
        let (sender, mut receiver) = mpsc::channel(1);
        let _server = Server::start(&deep, sender).unwrap();
        let asking = tokio::task::spawn_blocking(move || {
            super::super::ask(&deep, Request::Checkpoint, Some(Duration::from_secs(5)))
        });
        let asked = receiver.recv().await.unwrap();
        assert_eq!(asked.request, Request::Checkpoint);
        drop(asked.reply);
        assert!(asking.await.unwrap().is_err());
    }
}
