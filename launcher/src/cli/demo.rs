//! What `ckptd demo` consists of: the processes that it starts of this executable.

use clap::Subcommand;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// A part of the demonstration, in a process of its own.
#[derive(Debug, Subcommand)]
pub enum DemoPart {
    /// Make the namespaces around everything, and wait for the end of what is in them.
    #[command(hide = true)]
    Stage,
    /// Show it: the first process in these namespaces.
    #[command(hide = true)]
    Play {
        /// Where files of the demonstration lie.
        folder: PathBuf,
        /// The user and group that agents are to have, where they are not root's: USER:GROUP.
        #[arg(long, value_name = "USER:GROUP", value_parser = account)]
        account: Option<(u32, u32)>,
    },
    /// Make a machine of namespaces, and wait for its end.
    #[command(hide = true)]
    Machine {
        /// Its name.
        name: String,
        /// Its address.
        address: Ipv4Addr,
        /// The folder of its agent.
        folder: PathBuf,
        /// As above.
        #[arg(long, value_name = "USER:GROUP", value_parser = account)]
        account: Option<(u32, u32)>,
    },
    /// Be the first process of a machine: start its agent.
    #[command(hide = true)]
    First {
        /// The folder of its agent.
        folder: PathBuf,
        /// As above.
        #[arg(long, value_name = "USER:GROUP", value_parser = account)]
        account: Option<(u32, u32)>,
    },
    /// Be the job: count the ways to place queens, with workers on these machines.
    #[command(hide = true)]
    Queens {
        /// A machine for each worker.
        #[arg(required = true)]
        machines: Vec<String>,
    },
    /// Be a worker of that job.
    #[command(hide = true)]
    Worker {
        /// Its number.
        number: usize,
        /// Where the job listens, HOST:PORT.
        job: String,
    },
}

/// USER:GROUP, as numbers.
fn account(text: &str) -> Result<(u32, u32), String> {
    let numbers = text.split_once(':').map(|(user, group)| (user.parse(), group.parse()));
    match numbers {
        Some((Ok(user), Ok(group))) => Ok((user, group)),
        _ => Err("must be USER:GROUP, as numbers".to_owned()),
    }
}
