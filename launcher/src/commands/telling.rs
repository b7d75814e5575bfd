//! What of all that happens is told, and where: lines on standard error, a timeline in a file.

use super::one_line::OneLine;
use crate::cli::JobOptions;
use crate::failure::Failure;
use crate::journal::Journal;
use crate::spans::{Export, Process};
use crate::timeline::Timeline;
use tracing::Level;
use tracing::level_filters::STATIC_MAX_LEVEL;
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

/// The variable that says which lines are told: levels, of everything or of what begins with a name
/// (`info,coordinator=debug`).
const VARIABLE: &str = "CKPTD_LOG";
/// The variable of the same meaning that programs in Rust have in common. A job may have it for its own sake, so it
/// counts for the cluster's daemons only.
const COMMON_VARIABLE: &str = "RUST_LOG";
/// What a timeline shows: all of ckptd, nothing of its libraries.
const OF_CKPTD: [&str; 9] = [
    "ckptd",
    "ckpt_agent",
    "ckpt_dmtcp",
    "ckpt_engine",
    "ckpt_node",
    "ckpt_store",
    "coordinator",
    "command_tree",
    "protocol",
];

/// Which spans are exported: objects and threads would be thousands.
const SPANS: LevelFilter = LevelFilter::DEBUG;

/// Why a cluster's jobs have no timeline.
pub const ON_A_CLUSTER: &str = "--trace is for jobs of one machine: on a cluster the logs of agents tell the same, \
                                where they are started with CKPTD_LOG=debug";
/// Why DMTCP's jobs have none.
pub const WITH_DMTCP: &str = "--trace is for the native engine: leave it or --engine dmtcp out";

/// Lines about what happens, on standard error; where that is the journal of systemd, with fields. And spans, to whoever
/// collects them, until what this returns is dropped. `process`: None if it has no spans.
pub fn tell_what_happens(process: Option<Process>) -> Option<Export> {
    let value = |name| std::env::var(name).ok().filter(|words| !words.is_empty());
    let asked = match (value(VARIABLE), value(COMMON_VARIABLE)) {
        (Some(own), _) => levels(&own).map_err(|reason| format!("{VARIABLE}={own}: {reason}")),
        // It may be about other programs.
        (None, Some(common)) => {
            common.parse().map_err(|reason| format!("{COMMON_VARIABLE}={common}: {reason}"))
        }
        (None, None) => Ok(Targets::new().with_default(LevelFilter::INFO)),
    };
    let (filter, wrong) = match asked {
        Ok(filter) => (filter, None),
        Err(reason) => (Targets::new().with_default(LevelFilter::INFO), Some(reason)),
    };
    // Stages have times, and belong to others: that is for lines.
    let is_detailed = OF_CKPTD.iter().any(|part| filter.would_enable(part, &Level::DEBUG));
    let journal = Some(()).filter(|()| !is_detailed).and_then(|()| Journal::of_standard_error());
    let lines = journal.is_none().then(|| {
        tracing_subscriber::fmt::layer()
            .with_writer(move || OneLine::to(std::io::stderr()))
            .with_target(false)
            // Without the crate's colours: it has been built without them, and ends a process that wants them.
            .with_ansi(false)
            // A stage that never ends shows by its beginning.
            .with_span_events(FmtSpan::NEW | FmtSpan::CLOSE)
    });
    let begun = process.map(|process| Export::begin(process, |text| tracing::warn!("{text}")));
    let (export, unfit) = match begun {
        None => (None, None),
        Some(Ok(export)) => (export, None),
        Some(Err(reason)) => (None, Some(reason)),
    };
    let spans = export.as_ref().map(layer_of);
    let journal = journal.map(|journal| journal.with_filter(filter.clone()));
    let lines = lines.map(|lines| lines.with_filter(filter));
    // Set already: then it tells.
    let _ = tracing_subscriber::registry().with(spans).with(journal).with(lines).try_init();
    if let Some(reason) = wrong {
        tracing::warn!("{reason}; the level is info");
    }
    if let Some(reason) = unfit {
        tracing::warn!("{reason}");
    }
    export
}

/// What has a process's spans exported.
fn layer_of(export: &Export) -> impl Layer<Registry> + use<> {
    Layer::<Registry>::with_filter(export.layer(), of_ckptd(SPANS))
}

/// All of ckptd up to that level, nothing of its libraries.
fn of_ckptd(level: LevelFilter) -> Targets {
    OF_CKPTD.iter().map(|name| (*name, level)).collect()
}

/// Why words do not say what is told.
#[derive(Debug, thiserror::Error)]
enum LevelError {
    #[error("'{0}' is neither a level nor a part of ckptd")]
    Unknown(String),
    #[error(transparent)]
    Malformed(#[from] ParseError),
}

/// What is told by the words of [`VARIABLE`]. A word that is not known would otherwise stand for a part of that name, and
/// silence all others.
fn levels(words: &str) -> Result<Targets, LevelError> {
    let words: Vec<&str> = words.split(',').map(str::trim).collect();
    for word in &words {
        let (part, level) = word.split_once('=').map_or((*word, None), |(a, b)| (a, Some(b)));
        let is_part = OF_CKPTD.iter().any(|own| part.split("::").next() == Some(*own));
        let is_level = level.is_none() && part.parse::<LevelFilter>().is_ok();
        if !is_part && !is_level {
            return Err(LevelError::Unknown(part.to_owned()));
        }
    }
    Ok(words.join(",").parse()?)
}

/// What shows the inside of a job that runs here, until it is dropped.
#[derive(Debug)]
pub struct Trace {
    _timeline: Option<Timeline>,
    _export: Option<Export>,
}

/// Begins the timeline that was asked for, which is complete once what this returns is dropped, and the export of spans.
///
/// # Errors
/// Where the file can't be made.
pub fn trace(what: &str, options: &JobOptions) -> Result<Trace, Failure> {
    let timeline = match &options.trace {
        None => None,
        Some(_) if STATIC_MAX_LEVEL < LevelFilter::TRACE => {
            return Err(Failure::of(what, "this ckptd was built without spans: leave --trace out"));
        }
        Some(path) => Some(Timeline::create(path).map_err(|error| {
            Failure::of(what, format!("write the timeline {}: {error}", path.display()))
        })?),
    };
    let tell = |text: &str| eprintln!("ckptd: warning: {text}");
    let export = Export::begin(Process::Job, tell).unwrap_or_else(|reason| {
        tell(&reason);
        None
    });
    if timeline.is_some() || export.is_some() {
        let lines = timeline.as_ref();
        let lines = lines.map(|lines| lines.layer().with_filter(of_ckptd(LevelFilter::TRACE)));
        let spans = export.as_ref().map(layer_of);
        let _ = tracing_subscriber::registry().with(spans).with(lines).try_init();
    }
    Ok(Trace { _timeline: timeline, _export: export })
}

/// Refuses a timeline of a job that other programs than this one keep.
///
/// # Errors
/// Where one was asked for.
pub fn refuse_trace(options: &JobOptions, why: &str) -> Result<(), Failure> {
    match options.trace {
        None => Ok(()),
        Some(_) => Err(Failure::Usage(format!("wrong usage: {why}"))),
    }
}

/// Refuses commands that nobody would call.
///
/// # Errors
/// Where one is given.
pub fn refuse_calls(options: &JobOptions) -> Result<(), Failure> {
    match options.on.is_empty() {
        true => Ok(()),
        false => Err(Failure::Usage(
            "wrong usage: --on is for the native engine: leave it or --engine dmtcp out".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_of_everything_or_of_parts() {
        let told = |words: &str, part: &str, level: Level| {
            levels(words).unwrap().would_enable(part, &level)
        };
        assert!(told("debug", "ckpt_engine::freeze", Level::DEBUG));
        assert!(!told("debug", "ckpt_engine::freeze", Level::TRACE));
        let mixed = "info, ckpt_engine=trace";
        assert!(told(mixed, "ckpt_engine", Level::TRACE));
        assert!(
            told(mixed, "coordinator", Level::INFO) && !told(mixed, "coordinator", Level::DEBUG)
        );
        assert!(!told("off", "coordinator", Level::ERROR));
    }

    #[test]
    fn a_word_that_is_not_known_is_named() {
        for words in ["verbose", "info,agent=debug", "coordinator=loud", "tokio"] {
            assert!(levels(words).is_err(), "{words}");
        }
        assert!(matches!(levels("verbose"), Err(LevelError::Unknown(word)) if word == "verbose"));
    }
}
