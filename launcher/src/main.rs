//! The executable.

use std::process::ExitCode;

fn main() -> ExitCode {
    ckptd::main_with(ckptd::agent::start_embedded)
}
