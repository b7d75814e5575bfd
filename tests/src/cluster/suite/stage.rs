//! What all tests of the suite start from.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::build;
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::failure;
use crate::cluster::job::ClusterJob;
use crate::job::Failure;
use crate::workspace::Workspace;

/// How long anything may take that is not a job.
pub const LIMIT: Duration = Duration::from_secs(30);
/// How long a job may take to its end.
pub const JOB_LIMIT: Duration = Duration::from_secs(120);

/// The executables.
pub struct Stage {
    /// The command under test.
    pub ckptd: PathBuf,
    programs: Vec<PathBuf>,
    scripts: PathBuf,
}

impl Stage {
    /// Builds the programs.
    ///
    /// # Errors
    /// When a compiler is missing or refuses one.
    pub fn new(workspace: &Workspace) -> Result<Stage, Failure> {
        let tests = workspace.repository.join("tests");
        let mut programs = Vec::new();
        let flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"];
        let folder = tests.join("programs-cluster");
        for entry in fs::read_dir(&folder).map_err(failure("list the programs"))?.flatten() {
            let source = entry.path();
            if source.extension().is_some_and(|ending| ending == "c") {
                let program = workspace.programs.join(source.file_stem().unwrap_or_default());
                build::compile("cc", &flags, &[&source], &program)
                    .map_err(|e| Failure(e.to_string()))?;
                programs.push(program);
            }
        }
        let queens = tests.join("nqueens/nqueens.c");
        let exchange = tests.join("exchange/exchange.c");
        let spawn = tests.join("spawn/spawn.c");
        let talk = tests.join("talk/talk.c");
        let blast = tests.join("blast/blast.c");
        for (compiler, source, name) in [
            ("mpicc.openmpi", &queens, "nqueens"),
            ("mpicc.mpich", &queens, "nqueens.mpich"),
            ("mpicc.openmpi", &exchange, "exchange"),
            ("mpicc.openmpi", &spawn, "spawn"),
            ("mpicc.openmpi", &talk, "talk"),
            ("mpicc.openmpi", &blast, "blast"),
        ] {
            // The demonstration needs Open MPI only.
            let version = std::process::Command::new(compiler).arg("--version").output();
            if compiler != "mpicc.openmpi" && version.is_err() {
                println!("    skipped: {name}: there is no {compiler}; tests/install installs it");
                continue;
            }
            let program = workspace.programs.join(name);
            build::compile(compiler, &["-O2"], &[source, Path::new("-lm")], &program)
                .map_err(|e| Failure(e.to_string()))?;
            programs.push(program);
        }
        Ok(Stage { ckptd: workspace.ckptd.clone(), programs, scripts: tests.join("real") })
    }

    /// A script of tests/real.
    pub fn script(&self, name: &str) -> PathBuf {
        self.scripts.join(name)
    }

    /// A built program.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn program(&self, name: &str) -> Result<&Path, Failure> {
        let found = self.programs.iter().find(|path| path.file_name().is_some_and(|n| n == name));
        found.map(PathBuf::as_path).ok_or_else(|| Failure(format!("{name} was not built")))
    }

    /// A cluster with ckptd and all programs on all nodes.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn cluster(&self, nodes: usize) -> Result<Ckptd, Failure> {
        self.cluster_of(Setup::new(nodes))
    }

    /// The same, set up otherwise.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn cluster_of(&self, setup: Setup) -> Result<Ckptd, Failure> {
        self.cluster_with(&self.ckptd, setup)
    }

    /// The same, with another executable, whose name must be `ckptd`.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn cluster_with(&self, executable: &Path, setup: Setup) -> Result<Ckptd, Failure> {
        let ckptd = Ckptd::start(executable, setup)?;
        for program in &self.programs {
            ckptd.cluster().share(program)?;
        }
        Ok(ckptd)
    }
}

/// Starts a job that says "started" and lets it come to a checkpoint.
///
/// # Errors
/// When it does not.
pub fn start<'a>(
    ckptd: &'a Ckptd,
    name: &str,
    options: &[&str],
    command: &[&str],
) -> Result<ClusterJob<'a>, Failure> {
    let mut job = ckptd.run(1, name, &[&["--interval", "1"], options].concat(), command)?;
    job.wait_for_output("started", LIMIT)?;
    // The next may be under way, of a time before.
    job.wait_for_more_checkpoints(2, LIMIT)?;
    Ok(job)
}
