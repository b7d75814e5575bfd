//! A member that keeps to no rule: a client of the wire protocol, run inside a node. It says what came of each attack in a
//! line of JSON.

mod keys;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use protocol::agent::{CheckpointNumber, CommitRecord, ImageSummary, InstanceId};
use protocol::cluster::agent::{
    FromAgent, JobTraffic, JobUser, NodeProfile, Peer, Takes, ToAgent, Vitals,
};
use protocol::cluster::client::{Answer, Ask, LogPlace, RestartRequest, RunRequest};
use protocol::cluster::grant::{Grant, Scope};
use protocol::cluster::image_key::ImageKeys;
use protocol::cluster::look::Look;
use protocol::cluster::peer::{ImageFile, PeerMessage};
use protocol::cluster::powers::Powers;
use protocol::cluster::settings::JobSettings;
use protocol::cluster::{InstanceKey, NodeName, VERSIONS};
use protocol::launch::LaunchSpec;
use protocol::transport::{Connection, Identity, Sealer, Successor, Token, TransportError};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{sleep, timeout};

use super::outcome::{Line, Outcome, worst};
use super::stranger::false_coordinator;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// From one heartbeat to the next.
const BEAT: Duration = Duration::from_millis(300);

/// What it attacks.
#[derive(Debug, Clone, Args)]
pub struct Target {
    /// Where its identity is kept
    #[arg(long)]
    folder: PathBuf,
    /// The token with which it joins
    #[arg(long)]
    token: String,
    /// Its name
    #[arg(long)]
    name: NodeName,
    /// Its role: which attacks are tried
    #[arg(long)]
    role: String,
    /// The node that holds the image
    #[arg(long)]
    victim: NodeName,
    /// The job's id
    #[arg(long)]
    job: String,
    /// The job's user
    #[arg(long)]
    owner: String,
    /// The checkpoint
    #[arg(long)]
    checkpoint: CheckpointNumber,
    /// Keys that it has
    #[command(flatten)]
    keys: keys::Keys,
}

/// Tries everything that a member of that role could try.
pub fn run(target: &Target) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let token: Token = target.token.parse()?;
        let identity = match Identity::load(&target.folder)? {
            Some(known) => known,
            None => Identity::join(&target.folder, &token, &target.name).await?,
        };
        let mut attacker = Attacker::connect(identity, target.clone()).await?;
        match target.role.as_str() {
            "worker" => attacker.as_worker().await,
            "login" => attacker.as_login().await,
            // Until it is turned out, it is a member like others.
            "turned-out" => attacker.until_turned_out().await?,
            "packets" => attacker.send_packets().await?,
            "none" => {}
            other => return Err(format!("no attacks are known of {other}").into()),
        }
        Ok(())
    })
}

fn say(id: &str, outcome: Outcome) {
    match serde_json::to_string(&Line::new(id, outcome)) {
        Ok(line) => println!("{line}"),
        Err(error) => eprintln!("attack: {id}: {error}"),
    }
}

type PeerConnection = Connection<PeerMessage, PeerMessage>;

/// Everybody who is there.
type Known = Arc<Mutex<BTreeMap<NodeName, Peer>>>;

pub(super) struct Attacker {
    pub(super) identity: Identity,
    /// Its address.
    pub(super) own: std::net::IpAddr,
    target: Target,
    peers: Known,
    orders: Sender<FromAgent>,
    answers: Receiver<Answer>,
    /// Keys of images that orders have brought.
    keys: Arc<Mutex<Vec<ImageKeys>>>,
    next_client: u64,
}

impl Attacker {
    /// As a member that takes no jobs; its heartbeats go on beside what it does.
    async fn connect(identity: Identity, target: Target) -> Result<Self, TransportError> {
        let link = identity.connect_coordinator().await?;
        let own = link.local.ip().to_canonical();
        // One that encrypts jobs' traffic, so to say, may send packets.
        let traffic = (target.role == "packets").then_some(JobTraffic { port: 9 });
        let hello = hello(std::net::SocketAddr::new(own, 9), traffic);
        let (mut sender, mut receiver) = link.split();
        sender.send(&hello, &[]).await?;
        let (orders, mut waiting) = channel::<FromAgent>(16);
        let (say, answers) = channel(16);
        let peers = Known::default();
        let told = peers.clone();
        let keys = Arc::<Mutex<Vec<ImageKeys>>>::default();
        let told_keys = keys.clone();
        let newest = Arc::<AtomicU64>::default();
        let heard = newest.clone();
        tokio::spawn(async move {
            let mut sequence = 0;
            loop {
                let message = tokio::select! {
                    Some(message) = waiting.recv() => message,
                    () = sleep(BEAT) => {
                        sequence += 1;
                        let answered = Some(newest.load(Ordering::Relaxed));
                        FromAgent::Heartbeat { sequence, answered, vitals: Vitals::default() }
                    }
                };
                if sender.send(&message, &[]).await.is_err() {
                    return;
                }
            }
        });
        tokio::spawn(async move {
            while let Ok(Some((message, _))) = receiver.receive().await {
                let mut known = told.lock().unwrap_or_else(PoisonError::into_inner);
                match message {
                    ToAgent::Heard { sequence } => heard.store(sequence, Ordering::Relaxed),
                    ToAgent::Peers { peers, .. } => {
                        known.extend(peers.iter().map(|peer| (peer.name.clone(), peer.clone())));
                    }
                    ToAgent::PeersChanged { there, .. } => {
                        known.extend(there.into_iter().map(|peer| (peer.name.clone(), peer)));
                    }
                    ToAgent::Granted { keys, .. } => {
                        told_keys.lock().unwrap_or_else(PoisonError::into_inner).extend(keys);
                    }
                    ToAgent::Client { line: Some(line), .. } => {
                        drop(known);
                        if let Ok(answer) = serde_json::from_str(&line) {
                            // Nobody may wait for it any more.
                            let _ = say.send(answer).await;
                        }
                    }
                    _ => {}
                }
            }
        });
        Ok(Self { identity, own, target, peers, orders, answers, keys, next_client: 1 })
    }

    /// The victim, and another member that encrypts jobs' traffic, once they are known.
    pub(super) async fn two_members(&self) -> (Peer, Peer) {
        loop {
            {
                let known = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
                let victim = known.get(&self.target.victim);
                let other = known.values().find(|peer| {
                    let is_another =
                        ![&self.target.victim, &self.target.name].contains(&&peer.name);
                    is_another && peer.job_traffic.is_some()
                });
                if let (Some(victim), Some(other)) = (victim, other) {
                    return (victim.clone(), other.clone());
                }
            }
            sleep(BEAT).await;
        }
    }

    /// Has the coordinator asked in a user's name.
    async fn ask_as(&mut self, user: &str, ask: Ask) -> Outcome {
        let client = self.next_client;
        self.next_client += 1;
        let uid = if user == "root" { 0 } else { 65534 };
        let user = JobUser { uid, name: user.to_owned() };
        let mut messages = vec![FromAgent::ClientOpened { client, user }];
        for ask in [Ask::Hello { version: VERSIONS }, ask] {
            match serde_json::to_string(&ask) {
                Ok(line) => messages.push(FromAgent::ClientLine { client, line }),
                Err(error) => return Outcome::NotTried(error.to_string()),
            }
        }
        for message in messages {
            if self.orders.send(message).await.is_err() {
                return Outcome::Refused("the coordinator has closed the connection".to_owned());
            }
        }
        match timeout(PATIENCE, self.answers.recv()).await {
            Ok(Some(Answer::Failed { reason, .. })) => Outcome::Refused(reason),
            Ok(Some(answer)) => Outcome::Succeeded(format!("{answer:?}")),
            Ok(None) => Outcome::Refused("the coordinator has closed the connection".to_owned()),
            Err(_) => Outcome::NotTried("there was no answer".to_owned()),
        }
    }

    /// All that may be ordered about a job.
    async fn order_all(&mut self, user: &str) -> Outcome {
        let job = self.target.job.clone();
        let mut outcomes = Vec::new();
        let asks = [
            Ask::Status { job: None },
            Ask::Status { job: Some(job.clone()) },
            Ask::Jobs,
            Ask::Checkpoint { job: job.clone() },
            Ask::Attach { job: job.clone(), window: None, shown: None },
            Ask::Log { job: job.clone(), from: LogPlace::default(), times: true },
            Ask::LogSince { job: job.clone(), at_ms: 0 },
            Ask::Events { job: job.clone(), known: Some(0) },
            Ask::Note { job: job.clone(), text: "forged".into() },
            Ask::Stop { job: job.clone(), checkpoint: false },
            Ask::Restart(Box::new(RestartRequest {
                job: job.clone(),
                checkpoint: None,
                force: true,
                settings: None,
                window: None,
                detach: true,
            })),
            Ask::Remove { job },
        ];
        for ask in asks {
            outcomes.push(self.ask_as(user, ask).await);
        }
        worst(outcomes)
    }

    async fn as_worker(&mut self) {
        let owner = self.target.owner.clone();
        let victim = self.target.victim.clone();
        say("orders-as-root", self.order_all("root").await);
        say("orders-as-owner", self.order_all(&owner).await);
        let request = RunRequest {
            name: None,
            launch: LaunchSpec::through_pipes(vec!["id".into()], "/".into()),
            settings: JobSettings::default(),
            detach: true,
            anywhere: false,
        };
        say("runs-as-owner", self.ask_as(&owner, Ask::Run(Box::new(request))).await);
        say("removes-member", self.ask_as("root", Ask::RemoveNode { node: victim.clone() }).await);
        say("sends-away", self.ask_as("root", Ask::Leave { node: Some(victim) }).await);
        let standby = Ask::Standby { node: self.target.name.clone(), on: true };
        say("names-standby", self.ask_as("root", standby).await);
        say("makes-token", self.ask_as("root", token()).await);
        say("reads-audit", self.ask_as("root", Ask::Audit { from: 0 }).await);
        self.keys().await;
        self.images().await;
        say("asks-for-key", self.ask_for_key(&owner).await);
        say("told-key", self.told_key());
        say("poses-as-coordinator", self.pose().await);
    }

    /// What only whoever may read the images is told.
    async fn ask_for_key(&mut self, owner: &str) -> Outcome {
        let mut outcomes = Vec::new();
        for user in [owner, "root"] {
            let job = self.target.job.clone();
            let portable = Ask::Portable { job: job.clone(), checkpoint: None, stays: false };
            let inspect = Ask::Look { job, checkpoint: None, look: Look::Inspect };
            for ask in [portable, inspect] {
                outcomes.push(self.ask_as(user, ask).await);
            }
        }
        worst(outcomes)
    }

    fn told_key(&self) -> Outcome {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        match keys.first() {
            Some(keys) => Outcome::Succeeded(format!("the key of {}", keys.job)),
            None => Outcome::Refused("no order has brought one".to_owned()),
        }
    }

    async fn as_login(&mut self) {
        let (owner, victim) = (self.target.owner.clone(), self.target.victim.clone());
        let remove = Ask::RemoveNode { node: victim.clone() };
        say("login-removes-member", self.ask_as("root", remove).await);
        let leave = Ask::Leave { node: Some(victim) };
        say("login-sends-away", self.ask_as("root", leave).await);
        let standby = Ask::Standby { node: self.target.name.clone(), on: true };
        say("login-names-standby", self.ask_as("root", standby).await);
        say("login-makes-token", self.ask_as("root", token()).await);
        say("login-for-named", self.order_all(&owner).await);
    }

    async fn until_turned_out(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        let fetch = self.fetch(None);
        let mut link = self.dial().await?;
        println!("member");
        // The harness makes this when it has had it turned out.
        while !self.target.folder.join("turned-out").exists() {
            sleep(Duration::from_millis(50)).await;
        }
        let outcome = match link.sender.send(&fetch, &[]).await {
            Ok(()) => heard(&mut link).await,
            Err(error) => Outcome::Refused(error.to_string()),
        };
        say("gone-fetch", outcome);
        let again = self.identity.connect_coordinator().await;
        say("gone-coordinator", of_connection(again.map(drop)));
        let peer = self.peer()?;
        let dialed = self.identity.connect_peer(&peer.name, peer.address, &peer.key).await;
        let outcome = match dialed {
            Ok(mut link) => {
                // TLS lets the client believe that it was let in until it hears something.
                let _ = link.sender.send(&PeerMessage::Hello { version: VERSIONS }, &[]).await;
                let _ = link.sender.send(&fetch, &[]).await;
                heard(&mut link).await
            }
            Err(error) => Outcome::Refused(error.to_string()),
        };
        say("gone-peer", outcome);
        Ok(())
    }

    fn peer(&self) -> Result<Peer, String> {
        let known = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let victim = &self.target.victim;
        known.get(victim).cloned().ok_or_else(|| format!("{victim} is not known"))
    }

    /// A connection to the victim's agent, greeted.
    async fn dial(&self) -> Result<PeerConnection, Box<dyn std::error::Error>> {
        for _ in 0..50 {
            if self.peer().is_ok() {
                break;
            }
            sleep(Duration::from_millis(100)).await;
        }
        let peer = self.peer()?;
        // Its agent may hear of this member a moment later.
        let mut last = None;
        for _ in 0..20 {
            match self.identity.connect_peer(&peer.name, peer.address, &peer.key).await {
                Ok(mut link) => {
                    link.sender.send(&PeerMessage::Hello { version: VERSIONS }, &[]).await?;
                    return Ok(link);
                }
                Err(error) => last = Some(error),
            }
            sleep(Duration::from_millis(100)).await;
        }
        Err(last.map_or_else(|| "no try".to_owned(), |error| error.to_string()).into())
    }

    async fn send(&self, message: PeerMessage) -> Outcome {
        match self.dial().await {
            Ok(mut link) => match link.sender.send(&message, &[]).await {
                Ok(()) => heard(&mut link).await,
                Err(error) => Outcome::Refused(error.to_string()),
            },
            Err(error) => Outcome::NotTried(error.to_string()),
        }
    }

    fn key(&self) -> InstanceKey {
        InstanceKey { job: self.target.job.clone(), epoch: 1, instance: InstanceId(1) }
    }

    fn fetch(&self, grant: Option<Box<Grant>>) -> PeerMessage {
        let (job, checkpoint) = (self.target.job.clone(), self.target.checkpoint);
        PeerMessage::Fetch { transfer: 1, job, instance: InstanceId(1), checkpoint, grant }
    }

    /// One that this member has sealed with its own key.
    fn forged(&self, scope: Scope) -> Option<Box<Grant>> {
        let sealer = Sealer::new(&self.identity.credentials()).ok()?;
        Grant::new(scope, u64::MAX / 4, &sealer).ok().map(Box::new)
    }

    async fn images(&self) {
        let Target { victim, job, checkpoint, name, .. } = &self.target;
        say("fetch-ungranted", self.send(self.fetch(None)).await);
        let scope = Scope::fetch(job, (InstanceId(1), *checkpoint), victim, name);
        say("fetch-forged", self.send(self.fetch(self.forged(scope))).await);
        let offer = |grant| PeerMessage::Offer {
            transfer: 1,
            key: self.key(),
            checkpoint: *checkpoint + 1000,
            files: vec![ImageFile { path: "packs/00000000000a.tar".to_owned(), length: 10 }],
            grant,
        };
        say("offer-ungranted", self.send(offer(None)).await);
        let scope = Scope::offer(&self.key(), name, victim);
        say("offer-forged", self.send(offer(self.forged(scope))).await);
        let (key, record) = (self.key(), record(job, *checkpoint + 1000));
        say("commit-ungranted", self.send(PeerMessage::Commit { key, record, grant: None }).await);
    }

    /// Tells an agent that it is the coordinator now.
    async fn pose(&self) -> Outcome {
        let peer = match self.peer() {
            Ok(peer) => peer,
            Err(error) => return Outcome::NotTried(error),
        };
        let successor = match Successor::new(&self.identity.credentials(), false_coordinator()) {
            Ok(successor) => successor,
            Err(error) => return Outcome::NotTried(error.to_string()),
        };
        match successor.connect_agent(&peer.name, peer.address).await {
            Ok(mut link) => match timeout(PATIENCE, link.receiver.receive()).await {
                Ok(Ok(Some(message))) => Outcome::Succeeded(format!("{message:?}")),
                Ok(Ok(None) | Err(_)) => Outcome::Refused("the connection was closed".to_owned()),
                Err(_) => {
                    Outcome::Succeeded("it waits for the new coordinator's orders".to_owned())
                }
            },
            Err(error) => Outcome::Refused(error.to_string()),
        }
    }
}

/// What an agent answers.
async fn heard(link: &mut PeerConnection) -> Outcome {
    match timeout(PATIENCE, link.receiver.receive()).await {
        Ok(Ok(Some((PeerMessage::TransferFailed { reason, .. }, _)))) => Outcome::Refused(reason),
        Ok(Ok(Some((message, _)))) => Outcome::Succeeded(format!("{message:?}")),
        Ok(Ok(None)) => Outcome::Refused("the connection was closed".to_owned()),
        Ok(Err(error)) => Outcome::Refused(error.to_string()),
        Err(_) => Outcome::NotTried("there was no answer".to_owned()),
    }
}

fn of_connection(made: Result<(), TransportError>) -> Outcome {
    match made {
        Ok(()) => Outcome::Succeeded("it was let in".to_owned()),
        Err(error) => Outcome::Refused(error.to_string()),
    }
}

fn token() -> Ask {
    Ask::Token { uses: 1, valid_s: 60, powers: Powers::of_all_users(true) }
}

fn record(job: &str, checkpoint: CheckpointNumber) -> CommitRecord {
    CommitRecord {
        format: CommitRecord::FORMAT,
        job: job.to_owned(),
        checkpoint,
        restored_from: None,
        taken_at_ms: 1,
        committed_at_ms: 2,
        pause_us: 3,
        log_length: 0,
        copies: 1,
        degraded: false,
        suspended: false,
        summary: ImageSummary::default(),
        agents: vec![InstanceId(1)].into(),
    }
}

/// A machine that takes no jobs.
fn hello(address: std::net::SocketAddr, job_traffic: Option<JobTraffic>) -> FromAgent {
    let profile = NodeProfile {
        address,
        addresses: Vec::new(),
        slots: 0,
        spare: false,
        cores: 1,
        speed: Some(1.0),
        speed_all: None,
        capacity: None,
        speed_given: false,
        architecture: std::env::consts::ARCH.to_owned(),
        page_size: 4096,
        vdso: String::new(),
        features: Vec::new(),
        memory_top: 0,
        memory: 1 << 30,
        kernel: "6.1".to_owned(),
        owner: None,
        takes: Takes::default(),
        allow_root: false,
        job_traffic,
        started_ms: 1,
        version: String::new(),
    };
    let (instances, holdings) = (Vec::new(), Vec::new());
    FromAgent::Hello { version: VERSIONS, term: 0, followed: None, profile, instances, holdings }
}
