//! What the commands about a cluster's members take.

use super::listings::ListArguments;
use super::values::{
    listen_address, login_span, page_address, percent, seconds, time_or_none, time_span, user_name,
};
use ckpt_agent::driver::traffic::CLEAR_PORTS;
use ckpt_dmtcp::server::Network;
use clap::{Args, ValueEnum};
use protocol::cluster::NodeName;
use protocol::cluster::image_key::Encryption;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// How new images of a cluster's jobs are encrypted. Older ones are read as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EncryptionSetting {
    /// Equal content of a job is stored once, and whoever keeps copies sees which parts are equal.
    Shared,
    /// Each image with a key of its own: every checkpoint stores all.
    Apart,
    /// Not at all.
    Off,
}

impl From<EncryptionSetting> for Encryption {
    fn from(setting: EncryptionSetting) -> Self {
        match setting {
            EncryptionSetting::Shared => Self::Shared,
            EncryptionSetting::Apart => Self::Apart,
            EncryptionSetting::Off => Self::Off,
        }
    }
}

/// What coordinator takes.
#[derive(Debug, Args)]
pub struct CoordinatorArguments {
    /// Where it listens for agents, ADDRESS or ADDRESS:PORT; 0.0.0.0: at all addresses of this machine.
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:7070", value_parser = listen_address)]
    pub listen: SocketAddr,
    /// Where it keeps what it knows [default: the folder 'coordinator' in DIR].
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Time from the last word of a machine to its being declared gone [default: 10s].
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub grace: Option<f64>,
    /// Announce it on the local network, by multicast DNS: for 'ckptd agent --discover'.
    #[arg(long)]
    pub discover: bool,
    /// How new images of jobs are encrypted.
    #[arg(long, value_enum, value_name = "HOW", default_value = "shared")]
    pub encryption: EncryptionSetting,
    /// Carry on for a coordinator whose machine is lost, from the copy of its log that an agent of
    /// this machine or of another has. DIR is the agent's.
    #[arg(long)]
    pub recover: bool,
    /// Give the cluster a new certificate authority, and end: for one whose key may be in other hands. No coordinator may run
    /// on that folder; start it again then. Members that were not turned out get new certificates when they connect, and
    /// tokens of before are worth nothing.
    #[arg(long, conflicts_with_all = ["recover", "dmtcp_port", "discover", "http"])]
    pub rotate: bool,
    /// Serve a page about the cluster, and its metrics for Prometheus: PORT of 127.0.0.1, or ADDRESS:PORT. At an address that
    /// other machines reach it is served by TLS. 'ckptd page' lets a browser in, and makes tokens.
    #[arg(long, value_name = "ADDR", value_parser = page_address)]
    pub http: Option<SocketAddr>,
    /// The page's certificate (PEM), and after it those that lead to an authority [default: one of its own, where other
    /// machines reach the page].
    #[arg(long, value_name = "FILE", requires_all = ["http", "http_key"])]
    pub http_certificate: Option<PathBuf>,
    /// The key of --http-certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "http_certificate")]
    pub http_key: Option<PathBuf>,
    /// Speak DMTCP's protocol too, at this port: for unmodified dmtcp_launch, dmtcp_restart and dmtcp_command.
    #[arg(long, value_name = "PORT")]
    pub dmtcp_port: Option<u16>,
    /// Where it listens for DMTCP's programs [default: 127.0.0.1]. DMTCP has no authentication.
    #[arg(long, value_name = "ADDR", requires = "dmtcp_port")]
    pub dmtcp_listen: Option<IpAddr>,
    /// Machines whose DMTCP programs may connect, as 10.0.0.0/24; may be given several times.
    #[arg(long, value_name = "NETWORK", requires = "dmtcp_port")]
    pub dmtcp_allow: Vec<Network>,
    /// Folder for DMTCP's restart scripts [default: the folder 'dmtcp' in DIR].
    #[arg(long, value_name = "DIR", requires = "dmtcp_port")]
    pub dmtcp_ckptdir: Option<PathBuf>,
    /// Time between checkpoints of DMTCP's processes that ask for none; 0: there are none by themselves.
    #[arg(long, value_name = "TIME", requires = "dmtcp_port", default_value = "0", value_parser = time_or_none)]
    pub dmtcp_interval: Duration,
    /// Time after which a restart of DMTCP's processes goes on without those that have not connected, their
    /// peers' connections to them being silent [default: never].
    #[arg(long, value_name = "TIME", requires = "dmtcp_port", value_parser = time_or_none)]
    pub dmtcp_departed_after: Option<Duration>,
}

/// What page takes.
#[cfg(feature = "http")]
#[derive(Debug, Args)]
pub struct PageArguments {
    /// Make a token of this name, and print it; it is shown once, and only its hash is kept.
    #[arg(long, value_name = "NAME")]
    pub add: Option<String>,
    /// Take back the token of this name, at once, also from browsers that were let in by it.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["add", "list"])]
    pub remove: Option<String>,
    /// Show the tokens: their names, roles, and until when they are good.
    #[arg(long, conflicts_with = "add")]
    pub list: bool,
    /// What whoever has the token or the address may do.
    #[arg(long, value_enum, value_name = "ROLE", default_value = "viewer", conflicts_with_all = ["remove", "list"])]
    pub role: PageRole,
    /// Show the bearer of the token the jobs of this user alone, as the coordinator's socket would.
    #[arg(long, value_name = "USER", requires = "add", value_parser = user_name)]
    pub user: Option<String>,
    /// How long the token is good for, such as 12h or 90d [default: until it is taken back].
    #[arg(long, value_name = "TIME", requires = "add", value_parser = time_span)]
    pub valid: Option<Duration>,
    /// The coordinator's folder, where it was given one.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Show the list as JSON.
    #[arg(long, requires = "list")]
    pub json: bool,
}

/// What somebody at the page may do.
#[cfg(feature = "http")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PageRole {
    /// Read the metrics.
    Metrics,
    /// Look at the page, and read the metrics.
    Viewer,
    /// Also take checkpoints of jobs, drain nodes and have them take processes again.
    Operator,
}

/// What token takes.
#[derive(Debug, Args)]
pub struct TokenArguments {
    /// How many machines may join with it.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub uses: u32,
    /// How long it is good for, such as 15m, 1h or 2d.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = time_span)]
    pub valid: Duration,
    /// What machines that join with it may order [default: login].
    #[arg(long, value_enum)]
    pub role: Option<MemberRole>,
    /// Speak for these users alone, NAME,...; of all members with the role login only those then speak for them whose
    /// tokens name them.
    #[arg(long, value_name = "USERS", value_delimiter = ',', value_parser = user_name)]
    pub users: Vec<String>,
    /// The coordinator's folder, where it was given one.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

/// What a member may order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MemberRole {
    /// Nothing: it runs jobs and keeps images. For machines of others.
    Worker,
    /// What users of its machine order for themselves.
    Login,
    /// As login; and root of it may do what the coordinator's own user may.
    Operator,
}

/// What audit takes.
#[derive(Debug, Args)]
pub struct AuditArguments {
    /// Fail unless a line has this hash, as noted from what an earlier call said of its last one.
    #[arg(long, value_name = "HASH")]
    pub contains: Option<String>,
    /// The coordinator's folder, where it was given one.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// How it is printed.
    #[command(flatten)]
    pub list: ListArguments,
}

/// What login takes.
#[derive(Debug, Args)]
pub struct LoginArguments {
    /// The user of the cluster [default: the name of this account].
    #[arg(long, value_name = "NAME", value_parser = user_name)]
    pub user: Option<String>,
    /// The key that signs; of one that ssh-agent has, the public half will do [default: the first of id_ed25519,
    /// id_ed25519_sk, id_ecdsa, id_ecdsa_sk and id_rsa in ~/.ssh].
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// For how long, such as 15m, 1h or 2d; 7d at most.
    #[arg(long = "for", value_name = "TIME", default_value = "12h", value_parser = login_span)]
    pub valid: Duration,
    /// Show who is logged in: you, and for operators everybody.
    #[arg(long)]
    pub status: bool,
    /// List your keys; for operators those of all users, or of --user.
    #[arg(long, conflicts_with = "status")]
    pub keys: bool,
    /// Have this public key prove from now on who you are, or who --user is, for operators. Not where you have logged in
    /// by a key. -: standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["status", "keys", "key"])]
    pub add_key: Option<PathBuf>,
    /// Have it prove nothing any more; its logins end.
    #[arg(long, value_name = "FINGERPRINT", conflicts_with_all = ["status", "keys", "key", "add_key"])]
    pub remove_key: Option<String>,
    /// For keys: the coordinator's folder, where it was given one.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// How it is printed.
    #[command(flatten)]
    pub list: ListArguments,
}

/// What logout takes.
#[derive(Debug, Args)]
pub struct LogoutArguments {
    /// On all other machines, too.
    #[arg(long)]
    pub all: bool,
}

/// What agent takes.
#[derive(Debug, Args)]
pub struct AgentArguments {
    /// The token that 'ckptd token' printed. Others on this machine can read it for a moment: --join-file is better.
    #[arg(long, value_name = "TOKEN", conflicts_with = "join_file")]
    pub join: Option<String>,
    /// The file that holds the token; -: standard input [default: ckptd.join in $CREDENTIALS_DIRECTORY if it is
    /// there, else this machine has joined before].
    #[arg(long, value_name = "FILE")]
    pub join_file: Option<PathBuf>,
    /// The machine's name in the cluster [default: its host name].
    #[arg(long)]
    pub name: Option<NodeName>,
    /// Processes of jobs that it takes [default: one for each core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub slots: Option<u32>,
    /// Take processes only in the place of a machine that is gone: until then it waits, and holds copies of images.
    #[arg(long)]
    pub spare: bool,
    /// Relative speed of one core, 1 a common one [default: measured].
    #[arg(long, value_name = "X")]
    pub speed: Option<f64>,
    /// Look for the coordinator on the local network where none of its addresses answers. Whoever
    /// answers must show the certificate that the token tells of.
    #[arg(long)]
    pub discover: bool,
    /// Leave the cluster when less than this is left in the battery and nothing charges it: its jobs move away first, and
    /// the agent ends.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub leave_below: Option<u8>,
    /// Run jobs of root as root.
    #[arg(long)]
    pub allow_root: bool,
    /// Without root: run jobs of other users, too, as this user, and keep their images. Root's agent does so anyway, each
    /// job as its own user.
    #[arg(long)]
    pub shared: bool,
    /// Root only: what jobs here and on other members whose agents were started so send each other by TCP and UDP goes
    /// encrypted. It goes through a network device, which is removed when the agent has left.
    #[arg(long)]
    pub encrypt_job_traffic: bool,
    /// With it: ports whose traffic stays as it is, on either side: those on which the machine itself relies. The same on
    /// all members.
    #[arg(long, value_name = "PORT,...", value_delimiter = ',', default_values_t = CLEAR_PORTS, requires = "encrypt_job_traffic")]
    pub clear_ports: Vec<u16>,
    /// Remove what an agent with --encrypt-job-traffic has left on this machine when it was killed, and end. Until then, or
    /// until an agent is started again, jobs' traffic with such members goes nowhere.
    #[arg(long, conflicts_with_all = ["join", "join_file", "encrypt_job_traffic", "discover"])]
    pub clear_job_traffic: bool,
    /// Address of this machine at which it listens for other agents, and by which they reach it [default: that of its
    /// connection to the coordinator]. With 0.0.0.0 it listens at all of them, and is reached by that one.
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<IpAddr>,
    /// The one port at which it listens for other agents; 0: any free one [default: 17070, any free one where another
    /// program has that].
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
}
