//! `ckptd rsh`.

use super::Context;
use crate::failure::Failure;
use std::ffi::OsString;

pub fn perform(context: &Context, node: &str, command: &[OsString]) -> Result<u8, Failure> {
    ckpt_agent::driver::rsh(context.state.path(), node, command)
        .map_err(|error| Failure::of(format!("run a command on {node}"), error))
}
