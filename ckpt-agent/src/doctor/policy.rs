//! Who this user is here, and what the machine's settings allow.

use nix::sys::resource::Resource;

use ckpt_engine::sys::limits;

use super::Check;
use ckpt_engine::job_init::World;
use ckpt_engine::late::filters_of;
use ckpt_engine::sys::trial::{Call, Trial};

/// Descriptors that a restart needs for itself beside the job's.
const FEW_FILES: u64 = 4096;

pub(super) fn checks() -> Vec<Check> {
    let mut checks = vec![privilege(), filter(), sandbox(), tracer(), yama()];
    checks.extend(user_namespaces());
    checks.extend([open_files(), overcommit(), autogroup()]);
    checks
}

fn setting(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn status() -> Option<procfs::process::Status> {
    procfs::process::Process::myself().and_then(|process| process.status()).ok()
}

fn privilege() -> Check {
    let user = nix::unistd::geteuid();
    if user.is_root() {
        return Check::ok("privilege", "root");
    }
    if World::chosen() == World::Machine {
        return Check::limited(
            "privilege",
            format!("user {user}"),
            "limits and priorities of a job that only root may raise are not put back",
        );
    }
    Check::limited(
        "privilege",
        format!("user {user}, in a user namespace"),
        "a job has one user: files of others show as nobody's, setuid programs gain nothing; \
         nothing else differs from root",
    )
}

/// A filter of this process is inherited by every process of a job, from its init: a dump tells it from one that a program
/// has added, which cannot be put back, by their number.
fn filter() -> Check {
    let name = "seccomp filter";
    let own = std::process::id() as i32;
    match (status().and_then(|status| status.seccomp), filters_of(own, own)) {
        (Some(0) | None, _) => Check::ok(name, "none"),
        (Some(_), Ok(Some(count))) => Check::limited(
            name,
            format!("this process runs under {count}, and so does every job"),
            "what they forbid to programs they forbid to those of jobs; a job that is restarted on another machine is \
             under that one's instead",
        ),
        (Some(_), _) => Check {
            required: true,
            ..Check::missing(
                name,
                "this process runs under one, and so would every job",
                "no job can be checkpointed: this kernel does not tell filters of programs from those of ckptd (Linux 5.9 \
                 does); start the container without it (docker: --security-opt seccomp=unconfined)",
            )
        },
    }
}

/// What would kill this process if it were called: the app sandbox of Android.
fn sandbox() -> Check {
    let name = "sandbox";
    let forbidden: Vec<&str> = Call::ALL
        .into_iter()
        .filter(|call| call.trial() == Trial::Forbidden)
        .map(Call::name)
        .collect();
    if forbidden.is_empty() {
        return Check::ok(name, "forbids nothing that is needed");
    }
    Check::limited(
        name,
        format!("forbids {}", forbidden.join(", ")),
        "programs that call these are killed, and ckptd goes without them; on Android a later version, adb's shell or \
         root is allowed more",
    )
}

fn tracer() -> Check {
    match status().map(|status| status.tracerpid) {
        Some(pid) if pid > 0 => Check::limited(
            "debugger",
            format!("process {pid} traces this one"),
            "a job whose processes are traced cannot be checkpointed; detach the debugger",
        ),
        _ => Check::ok("debugger", "none"),
    }
}

fn yama() -> Check {
    let name = "yama ptrace_scope";
    match setting("/proc/sys/kernel/yama/ptrace_scope").as_deref() {
        None => Check::ok(name, "no yama"),
        Some(scope @ ("0" | "1")) => Check::ok(name, scope),
        Some(scope) if scope == "2" && nix::unistd::geteuid().is_root() => Check::ok(name, scope),
        Some(scope) => Check::missing(
            name,
            scope,
            "processes may not be traced; sysctl kernel.yama.ptrace_scope=1 (3 lasts until a reboot)",
        ),
    }
}

fn user_namespaces() -> Vec<Check> {
    let name = "user namespaces";
    if nix::unistd::geteuid().is_root() {
        return vec![Check::ok(name, "not needed by root")];
    }
    let is = |path: &str, value: &str| setting(path).as_deref() == Some(value);
    let forbidden = [
        ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "1"),
        ("/proc/sys/user/max_user_namespaces", "0", "10000"),
    ];
    let found: Vec<(&str, &str, &str)> =
        forbidden.into_iter().filter(|(path, value, _)| is(path, value)).collect();
    if found.is_empty() {
        return vec![Check::ok(name, "not forbidden")];
    }
    found
        .into_iter()
        .map(|(path, value, allowed)| {
            let sysctl = path.trim_start_matches("/proc/sys/").replace('/', ".");
            let consequence = format!(
                "an ordinary user may have no job here; as root: sysctl {sysctl}={allowed}"
            );
            Check::missing(name, format!("{sysctl} is {value}"), &consequence)
        })
        .take(1)
        .collect()
}

fn open_files() -> Check {
    let name = "limit of open files";
    match limits::own(Resource::RLIMIT_NOFILE) {
        Ok((_, hard)) if hard < FEW_FILES => Check::limited(
            name,
            hard.to_string(),
            "a job with many descriptors cannot be restarted; raise the hard limit (ulimit -Hn)",
        ),
        Ok((_, hard)) => Check::ok(name, hard.to_string()),
        Err(errno) => Check::limited(name, errno.desc(), "it is not known how many a job may have"),
    }
}

fn overcommit() -> Check {
    let name = "memory overcommit";
    match setting("/proc/sys/vm/overcommit_memory").as_deref() {
        Some("2") => Check::limited(
            name,
            "strict (2)",
            "a checkpoint needs as much free memory as the job has, or is abandoned; sysctl \
             vm.overcommit_memory=0",
        ),
        Some(mode) => Check::ok(name, format!("allowed ({mode})")),
        None => Check::limited(name, "unknown", "/proc/sys/vm cannot be read"),
    }
}

/// Kernels whose `reweight_entity()` places the running group of a session ahead of all others at each change
/// of its load: seen on 6.18.44, repaired in 6.18.45.
fn autogroup() -> Check {
    let on = setting("/proc/sys/kernel/sched_autogroup_enabled").as_deref() == Some("1");
    let release = nix::sys::utsname::uname().ok();
    let release = release.as_ref().and_then(|name| name.release().to_str()).unwrap_or_default();
    judge_autogroup(release, on)
}

fn judge_autogroup(release: &str, on: bool) -> Check {
    let name = "scheduling by session";
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().ok());
    let affected = matches!(
        (numbers.next(), numbers.next(), numbers.next()),
        (Some(Some(6)), Some(Some(18)), Some(Some(0..=44)))
    );
    match (affected, on) {
        (true, true) => Check::limited(
            name,
            format!("autogroup, on Linux {release}"),
            "while processes of a job wake each other at full speed, this kernel may keep everybody else from \
             running, ckptd too: checkpoints may take seconds; sysctl kernel.sched_autogroup_enabled=0, or Linux \
             6.18.45",
        ),
        (true, false) => Check::ok(name, "no autogroup, which this kernel does wrong"),
        (false, true) => Check::ok(name, "autogroup"),
        (false, false) => Check::ok(name, "no autogroup"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    #[test]
    fn the_kernels_that_starve_others() {
        for (release, on, state) in [
            ("6.18.44-fc-v595", true, State::Limited),
            ("6.18.7", true, State::Limited),
            ("6.18.44", false, State::Ok),
            ("6.18.45", true, State::Ok),
            ("6.1.0-18-amd64", true, State::Ok),
            ("6.19.1", true, State::Ok),
            ("", true, State::Ok),
        ] {
            assert_eq!(judge_autogroup(release, on).state, state, "{release} {on}");
        }
    }
}
