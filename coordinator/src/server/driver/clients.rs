//! Commands on the coordinator's own socket.

use super::Driver;
use crate::cluster::{ClientId, ClusterEvent, LogPiece};
use crate::server::admission::{MAX_USES, MAX_VALID_S};
use crate::server::audit_log::Part;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use protocol::cluster::agent::{JobUser, ToAgent};
use protocol::cluster::audit::{AuditEvent, Order, short};
use protocol::cluster::client::{Answer, Ask, LogPlace, MAX_ASK};
use protocol::cluster::powers::Powers;
use protocol::cluster::{Epoch, NodeName, VERSIONS};
use protocol::frame;
use protocol::transport::Fingerprint;

impl Driver {
    pub(super) fn gone(&mut self, number: u64) {
        if self.clients.remove(&number).is_some_and(|gone| gone.greeted) {
            self.feed(ClusterEvent::ClientGone { client: own(number) });
        }
    }

    pub(super) fn line(&mut self, number: u64, line: &str) {
        // One that was turned away may have written more before it saw its connection's end.
        let Some(client) = self.clients.get_mut(&number) else { return };
        let ask = match frame::decode::<Ask>(line, MAX_ASK) {
            Ok(ask) => ask,
            Err(error) => return self.reject(number, format!("read the request: {error}")),
        };
        match (ask, client.greeted) {
            (Ask::Hello { version }, false) if version.common(VERSIONS).is_some() => {
                client.greeted = true;
            }
            (Ask::Hello { version }, _) => {
                let reason = format!(
                    "talk to the cluster: this ckptd speaks version {version}, its coordinator \
                     {VERSIONS}: use the same ckptd everywhere"
                );
                self.reject(number, reason);
            }
            (_, false) => {
                self.reject(number, "talk to the cluster: no hello came first".to_owned())
            }
            (Ask::Token { uses, valid_s, powers }, true) => {
                let user = client.user.clone();
                self.token(number, &user, (uses, valid_s), powers);
            }
            (ask, true) => {
                let user = client.user.clone();
                self.feed(ClusterEvent::Asked { client: own(number), user, ask });
            }
        }
    }

    fn reject(&mut self, number: u64, reason: String) {
        self.answer(&own(number), &Answer::Failed { reason, status: 2 });
        self.gone(number);
    }

    /// Makes a join token, good for so many uses and seconds.
    fn token(&mut self, number: u64, user: &JobUser, (uses, valid_s): (u32, u64), powers: Powers) {
        let operator = user.uid == 0 || user.uid == self.operator.uid;
        let (through, about) = (None, short(&format!("{}; uses: {uses}", powers.describe())));
        let (user, order) = (short(&user.name), "token".to_owned());
        let (account, page) = (String::new(), String::new());
        let order = Order { user, through, account, page, operator, order, about };
        self.audit(AuditEvent::Ordered { order: order.clone() });
        let refuse = |reason: &str, status| Answer::Failed {
            reason: format!("make a join token: {reason}"),
            status,
        };
        let answer = if !operator {
            refuse("only root and the coordinator's own user may do that", 125)
        } else if !(1..=MAX_USES).contains(&uses) {
            refuse(&format!("it can be good for 1 to {MAX_USES} uses"), 2)
        } else if !(1..=MAX_VALID_S).contains(&valid_s) {
            refuse(&format!("it can be good for 1 to {MAX_VALID_S} seconds"), 2)
        } else {
            let addresses = self.operator.addresses.clone();
            let now_ms = crate::server::wall_ms();
            let issued = self.admission().issue(addresses, uses, valid_s, powers, now_ms);
            // It may name users for whom other members may not speak any more.
            self.tell_named();
            match issued {
                Ok(token) => Answer::Token { token: token.to_string() },
                Err(error) => refuse(&error.to_string(), 125),
            }
        };
        if let Answer::Failed { reason, .. } = &answer {
            self.audit(AuditEvent::Refused { order, reason: short(reason) });
        }
        self.answer(&own(number), &answer);
        self.gone(number);
    }

    /// Writes down what was ordered.
    pub(super) fn audit(&mut self, event: AuditEvent) {
        if let Err(error) = self.audit.append(crate::server::wall_ms(), event) {
            tracing::error!("failed to write to the audit log: {error}");
        }
    }

    /// Sends lines of the audit log to a client, wherever it is.
    pub(super) fn show_audit(&mut self, client: &ClientId, from: u64) {
        let answer = match self.audit.read(from) {
            Ok(Part { lines, next, over }) => Answer::Audit { lines, next, over },
            Err(error) => {
                Answer::Failed { reason: format!("read the audit log: {error}"), status: 125 }
            }
        };
        self.tell(client, Some(&answer));
        self.tell(client, None);
    }

    /// Tells the machine by which keys all are members, and what they may order.
    pub(super) fn tell_members(&mut self) {
        let members: Vec<_> = self.admission().members().collect();
        for (node, key, powers) in members {
            self.feed(ClusterEvent::Admitted { node, powers, key });
        }
    }

    /// The same of one, if it is a member: by which key.
    pub(super) fn tell_member(&mut self, node: &NodeName) -> Option<Fingerprint> {
        let (key, powers) = self.admission().member(node)?;
        self.feed(ClusterEvent::Admitted { node: node.clone(), powers, key: key.clone() });
        Some(key)
    }

    /// Tells the machine which members alone get the cluster's key.
    pub(super) fn tell_standbys(&mut self) {
        let nodes = self.admission().standbys();
        self.feed(ClusterEvent::Standbys { nodes });
        self.log_holders_changed = true;
    }

    /// Tells the machine for which users tokens have named members.
    pub(super) fn tell_named(&mut self) {
        let users = self.admission().named().clone();
        self.feed(ClusterEvent::Named { users });
    }

    pub(super) fn answer(&mut self, id: &ClientId, answer: &Answer) {
        // One that has gone waits for no answer.
        let Some(client) = self.clients.get(&id.number) else { return };
        if !client.answers.answer(answer) {
            self.gone(id.number);
        }
    }

    /// Sends pieces of a job's log to a client, wherever it is.
    pub(super) fn replay(
        &mut self,
        client: &ClientId,
        job: &str,
        pieces: &[LogPiece],
        times: bool,
    ) {
        for piece in pieces {
            if times {
                let known =
                    self.logs.times(job).map(|times| times.between(piece.start, piece.end.length));
                let pieces = known.unwrap_or_default();
                self.tell(client, Some(&Answer::Times { pieces }));
            }
            let length = piece.end.length.saturating_sub(piece.start);
            let answer = match self.logs.read(job, piece.start, length) {
                Ok(bytes) => {
                    let (stream, bytes) = (piece.stream, STANDARD.encode(bytes));
                    Answer::Output { stream, bytes, at: piece.end }
                }
                Err(error) => {
                    let text = format!("warning: output was not shown again: {job}: {error}");
                    Answer::Say { text }
                }
            };
            self.tell(client, Some(&answer));
        }
    }

    /// Tells a client from where on a job's log is not known to be older than that.
    pub(super) fn tell_log_since(
        &mut self,
        client: &ClientId,
        job: &str,
        at_ms: u64,
        epoch: Epoch,
    ) {
        let (length, known) = match self.logs.times(job) {
            Ok(times) => (times.since(at_ms), !times.pieces().is_empty()),
            // There is no log yet, or no index.
            Err(_) => (0, false),
        };
        let from = LogPlace { epoch, length, written: 0 };
        self.tell(client, Some(&Answer::LogSince { from, known }));
    }

    /// Answers a client, wherever it is; None: that was all.
    fn tell(&mut self, client: &ClientId, answer: Option<&Answer>) {
        match (&client.node, answer) {
            (None, Some(answer)) => self.answer(client, answer),
            (None, None) => self.close(client),
            (Some(node), _) if self.is_current(node, client.connection) => {
                let line = answer.map(Answer::line);
                self.send(node, &ToAgent::Client { client: client.number, line }, &[]);
            }
            // It has gone with its machine's connection.
            (Some(_), _) => {}
        }
    }

    /// Closes a client's connection after what was answered.
    pub(super) fn close(&mut self, id: &ClientId) {
        self.clients.remove(&id.number);
    }
}

/// A client of the own socket.
fn own(number: u64) -> ClientId {
    ClientId { node: None, connection: 0, number }
}
