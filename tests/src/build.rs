//! Compiles the C programs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::programs::Program;

/// Flags of every conformance program.
const FLAGS: &[&str] = &["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"];

/// Why a program could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The compiler could not be started.
    #[error("failed to run {compiler}: {cause}; tests/install installs it")]
    NoCompiler {
        /// The compiler's name.
        compiler: String,
        /// What the kernel said.
        cause: std::io::Error,
    },
    /// The compiler refused the source.
    #[error("failed to compile {source_file}:\n{output}")]
    Refused {
        /// The source.
        source_file: PathBuf,
        /// What the compiler said.
        output: String,
    },
}

/// Compiles a conformance program into `folder`; nothing is done when it is newer than its sources.
///
/// # Errors
/// When the compiler is missing or refuses the source.
pub fn conformance(source: &Path, shared: &Path, folder: &Path) -> Result<PathBuf, BuildError> {
    let program = folder.join(source.file_stem().unwrap_or_default());
    let helper = shared.join("conform.c");
    let header = shared.join("conform.h");
    if newer(&program, &[source, &helper, &header]) {
        return Ok(program);
    }
    let include = format!("-I{}", shared.display());
    let arguments = [Path::new(&include), source, &helper];
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut words = compiler.split_whitespace();
    let compiler = words.next().unwrap_or("cc");
    let flags: Vec<&str> = words.chain(FLAGS.iter().copied()).collect();
    compile(compiler, &flags, &arguments, &program)?;
    Ok(program)
}

/// Compiles conformance programs, as many at a time as this machine has processors. `folder_of`: where each goes. The
/// executables, in the programs' order.
///
/// # Errors
/// When the compiler is missing or refuses a source.
pub fn all_of_conformance(
    programs: &[Program],
    shared: &Path,
    folder_of: impl Fn(&Program) -> PathBuf + Sync,
) -> Result<Vec<PathBuf>, BuildError> {
    let next = AtomicUsize::new(0);
    let compile_some = || {
        let mut made = Vec::new();
        while let Some((at, program)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            programs.get(at).map(|program| (at, program))
        } {
            made.push((at, conformance(&program.source, shared, &folder_of(program))?));
        }
        Ok(made)
    };
    let mut made = Vec::new();
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(compile_some)).collect();
        for thread in threads {
            match thread.join() {
                Ok(some) => made.extend(some?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    })?;
    made.sort();
    Ok(made.into_iter().map(|(_, executable)| executable).collect())
}

/// Compiles sources with any compiler (`mpicc.openmpi`, `musl-gcc`, ...).
///
/// # Errors
/// When the compiler is missing or refuses the source.
pub fn compile(
    compiler: &str,
    flags: &[&str],
    arguments: &[&Path],
    output: &Path,
) -> Result<(), BuildError> {
    let mut command = Command::new(compiler);
    command.args(flags).args(arguments).arg("-o").arg(output);
    let result = command
        .output()
        .map_err(|cause| BuildError::NoCompiler { compiler: compiler.into(), cause })?;
    if result.status.success() {
        return Ok(());
    }
    Err(BuildError::Refused {
        source_file: arguments.iter().find(|a| a.exists()).unwrap_or(&output).to_path_buf(),
        output: String::from_utf8_lossy(&result.stderr).into_owned(),
    })
}

fn newer(product: &Path, sources: &[&Path]) -> bool {
    let modified = |path: &Path| std::fs::metadata(path).and_then(|m| m.modified()).ok();
    let Some(made) = modified(product) else { return false };
    sources.iter().all(|source| modified(source).is_some_and(|changed| changed < made))
}
