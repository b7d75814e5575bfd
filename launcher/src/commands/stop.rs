//! `ckptd stop`.

use super::Context;
use crate::client::refusal::unexpected;
use crate::failure::Failure;
use protocol::cluster::client::{Answer, Ask};

pub fn perform(context: &Context, wanted: &str, checkpoint: bool) -> Result<(), Failure> {
    let target = context.target(wanted)?;
    let name = target.name(wanted);
    let what = format!("stop {name}");
    match target.ask(&what, wanted, |job| Ask::Stop { job, checkpoint })? {
        Answer::Ended { checkpoint: Some(_), .. } => {
            eprintln!("ckptd: job {name} stopped; resume with: {}", context.resume_command(name));
            Ok(())
        }
        Answer::Ended { checkpoint: None, .. } => {
            eprintln!("ckptd: job {name} stopped; it has no committed checkpoint");
            Ok(())
        }
        other => Err(unexpected(&what, &other)),
    }
}
