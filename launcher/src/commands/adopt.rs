//! `ckptd adopt`.

use super::{Context, is_loud, telling};
use crate::cli::{AdoptArguments, EngineSetting};
use crate::failure::Failure;
use crate::interrupts::Held;
use crate::jobs::JobSettings;
use crate::session::{self, Begin, Session};
use protocol::launch::AdoptSpec;

pub fn perform(context: &Context, arguments: &AdoptArguments) -> Result<u8, Failure> {
    let what = format!("adopt process {}", arguments.pid);
    if arguments.options.engine == EngineSetting::Dmtcp {
        return Err(Failure::Usage(
            "wrong usage: DMTCP adopts nothing: leave --engine dmtcp out".into(),
        ));
    }
    if arguments.options.output.is_some() {
        return Err(Failure::Usage(
            "wrong usage: the output of a job that is adopted stays where it was: leave --output out".into(),
        ));
    }
    if context.cluster()?.is_some() {
        eprintln!(
            "ckptd: warning: an adopted job is of this machine alone, its images are not copied, and it is lost with \
             the machine"
        );
    }
    super::refuse_without_cluster(&arguments.options, false)?;
    let kept = arguments.files.kept().map_err(|cause| Failure::of(&what, cause))?;
    // Before anything is made: a slip of the pen should leave no job behind.
    let found =
        ckpt_engine::try_to_adopt(arguments.pid).map_err(|cause| Failure::of(&what, cause))?;
    let _trace = telling::trace(&what, &arguments.options)?;
    let settings = JobSettings::default().with(&arguments.options);
    let (job, _lock) = context.state.create(
        arguments.name.as_deref(),
        &found.command,
        &found.working_directory,
        settings,
    )?;
    let hooks = context.caller(&arguments.options, &found.working_directory, 0);
    context.call_about(&job, hooks.as_ref())?;
    let begin = Begin::Adopt(AdoptSpec { pid: arguments.pid, kept, external: settings.external });
    session::run(
        Session {
            job: &job,
            settings,
            begin,
            loud: is_loud(&arguments.options),
            resume: context.resume(arguments.options.comes_back),
            last: arguments.options.last_checkpoint(),
            commits: None,
            hooks,
            held: Held::default(),
            staying: None,
        },
        context.start_agent,
    )
}
