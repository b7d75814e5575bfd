//! `ckptd checkpoint`.

use super::{Context, print};
use crate::client::refusal::unexpected;
use crate::failure::Failure;
use protocol::cluster::client::{Answer, Ask};

pub fn perform(context: &Context, wanted: &str) -> Result<(), Failure> {
    let target = context.target(wanted)?;
    let what = format!("checkpoint {}", target.name(wanted));
    match target.ask(&what, wanted, |job| Ask::Checkpoint { job })? {
        Answer::Committed { record } => print(&format!("{}\n", record.checkpoint)),
        other => Err(unexpected(&what, &other)),
    }
}
