//! Somebody on the network who is no member: run inside a node.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use protocol::cluster::NodeName;
use protocol::cluster::succession::Followed;
use protocol::transport::{
    Authority, Credentials, Fingerprint, Identity, Role, Secret, Successor, Token, TransportError,
};

use super::outcome::{Line, Outcome};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is attacked.
#[derive(Debug, Clone, Args)]
pub struct Target {
    /// A folder for what is made up
    #[arg(long)]
    folder: PathBuf,
    /// A token that is used up
    #[arg(long)]
    token: String,
    /// The cluster's authority's certificate, PEM: it is no secret
    #[arg(long, allow_hyphen_values = true)]
    authority: String,
    /// The fingerprint of the member's key: neither is that
    #[arg(long)]
    key: String,
    /// A member
    #[arg(long)]
    victim: NodeName,
    /// Its agent's address
    #[arg(long)]
    address: SocketAddr,
}

/// Tries everything that a stranger could try.
pub fn run(target: &Target) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(attack(target))
}

async fn attack(target: &Target) -> Result<(), Box<dyn std::error::Error>> {
    let token: Token = target.token.parse()?;
    let coordinator = token.addresses.first().ok_or("the token has no address")?;
    say("plain-coordinator", plain(coordinator, b"GET / HTTP/1.1\r\n\r\n"))?;
    say("plain-agent", plain(&target.address.to_string(), b"GET / HTTP/1.1\r\n\r\n"))?;
    // What is said to come of it is looked for in the log by the harness.
    plain(coordinator, b"x\r\n2026-01-01T00:00:00Z ERROR forged by a stranger\r\n\x1b[2J\r\n\r\n");

    std::fs::create_dir_all(&target.folder)?;
    let own = Authority::open(&target.folder)?;
    let credentials = |role: &Role| -> Result<Credentials, TransportError> {
        // They believe the true authority, as members do: it is they who are to be believed.
        own.issue(role)?.trusting(&target.authority)
    };
    let name = &target.victim;
    let member = credentials(&Role::Agent(name.clone()))?;
    let member = Identity::with_credentials(name.clone(), member, token.addresses.clone())?;
    let connected = member.connect_coordinator().await;
    say("foreign-member", of(connected.map(drop)))?;
    let key: Fingerprint = serde_json::from_str(&target.key)?;
    let peer = member.connect_peer(name, target.address, &key).await;
    say("foreign-peer", of(peer.map(drop)))?;
    let successor = Successor::new(&credentials(&Role::Coordinator)?, false_coordinator())?;
    let shown = successor.connect_agent(name, target.address).await;
    say("foreign-coordinator", of(shown.map(drop)))?;

    let joined = Identity::join(&target.folder.join("used"), &token, &"new".parse()?).await;
    say("used-token", of(joined.map(drop)))?;
    let mut guessed = token;
    guessed.secret = Secret::claimed("AAAAAAAAAAAAAAAAAAAAAA");
    let joined = Identity::join(&target.folder.join("guessed"), &guessed, &"new".parse()?).await;
    say("guessed-token", of(joined.map(drop)))?;
    Ok(())
}

/// A coordinator that there is not, of a higher term than any.
pub fn false_coordinator() -> Followed {
    let addresses = vec!["127.0.0.1:1".to_owned()];
    Followed { term: 1_000_000, claim: "mine".to_owned(), addresses, seal: None }
}

fn say(id: &str, outcome: Outcome) -> Result<(), serde_json::Error> {
    println!("{}", serde_json::to_string(&Line::new(id, outcome))?);
    Ok(())
}

fn of<E: std::fmt::Display>(made: Result<(), E>) -> Outcome {
    match made {
        Ok(()) => Outcome::Succeeded("it was let in".to_owned()),
        Err(error) => Outcome::Refused(error.to_string()),
    }
}

/// What comes of words without TLS.
fn plain(address: &str, words: &[u8]) -> Outcome {
    let talk = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(words)?;
        let mut answer = Vec::new();
        // A reset is an answer, too.
        let _ = stream.read_to_end(&mut answer);
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    match talk() {
        Ok(answer) if answer.is_empty() || answer.contains("refused") => {
            Outcome::Refused(format!("{:?}", answer.trim()))
        }
        Ok(answer) => Outcome::Succeeded(answer),
        Err(error) => Outcome::NotTried(error.to_string()),
    }
}
