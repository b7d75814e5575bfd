//! What operators may order at the page: what a command of the coordinator's own user does, noted in `ckptd audit` with the name
//! of the token.

use crate::ask::{AskError, Coordinator};
use crate::form::Form;
use hyper::StatusCode;
use protocol::cluster::client::{Answer, Ask};

/// Something that is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    /// Take a checkpoint of this job now.
    Checkpoint(String),
    /// Have that node run nothing from now on.
    Drain(String),
    /// Have it take processes again.
    Uncordon(String),
}

impl Order {
    /// What a form says.
    pub fn of(form: &Form) -> Option<Self> {
        let about = form.get("about").filter(|about| !about.is_empty())?.to_owned();
        Some(match form.get("what")? {
            "checkpoint" => Self::Checkpoint(about),
            "drain" => Self::Drain(about),
            "uncordon" => Self::Uncordon(about),
            _ => return None,
        })
    }

    /// The same to the coordinator; an error where there can't be such a node.
    fn ask(&self) -> Result<Ask, String> {
        let node =
            |name: &String| name.parse().map_err(|error| format!("find node {name}: {error}"));
        Ok(match self {
            Self::Checkpoint(job) => Ask::Checkpoint { job: job.clone() },
            Self::Drain(name) => Ask::Drain { node: node(name)?, wait: false },
            Self::Uncordon(name) => Ask::Uncordon { node: node(name)? },
        })
    }

    /// Gives the order for whoever has the token of that name: status and text of the answer.
    pub async fn give(&self, coordinator: &Coordinator, name: &str) -> (StatusCode, String) {
        let ask = match self.ask() {
            Ok(ask) => ask,
            Err(reason) => return (StatusCode::BAD_REQUEST, format!("failed to {reason}\n")),
        };
        match coordinator.order(&ask, name).await {
            Ok(answer) => (StatusCode::OK, format!("{}\n", self.done(&answer))),
            Err(AskError::Refused(reason)) => {
                (StatusCode::CONFLICT, format!("failed to {reason}\n"))
            }
            Err(AskError::Late) => {
                (StatusCode::ACCEPTED, format!("{}: it takes longer\n", self.begun()))
            }
            Err(error) => {
                let text = format!("failed to ask the coordinator: {error}\n");
                (StatusCode::SERVICE_UNAVAILABLE, text)
            }
        }
    }

    fn done(&self, answer: &Answer) -> String {
        match (self, answer) {
            (Self::Checkpoint(job), Answer::Committed { record }) => {
                format!("checkpoint {} of {job} is committed", record.checkpoint)
            }
            _ => self.begun(),
        }
    }

    fn begun(&self) -> String {
        match self {
            Self::Checkpoint(job) => format!("a checkpoint of {job} is ordered"),
            Self::Drain(node) => format!("{node} is drained: what runs there moves away"),
            Self::Uncordon(node) => format!("{node} takes processes again"),
        }
    }
}
