//! The cluster of namespaces itself, with plain programs.

use std::time::{Duration, Instant};

use ckptd_tests::build;
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
    for folder in ["/tmp", "/run", "/dev/shm", "/mnt/home", "/mnt/work"] {
        // A name that this machine has not got by chance.
        let path = format!("{folder}/ckptd-nodes-{}", std::process::id());
        one.must_run(&["touch", &path])?;
        assert!(two.run(&["ls", &path], &[])?.stderr.contains("No such file"), "{path}");
        assert!(!std::path::Path::new(&path).exists(), "{path}");
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
    // The kernel takes a network namespace down after its last process has ended, in a work queue.
    until("node2 is silent", LIMIT, || Ok((!ping(&cluster, 1, 2)?).then_some(())))?;
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
    // The first line of times(1) is the shell's own.
    let spin = "for ((i = 0; i < 200000; i++)); do :; done; times";
    let times = cluster.node(1).must_run(&["bash", "-c", spin])?;
    let took = began.elapsed().as_secs_f64();
    let used = times.lines().next().and_then(|line| line.split(&['m', 's'][..]).nth(1));
    let used: f64 = used.and_then(|seconds| seconds.parse().ok()).unwrap_or(f64::MAX);
    assert!(used > 0.1 && took > used * 3.0, "{used} s of processor time in {took} s");
    Ok(())
}

/// Three nodes carry a job of Open MPI, with a remote shell that leaves its orders in a folder.
#[test]
fn open_mpi_runs_over_the_nodes() -> Result<(), Failure> {
    let cluster = Cluster::start(&Spec { head: false, ..Spec::new(3) })?;
    let built = cluster.folder().join("nqueens");
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("nqueens/nqueens.c");
    build::compile("mpicc.openmpi", &["-O2"], &[&source], &built)
        .map_err(|e| Failure(e.to_string()))?;
    let program = cluster.share(&built)?;
    let orders = cluster.folder().join("shared/orders");
    std::fs::create_dir(&orders).map_err(|e| Failure(e.to_string()))?;
    let shell = "#!/bin/bash\nhost=$1; shift; echo \"$*\" > $0.tmp.$host\n\
                 mv $0.tmp.$host /mnt/shared/orders/$host; exec sleep 1000\n";
    let shell = cluster.share_script("shell", shell)?;
    let mut words = vec!["mpirun.openmpi", "-np", "6", "--host", "node1:2,node2:2,node3:2"];
    words.extend(["--mca", "plm_rsh_agent", &shell, "--mca", "btl", "self,tcp"]);
    words.extend([&program, "12", "--chat", "20"]);
    let mut job = cluster.node(1).spawn(&words, &[("PMIX_MCA_gds", "hash")])?;
    let mut daemons = Vec::new();
    let status = until("mpirun ends", Duration::from_secs(60), || {
        for node in cluster.nodes() {
            let order = orders.join(node.name());
            if let Ok(text) = std::fs::read_to_string(&order) {
                std::fs::remove_file(order).map_err(|e| Failure(e.to_string()))?;
                daemons.push(node.spawn(&["sh", "-c", &text], &[])?);
            }
        }
        job.ended()
    });
    let status = status.map_err(|f| job.explain(&f))?;
    let output = job.output();
    assert_eq!(status, 0, "{}", job.explain(&Failure("mpirun".into())));
    for line in ["rank 1 of 6 on node1", "rank 3 of 6 on node2", "rank 5 of 6 on node3"] {
        assert!(output.contains(line), "{output}");
    }
    assert!(output.contains("N=12: 14200 solutions\n"), "{output}");
    Ok(())
}
