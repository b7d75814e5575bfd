//! Archives in S3, by a server of moto's, over a network that breaks.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use ckptd_tests::job::Failure;

use super::archives::{expect_jobs, refused, text};
use super::stage::{Finished, JOB, Stage, expect, own, until};

const SERVER: &str = "/var/cache/ckptd-tests/s3/moto/bin/moto_server";
const MEMORY: &str = "
import hashlib, os, time
data = os.urandom(40 << 20)
before = hashlib.sha256(data).digest()
print('ready', flush=True)
while not os.path.exists('go'): time.sleep(0.02)
print('right' if hashlib.sha256(data).digest() == before else 'wrong')
";
const MIB: u64 = 1 << 20;

/// A server of S3, and the network before it.
pub struct Bucket {
    server: Child,
    port: u16,
    network: Network,
}

/// A port that leads to the server, until it breaks.
#[derive(Clone)]
pub struct Network {
    port: u16,
    passed: Arc<AtomicU64>,
    /// After so many bytes the connection is cut on which they pass, each once.
    cuts: Arc<Mutex<Vec<u64>>>,
    /// After so many bytes nothing passes any more.
    stalls_at: Arc<AtomicU64>,
    /// Nothing passes any more once this comes.
    stalls_with: Arc<Mutex<Option<&'static str>>>,
    stalled: Arc<AtomicUsize>,
}

impl Network {
    fn start(server: u16) -> Result<Network, Failure> {
        let listener = own(TcpListener::bind(("127.0.0.1", 0)))?;
        let network = Network {
            port: own(listener.local_addr())?.port(),
            passed: Arc::default(),
            cuts: Arc::default(),
            stalls_at: Arc::new(AtomicU64::new(u64::MAX)),
            stalls_with: Arc::default(),
            stalled: Arc::default(),
        };
        let own_one = network.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { continue };
                    let network = own_one.clone();
                    std::thread::spawn(move || network.carry(from, to));
                }
            }
        });
        Ok(network)
    }

    fn carry(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = match from.read(&mut buffer) {
                Ok(count) if count > 0 => count,
                _ => break,
            };
            let passed = self.passed.fetch_add(count as u64, Ordering::SeqCst);
            self.look(&buffer[..count]);
            if passed >= self.stalls_at.load(Ordering::SeqCst) {
                self.stalled.fetch_add(1, Ordering::SeqCst);
                while self.stalls_at.load(Ordering::SeqCst) != u64::MAX {
                    std::thread::sleep(Duration::from_millis(10));
                }
                break;
            }
            let is_cut = {
                let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
                let before = cuts.len();
                cuts.retain(|cut| *cut > passed);
                cuts.len() < before
            };
            if is_cut || to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }

    /// Stalls with what is waited for.
    fn look(&self, bytes: &[u8]) {
        let mut with = self.stalls_with.lock().unwrap_or_else(PoisonError::into_inner);
        let has = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        if with.is_some_and(has) {
            *with = None;
            self.stalls_at.store(0, Ordering::SeqCst);
        }
    }

    /// Nothing passes any more once this comes.
    pub fn stall_with(&self, text: &'static str) {
        self.stalled.store(0, Ordering::SeqCst);
        *self.stalls_with.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    fn cut_after(&self, more: &[u64]) {
        let passed = self.passed.load(Ordering::SeqCst);
        let cuts = more.iter().map(|more| passed + more).collect();
        *self.cuts.lock().unwrap_or_else(PoisonError::into_inner) = cuts;
    }

    fn all_cut(&self) -> bool {
        self.cuts.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn stall_after(&self, more: u64) {
        self.stalled.store(0, Ordering::SeqCst);
        self.stalls_at.store(self.passed.load(Ordering::SeqCst) + more, Ordering::SeqCst);
    }

    /// Whether somebody's bytes wait.
    pub fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::SeqCst) > 0
    }

    /// All passes again.
    pub fn heal(&self) {
        self.stalls_at.store(u64::MAX, Ordering::SeqCst);
    }
}

impl Bucket {
    /// `None`: there is no server on this machine.
    pub fn start() -> Result<Option<Bucket>, Failure> {
        if !Path::new(SERVER).exists() {
            println!("    skipped: no moto; tests/install installs it");
            return Ok(None);
        }
        let port = own(own(TcpListener::bind(("127.0.0.1", 0)))?.local_addr())?.port();
        let mut server = Command::new(SERVER);
        server.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        let server = own(server.stdout(Stdio::null()).stderr(Stdio::null()).spawn())?;
        let bucket = Bucket { server, port, network: Network::start(port)? };
        until("the server of S3 is up", || TcpStream::connect(("127.0.0.1", port)).is_ok())?;
        bucket.ask("PUT", "/kept", b"")?;
        Ok(Some(bucket))
    }

    /// The network before it.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Asks the server itself; the answer's body.
    pub fn ask(&self, method: &str, path: &str, body: &[u8]) -> Result<Vec<u8>, Failure> {
        let mut server = own(TcpStream::connect(("127.0.0.1", self.port)))?;
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.0\r\nHost: localhost\r\nAuthorization: AWS4-HMAC-SHA256 \
             Credential=a/20260101/us-east-1/s3/aws4_request\r\nContent-Length: {length}\r\n\r\n"
        );
        own(server.write_all(head.as_bytes()).and_then(|()| server.write_all(body)))?;
        let mut answer = Vec::new();
        own(server.read_to_end(&mut answer))?;
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(0);
        let head = String::from_utf8_lossy(&answer[..end]);
        let right = head.split(' ').nth(1).is_some_and(|status| ["200", "204"].contains(&status));
        expect(right, || format!("{method} {path}: {head}"))?;
        Ok(answer.split_off(end + 4))
    }

    /// How often something is in an answer.
    fn count(&self, path: &str, what: &str) -> Result<usize, Failure> {
        let answer = self.ask("GET", path, b"")?;
        Ok(String::from_utf8_lossy(&answer).matches(what).count())
    }

    /// Nothing but whole archives, so many, and uploads that are not whole.
    pub fn expect(&self, archives: usize, uploads: usize) -> Result<(), Failure> {
        let unfinished = self.count("/kept?uploads", "<UploadId>")?;
        let objects = self.count("/kept?list-type=2", "<Key>")?;
        // Of each upload there is a note.
        expect(unfinished == uploads && objects == archives + uploads, || {
            format!("{objects} objects and {unfinished} uploads")
        })
    }

    /// A command by whom it is used.
    pub fn command(&self, stage: &Stage, arguments: &[&str]) -> Command {
        let mut command = stage.command(arguments);
        command.env("AWS_ACCESS_KEY_ID", "a").env("AWS_SECRET_ACCESS_KEY", "b");
        command.env("AWS_ENDPOINT_URL", format!("http://localhost:{}", self.network.port));
        command
    }

    /// The same, to its end.
    pub fn output(&self, stage: &Stage, arguments: &[&str]) -> Result<Finished, Failure> {
        let output = own(self.command(stage, arguments).stdin(Stdio::null()).output())?;
        Ok(Finished {
            status: output.status,
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Exports over a network that stalls in the middle, and sends a signal then.
    fn signalled(&self, stage: &Stage, signal: Signal) -> Result<Option<i32>, Failure> {
        self.network.stall_after(10 * MIB);
        self.signalled_when_stalled(stage, signal)
    }

    /// The same, where the network is told already when to stall.
    fn signalled_when_stalled(
        &self,
        stage: &Stage,
        signal: Signal,
    ) -> Result<Option<i32>, Failure> {
        let arguments = ["export", "--replace", JOB, "s3://kept/runs/j.ckptd"];
        let mut export = own(self.command(stage, &arguments).stderr(Stdio::null()).spawn())?;
        until("the network stalls", || self.network.stalled.load(Ordering::SeqCst) > 0)?;
        std::thread::sleep(Duration::from_millis(300));
        let pid = Pid::from_raw(export.id() as i32);
        kill(pid, signal).map_err(|error| Failure(error.to_string()))?;
        if signal != Signal::SIGKILL {
            std::thread::sleep(Duration::from_millis(300));
        }
        self.network.heal();
        Ok(own(export.wait())?.code())
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A job goes there and comes back over connections that break; what was given up or killed on the way leaves nothing, and
/// never replaces what is there.
pub fn there_and_back(stage: &Stage) -> Result<(), Failure> {
    let Some(bucket) = Bucket::start()? else { return Ok(()) };
    let running = stage.run(&["python3", "-c", MEMORY])?;
    running.wait_for("ready")?;
    stage.checkpoint()?;
    let object = "s3://kept/runs/j.ckptd";
    bucket.network.cut_after(&[3 * MIB, 12 * MIB, 30 * MIB]);
    let exported = bucket.output(stage, &["export", JOB, object])?.expect(0)?;
    expect(exported.err.contains("checkpoint 1 of j"), || format!("{exported:?}"))?;
    expect(bucket.network.all_cut(), || "the network did not break".to_owned())?;
    bucket.expect(1, 0)?;
    let again = bucket.output(stage, &["export", JOB, object])?;
    refused(again, "s3://kept/runs/j.ckptd is there already")?;
    // Given up, it is aborted at once; killed, by the next one.
    let status = bucket.signalled(stage, Signal::SIGTERM)?;
    expect(status == Some(143), || format!("interrupted: {status:?}"))?;
    bucket.expect(1, 0)?;
    bucket.signalled(stage, Signal::SIGKILL)?;
    bucket.expect(1, 1)?;
    bucket.output(stage, &["export", "--replace", JOB, object])?.expect(0)?;
    bucket.expect(1, 0)?;
    running.kill()?;
    stage.expect_gone()?;
    own(fs::write(stage.home.join("go"), ""))?;
    let other = text(&stage.home.join("other"));
    bucket.network.cut_after(&[5 * MIB, 20 * MIB]);
    let imported = bucket.output(stage, &["import", object, "--dir", &other])?.expect(0)?;
    expect(imported.out == "j\n" && bucket.network.all_cut(), || format!("{imported:?}"))?;
    let ended = stage.output(&["restart", "j", "--dir", &other], "")?.expect(0)?;
    expect(ended.out == "right\n", || format!("{ended:?}"))?;
    stage.expect_gone()?;
    damaged(stage, &bucket)
}

/// An upload whose completion gets no answer is given up at once, and nothing of it is there.
pub fn completion(stage: &Stage) -> Result<(), Failure> {
    let Some(bucket) = Bucket::start()? else { return Ok(()) };
    let running = stage.run(&["sh", "-c", "echo ready; read line"])?;
    running.wait_for("ready")?;
    stage.checkpoint()?;
    // The request with which it is completed.
    bucket.network.stall_with("POST /kept/runs/j.ckptd?uploadId=");
    let since = Instant::now();
    let status = bucket.signalled_when_stalled(stage, Signal::SIGTERM)?;
    let took = since.elapsed();
    expect(status == Some(143) && took < Duration::from_secs(10), || {
        format!("{status:?} after {took:?}")
    })?;
    bucket.expect(0, 0)?;
    running.kill()
}

/// What was changed or cut there is no job; what is not there is told.
fn damaged(stage: &Stage, bucket: &Bucket) -> Result<(), Failure> {
    let folder = stage.home.join("third");
    let state = text(&folder);
    let whole = bucket.ask("GET", "/kept/runs/j.ckptd", b"")?;
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x10;
    let cases = [("flipped", flipped.as_slice()), ("cut", &whole[..whole.len() - 100])];
    for (name, bytes) in cases {
        bucket.ask("PUT", "/kept/bad", bytes)?;
        let ended = bucket.output(stage, &["import", "s3://kept/bad", "--dir", &state])?;
        refused(ended, "ckptd: failed to import").map_err(|f| Failure(format!("{name}: {f}")))?;
        expect_jobs(&folder, 0).or_else(|f| if folder.exists() { Err(f) } else { Ok(()) })?;
    }
    let absent = bucket.output(stage, &["import", "s3://kept/none", "--dir", &state])?;
    refused(absent, "s3://kept/none: it is not there")?;
    let nowhere = bucket.output(stage, &["export", JOB, "s3://absent/j"])?;
    refused(nowhere, "there is no bucket absent")
}
