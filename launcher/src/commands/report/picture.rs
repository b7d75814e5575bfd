//! Drawings, as SVG within the page: no label lies on what it names, so that nothing crosses.

use super::phases::{self, PHASES, Phase};
use crate::cluster::listing::{list, number, word};
use serde_json::Value;
use std::fmt::Write;

/// The width of a drawing, in its own units.
pub const WIDTH: f64 = 900.0;
/// Where lanes begin: left of it are their names.
pub const LEFT: f64 = 130.0;
/// How high a lane is.
pub const LANE: f64 = 26.0;
const BAR: f64 = 16.0;

/// As many rollbacks as a coordinator remembers of a job.
const MOST_ROLLBACKS: usize = 100;

/// Text that is safe within an element or an attribute.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c if c.is_control() => safe.push('?'),
            c => safe.push(c),
        }
    }
    safe
}

/// A time as people say it: 350 ms, 2.4 s, 3 min 20 s, 2 h 5 min.
pub fn span(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{:.1} s", ms as f64 / 1000.0),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1000),
        _ => format!("{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

/// From when to when.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// The first moment, in milliseconds.
    pub from: u64,
    /// How long it is, in milliseconds.
    pub length: u64,
}

impl Scale {
    /// Where a moment is.
    pub fn x(self, at: u64) -> f64 {
        let part = at.saturating_sub(self.from) as f64 / self.length.max(1) as f64;
        LEFT + part.clamp(0.0, 1.0) * (WIDTH - LEFT - 10.0)
    }

    /// Marks below a drawing: at most six, at round times.
    pub fn marks(self, out: &mut String, top: f64) {
        let steps = [
            100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000,
            600_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000, 14_400_000, 43_200_000,
            86_400_000,
        ];
        let step = steps.into_iter().find(|step| self.length / step <= 6);
        let step = step.unwrap_or((self.length / 6).max(1));
        for at in (0..=self.length / step).map(|mark| mark * step) {
            let x = self.x(self.from + at);
            let label = if at == 0 { "0".to_owned() } else { span(at) };
            let _ = write!(
                out,
                r#"<line class="grid" x1="{x:.1}" y1="0" x2="{x:.1}" y2="{top:.1}"/><text class="mark" x="{x:.1}" y="{:.1}">{label}</text>"#,
                top + 16.0
            );
        }
    }
}

/// A drawing of its parts.
pub fn drawing(height: f64, about: &str, inner: &str) -> String {
    format!(
        r#"<svg role="img" aria-label="{}" viewBox="0 0 {WIDTH} {height:.0}" width="{WIDTH}">{inner}</svg>"#,
        escaped(about)
    )
}

/// The name of a lane.
pub fn lane_name(out: &mut String, lane: usize, name: &str) {
    let y = lane as f64 * LANE + BAR;
    let short: String = name.chars().take(16).collect();
    let _ = write!(
        out,
        r#"<text class="lane" x="{:.0}" y="{y:.1}"><title>{}</title>{}</text>"#,
        LEFT - 10.0,
        escaped(name),
        escaped(&short)
    );
}

/// The whole time of a job: when it ran and stood, its checkpoints, what was lost again at each rollback. `end`: when it
/// ended, or now.
pub fn whole(job: &Value, end: u64) -> String {
    let Some(from) = number(job, "created_at_ms").or_else(|| number(job, "started_at_ms")) else {
        return String::new();
    };
    let scale = Scale { from, length: end.saturating_sub(from) };
    let mut out = String::new();
    let height = 3.0 * LANE;
    scale.marks(&mut out, height);
    for (lane, name) in ["runs", "checkpoints", "recoveries"].into_iter().enumerate() {
        lane_name(&mut out, lane, name);
    }
    let rollbacks = list(job, "rollbacks");
    let mut since = from;
    // What became of it before its user restarted it is told nowhere but in its log. With the end of each rollback it was
    // started as well, and of one behind such a restart it is known when it began.
    let by_rollbacks = u64::try_from(rollbacks.len()).unwrap_or(u64::MAX).saturating_add(1);
    let is_restarted = number(job, "starts").is_some_and(|starts| starts > by_rollbacks);
    let of_rollback = |at: u64| rollbacks.iter().find(|one| phases::ended(one) == Some(at));
    let restarted = number(job, "started_at_ms").filter(|_| is_restarted);
    let restarted = restarted.and_then(|at| match of_rollback(at) {
        // Of more than these not all are listed, and nothing is known of a restart.
        Some(_) if rollbacks.len() >= MOST_ROLLBACKS => None,
        Some(rollback) => phases::began(rollback),
        None => Some(at),
    });
    if let Some(started) = restarted.filter(|started| *started > from) {
        bar(&mut out, (scale.x(from), scale.x(started)), 0, "unknown", "before its last restart");
        since = started;
    }
    for rollback in rollbacks {
        let began = phases::began(rollback).unwrap_or(since).max(since);
        bar(&mut out, (scale.x(since), scale.x(began)), 0, "runs", "runs");
        let ended = phases::ended(rollback).unwrap_or(end);
        let title = format!("{}: {}", in_short(rollback), span(ended.saturating_sub(began)));
        bar(&mut out, (scale.x(began), scale.x(ended)), 2, "stands", &title);
        since = ended.max(since);
    }
    bar(&mut out, (scale.x(since), scale.x(end)), 0, "runs", "runs");
    for checkpoint in list(job, "checkpoints") {
        let Some(at) = number(checkpoint, "committed_at_ms") else { continue };
        let title = format!("checkpoint {}", word(checkpoint, "checkpoint"));
        let y = LANE + BAR / 2.0;
        let _ = write!(
            out,
            r#"<circle class="checkpoint" cx="{:.1}" cy="{y:.1}" r="5"><title>{}</title></circle>"#,
            scale.x(at),
            escaped(&title)
        );
    }
    drawing(height + 24.0, "the job's time", &out)
}

/// "b lost", "b leaves"
fn in_short(rollback: &Value) -> String {
    let reason = word(rollback, "reason");
    let Some(Value::String(node)) = rollback.get("node") else { return reason };
    match reason.as_str() {
        "lost" => format!("{node} lost"),
        "leave" => format!("{node} leaves"),
        "drain" => format!("{node} drained"),
        "join" => format!("{node} joins"),
        _ => format!("{reason}, {node}"),
    }
}

fn bar(out: &mut String, (from, to): (f64, f64), lane: usize, class: &str, title: &str) {
    let y = lane as f64 * LANE + 2.0;
    let _ = write!(
        out,
        r#"<rect class="{class}" x="{from:.1}" y="{y:.1}" width="{:.1}" height="{BAR}"><title>{}</title></rect>"#,
        (to - from).max(1.5),
        escaped(title)
    );
}

/// A recovery by its phases: one lane each, so that short ones can be seen, too.
pub fn recovery(rollback: &Value) -> String {
    let spans = phases::of(rollback);
    let Some((.., end)) = spans.last() else { return String::new() };
    let scale = Scale { from: 0, length: *end };
    let mut out = String::new();
    let height = spans.len() as f64 * LANE;
    scale.marks(&mut out, height);
    for (lane, (phase, from, to)) in spans.iter().enumerate() {
        lane_name(&mut out, lane, phase.name);
        let title = format!("{}: {}", phase.about, span(to - from));
        let class = format!("phase{}", place(*phase));
        bar(&mut out, (scale.x(*from), scale.x(*to)), lane, &class, &title);
    }
    drawing(height + 24.0, "phases of a recovery", &out)
}

fn place(phase: Phase) -> usize {
    PHASES.iter().position(|one| *one == phase).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_job_becomes_markup() {
        assert_eq!(escaped("<b a='\"'>&\x1b"), "&lt;b a=&#39;&quot;&#39;&gt;&amp;?");
    }

    #[test]
    fn times_are_said_as_people_do() {
        let said: Vec<String> = [7, 2440, 200_000, 7_500_000].into_iter().map(span).collect();
        assert_eq!(said, ["7 ms", "2.4 s", "3 min 20 s", "2 h 5 min"]);
    }
}
