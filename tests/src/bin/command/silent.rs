//! Servers of S3 that take a connection and never answer.

use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use ckptd_tests::job::Failure;
use nix::sys::signal::Signal;

use super::stage::{Finished, JOB, Running, Stage, expect, own, until};

/// How long one small request may take, with all of its tries.
const SMALL: Duration = Duration::from_secs(60);
/// How long a command may take to end once it is told to.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A server that says nothing.
struct Silent {
    listener: TcpListener,
    /// Who is connected.
    heard: Vec<TcpStream>,
}

impl Silent {
    fn start() -> Result<Silent, Failure> {
        let listener = own(TcpListener::bind(("127.0.0.1", 0)))?;
        own(listener.set_nonblocking(true))?;
        Ok(Silent { listener, heard: Vec::new() })
    }

    fn command(&self, stage: &Stage, arguments: &[&str]) -> Result<Command, Failure> {
        let mut command = stage.command(arguments);
        command.env("AWS_ACCESS_KEY_ID", "a").env("AWS_SECRET_ACCESS_KEY", "b");
        let port = own(self.listener.local_addr())?.port();
        command.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}"));
        Ok(command)
    }

    /// Waits until somebody is connected.
    fn wait(&mut self) -> Result<(), Failure> {
        let before = self.heard.len();
        until("the server is asked", || {
            self.heard.extend(self.listener.accept().map(|(stream, _)| stream));
            self.heard.len() > before
        })
    }
}

/// Ends it by a signal while it waits for the server.
fn told(mut server: Silent, command: Command, signal: Signal) -> Result<Finished, Failure> {
    let running = Running::start(command)?;
    server.wait()?;
    std::thread::sleep(Duration::from_millis(300));
    let since = Instant::now();
    running.signal(signal)?;
    let ended = running.finish()?;
    let took = since.elapsed();
    expect(took < AT_ONCE, || format!("told to end, it takes {took:?}: {ended:?}"))?;
    Ok(ended)
}

/// One request takes as long as suits it, then the failure is told; whoever is told to end does so at once.
pub fn server(stage: &Stage) -> Result<(), Failure> {
    let running = stage.run(&["sh", "-c", "echo ready; read line"])?;
    running.wait_for("ready")?;
    stage.checkpoint()?;
    let object = "s3://kept/j.ckptd";
    let export = ["export", "--replace", JOB, object];
    for words in [&export[..], &["export", JOB, object], &["import", object]] {
        let server = Silent::start()?;
        let command = server.command(stage, words)?;
        let ended = told(server, command, Signal::SIGTERM)?.expect(143)?;
        expect(ended.err.contains("it was given up"), || format!("{ended:?}"))?;
    }
    let server = Silent::start()?;
    let since = Instant::now();
    let ended = own(server.command(stage, &export)?.output())?;
    let (took, said) = (since.elapsed(), String::from_utf8_lossy(&ended.stderr).into_owned());
    let is_told =
        said.contains("failed to export j: S3 at http://127.0.0.1") && !said.contains("given up");
    expect(ended.status.code() == Some(125) && is_told && took < SMALL, || {
        format!("{took:?}: {said}")
    })?;
    running.kill()
}
