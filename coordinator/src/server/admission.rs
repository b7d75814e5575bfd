//! Who may connect: the tokens that are out, and the keys of members.

mod register;

use protocol::cluster::NodeName;
use protocol::cluster::name::NameError;
use protocol::cluster::powers::{MOST_NAMED, Powers, SpeaksFor};
use protocol::transport::{
    Authorities, Authority, CertifiedNode, Fingerprint, Greeting, Holder, RefusalKind, Role,
    Secret, Shown, Token, TransportError,
};
use register::{IssuedToken, Register, Registered};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use thiserror::Error;

/// Admission, as the tasks of the server share it.
pub type SharedAdmission = Arc<Mutex<Admission>>;

/// Tokens that may be out at one time.
const MAX_TOKENS: usize = 1000;

/// Members at most.
const MAX_MEMBERS: usize = 4096;

/// Users that tokens may have named, all together.
const MAX_NAMED: usize = 16_384;

/// The most times that a token may be good for.
pub const MAX_USES: u32 = MAX_MEMBERS as u32;

/// The longest time that a token may be good for, in seconds: a year.
pub const MAX_VALID_S: u64 = 366 * 24 * 3600;

/// Why somebody is not let in, or a token not made.
#[derive(Debug, Error)]
pub enum AdmissionError {
    /// The file could not be read or written.
    #[error("{action} {}: {reason}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// No such token.
    #[error(
        "the join token is not known here: 'ckptd token' on the coordinator's machine makes one"
    )]
    WrongToken,
    /// It was good for fewer.
    #[error("the join token is used up: 'ckptd token' makes another")]
    UsedUp,
    /// It was good for a shorter time.
    #[error("the join token has expired: 'ckptd token' makes another")]
    Expired,
    /// The name makes no sense.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Another machine has it.
    #[error("{0} is a member already: choose another --name, or 'ckptd nodes --remove {0}' first")]
    NameTaken(NodeName),
    /// Its certificate is no good.
    #[error("{0}")]
    Certificate(String),
    /// There are too many.
    #[error("there are {0} {1} already, the most that there can be")]
    TooMany(usize, &'static str),
    /// A certificate could not be made.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// No randomness.
    #[error("make a secret: {0}")]
    Secret(#[from] rustls::Error),
}

impl AdmissionError {
    /// The kind of refusal that it is for the one who is refused.
    #[must_use]
    pub fn kind(&self) -> RefusalKind {
        match self {
            Self::WrongToken | Self::UsedUp | Self::Expired => RefusalKind::Token,
            Self::Name(_) | Self::NameTaken(_) => RefusalKind::Name,
            Self::Certificate(_) => RefusalKind::Certificate,
            _ => RefusalKind::Other,
        }
    }
}

/// Who may connect.
#[derive(Debug)]
pub struct Admission {
    path: PathBuf,
    authorities: Authorities,
    register: Register,
    /// How often the register was changed since it was opened.
    changes: u64,
}

/// What becomes of somebody who has said who it is.
#[derive(Debug)]
pub enum Admitted {
    /// The agent of a member, with the key that it has proved.
    Agent(NodeName, Fingerprint),
    /// A new member, with its certificate.
    Joined(NodeName, CertifiedNode),
    /// A member, with a new certificate of its key, by which it is to come again.
    Renewed(NodeName, CertifiedNode),
}

impl Admission {
    /// As it is kept in the folder, or of a new cluster.
    ///
    /// # Errors
    /// Where its files can't be read or written.
    pub fn open(folder: &Path) -> Result<Self, AdmissionError> {
        let authorities = Authorities::open(folder)?;
        let authority = authorities.current().fingerprint();
        let path = folder.join("members.json");
        let register = Register::open(&path, &authority)?;
        let mut admission = Self { path, authorities, register, changes: 0 };
        admission.forget_authorities()?;
        Ok(admission)
    }

    /// Those of before are worth nothing once all members have come since.
    fn forget_authorities(&mut self) -> Result<(), TransportError> {
        let members = self.register.registered.values();
        let needed: BTreeSet<_> = members.filter_map(|known| known.authority.as_ref()).collect();
        self.authorities.forget(|old| needed.contains(old))
    }

    /// A new authority certifies from now on. Members get certificates of it when they come; tokens that are out, which name
    /// the old one, are worth nothing.
    ///
    /// # Errors
    /// Where that can't be kept.
    pub fn exchange_authority(&mut self) -> Result<(), AdmissionError> {
        let mut register = self.register.clone();
        register.tokens.clear();
        self.keep(register)?;
        Ok(self.authorities.exchange()?)
    }

    /// Members that have not come since the cluster got the authority that it has.
    pub fn of_before(&self) -> impl Iterator<Item = &NodeName> {
        let current = Some(self.authority().fingerprint());
        let members = self.register.registered.iter();
        members.filter(move |(_, known)| known.authority != current).map(|(node, _)| node)
    }

    /// How often what is kept was changed since it was opened.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The cluster's authority.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        self.authorities.current()
    }

    /// It, and those of before.
    #[must_use]
    pub fn authorities(&self) -> &Authorities {
        &self.authorities
    }

    /// All members, connected or not.
    pub fn members(&self) -> impl Iterator<Item = (NodeName, Fingerprint, Powers)> {
        self.register
            .registered
            .iter()
            .map(|(node, known)| (node.clone(), known.key.clone(), known.powers.clone()))
    }

    /// The key by which a node is a member, and what it may order, if it is one.
    #[must_use]
    pub fn member(&self, node: &NodeName) -> Option<(Fingerprint, Powers)> {
        let known = self.register.registered.get(node)?;
        Some((known.key.clone(), known.powers.clone()))
    }

    /// Users for whom only members speak that tokens have named for them.
    #[must_use]
    pub fn named(&self) -> &BTreeSet<String> {
        &self.register.named
    }

    /// Members that alone get the cluster's key, where there are any.
    #[must_use]
    pub fn standbys(&self) -> BTreeSet<NodeName> {
        self.register.standbys.clone().unwrap_or_default()
    }

    /// Whether a member gets the cluster's key with its copy of the folder: one that was named for it, or, as long as none
    /// is, one that speaks for somebody. Workers are other people's machines.
    #[must_use]
    pub fn may_hold_key(&self, node: &NodeName) -> bool {
        if let Some(standbys) = &self.register.standbys {
            return standbys.contains(node);
        }
        let known = self.register.registered.get(node);
        known.is_some_and(|known| {
            known.powers.operates || known.powers.speaks_for != SpeaksFor::Nobody
        })
    }

    /// Names a member that gets the cluster's key, or takes the name back.
    ///
    /// # Errors
    /// Where that can't be kept.
    pub fn name_standby(&mut self, node: &NodeName, on: bool) -> Result<(), AdmissionError> {
        let mut register = self.register.clone();
        let standbys = register.standbys.get_or_insert_default();
        match on {
            true => standbys.insert(node.clone()),
            false => standbys.remove(node),
        };
        self.keep(register)
    }

    /// Makes a token, good for some uses until some time, for members with these powers.
    ///
    /// # Errors
    /// Where there are too many, or it can't be kept.
    pub fn issue(
        &mut self,
        addresses: Vec<String>,
        uses: u32,
        valid_s: u64,
        powers: Powers,
        now_ms: u64,
    ) -> Result<Token, AdmissionError> {
        let secret = Secret::generate()?;
        let mut register = self.register.clone();
        // Expired ones are remembered for as long again, so that it can be said what they are.
        register.tokens.retain(|token| now_ms < token.expires_ms.saturating_add(86_400_000));
        if register.tokens.len() >= MAX_TOKENS {
            return Err(AdmissionError::TooMany(MAX_TOKENS, "join tokens"));
        }
        if let SpeaksFor::Only(users) = &powers.speaks_for {
            if users.len() > MOST_NAMED {
                return Err(AdmissionError::TooMany(MOST_NAMED, "users of one token"));
            }
            register.named.extend(users.iter().cloned());
            if register.named.len() > MAX_NAMED {
                return Err(AdmissionError::TooMany(MAX_NAMED, "users named by tokens"));
            }
        }
        let valid_ms = valid_s.min(MAX_VALID_S) * 1000;
        register.tokens.push(IssuedToken {
            secret: secret.hash(),
            expires_ms: now_ms.saturating_add(valid_ms),
            uses: uses.min(MAX_USES),
            powers,
        });
        self.keep(register)?;
        Ok(Token { addresses, authority: self.authority().fingerprint(), secret })
    }

    /// Decides about somebody who has shown a certificate and said what it wants. A token that is
    /// used here is used up from then on, also if its user never hears of it.
    ///
    /// # Errors
    /// Why it is not let in.
    pub fn admit(
        &mut self,
        holder: &Holder,
        greeting: &Greeting,
        now_ms: u64,
    ) -> Result<Admitted, AdmissionError> {
        let refuse = |reason: String| Err(AdmissionError::Certificate(reason));
        match (greeting, holder) {
            (Greeting::Join { secret, name, .. }, Holder::Stranger { public_key, .. }) => {
                self.join(secret, name, public_key, now_ms)
            }
            (Greeting::Successor { .. }, _) => refuse("it is no agent".to_owned()),
            (Greeting::Join { .. }, Holder::Member { role, .. }) => {
                refuse(format!("it is certified as {role} already"))
            }
            (Greeting::Member { .. }, Holder::Stranger { reason, .. }) => refuse(reason.clone()),
            (Greeting::Member { .. }, Holder::Member { role, shown }) => match role {
                Role::Agent(node) => self.welcome(node, shown),
                Role::Coordinator => {
                    refuse(format!("its certificate is for {role}, not for an agent"))
                }
            },
        }
    }

    fn join(
        &mut self,
        secret: &str,
        name: &str,
        public_key: &[u8],
        now_ms: u64,
    ) -> Result<Admitted, AdmissionError> {
        let hash = Secret::claimed(secret).hash();
        let mut register = self.register.clone();
        // Hashes are compared, so the time that it takes tells nothing of the secret.
        let token = register
            .tokens
            .iter_mut()
            .find(|token| token.secret == hash)
            .ok_or(AdmissionError::WrongToken)?;
        if now_ms >= token.expires_ms {
            return Err(AdmissionError::Expired);
        }
        token.uses = token.uses.checked_sub(1).ok_or(AdmissionError::UsedUp)?;
        let name: NodeName = name.parse()?;
        let powers = token.powers.clone();
        if register.registered.contains_key(&name) {
            return Err(AdmissionError::NameTaken(name));
        }
        if register.registered.len() >= MAX_MEMBERS {
            return Err(AdmissionError::TooMany(MAX_MEMBERS, "members"));
        }
        let certified = self.authority().certify(&Role::Agent(name.clone()), public_key)?;
        let (key, authority) = (certified.key.clone(), Some(self.authority().fingerprint()));
        register.registered.insert(name.clone(), Registered { key, powers, authority });
        self.keep(register)?;
        Ok(Admitted::Joined(name, certified))
    }

    /// A member is let in, or has its certificate renewed first, and comes again with that.
    fn welcome(&mut self, node: &NodeName, shown: &Shown) -> Result<Admitted, AdmissionError> {
        let known = self.register.registered.get(node).filter(|known| known.is(shown));
        let known = known.ok_or_else(|| {
            AdmissionError::Certificate(format!(
                "the certificate of {node} has been revoked: join again with a new token"
            ))
        })?;
        if shown.is_due {
            let role = Role::Agent(node.clone());
            let certified = self.authority().certify(&role, &shown.public_key)?;
            return Ok(Admitted::Renewed(node.clone(), certified));
        }
        let authority = Some(self.authority().fingerprint());
        if known.key != shown.key || known.authority != authority {
            let powers = known.powers.clone();
            let mut register = self.register.clone();
            let now = Registered { key: shown.key.clone(), powers, authority };
            register.registered.insert(node.clone(), now);
            self.keep(register)?;
            self.forget_authorities()?;
        }
        Ok(Admitted::Agent(node.clone(), shown.key.clone()))
    }

    /// Whether a node is a member by this key: it may have been turned out, and invited again, since it was let in.
    #[must_use]
    pub fn is_member(&self, node: &NodeName, key: &Fingerprint) -> bool {
        self.register.registered.get(node).is_some_and(|known| known.key == *key)
    }

    /// Turns a member out: its key is worth nothing from then on.
    ///
    /// # Errors
    /// Where that can't be kept; in this process it is out all the same.
    pub fn revoke(&mut self, node: &NodeName) -> Result<(), AdmissionError> {
        let mut register = self.register.clone();
        register.registered.remove(node);
        // Another machine may get that name.
        if let Some(standbys) = &mut register.standbys {
            standbys.remove(node);
        }
        self.register.registered.remove(node);
        self.keep(register)
    }

    fn keep(&mut self, register: Register) -> Result<(), AdmissionError> {
        register.write(&self.path)?;
        self.register = register;
        self.changes += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::register::as_before;
    use super::*;
    use protocol::cluster::VERSIONS;
    use std::fs;

    const MINUTE: u64 = 60_000;

    fn ed25519(byte: u8) -> Vec<u8> {
        // RFC 8410, section 4.
        let mut key = vec![0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
        key.extend([byte; 32]);
        key
    }

    fn stranger(byte: u8) -> Holder {
        Holder::Stranger { public_key: ed25519(byte), claims: None, reason: String::new() }
    }

    fn join(
        admission: &mut Admission,
        secret: &str,
        name: &str,
        now_ms: u64,
    ) -> Result<Admitted, AdmissionError> {
        let holder = stranger(7);
        let greeting =
            Greeting::Join { version: VERSIONS, secret: secret.to_owned(), name: name.to_owned() };
        admission.admit(&holder, &greeting, now_ms)
    }

    #[test]
    fn tokens_count_uses_and_time_across_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let mut admission = Admission::open(dir.path()).unwrap();
        let addresses = vec!["10.0.0.1:7070".to_owned()];
        let token = admission.issue(addresses, 2, 60, Powers::default(), 0).unwrap();
        let secret = token.secret.expose();
        let wrong = join(&mut admission, "nonsense", "a", 0);
        assert!(matches!(wrong, Err(AdmissionError::WrongToken)));
        assert!(matches!(join(&mut admission, secret, "a", 0), Ok(Admitted::Joined(..))));
        // What failed has used nothing up.
        let taken = join(&mut admission, secret, "a", 0);
        assert!(matches!(taken, Err(AdmissionError::NameTaken(_))));
        let bad = join(&mut admission, secret, "../a", 0);
        assert!(matches!(bad, Err(AdmissionError::Name(_))));
        let fingerprint = admission.authority().fingerprint();
        drop(admission);
        let mut admission = Admission::open(dir.path()).unwrap();
        assert_eq!(admission.authority().fingerprint(), fingerprint);
        let late = join(&mut admission, secret, "b", MINUTE);
        assert!(matches!(late, Err(AdmissionError::Expired)));
        assert!(matches!(join(&mut admission, secret, "b", MINUTE - 1), Ok(Admitted::Joined(..))));
        let over = join(&mut admission, secret, "c", 0);
        assert!(matches!(over, Err(AdmissionError::UsedUp)));
        let text = fs::read_to_string(dir.path().join("members.json")).unwrap();
        assert!(!text.contains(secret), "secrets are not kept");
    }

    #[test]
    fn a_revoked_certificate_is_worth_nothing_even_beside_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut admission = Admission::open(dir.path()).unwrap();
        let token = admission.issue(Vec::new(), 5, 60, Powers::default(), 0).unwrap();
        let secret = token.secret.expose().to_owned();
        let Ok(Admitted::Joined(node, first)) = join(&mut admission, &secret, "a", 0) else {
            panic!("not joined");
        };
        let first_key = shown(7, false);
        assert_eq!(first_key.key, first.key);
        assert!(come(&mut admission, &node, first_key.clone()).is_ok());
        admission.revoke(&node).unwrap();
        let refused = come(&mut admission, &node, first_key.clone()).unwrap_err();
        assert_eq!(refused.kind(), RefusalKind::Certificate);
        let holder = stranger(8);
        let greeting = Greeting::Join { version: VERSIONS, secret, name: "a".to_owned() };
        assert!(matches!(admission.admit(&holder, &greeting, 0), Ok(Admitted::Joined(..))));
        assert!(come(&mut admission, &node, first_key).is_err());
        assert!(come(&mut admission, &node, shown(8, false)).is_ok());
    }

    /// What the holder of that key shows.
    fn shown(byte: u8, is_due: bool) -> Shown {
        let public_key = ed25519(byte);
        let (key, certificate) = (Fingerprint::of_key(&public_key), Fingerprint::default());
        Shown { key, certificate, public_key, is_due }
    }

    fn come(
        admission: &mut Admission,
        node: &NodeName,
        shown: Shown,
    ) -> Result<Admitted, AdmissionError> {
        let holder = Holder::Member { role: Role::Agent(node.clone()), shown };
        admission.admit(&holder, &Greeting::Member { version: VERSIONS }, 0)
    }

    #[test]
    fn members_renew_after_an_exchange_and_the_old_authority_goes_with_the_last() {
        let dir = tempfile::tempdir().unwrap();
        let mut admission = Admission::open(dir.path()).unwrap();
        let token = admission.issue(Vec::new(), 5, 60, Powers::default(), 0).unwrap();
        let secret = token.secret.expose().to_owned();
        let (a, b): (NodeName, NodeName) = ("a".parse().unwrap(), "b".parse().unwrap());
        join(&mut admission, &secret, "a", 0).unwrap();
        let holder = stranger(8);
        let greeting =
            Greeting::Join { version: VERSIONS, secret: secret.clone(), name: "b".to_owned() };
        admission.admit(&holder, &greeting, 0).unwrap();
        let old = admission.authority().fingerprint();
        admission.exchange_authority().unwrap();
        let mut admission = Admission::open(dir.path()).unwrap();
        assert_ne!(admission.authority().fingerprint(), old);
        assert_eq!(admission.authorities().before().collect::<Vec<_>>(), [old]);
        assert_eq!(admission.of_before().cloned().collect::<Vec<_>>(), [a.clone(), b.clone()]);
        let late = join(&mut admission, &secret, "c", 0);
        assert!(matches!(late, Err(AdmissionError::WrongToken)));
        // One whose certificate is of before, or runs out soon, gets one; with that it is in.
        for (node, byte) in [(&a, 7), (&b, 8)] {
            let renewed = come(&mut admission, node, shown(byte, true));
            assert!(matches!(&renewed, Ok(Admitted::Renewed(name, _)) if name == node));
            assert_eq!(admission.authorities().before().count(), 1);
            let in_it = come(&mut admission, node, shown(byte, false));
            assert!(matches!(in_it, Ok(Admitted::Agent(..))));
        }
        assert_eq!(admission.authorities().before().count(), 0);
        assert_eq!(admission.of_before().count(), 0);
        // A key that is in no list gets none, whoever has certified it.
        let forged = come(&mut admission, &a, shown(9, true)).unwrap_err();
        assert_eq!(forged.kind(), RefusalKind::Certificate);
    }

    #[test]
    fn members_have_the_powers_of_their_token_and_those_of_before_keep_theirs() {
        let dir = tempfile::tempdir().unwrap();
        let mut admission = Admission::open(dir.path()).unwrap();
        let users = SpeaksFor::Only(BTreeSet::from(["alice".to_owned()]));
        let powers = Powers { speaks_for: users, operates: false };
        let token = admission.issue(Vec::new(), 1, 60, powers.clone(), 0).unwrap();
        let secret = token.secret.expose().to_owned();
        let Ok(Admitted::Joined(node, certified)) = join(&mut admission, &secret, "a", 0) else {
            panic!("not joined");
        };
        assert!(admission.named().contains("alice"));
        let known = |admission: &Admission| admission.members().next().unwrap();
        let expected = (node.clone(), certified.key, powers);
        assert_eq!(known(&admission), expected);
        // As an earlier ckptd has written it.
        let old = r#"{"format":1,"tokens":[],"members":{"a":"of its certificate"}}"#;
        fs::write(dir.path().join("members.json"), old).unwrap();
        let mut admission = Admission::open(dir.path()).unwrap();
        let certificate: Fingerprint = serde_json::from_str("\"of its certificate\"").unwrap();
        assert_eq!(known(&admission), (node.clone(), certificate.clone(), as_before()));
        // It is known by its key once it has come.
        let came = come(&mut admission, &node, Shown { certificate, ..shown(7, false) });
        assert!(matches!(came, Ok(Admitted::Agent(..))));
        assert_eq!(known(&admission), (node, expected.1, as_before()));
    }
}
