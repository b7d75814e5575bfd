//! A page of the book as text for a terminal. The book's Markdown is a small part of it: headings, paragraphs, lists, tables,
//! code, links, emphasis.

use crate::tables::table;

/// Columns that a table may take beyond the text.
const TABLE_SLACK: usize = 20;

/// A page in lines of so many letters, but code and tables; headings stand out where it is for a terminal.
pub fn page(markdown: &str, width: usize, is_terminal: bool) -> String {
    let mut pen = Pen { width, is_terminal, ..Pen::default() };
    for line in markdown.lines() {
        pen.line(line);
    }
    pen.flush();
    pen.out
}

#[derive(Default)]
struct Pen {
    width: usize,
    is_terminal: bool,
    out: String,
    /// Words of a paragraph, and what its first and its other lines begin with.
    paragraph: Option<(String, String, String)>,
    rows: Vec<Vec<String>>,
    in_fence: bool,
}

impl Pen {
    fn line(&mut self, line: &str) {
        let text = line.trim();
        if text.starts_with("```") {
            self.flush();
            self.in_fence = !self.in_fence;
        } else if self.in_fence {
            self.put(&format!("    {line}"));
        } else if text.is_empty() {
            self.flush();
            self.blank();
        } else if text.starts_with("<!--") || text.starts_with("![") {
            // A terminal has no pictures.
            self.flush();
        } else if text.starts_with('|') {
            self.row(text);
        } else if line.starts_with("    ") && self.paragraph.is_none() {
            self.put(line);
        } else if text.starts_with('#') {
            self.flush();
            self.heading(text);
        } else if let Some((mark, rest)) = item(text) {
            self.flush();
            let indent = " ".repeat(line.len() - line.trim_start().len());
            let next = format!("{indent}{}", " ".repeat(mark.len()));
            self.paragraph = Some((rest.to_owned(), indent + mark, next));
        } else {
            self.word(line, text);
        }
    }

    /// Adds to the paragraph, or begins one.
    fn word(&mut self, line: &str, text: &str) {
        match &mut self.paragraph {
            Some((words, _, _)) => {
                words.push(' ');
                words.push_str(text);
            }
            None => {
                let indent = " ".repeat(line.len() - line.trim_start().len());
                self.paragraph = Some((text.to_owned(), indent.clone(), indent));
            }
        }
    }

    fn heading(&mut self, text: &str) {
        let text = plain(text.trim_start_matches('#').trim());
        match self.is_terminal {
            true => self.put(&format!("\x1b[1m{text}\x1b[0m")),
            false => self.put(&text.to_uppercase()),
        }
    }

    fn row(&mut self, text: &str) {
        let cells = text.trim_matches('|').replace("\\|", "\u{0}");
        let cells = cells.split('|').map(|cell| plain(cell.trim()).replace('\u{0}', "|"));
        let cells: Vec<String> = cells.collect();
        // The line below the heading.
        if !cells.iter().all(|cell| cell.bytes().all(|byte| b"-: ".contains(&byte))) {
            self.rows.push(cells);
        }
    }

    /// Ends what was begun.
    fn flush(&mut self) {
        if let Some((words, first, next)) = self.paragraph.take() {
            let words = plain(&words);
            self.put(&wrapped(&words, &first, &next, self.width));
        }
        let rows = std::mem::take(&mut self.rows);
        let aligned = table(&rows);
        if aligned.lines().all(|line| line.chars().count() <= self.width + TABLE_SLACK) {
            self.out.push_str(&aligned);
            return;
        }
        // Too wide for columns: a paragraph for each row.
        let Some((heading, rows)) = rows.split_first() else { return };
        for row in rows {
            let text = labelled(heading, row);
            self.put(&wrapped(&text, "- ", "  ", self.width));
        }
    }

    fn put(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    fn blank(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with("\n\n") {
            self.out.push('\n');
        }
    }
}

/// The cells of a row as text, each but the first with what stands above it.
fn labelled(heading: &[String], row: &[String]) -> String {
    let cells = row.iter().enumerate().filter(|(_, cell)| !cell.is_empty());
    let cells = cells.map(|(column, cell)| match heading.get(column).filter(|_| column > 0) {
        Some(label) if !label.is_empty() => format!("{label}: {cell}"),
        _ => cell.clone(),
    });
    cells.collect::<Vec<_>>().join("; ")
}

/// The mark of an item of a list, and its text.
fn item(text: &str) -> Option<(&str, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let mark = match digits {
        0 => 2,
        digits => digits + 2,
    };
    let (mark, rest) = text.split_at_checked(mark)?;
    let is_mark = match digits {
        0 => mark == "- " || mark == "* ",
        _ => mark.ends_with(". "),
    };
    is_mark.then_some((mark, rest))
}

/// Words in lines.
fn wrapped(text: &str, first: &str, next: &str, width: usize) -> String {
    let mut lines = vec![first.to_owned()];
    let mut used = first.chars().count();
    let mut is_empty = true;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if !is_empty && used + 1 + length > width {
            lines.push(next.to_owned());
            used = next.chars().count();
            is_empty = true;
        }
        if let Some(line) = lines.last_mut() {
            if !is_empty {
                line.push(' ');
                used += 1;
            }
            line.push_str(word);
        }
        used += length;
        is_empty = false;
    }
    lines.join("\n")
}

/// Without the marks of links and emphasis. Code of several words is quoted.
fn plain(text: &str) -> String {
    let pieces = text.split('`').enumerate();
    let pieces = pieces.map(|(index, piece)| match index % 2 {
        0 => piece.replace('*', ""),
        _ if piece.contains(' ') => format!("'{piece}'"),
        _ => piece.to_owned(),
    });
    // A link may be around code.
    without_links(&pieces.collect::<String>())
}

/// `[text](target)` becomes its text.
fn without_links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((label, target)) = next_link(rest) {
        let (start, end) = (label.start, label.end);
        out.push_str(&rest[..start - 1]);
        out.push_str(&rest[start..end]);
        rest = &rest[target..];
    }
    // Of an image, only what it shows.
    out.push_str(rest);
    out
}

/// Where the text of the next link is, and where the link ends.
fn next_link(text: &str) -> Option<(std::ops::Range<usize>, usize)> {
    let mut from = 0;
    loop {
        let middle = from + text.get(from..)?.find("](")?;
        let end = middle + text[middle..].find(')')?;
        if let Some(open) = text[..middle].rfind('[') {
            return Some((open + 1..middle, end + 1));
        }
        from = middle + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_go() {
        assert_eq!(
            plain("see [limits](../a.md#b) and **`a_b*`**, *now*"),
            "see limits and a_b*, now"
        );
        assert_eq!(plain("[`code`](x) [a](b) c](d)"), "code a c](d)");
        assert_eq!(plain("a[0] = 1"), "a[0] = 1");
    }

    #[test]
    fn paragraphs_and_items_are_wrapped() {
        let text = page("# Title\n\none two\nthree\n\n- four five six\n  seven\n", 14, false);
        assert_eq!(text, "TITLE\n\none two three\n\n- four five\n  six seven\n");
    }

    #[test]
    fn code_stays_as_it_is() {
        let text = page("a\n\n    ckptd  run   # one   two\n\n```sh\nx  y\n```\n", 10, false);
        assert_eq!(text, "a\n\n    ckptd  run   # one   two\n\n    x  y\n");
    }

    #[test]
    fn tables_are_columns_or_items() {
        let markdown = "| a | b |\n|---|---|\n| one | two \\| 2 |\n";
        assert_eq!(page(markdown, 40, false), "a    b\none  two | 2\n");
        let wide = format!("| a | b |\n|---|---|\n| one | {} |\n", "word ".repeat(20).trim());
        assert!(page(&wide, 30, false).starts_with("- one; b: word word"));
    }

    #[test]
    fn no_line_of_a_page_is_lost() {
        for topic in super::super::TOPICS {
            let text = page(&topic.text(), 72, false);
            let words = text.split_whitespace().count();
            assert!(words > 50, "{}: {words}", topic.name);
            assert!(!text.contains("](") && !text.contains("```"), "{}", topic.name);
        }
    }
}
