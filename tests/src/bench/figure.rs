//! What was measured, what is to be reached, and how both are told.

use serde::Serialize;

/// Whether a figure is to stay below its goal or to come above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sense {
    /// The smaller the better.
    AtMost,
    /// The larger the better.
    AtLeast,
}

/// Samples of one quantity.
#[derive(Debug, Clone, Serialize)]
pub struct Series {
    /// What was measured.
    pub what: String,
    /// Its unit.
    pub unit: &'static str,
    /// All samples, in the order in which they were taken.
    pub samples: Vec<f64>,
    /// The one in the middle.
    pub median: f64,
}

impl Series {
    /// A series of samples; of none the median is not a number.
    pub fn new(what: impl Into<String>, unit: &'static str, samples: Vec<f64>) -> Self {
        let median = median(&samples);
        Self { what: what.into(), unit, samples, median }
    }

    fn text(&self) -> String {
        let digits = match self.median.abs() {
            0.0..10.0 => 2,
            10.0..100.0 => 1,
            _ => 0,
        };
        format!("{:.digits$} {}", self.median, self.unit)
    }
}

/// The value in the middle of the samples; the mean of two where their number is even.
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

/// One line of the table.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// A short name by which it is chosen.
    pub key: &'static str,
    /// What it is about.
    pub title: String,
    /// ckptd's own.
    pub measured: Series,
    /// The machine's, if it is compared with that.
    pub limit: Option<Series>,
    /// The number that is compared with the goal: a ratio, or the median itself.
    pub score: f64,
    /// What is to be reached.
    pub goal: f64,
    /// On which side of the goal it is to be.
    pub sense: Sense,
    /// Whether it was reached.
    pub reached: bool,
    /// What else is to be known.
    pub notes: Vec<String>,
}

impl Figure {
    /// A figure whose score is `score`.
    pub fn new(
        key: &'static str,
        title: impl Into<String>,
        measured: Series,
        limit: Option<Series>,
        score: f64,
        (sense, goal): (Sense, f64),
    ) -> Self {
        let reached = match sense {
            Sense::AtMost => score <= goal,
            Sense::AtLeast => score >= goal,
        };
        let title = title.into();
        Self { key, title, measured, limit, score, goal, sense, reached, notes: Vec::new() }
    }

    /// How far the score is from the goal: 1 is just reached, more is missed.
    pub fn distance(&self) -> f64 {
        match self.sense {
            Sense::AtMost => self.score / self.goal,
            Sense::AtLeast => self.goal / self.score,
        }
    }

    /// Its line of the table, and its notes below.
    pub fn text(&self) -> String {
        let verdict = if self.reached {
            "reached".to_owned()
        } else if self.distance().is_finite() {
            format!("MISSED by {:.0} %", (self.distance() - 1.0) * 100.0)
        } else {
            "MISSED".to_owned()
        };
        let sign = match self.sense {
            Sense::AtMost => "<=",
            Sense::AtLeast => ">=",
        };
        let limit = self.limit.as_ref();
        let limit = limit.map_or_else(|| "-".to_owned(), |l| format!("{} ({})", l.text(), l.what));
        let mut text = format!(
            "{:<44} {:>11}  {:<34} {:>7.3} {sign} {:<6} {verdict}\n",
            self.title,
            self.measured.text(),
            limit,
            self.score,
            self.goal
        );
        for note in &self.notes {
            text += &format!("    {note}\n");
        }
        text
    }
}

/// The table's heading.
pub fn heading() -> String {
    format!(
        "{:<44} {:>11}  {:<34} {:>7}    {:<6} verdict\n",
        "figure", "measured", "the machine's limit", "score", "goal"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn verdicts() {
        let figure = |score, sense, goal| {
            let series = Series::new("x", "ms", vec![score]);
            Figure::new("k", "t", series, None, score, (sense, goal))
        };
        assert!(figure(1.5, Sense::AtMost, 1.5).reached);
        assert!(!figure(1.6, Sense::AtMost, 1.5).reached);
        assert!(figure(0.8, Sense::AtLeast, 0.7).reached);
        assert!(figure(3.0, Sense::AtMost, 1.5).text().contains("MISSED by 100 %"));
        assert!(!figure(f64::NAN, Sense::AtMost, 1.0).reached, "no samples are no success");
    }
}
