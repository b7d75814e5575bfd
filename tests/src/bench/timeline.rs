//! The phases of a node's loss, as a picture.

use std::fmt::Write as _;

use serde::Serialize;

use super::svg::on_white;
use crate::cluster::status::Rollback;

/// One phase: until when it lasted, ms since the node was declared gone.
#[derive(Debug, Clone, Serialize)]
pub struct Phase {
    /// What was done.
    pub name: &'static str,
    /// Its beginning.
    pub from: f64,
    /// Its end.
    pub to: f64,
}

/// One loss.
#[derive(Debug, Clone, Serialize)]
pub struct Loss {
    /// From the node's last word to its being declared gone, ms.
    pub detected: f64,
    /// What followed.
    pub phases: Vec<Phase>,
    /// From the declared departure to progress of all ranks, ms.
    pub progress: f64,
}

const COLOURS: [&str; 5] = ["#8d99ae", "#457b9d", "#3a8f5c", "#e9c46a", "#c2703b"];

impl Loss {
    /// Of a rollback, and the moment of the first progress, ms since 1970 UTC.
    #[must_use]
    pub fn new(rollback: &Rollback, progress_ms: u64) -> Loss {
        let since = |at: u64| at as f64 - rollback.declared_ms as f64;
        let steps = [
            ("planned", rollback.planned_ms),
            ("images in place", rollback.images_ms),
            ("restored and rewired", rollback.restored_ms.max(rollback.rewired_ms)),
            ("running", rollback.running_ms),
            ("first progress", Some(progress_ms)),
        ];
        let mut from = 0.0;
        let mut phases = Vec::new();
        for (name, at) in steps {
            let to = at.map_or(from, since);
            phases.push(Phase { name, from, to });
            from = to;
        }
        Loss { detected: -since(rollback.lost_at_ms), phases, progress: since(progress_ms) }
    }
}

/// A bar for each loss, its phases side by side.
#[must_use]
pub fn draw(title: &str, losses: &[Loss]) -> String {
    const WIDTH: f64 = 860.0;
    const LEFT: f64 = 90.0;
    const ROW: f64 = 40.0;
    const TOP: f64 = 84.0;
    let longest = losses.iter().map(|loss| loss.progress).fold(1.0, f64::max);
    let scale = (WIDTH - LEFT - 110.0) / longest;
    let height = TOP + ROW * losses.len() as f64 + 30.0;
    let mut svg = on_white(WIDTH, height, title, "milliseconds since the node was declared gone");
    // Writing to a String never fails.
    let names = losses.first().map(|loss| loss.phases.as_slice()).unwrap_or_default();
    for (index, phase) in names.iter().enumerate() {
        let x = 16.0 + 160.0 * index as f64;
        let colour = COLOURS[index % COLOURS.len()];
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"54\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"65\">{}</text>",
            x + 18.0,
            phase.name
        );
    }
    for (row, loss) in losses.iter().enumerate() {
        let y = TOP + ROW * row as f64;
        let _ = writeln!(svg, "<text x=\"16\" y=\"{}\">loss {}</text>", y + 18.0, row + 1);
        for (index, phase) in loss.phases.iter().enumerate() {
            let _ = writeln!(
                svg,
                "<rect x=\"{:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"26\" fill=\"{}\"/>",
                LEFT + phase.from.max(0.0) * scale,
                ((phase.to - phase.from) * scale).max(0.0),
                COLOURS[index % COLOURS.len()]
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\">{:.0} ms</text>",
            LEFT + loss.progress * scale + 8.0,
            y + 18.0,
            loss.progress
        );
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_follow_each_other() {
        let rollback = Rollback {
            lost_at_ms: 1000,
            declared_ms: 4000,
            planned_ms: Some(4010),
            images_ms: Some(4100),
            rewired_ms: Some(4300),
            restored_ms: Some(4300),
            running_ms: Some(4320),
            reason: "lost".into(),
            expected: None,
        };
        let loss = Loss::new(&rollback, 4500);
        assert_eq!((loss.detected, loss.progress), (3000.0, 500.0));
        assert!(loss.phases.windows(2).all(|pair| pair[0].to == pair[1].from));
        let svg = draw("t", &[loss]);
        assert_eq!(svg.matches("height=\"26\"").count(), 5);
        assert!(svg.contains("500 ms"));
    }
}
