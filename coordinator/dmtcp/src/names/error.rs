//! Why what was asked for under one of DMTCP's names was not done.

use crate::server::ServeError;
use crate::wire::Kind;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use thiserror::Error;

/// What the rest of ckptd says of its own failure; the text fits after "failed to ...".
pub type NativeError = Box<dyn std::error::Error + Send + Sync>;

/// Why it was not done; the text fits after "failed to ...".
#[derive(Debug, Error)]
pub enum CallError {
    /// The kernel refused something about a file.
    #[error("{action} {}: {source}", path.display())]
    File {
        /// What was to be done.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The kernel refused something else, or the coordinator is gone.
    #[error("{what}: {source}")]
    System {
        /// What was to be done.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// A file has the first byte of an image of ckptd's, and is none.
    #[error("read {}: {source}", path.display())]
    NoImage {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// An image has a form that is not known here.
    #[error("read {}: it is of a newer ckptd", .0.display())]
    Newer(PathBuf),
    /// Images of two kinds are to be restarted together.
    #[error("restart images of ckptd's engine and of DMTCP's at once")]
    Mixed,
    /// DMTCP's own images need DMTCP's own program.
    #[error(
        "restart {}: it is an image of DMTCP's own, and DMTCP is not installed: there is no other dmtcp_restart in \
         PATH",
        .0.display()
    )]
    WithoutDmtcp(PathBuf),
    /// A coordinator in the background has ended already.
    #[error(
        "listen at port {port}: the coordinator ended with {status}; another one may have the port"
    )]
    Ended {
        /// Where it was to listen.
        port: u16,
        /// How it ended.
        status: ExitStatus,
    },
    /// A coordinator in the background is not there in time.
    #[error("go into the background: it does not begin")]
    NotBegun,
    /// The coordinator's port can't be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// No coordinator answers there.
    #[error("reach a coordinator at {host}:{port}: {source}")]
    Unreachable {
        /// Its host.
        host: String,
        /// Its port.
        port: u16,
        /// Why not.
        source: io::Error,
    },
    /// One is to be joined, and nobody says which.
    #[error("join a coordinator: give its port with --coord-port")]
    NoPort,
    /// One is to be started where this process can't.
    #[error("start a coordinator on {0}: it is another machine; start dmtcp_coordinator there")]
    OtherMachine(String),
    /// The one that was started has failed.
    #[error("start a coordinator: it ended at once")]
    EndedAtOnce,
    /// The one that was started can't be reached.
    #[error("start a coordinator: it does not say where it listens")]
    NoAddress,
    /// The coordinator does not take this process.
    #[error("join the coordinator: {}", rejection(.0))]
    Rejected(Kind),
    /// Another part of ckptd has failed.
    #[error(transparent)]
    Native(#[from] NativeError),
}

impl CallError {
    /// For `map_err`: what was to be done with which file.
    pub fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { action, path: path.into(), source }
    }

    /// For `map_err`: what was to be done.
    pub fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}

fn rejection(answer: &Kind) -> String {
    let why = match answer {
        Kind::RejectNotRunning => "its computation is not running",
        Kind::RejectWrongGroup => "it has another computation",
        Kind::RejectNotRestarting => {
            "its computation runs already; dmtcp_command --status tells of it, --kill ends it"
        }
        Kind::RejectPeerMismatch => "it expects another number of processes",
        Kind::Kill => "it is ending its computation",
        other => return format!("it answered {other:?}"),
    };
    why.to_owned()
}
