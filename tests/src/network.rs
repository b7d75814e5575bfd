//! A network of a case's own: programs side by side do not take each other's ports, not even those that the kernel chooses,
//! while one of them is away between its end and its restart.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

use nix::sched::{CloneFlags, unshare};

use crate::account::running_as_root;

/// Who may use ICMP sockets; a new network's default is nobody.
const PING_GROUPS: (&str, &str) = ("/proc/sys/net/ipv4/ping_group_range", "0 2147483647");

/// Calls `work` on a thread in a network of its own, which all that it starts is in, too. Without root's powers the
/// network is the machine's.
pub fn alone<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    let available = *AVAILABLE.get_or_init(|| match on_a_thread(enter) {
        Ok(()) => true,
        Err(why) => {
            println!("the programs share the machine's network and its ports: {why}");
            false
        }
    });
    on_a_thread(|| {
        // What it lacks then, the case shows.
        let _ = available.then(enter);
        work()
    })
}

fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Puts this thread into a new network.
fn enter() -> Result<(), String> {
    if !running_as_root() {
        return Err("networks of their own need root".into());
    }
    unshare(CloneFlags::CLONE_NEWNET).map_err(|error| format!("unshare: {error}"))?;
    let mut command = Command::new("ip");
    let up = command.args(["link", "set", "lo", "up"]).stdin(Stdio::null()).status();
    match up {
        Ok(status) if status.success() => {}
        Ok(status) => return Err(format!("ip link set lo up: {status}")),
        Err(error) => return Err(format!("ip: {error}")),
    }
    // A kernel without it has no such sockets either.
    let (path, groups) = PING_GROUPS;
    let _ = std::fs::write(path, groups);
    Ok(())
}
