//! The bars of a scenario, with the ideal as a line.

use super::table::range;
use super::{Measured, OWN, names};
use crate::bench::figure::median;
use crate::bench::host::Origin;
use crate::bench::svg::{Anchor, Picture, Tone, step};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 118.0;
const BOTTOM: f64 = 62.0;
/// Width of a bar.
const BAR: f64 = 88.0;

/// A bar for each split and one for ckptd's plan.
#[must_use]
pub fn draw(measured: &Measured, origin: &Origin) -> String {
    let quotas = measured.cores.map(|cores| cores.to_string());
    let what = format!(
        "12 ranks of N-Queens (N = {}); quotas of {}, {} and {} cores, the last one lost; medians of {}, with the range",
        measured.queens,
        quotas[0],
        quotas[1],
        quotas[2],
        measured.of(OWN, |run| run.computing).len()
    );
    let place = format!("{}; {}; {}", origin.machine, origin.date, origin.command);
    let title = format!("Where the lost ranks go: {}", measured.title);
    let mut picture = Picture::new(WIDTH, HEIGHT, &title, &[&what, &place]);
    let x = picture.key(16.0, 92.0, Tone::Main, "computing, from restart to solution");
    let x = picture.key(x, 92.0, Tone::Pale, "noticing the loss, and restart");
    let x = picture.key(x, 92.0, Tone::Own, "ckptd's own plan");
    picture.line((x, 87.0), (x + 26.0, 87.0), Tone::Limit, 2.0, true);
    let ideal = measured.ideal();
    let told = if ideal.is_finite() { format!(": {ideal:.1} s") } else { String::new() };
    picture.text(x + 32.0, 92.0, Anchor::Start, Tone::Ink, &format!("ideal computing{told}"));

    let highest = measured.runs.iter().map(|run| run.total).fold(ideal, f64::max) * 1.06;
    let highest = if highest.is_finite() && highest > 0.0 { highest } else { 1.0 };
    let y = |seconds: f64| HEIGHT - BOTTOM - seconds / highest * (HEIGHT - TOP - BOTTOM);
    let grid = step(highest, 6.0);
    let mut at = 0.0;
    while at <= highest {
        picture.line((LEFT, y(at)), (WIDTH - RIGHT, y(at)), Tone::Grid, 1.0, false);
        picture.text(LEFT - 8.0, y(at) + 4.0, Anchor::End, Tone::Faint, &format!("{at} s"));
        at += grid;
    }
    let names = names();
    let column = (WIDTH - LEFT - RIGHT) / names.len() as f64;
    for (index, name) in names.iter().enumerate() {
        let middle = LEFT + column * (index as f64 + 0.5);
        let last = measured.runs.iter().rev().find(|run| run.split == *name);
        let label = match last {
            Some(run) if name == OWN => {
                let counts: Vec<String> = run.spread.values().map(usize::to_string).collect();
                format!("{name}: {}", counts.join("+"))
            }
            _ => name.clone(),
        };
        picture.text(middle, HEIGHT - BOTTOM + 20.0, Anchor::Middle, Tone::Ink, &label);
        let samples = measured.of(name, |run| run.computing);
        if samples.is_empty() {
            continue;
        }
        let (computing, total) = (median(&samples), median(&measured.of(name, |run| run.total)));
        let own = name == OWN;
        let (tone, pale) = if own { (Tone::Own, Tone::OwnPale) } else { (Tone::Main, Tone::Pale) };
        let x = middle - BAR / 2.0;
        picture.bar(x, y(total), BAR, y(computing) - y(total), pale);
        picture.bar(x, y(computing), BAR, y(0.0) - y(computing), tone);
        let (least, most) = range(&samples);
        picture.line((middle, y(least)), (middle, y(most)), Tone::Ink, 1.5, false);
        for end in [least, most] {
            picture.line((middle - 6.0, y(end)), (middle + 6.0, y(end)), Tone::Ink, 1.5, false);
        }
        let told = format!("{total:.1} s in all");
        picture.text(middle, y(total) - 7.0, Anchor::Middle, Tone::Ink, &told);
        let told = format!("{computing:.1} s");
        picture.text(middle, y(computing / 2.0), Anchor::Middle, Tone::Paper, &told);
        let below = format!("{:.2} of the ideal", computing / ideal);
        picture.text(middle, HEIGHT - BOTTOM + 38.0, Anchor::Middle, Tone::Faint, &below);
    }
    if ideal.is_finite() {
        picture.line((LEFT, y(ideal)), (WIDTH - RIGHT, y(ideal)), Tone::Limit, 2.0, true);
    }
    picture.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_and_the_ideal_are_drawn() {
        let origin =
            Origin { machine: "m".into(), date: "d".into(), command: "c".into(), quick: false };
        let svg = draw(&super::super::example(), &origin);
        assert_eq!(svg.matches(&format!("width=\"{BAR:.1}\"")).count(), 12);
        assert!(svg.contains("19.2 s") && svg.contains("20.2 s") && !svg.contains("NaN"));
        assert!(!draw(&Measured::default(), &origin).contains("NaN"));
    }
}
