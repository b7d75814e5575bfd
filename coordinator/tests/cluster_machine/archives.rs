//! Jobs that are taken elsewhere, and that come from there.

use super::common::image_facts;
use super::rig::{Rig, name};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ckpt_node::Event;
use coordinator::cluster::ClusterEntry;
use protocol::agent::InstanceId;
use protocol::cluster::agent::{JobUser, ToAgent};
use protocol::cluster::client::{Answer, Ask, RestartRequest};
use protocol::cluster::look::ImageName;
use protocol::cluster::portable::{AdoptOrder, ImportRequest, SealedJob};
use protocol::cluster::powers::Powers;
use std::collections::BTreeMap;

/// The node whose users ask.
const HERE: usize = 2;
const LOG: &str = "what was written\n";

/// A job of two instances with a checkpoint, each image on its own machine alone.
fn with_checkpoint() -> Rig {
    let mut rig = Rig::with_job(2, Rig::on_demand());
    rig.admit(HERE, Powers::of_all_users(false));
    rig.prints(LOG);
    rig.checkpoint();
    rig
}

fn open(rig: &mut Rig, client: u64, user: &str) {
    let user = JobUser { uid: 1000, name: user.to_owned() };
    rig.happens(HERE, Event::ClientOpened { client, user });
}

/// What a client is told when it says that.
fn say(rig: &mut Rig, client: u64, ask: &Ask) -> Vec<Answer> {
    rig.sent.clear();
    let line = serde_json::to_string(ask).unwrap();
    rig.happens(HERE, Event::ClientLine { client, line });
    told(rig, client)
}

fn told(rig: &Rig, to: u64) -> Vec<Answer> {
    let answers = rig.sent.iter().filter_map(|(node, message)| match message {
        ToAgent::Client { client, line: Some(line) } if (*node, *client) == (HERE, to) => {
            Some(serde_json::from_str(line).unwrap())
        }
        _ => None,
    });
    answers.collect()
}

fn refused(answers: &[Answer], words: &str) {
    let [Answer::Failed { reason, .. }] = answers else { panic!("not refused: {answers:?}") };
    assert!(reason.contains(words), "{reason:?} does not say {words:?}");
}

fn sealed(rig: &mut Rig) -> SealedJob {
    open(rig, 90, "user");
    let ask = Ask::Portable { job: "latest".to_owned(), checkpoint: None, stays: false };
    let answers = say(rig, 90, &ask);
    let [Answer::Portable { job }] = &answers[..] else { panic!("{answers:?}") };
    job.clone()
}

fn request(job: &SealedJob) -> ImportRequest {
    let folder = "/tmp/x".to_owned();
    let log_length = LOG.len() as u64;
    ImportRequest {
        name: Some("again".to_owned()),
        owner: None,
        job: job.clone(),
        folder,
        log_length,
    }
}

fn import(rig: &mut Rig, client: u64, user: &str, request: ImportRequest) -> Vec<Answer> {
    open(rig, client, user);
    say(rig, client, &Ask::Import(Box::new(request)))
}

fn piece(text: &str) -> Ask {
    Ask::ImportLog { bytes: STANDARD.encode(text), times: Vec::new() }
}

/// An import up to the order to the agent.
fn ordered(rig: &mut Rig, client: u64, job: &SealedJob) -> AdoptOrder {
    let answers = import(rig, client, "user", request(job));
    assert!(matches!(answers[..], [Answer::Accepted { .. }]), "{answers:?}");
    assert_eq!(say(rig, client, &piece(LOG)), [Answer::Taken]);
    assert_eq!(say(rig, client, &piece("")), []);
    let order = rig.sent.iter().find_map(|(node, message)| match message {
        ToAgent::Adopt(order) if *node == HERE => Some((**order).clone()),
        _ => None,
    });
    order.unwrap()
}

/// The agent has taken over what was ordered, with these digests.
fn adopts(rig: &mut Rig, order: &AdoptOrder, digest: impl Fn(&str) -> String) {
    let (client, job) = (order.client, order.job.clone());
    let mut adopted = BTreeMap::new();
    for (instance, expected) in &order.images {
        let image = (job.clone(), *instance, order.checkpoint());
        rig.node(HERE).disk.insert(image, Default::default());
        let mut facts = image_facts(&[2, 3, 4], true, None);
        facts.digest = digest(expected);
        adopted.insert(*instance, facts);
    }
    rig.happens(HERE, Event::Adopted(client, job, Ok(adopted)));
}

/// Whether the agent was told to keep nothing of a job.
fn cleared(rig: &Rig, of: &str) -> bool {
    rig.sent.iter().any(|(node, message)| match message {
        ToAgent::Keep { job, images } => {
            *node == HERE && job == of && *images == BTreeMap::new().into()
        }
        _ => false,
    })
}

fn imports(rig: &Rig) -> usize {
    rig.log.iter().filter(|entry| matches!(entry, ClusterEntry::JobImported(_))).count()
}

#[test]
fn a_job_is_exported_by_its_user_alone_and_only_what_is_committed() {
    let mut rig = with_checkpoint();
    let job = sealed(&mut rig).read().unwrap();
    assert_eq!(job.images.keys().copied().collect::<Vec<_>>(), [InstanceId(1), InstanceId(2)]);
    assert!(job.images[&InstanceId(1)].root && !job.images[&InstanceId(2)].root);
    open(&mut rig, 1, "other");
    let (wanted, first) = (job.id.clone(), ImageName { instance: InstanceId(1), checkpoint: 1 });
    let ask = Ask::Portable { job: wanted.clone(), checkpoint: None, stays: false };
    refused(&say(&mut rig, 1, &ask), "there is none of that name");
    let image = |image, avoid| Ask::Image { job: wanted.clone(), image, avoid };
    open(&mut rig, 2, "other");
    refused(&say(&mut rig, 2, &image(first, vec![])), "there is none of that name");
    open(&mut rig, 3, "user");
    let later = ImageName { checkpoint: 2, ..first };
    refused(&say(&mut rig, 3, &image(later, vec![])), "no committed image");
    open(&mut rig, 4, "user");
    let answers = say(&mut rig, 4, &image(first, vec![]));
    assert_eq!(answers, [Answer::Holder { node: name(1) }]);
    let give = ToAgent::Give { client: 4, job: wanted.clone(), image: first, holder: name(1) };
    assert!(rig.sent.contains(&(HERE, give)));
    open(&mut rig, 5, "user");
    refused(&say(&mut rig, 5, &image(first, vec![name(1)])), "held by node1 alone");
    rig.admit(HERE, Powers::default());
    open(&mut rig, 6, "user");
    let ask = Ask::Portable { job: wanted, checkpoint: None, stays: false };
    refused(&say(&mut rig, 6, &ask), "does not speak for users");
}

#[test]
fn a_checkpoint_stays_as_long_as_a_command_reads_it() {
    let mut rig = with_checkpoint();
    open(&mut rig, 1, "user");
    let ask = Ask::Portable { job: "latest".to_owned(), checkpoint: Some(1), stays: true };
    let answers = say(&mut rig, 1, &ask);
    assert!(matches!(answers[..], [Answer::Portable { .. }]), "{answers:?}");
    let portable = |rig: &mut Rig, client| {
        open(rig, client, "user");
        let ask = Ask::Portable { job: "latest".to_owned(), checkpoint: Some(1), stays: false };
        say(rig, client, &ask)
    };
    for _ in 0..4 {
        rig.checkpoint();
    }
    let answers = portable(&mut rig, 2);
    assert!(matches!(answers[..], [Answer::Portable { .. }]), "{answers:?}");
    rig.happens(HERE, Event::ClientClosed { client: 1 });
    rig.checkpoint();
    refused(&portable(&mut rig, 3), "no committed checkpoint 1");
}

#[test]
fn an_imported_job_is_at_rest_and_restarts_after_the_coordinator_too() {
    let mut rig = with_checkpoint();
    let job = sealed(&mut rig);
    let order = ordered(&mut rig, 1, &job);
    assert_eq!(order.images[&InstanceId(2)], "digest 2");
    assert_eq!((order.record.job.as_str(), order.checkpoint()), ("again-1", 1));
    // A piece more is none of the log.
    refused(&say(&mut rig, 1, &piece("more")), "nothing is being imported");
    adopts(&mut rig, &order, str::to_owned);
    assert!(told(&rig, 1).contains(&Answer::Imported { name: "again".to_owned() }));
    assert_eq!(imports(&rig), 1);
    refused(&import(&mut rig, 2, "user", request(&job)), "there is a job of that name");
    rig.restart_coordinator();
    rig.sent.clear();
    rig.ask(Ask::Restart(Box::new(RestartRequest {
        job: "again".to_owned(),
        checkpoint: None,
        force: false,
        settings: None,
        window: None,
        detach: true,
    })));
    let prepared = rig.sent.iter().filter_map(|(_, message)| match message {
        ToAgent::Prepare(order) => Some((order.image, order.holders.clone(), order.key.epoch)),
        _ => None,
    });
    let prepared: Vec<_> = prepared.collect();
    let images: Vec<_> = prepared.iter().map(|(image, ..)| *image).collect();
    assert!(images.contains(&InstanceId(1)) && images.contains(&InstanceId(2)), "{prepared:?}");
    assert!(prepared.iter().all(|(_, holders, epoch)| *holders == [name(HERE)] && *epoch == 2));
}

#[test]
fn what_the_cluster_has_not_sealed_or_is_not_whole_is_no_job() {
    let mut rig = with_checkpoint();
    let job = sealed(&mut rig);
    let mut forged = job.clone();
    forged.text = forged.text.replacen("digest 1", "digest 7", 1);
    refused(&import(&mut rig, 1, "user", request(&forged)), "only an operator may import it");
    let mut foreign = job.clone();
    foreign.seal = "0".repeat(64);
    refused(&import(&mut rig, 2, "user", request(&foreign)), "only an operator may import it");
    let owner = Some(JobUser { uid: 7, name: "other".to_owned() });
    let given = ImportRequest { owner, ..request(&job) };
    refused(&import(&mut rig, 3, "user", given), "for another user");
    let long = ImportRequest { log_length: 1 + LOG.len() as u64, ..request(&job) };
    refused(&import(&mut rig, 4, "user", long), "longer than it can be");
    let named = ImportRequest { name: Some("../x".to_owned()), ..request(&job) };
    refused(&import(&mut rig, 5, "user", named), "can't be its name");

    assert!(matches!(import(&mut rig, 6, "user", request(&job))[..], [Answer::Accepted { .. }]));
    refused(&import(&mut rig, 7, "user", request(&job)), "another import of this user");
    refused(&say(&mut rig, 6, &piece(&format!("{LOG}more"))), "not what was announced");
    assert!(cleared(&rig, "again-1"));
    let order = ordered(&mut rig, 8, &job);
    rig.sent.clear();
    adopts(&mut rig, &order, |_| "another".to_owned());
    refused(&told(&rig, 8), "images are missing");
    assert!(cleared(&rig, "again-1"));
    assert_eq!(imports(&rig), 0);
}

#[test]
fn an_import_that_nobody_waits_for_leaves_nothing() {
    let mut rig = with_checkpoint();
    let job = sealed(&mut rig);
    let order = ordered(&mut rig, 1, &job);
    rig.sent.clear();
    rig.happens(HERE, Event::ClientClosed { client: 1 });
    assert!(cleared(&rig, &order.job));
    rig.sent.clear();
    // The agent had them after all.
    adopts(&mut rig, &order, str::to_owned);
    assert!(cleared(&rig, &order.job));
    let answers = import(&mut rig, 2, "user", request(&job));
    assert!(matches!(answers[..], [Answer::Accepted { .. }]), "{answers:?}");
    rig.sent.clear();
    rig.wait(121_000);
    refused(&told(&rig, 2), "takes too long");
    assert!(cleared(&rig, &order.job));
    assert_eq!(imports(&rig), 0);
}
