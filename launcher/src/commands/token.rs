//! `ckptd token`.

use super::{Context, print};
use crate::cli::{MemberRole, TokenArguments};
use crate::client::refusal::unexpected;
use crate::cluster::Cluster;
use crate::failure::Failure;
use protocol::cluster::client::{Answer, Ask};
use protocol::cluster::powers::{Powers, SpeaksFor};

pub fn perform(context: &Context, arguments: TokenArguments) -> Result<(), Failure> {
    let folder = context.coordinator(arguments.state);
    let cluster = Cluster::of_coordinator(&folder)?;
    let what = "make a join token";
    let powers = powers(arguments.role, arguments.users)?;
    if powers == Powers::of_all_users(false) {
        eprintln!(
            "ckptd: the cluster will obey the users of machines that join with it; for a machine that you don't trust so \
             far: --role worker"
        );
    }
    let ask = Ask::Token { uses: arguments.uses, valid_s: arguments.valid.as_secs(), powers };
    match cluster.ask(what, &ask)? {
        Answer::Token { token } => print(&format!("{token}\n")),
        other => Err(unexpected(what, &other)),
    }
}

/// What machines may order that join with the token.
fn powers(role: Option<MemberRole>, users: Vec<String>) -> Result<Powers, Failure> {
    let operates = role == Some(MemberRole::Operator);
    match role {
        Some(MemberRole::Worker) if !users.is_empty() => Err(Failure::Usage(
            "wrong usage: a member of --role worker speaks for nobody, so --users makes no sense with it".to_owned(),
        )),
        Some(MemberRole::Worker) => Ok(Powers::default()),
        _ if users.is_empty() => Ok(Powers::of_all_users(operates)),
        _ => Ok(Powers { speaks_for: SpeaksFor::Only(users.into_iter().collect()), operates }),
    }
}
