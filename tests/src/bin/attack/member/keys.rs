//! What a member tries with keys by which users prove who they are.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use protocol::cluster::VERSIONS;
use protocol::cluster::agent::{FromAgent, JobUser};
use protocol::cluster::client::{Answer, Ask};
use protocol::cluster::login::{NAMESPACE, Statement};
use tokio::time::timeout;

use super::{Attacker, Outcome, PATIENCE, say, worst};

/// Statements that are asked for at once.
const FLOOD: usize = 300;
/// Those that one member's users may be signing.
const MOST: usize = 64;
/// Bytes of a key, and of a signature.
const HUGE: usize = 8 * 1024 * 1024;

/// The account by which the attacker logs in.
const ACCOUNT: u32 = 4000;

/// A key of a user that the attacker has, as somebody may who has stolen it; and one of which nobody knows.
#[derive(Debug, Clone, clap::Args)]
pub struct Keys {
    /// A key that the cluster knows
    #[arg(long)]
    key: Option<PathBuf>,
    /// Whose it is
    #[arg(long)]
    key_user: Option<String>,
    /// A key of which the cluster knows nothing
    #[arg(long)]
    unknown_key: Option<PathBuf>,
    /// The account by which the owner has logged in at another member
    #[arg(long)]
    logged_in_from: Option<u32>,
}

/// What is signed instead of what was to be.
type Change = Box<dyn Fn(&mut Statement)>;

/// What `ssh-keygen` signs with that key.
fn sign(key: &PathBuf, statement: &Statement) -> Result<Ask, String> {
    let made = || -> std::io::Result<Vec<u8>> {
        let mut signer = Command::new("ssh-keygen")
            .args(["-q", "-Y", "sign", "-n", NAMESPACE, "-f"])
            .arg(key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        if let Some(mut input) = signer.stdin.take() {
            input.write_all(statement.text().as_bytes())?;
        }
        Ok(signer.wait_with_output()?.stdout)
    };
    let signature = made().map_err(|error| error.to_string())?;
    String::from_utf8(signature)
        .map(|signature| Ask::Prove { signature })
        .map_err(|error| error.to_string())
}

fn of_answer(answer: Result<Answer, String>) -> Outcome {
    match answer {
        Ok(Answer::Failed { reason, .. }) => Outcome::Refused(reason),
        Ok(answer) => Outcome::Succeeded(format!("{answer:?}")),
        Err(reason) => Outcome::NotTried(reason),
    }
}

impl Attacker {
    /// All that is tried; where no keys are given, nothing.
    pub(super) async fn keys(&mut self) {
        let Keys { key, key_user, unknown_key, .. } = self.target.keys.clone();
        let (Some(key), Some(user), Some(unknown)) = (key, key_user, unknown_key) else { return };
        let owner = self.target.owner.clone();
        say("key-unknown", self.proves(&owner, &unknown, |_| {}).await);
        say("key-of-another", self.proves(&owner, &key, |_| {}).await);
        let victim = self.target.victim.clone();
        let changes: [Change; 4] = [
            Box::new(move |statement| statement.member = victim.clone()),
            Box::new(|statement| statement.account += 1),
            Box::new(move |statement| statement.user.clone_from(&owner)),
            Box::new(|statement| statement.until_ms += 1),
        ];
        let mut outcomes = Vec::new();
        for change in changes {
            outcomes.push(self.proves(&user, &key, change).await);
        }
        say("key-elsewhere", worst(outcomes));
        say("key-adds", self.adds_keys(&user, &key).await);
        say("key-replayed", self.replays(&user, &key).await);
        say("login-claimed", self.claims().await);
        say("key-huge", self.sends_huge(&user).await);
        say("key-flood", self.floods(&user).await);
    }

    /// A connection of that account.
    async fn opens(&mut self, uid: u32) -> Result<u64, String> {
        self.opens_as(JobUser { uid, name: format!("account{uid}") }).await
    }

    async fn opens_as(&mut self, user: JobUser) -> Result<u64, String> {
        let client = self.next_client;
        self.next_client += 1;
        self.send_order(FromAgent::ClientOpened { client, user }).await?;
        self.tells(client, &Ask::Hello { version: VERSIONS }).await?;
        Ok(client)
    }

    async fn send_order(&mut self, message: FromAgent) -> Result<(), String> {
        self.orders.send(message).await.map_err(|error| error.to_string())
    }

    async fn tells(&mut self, client: u64, ask: &Ask) -> Result<(), String> {
        let line = serde_json::to_string(ask).map_err(|error| error.to_string())?;
        self.send_order(FromAgent::ClientLine { client, line }).await
    }

    async fn hears(&mut self) -> Result<Answer, String> {
        match timeout(PATIENCE, self.answers.recv()).await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err("the connection was closed".to_owned()),
            Err(_) => Err("there was no answer".to_owned()),
        }
    }

    async fn asks(&mut self, client: u64, ask: &Ask) -> Result<Answer, String> {
        self.tells(client, ask).await?;
        self.hears().await
    }

    /// A statement to be signed, for a login as that user.
    async fn challenged(&mut self, user: &str) -> Result<(u64, Statement), String> {
        let client = self.opens(ACCOUNT).await?;
        let ask = Ask::Login { user: user.to_owned(), valid_s: 600 };
        match self.asks(client, &ask).await? {
            Answer::Challenge { statement } => Ok((client, *statement)),
            other => Err(format!("no statement is to be signed: {other:?}")),
        }
    }

    /// Logs in with the signature of another statement than the one that was to be signed.
    async fn proves(
        &mut self,
        user: &str,
        key: &PathBuf,
        change: impl Fn(&mut Statement),
    ) -> Outcome {
        let (client, mut statement) = match self.challenged(user).await {
            Ok(challenged) => challenged,
            Err(reason) => return Outcome::NotTried(reason),
        };
        change(&mut statement);
        match sign(key, &statement) {
            Ok(proof) => of_answer(self.asks(client, &proof).await),
            Err(reason) => Outcome::NotTried(reason),
        }
    }

    /// A signature that has counted, once more: for a login as the same user after that one has ended.
    async fn replays(&mut self, user: &str, key: &PathBuf) -> Outcome {
        match self.try_replay(user, key).await {
            Ok(outcome) => outcome,
            Err(reason) => Outcome::NotTried(reason),
        }
    }

    async fn try_replay(&mut self, user: &str, key: &PathBuf) -> Result<Outcome, String> {
        let (client, statement) = self.challenged(user).await?;
        let proof = sign(key, &statement)?;
        match self.asks(client, &proof).await? {
            Answer::Done { .. } => {}
            other => return Err(format!("the first one did not count: {other:?}")),
        }
        let client = self.opens(ACCOUNT).await?;
        self.asks(client, &Ask::Logout { all: false }).await?;
        let client = self.opens(ACCOUNT).await?;
        let unasked = of_answer(self.asks(client, &proof).await);
        let (client, _) = self.challenged(user).await?;
        Ok(worst([unasked, of_answer(self.asks(client, &proof).await)]))
    }

    /// Has keys of its own known: without a login, and by one, for that user and others; and orders by that login what its
    /// user may not.
    async fn adds_keys(&mut self, user: &str, key: &PathBuf) -> Outcome {
        match self.try_adding(user, key).await {
            Ok(outcome) => outcome,
            Err(reason) => Outcome::NotTried(reason),
        }
    }

    async fn try_adding(&mut self, user: &str, key: &PathBuf) -> Result<Outcome, String> {
        let public = std::fs::read_to_string(key.with_extension("pub"));
        let public = public.map_err(|error| error.to_string())?;
        let mut asks = Vec::new();
        for user in [None, Some(user.to_owned()), Some(self.target.owner.clone())] {
            asks.push(Ask::AddKey { user, key: public.clone() });
        }
        let mut outcomes = Vec::new();
        for ask in &asks {
            let client = self.opens(ACCOUNT).await?;
            outcomes.push(of_answer(self.asks(client, ask).await));
        }
        let (client, statement) = self.challenged(user).await?;
        match self.asks(client, &sign(key, &statement)?).await? {
            Answer::Done { .. } => {}
            other => return Err(format!("there is no login: {other:?}")),
        }
        let job = self.target.job.clone();
        asks.extend([
            Ask::Stop { job: job.clone(), checkpoint: false },
            Ask::Status { job: Some(job) },
            Ask::RemoveNode { node: self.target.victim.clone() },
            Ask::Audit { from: 0 },
        ]);
        for ask in &asks {
            let client = self.opens(ACCOUNT).await?;
            outcomes.push(of_answer(self.asks(client, ask).await));
        }
        let client = self.opens(ACCOUNT).await?;
        self.asks(client, &Ask::Logout { all: false }).await?;
        Ok(worst(outcomes))
    }

    /// Orders by the login that the owner has at another member.
    async fn claims(&mut self) -> Outcome {
        let Some(account) = self.target.keys.logged_in_from else {
            return Outcome::NotTried("nobody has logged in".to_owned());
        };
        let job = self.target.job.clone();
        let mut outcomes = Vec::new();
        for ask in [Ask::Jobs, Ask::Stop { job, checkpoint: false }] {
            let outcome = match self.opens_as(JobUser::of(account)).await {
                Ok(client) => of_answer(self.asks(client, &ask).await),
                Err(reason) => Outcome::NotTried(reason),
            };
            outcomes.push(outcome);
        }
        worst(outcomes)
    }

    async fn sends_huge(&mut self, user: &str) -> Outcome {
        let huge = "A".repeat(HUGE);
        let key = Ask::AddKey { user: None, key: format!("ssh-ed25519 {huge}") };
        let adds = match self.opens(ACCOUNT).await {
            Ok(client) => of_answer(self.asks(client, &key).await),
            Err(reason) => Outcome::NotTried(reason),
        };
        let proves = match self.challenged(user).await {
            Ok((client, _)) => of_answer(self.asks(client, &Ask::Prove { signature: huge }).await),
            Err(reason) => Outcome::NotTried(reason),
        };
        worst([adds, proves])
    }

    /// Asks for more statements than anybody could sign.
    async fn floods(&mut self, user: &str) -> Outcome {
        let mut challenges = 0;
        let mut last = String::new();
        for number in 0..FLOOD {
            let account = ACCOUNT + u32::try_from(number).unwrap_or_default();
            let ask = Ask::Login { user: user.to_owned(), valid_s: 600 };
            let answer = match self.opens(account).await {
                Ok(client) => self.asks(client, &ask).await,
                Err(reason) => Err(reason),
            };
            match answer {
                Ok(Answer::Challenge { .. }) => challenges += 1,
                Ok(Answer::Failed { reason, .. }) => last = reason,
                other => return Outcome::NotTried(format!("{other:?}")),
            }
        }
        match challenges <= MOST && !last.is_empty() {
            true => Outcome::Refused(last),
            false => Outcome::Succeeded(format!("{challenges} statements")),
        }
    }
}
