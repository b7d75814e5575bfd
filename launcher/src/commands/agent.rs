//! `ckptd agent`.

use super::Context;
use crate::cli::AgentArguments;
use crate::failure::Failure;
use ckpt_agent::daemon::{DaemonOptions, run};

pub fn perform(context: &Context, arguments: AgentArguments) -> Result<(), Failure> {
    super::tell_what_happens();
    let options = DaemonOptions {
        join: arguments.join,
        name: arguments.name,
        slots: arguments.slots,
        speed: arguments.speed,
        allow_root: arguments.allow_root,
        dir: context.state.path().to_owned(),
        listen: arguments.listen,
        leave_below: arguments.leave_below,
        discover: arguments.discover,
    };
    run(&options).map_err(|error| Failure::of("run the agent", error))
}
