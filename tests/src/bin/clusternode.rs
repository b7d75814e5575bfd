//! What runs inside a test cluster's namespaces; started by the harness, not by hand.

use std::path::PathBuf;
use std::process::ExitCode;

use ckptd_tests::cluster::inside::{InsideError, capture, enter, hub, init, join, node, program};
use clap::{Parser, Subcommand};

/// A role inside a test cluster.
#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// The bridge between the nodes, until standard input ends; then the folder is removed
    Hub {
        /// The cluster's files
        folder: PathBuf,
    },
    /// A node, until it dies
    Node(node::NodeArguments),
    /// A node's first process, until standard input ends
    Init,
    /// A command on a node
    Enter(enter::EnterArguments),
    /// Somebody who listens at the bridge, until standard input ends
    Capture(capture::CaptureArguments),
    /// A command in the hub's network
    InHub {
        /// The hub's process
        #[arg(long)]
        hub: i32,
        /// The command
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
}

fn main() -> ExitCode {
    match run(&Options::parse().role) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("clusternode: {error}");
            ExitCode::from(125)
        }
    }
}

fn run(role: &Role) -> Result<u8, InsideError> {
    match role {
        Role::Hub { folder } => hub::run(folder)?,
        Role::Node(arguments) => node::run(arguments)?,
        Role::Init => init::run()?,
        Role::Capture(arguments) => capture::run(arguments)?,
        Role::Enter(arguments) => return enter::run(arguments),
        Role::InHub { hub, command } => {
            join::join(*hub, join::HUB)?;
            program(&command.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
    }
    Ok(0)
}
