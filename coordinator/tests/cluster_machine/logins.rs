//! Users who prove by keys who they are.

use super::common::launch_spec;
use super::rig::{Rig, name};
use ckpt_node::Event;
use coordinator::cluster::ClusterEntry;
use protocol::cluster::agent::{JobUser, ToAgent};
use protocol::cluster::audit::AuditEvent;
use protocol::cluster::client::{Answer, Ask, RunRequest};
use protocol::cluster::login::{MAX_VALID_S, NAMESPACE, ShownKey, ShownLogin, Statement};
use protocol::cluster::powers::{Powers, SpeaksFor};
use ring::signature::{Ed25519KeyPair, KeyPair};
use ssh_key::public::{Ed25519PublicKey, KeyData};
use ssh_key::{Algorithm, HashAlg, LineEnding, PublicKey, Signature, SshSig};

/// A member that speaks for nobody, one that speaks for all its users, another that speaks for nobody, an operator's.
const WORKER: usize = 1;
const LOGIN: usize = 2;
const OTHER: usize = 3;
const OPERATOR: usize = 4;

/// An account on each machine; its name is the user's only where that is known.
const GUEST: (u32, &str) = (1001, "guest");
const ALICE: (u32, &str) = (1000, "alice");
const ROOT: (u32, &str) = (0, "root");

/// A key of Ed25519, as ssh-keygen would use it.
struct Key(Ed25519KeyPair);

impl Key {
    fn new(seed: u8) -> Self {
        Self(Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap())
    }

    fn data(&self) -> KeyData {
        KeyData::Ed25519(Ed25519PublicKey(self.0.public_key().as_ref().try_into().unwrap()))
    }

    fn line(&self) -> String {
        PublicKey::from(self.data()).to_openssh().unwrap()
    }

    fn fingerprint(&self) -> String {
        protocol::keys::UserKey::parse(&self.line()).unwrap().fingerprint().to_owned()
    }

    fn sign(&self, statement: &Statement) -> Ask {
        let text = statement.text();
        let data = SshSig::signed_data(NAMESPACE, HashAlg::Sha512, text.as_bytes()).unwrap();
        let bytes = self.0.sign(&data).as_ref().to_vec();
        let signature = Signature::new(Algorithm::Ed25519, bytes).unwrap();
        let signed = SshSig::new(self.data(), NAMESPACE, HashAlg::Sha512, signature).unwrap();
        Ask::Prove { signature: signed.to_pem(LineEnding::LF).unwrap() }
    }
}

/// A cluster, and the clients of its members' sockets.
struct World {
    rig: Rig,
    clients: u64,
}

type Place = (usize, (u32, &'static str));

/// By what a login ends.
type End = fn(&mut World);

impl World {
    fn new() -> Self {
        let mut world = Self { rig: Rig::new(4), clients: 0 };
        // An agent that is turned out would end.
        world.rig.deaf_to = |_, message| matches!(message, ToAgent::Refused { .. });
        world.admit();
        world
    }

    /// As a coordinator hears of them when it begins.
    fn admit(&mut self) {
        self.rig.admit(WORKER, Powers::default());
        self.rig.admit(LOGIN, Powers::of_all_users(false));
        self.rig.admit(OTHER, Powers::default());
        self.rig.admit(OPERATOR, Powers::of_all_users(true));
    }

    /// A command connects there.
    fn open(&mut self, (node, (uid, user)): Place) -> (usize, u64) {
        self.clients += 1;
        let (client, user) = (self.clients, JobUser { uid, name: user.to_owned() });
        self.rig.happens(node, Event::ClientOpened { client, user });
        (node, client)
    }

    /// What it is told when it says that.
    fn say(&mut self, (node, client): (usize, u64), ask: &Ask) -> Vec<Answer> {
        let from = self.rig.sent.len();
        let line = serde_json::to_string(ask).unwrap();
        self.rig.happens(node, Event::ClientLine { client, line });
        self.told((node, client), from)
    }

    /// What it was told behind so many messages to agents.
    fn told(&self, (node, client): (usize, u64), from: usize) -> Vec<Answer> {
        let answers = self.rig.sent[from..].iter().filter_map(|(at, message)| match message {
            ToAgent::Client { client: to, line: Some(line) } if (*at, *to) == (node, client) => {
                Some(serde_json::from_str(line).unwrap())
            }
            _ => None,
        });
        answers.collect()
    }

    /// A command that asks one thing.
    fn ask(&mut self, place: Place, ask: Ask) -> Vec<Answer> {
        let client = self.open(place);
        self.say(client, &ask)
    }

    fn refused(&mut self, place: Place, ask: Ask, words: &str) {
        refused(&self.ask(place, ask), words);
    }

    fn done(&mut self, place: Place, ask: Ask) {
        let answers = self.ask(place, ask);
        assert!(matches!(answers[..], [Answer::Done { .. }]), "{answers:?}");
    }

    fn listing<T: serde::de::DeserializeOwned>(&mut self, place: Place, ask: Ask) -> T {
        match &self.ask(place, ask)[..] {
            [Answer::Listing { value }] => serde_json::from_value(value.clone()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn challenge(&mut self, place: Place, user: &str, valid_s: u64) -> ((usize, u64), Statement) {
        let client = self.open(place);
        let answers = self.say(client, &Ask::Login { user: user.to_owned(), valid_s });
        let [Answer::Challenge { statement }] = &answers[..] else { panic!("{answers:?}") };
        (client, statement.as_ref().clone())
    }

    fn log_in(&mut self, place: Place, user: &str, key: &Key, valid_s: u64) -> Vec<Answer> {
        let (client, statement) = self.challenge(place, user, valid_s);
        self.say(client, &key.sign(&statement))
    }

    fn logged_in(&mut self, place: Place, user: &str, key: &Key, valid_s: u64) {
        let answers = self.log_in(place, user, key, valid_s);
        assert_eq!(answers, [Answer::Done { text: None }]);
    }

    fn is_believed(&mut self, place: Place) -> bool {
        matches!(self.ask(place, Ask::Jobs)[..], [Answer::Listing { .. }])
    }
}

fn refused(answers: &[Answer], words: &str) {
    let [Answer::Failed { reason, .. }] = answers else { panic!("not refused: {answers:?}") };
    assert!(reason.contains(words), "{reason:?} does not say {words:?}");
}

fn add(key: &Key) -> Ask {
    Ask::AddKey { user: None, key: key.line() }
}

fn add_for(user: &str, key: &Key) -> Ask {
    Ask::AddKey { user: Some(user.to_owned()), key: key.line() }
}

fn run() -> Ask {
    let (launch, settings) = (launch_spec("rank"), Rig::on_demand());
    Ask::Run(Box::new(RunRequest { name: None, launch, settings, detach: false, anywhere: false }))
}

fn run_as(name: &str) -> Ask {
    let Ask::Run(request) = run() else { unreachable!() };
    Ask::Run(Box::new(RunRequest { name: Some(name.to_owned()), ..*request }))
}

#[test]
fn each_user_has_names_of_its_own() {
    let mut world = World::new();
    let bob = (LOGIN, (1002, "bob"));
    let id = |world: &mut World, place| match &world.ask(place, run_as("fold"))[0] {
        Answer::Accepted { job } => job.clone(),
        other => panic!("{other:?}"),
    };
    let (hers, his) = (id(&mut world, (LOGIN, ALICE)), id(&mut world, bob));
    assert_ne!(hers, his);
    world.refused((LOGIN, ALICE), run_as("fold"), "there is a job of that name");
    world.refused(bob, run_as(&his), "there is a job of that name");
    let found = |world: &mut World, place, wanted: &str| -> Vec<String> {
        let shown: serde_json::Value =
            world.listing(place, Ask::Status { job: Some(wanted.to_owned()) });
        let id = |job: &serde_json::Value| job["id"].as_str().unwrap().to_owned();
        shown.as_array().map_or_else(|| vec![id(&shown)], |all| all.iter().map(id).collect())
    };
    assert_eq!(found(&mut world, (LOGIN, ALICE), "fold"), [hers.as_str()]);
    assert_eq!(found(&mut world, bob, "fold"), [his.as_str()]);
    // An operator sees both, and says which.
    let operator = (OPERATOR, ROOT);
    let ask = |wanted: &str| Ask::Status { job: Some(wanted.to_owned()) };
    world.refused(operator, ask("fold"), &format!("it may be {hers}, {his}"));
    assert_eq!(found(&mut world, operator, &his), [his.as_str()]);
    world.refused((LOGIN, ALICE), ask(&his), "none of that name");
}

#[test]
fn a_key_says_who_somebody_is_where_the_member_does_not() {
    let mut world = World::new();
    let key = Key::new(1);
    let guest = (WORKER, GUEST);
    world.refused(guest, Ask::Jobs, "log in with a key (ckptd login)");
    world.refused(guest, add(&key), "does not speak for users of that name");
    world.done((LOGIN, ALICE), add(&key));
    world.logged_in(guest, "alice", &key, 3600);
    world.rig.audited.clear();
    let answers = world.ask(guest, run());
    assert!(matches!(answers[0], Answer::Accepted { .. }), "{answers:?}");
    let created = world.rig.log.iter().find_map(|entry| match entry {
        ClusterEntry::JobCreated(created) => Some(created.user.clone()),
        _ => None,
    });
    // No number of the guest's machine is taken for hers.
    assert_eq!(created, Some(JobUser { uid: u32::MAX, name: "alice".to_owned() }));
    let AuditEvent::Ordered { order } = &world.rig.audited[0] else { panic!("no order") };
    assert_eq!((order.user.as_str(), order.account.as_str()), ("alice", "guest"));
    let jobs: serde_json::Value = world.listing((LOGIN, ALICE), Ask::Jobs);
    assert_eq!(jobs.as_array().unwrap().len(), 1);
    // Nobody else: another account, another number by that name, another machine.
    for other in [(WORKER, ALICE), (WORKER, (7, "guest")), (WORKER, ROOT), (OTHER, GUEST)] {
        assert!(!world.is_believed(other), "{other:?}");
    }
    let shown: Vec<ShownLogin> = world.listing(guest, Ask::Logins);
    let [login] = &shown[..] else { panic!("{shown:?}") };
    assert_eq!((login.user.as_str(), &login.key, login.here), ("alice", &key.fingerprint(), true));
    let elsewhere: Vec<ShownLogin> = world.listing((OTHER, GUEST), Ask::Logins);
    assert_eq!(elsewhere, []);
    world.done(guest, Ask::Logout { all: false });
    assert!(!world.is_believed(guest));
}

#[test]
fn a_signature_counts_once_for_one_place_and_one_user() {
    let mut world = World::new();
    let (hers, his, unknown) = (Key::new(1), Key::new(2), Key::new(3));
    world.done((LOGIN, ALICE), add(&hers));
    world.done((LOGIN, (1002, "bob")), add(&his));
    let guest = (WORKER, GUEST);
    let (client, statement) = world.challenge(guest, "alice", 3600);
    let signed = hers.sign(&statement);
    assert_eq!(world.say(client, &signed), [Answer::Done { text: None }]);
    world.done(guest, Ask::Logout { all: false });
    // The same once more, over that connection, a new one, and ones that wait for another signature.
    refused(&world.say(client, &signed), "nothing was to be signed");
    world.refused(guest, signed.clone(), "nothing was to be signed");
    for place in [guest, (WORKER, ROOT), (OTHER, GUEST)] {
        let (client, other) = world.challenge(place, "alice", 3600);
        assert_ne!(other.nonce, statement.nonce);
        refused(&world.say(client, &signed), "not of what was to be signed");
        // It was used up by that.
        refused(&world.say(client, &hers.sign(&other)), "nothing was to be signed");
    }
    for wrong in [&his, &unknown] {
        let answers = world.log_in(guest, "alice", wrong, 3600);
        refused(&answers, "no key of alice that counts");
    }
    let (client, statement) = world.challenge(guest, "alice", 3600);
    for changed in [
        Statement { user: "root".to_owned(), ..statement.clone() },
        Statement { account: 0, ..statement.clone() },
        Statement { until_ms: statement.until_ms + 1, ..statement.clone() },
        Statement { member: name(OTHER), ..statement.clone() },
    ] {
        let answers = world.say(client, &hers.sign(&changed));
        assert!(matches!(answers[..], [Answer::Failed { .. }]), "{answers:?}");
    }
    for place in [guest, (WORKER, ROOT), (OTHER, GUEST)] {
        assert!(!world.is_believed(place), "{place:?}");
    }
    // Too late.
    let (client, statement) = world.challenge(guest, "alice", 3600);
    world.rig.wait(181_000);
    refused(&world.say(client, &hers.sign(&statement)), "too late");
}

#[test]
fn a_login_ends_by_its_time_its_key_and_its_member() {
    let guest = (WORKER, GUEST);
    let key = Key::new(1);
    let ends: [(&str, End); 5] = [
        ("it has run out", |world| world.rig.wait(61_000)),
        ("its key was given up", |world| {
            let (user, fingerprint) = (None, Key::new(1).fingerprint());
            world.done((LOGIN, ALICE), Ask::RemoveKey { user, fingerprint });
        }),
        ("somebody else has logged in", |world| {
            let his = Key::new(2);
            world.done((LOGIN, (1002, "bob")), add(&his));
            world.logged_in((WORKER, GUEST), "bob", &his, 60);
            world.done((WORKER, GUEST), Ask::Logout { all: false });
        }),
        ("a member that had a part in it was turned out", |world| {
            world.done((OPERATOR, ROOT), Ask::RemoveNode { node: name(LOGIN) });
        }),
        ("it was ended", |world| world.done((LOGIN, ALICE), Ask::Logout { all: true })),
    ];
    for (why, end) in ends {
        let mut world = World::new();
        world.done((LOGIN, ALICE), add(&key));
        world.logged_in(guest, "alice", &key, 60);
        let client = world.open(guest);
        world.say(client, &run());
        let from = world.rig.sent.len();
        end(&mut world);
        // Whoever looked at the job from there sees it no more.
        let told = world.told(client, from);
        let said = told
            .iter()
            .any(|answer| matches!(answer, Answer::Failed { reason, .. } if reason.contains(why)));
        assert!(said, "{why}: {told:?}");
        assert!(!world.is_believed(guest), "{why}");
        let from = world.rig.sent.len();
        world.rig.prints("still there\n");
        assert_eq!(world.told(client, from), [], "{why}");
    }
}

#[test]
fn a_login_of_the_same_user_goes_on() {
    let mut world = World::new();
    let (guest, key) = ((WORKER, GUEST), Key::new(1));
    world.done((LOGIN, ALICE), add(&key));
    world.logged_in(guest, "alice", &key, 60);
    let client = world.open(guest);
    world.say(client, &run());
    world.rig.wait(50_000);
    world.logged_in(guest, "alice", &key, 60);
    world.rig.wait(30_000);
    let from = world.rig.sent.len();
    world.rig.prints("still there\n");
    assert!(matches!(world.told(client, from)[..], [Answer::Output { .. }]));
}

#[test]
fn a_coordinator_that_carries_on_knows_keys_and_logins() {
    let mut world = World::new();
    let (guest, key) = ((WORKER, GUEST), Key::new(1));
    world.done((LOGIN, ALICE), add(&key));
    world.logged_in(guest, "alice", &key, 3600);
    world.logged_in((OTHER, GUEST), "alice", &key, 1);
    let (client, statement) = world.challenge((OTHER, ROOT), "alice", 60);
    world.rig.skip(2000);
    world.rig.restart_coordinator();
    // Until it has heard what the member may by which the key came, that counts for nothing.
    assert!(!world.is_believed(guest));
    world.admit();
    assert!(world.is_believed(guest));
    assert!(!world.is_believed((OTHER, GUEST)));
    let again = world.open((OTHER, ROOT));
    assert_ne!(again, client);
    refused(&world.say(again, &key.sign(&statement)), "nothing was to be signed");
    world.done((OPERATOR, ROOT), Ask::RemoveNode { node: name(LOGIN) });
    world.rig.restart_coordinator();
    world.admit();
    assert!(!world.is_believed(guest), "its key came by the one that was turned out");
    let keys: Vec<ShownKey> = world.listing((OPERATOR, ROOT), Ask::Keys { user: None });
    assert_eq!(keys, []);
    // All that is decided about keys is to be in a copy before anybody is told.
    let of_keys =
        world.rig.log.iter().filter(|entry| {
            matches!(entry, ClusterEntry::KeyAdded { .. } | ClusterEntry::LoggedIn(_))
        });
    assert!(of_keys.clone().count() == 3 && of_keys.clone().all(ClusterEntry::waits_for_copy));
}

#[test]
fn a_login_gives_no_operators_rights_and_no_say_about_keys() {
    let mut world = World::new();
    let (key, another) = (Key::new(1), Key::new(2));
    world.done((OPERATOR, ROOT), add(&key));
    for guest in [(WORKER, ROOT), (OPERATOR, ROOT)] {
        world.logged_in(guest, "root", &key, 60);
        world.refused(guest, Ask::RemoveNode { node: name(OTHER) }, "only an operator");
        world.refused(guest, Ask::Audit { from: 0 }, "only an operator");
        world.refused(guest, Ask::Standby { node: name(WORKER), on: true }, "only an operator");
        world.refused(guest, add(&another), "who has logged in by one may not");
        let (user, fingerprint) = (None, key.fingerprint());
        world.refused(guest, Ask::RemoveKey { user, fingerprint }, "may not");
    }
    // But for the login, root of an operator's machine is one.
    world.done((OPERATOR, ROOT), Ask::Logout { all: true });
    world.done((OPERATOR, ROOT), add_for("alice", &another));
    assert!(!world.is_believed((WORKER, ROOT)));
    // Whoever owns a machine may take it away, whoever that is elsewhere.
    world.logged_in((WORKER, ROOT), "alice", &another, 60);
    world.refused((WORKER, ROOT), Ask::Leave { node: Some(name(OTHER)) }, "only its owner");
    world.done((WORKER, ROOT), Ask::Leave { node: None });
}

#[test]
fn keys_are_their_users_and_operators_to_say() {
    let mut world = World::new();
    let key = Key::new(1);
    let (alice, root) = ((LOGIN, ALICE), (OPERATOR, ROOT));
    world.refused(alice, add_for("bob", &key), "only an operator");
    world.refused((LOGIN, ROOT), add_for("alice", &key), "only an operator");
    world.refused((LOGIN, (1003, "1003")), add(&key), "no name of a user");
    world.refused(root, add_for("a b", &key), "no name of a user");
    let text = format!("command=\"id\" {}", key.line());
    world.refused(alice, Ask::AddKey { user: None, key: text }, "it has options");
    world.done(root, add_for("bob", &key));
    world.done(alice, add(&key));
    let keys = |world: &mut World, place, user: Option<&str>| -> Vec<String> {
        let user = user.map(str::to_owned);
        let keys: Vec<ShownKey> = world.listing(place, Ask::Keys { user });
        keys.into_iter().map(|key| key.user).collect()
    };
    assert_eq!(keys(&mut world, root, None), ["alice", "bob"]);
    assert_eq!(keys(&mut world, root, Some("bob")), ["bob"]);
    assert_eq!(keys(&mut world, alice, None), ["alice"]);
    assert_eq!(keys(&mut world, alice, Some("bob")), [""; 0]);
    let fingerprint = key.fingerprint();
    let (user, unknown) = (Some("bob".to_owned()), fingerprint.clone());
    world.refused(alice, Ask::RemoveKey { user: user.clone(), fingerprint: unknown }, "operator");
    world.done(root, Ask::RemoveKey { user, fingerprint });
    let unknown = "SHA256:nothing".to_owned();
    world.refused(alice, Ask::RemoveKey { user: None, fingerprint: unknown }, "has none");
    for seed in 2..17 {
        world.done(alice, add(&Key::new(seed)));
    }
    world.refused(alice, add(&Key::new(17)), "16 already");
    world.done(alice, add(&Key::new(16)));
}

/// A later token may name somebody for another member: what came by this one does not count any more.
#[test]
fn a_key_counts_as_long_as_the_member_by_which_it_came_may_speak() {
    let mut world = World::new();
    let (guest, key) = ((WORKER, GUEST), Key::new(1));
    world.done((LOGIN, ALICE), add(&key));
    world.logged_in(guest, "alice", &key, 3600);
    assert!(world.is_believed(guest));
    let users = SpeaksFor::Only(["bob".to_owned()].into());
    world.rig.admit(LOGIN, Powers { speaks_for: users, operates: false });
    assert!(!world.is_believed(guest));
    let answers = world.log_in(guest, "alice", &key, 3600);
    refused(&answers, "no key of alice that counts");
    let keys: Vec<ShownKey> = world.listing((OPERATOR, ROOT), Ask::Keys { user: None });
    assert!(!keys[0].counts);
}

#[test]
fn one_member_can_not_keep_others_from_logging_in() {
    let mut world = World::new();
    let key = Key::new(1);
    world.done((LOGIN, ALICE), add(&key));
    for _ in 0..8 {
        world.challenge((WORKER, GUEST), "alice", 60);
    }
    let login = |valid_s| Ask::Login { user: "alice".to_owned(), valid_s };
    world.refused((WORKER, GUEST), login(60), "too many others");
    for uid in 0..56 {
        world.challenge((WORKER, (uid, "flood")), "alice", 60);
    }
    world.refused((WORKER, (99, "flood")), login(60), "too many others");
    world.logged_in((OTHER, GUEST), "alice", &key, 60);
    // They do not wait for ever.
    world.rig.wait(181_000);
    world.logged_in((WORKER, GUEST), "alice", &key, 60);
    for wrong in [0, MAX_VALID_S + 1, u64::MAX] {
        world.refused((WORKER, GUEST), login(wrong), "a login may hold");
    }
    let named = Ask::Login { user: "a\nuntil 9".to_owned(), valid_s: 60 };
    world.refused((WORKER, GUEST), named, "no name of a user");
    for uid in 2000..2064 {
        let answers = world.log_in((WORKER, (uid, "flood")), "alice", &key, 60);
        match uid {
            2063.. => refused(&answers, "64 places already"),
            _ => assert_eq!(answers, [Answer::Done { text: None }], "{uid}"),
        }
    }
}

/// Its member may act as if it had not been told that a conversation is over.
#[test]
fn a_conversation_that_was_closed_gets_nothing_more_of_a_job() {
    let mut world = World::new();
    let (guest, key) = ((WORKER, GUEST), Key::new(1));
    world.done((LOGIN, ALICE), add(&key));
    world.logged_in(guest, "alice", &key, 3600);
    let client = world.open(guest);
    world.say(client, &run());
    refused(&world.say(client, &Ask::Audit { from: 0 }), "only an operator");
    let from = world.rig.sent.len();
    world.done(guest, Ask::Logout { all: false });
    world.rig.prints("still there\n");
    assert_eq!(world.told(client, from), []);
}

#[test]
fn who_turns_a_member_out_is_told_when_it_is_out() {
    for (node, out_first) in [(LOGIN, true), (OPERATOR, false)] {
        let mut world = World::new();
        let from = world.rig.sent.len();
        world.done((OPERATOR, ROOT), Ask::RemoveNode { node: name(node) });
        let sent = &world.rig.sent[from..];
        let out = sent
            .iter()
            .position(|(to, message)| *to == node && matches!(message, ToAgent::Refused { .. }));
        let told = sent.iter().position(|(to, message)| {
            *to == OPERATOR && matches!(message, ToAgent::Client { line: Some(_), .. })
        });
        assert_eq!(out.unwrap() < told.unwrap(), out_first);
    }
}
