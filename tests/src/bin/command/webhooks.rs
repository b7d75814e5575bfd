//! Servers that are told what happens to a job (`--on EVENT=https://...`).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
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

/// A server that answers with these, one after the other: its address, and what it is asked.
fn server(answers: &'static [&'static str]) -> Result<(String, Receiver<Request>), Failure> {
    let listener = own(TcpListener::bind("127.0.0.1:0"))?;
    let address = own(listener.local_addr())?;
    let (sender, requests) = channel();
    thread::spawn(move || {
        for answer in answers {
            let request = listener.accept().and_then(|(stream, _)| take(stream, answer));
            let Ok(request) = request else { return };
            if sender.send(request).is_err() {
                return;
            }
        }
    });
    Ok((address.to_string(), requests))
}

fn take(stream: TcpStream, answer: &str) -> std::io::Result<Request> {
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
    let mut stream = stream;
    write!(stream, "HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
    Ok(Request { head, content: String::from_utf8_lossy(&content).into_owned() })
}

fn next(requests: &Receiver<Request>) -> Result<Request, Failure> {
    let request = requests.recv_timeout(LIMIT);
    request.map_err(|error| Failure(format!("the server is not asked: {error}")))
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
    let (busy, hears) = server(&["503 Service Unavailable", "204 No Content"])?;
    let (other, refuses) = server(&["404 Not Found", "200 OK"])?;
    let words = ["run", "--interval", "0", "--name", JOB, "--", "sh", "-c", "echo up; read x"];
    let mut command = stage.command(&words);
    let on = format!(
        "checkpoint=http://{busy}/secret?key=1\nended=http://me:word@{other}/secret\ncheckpoint=sleep 3"
    );
    command.env("CKPTD_RUN_ON", on);
    let mut running = Running::start(command)?;
    stage.until_up(&mut running)?;
    running.wait_for("up")?;
    stage.checkpoint()?;
    let first = next(&hears)?;
    let said = arguments(stage);
    expect(said.contains("call-commands") && said.contains("send-event"), || said.clone())?;
    expect(!said.contains("secret") && !said.contains("word"), || said)?;
    let second = next(&hears)?;
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
    until("the lane is empty", || !arguments(stage).contains("sleep 3"))?;
    running.say("\n")?;
    let ended = running.finish()?.expect(0)?;
    let last = next(&refuses)?;
    expect(last.head.to_lowercase().contains("authorization: basic "), || last.head)?;
    let warning = format!("warning: on ended: 'http://{other}/...' ended with status 125");
    let is_told = ended.err.contains("failed to tell the server: it answers 404 Not Found")
        && ended.err.contains(&warning)
        && !ended.err.contains("secret")
        && !ended.err.contains("word");
    expect(is_told, || format!("{ended:?}"))?;
    expect(refuses.try_recv().is_err(), || "it is asked again".to_owned())?;
    let wrong = stage.output(&["run", "--on", "lost=http://a b/", "true"], "")?.expect(2)?;
    expect(wrong.err.contains("is to be the address of a server"), || format!("{wrong:?}"))?;
    stage.expect_gone()
}
