//! The one connection to the coordinator, made again for ever.

use std::time::Duration;

use ckpt_node::Event;
use tokio::sync::watch;
use tokio::time::sleep;

use super::link::{Dialer, Refusal};
use super::report::{Report, Reports};

/// The first wait after a connection was lost or refused; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Keeps the connection, and reports what comes over it. `given_up` carries the number of the newest
/// connection that is to be closed: one over which nothing is heard any more.
pub async fn keep(dialer: Dialer, reports: Reports, mut given_up: watch::Receiver<u64>) {
    let mut connection = 0;
    let mut wait = FIRST_WAIT;
    let mut said = None;
    loop {
        let dialed = tokio::select! {
            dialed = dialer.coordinator() => dialed,
            // It may be somewhere else now.
            Ok(()) = given_up.changed() => continue,
        };
        match dialed {
            Ok((mut link, local)) => {
                connection += 1;
                said = None;
                reports.tell(Report::Connected { connection, to: link.to, local });
                let mut heard = false;
                loop {
                    tokio::select! {
                        received = link.from.recv() => {
                            let Some((message, body)) = received else { break };
                            heard = true;
                            reports.tell(Report::Coordinator { connection, message, body });
                        }
                        changed = given_up.changed() => {
                            if changed.is_err() || *given_up.borrow() >= connection {
                                break;
                            }
                        }
                    }
                }
                if heard {
                    wait = FIRST_WAIT;
                }
                reports.tell(Report::Disconnected(connection));
            }
            Err(Refusal::Final(reason)) => {
                reports.event(Event::Refused(reason));
                return;
            }
            Err(Refusal::Passing(reason)) => {
                if said.as_ref() != Some(&reason) {
                    tracing::warn!(
                        "there is no connection to the coordinator: {reason}; trying again"
                    );
                    said = Some(reason);
                }
            }
        }
        tokio::select! {
            () = sleep(wait) => {}
            Ok(()) = given_up.changed() => continue,
        }
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}
