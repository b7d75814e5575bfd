//! What commands ask about keys and logins.

use super::keys::{MOST_KEYS, MOST_OF_USER};
use super::{
    Challenge, MOST_AT_MEMBER, MOST_LOGINS, MOST_OF_ACCOUNT, MOST_OF_ONE, PATIENCE, Place,
};
use crate::cluster::ClusterMachine;
use crate::cluster::callers::Caller;
use crate::cluster::entry::{ClusterEntry, Login};
use crate::cluster::event::{ClientId, Now};
use protocol::cluster::NodeName;
use protocol::cluster::client::Answer;
use protocol::cluster::login::{
    MAX_VALID_S, NAMESPACE, ShownKey, ShownLogin, Statement, is_user_name,
};
use protocol::keys::{KeyError, SignatureError, Signed, UserKey};
use serde_json::Value;
use thiserror::Error;

/// Why a key is not taken, or not given up.
#[derive(Debug, Error)]
enum KeyRefusal {
    #[error("of {0}: only an operator may do that for others")]
    ForAnother(String),
    #[error("{0:?} is no name of a user")]
    Name(String),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("{0} has {MOST_OF_USER} already: --remove-key gives one up")]
    ManyOfUser(String),
    #[error("the cluster knows {MOST_KEYS} already")]
    Many,
    #[error("{user} has none with the fingerprint {fingerprint}")]
    Unknown { user: String, fingerprint: String },
}

/// Why nobody is logged in.
#[derive(Debug, Error)]
enum LoginRefusal {
    #[error(
        "this is the coordinator's own socket, where the kernel says who you are; log in on a member"
    )]
    Here,
    #[error("{0} is no member by any key")]
    NoMember(NodeName),
    #[error("{0:?} is no name of a user")]
    Name(String),
    #[error("a login may hold for 1 to {MAX_VALID_S} seconds")]
    Span,
    #[error("too many others are logging in on {0}: try again in some minutes")]
    Busy(NodeName),
    #[error("nothing was to be signed over this connection, or it was signed already")]
    Unasked,
    #[error("the signature has come too late: log in again")]
    Late,
    #[error("the signature: {0}")]
    Signature(#[from] SignatureError),
    #[error(
        "no key of {user} that counts has the fingerprint {fingerprint}: see 'ckptd login --keys' where you are known"
    )]
    Key { user: String, fingerprint: String },
    #[error("{0} is logged in at {MOST_OF_ONE} places already: 'ckptd logout --all' ends them")]
    ManyOfUser(String),
    #[error("{MOST_LOGINS} users are logged in already")]
    Many,
}

impl ClusterMachine {
    pub(in crate::cluster) fn add_key(
        &mut self,
        now: Now,
        client: &ClientId,
        caller: &Caller,
        user: Option<String>,
        text: &str,
    ) {
        let checked = self.check_key(caller, user, text);
        let (user, key) = match checked {
            Ok(checked) => checked,
            Err(reason) => return self.shared.fail(client, format!("take a key: {reason}")),
        };
        let (fingerprint, kind) = (key.fingerprint().to_owned(), key.kind());
        let (key, through) = (key.line(), client.node.clone());
        let entry = ClusterEntry::KeyAdded { user: user.clone(), key, through, at_ms: now.unix_ms };
        self.record(entry);
        let text = Some(format!("{user} has the key {fingerprint} ({kind})"));
        self.shared.answer_last(client, Answer::Done { text });
    }

    fn check_key(
        &self,
        caller: &Caller,
        user: Option<String>,
        text: &str,
    ) -> Result<(String, UserKey), KeyRefusal> {
        let user = owner(caller, user)?;
        let key = UserKey::parse(text)?;
        let keys = &self.shared.logins.keys;
        // One that is known is noted anew: by another member, it may be.
        if keys.get(&user, key.fingerprint()).is_none() {
            if keys.count_of(&user) >= MOST_OF_USER {
                return Err(KeyRefusal::ManyOfUser(user));
            }
            if keys.count() >= MOST_KEYS {
                return Err(KeyRefusal::Many);
            }
        }
        Ok((user, key))
    }

    pub(in crate::cluster) fn remove_key(
        &mut self,
        client: &ClientId,
        caller: &Caller,
        user: Option<String>,
        fingerprint: String,
    ) {
        let known = owner(caller, user).and_then(|user| {
            match self.shared.logins.keys.get(&user, &fingerprint) {
                Some(_) => Ok(user),
                None => {
                    let fingerprint = fingerprint.chars().take(64).collect();
                    Err(KeyRefusal::Unknown { user, fingerprint })
                }
            }
        });
        let user = match known {
            Ok(user) => user,
            Err(reason) => return self.shared.fail(client, format!("give up a key: {reason}")),
        };
        let text = Some(format!("{user} has the key {fingerprint} no more; its logins have ended"));
        let ended = self.record(ClusterEntry::KeyRemoved { user, fingerprint });
        self.shared.answer_last(client, Answer::Done { text });
        self.close_ended(&ended, "its key was given up");
    }

    /// Keys that somebody may see.
    pub(in crate::cluster) fn list_keys(&self, caller: &Caller, user: Option<&str>) -> Value {
        let shared = &self.shared;
        let visible = shared
            .logins
            .keys
            .iter()
            .filter(|(of, _)| caller.may_see_of(of) && user.is_none_or(|user| user == *of));
        let shown: Vec<ShownKey> = visible
            .map(|(user, known)| ShownKey {
                user: user.to_owned(),
                kind: known.key.kind(),
                fingerprint: known.key.fingerprint().to_owned(),
                comment: known.key.comment().to_owned(),
                through: known.through.clone(),
                added_ms: known.added_ms,
                counts: shared.vouches(known.through.as_ref(), user),
            })
            .collect();
        // Texts, numbers and truth values always have a form.
        serde_json::to_value(shown).unwrap_or_default()
    }

    pub(in crate::cluster) fn begin_login(
        &mut self,
        now: Now,
        client: &ClientId,
        caller: &Caller,
        user: String,
        valid_s: u64,
    ) {
        match self.challenge(now, client, caller, user, valid_s) {
            Ok(statement) => {
                let statement = Box::new(statement);
                self.shared.answer(client, Answer::Challenge { statement });
            }
            Err(reason) => self.shared.fail(client, format!("log in: {reason}")),
        }
    }

    /// What is to be signed. Whether the user has a key is told to nobody who has none of theirs.
    fn challenge(
        &mut self,
        now: Now,
        client: &ClientId,
        caller: &Caller,
        user: String,
        valid_s: u64,
    ) -> Result<Statement, LoginRefusal> {
        let member = client.node.clone().ok_or(LoginRefusal::Here)?;
        let member_key = self.shared.members.key(&member).cloned();
        let member_key = member_key.ok_or_else(|| LoginRefusal::NoMember(member.clone()))?;
        if !is_user_name(&user) {
            return Err(LoginRefusal::Name(user.chars().take(32).collect()));
        }
        if !(1..=MAX_VALID_S).contains(&valid_s) {
            return Err(LoginRefusal::Span);
        }
        let challenges = &mut self.shared.logins.challenges;
        challenges.retain(|_, challenge| now.nanos < challenge.until);
        let at_member = challenges.iter().filter(|(other, _)| other.node.as_ref() == Some(&member));
        let account = caller.account.uid;
        let of_account =
            at_member.clone().filter(|(_, challenge)| challenge.statement.account == account);
        let busy = at_member.clone().count() >= MOST_AT_MEMBER;
        if busy || of_account.count() >= MOST_OF_ACCOUNT {
            return Err(LoginRefusal::Busy(member));
        }
        let nonce = self.shared.secrets.secret();
        let statement = Statement {
            cluster: self.shared.settings.authority.clone(),
            member,
            member_key,
            account,
            user,
            until_ms: now.unix_ms.saturating_add(valid_s.saturating_mul(1000)),
            nonce: blake3::Hash::from_bytes(nonce).to_hex().to_string(),
        };
        let challenge = Challenge {
            statement: statement.clone(),
            account: caller.account.name.clone(),
            until: now.nanos.saturating_add(PATIENCE),
        };
        self.shared.logins.challenges.insert(client.clone(), challenge);
        Ok(statement)
    }

    pub(in crate::cluster) fn prove(&mut self, now: Now, client: &ClientId, signature: &str) {
        match self.proven(now, client, signature) {
            Ok(login) => {
                let entry = ClusterEntry::LoggedIn(Box::new(login));
                let ended = self.record(entry);
                self.shared.answer_last(client, Answer::Done { text: None });
                self.close_ended(&ended, "somebody else has logged in from this account");
            }
            Err(reason) => self.shared.fail(client, format!("log in: {reason}")),
        }
    }

    /// The login that a signature has proven. Whatever comes of it, the statement is signed by no other.
    fn proven(
        &mut self,
        now: Now,
        client: &ClientId,
        signature: &str,
    ) -> Result<Login, LoginRefusal> {
        let challenge = self.shared.logins.challenges.remove(client);
        let Challenge { statement, account, until } = challenge.ok_or(LoginRefusal::Unasked)?;
        if now.nanos >= until || now.unix_ms >= statement.until_ms {
            return Err(LoginRefusal::Late);
        }
        let shared = &self.shared;
        if shared.members.key(&statement.member) != Some(&statement.member_key) {
            return Err(LoginRefusal::NoMember(statement.member));
        }
        let signed = Signed::parse(signature, NAMESPACE)?;
        let fingerprint = signed.fingerprint();
        let known = shared.logins.keys.get(&statement.user, fingerprint);
        let counts = known.filter(|known| shared.vouches(known.through.as_ref(), &statement.user));
        let known = counts.ok_or_else(|| LoginRefusal::Key {
            user: statement.user.clone(),
            fingerprint: fingerprint.to_owned(),
        })?;
        known.key.check(statement.text().as_bytes(), &signed)?;
        let Statement { member, member_key, account: uid, user, until_ms, .. } = statement;
        let logins = &shared.logins.held;
        if !logins.contains_key(&(member.clone(), uid)) {
            if logins.len() >= MOST_LOGINS {
                return Err(LoginRefusal::Many);
            }
            if logins.values().filter(|login| login.user == user).count() >= MOST_OF_ONE {
                return Err(LoginRefusal::ManyOfUser(user));
            }
        }
        let account = protocol::cluster::agent::JobUser { uid, name: account };
        Ok(Login { member, member_key, account, user, key: fingerprint.to_owned(), until_ms })
    }

    /// Ends the login of this account; and of its user everywhere.
    pub(in crate::cluster) fn log_out(&mut self, client: &ClientId, caller: &Caller, all: bool) {
        let account = caller.account.uid;
        let here = |login: &Login| {
            client.node.as_ref() == Some(&login.member) && login.account.uid == account
        };
        let theirs = |login: &Login| all && login.user == caller.user.name;
        let logins = self.shared.logins.held.values();
        let ends: Vec<Place> = logins
            .filter(|login| here(login) || theirs(login))
            .map(|login| (login.member.clone(), login.account.uid))
            .collect();
        let text = match ends.len() {
            0 => "nobody is logged in from this account".to_owned(),
            1 => "1 login has ended".to_owned(),
            number => format!("{number} logins have ended"),
        };
        for (member, account) in ends.clone() {
            self.record(ClusterEntry::LoggedOut { member, account });
        }
        self.shared.answer_last(client, Answer::Done { text: Some(text) });
        self.close_ended(&ends, "it was ended");
    }

    /// Logins that somebody may see: those of the account that asks, and of the user that it is.
    pub(in crate::cluster) fn list_logins(
        &self,
        now: Now,
        client: &ClientId,
        caller: &Caller,
    ) -> Value {
        let logins = self.shared.logins.held.values();
        let shown: Vec<ShownLogin> = logins
            .filter(|login| self.shared.holds(now, login))
            .map(|login| ShownLogin {
                user: login.user.clone(),
                member: login.member.clone(),
                account: login.account.name.clone(),
                key: login.key.clone(),
                until_ms: login.until_ms,
                here: client.node.as_ref() == Some(&login.member)
                    && caller.account.uid == login.account.uid,
            })
            .filter(|shown| shown.here || caller.may_see_of(&shown.user))
            .collect();
        // As above.
        serde_json::to_value(shown).unwrap_or_default()
    }

    /// Writes an entry about keys or logins down: which logins have ended by it.
    pub(in crate::cluster) fn record(&mut self, entry: ClusterEntry) -> Vec<Place> {
        let ended = self.shared.logins.apply(&entry);
        self.shared.append(entry);
        ended
    }

    /// Ends logins whose time is over.
    pub(in crate::cluster) fn check_logins(&mut self, now: Now) {
        let ended = self.shared.logins.expire(now.unix_ms);
        self.close_ended(&ended, "it has run out");
    }

    /// Ends the conversations that logins have begun which are no more. Jobs run on.
    pub(in crate::cluster) fn close_ended(&mut self, ended: &[Place], why: &str) {
        if ended.is_empty() {
            return;
        }
        let clients = self.shared.clients.iter().filter(|(client, known)| {
            let place = client.node.clone().map(|node| (node, known.user.uid));
            known.by_login && place.is_some_and(|place| ended.contains(&place))
        });
        let clients: Vec<(ClientId, bool)> =
            clients.map(|(client, known)| (client.clone(), known.closed)).collect();
        for (client, closed) in clients {
            if !closed {
                let reason =
                    format!("go on: the login is no more ({why}); 'ckptd login' makes a new one");
                self.shared.fail(&client, reason);
            }
            // Also one that its member still knows: nothing of a job goes there any more.
            self.client_gone(&client);
        }
    }
}

/// Whose key it is, if who asks may say so.
fn owner(caller: &Caller, wanted: Option<String>) -> Result<String, KeyRefusal> {
    let user = wanted.unwrap_or_else(|| caller.user.name.clone());
    let shown = || user.chars().take(32).collect::<String>();
    if user != caller.user.name && !caller.is_operator() {
        return Err(KeyRefusal::ForAnother(shown()));
    }
    if !is_user_name(&user) {
        return Err(KeyRefusal::Name(shown()));
    }
    Ok(user)
}
