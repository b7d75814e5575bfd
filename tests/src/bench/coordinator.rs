//! What the coordinator's state machine takes in time and memory, by the number of agents.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::figure::{Figure, Sense, Series};
use super::svg::on_white;

/// Numbers of agents where none are given.
pub const USUAL: [usize; 5] = [10, 100, 1000, 5000, 10_000];

/// How much more an event may cost, or its part for each agent, with twice as many agents.
const GOAL: f64 = 1.2;
/// With fewer agents, times are too short to be compared.
const LEAST: usize = 1000;

/// A time of a scale, in microseconds: for one agent, or one event.
type Each = fn(&Scale) -> f64;

/// The times that are compared.
const EACH: [(&str, Each); 6] = [
    ("arrival of an agent, all at once", |scale| scale.join_ms * 1e3 / scale.agents as f64),
    ("arrival of an agent, one at a time", |scale| scale.newcomer_us),
    ("launch, each instance", |scale| scale.launch_ms * 1e3 / scale.agents as f64),
    ("checkpoint, each agent", |scale| scale.checkpoint_ms * 1e3 / scale.agents as f64),
    ("heartbeat", |scale| scale.heartbeat_us),
    ("a loss, each agent", |scale| scale.loss_ms * 1e3 / scale.agents as f64),
];

/// Of two runs with the same way, the second with twice as many agents as the first: what an event costs in the second, and
/// whether that is more than in the first.
#[must_use]
pub fn growth(scales: &[Scale]) -> Vec<Figure> {
    let enough = scales.iter().filter(|scale| scale.agents >= LEAST);
    let pairs = enough.flat_map(|one| {
        let twice = |other: &&Scale| other.agents == 2 * one.agents && other.way == one.way;
        scales.iter().filter(twice).map(move |other| (one, other))
    });
    let figures = pairs.flat_map(|(one, twice)| {
        EACH.map(|(name, each)| {
            let title = format!("{name}, {} agents, {}", twice.agents, twice.way);
            let measured = Series::new(name, "us", vec![each(twice)]);
            let half = Series::new(format!("{} agents", one.agents), "us", vec![each(one)]);
            let growth = each(twice) / each(one);
            Figure::new("agents", title, measured, Some(half), growth, (Sense::AtMost, GOAL))
        })
    });
    figures.collect()
}

/// With that many agents, each of which has an instance of ten processes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Scale {
    /// Agents.
    pub agents: usize,
    /// How they are told the steps of a checkpoint: star, each by the coordinator itself, or tree.
    pub way: String,
    /// Processes of all.
    pub processes: usize,
    /// Time for all agents' arrival.
    pub join_ms: f64,
    /// Time for the launch of all instances.
    pub launch_ms: f64,
    /// Time for one checkpoint, from the wish to its commit.
    pub checkpoint_ms: f64,
    /// Messages of one checkpoint, from the coordinator.
    pub messages: u64,
    /// What one checkpoint writes to the log.
    pub log_bytes: u64,
    /// Time for a heartbeat.
    pub heartbeat_us: f64,
    /// Time for an agent that joins when all are there.
    pub newcomer_us: f64,
    /// Time for the loss of a machine, from its declaration until the job runs again.
    pub loss_ms: f64,
    /// The same of a hundred at once, where there are enough.
    pub losses_ms: Option<f64>,
    /// Resident memory at the end.
    pub memory_bytes: f64,
    /// The most that was resident.
    pub peak_bytes: f64,
}

/// Measures one after the other, each in a process of its own, and shows each row when it is there.
///
/// # Errors
/// Where one fails.
pub fn measure(
    program: &Path,
    agents: &[usize],
    show: impl Fn(&Scale),
) -> Result<Vec<Scale>, Box<dyn Error>> {
    let mut all = Vec::new();
    for agents in agents {
        for way in ["star", "tree"] {
            let output = Command::new(program).args([&agents.to_string(), way]).output()?;
            if !output.status.success() {
                let reason = String::from_utf8_lossy(&output.stderr).into_owned();
                return Err(format!("failed to measure {agents} agents: {reason}").into());
            }
            let scale = serde_json::from_slice(&output.stdout)?;
            show(&scale);
            all.push(scale);
        }
    }
    Ok(all)
}

/// Above the rows.
#[must_use]
pub fn heading() -> String {
    format!(
        "{:>7} {:>5} {:>12} {:>12} {:>10} {:>12} {:>12} {:>12} {:>10} {:>12} {:>12} {:>12} {:>12}\n",
        "agents",
        "way",
        "checkpoint",
        "per agent",
        "messages",
        "log entries",
        "heartbeat",
        "memory",
        "per agent",
        "launch",
        "newcomer",
        "one lost",
        "100 lost"
    )
}

impl Scale {
    /// A row of the table.
    #[must_use]
    pub fn text(&self) -> String {
        let agents = self.agents as f64;
        format!(
            "{:>7} {:>5} {:>9.2} ms {:>9.2} us {:>10} {:>9.1} KB {:>9.2} us {:>9.1} MB {:>7.1} KB {:>9.1} ms \
             {:>9.1} us {:>9.1} ms {:>12}\n",
            self.agents,
            self.way,
            self.checkpoint_ms,
            self.checkpoint_ms * 1e3 / agents,
            self.messages,
            self.log_bytes as f64 / 1e3,
            self.heartbeat_us,
            self.memory_bytes / 1e6,
            self.memory_bytes / 1e3 / agents,
            self.launch_ms,
            self.newcomer_us,
            self.loss_ms,
            self.losses_ms.map_or_else(|| "-".to_owned(), |losses| format!("{losses:.1} ms")),
        )
    }
}

/// Time and memory over the number of agents, each with a bar for star and tree, on logarithmic scales.
#[must_use]
pub fn draw(title: &str, scales: &[Scale]) -> String {
    const WIDTH: f64 = 860.0;
    const LEFT: f64 = 130.0;
    const ROW: f64 = 20.0;
    const TOP: f64 = 56.0;
    type Value = fn(&Scale) -> f64;
    let panels: [(&str, Value); 2] = [
        ("one checkpoint, ms", |scale| scale.checkpoint_ms),
        ("memory, MB", |scale| scale.memory_bytes / 1e6),
    ];
    let panel = ROW * (scales.len() as f64 + 2.0);
    let height = TOP + panel * panels.len() as f64;
    let mut svg = on_white(
        WIDTH,
        height,
        title,
        "10 processes for each agent; bars are logarithmic, from 0.01",
    );
    // Writing to a String never fails.
    for (index, (name, value)) in panels.into_iter().enumerate() {
        let top = TOP + panel * index as f64;
        let bar = |scale: &Scale| (value(scale).max(0.01) / 0.01).log10();
        let longest = scales.iter().map(bar).fold(1.0, f64::max);
        let _ = writeln!(svg, "<text x=\"16\" y=\"{}\">{name}</text>", top + 15.0);
        for (row, scale) in scales.iter().enumerate() {
            let y = top + ROW * (row as f64 + 1.0);
            let length = bar(scale) / longest * (WIDTH - LEFT - 90.0);
            let colour = if scale.way == "tree" { "#3a8f5c" } else { "#457b9d" };
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{} {}</text>\
                 <rect x=\"{LEFT}\" y=\"{y}\" width=\"{length:.1}\" height=\"15\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{}\">{:.2}</text>",
                LEFT - 8.0,
                y + 12.0,
                scale.agents,
                scale.way,
                LEFT + length + 8.0,
                y + 12.0,
                value(scale)
            );
        }
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_for_each_way_in_each_panel() {
        let scale = |way: &str, checkpoint_ms| Scale {
            agents: 100,
            way: way.into(),
            processes: 1000,
            join_ms: 1.0,
            launch_ms: 1.0,
            checkpoint_ms,
            messages: 10,
            log_bytes: 100,
            heartbeat_us: 0.5,
            newcomer_us: 20.0,
            loss_ms: checkpoint_ms,
            losses_ms: None,
            memory_bytes: 3e6,
            peak_bytes: 4e6,
        };
        let svg = draw("t", &[scale("star", 12.5), scale("tree", 0.0)]);
        assert_eq!(svg.matches("height=\"15\"").count(), 4);
        assert!(svg.contains("12.50") && svg.contains("3.00") && !svg.contains("inf"));
        assert!(scale("tree", 2.0).text().contains("20.00 us"));
        // Twice as many agents and twice the time: the same for each.
        let (one, mut twice) = (scale("tree", 2.0), scale("tree", 4.0));
        (twice.join_ms, twice.launch_ms) = (2.0, 5.0);
        assert!(growth(&[one.clone(), twice.clone()]).is_empty(), "of too few");
        let of = |agents: usize, one: Scale| Scale { agents, ..one };
        let figures = growth(&[of(1000, one), of(2000, twice)]);
        let missed: Vec<&str> =
            figures.iter().filter(|figure| !figure.reached).map(|f| &*f.title).collect();
        assert_eq!(missed, ["launch, each instance, 2000 agents, tree"]);
    }
}
