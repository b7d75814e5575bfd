//! The coordinator is found by multicast DNS, and known by the token.

use super::stage::{LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::{Background, until};
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[Case {
    name: "discovery",
    about: "agents find a coordinator that has moved, among others, and only the one of their token",
    run: discovery,
}];

/// Starts a coordinator that announces itself, at another port of its machine.
fn coordinator(ckptd: &Ckptd, port: &str, state: &[&str]) -> Result<Background, Failure> {
    let node = ckptd.coordinator_node();
    let listen = format!("{}:{port}", node.address());
    let words = ["ckptd", "coordinator", "--grace", "3", "--discover", "--listen", &listen];
    let mut running = node.spawn(&[&words[..], state].concat(), &[])?;
    running.wait_for_output("coordinator listens at", LIMIT)?;
    Ok(running)
}

fn discovery(stage: &Stage) -> Result<(), Failure> {
    let mut setup = Setup::new(2);
    setup.agents = 1;
    let ckptd = Ckptd::start(&stage.ckptd, setup)?;
    let token = ckptd.new_token(&[])?;
    ckptd.kill_coordinator()?;
    // Another cluster's, which must not be taken for it.
    let mut other = coordinator(&ckptd, "7081", &["--state", "/tmp/other"])?;
    let mut moved = coordinator(&ckptd, "7071", &[])?;
    let node = ckptd.node(2);
    let join = ["ckptd", "agent", "--name", "node2", "--allow-root", "--discover"];
    let mut agent = node.spawn(&[&join[..], &["--join", &token]].concat(), &[])?;
    let is_member = |agent: &mut Background| {
        let found = until("node2 is a member", LIMIT, || {
            if let Some(status) = agent.ended()? {
                return Err(Failure(format!("the agent ended with {status}")));
            }
            Ok((ckptd.members()?.get("node2").map(String::as_str) == Some("alive")).then_some(()))
        });
        found.map_err(|failure| agent.explain(&failure))
    };
    is_member(&mut agent)?;
    check(agent.errors().contains(":7071"), || format!("it said {:?}", agent.errors()))?;
    agent.kill();
    // As a member, without the token, after it has moved again.
    moved.kill();
    let mut moved = coordinator(&ckptd, "7072", &[])?;
    let mut agent = node.spawn(&join, &[])?;
    is_member(&mut agent)?;
    agent.kill();
    // A token of the other cluster leads there.
    let token = ckptd.coordinator_node().must_run(&["ckptd", "token", "--state", "/tmp/other"])?;
    other.kill();
    let mut other = coordinator(&ckptd, "7082", &["--state", "/tmp/other"])?;
    let joined = [&join[..], &["--dir", "/tmp/second", "--join", token.trim()]].concat();
    let mut agent = node.spawn(&joined, &[])?;
    let found = until("the agent has found the other one", LIMIT, || {
        Ok(agent.errors().contains(":7082").then_some(()))
    });
    found.map_err(|failure| agent.explain(&failure))?;
    for daemon in [&mut agent, &mut moved, &mut other] {
        daemon.kill();
    }
    Ok(())
}
