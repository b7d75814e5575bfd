//! The cluster of namespaces itself, with plain programs.

use std::time::{Duration, Instant};

use ckptd_tests::cluster::{Cluster, Spec, until};
use ckptd_tests::job::Failure;

const LIMIT: Duration = Duration::from_secs(10);

fn ping(cluster: &Cluster, from: usize, to: usize) -> Result<bool, Failure> {
    // No ping(8) needed: a TCP connection to a closed port is refused by the kernel at the other end.
    let target = format!("exec 3<>/dev/tcp/{}/9", cluster.node(to).address());
    let words = ["timeout", "0.5", "bash", "-c", &target];
    let output = cluster.node(from).run(&words, &[])?;
    Ok(output.stderr.contains("refused"))
}

#[test]
fn nodes_are_machines_of_their_own() -> Result<(), Failure> {
    let cluster = Cluster::start(&Spec::new(2))?;
    let (one, two) = (cluster.node(1), cluster.node(2));
    assert_eq!(one.must_run(&["hostname"])?, "node1\n");
    assert_eq!(two.must_run(&["pwd"])?, "/mnt/work\n");
    for path in ["/tmp/x", "/run/x", "/dev/shm/x", "/mnt/home/x", "/mnt/work/x"] {
        one.must_run(&["touch", path])?;
        assert!(two.run(&["ls", path], &[])?.stderr.contains("No such file"), "{path}");
        assert!(!std::path::Path::new(path).exists(), "{path}");
    }
    let first = one.must_run(&["cat", "/proc/1/cmdline"])?;
    assert_eq!(first, "clusternode\0init\0");
    assert_eq!(one.must_run(&["sh", "-c", "echo $HOME"])?, "/mnt/home\n");
    assert_eq!(one.run(&["sh", "-c", "exit 7"], &[])?.status, 7);
    assert_eq!(one.run(&["sh", "-c", "kill -9 $$"], &[])?.status, 137);
    assert!(ping(&cluster, 1, 2)? && ping(&cluster, 2, 0)?);
    let names = two.must_run(&["getent", "hosts", "node1"])?;
    assert!(names.starts_with(&one.address()), "{names}");
    Ok(())
}

#[test]
fn a_node_is_cut_off_and_comes_back() -> Result<(), Failure> {
    let cluster = Cluster::start(&Spec::new(3))?;
    cluster.node(2).cut()?;
    assert!(!ping(&cluster, 1, 2)? && !ping(&cluster, 2, 3)?);
    assert!(ping(&cluster, 1, 3)?);
    cluster.node(2).heal()?;
    until("node2 is back", LIMIT, || Ok(ping(&cluster, 1, 2)?.then_some(())))?;
    until("node3 is reached", LIMIT, || Ok(ping(&cluster, 2, 3)?.then_some(())))
}

#[test]
fn a_killed_node_leaves_nothing_but_its_disk() -> Result<(), Failure> {
    let cluster = Cluster::start(&Spec::new(2))?;
    let two = cluster.node(2);
    let script = "touch /tmp/gone /mnt/home/stays; setsid sleep 1000 & sleep 1000 & echo up; wait";
    let mut running = two.spawn(&["sh", "-c", script], &[])?;
    running.wait_for_output("up", LIMIT)?;
    let pid = running.pid().ok_or(Failure("no process".into()))?;
    two.kill()?;
    assert_eq!(running.wait(LIMIT)?, 137);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(!ping(&cluster, 1, 2)?);
    assert!(two.run(&["true"], &[]).is_err() && two.kill().is_err());
    two.power_on()?;
    assert!(two.power_on().is_err());
    assert_eq!(two.run(&["ls", "/tmp/gone"], &[])?.status, 2);
    two.must_run(&["ls", "/mnt/home/stays"])?;
    until("node2 is reached again", LIMIT, || Ok(ping(&cluster, 1, 2)?.then_some(())))
}

#[test]
fn signals_reach_a_command() -> Result<(), Failure> {
    let cluster = Cluster::start(&Spec { head: false, ..Spec::new(1) })?;
    let script = "trap 'echo caught; exit 3' USR1; echo up; while :; do sleep 0.01; done";
    let mut running = cluster.node(1).spawn(&["bash", "-c", script], &[])?;
    running.wait_for_output("up", LIMIT)?;
    running.signal(nix::sys::signal::Signal::SIGUSR1)?;
    assert_eq!(running.wait(LIMIT)?, 3);
    assert_eq!(running.output(), "up\ncaught\n");
    Ok(())
}

#[test]
fn everything_goes_with_the_cluster() -> Result<(), Failure> {
    let mut first = Cluster::start(&Spec::new(1))?;
    let second = Cluster::start(&Spec::new(1))?;
    let (folder, kept) = (second.folder().to_owned(), first.folder().to_owned());
    let running = second.node(1).spawn(&["sleep", "1000"], &[])?;
    let pid = until("it runs", LIMIT, || Ok(running.pid()))?;
    first.keep_files();
    drop(first);
    drop(second);
    assert!(!folder.exists() && kept.exists());
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    std::fs::remove_dir_all(kept).map_err(|e| Failure(e.to_string()))
}

/// Limits need control groups that this user may make: root's.
#[test]
fn processor_time_is_limited() -> Result<(), Failure> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let cluster = Cluster::start(&Spec { cores: Some(0.2), ..Spec::new(1) })?;
    let began = Instant::now();
    // 0.5 s of processor time.
    let spin = "while (( $(awk '{print $14+$15}' /proc/$$/stat) < 50 )); do :; done";
    cluster.node(1).must_run(&["bash", "-c", spin])?;
    let took = began.elapsed();
    assert!(took > Duration::from_millis(1500), "{took:?}");
    Ok(())
}
