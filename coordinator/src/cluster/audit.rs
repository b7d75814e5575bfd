//! Which orders the [audit log](protocol::cluster::audit) tells of: all that start, end, change or take out something, or
//! look into a job. Listings are not orders, nor is what a job is told by whoever is attached to it already.

use super::callers::Caller;
use super::event::{ClientId, ClusterAction, Now};
use super::shared::Shared;
use super::unproven_orders::Kind;
use protocol::cluster::audit::{AuditEvent, Order, short};
use protocol::cluster::client::{Ask, LogPlace, RunRequest};
use protocol::cluster::look::Look;
use protocol::keys::UserKey;

/// Whether the log tells of what a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Noted {
    /// It does, or it is nothing to tell of.
    Told,
    /// It is one of too many.
    LeftOut,
}

impl Shared {
    /// Writes down what a client wants, before anything comes of it.
    pub(super) fn audit(
        &mut self,
        now: Now,
        client: &ClientId,
        caller: &Caller,
        ask: &Ask,
    ) -> Noted {
        // A listing, or what belongs to an order that was given before.
        let Some((order, about)) = ordered(ask) else { return Noted::Told };
        if let Some(node) = caller.unproven() {
            let kind = match caller.refusal(ask) {
                Some(_) => Kind::Refused,
                None if self.owns(&caller.account, node) => Kind::Owners,
                None => Kind::Possible,
            };
            if !self.unproven_orders.is_noted(now.nanos, node, kind) {
                return Noted::LeftOut;
            }
        }
        let order = Order {
            user: short(&caller.user.name),
            through: client.node.clone(),
            account: match caller.by_login {
                true => short(&caller.account.name),
                false => String::new(),
            },
            page: self.clients.get(client).map(|known| known.page.clone()).unwrap_or_default(),
            operator: caller.is_operator(),
            order: order.to_owned(),
            about: short(&about),
        };
        let is_reading = matches!(ask, Ask::Log { .. } | Ask::LogSince { .. } | Ask::Audit { .. });
        if is_reading && !self.noted_readings.is_new(&order) && goes_on(ask) {
            return Noted::Told;
        }
        if let Some(known) = self.clients.get_mut(client) {
            known.order = Some(order.clone());
        }
        self.act(ClusterAction::Audit { event: AuditEvent::Ordered { order } });
        Noted::Told
    }

    /// Writes down how many orders were left out.
    pub(super) fn tell_left_out(&mut self, now: Now) {
        for (node, orders) in self.unproven_orders.due(now.nanos) {
            self.act(ClusterAction::Audit { event: AuditEvent::LeftOut { node, orders } });
        }
    }

    /// Writes down that nothing came of it, or no more.
    pub(super) fn audit_failure(&mut self, client: &ClientId, reason: &str) {
        let known = self.clients.get_mut(client);
        // Without an order it was a listing, or nothing that is understood.
        if let Some(order) = known.and_then(|known| known.order.take()) {
            let reason = short(reason);
            self.act(ClusterAction::Audit { event: AuditEvent::Refused { order, reason } });
        }
    }
}

/// The command by which a user orders that, and what it is about; None: it is no order.
fn ordered(ask: &Ask) -> Option<(&'static str, String)> {
    let at = |job: &str, checkpoint: Option<u64>| match checkpoint {
        Some(checkpoint) => format!("{job}@{checkpoint}"),
        None => job.to_owned(),
    };
    Some(match ask {
        Ask::Run(request) => ("run", what_runs(request)),
        Ask::Restart(request) => ("restart", at(&request.job, request.checkpoint)),
        Ask::Attach { job, .. } => ("attach", job.clone()),
        Ask::Log { job, .. } | Ask::LogSince { job, .. } => ("logs", job.clone()),
        Ask::Note { job, .. } => ("run --on", job.clone()),
        Ask::Checkpoint { job } => ("checkpoint", job.clone()),
        Ask::Stop { job, .. } => ("stop", job.clone()),
        Ask::RemoveNode { node } => ("nodes --remove", node.to_string()),
        Ask::Standby { node, on: true } => ("nodes --standby", node.to_string()),
        Ask::Standby { node, on: false } => ("nodes --no-standby", node.to_string()),
        Ask::Leave { node } => {
            ("leave", node.as_ref().map_or_else(|| "its machine".to_owned(), ToString::to_string))
        }
        Ask::Drain { node, wait: true } => ("drain", node.to_string()),
        Ask::Drain { node, wait: false } => ("drain --no-wait", node.to_string()),
        Ask::Uncordon { node } => ("uncordon", node.to_string()),
        Ask::Token { .. } => ("token", String::new()),
        Ask::Remove { job } => ("rm", job.clone()),
        Ask::Look { job, checkpoint, look: Look::Verify } => ("verify", at(job, *checkpoint)),
        Ask::Look { job, checkpoint, look: Look::Inspect } => ("inspect", at(job, *checkpoint)),
        Ask::Portable { job, checkpoint, .. } => ("export", at(job, *checkpoint)),
        Ask::Import(request) => ("import", request.name.clone().unwrap_or_default()),
        Ask::Rehearse { job, checkpoint } => ("verify --rehearse", at(job, *checkpoint)),
        Ask::Audit { .. } => ("audit", String::new()),
        Ask::AddKey { user, key } => ("login --add-key", of_key(user.as_deref(), &named(key))),
        Ask::RemoveKey { user, fingerprint } => {
            ("login --remove-key", of_key(user.as_deref(), fingerprint))
        }
        Ask::Login { user, .. } => ("login", user.clone()),
        Ask::Logout { all: false } => ("logout", String::new()),
        Ask::Logout { all: true } => ("logout --all", String::new()),
        Ask::Hello { .. }
        | Ask::Input { .. }
        | Ask::Resize { .. }
        | Ask::Signal { .. }
        | Ask::Events { .. }
        | Ask::Jobs
        | Ask::Status { .. }
        | Ask::Nodes
        | Ask::Attention
        | Ask::Page { .. }
        | Ask::Keys { .. }
        | Ask::Logins
        | Ask::Prove { .. }
        | Ask::Image { .. }
        | Ask::ImportLog { .. } => return None,
    })
}

/// The name of a key that somebody wants to be known by.
fn named(key: &str) -> String {
    UserKey::parse(key).map_or_else(|error| error.to_string(), |key| key.fingerprint().to_owned())
}

/// A key, and whose it is to be, if not that of who asks.
fn of_key(user: Option<&str>, key: &str) -> String {
    user.map_or_else(|| key.to_owned(), |user| format!("{user}: {key}"))
}

/// Whether it reads on in a log from another place than its beginning.
fn goes_on(ask: &Ask) -> bool {
    match ask {
        Ask::Log { from, .. } => *from != LogPlace::default(),
        Ask::Audit { from } => *from != 0,
        _ => false,
    }
}

/// The job's name if it was given one, and its program.
fn what_runs(request: &RunRequest) -> String {
    let program = request.launch.program.first();
    let program = program.map(|program| program.to_string_lossy()).unwrap_or_default();
    match &request.name {
        Some(name) => format!("{name}: {program}"),
        None => program.into_owned(),
    }
}
