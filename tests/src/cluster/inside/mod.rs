//! What runs inside a test cluster's namespaces: the roles of the `clusternode` executable.
//!
//! Every role is a fresh execution, because a process that has threads can neither join nor make user
//! and mount namespaces (setns(2), unshare(2)). Lifetimes hang on pipes: the hub and each node's
//! first process end when the standard input that the harness holds is closed, however the harness
//! came to its end, and with a node's first process ends everything in its PID namespace.

pub mod capture;
pub mod enter;
pub mod hub;
pub mod init;
pub mod join;
pub mod mounts;
pub mod node;

/// Why a role could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum InsideError {
    /// A call of the kernel was refused.
    #[error("failed to {what}: {cause}")]
    Call {
        /// What was tried.
        what: String,
        /// What the kernel said.
        cause: std::io::Error,
    },
    /// A program was needed and failed.
    #[error("failed to run {command}: {output}")]
    Program {
        /// Its words.
        command: String,
        /// What it said.
        output: String,
    },
}

/// Names what was tried.
pub(super) fn call<T, E: Into<std::io::Error>>(
    what: impl Into<String>,
    result: Result<T, E>,
) -> Result<T, InsideError> {
    result.map_err(|cause| InsideError::Call { what: what.into(), cause: cause.into() })
}

/// Runs a program to its end, which must be a success.
///
/// # Errors
/// When it cannot be started or fails; with what it said.
pub fn program(words: &[&str]) -> Result<(), InsideError> {
    let failed = |output: String| InsideError::Program { command: words.join(" "), output };
    let [name, arguments @ ..] = words else { return Err(failed("no program".into())) };
    let result = std::process::Command::new(name)
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|cause| failed(format!("{cause}; tests/install installs it")))?;
    if result.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&result.stderr).trim().to_owned()))
}

/// Tells the harness, which reads the standard output line by line.
pub(super) fn tell(line: &str) -> Result<(), InsideError> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    call("tell the harness", writeln!(out, "{line}").and_then(|()| out.flush()))
}
