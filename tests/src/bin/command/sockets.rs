//! Restarts at once after a kill, ports that others have taken, addresses that have gone, connections to outside.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use ckptd_tests::account::running_as_root;
use ckptd_tests::job::Failure;

use super::stage::{JOB, Stage, expect, own, until};

/// Listens at the port (or path) that it is given, with children, until there is a file `go`.
const SERVER: &str = r#"
use Socket;
my ($family, $address) = $ARGV[0] =~ m{/}
    ? (PF_UNIX, pack_sockaddr_un($ARGV[0])) : (PF_INET, pack_sockaddr_in($ARGV[0], inet_aton($ARGV[1])));
socket(my $s, $family, SOCK_STREAM, 0) or die "socket: $!";
setsockopt($s, SOL_SOCKET, SO_REUSEADDR, 1);
bind($s, $address) or die "bind: $!";
listen($s, 5) or die "listen: $!";
$| = 1;
for (1 .. 8) { last if !fork; }
print "ready\n";
until (-e "go") {
    if (-e "grow" && !$memory) { $memory = "x" x (60 << 20); open(my $file, ">", "grown.$$"); }
    select(undef, undef, undef, 0.02);
}
print "right\n" if getsockname($s) eq $address || $family == PF_UNIX;
"#;

/// Fills the queue of a listener of its own at a port, says from which port it asks then in vain, and when there is a
/// file `go`, whether it asks from there still.
const ASKING: &str = r#"
use Socket; use Fcntl;
my $to = pack_sockaddr_in($ARGV[0], INADDR_LOOPBACK);
socket(my $s, PF_INET, SOCK_STREAM, 0) or die "socket: $!";
bind($s, $to) or die "bind: $!";
listen($s, 0) or die "listen: $!";
my (@all, $in_vain);
for (1 .. 8) {
    socket(my $client, PF_INET, SOCK_STREAM, 0) or die "socket: $!";
    fcntl($client, F_SETFL, O_NONBLOCK);
    connect($client, $to);
    push @all, $client;
    vec(my $waits = "", fileno($client), 1) = 1;
    last if $in_vain = !select(undef, $waits, undef, 0.1);
}
die "all were answered" if !$in_vain;
my $own = getsockname($all[-1]);
$| = 1;
print "asks from ", (unpack_sockaddr_in($own))[0], ".\n";
select(undef, undef, undef, 0.02) until -e "go";
print getsockname($all[-1]) eq $own ? "from there still\n" : "from another port\n";
"#;

/// A port of 127.0.0.1 that nobody has, none of those that the kernel hands out.
fn free_port() -> Result<u16, Failure> {
    let start = 20_000 + (std::process::id() % 8_000) as u16;
    (start..start + 1_000)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .ok_or_else(|| Failure("no port is free".into()))
}

/// Takes a port as soon as the processes that had it have closed it.
fn hold(port: u16) -> Result<TcpListener, Failure> {
    let mut held = None;
    until("the port is free", || {
        held = TcpListener::bind(("127.0.0.1", port)).ok();
        held.is_some()
    })?;
    held.ok_or_else(|| Failure("the port is not held".into()))
}

/// A kill and a restart with nothing between them: the restart waits until the old processes have ended.
pub fn restart_at_once(stage: &Stage) -> Result<(), Failure> {
    let path = stage.home.join("socket").display().to_string();
    let mut running = stage.run(&["perl", "-e", SERVER, &path])?;
    running.wait_for("ready")?;
    stage.checkpoint()?;
    // What takes a while to end.
    own(std::fs::write(stage.home.join("grow"), ""))?;
    let grown = || {
        let files = std::fs::read_dir(&stage.home).into_iter().flatten().flatten();
        files.filter(|file| file.file_name().to_string_lossy().starts_with("grown.")).count()
    };
    until("all have grown", || grown() == 9)?;
    own(std::fs::remove_file(stage.home.join("grow")))?;
    for _ in 0..3 {
        running.kill()?;
        running = stage.restart(&[])?;
    }
    own(std::fs::write(stage.home.join("go"), ""))?;
    let ended = running.finish()?.expect(0)?;
    expect(ended.out.contains("right\n"), || format!("{ended:?}"))
}

/// A port that somebody else has meanwhile: the restart says who, waits, and listens there; if it stays taken the
/// restart is refused.
pub fn port_taken(stage: &Stage) -> Result<(), Failure> {
    let port = free_port()?;
    let running = stage.run(&["perl", "-e", SERVER, &port.to_string(), "127.0.0.1"])?;
    running.wait_for("ready")?;
    stage.checkpoint()?;
    running.kill()?;
    stage.expect_gone()?;

    let holder = hold(port)?;
    let mut waiting = stage.start(&["restart", JOB])?;
    // A user is not shown the descriptors of others.
    let wanted = match running_as_root() && stage.account.name() != "root" {
        true => format!("127.0.0.1:{port} is held by a process of user 0"),
        false => format!("127.0.0.1:{port} is held by process {}", std::process::id()),
    };
    until(&wanted, || waiting.text().1.contains(&wanted))
        .map_err(|failure| Failure(format!("{failure}: {:?}", waiting.text())))?;
    drop(holder);
    stage.until_up(&mut waiting)?;
    expect(TcpListener::bind(("127.0.0.1", port)).is_err(), || "nobody listens there".into())?;
    waiting.kill()?;
    stage.expect_gone()?;

    let holder = hold(port)?;
    let mut refused = stage.start(&["restart", JOB])?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while own(refused.child.try_wait())?.is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    let refused = refused.finish()?.expect(125)?;
    expect(refused.err.contains(&wanted) && refused.err.contains("--force"), || {
        format!("{refused:?}")
    })?;
    let mut forced = stage.start(&["restart", JOB, "--force"])?;
    stage.until_up(&mut forced)?;
    drop(holder);
    forced.kill()?;
    stage.expect_gone()
}

/// A port from which a connection is asked for, and which somebody else has meanwhile: the restart waits for it a
/// moment, and then says from where it asks.
pub fn asking_port_taken(stage: &Stage) -> Result<(), Failure> {
    let running = stage.run(&["perl", "-e", ASKING, &free_port()?.to_string()])?;
    running.wait_for(".\n")?;
    let said = running.text().0;
    let port = said.trim_start_matches("asks from ").trim_end_matches(".\n").parse();
    let port: u16 = port.map_err(|_| Failure(format!("no port: {said:?}")))?;
    stage.checkpoint()?;
    running.kill()?;
    stage.expect_gone()?;

    let holder = hold(port)?;
    let mut waiting = stage.start(&["restart", JOB])?;
    // Time in which it would take another one.
    std::thread::sleep(Duration::from_millis(700));
    drop(holder);
    stage.until_up(&mut waiting)?;
    let said = waiting.text().1;
    expect(!said.contains("can't be had"), || format!("{said:?}"))?;
    own(std::fs::write(stage.home.join("go"), ""))?;
    let ended = waiting.finish()?.expect(0)?;
    expect(ended.out.contains("from there still"), || format!("{ended:?}"))?;

    own(std::fs::remove_file(stage.home.join("go")))?;
    let _holder = hold(port)?;
    let mut lost = stage.start(&["restart", JOB, "--checkpoint", "1"])?;
    stage.until_up(&mut lost)?;
    own(std::fs::write(stage.home.join("go"), ""))?;
    let ended = lost.finish()?.expect(0)?;
    let warning = format!("127.0.0.1:{port} can't be had");
    expect(ended.out.contains("from another port") && ended.err.contains(&warning), || {
        format!("{ended:?}")
    })
}

/// An address that the machine has lost: the restart names it.
pub fn lost_address(stage: &Stage) -> Result<(), Failure> {
    let unshare = if running_as_root() { "-n" } else { "-rn" };
    let network = |words: &str| ["unshare", unshare, "sh", "-c", words, "sh"].map(str::to_owned);
    let with = network("ip link set lo up; ip address add 10.77.0.1/32 dev lo; exec \"$@\"");
    let without = network("ip link set lo up; exec \"$@\"");
    let start = |words: &[String], arguments: &[&str]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        stage.start_wrapped(&words, arguments)
    };
    let port = free_port()?.to_string();
    let arguments =
        ["run", "--interval", "0", "--name", JOB, "--", "perl", "-e", SERVER, &port, "10.77.0.1"];
    let mut running = start(&with, &arguments)?;
    stage.until_up(&mut running)?;
    running.wait_for("ready")?;
    stage.checkpoint()?;
    running.kill()?;
    stage.expect_gone()?;
    let mut again = start(&without, &["restart", JOB])?;
    stage.until_up(&mut again)?;
    let said = again.text().1;
    expect(said.contains("no address 10.77.0.1 any more"), || format!("{said:?}"))?;
    own(std::fs::write(stage.home.join("go"), ""))?;
    let ended = again.finish()?.expect(0)?;
    // It is bound to it all the same.
    expect(ended.out.contains("right\n"), || format!("{ended:?}"))
}

/// `--external fail` refuses the checkpoint of a job of this machine with a connection to somebody else.
pub fn external(stage: &Stage) -> Result<(), Failure> {
    const CLIENT: &str = "use IO::Socket; $s = IO::Socket::INET->new(PeerAddr => $ARGV[0]) or die; $| = 1; \
                          print qq(ready\n); sleep 100";
    let outside = own(TcpListener::bind("127.0.0.1:0"))?;
    let peer = own(outside.local_addr())?.to_string();
    for (setting, status) in [("warn", 0), ("fail", 125)] {
        let arguments = ["run", "--interval", "0", "--name", JOB, "--external", setting, "--"];
        let mut running =
            stage.start(&[&arguments[..], &["perl", "-e", CLIENT, &peer]].concat())?;
        stage.until_up(&mut running)?;
        running.wait_for("ready")?;
        let (_accepted, _) = own(outside.accept())?;
        let answer = stage.output(&["checkpoint", JOB], "")?.expect(status)?;
        expect(status == 0 || answer.err.contains("outside of the job"), || format!("{answer:?}"))?;
        running.kill()?;
        stage.expect_gone()?;
        stage.output(&["rm", JOB], "")?.expect(0)?;
    }
    Ok(())
}
