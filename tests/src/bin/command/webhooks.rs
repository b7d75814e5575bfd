//! Servers that are told what happens to a job (`--on EVENT=https://...`).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::{fs, thread};

use ckptd_tests::job::Failure;
use ckptd_tests::processes;
use serde_json::Value;

use super::stage::{JOB, LIMIT, Running, Stage, expect, own, until};

/// What is asked of the server.
struct Request {
    /// Its lines before the content.
    head: String,
    content: String,
}

/// What answers requests, one after the other, each once it is let.
struct Server {
    address: String,
    requests: Receiver<Request>,
    lets: Sender<()>,
}

impl Server {
    fn start(answers: &'static [&'static str]) -> Result<Self, Failure> {
        let listener = own(TcpListener::bind("127.0.0.1:0"))?;
        let address = own(listener.local_addr())?.to_string();
        let ((sender, requests), (lets, may)) = (channel(), channel());
        thread::spawn(move || {
            for answer in answers {
                let Ok((stream, _)) = listener.accept() else { return };
                let Ok(request) = take(&stream) else { return };
                if sender.send(request).is_err() || may.recv().is_err() {
                    return;
                }
                let _ = give(&stream, answer);
            }
        });
        Ok(Self { address, requests, lets })
    }

    /// The next request, which is answered after `act`.
    fn next(&self, act: impl FnOnce() -> Result<(), Failure>) -> Result<Request, Failure> {
        let request = self.requests.recv_timeout(LIMIT);
        let request =
            request.map_err(|error| Failure(format!("the server is not asked: {error}")))?;
        act()?;
        self.lets.send(()).map_err(|error| Failure(format!("the server has ended: {error}")))?;
        Ok(request)
    }
}

fn give(mut stream: &TcpStream, answer: &str) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

fn take(stream: &TcpStream) -> std::io::Result<Request> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or_default();
        }
        if line.trim().is_empty() {
            break;
        }
        head += &line;
    }
    let mut content = vec![0; length];
    reader.read_exact(&mut content)?;
    Ok(Request { head, content: String::from_utf8_lossy(&content).into_owned() })
}

/// The arguments of all processes that belong to the test.
fn arguments(stage: &Stage) -> String {
    let all = processes::marked(&stage.home.display().to_string());
    let read = |pid: i32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    all.into_iter()
        .map(|pid| String::from_utf8_lossy(&read(pid)).replace('\0', " ") + "\n")
        .collect()
}

/// A server hears of a commit at the second attempt; another that does not want to hear of the end is asked once. The address
/// is neither in arguments nor in what is said.
pub fn told(stage: &Stage) -> Result<(), Failure> {
    let busy = Server::start(&["503 Service Unavailable", "204 No Content"])?;
    let other = Server::start(&["404 Not Found", "200 OK"])?;
    let words = ["run", "--interval", "0", "--name", JOB, "--", "sh", "-c", "echo up; read x"];
    let mut command = stage.command(&words);
    let on = format!(
        "checkpoint=http://{}/secret?key=1\nended=http://me:word@{}/secret\ncheckpoint=echo > over",
        busy.address, other.address
    );
    command.env("CKPTD_RUN_ON", on);
    let mut running = Running::start(command)?;
    stage.until_up(&mut running)?;
    running.wait_for("up")?;
    stage.checkpoint()?;
    let first = busy.next(|| {
        let said = arguments(stage);
        expect(said.contains("call-commands") && said.contains("send-event"), || said.clone())?;
        expect(!said.contains("secret") && !said.contains("word"), || said)
    })?;
    let second = busy.next(|| Ok(()))?;
    expect(first.content == second.content, || "not the same again".to_owned())?;
    let head = second.head.to_lowercase();
    let is_right = head.starts_with("post /secret?key=1 http/1.1\r\n")
        && head.contains("content-type: application/json\r\n")
        && head.contains("user-agent: ckptd/");
    expect(is_right, || head)?;
    let told: Value = serde_json::from_str(&second.content)
        .map_err(|error| Failure(format!("{error}: {}", second.content)))?;
    let text = format!("checkpoint 1 of {JOB} is committed");
    let is_it = told["event"] == "checkpoint" && told["checkpoint"] == 1 && told["text"] == text;
    expect(is_it, || second.content)?;
    until("the next one is called", || stage.home.join("over").exists())?;
    running.say("\n")?;
    let last = other.next(|| Ok(()))?;
    let ended = running.finish()?.expect(0)?;
    expect(last.head.to_lowercase().contains("authorization: basic "), || last.head)?;
    let warning =
        format!("warning: on ended: 'http://{}/...' ended with status 125", other.address);
    let is_told = ended.err.contains("failed to tell the server: it answers 404 Not Found")
        && ended.err.contains(&warning)
        && !ended.err.contains("secret")
        && !ended.err.contains("word");
    expect(is_told, || format!("{ended:?}"))?;
    expect(other.requests.try_recv().is_err(), || "it is asked again".to_owned())?;
    let wrong = stage.output(&["run", "--on", "lost=http://a b/", "true"], "")?.expect(2)?;
    expect(wrong.err.contains("is to be the address of a server"), || format!("{wrong:?}"))?;
    stage.expect_gone()
}
