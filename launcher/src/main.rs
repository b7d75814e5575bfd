//! The executable.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Under this name it is the first process of a job's namespaces, which must be single-threaded.
    if std::env::args_os().next().is_some_and(|name| name == ckpt_engine::INIT_NAME) {
        return ExitCode::from(ckpt_engine::run_init());
    }
    ckptd::main_with(ckptd::agent::start_embedded)
}
