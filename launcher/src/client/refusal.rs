//! Answers by which nothing was done.

use crate::failure::Failure;
use protocol::cluster::client::{Answer, NO_COORDINATOR};

/// An answer that does not fit.
pub fn unexpected(what: &str, answer: &Answer) -> Failure {
    Failure::of(what, format!("unexpected answer {answer:?}"))
}

/// The cluster's words say what failed; an agent that is alone knows only why.
pub fn refusal(what: &str, reason: String, status: u8) -> Failure {
    if reason == NO_COORDINATOR {
        Failure::of(what, reason)
    } else if status == 2 {
        Failure::Usage(format!("failed to {reason}"))
    } else {
        Failure::Failed(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_failed() {
        let text =
            |reason: &str, status| refusal("list the jobs", reason.into(), status).to_string();
        let alone = format!("failed to list the jobs: {NO_COORDINATOR}");
        assert_eq!(text(NO_COORDINATOR, 125), alone);
        assert_eq!(text("find job x: there is none", 2), "failed to find job x: there is none");
    }
}
