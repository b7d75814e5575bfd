//! Sending the line about an event to a server, in a process of its own, as a command is one: so its time is limited, and
//! nothing waits for it.

use crate::failure::Failure;
use crate::resolving::{Hosts, cause};
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

/// The hidden command of that process.
pub const COMMAND: &str = "send-event";
/// Where it finds the address, which may be a secret: what a process is called with, all users see.
pub const ADDRESS: &str = "CKPTD_WEBHOOK";

/// How long a connection may take.
const CONNECTING: Duration = Duration::from_secs(5);
/// How long an attempt may take. All of them and their pauses end before a command's limit.
const ATTEMPT: Duration = Duration::from_secs(8);
/// Before each further attempt.
const PAUSES: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(15)];
/// The longest line that is sent, in bytes: no event has a longer one.
const LONGEST: u64 = 1 << 20;

/// Why the server has not taken it.
#[derive(Debug)]
enum Refusal {
    /// It may do so later.
    ForNow(String),
    /// It never will.
    ForGood(String),
}

/// Sends what is on standard input to the address in the environment.
///
/// # Errors
/// The last reason why the server has not taken it; it never has the address in it.
pub fn perform() -> Result<(), Failure> {
    let failed = |cause: String| Failure::of("tell the server", cause);
    let address = std::env::var(ADDRESS).unwrap_or_default();
    let mut line = Vec::new();
    let read = std::io::stdin().lock().take(LONGEST).read_to_end(&mut line);
    read.map_err(|error| failed(error.to_string()))?;
    let client = Client::builder()
        .user_agent(concat!("ckptd/", env!("CARGO_PKG_VERSION")))
        .timeout(ATTEMPT)
        .connect_timeout(CONNECTING)
        .dns_resolver(Arc::new(Hosts))
        // What the address has of a secret is for that server alone.
        .redirect(Policy::none())
        .build()
        .map_err(|error| failed(cause(&error)))?;
    let events = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let events = events.map_err(|error| failed(error.to_string()))?;
    let sent = events.block_on(send(&client, &address, &line));
    // A look-up of a host that lasts is not waited for.
    events.shutdown_background();
    sent.map_err(failed)
}

async fn send(client: &Client, address: &str, line: &[u8]) -> Result<(), String> {
    let mut pauses = PAUSES.into_iter();
    loop {
        let reason = match attempt(client, address, line.to_vec()).await {
            Ok(()) => return Ok(()),
            Err(Refusal::ForGood(reason)) => return Err(reason),
            Err(Refusal::ForNow(reason)) => reason,
        };
        let Some(pause) = pauses.next() else { return Err(reason) };
        tokio::time::sleep(pause).await;
    }
}

async fn attempt(client: &Client, address: &str, line: Vec<u8>) -> Result<(), Refusal> {
    let request = client.post(address).body(line);
    let request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    match request.send().await {
        Ok(answer) => judge(answer.status()),
        // An address that is none, and what can't be a request.
        Err(error) if error.is_builder() => Err(Refusal::ForGood(cause(&error.without_url()))),
        Err(error) if error.is_timeout() => Err(Refusal::ForNow("no answer in time".to_owned())),
        Err(error) => Err(Refusal::ForNow(cause(&error.without_url()))),
    }
}

fn judge(status: StatusCode) -> Result<(), Refusal> {
    let reason = format!("it answers {status}");
    match status {
        status if status.is_success() => Ok(()),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => Err(Refusal::ForNow(reason)),
        status if status.is_server_error() => Err(Refusal::ForNow(reason)),
        _ => Err(Refusal::ForGood(reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_tried_again() {
        let of = |code: u16| judge(StatusCode::from_u16(code).unwrap());
        for code in [200, 202, 204] {
            of(code).unwrap();
        }
        for code in [408, 429, 500, 503] {
            assert!(matches!(of(code), Err(Refusal::ForNow(_))), "{code}");
        }
        for code in [301, 400, 403, 404] {
            assert!(matches!(of(code), Err(Refusal::ForGood(_))), "{code}");
        }
    }

    #[test]
    fn all_attempts_end_before_they_are_ended() {
        let attempts = u32::try_from(PAUSES.len() + 1).unwrap();
        let longest = ATTEMPT * attempts + PAUSES.iter().sum::<Duration>();
        assert!(longest < super::super::queue::LIMIT, "{longest:?}");
    }
}
