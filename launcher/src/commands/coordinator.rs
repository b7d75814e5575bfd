//! `ckptd coordinator`.

use super::Context;
use super::http::Page;
use crate::cli::CoordinatorArguments;
use crate::cluster::coordinator_folder;
use crate::failure::Failure;
use crate::spans::Process;
use coordinator::server::{Exchanged, Options, ServeError, exchange_authority, serve};
use std::path::{Path, PathBuf};
use tokio::sync::watch;

pub fn perform(context: &Context, arguments: CoordinatorArguments) -> Result<(), Failure> {
    let _spans = super::tell_what_happens(Some(Process::Coordinator));
    if arguments.rotate {
        return rotate(&folder(context, arguments.state)?);
    }
    let dmtcp = match arguments.dmtcp_port {
        Some(port) => Some(super::dmtcp::port(context, &arguments, port)?),
        None => None,
    };
    let certificate = arguments.http_certificate.clone().zip(arguments.http_key.clone());
    let mut page = arguments.http.map(|address| Page::at(address, certificate)).transpose()?;
    let default = arguments.state.is_none();
    let state = folder(context, arguments.state)?;
    let recover = arguments.recover.then(|| context.state.path().to_owned());
    let (tells, hears) = watch::channel(None);
    let options = Options {
        listen: arguments.listen,
        state,
        grace: arguments.grace,
        recover,
        discover: arguments.discover,
        encryption: arguments.encryption.into(),
        dmtcp,
        page: hears,
    };
    let made = match (&context.asked_dir, default) {
        (_, false) => format!("ckptd token --state {}", options.state.display()),
        (Some(dir), true) => format!("ckptd token --dir {}", dir.display()),
        (None, true) => "ckptd token".to_owned(),
    };
    serve(&options, |ready| {
        // Whoever started it may not listen.
        if let Some(text) = &ready.taken_over {
            let _ = super::print(&format!("ckptd: {text}\n"));
        }
        if let Some(address) = ready.dmtcp {
            let _ = super::print(&format!("ckptd: DMTCP's programs reach it at {address}\n"));
        }
        let _ = super::print(&format!(
            "ckptd: coordinator listens at {} ({}); for a join token: {made}\n",
            ready.address,
            ready.addresses.join(", "),
        ));
        if ready.address.ip().is_unspecified() {
            let _ = super::print(
                "ckptd: these are all addresses of this machine; for one of them: --listen ADDR\n",
            );
        }
        if let Some(page) = page.take() {
            page.serve(&options.state, tells);
        }
    })
    .map_err(|error| match error {
        ServeError::Usage(text) => Failure::Usage(format!("wrong usage: {text}")),
        error => Failure::of("run the coordinator", error),
    })
}

/// The coordinator's folder, the one that was given or the usual one.
fn folder(context: &Context, given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let state = given.unwrap_or_else(|| coordinator_folder(context.state.path()));
    std::path::absolute(&state)
        .map_err(|error| Failure::of(format!("find {}", state.display()), error))
}

/// Gives the cluster a new authority.
fn rotate(state: &Path) -> Result<(), Failure> {
    let Exchanged { authority, members } = exchange_authority(state)
        .map_err(|error| Failure::of("give the cluster a new authority", error))?;
    let members = match members.len() {
        1 => "its 1 member gets a new certificate when it connects".to_owned(),
        count => format!("its {count} members get new certificates when they connect"),
    };
    super::print(&format!(
        "ckptd: the cluster has a new authority, {:.16}; {members}; join tokens of before are worth nothing\n\
         ckptd: start the coordinator again\n",
        authority.to_string(),
    ))
}
