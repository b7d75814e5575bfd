//! The jobs of the suite: programs that `tests/install` installs.

use std::path::Path;

use ckptd_tests::build;
use ckptd_tests::workspace::Workspace;

use super::END;

/// N-Queens: board and known count.
const QUEENS: (&str, &str) = ("13", "N=13: 73712 solutions");

/// A job of a real program.
pub struct Real {
    pub name: &'static str,
    pub command: Vec<String>,
    pub environment: Vec<(&'static str, &'static str)>,
    /// Seconds between checkpoints besides those that are asked for; 0: none.
    pub interval: &'static str,
    /// A folder in the working directory that goes back with the job.
    pub session: Option<&'static str>,
    /// A line that says that the program is under way.
    pub started: &'static str,
    /// A line of the right answer.
    pub answer: &'static str,
    /// Known not to work yet: a failure is told, and does not fail the suite.
    pub named: bool,
    /// Programs that it needs and that are not everywhere: large, and installed by nobody for this. Or whole paths of files.
    pub needs: &'static [&'static str],
}

impl Real {
    /// A job that needs nothing more than others do.
    pub fn new(
        name: &'static str,
        command: Vec<String>,
        started: &'static str,
        answer: &'static str,
    ) -> Real {
        Real {
            name,
            command,
            environment: Vec::new(),
            interval: "0",
            session: None,
            started,
            answer,
            named: false,
            needs: &[],
        }
    }
}

/// The jobs; builds the MPI programs that they need.
pub fn suite(workspace: &Workspace) -> Result<Vec<Real>, build::BuildError> {
    let tests = workspace.repository.join("tests");
    let source = tests.join("nqueens/nqueens.c");
    let programs = &workspace.programs;
    let (open_mpi, mpich) = (programs.join("nqueens"), programs.join("nqueens.mpich"));
    build::compile("mpicc.openmpi", &["-O2"], &[&source], &open_mpi)?;
    build::compile("mpicc.mpich", &["-O2"], &[&source], &mpich)?;
    let script = |name: &str| tests.join("real").join(name).display().to_string();
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let queens = |launch: &str, program: &Path| {
        let arguments = format!("{} --ballast 16 --chat 40 --until {END}", QUEENS.0);
        words(&format!("{launch} {} {arguments}", program.display()))
    };
    let open_mpi_command = queens("mpirun.openmpi --oversubscribe -np 4", &open_mpi);
    let mut separable =
        Real::new("openmpi-separable", open_mpi_command.clone(), "rank 3 of 4", QUEENS.1);
    // Set here too, so that the program alone runs as it does under ckptd.
    separable.environment = vec![
        ("OMPI_MCA_btl", "self,tcp"),
        ("PMIX_MCA_gds", "hash"),
        ("OMPI_MCA_mpi_preconnect_mpi", "1"),
        ("OMPI_MCA_hwloc_base_binding_policy", "none"),
    ];
    let mut default = Real::new("openmpi-default", open_mpi_command, "rank 3 of 4", QUEENS.1);
    // What the user sets stays: these are Open MPI's own defaults.
    default.environment = vec![
        ("OMPI_MCA_btl", "self,vader,tcp"),
        ("PMIX_MCA_gds", "ds21,ds12,hash"),
        ("OMPI_MCA_mpi_preconnect_mpi", "0"),
    ];
    let mpich_command = queens("mpiexec.hydra -np 2", &mpich);
    let mut mpich_separable =
        Real::new("mpich-separable", mpich_command.clone(), "rank 1 of 2", QUEENS.1);
    mpich_separable.environment = vec![("UCX_TLS", "tcp,self"), ("MPIR_CVAR_NOLOCAL", "1")];
    // Debian's MPICH may hang in MPI_Finalize by itself over TCP, if a rank comes there early (nqueens.c tells why).
    mpich_separable.command.extend(words("--settle 1000"));
    let mpich_default = Real::new("mpich-default", mpich_command, "rank 1 of 2", QUEENS.1);
    let allreduce = format!(
        "mpirun.openmpi --oversubscribe -np 3 /usr/bin/python3 {} {END}",
        script("allreduce.py")
    );
    let allreduce = Real::new("mpi4py", words(&allreduce), "rank 2 of 3", "allreduce: right");
    let python = vec!["python3".to_owned(), script("threads.py"), END.to_owned()];
    let redis = vec!["python3".to_owned(), script("redis.py"), END.to_owned()];
    let sort = vec!["bash".to_owned(), script("sort.sh"), END.to_owned()];
    let sqlite = vec!["python3".to_owned(), script("sqlite.py"), END.to_owned()];
    let writers = vec!["python3".to_owned(), script("sqlitewriters.py"), END.to_owned()];
    let folder = "database";
    let postgres = ["python3", &script("postgres.py"), folder, END].map(str::to_owned);
    let mut postgres = Real::new("postgres", postgres.into(), "started", "postgres: right");
    postgres.session = Some(folder);
    let with = |program: &str, name: &str| vec![program.to_owned(), script(name), END.to_owned()];
    let node = Real::new("node", with("node", "node.mjs"), "started", "node: right");
    let jvm = |name, collector: &str| {
        let mut command = with("java", "Jvm.java");
        command.splice(1..1, ["-Xmx256m".to_owned(), collector.to_owned()]);
        Real { needs: &["javac"], ..Real::new(name, command, "started", "java: right") }
    };
    let nginx = Real::new("nginx", with("python3", "nginx.py"), "started", "nginx: right");
    let memcached =
        Real::new("memcached", with("python3", "memcached.py"), "started", "memcached: right");
    let mut apart = ["bwrap", "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--unshare-net"]
        .map(str::to_owned)
        .to_vec();
    apart.extend(with("python3", "memcached.py"));
    let apart = Real::new("own-network", apart, "started", "memcached: right");
    let bubblewrap =
        Real::new("bubblewrap", with("bash", "bubblewrap.sh"), "started", "bubblewrap: right");
    let container =
        Real::new("container", with("bash", "container.sh"), "started", "container: right");
    let pipeline = vec!["bash".to_owned(), script("pipeline.sh"), "2000".to_owned()];
    Ok(vec![
        separable,
        Real::new("python", python, "started", "python: right"),
        Real::new("sqlite-writers", writers, "started", "sqlite: right"),
        Real::new("redis", redis, "started", "redis: right"),
        Real::new("bash-pipeline", pipeline, "started", "pipeline: right"),
        Real::new("sort", sort, "started", "sort: right"),
        Real::new("sqlite", sqlite, "started", "sqlite: right"),
        postgres,
        Real { named: true, ..default },
        mpich_separable,
        mpich_default,
        allreduce,
        nginx,
        memcached,
        Real { needs: &["bwrap"], ..bubblewrap },
        Real { needs: &["bwrap"], ..container },
        Real { needs: &["bwrap", "memcached"], ..apart },
        Real { needs: &["node"], ..node },
        jvm("java-g1", "-XX:+UseG1GC"),
        jvm("java-zgc", "-XX:+UseZGC"),
    ])
}
