//! Drawings: what ran when, and how many at a time.

use super::super::names::Names;
use super::times::{Clock, Placed, parallel};
use crate::commands::report::{LANE, LEFT, Scale, WIDTH, drawing, escaped, lane_name, span};
use std::fmt::Write;

/// The most tries that are drawn one by one.
const MOST_DRAWN: usize = 3000;
/// The most lanes; where more ran at a time, several share one.
const MOST_LANES: usize = 64;
/// In how many columns more of them are drawn: what is narrower can't be seen.
const COLUMNS: usize = 380;
/// In how many lanes at most, then.
const ROWS: usize = 32;
/// The classes of kinds; a kind has that of its number.
pub const KINDS: usize = 6;
/// How high the drawing of how many ran is.
const HEIGHT: f64 = 120.0;

/// The class by which a try is coloured.
fn class(placed: &Placed, names: &Names) -> usize {
    match (placed.span.verdict.is_right(), names.is_workflow()) {
        (false, _) => KINDS + 1,
        (true, true) => names.kind(placed.span.task) % KINDS,
        (true, false) => KINDS,
    }
}

fn class_name(class: usize) -> String {
    match class {
        0..KINDS => format!("phase{class}"),
        KINDS => "runs".to_owned(),
        _ => "stands".to_owned(),
    }
}

/// What ran when: a lane for each task that ran at a time.
pub fn tasks(all: &[Placed], places: usize, clock: &Clock, names: &Names) -> String {
    let many = all.len() > MOST_DRAWN;
    let most = if many { ROWS } else { MOST_LANES };
    let shared = places.div_ceil(most).max(1);
    let lanes = places.div_ceil(shared);
    let lane = (LANE * 8.0 / lanes.max(1) as f64).clamp(6.0, LANE);
    let height = lanes as f64 * lane;
    let scale = Scale { from: 0, length: clock.length() };
    let mut out = String::new();
    scale.marks(&mut out, height);
    seams(&mut out, scale, clock, height);
    lane_name(&mut out, 0, "1");
    if lanes > 1 && lane * (lanes - 1) as f64 > LANE {
        let y = (lanes as f64 - 0.5) * lane + 4.0;
        let _ =
            write!(out, r#"<text class="lane" x="{:.0}" y="{y:.1}">{places}</text>"#, LEFT - 10.0);
    }
    if many || shared > 1 {
        columns(&mut out, all, (shared, lanes, lane), scale, names);
    } else {
        for placed in all {
            one(&mut out, placed, lane, scale, names);
        }
    }
    drawing(height + 24.0, "what ran when", &out)
}

fn one(out: &mut String, placed: &Placed, lane: f64, scale: Scale, names: &Names) {
    let (from, to) = (scale.x(placed.from), scale.x(placed.to));
    let took = span(placed.span.to_ms.saturating_sub(placed.span.from_ms));
    let _ = write!(
        out,
        r#"<rect class="{}" x="{from:.1}" y="{:.1}" width="{:.1}" height="{:.1}"><title>{} {}: {took}</title></rect>"#,
        class_name(class(placed, names)),
        placed.place as f64 * lane + 1.0,
        (to - from - 0.3).max(0.7),
        lane - 2.0,
        placed.span.task.0,
        escaped(&names.task(placed.span.task)),
    );
}

/// So many that they are only seen together: in each column of each lane the class that has most of the time; one failure is
/// enough for its colour.
fn columns(
    out: &mut String,
    all: &[Placed],
    (shared, lanes, lane): (usize, usize, f64),
    scale: Scale,
    names: &Names,
) {
    let mut cells = vec![[0u64; KINDS + 2]; lanes * COLUMNS];
    let each = (scale.length as f64 / COLUMNS as f64).max(1.0);
    for placed in all {
        let row = placed.place / shared;
        let class = class(placed, names);
        let (first, last) = (placed.from as f64 / each, placed.to as f64 / each);
        for column in first as usize..=(last as usize).min(COLUMNS - 1) {
            let within = last.min((column + 1) as f64) - first.max(column as f64);
            cells[row * COLUMNS + column][class] += (within * each).max(1.0) as u64;
        }
    }
    let width = (scale.x(scale.length) - LEFT) / COLUMNS as f64;
    let mut paths = vec![String::new(); KINDS + 2];
    for (row, cells) in cells.chunks(COLUMNS).enumerate() {
        let classes: Vec<Option<usize>> = cells.iter().map(strongest).collect();
        let mut from = 0;
        for same in classes.chunk_by(|one, other| one == other) {
            if let Some(class) = same[0] {
                let (x, y) = (LEFT + from as f64 * width, row as f64 * lane + 1.0);
                let (w, h) = (same.len() as f64 * width, lane - 2.0);
                let _ = write!(paths[class], "M{x:.1} {y:.1}h{w:.1}v{h:.1}h-{w:.1}z");
            }
            from += same.len();
        }
    }
    for (class, path) in paths.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
        let _ = write!(out, r#"<path class="{}" d="{path}"/>"#, class_name(class));
    }
}

fn strongest(cell: &[u64; KINDS + 2]) -> Option<usize> {
    if cell[KINDS + 1] > 0 {
        return Some(KINDS + 1);
    }
    let most = cell.iter().enumerate().max_by_key(|(class, time)| (**time, KINDS + 1 - class));
    most.filter(|(_, time)| **time > 0).map(|(class, _)| class)
}

fn seams(out: &mut String, scale: Scale, clock: &Clock, height: f64) {
    for at in clock.seams() {
        let x = scale.x(at);
        let _ = write!(
            out,
            r#"<line class="seam" x1="{x:.1}" y1="0" x2="{x:.1}" y2="{height:.1}"><title>went on</title></line>"#
        );
    }
}

/// How many ran at a time.
pub fn numbers(all: &[Placed], slots: usize, clock: &Clock) -> String {
    let scale = Scale { from: 0, length: clock.length() };
    let mean = parallel(all, clock.length(), COLUMNS);
    let most = mean.iter().copied().fold(slots as f64, f64::max).max(1.0);
    let y = |number: f64| HEIGHT - number / most * (HEIGHT - 10.0);
    let mut out = String::new();
    scale.marks(&mut out, HEIGHT);
    seams(&mut out, scale, clock, HEIGHT);
    let step = (scale.x(scale.length) - LEFT) / COLUMNS as f64;
    let mut path = format!("M{LEFT:.1} {HEIGHT:.1}");
    let mut last = f64::NAN;
    for (column, number) in mean.iter().enumerate() {
        let height = (y(*number) * 10.0).round() / 10.0;
        if height != last {
            let _ = write!(path, "H{:.1}V{height:.1}", LEFT + column as f64 * step);
            last = height;
        }
    }
    let right = scale.x(scale.length);
    let _ = write!(out, r#"<path class="runs" d="{path}H{right:.1}V{HEIGHT:.1}z"/>"#);
    for number in [0, slots] {
        let at = y(number as f64);
        let _ = write!(
            out,
            r#"<line class="grid" x1="{LEFT:.0}" y1="{at:.1}" x2="{:.0}" y2="{at:.1}"/><text class="lane" x="{:.0}" y="{:.1}">{number}</text>"#,
            WIDTH - 10.0,
            LEFT - 10.0,
            at + 4.0
        );
    }
    drawing(HEIGHT + 24.0, "how many ran at a time", &out)
}
