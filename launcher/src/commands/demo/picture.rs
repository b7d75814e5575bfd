//! Who is where, as text.

use super::daemons::Place;
use super::program::{LEADER, WORKER};

/// Letters between the edges of a box.
const WIDTH: usize = 18;

/// A machine in the picture.
pub struct Frame {
    /// Its name.
    pub name: String,
    /// Whether it was killed.
    pub is_dead: bool,
}

/// Each machine as a box with the processes of the job that are there. Those that were elsewhere before have a mark.
pub fn picture(frames: &[Frame], places: &[Place]) -> String {
    let columns: Vec<Vec<String>> = frames.iter().map(|frame| column(frame, places)).collect();
    let height = columns.iter().map(Vec::len).max().unwrap_or(0);
    let row = |cells: &mut dyn Iterator<Item = String>| {
        let row = cells.collect::<Vec<_>>().join("  ");
        format!("   {}\n", row.trim_end())
    };
    let edge = row(&mut frames.iter().map(|_| format!("+{}+", "-".repeat(WIDTH))));
    let mut text = row(&mut frames.iter().map(|frame| format!("{:<1$}", frame.name, WIDTH + 2)));
    text += &edge;
    for line in 0..height {
        let cell = |column: &Vec<String>| column.get(line).cloned().unwrap_or_default();
        text +=
            &row(&mut columns.iter().map(|column| format!("| {:<1$}|", cell(column), WIDTH - 1)));
    }
    text + &edge
}

fn column(frame: &Frame, places: &[Place]) -> Vec<String> {
    if frame.is_dead {
        return vec!["dead".to_owned()];
    }
    let here = places.iter().filter(|place| place.machine == frame.name);
    let mut shown: Vec<String> = here.filter_map(label).collect();
    shown.sort();
    shown
}

/// Nothing of what only starts the workers.
fn label(place: &Place) -> Option<String> {
    let is_of_job = place.process == LEADER || place.process.starts_with(WORKER);
    let mark =
        if place.home == place.machine { String::new() } else { format!(" < {}", place.home) };
    is_of_job.then(|| format!("{}{mark}", place.process))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(process: &str, machine: &str, home: &str) -> Place {
        Place { process: process.into(), machine: machine.into(), home: home.into() }
    }

    #[test]
    fn what_moved_is_marked() {
        let frame = |name: &str, is_dead| Frame { name: name.into(), is_dead };
        let frames = [frame("node1", false), frame("node2", false), frame("node3", true)];
        let places = [
            place("worker 1", "node1", "node1"),
            place("queens", "node1", "node1"),
            place("sh", "node1", "node1"),
            place("worker 3", "node2", "node2"),
            place("worker 2", "node2", "node3"),
        ];
        let expected = "   \
   node1                 node2                 node3
   +------------------+  +------------------+  +------------------+
   | queens           |  | worker 2 < node3 |  | dead             |
   | worker 1         |  | worker 3         |  |                  |
   +------------------+  +------------------+  +------------------+
";
        assert_eq!(picture(&frames, &places), expected);
    }
}
