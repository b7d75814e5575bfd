//! Spans for a collector of OpenTelemetry, of an executable that is built with them (cargo feature `opentelemetry`); one that is
//! not says so.

use std::collections::BTreeSet;
use std::process::Command;

use ckptd_tests::collector::{Collector, Span};
use ckptd_tests::job::Failure;

use super::stage::{Finished, JOB, Running, Stage, expect, fail, own, until};

/// Where spans are to go.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// What no line but one about spans has in it.
const ABOUT_SPANS: &str = "spans ";

/// Lines of a command about spans.
fn lines(ended: &Finished) -> Vec<&str> {
    ended.err.lines().filter(|line| line.contains(ABOUT_SPANS)).collect()
}

/// Whether the executable has them. One that has them not says so, once.
fn has_spans(stage: &Stage, collector: &Collector) -> Result<bool, Failure> {
    // It ends at once: there is no cluster.
    let mut command = stage.command(&["coordinator", "--rotate"]);
    command.env(ENDPOINT, collector.endpoint());
    let ended = Running::start(command)?.finish()?.expect(125)?;
    match lines(&ended)[..] {
        [] => Ok(true),
        [line] if line.ends_with("this ckptd is built without the cargo feature opentelemetry") => {
            Ok(false)
        }
        _ => fail(format!("{ended:?}")),
    }
}

/// A job that is checkpointed once and goes on; its environment is that of `prepare`.
fn run(stage: &Stage, prepare: impl Fn(&mut Command)) -> Result<Finished, Failure> {
    let script = "echo ready; while [ ! -e go ]; do sleep 0.02; done";
    let mut command =
        stage.command(&["run", "--interval", "0", "--name", JOB, "--", "sh", "-c", script]);
    prepare(&mut command);
    let mut running = Running::start(command)?;
    stage.until_up(&mut running)?;
    running.wait_for("ready")?;
    stage.checkpoint()?;
    own(std::fs::write(stage.home.join("go"), ""))?;
    let ended = running.finish()?.expect(0)?;
    own(std::fs::remove_file(stage.home.join("go")))?;
    stage.output(&["rm", JOB], "")?.expect(0)?;
    Ok(ended)
}

/// The only one of that name and trace.
fn only<'a>(spans: &'a [Span], name: &str, trace: Option<&Span>) -> Result<&'a Span, Failure> {
    let of_trace = |span: &&Span| trace.is_none_or(|other| other.trace == span.trace);
    let found: Vec<_> = spans.iter().filter(of_trace).filter(|span| span.name == name).collect();
    match found[..] {
        [span] => Ok(span),
        _ => fail(format!("{name}: {found:#?}")),
    }
}

/// A checkpoint as the coordinator and as the engine see it, each with its steps.
fn check(spans: &[Span]) -> Result<(), Failure> {
    let steps = [
        ("coordinate checkpoint", &["freeze", "quiesce", "snapshot", "resume", "commit"][..]),
        ("checkpoint", &["freeze", "quiesce", "snapshot", "resume", "commit"]),
    ];
    for (name, within) in steps {
        let whole = only(spans, name, None)?;
        let right = whole.parent.is_empty()
            && whole.trace.len() == 16
            && whole.attributes.get("number").is_some_and(|number| number == "1")
            && whole.attributes.contains_key("job")
            && whole.service == "ckptd";
        expect(right, || format!("{whole:?}"))?;
        for step in within {
            let step = only(spans, step, Some(whole))?;
            let inside = whole.from <= step.from && step.from <= step.to && step.to <= whole.to;
            expect(step.parent == whole.id && inside, || format!("{step:?} in {whole:?}"))?;
        }
    }
    let ids: BTreeSet<_> = spans.iter().map(|span| &span.id).collect();
    expect(ids.len() == spans.len(), || "two spans have one number".to_owned())?;
    only(spans, "launch", None).map(drop)
}

/// The spans of a checkpoint arrive, with the user's headers; none without being asked for. A collector that is away costs the
/// job nothing, and a line.
pub fn spans(stage: &Stage) -> Result<(), Failure> {
    let collector = own(Collector::listen())?;
    let has_spans = has_spans(stage, &collector)?;
    let quiet = run(stage, |_| {})?;
    let nothing = || format!("{:?}", collector.requests());
    expect(lines(&quiet).is_empty() && collector.requests().is_empty(), nothing)?;
    let asked = |command: &mut Command| {
        command.env(ENDPOINT, collector.endpoint()).env("OTEL_EXPORTER_OTLP_HEADERS", "key=word");
    };
    let ended = run(stage, asked)?;
    expect(lines(&ended).is_empty(), || format!("{ended:?}"))?;
    if !has_spans {
        return expect(collector.requests().is_empty(), nothing);
    }
    let has = |name: &str| collector.spans().iter().any(|span| span.name == name);
    until("all spans", || ["launch", "checkpoint", "coordinate checkpoint"].into_iter().all(has))?;
    expect(collector.wrong().is_empty(), || format!("{:?}", collector.wrong()))?;
    let is_right = |request: &String| {
        let request = request.to_ascii_lowercase();
        request.starts_with("post /v1/traces http/1.1") && request.contains("key: word")
    };
    expect(collector.requests().iter().all(is_right), nothing)?;
    check(&collector.spans())?;
    let count = collector.spans().len();
    let none = run(stage, |command| {
        asked(command);
        command.env("OTEL_TRACES_SAMPLER", "always_off");
    })?;
    let right = lines(&none).is_empty() && collector.spans().len() == count;
    expect(right, || format!("{none:?}"))?;
    let away = run(stage, |command| {
        // Nobody listens on that port.
        command.env(ENDPOINT, "http://127.0.0.1:1").env("OTEL_BSP_SCHEDULE_DELAY", "10");
        command.env("OTEL_EXPORTER_OTLP_TIMEOUT", "100");
    })?;
    expect(lines(&away).len() == 1, || format!("{away:?}"))
}
