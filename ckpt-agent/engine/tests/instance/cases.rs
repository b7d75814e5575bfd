//! The cases.

use std::io::{Read, Write};
use std::time::Duration;

use ckpt_engine::objects::StdioRole;
use ckpt_engine::{InstanceOrder, OuterEnd, UserOrder};
use protocol::agent::{AgentEvent, ExitKind, InstanceEvent};

use super::Outcome;
use super::agent_process::AgentProcess;
use super::rights;
use super::world::{
    COUNTER, Here, World, boottime, exists, held_by, is_alone, order, restore_order, script_in,
    traced, until,
};

type Case = (&'static str, fn(&mut World) -> Outcome);

/// All of them.
pub const ALL: &[Case] = &[
    ("taken_over_and_checkpointed", taken_over_and_checkpointed),
    ("lease_runs_out", lease_runs_out),
    ("lease_is_renewed", lease_is_renewed),
    ("held_and_released", held_and_released),
    ("held_and_killed", held_and_killed),
    ("end_of_input", end_of_input),
    ("daemonising", daemonising),
    ("end_without_an_agent", end_without_an_agent),
    ("killed_while_frozen", killed_while_frozen),
    ("killed_with_its_hands_in_the_job", killed_with_its_hands_in_the_job),
    ("killed_with_injected_registers", killed_with_injected_registers),
    ("killed_with_snapshot_processes", killed_with_snapshot_processes),
    ("killed_before_go", killed_before_go),
    ("handed_over", handed_over),
    ("names", names),
    ("init_killed", init_killed),
    ("as_another_user", as_another_user),
    ("deleted_program_of_root", rights::deleted_program_of_root),
    ("unreadable_file_of_root", rights::unreadable_file_of_root),
];

fn check(holds: bool, what: &str) -> Outcome {
    if holds { Ok(()) } else { Err(what.into()) }
}

/// An agent in another process starts the job there.
fn begun(world: &mut World, line: &str) -> Outcome<(AgentProcess, i32)> {
    let mut agent = AgentProcess::start(world)?;
    let init = world.saw(agent.ask(line)?.parse()?);
    Ok((agent, init))
}

fn counting(world: &mut World, lease_ms: u64) -> Outcome<(AgentProcess, i32)> {
    let begun = begun(world, &format!("launch {lease_ms} {COUNTER}"))?;
    world.moves("from the start")?;
    Ok(begun)
}

fn taken_over_and_checkpointed(world: &mut World) -> Outcome {
    let (agent, init) = counting(world, 60_000)?;
    agent.kill()?;
    world.moves("without an agent")?;
    let here = Here::start(world)?;
    let other = protocol::cluster::InstanceKey {
        job: "job".into(),
        epoch: 2,
        instance: protocol::agent::InstanceId(7),
    };
    check(
        here.session.take_over(&world.socket(), Some(other)).is_err(),
        "another epoch's is taken",
    )?;
    let wanted = order(&world.store(), 0).identity;
    let adopted = here.session.take_over(&world.socket(), Some(wanted.clone()))?;
    check(adopted.identity == wanted && adopted.started.init == init, "another init")?;
    check(!adopted.held && !adopted.touched && adopted.ended.is_none(), "not as it was")?;
    let mut output = std::fs::File::from(adopted.started.console.stdout.ok_or("no output")?);
    let mut some = [0; 16];
    check(output.read(&mut some)? > 0, "no output comes")?;
    check(
        adopted.started.console.stdin.is_some() && adopted.started.console.stderr.is_some(),
        "streams",
    )?;
    world.moves("with the new agent")?;
    here.checkpoint(1)?;
    world.moves("after the checkpoint")?;
    here.session.kill();
    check(!exists(init), "the init is still there")?;

    for generation in 2..4 {
        let before = world.count();
        let here = Here::start(world)?;
        let restored = here.session.restore(restore_order(&world.store(), generation - 1))?;
        let init = world.saw(restored.init);
        check(restored.console.stdout.is_some(), "no output after the restore")?;
        check(restored.root.is_some(), "no first process")?;
        world.stands("before it is told to")?;
        here.session.go()?;
        until("it goes on", || world.count() > before)?;
        here.checkpoint(generation)?;
        here.session.kill();
        check(!exists(init), "the init is still there")?;
    }
    Ok(())
}

fn lease_runs_out(world: &mut World) -> Outcome {
    let (agent, init) = counting(world, 1500)?;
    let before = boottime();
    agent.kill()?;
    until("it is held", || held_by(init))?;
    check(boottime() > before, "the clock stands")?;
    world.stands("with its lease over")?;
    let here = Here::start(world)?;
    let adopted = here.session.take_over(&world.socket(), None)?;
    check(adopted.held && !adopted.touched, "not held")?;
    world.stands("before it is told to")?;
    here.session.lease(boottime() + 60_000_000_000);
    here.session.go()?;
    world.moves("after it was told to")?;
    check(traced(init).iter().all(|(_, tracer)| *tracer == 0), "still traced")?;
    here.checkpoint(1)?;
    world.moves("after the checkpoint")?;

    // And again, ended while it is held.
    here.session.lease(boottime());
    world.moves("with an agent, whose business the lease is")?;
    drop(here);
    until("it is held again", || held_by(init))?;
    let here = Here::start(world)?;
    check(here.session.take_over(&world.socket(), None)?.held, "not held")?;
    let count = world.count();
    here.session.kill();
    check(!exists(init) && world.count() == count, "it ran before it was killed")
}

fn lease_is_renewed(world: &mut World) -> Outcome {
    let (agent, _) = counting(world, 300)?;
    drop(agent.kill());
    let here = Here::start(world)?;
    let adopted = here.session.take_over(&world.socket(), None)?;
    let until_ns = boottime() + 1_500_000_000;
    here.session.lease(until_ns);
    if adopted.held {
        here.session.go()?;
    }
    // Longer than the lease of before, with the agent and without it: that it counts no more is what is tested.
    std::thread::sleep(Duration::from_millis(400));
    drop(here);
    std::thread::sleep(Duration::from_millis(300));
    world.moves("within its new lease")?;
    until("it is held", || held_by(adopted.started.init))?;
    // The next agent learns how far the lease reached.
    let here = Here::start(world)?;
    let adopted = here.session.take_over(&world.socket(), None)?;
    check(adopted.lease_until_ns == until_ns, "another lease")
}

fn held_and_released(world: &mut World) -> Outcome {
    let here = Here::start(world)?;
    let launched = here
        .session
        .launch(script_in(COUNTER, world.file("")), Some(order(&world.store(), 60_000)))?;
    world.saw(launched.init);
    world.moves("from the start")?;
    check(here.session.hold()? >= 1, "nobody was stopped")?;
    world.stands("while it is held")?;
    check(here.session.hold()? >= 1, "a second time")?;
    check(here.checkpoint(1).is_err(), "a checkpoint of a job that is held")?;
    here.session.release()?;
    world.moves("after it was released")?;
    here.checkpoint(2)?;
    // The last word counts.
    for _ in 0..50 {
        here.session.tell_hold(|error| eprintln!("hold: {error}"));
        here.session.tell_release(|error| eprintln!("release: {error}"));
    }
    here.checkpoint(3)?;
    here.session.tell_hold(|error| eprintln!("hold: {error}"));
    check(here.checkpoint(4).is_err(), "a checkpoint of a job that is to be held")?;
    world.stands("while it is held again")?;
    here.session.kill();
    Ok(())
}

fn held_and_killed(world: &mut World) -> Outcome {
    let here = Here::start(world)?;
    let launched = here
        .session
        .launch(script_in(COUNTER, world.file("")), Some(order(&world.store(), 60_000)))?;
    world.saw(launched.init);
    world.moves("from the start")?;
    here.session.hold()?;
    let before = world.count();
    here.session.kill();
    check(!exists(launched.init), "the init is still there")?;
    check(world.count() == before, "it ran on before it was killed")?;
    check(here.events.try_iter().all(|event| !is_end(&event)), "an end was reported")
}

fn is_end(event: &InstanceEvent) -> bool {
    matches!(event, InstanceEvent::Agent(AgentEvent::Ended { .. }) | InstanceEvent::Empty)
}

fn end_of_input(world: &mut World) -> Outcome {
    let (agent, init) = begun(world, "launch 60000 cat > copy; exit 4")?;
    agent.kill()?;
    let here = Here::start(world)?;
    let adopted = here.session.take_over(&world.socket(), None)?;
    let mut input = std::fs::File::from(adopted.started.console.stdin.ok_or("no input")?);
    input.write_all(b"hello")?;
    let copied = || std::fs::read(world.file("copy")).unwrap_or_default() == b"hello";
    until("the input arrives", copied)?;
    drop(input);
    // Nothing is to happen, which takes time to see.
    std::thread::sleep(Duration::from_millis(200));
    check(here.events.try_iter().next().is_none(), "the init let the input end by itself")?;
    here.session.close_end(OuterEnd::Stream(StdioRole::Stdin));
    let ended = InstanceEvent::Agent(AgentEvent::Ended { status: ExitKind::Exited(4) });
    check(here.event()? == ended, "not ended")?;
    // Until the end is known where it must be.
    check(exists(init), "the init did not wait")?;
    drop(here);
    let here = Here::start(world)?;
    let adopted = here.session.take_over(&world.socket(), None)?;
    check(adopted.ended == Some(ExitKind::Exited(4)), "the end is forgotten")?;
    check(adopted.started.console.stdin.is_none(), "an input that is closed")?;
    here.session.kill();
    check(!exists(init) && !world.socket().exists(), "the init is still there")
}

fn daemonising(world: &mut World) -> Outcome {
    let here = Here::start(world)?;
    let mut order = order(&world.store(), 60_000);
    order.root_instance = false;
    let script = format!("({COUNTER}) & exit 3");
    let launched = here.session.launch(script_in(&script, world.file("")), Some(order))?;
    world.saw(launched.init);
    check(here.event()? == InstanceEvent::RootEnded(ExitKind::Exited(3)), "its end")?;
    world.moves("after the first process")?;
    here.checkpoint(1)?;
    drop(here);
    let here = Here::start(world)?;
    let adopted = here.session.take_over(&world.socket(), None)?;
    check(adopted.started.root.is_none() && !adopted.empty, "not as it was")?;
    check(adopted.ended == Some(ExitKind::Exited(3)), "the status is forgotten")?;
    here.session.kill();

    let here = Here::start(world)?;
    let mut order = restore_order(&world.store(), 1);
    order.instance.as_mut().ok_or("no instance")?.root_instance = false;
    let restored = here.session.restore(order)?;
    world.saw(restored.init);
    check(restored.root.is_none(), "a first process that had ended")?;
    here.session.go()?;
    world.moves("after the restore")?;
    for (pid, _) in traced(restored.init) {
        let _ = nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(pid),
            nix::sys::signal::Signal::SIGKILL,
        );
    }
    check(here.event()? == InstanceEvent::Empty, "not empty")?;
    check(exists(restored.init), "the init did not wait")?;
    here.session.kill();
    check(!exists(restored.init), "the init is still there")
}

fn end_without_an_agent(world: &mut World) -> Outcome {
    let (agent, init) = begun(world, "launch 60000 sleep 100 & sleep 0.3; exit 7")?;
    agent.kill()?;
    until("the init has seen the end of everything", || is_alone(init))?;
    let here = Here::start(world)?;
    let adopted = here.session.take_over(&world.socket(), None)?;
    check(adopted.ended == Some(ExitKind::Exited(7)), "another end")?;
    check(adopted.started.root.is_none() && !adopted.held, "not as it is")?;
    here.session.kill();
    check(!exists(init), "the init is still there")
}

fn killed_while_frozen(world: &mut World) -> Outcome {
    let (mut agent, init) = counting(world, 60_000)?;
    agent.ask("step freeze 1")?;
    world.stands("while it is frozen")?;
    agent.kill()?;
    world.moves("when its tracer is gone")?;
    let here = Here::start(world)?;
    let adopted = here.session.take_over(&world.socket(), None)?;
    check(!adopted.touched && !adopted.held, "harm where there is none")?;
    check(traced(init).iter().all(|(_, tracer)| *tracer == 0), "still traced")?;
    here.checkpoint(2)?;
    here.session.kill();
    Ok(())
}

fn killed_with_its_hands_in_the_job(world: &mut World) -> Outcome {
    let (mut agent, init) = counting(world, 60_000)?;
    agent.ask("step freeze 1")?;
    agent.ask("step quiesce 1")?;
    agent.kill()?;
    until("it is held", || held_by(init))?;
    world.stands("until somebody decides")?;
    let here = Here::start(world)?;
    let adopted = here.session.take_over(&world.socket(), None)?;
    check(adopted.touched && adopted.held, "no word of it")?;
    let before = world.count();
    here.session.kill();
    check(!exists(init) && world.count() == before, "it ran before it was killed")
}

/// With injected registers nothing may run on.
fn killed_with_injected_registers(world: &mut World) -> Outcome {
    let (mut agent, init) = counting(world, 60_000)?;
    for step in ["freeze", "quiesce", "snapshot"] {
        agent.ask(&format!("step {step} 1"))?;
    }
    let before = world.count();
    agent.kill()?;
    until("the init has seen the end of everything", || is_alone(init))?;
    check(world.count() == before, "it ran on")?;
    let here = Here::start(world)?;
    let adopted = here.session.take_over(&world.socket(), None)?;
    let killed = Some(ExitKind::Signalled(9));
    check(adopted.touched && adopted.ended == killed, "no word of it")?;
    here.session.kill();
    Ok(())
}

fn killed_with_snapshot_processes(world: &mut World) -> Outcome {
    let (mut agent, init) = counting(world, 60_000)?;
    for step in ["freeze", "quiesce", "snapshot", "resume"] {
        agent.ask(&format!("step {step} 1"))?;
    }
    world.moves("while its snapshot processes stand")?;
    check(traced(init).iter().any(|(_, tracer)| *tracer != 0), "no snapshot process")?;
    agent.kill()?;
    let here = Here::start(world)?;
    let adopted = here.session.take_over(&world.socket(), None)?;
    check(!adopted.touched && !adopted.held, "harm where there is none")?;
    check(traced(init).iter().all(|(_, tracer)| *tracer == 0), "a snapshot process is left")?;
    world.moves("afterwards")?;
    here.checkpoint(2)?;
    here.session.kill();
    Ok(())
}

fn killed_before_go(world: &mut World) -> Outcome {
    let here = Here::start(world)?;
    let launched = here
        .session
        .launch(script_in(COUNTER, world.file("")), Some(order(&world.store(), 60_000)))?;
    world.saw(launched.init);
    world.moves("from the start")?;
    here.checkpoint(1)?;
    here.session.kill();
    let before = world.count();
    let (agent, init) = begun(world, "restore 1")?;
    agent.kill()?;
    until("the init ends", || !exists(init))?;
    check(world.count() == before, "it ran")?;
    check(!world.socket().exists(), "its socket is left")
}

fn handed_over(world: &mut World) -> Outcome {
    let first = Here::start(world)?;
    let launched = first
        .session
        .launch(script_in(COUNTER, world.file("")), Some(order(&world.store(), 60_000)))?;
    world.saw(launched.init);
    drop(first);
    for _ in 0..20 {
        let next = Here::start(world)?;
        let adopted = next.session.take_over(&world.socket(), None)?;
        check(!adopted.held && adopted.started.root == launched.root, "not as it was")?;
    }
    world.moves("after many agents")?;
    let open = std::fs::read_dir(format!("/proc/{}/fd", launched.init))?.count();
    check(open < 20, "its init gathers descriptors")?;
    let last = Here::start(world)?;
    last.session.take_over(&world.socket(), None)?;
    last.session.kill();
    Ok(())
}

fn names(world: &mut World) -> Outcome {
    let machine = std::fs::read("/etc/hosts")?;
    let here = Here::start(world)?;
    let text = "hostname; cat /etc/hosts; echo x >> /etc/hosts; echo $?; getent hosts phone-1; \
                awk '$2 == \"/proc\"' /proc/mounts | wc -l";
    let launched = here
        .session
        .launch(script_in(text, world.file("")), Some(order(&world.store(), 60_000)))?;
    world.saw(launched.init);
    let ended = here.event()?;
    check(is_end(&ended), "not ended")?;
    here.session.kill();
    let mut output = String::new();
    let stdout = launched.console.stdout.ok_or("no output")?;
    std::fs::File::from(stdout).read_to_string(&mut output)?;
    let lines: Vec<&str> = output.lines().collect();
    check(lines[..3] == ["phone-2", "127.0.0.1 localhost", "10.1.2.3 phone-1"], &output)?;
    check(lines[3] != "0" && lines[4].starts_with("10.1.2.3"), &output)?;
    check(std::fs::read("/etc/hosts")? == machine, "the machine's own was changed")
}

fn init_killed(world: &mut World) -> Outcome {
    let here = Here::start(world)?;
    let launched = here
        .session
        .launch(script_in(COUNTER, world.file("")), Some(order(&world.store(), 60_000)))?;
    world.moves("from the start")?;
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(launched.init),
        nix::sys::signal::Signal::SIGKILL,
    )?;
    let ended = InstanceEvent::Agent(AgentEvent::Ended { status: ExitKind::Signalled(9) });
    check(here.event()? == ended, "no end")?;
    check(!exists(launched.init), "the init is still there")?;
    check(here.session.take_over(&world.socket(), None).is_err(), "a dead init was taken over")
}

/// A root agent runs a job for an ordinary user.
fn as_another_user(world: &mut World) -> Outcome {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    const USER: u32 = 1000;
    let owner = Some(nix::unistd::Uid::from_raw(USER));
    nix::unistd::chown(&world.file(""), owner, None)?;
    let user = Some(UserOrder { uid: USER, gid: USER, groups: vec![1001] });
    let here = Here::start(world)?;
    let text = format!(
        "id -u; id -g; id -G; grep CapEff /proc/self/status; echo again > /dev/stdout; \
         cat /etc/shadow 2> /dev/null; echo $?; {COUNTER}"
    );
    let order = InstanceOrder { user: user.clone(), ..order(&world.store(), 60_000) };
    let launched = here.session.launch(script_in(&text, world.file("")), Some(order))?;
    world.saw(launched.init);
    world.moves("from the start")?;
    let stdout = launched.console.stdout.ok_or("no output")?;
    let mut output = vec![0; 1000];
    let length = std::fs::File::from(stdout).read(&mut output)?;
    let output = String::from_utf8_lossy(&output[..length]);
    let wanted = "1000\n1000\n1000 1001\nCapEff:\t0000000000000000\nagain\n1\n";
    check(output.starts_with(wanted), &output)?;
    here.checkpoint(1)?;
    here.session.kill();

    let here = Here::start(world)?;
    let mut stranger = restore_order(&world.store(), 1);
    stranger.instance.as_mut().ok_or("no instance")?.user =
        Some(UserOrder { uid: 1001, gid: 1001, groups: vec![] });
    check(here.session.restore(stranger).is_err(), "another user's image")?;
    let mut order = restore_order(&world.store(), 1);
    order.instance.as_mut().ok_or("no instance")?.user = user;
    let restored = here.session.restore(order)?;
    world.saw(restored.init);
    here.session.go()?;
    world.moves("after the restore")?;
    let (pid, _) = *traced(restored.init).first().ok_or("nobody is there")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    check(status.contains("Uid:\t1000\t1000\t1000\t1000"), &status)?;
    check(status.contains("CapEff:\t0000000000000000"), &status)?;
    here.checkpoint(2)?;
    here.session.kill();
    Ok(())
}
