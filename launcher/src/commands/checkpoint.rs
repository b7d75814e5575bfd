//! `ckptd checkpoint`.

use super::summary::JobSummary;
use super::target::Target;
use super::{Context, print};
use crate::client::refusal::unexpected;
use crate::cluster::listing::{number, word};
use crate::failure::Failure;
use crate::{progress, text};
use protocol::cluster::client::{Answer, Ask};
use serde_json::{Value, json};

/// Steps in which the job runs again.
const WRITING: [&str; 2] = ["write", "commit"];

pub fn perform(context: &Context, wanted: &str) -> Result<(), Failure> {
    let target = context.target(wanted)?;
    let what = format!("checkpoint {}", target.name(wanted));
    let look = {
        let (target, wanted) = (target.clone(), wanted.to_owned());
        move || how_far(&target, &wanted)
    };
    let ask = || target.ask(&what, wanted, |job| Ask::Checkpoint { job });
    match progress::meanwhile(look, ask)? {
        Answer::Committed { record } => print(&format!("{}\n", record.checkpoint)),
        other => Err(unexpected(&what, &other)),
    }
}

/// Which checkpoint of a job is being written, and how much of it has been. Of what comes before, in which the job stands, the
/// line that tells of a failure is the only one.
fn how_far(target: &Target, wanted: &str) -> Option<String> {
    let job = match target {
        Target::Cluster(cluster) => {
            let ask = Ask::Status { job: Some(wanted.to_owned()) };
            cluster.listing("look at the job", &ask).ok()?
        }
        Target::Own(job) => json!(JobSummary::of(job).ok()?),
    };
    told(job.get("live")?.get("in_flight")?)
}

fn told(flight: &Value) -> Option<String> {
    let checkpoint = number(flight, "checkpoint")?;
    let step = Some(word(flight, "step")).filter(|step| WRITING.contains(&step.as_str()))?;
    let written = match number(flight, "bytes") {
        Some(bytes) if bytes > 0 => format!(", {} written", text::size(bytes)),
        _ => String::new(),
    };
    Some(format!("checkpoint {checkpoint}: {step}{written}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::agent::Step;
    use protocol::control::InFlight;

    #[test]
    fn steps_are_told_with_what_is_written() {
        let flight = InFlight { checkpoint: 3, step: Step::Write, age_ms: 4200, bytes: 1 << 30 };
        let text = told(&json!(flight));
        assert_eq!(text.as_deref(), Some("checkpoint 3: write, 1.0 GiB written"));
        let flight = InFlight { step: Step::Commit, bytes: 0, ..flight };
        assert_eq!(told(&json!(flight)).as_deref(), Some("checkpoint 3: commit"));
        let flight = InFlight { step: Step::Quiesce, bytes: 26, ..flight };
        assert_eq!(told(&json!(flight)), None);
        assert_eq!(told(&Value::Null), None);
    }
}
