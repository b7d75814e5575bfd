//! The jobs of programs that are large or not everywhere: they run where somebody has installed them.

use std::path::Path;

use ckptd_tests::workspace::Workspace;

use super::END;
use super::jobs::Real;

/// The jobs, whether they can run here or not.
pub fn jobs(workspace: &Workspace) -> Vec<Real> {
    let real = workspace.repository.join("tests/real");
    let job = |name, launch: &str, script: &str, answer, needs| {
        let mut command: Vec<String> = launch.split(' ').map(str::to_owned).collect();
        command.extend([real.join(script).display().to_string(), END.to_owned()]);
        Real { needs, ..Real::new(name, command, "started", answer) }
    };
    let allreduce = real.join("allreduce.py").display().to_string();
    let mpi = |name, needs: &'static [&'static str; 1], options: &[&str]| {
        let python = Path::new(needs[0]).with_file_name("python").display().to_string();
        let launch = [&needs[..], options, &["-n", "3"], &[&python, &allreduce, END]].concat();
        let command = launch.into_iter().map(str::to_owned).collect();
        Real { needs, ..Real::new(name, command, "rank 2 of 3", "allreduce: right") }
    };
    let benchmarks = format!("{INTEL_MPI} -n 3 {IMB} {IMB_OPTIONS}");
    let benchmarks = benchmarks.split(' ').map(str::to_owned).collect();
    let imb = Real {
        needs: &[IMB],
        environment: vec![("LD_LIBRARY_PATH", INTEL_LIBRARIES)],
        interval: "1",
        ..Real::new("imb", benchmarks, "# Benchmarking", "# All processes entering MPI_Finalize")
    };
    vec![
        imb,
        mpi("openmpi5", &[OPEN_MPI_5], &["--oversubscribe"]),
        mpi("mpich4.3", &[MPICH_4_3], &[]),
        mpi("mpich5", &[MPICH_5], &[]),
        mpi("intelmpi", &[INTEL_MPI], &[]),
        job("pytorch", "/usr/bin/python3", "pytorch.py", "torch: right", &[TORCH]),
        job("lammps", "bash", "lammps.sh", "lammps: right", &["lmp"]),
        job(
            "quantum-espresso",
            "bash",
            "quantumespresso.sh",
            "quantumespresso: right",
            &["pw.x", SILICON],
        ),
        job("gromacs", "bash", "gromacs.sh", "gromacs: right", &["gmx"]),
        job("octave", "octave-cli --no-init-file", "octave.m", "octave: right", &["octave-cli"]),
        job("rscript", "Rscript --vanilla", "statistics.R", "R: right", &["Rscript"]),
        job("go", "bash", "go.sh", "go: right", &["go"]),
        job("python-processes", "python3", "processes.py", "processes: right", &[]),
        job("ffmpeg", "bash", "ffmpeg.sh", "ffmpeg: right", &["ffmpeg"]),
        job("make", "bash", "make.sh", "make: right", &["make"]),
        job("parallel", "bash", "parallel.sh", "parallel: right", &["parallel"]),
        job("tmux", "bash", "tmux.sh", "tmux: right", &["tmux", "vim"]),
    ]
}

/// Debian's PyTorch.
const TORCH: &str = "/usr/lib/python3/dist-packages/torch";
/// A pseudopotential that comes with Debian's Quantum ESPRESSO.
const SILICON: &str = "/usr/share/espresso/pseudo/Si.pz-vbc.UPF";
/// Run times of MPI of the Python package index, as tests/install installs them.
const OPEN_MPI_5: &str = "/var/cache/ckptd-tests/mpi/openmpi/bin/mpirun";
const MPICH_5: &str = "/var/cache/ckptd-tests/mpi/mpich/bin/mpiexec";
const MPICH_4_3: &str = "/var/cache/ckptd-tests/mpi/mpich4.3/bin/mpiexec";
/// Its mpirun is a script that needs the others in PATH.
const INTEL_MPI: &str = "/var/cache/ckptd-tests/mpi/impi-rt/bin/mpiexec";
const INTEL_LIBRARIES: &str = "/var/cache/ckptd-tests/mpi/impi-rt/lib";
/// Intel's benchmarks of MPI, which come with it: all of MPI-1, messages of up to 256 KiB.
const IMB: &str = "/var/cache/ckptd-tests/mpi/impi-rt/bin/IMB-MPI1";
/// They end by themselves after some 20 s.
const IMB_OPTIONS: &str = "-npmin 3 -time 0.03 -msglog 0:18";
