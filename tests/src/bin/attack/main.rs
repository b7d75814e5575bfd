//! Attacks on a cluster of namespaces, each of which must be refused: by strangers, members of each role, one that was
//! turned out, users of members, and jobs. Strangers and members are clients of the wire protocol that keep to no rule.

mod local;
mod member;
mod outcome;
mod packets;
mod page;
mod partner;
mod stranger;
mod table;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use ckptd_tests::cluster::Background;
use ckptd_tests::cluster::ckptd::{Ckptd, Setup};
use ckptd_tests::cluster::suite::Stage;
use ckptd_tests::job::Failure;
use ckptd_tests::workspace::Workspace;
use clap::{Parser, Subcommand};
use protocol::transport::Identity;

use outcome::{Line, Outcome};
use table::{ATTACKS, Attack};

/// How long an attacker may take to its end.
const LIMIT: Duration = Duration::from_secs(120);
/// The name of a member that attacks.
const ATTACKER: &str = "attacker";
/// The job's user: by number and name, as all nodes have them.
const OWNER: (&str, &str) = ("65534", "nobody");

/// A user whose key the attacker has.
const KEY_USER: &str = "daemon";
/// That key on the attacker's machine; and the owner's on another one.
const KEY: &str = "/tmp/key";
/// A key of which the cluster knows nothing.
const UNKNOWN_KEY: &str = "/tmp/unknown-key";
/// The account by which the owner has logged in on the second member.
const LOGIN_ACCOUNT: &str = "2";

/// Attacks a cluster, and expects to be refused.
#[derive(Parser)]
struct Options {
    /// Print the table of the threat model instead
    #[arg(long)]
    matrix: bool,
    #[command(subcommand)]
    role: Option<InNode>,
}

/// What runs inside of a node.
#[derive(Subcommand)]
enum InNode {
    /// Somebody who is no member
    Stranger(stranger::Target),
    /// A member that keeps to no rule
    Member(member::Target),
    /// Somebody who shows what arrives at a member
    Listener(packets::Listener),
}

fn main() -> ExitCode {
    let options = Options::parse();
    let result = match &options.role {
        Some(InNode::Stranger(target)) => stranger::run(target).map(|()| true),
        Some(InNode::Member(target)) => member::run(target).map(|()| true),
        Some(InNode::Listener(listener)) => packets::listen(listener).map(|()| true),
        None if options.matrix => {
            print!("{}", table::matrix());
            Ok(true)
        }
        None => attack().map_err(Into::into),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("attack: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether all was refused.
fn attack() -> Result<bool, Failure> {
    let workspace = Workspace::new().map_err(|error| Failure(error.to_string()))?;
    let matrix = workspace.repository.join("docs/src/attacks.md");
    let shown = std::fs::read_to_string(&matrix).unwrap_or_default();
    if !shown.contains(&table::matrix()) {
        return Err(Failure(format!("{} is not as `attack --matrix` has it", matrix.display())));
    }
    let stage = Stage::new(&workspace)?;
    let ckptd = stage.cluster_of(Setup {
        agents: 2,
        encrypting: [1, 2].into(),
        http: Some(page::PORT),
        ..Setup::new(3)
    })?;
    let mut outcomes = BTreeMap::new();
    let done = Field::new(&ckptd).and_then(|mut field| {
        let fought = field.fight(&mut outcomes);
        fought.map_err(|failure| ckptd.explain(&failure))
    });
    if let Err(failure) = &done {
        eprintln!("{failure}");
    }
    for Attack { id, who, what } in ATTACKS {
        match outcomes.get(*id) {
            Some(Outcome::Refused(reason)) => println!("refused {id}: {reason}"),
            Some(Outcome::Succeeded(how)) => println!("SUCCEEDED {id}: {who}, {what}: {how}"),
            Some(Outcome::NotTried(why)) => println!("NOT TRIED {id}: {why}"),
            None => println!("NOT TRIED {id}"),
        }
    }
    let unknown = outcomes.keys().find(|id| !ATTACKS.iter().any(|attack| attack.id == **id));
    if let Some(unknown) = unknown {
        return Err(Failure(format!("{unknown} is in no table")));
    }
    if done.is_err() {
        return Ok(false);
    }
    let refused = |attack: &&Attack| matches!(outcomes.get(attack.id), Some(Outcome::Refused(_)));
    let refused = ATTACKS.iter().filter(refused).count();
    println!("{refused} passed, {} failed", ATTACKS.len() - refused);
    Ok(refused == ATTACKS.len())
}

/// A cluster with two members and a job, and a third machine, from which is attacked.
struct Field<'a> {
    ckptd: &'a Ckptd,
    /// This executable, as nodes see it.
    program: String,
    job: Background,
    /// The job's id.
    id: String,
    checkpoint: u64,
    /// The first member's address, HOST:PORT.
    address: String,
}

impl<'a> Field<'a> {
    fn new(ckptd: &'a Ckptd) -> Result<Self, Failure> {
        let own = std::env::current_exe().map_err(|error| Failure(error.to_string()))?;
        let program = ckptd.cluster().share(&own)?;
        let run = ["ckptd", "run", "--name", "hers", "--interval", "1", "--", "sleep", "1000"];
        let job = ckptd.node(1).spawn(&local::as_user(OWNER.0, &run), &[])?;
        let (id, checkpoint) = local::wait_for_checkpoint(ckptd)?;
        let address = local::agent_address(ckptd)?;
        Ok(Self { ckptd, program, job, id, checkpoint, address })
    }

    fn fight(&mut self, outcomes: &mut BTreeMap<String, Outcome>) -> Result<(), Failure> {
        let mut take = |lines: Vec<Line>| {
            outcomes.extend(lines.into_iter().map(|Line { id, outcome }| (id, outcome)));
        };
        take(local::of_users(self.ckptd)?);
        take(page::attacks(self.ckptd)?);
        // While no other attacker has the machine's address.
        take(self.of_packets()?);
        take(self.of_stranger()?);
        self.make_keys()?;
        take(self.of_member("worker", &["--role", "worker"])?);
        // As soon as a token names the owner, others do not speak for them.
        self.ckptd.new_token(&["--users", OWNER.1])?;
        take(self.of_member("login", &[])?);
        take(vec![partner::reads_copy(self.ckptd, &self.id)?]);
        take(self.of_turned_out()?);
        take(local::of_jobs(self.ckptd)?);
        match self.job.ended()? {
            None => Ok(()),
            Some(status) => Err(Failure(format!("the job has ended with {status}"))),
        }
    }

    fn of_stranger(&self) -> Result<Vec<Line>, Failure> {
        let used = self.ckptd.new_token(&["--role", "worker"])?;
        // It is used up by somebody who has a right to it.
        self.member_with("user-of-token", &used, "none")?.wait(LIMIT)?;
        let victim = identity_on(self.ckptd.node(1).disk())?;
        let key = serde_json::to_string(&victim.credentials().fingerprint())
            .map_err(|error| Failure(error.to_string()))?;
        let authority =
            std::fs::read_to_string(self.ckptd.node(1).disk().join("home/ckptd/identity/ca.pem"));
        let authority = authority.map_err(|error| Failure(error.to_string()))?;
        let words = [
            &[self.program.as_str(), "stranger", "--folder", "/tmp/stranger", "--token", &used],
            &["--authority", authority.trim(), "--key", &key][..],
            &["--victim", "node1", "--address", &self.address],
        ];
        let mut lines = self.ended(self.ckptd.node(3).spawn(&words.concat(), &[])?)?;
        let log = self.ckptd.coordinator_errors();
        let forged =
            log.lines().find(|line| line.starts_with("2026-01-01") || line.contains('\x1b'));
        let outcome = match forged {
            Some(line) => Outcome::Succeeded(line.to_owned()),
            None => Outcome::Refused("no line begins as they wanted".to_owned()),
        };
        lines.push(Line::new("forged-line", outcome));
        Ok(lines)
    }

    /// A key that the attacker has of a user who is not the job's, and another one; and a login of the job's user on the
    /// second member.
    fn make_keys(&self) -> Result<(), Failure> {
        let make = |node: usize, words: &[&str], file: &str| {
            let keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", file];
            self.ckptd.node(node).must_run(&[words, &keygen].concat())?;
            self.ckptd.node(node).must_run(&["cat", &format!("{file}.pub")])
        };
        let add = |user: &str, key: &str| {
            let add = format!("echo '{}' | ckptd login --user {user} --add-key -", key.trim());
            self.ckptd.coordinator_node().must_run(&["sh", "-c", &add]).map(drop)
        };
        add(KEY_USER, &make(3, &[], KEY)?)?;
        make(3, &[], UNKNOWN_KEY)?;
        let as_account = local::as_user(LOGIN_ACCOUNT, &[]);
        add(OWNER.1, &make(2, &as_account, KEY)?)?;
        let log_in = ["ckptd", "login", "--user", OWNER.1, "--key", KEY];
        self.ckptd.node(2).must_run(&local::as_user(LOGIN_ACCOUNT, &log_in)).map(drop)
    }

    /// Starts a member that attacks.
    fn member_with(&self, name: &str, token: &str, role: &str) -> Result<Background, Failure> {
        let checkpoint = self.checkpoint.to_string();
        let folder = format!("/tmp/{name}");
        let words = [
            [self.program.as_str(), "member", "--folder", &folder, "--token", token],
            ["--name", name, "--role", role, "--victim", "node1"],
            ["--job", &self.id, "--owner", OWNER.1, "--checkpoint", &checkpoint],
        ];
        let keys = [
            ["--key", KEY, "--key-user", KEY_USER],
            ["--unknown-key", UNKNOWN_KEY, "--logged-in-from", LOGIN_ACCOUNT],
        ];
        self.ckptd.node(3).spawn(&[words.concat(), keys.concat()].concat(), &[])
    }

    /// What a member puts into the first member's network.
    fn of_packets(&self) -> Result<Vec<Line>, Failure> {
        let listen = |node: usize| {
            let mut listener = self.ckptd.node(node).spawn(&[&self.program, "listener"], &[])?;
            listener.wait_for_output("listening", LIMIT)?;
            Ok::<_, Failure>(listener)
        };
        let (here, elsewhere) = (listen(1)?, listen(2)?);
        let token = self.ckptd.new_token(&["--role", "worker"])?;
        let attacker = self.member_with(&format!("{ATTACKER}-packets"), &token, "packets")?;
        self.ended(attacker)?;
        packets::outcomes(&here, &elsewhere)
    }

    fn of_member(&self, role: &str, options: &[&str]) -> Result<Vec<Line>, Failure> {
        let token = self.ckptd.new_token(options)?;
        self.ended(self.member_with(&format!("{ATTACKER}-{role}"), &token, role)?)
    }

    fn of_turned_out(&self) -> Result<Vec<Line>, Failure> {
        let token = self.ckptd.new_token(&["--role", "worker"])?;
        let mut member = self.member_with(ATTACKER, &token, "turned-out")?;
        member.wait_for_output("member", LIMIT)?;
        self.ckptd.coordinator_node().must_run(&["ckptd", "nodes", "--remove", ATTACKER])?;
        self.ckptd.node(3).must_run(&["touch", &format!("/tmp/{ATTACKER}/turned-out")])?;
        self.ended(member)
    }

    /// What an attacker has to say at its end.
    fn ended(&self, mut attacker: Background) -> Result<Vec<Line>, Failure> {
        let status = attacker.wait(LIMIT)?;
        if status != 0 {
            return Err(attacker.explain(&Failure(format!("the attacker ended with {status}"))));
        }
        let output = attacker.output();
        Ok(output.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }
}

/// The identity of the agent of a node, from the outside.
fn identity_on(disk: impl AsRef<Path>) -> Result<Identity, Failure> {
    let folder = disk.as_ref().join("home/ckptd/identity");
    let found = Identity::load(&folder).map_err(|error| Failure(error.to_string()))?;
    found.ok_or_else(|| Failure(format!("there is no identity in {}", folder.display())))
}
