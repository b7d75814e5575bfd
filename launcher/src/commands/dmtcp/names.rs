//! DMTCP's command names, with jobs of ckptd's own engine.

use super::engine;
use crate::agent::StartAgent;
use crate::cli::{
    FileArguments, IntervalSetting, JobOptions, RestartArguments, RunArguments, StoreArguments,
};
use crate::client::launcher::ask_beginning;
use crate::commands::{Context, restart, run, tell_what_happens};
use crate::failure::Failure;
use crate::hooks::Pending;
use crate::jobs::StateDir;
use ckpt_dmtcp::names::{Ask, Begins, Native, NativeError, Pointer};
use std::ffi::OsString;
use std::path::PathBuf;

/// Does what the name says that ckptd was called by; `start_agent` again where it is none of DMTCP's.
pub fn called(start_agent: StartAgent) -> Result<u8, StartAgent> {
    ckpt_dmtcp::names::called(&Jobs { start_agent }).ok_or(start_agent)
}

struct Jobs {
    start_agent: StartAgent,
}

impl Jobs {
    fn context(&self, asked_dir: Option<PathBuf>) -> Result<Context, NativeError> {
        let state = StateDir::find(asked_dir.clone())?;
        let (start_agent, pending) = (self.start_agent, Pending::default());
        Ok(Context { state, asked_dir, start_agent, pending })
    }
}

/// Options of a job whose checkpoints the coordinator orders.
fn job_options() -> JobOptions {
    JobOptions {
        interval: Some(IntervalSetting::Seconds(0.0)),
        quiet: true,
        ..JobOptions::default()
    }
}

/// What follows "failed to ...".
fn reason(failure: Failure) -> NativeError {
    failure.to_string().trim_start_matches("failed to ").into()
}

impl Native for Jobs {
    fn ask(&self) -> Ask {
        |job, request| Ok(ask_beginning(job, request, None, || true)?)
    }

    fn run(&self, command: Vec<OsString>, begins: Begins) -> Result<u8, NativeError> {
        let arguments = RunArguments {
            group: None,
            name: None,
            detach: false,
            local: false,
            cpu_baseline: None,
            files: FileArguments::default(),
            store: StoreArguments::default(),
            options: job_options(),
            command,
        };
        let context = self.context(None)?;
        run::perform_alone(&context, arguments, |job| begins(job.path())).map_err(reason)
    }

    fn restart(&self, image: &Pointer, begins: Begins) -> Result<u8, NativeError> {
        let context = self.context(Some(image.dir.clone()))?;
        let job = context.state.find_job(&image.job)?;
        begins(job.path());
        let arguments = RestartArguments {
            job: job.id().to_owned(),
            checkpoint: Some(image.checkpoint),
            force: false,
            file_check: None,
            detach: false,
            options: job_options(),
        };
        restart::perform_alone(&context, &arguments).map_err(reason)
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        engine::program(name)
    }

    fn tell_what_happens(&self) {
        // It has no spans.
        let _none = tell_what_happens(None);
    }
}
