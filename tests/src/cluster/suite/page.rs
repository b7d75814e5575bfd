//! The coordinator's page, in a browser.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use super::open_mpi::{finish, start};
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check, promtool};
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::failure;
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "page",
        about: "a browser sees on the coordinator's page where the ranks of a lost node went, and nobody without the token does",
        run: page,
    },
    Case {
        name: "page-remote",
        about: "from other machines the page is seen over TLS by tokens, and operators take checkpoints and drain nodes there",
        run: page_remote,
    },
];

/// The page's port.
const PORT: &str = "7071";
/// Where the browser's part of the test leaves pictures of the page, if this is set: a folder.
const PICTURES: &str = "CKPTD_PAGE_PICTURES";
/// A metric that there always is.
const METRIC: &str = "ckptd_jobs";
/// Its home on the coordinator's machine, from which they are taken.
const LEFT: &str = "/mnt/home/pictures";

/// Whether there is a browser.
fn is_there(name: &str) -> bool {
    let found = Command::new("chromedriver").arg("--version").output().is_ok();
    if !found {
        println!("    skipped: {name}: there is no chromedriver; tests/install installs it");
    }
    found
}

fn page(stage: &Stage) -> Result<(), Failure> {
    if !is_there("page") {
        return Ok(());
    }
    let ckptd = stage.cluster_of(Setup { http: Some(PORT), ..Setup::new(3) })?;
    let reader = ckptd.cluster().share(&reader()?)?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    let state = ckptd.coordinator_node().must_run(&["sh", "-c", "echo $CKPTD_DIR/coordinator"])?;
    let pictures = std::env::var_os(PICTURES).map(PathBuf::from);
    let mut words = vec![&reader, "lost", "--port", PORT, "--state", state.trim()];
    words.extend(["--job", job.name(), "--lost", "node3"]);
    if pictures.is_some() {
        words.extend(["--pictures", LEFT]);
    }
    let mut reading = ckptd.coordinator_node().spawn(&words, &[])?;
    reading.wait_for_output("the ranks are on node3", LIMIT)?;
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    let status = reading.wait(JOB_LIMIT)?;
    check(status == 0, || format!("{}{}", reading.output(), reading.errors()))?;
    for line in reading.output().lines() {
        eprintln!("page: {line}");
    }
    if let Some(to) = pictures {
        let from = ckptd.coordinator_node().disk().join("home/pictures");
        for picture in fs::read_dir(from).map_err(failure("list pictures"))?.flatten() {
            let to = to.join(picture.file_name());
            fs::copy(picture.path(), to).map_err(failure("copy a picture"))?;
        }
    }
    finish(&ckptd, &mut job)
}

fn page_remote(stage: &Stage) -> Result<(), Failure> {
    if !is_there("page-remote") {
        return Ok(());
    }
    let ckptd = stage.cluster_of(Setup { http: Some("0.0.0.0:7071"), ..Setup::new(3) })?;
    let reader = ckptd.cluster().share(&reader()?)?;
    let head = ckptd.coordinator_node();
    let made = |options: &[&str]| {
        let text = head.must_run(&[&["ckptd", "page", "--add"], options].concat())?;
        Ok::<_, Failure>(text.trim().to_owned())
    };
    let operator = made(&["boss", "--role", "operator"])?;
    let viewer = made(&["guest"])?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    programs(&ckptd, (&viewer, &operator), job.name())?;

    let url = format!("https://{}:{PORT}/", head.address());
    let words = [&reader, "remote", "--url", &url, "--viewer", &viewer, "--operator", &operator];
    let words = [&words[..], &["--job", job.name(), "--drained", "node3"]].concat();
    let mut reading = ckptd.node(2).spawn(&words, &[])?;
    reading.wait_for_output("take it back", LIMIT)?;
    head.must_run(&["ckptd", "page", "--remove", "boss"])?;
    let status = reading.wait(JOB_LIMIT)?;
    check(status == 0, || format!("{}{}", reading.output(), reading.errors()))?;
    let audit = head.must_run(&["ckptd", "audit"])?;
    for order in ["checkpoint", "drain --no-wait", "uncordon"] {
        let noted = |line: &str| line.contains("(at the page: boss)") && line.contains(order);
        check(audit.lines().any(noted), || format!("{order} is not in:\n{audit}"))?;
    }
    let listed = head.must_run(&["ckptd", "page", "--list"])?;
    check(listed.contains("guest") && !listed.contains("boss"), || listed.clone())?;
    certificate_ends(&ckptd)?;
    finish(&ckptd, &mut job)
}

/// A certificate that ends soon takes the place of the one that is shown: status says so.
fn certificate_ends(ckptd: &Ckptd) -> Result<(), Failure> {
    let head = ckptd.coordinator_node();
    let status = || head.must_run(&["ckptd", "status"]);
    let (before, about) = (status()?, "the certificate of the coordinator's page ends");
    check(!before.contains(about), || before.clone())?;
    let made = "cd \"$CKPTD_DIR/coordinator\" && umask 077 && \
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 10 -subj /CN=head \
            -keyout key.new -out certificate.new 2> openssl.log || { cat openssl.log >&2; exit 1; }
        mv key.new http-key.pem && mv certificate.new http-certificate.pem";
    head.must_run(&["sh", "-c", made])?;
    let mut told = String::new();
    let until = Instant::now() + LIMIT;
    while !told.contains(&format!("{about} in 9 days: start the coordinator again")) {
        check(Instant::now() < until, || format!("status does not tell:\n{told}"))?;
        std::thread::sleep(Duration::from_millis(300));
        told = status()?;
    }
    Ok(())
}

/// What programs on other machines are told, by the certificate that they were given.
fn programs(ckptd: &Ckptd, (viewer, operator): (&str, &str), job: &str) -> Result<(), Failure> {
    let head = ckptd.coordinator_node();
    let state = head.must_run(&["sh", "-c", "echo $CKPTD_DIR/coordinator"])?;
    let read = |name: &str| head.must_run(&["cat", &format!("{}/{name}", state.trim())]);
    let certificate = read("http-certificate.pem")?;
    let metrics = head.must_run(&["ckptd", "page", "--add", "prometheus", "--role", "metrics"])?;
    let nobodys = head.must_run(&["ckptd", "page", "--add", "nobody", "--user", "nobody"])?;
    let asked = |node: usize, bearer: &str, more: &str| {
        let script = format!(
            "printf %s \"$PEM\" > page.pem; curl -sS --max-time 20 --cacert page.pem -o answer -w '%{{http_code}}' \
             -H \"Authorization: Bearer $BEARER\" {more} && echo && cat answer",
        );
        let environment = [("PEM", certificate.as_str()), ("BEARER", bearer.trim())];
        let said = ckptd.node(node).run(&["sh", "-c", &script], &environment)?;
        let (status, text) = said.stdout.split_once('\n').unwrap_or((&said.stdout, &said.stderr));
        Ok::<_, Failure>((status.to_owned(), text.to_owned()))
    };
    let url = format!("https://{}:{PORT}", head.address());
    let order = format!("-d what=drain -d about=node3 {url}/order");
    let own = read("http.token")?;
    let wanted = [
        (viewer, format!("{url}/data"), "200", job),
        (&nobodys, format!("{url}/data"), "200", "\"jobs\":[]"),
        (&metrics, format!("{url}/metrics"), "200", METRIC),
        (&metrics, format!("{url}/data"), "403", "for /metrics alone"),
        (viewer, order.clone(), "403", "only operators"),
        (operator, format!("-H 'Origin: https://evil.example' {order}"), "403", "this page alone"),
        // What the folder's own user reads there is no token for the network.
        (&own, format!("{url}/data"), "401", "a token is needed"),
        (viewer, format!("http://{}:{PORT}/", head.address()), "400", "https"),
    ];
    for (bearer, more, status, text) in wanted {
        let (found, said) = asked(2, bearer, &more)?;
        check(found == status && said.contains(text), || format!("{more}: {found}: {said}"))?;
        if text == METRIC {
            promtool::takes_metrics(&said)?;
        }
    }
    // Whoever guesses is told to wait, but nobody who has a token.
    let mut found = Vec::new();
    for _ in 0..11 {
        found.push(asked(3, "ckptdp1_guessed", &format!("{url}/data"))?.0);
    }
    check(found.iter().take(10).all(|status| status == "401"), || format!("{found:?}"))?;
    let (right, _) = asked(3, viewer, &format!("{url}/data"))?;
    check(found[10] == "429" && right == "200", || format!("{found:?}, {right}"))
}

/// What reads the page; it is beside this program.
fn reader() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(failure("find this program"))?;
    let reader = own.with_file_name("pagereader");
    check(reader.is_file(), || {
        "failed to find pagereader: cargo build -p ckptd-tests --bins builds it".to_owned()
    })?;
    Ok(reader)
}
