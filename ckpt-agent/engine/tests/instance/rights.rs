//! A root agent runs jobs for an ordinary user, who must not get more by it than the user has.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use ckpt_engine::{InstanceOrder, UserOrder};

use super::Outcome;
use super::world::{COUNTER, Here, World, order, restore_order, script_in, traced, until};

const USER: u32 = 1000;

/// As a descriptor of the shell, in reach of `/proc/PID/fd`.
const HELD: i32 = 5;

fn check(holds: bool, what: &str) -> Outcome {
    if holds { Ok(()) } else { Err(what.into()) }
}

fn user() -> Option<UserOrder> {
    Some(UserOrder { uid: USER, gid: USER, groups: vec![1001] })
}

/// A file of root's with these permissions, in a folder of the user's.
fn file_of_root(path: &Path, mode: u32) -> Outcome {
    fs::write(path, "#!/bin/sh\nid -u\n")?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

/// The job has run `open`, then root has deleted `file`.
fn holding(world: &mut World, here: &Here, file: &Path, open: &str) -> Outcome {
    let owner = Some(nix::unistd::Uid::from_raw(USER));
    nix::unistd::chown(&world.file(""), owner, None)?;
    let order = InstanceOrder { user: user(), ..order(&world.store(), 60_000) };
    let text = format!("{open}; {COUNTER}");
    let launched = here.session.launch(script_in(&text, world.file("")), Some(order))?;
    world.saw(launched.init);
    world.moves("from the start")?;
    Ok(fs::remove_file(file)?)
}

/// A deleted program of root's that the user can read comes back as the user's own, without its set-user-ID bit.
pub fn deleted_program_of_root(world: &mut World) -> Outcome {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let program = world.file("program");
    file_of_root(&program, 0o6755)?;
    let here = Here::start(world)?;
    holding(world, &here, &program, &format!("exec {HELD}< {}", program.display()))?;
    drop(here);
    for generation in 1..4 {
        a_generation(world, generation)?;
    }
    Ok(())
}

fn a_generation(world: &mut World, generation: u64) -> Outcome {
    let here = Here::start(world)?;
    if generation == 1 {
        here.session.take_over(&world.socket(), None)?;
    } else {
        let mut order = restore_order(&world.store(), generation - 1);
        order.instance.as_mut().ok_or("no instance")?.user = user();
        let restored = here.session.restore(order)?;
        world.saw(restored.init);
        here.session.go()?;
        world.moves("after the restore")?;
        let (pid, _) = *traced(restored.init).first().ok_or("nobody is there")?;
        let held = fs::metadata(format!("/proc/{pid}/fd/{HELD}"))?;
        let what = format!("owner {}:{}, mode {:o}", held.uid(), held.gid(), held.mode());
        check(held.uid() == USER && held.gid() == USER && held.mode() & 0o7777 == 0o755, &what)?;
        let told = restored.warnings.iter().any(|line| line.contains("program"));
        check(told == (generation == 2), &format!("{:?}", restored.warnings))?;
    }
    here.checkpoint(generation)?;
    here.session.kill();
    Ok(())
}

/// What the user can write to and not read does not get into an image; the job goes on.
pub fn unreadable_file_of_root(world: &mut World) -> Outcome {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let secret = world.file("secret");
    file_of_root(&secret, 0o602)?;
    let here = Here::start(world)?;
    holding(world, &here, &secret, &format!("exec {HELD}>> {}", secret.display()))?;
    let refused = here.checkpoint(1).map_or_else(|error| error.to_string(), |()| String::new());
    check(refused.contains("secret") && refused.contains("sh"), &format!("said {refused:?}"))?;
    until("it goes on", || world.count() > 0)?;
    world.moves("after the refusal")?;
    here.session.kill();
    Ok(())
}
