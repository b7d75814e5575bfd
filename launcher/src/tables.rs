//! Text for people: tables, and words from elsewhere.

use crate::text;
use protocol::control::{Rehearsal, RehearsalOutcome};

/// Text with every control character made harmless for a terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Rows under a heading, each column as wide as its widest cell.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// How the rehearsal of a restart stands.
pub fn rehearsal(rehearsal: &Rehearsal) -> String {
    let Rehearsal { checkpoint, outcome } = rehearsal;
    match outcome {
        None => format!("of checkpoint {checkpoint} is going on"),
        Some(RehearsalOutcome::Restorable { processes, took_ms }) => {
            text::restorable(*checkpoint, *processes, *took_ms)
        }
        Some(RehearsalOutcome::Unknown(reason)) => {
            printable(&format!("of checkpoint {checkpoint} came to nothing: {reason}"))
        }
        Some(RehearsalOutcome::Failed(reason)) => {
            printable(&format!("a restart from checkpoint {checkpoint} would fail: {reason}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_line_up() {
        let rows =
            [vec!["NAME".to_owned(), "STATE".to_owned()], vec!["a-long-one".into(), "x".into()]];
        assert_eq!(table(&rows), "NAME        STATE\na-long-one  x\n");
    }

    #[test]
    fn nothing_reaches_the_terminal_as_a_command() {
        assert_eq!(printable("a\x1b[2Jb\n"), "a?[2Jb?");
    }
}
