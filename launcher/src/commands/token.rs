//! `ckptd token`.

use super::{Context, print};
use crate::cli::TokenArguments;
use crate::client::refusal::unexpected;
use crate::cluster::{Cluster, coordinator_folder};
use crate::failure::Failure;
use protocol::cluster::client::{Answer, Ask};

pub fn perform(context: &Context, arguments: TokenArguments) -> Result<(), Failure> {
    let folder = arguments.state.unwrap_or_else(|| coordinator_folder(&context.state));
    let cluster = Cluster::of_coordinator(&folder)?;
    let what = "make a join token";
    let ask = Ask::Token { uses: arguments.uses, valid_s: arguments.valid.as_secs() };
    match cluster.ask(what, &ask)? {
        Answer::Token { token } => print(&format!("{token}\n")),
        other => Err(unexpected(what, &other)),
    }
}
