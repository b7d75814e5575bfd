//! Requests without a browser.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::Failed;

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(20);

/// Asks for a path; the status and the body.
pub fn get(
    port: u16,
    path: &str,
    host: &str,
    authorization: Option<&str>,
) -> Result<(u16, String), Failed> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(LIMIT))?;
    let shown = authorization.map(|shown| format!("Authorization: {shown}\r\n"));
    let shown = shown.unwrap_or_default();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{shown}\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) =
        answer.split_once("\r\n\r\n").ok_or("an answer without an end of its head")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or_else(|| format!("no status: {head}"))?, body.to_owned()))
}
