//! The coordinator's page, in a browser.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::open_mpi::{finish, start};
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::Setup;
use crate::cluster::failure;
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[Case {
    name: "page",
    about: "a browser sees on the coordinator's page where the ranks of a lost node went, and nobody without the token does",
    run: page,
}];

/// The page's port.
const PORT: &str = "7071";
/// Where the browser's part of the test leaves pictures of the page, if this is set: a folder.
const PICTURES: &str = "CKPTD_PAGE_PICTURES";
/// Its home on the coordinator's machine, from which they are taken.
const LEFT: &str = "/mnt/home/pictures";

fn page(stage: &Stage) -> Result<(), Failure> {
    if Command::new("chromedriver").arg("--version").output().is_err() {
        eprintln!("page is left out: there is no chromedriver; tests/install installs it");
        return Ok(());
    }
    let ckptd = stage.cluster_of(Setup { http: Some(PORT), ..Setup::new(3) })?;
    let reader = ckptd.cluster().share(&reader()?)?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    let state = ckptd.coordinator_node().must_run(&["sh", "-c", "echo $CKPTD_DIR/coordinator"])?;
    let pictures = std::env::var_os(PICTURES).map(PathBuf::from);
    let mut words = vec![&reader, "--port", PORT, "--state", state.trim()];
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
    if let Some(to) = pictures {
        let from = ckptd.coordinator_node().disk().join("home/pictures");
        for picture in fs::read_dir(from).map_err(failure("list pictures"))?.flatten() {
            let to = to.join(picture.file_name());
            fs::copy(picture.path(), to).map_err(failure("copy a picture"))?;
        }
    }
    finish(&ckptd, &mut job)
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
