//! A bar chart of all scores as SVG.

use std::fmt::Write as _;

use super::figure::Figure;
use super::svg::{escape, on_white};

const WIDTH: f64 = 860.0;
const LABELS: f64 = 330.0;
const ROW: f64 = 34.0;
const TOP: f64 = 56.0;
/// Distances beyond this many goals are cut off.
const LARGEST: f64 = 2.5;

/// Bars of how far each figure is from its goal; the line is the goal.
pub fn draw(title: &str, figures: &[Figure]) -> String {
    let height = TOP + ROW * figures.len() as f64 + 20.0;
    let scale = (WIDTH - LABELS - 120.0) / LARGEST;
    let mut svg = on_white(WIDTH, height, title, "share of the goal; left of the line is reached");
    // Writing to a String never fails.
    for (index, figure) in figures.iter().enumerate() {
        let y = TOP + ROW * index as f64;
        let share = figure.distance();
        let length = if share.is_finite() { share.clamp(0.0, LARGEST) * scale } else { 0.0 };
        let colour = if figure.reached { "#3a8f5c" } else { "#c2503b" };
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n\
             <rect x=\"{LABELS}\" y=\"{y}\" width=\"{length:.1}\" height=\"{}\" fill=\"{colour}\"/>\n\
             <text x=\"{:.1}\" y=\"{}\">{:.2} (goal {})</text>\n",
            LABELS - 10.0,
            y + 16.0,
            escape(&figure.title),
            ROW - 12.0,
            LABELS + length + 8.0,
            y + 16.0,
            figure.score,
            figure.goal,
        );
    }
    let line = LABELS + scale;
    let _ = writeln!(
        svg,
        "<line x1=\"{line}\" y1=\"{}\" x2=\"{line}\" y2=\"{}\" stroke=\"black\"/>\n</svg>",
        TOP - 6.0,
        height - 14.0
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::super::figure::{Sense, Series};
    use super::*;

    #[test]
    fn a_bar_for_each_figure() {
        let series = Series::new("x", "ms", vec![1.0]);
        let figures = [1.0, f64::NAN]
            .map(|s| Figure::new("k", "a < b", series.clone(), None, s, (Sense::AtMost, 2.0)));
        let svg = draw("T & t", &figures);
        assert_eq!(svg.matches("<rect x=").count(), 2);
        assert!(svg.contains("a &lt; b") && svg.contains("T &amp; t") && !svg.contains("NaN\" "));
    }
}
