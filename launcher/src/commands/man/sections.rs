//! Sections of a manual page that are not the command line's: what stands behind a command's help, its environment, its files.

use super::related;
use roff::{Roff, bold, roman};
use std::io::{self, Write};

/// The page about variables, of which the first part is for users.
const VARIABLES: &str = include_str!("../../../../docs/src/reference/environment.md");

/// A section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    heading: &'static str,
    blocks: Vec<Block>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Block {
    Text(String),
    /// Lines as they are.
    Lines(Vec<String>),
    /// A thing, and what it is.
    Item(String, String),
}

const EXAMPLES: &str = "EXAMPLES";
const EXIT: &str = "EXIT STATUS";

/// Sections in the order in which pages have them (man-pages(7)).
const ORDER: [&str; 7] = ["KEYS", EXIT, "ENVIRONMENT", "FILES", "NOTES", EXAMPLES, "SEE ALSO"];

impl Section {
    /// Where it stands on a page.
    pub fn rank(&self) -> usize {
        ORDER.iter().position(|heading| *heading == self.heading).unwrap_or(ORDER.len())
    }

    /// Writes it.
    ///
    /// # Errors
    /// Where that can't be written to.
    pub fn render(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut page = Roff::new();
        page.control("SH", [self.heading]);
        for block in &self.blocks {
            match block {
                Block::Text(text) => {
                    page.control("PP", []);
                    page.text([roman(text)]);
                }
                Block::Lines(lines) => {
                    page.control("PP", []);
                    page.control("nf", []);
                    for line in lines {
                        page.text([roman(line)]);
                    }
                    page.control("fi", []);
                }
                Block::Item(name, text) => {
                    page.control("TP", []);
                    page.text([bold(name)]);
                    page.text([roman(text)]);
                }
            }
        }
        page.to_writer(to)
    }
}

/// What stands behind a command's help: paragraphs, of which some are headed by a word, and one begins with the exit status.
pub fn of_help(help: &str) -> Vec<Section> {
    let mut found: Vec<Section> = Vec::new();
    let mut add = |heading: &'static str, blocks: Vec<Block>| match found
        .iter_mut()
        .find(|section| section.heading == heading)
    {
        Some(section) => section.blocks.extend(blocks),
        None => found.push(Section { heading, blocks }),
    };
    let mut has_status = false;
    for paragraph in help.split("\n\n").map(str::trim_end).filter(|text| !text.trim().is_empty()) {
        let (first, rest) = paragraph.split_once('\n').unwrap_or((paragraph, ""));
        let lines = || rest.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
        if let Some(status) = paragraph.strip_prefix("Exit status: ") {
            has_status = true;
            add(EXIT, vec![Block::Text(joined(status))]);
        } else if matches!(first, "Examples:" | "Example:") {
            add(EXAMPLES, vec![Block::Lines(lines())]);
        } else if first == "Keys:" {
            add("KEYS", vec![Block::Lines(lines())]);
        } else if first.ends_with(':') && rest.starts_with("  ") {
            add(EXAMPLES, vec![Block::Text(first.to_owned()), Block::Lines(lines())]);
        } else {
            add("NOTES", vec![Block::Text(joined(paragraph))]);
        }
    }
    if !has_status {
        let usual = "0 where it was done, 2 for wrong usage, 125 where it failed.";
        add(EXIT, vec![Block::Text(usual.to_owned())]);
    }
    found
}

fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Variables of a command.
pub fn variables(name: &str) -> Section {
    let own = name.trim_start_matches("ckptd-").to_uppercase().replace('-', "_");
    let blocks = vec![
        Block::Item("CKPTD_DIR".into(), "Where jobs are kept; --dir takes precedence.".into()),
        Block::Item(
            format!("CKPTD_{own}_..."),
            "With the name of an option of this command in capitals, - as _: what holds where that is not on the command \
             line, of options that can be set so. 'ckptd config show --all' lists them."
                .into(),
        ),
        Block::Text("For others see ckptd(1).".into()),
    ];
    Section { heading: "ENVIRONMENT", blocks }
}

/// All variables that are for users.
pub fn all_variables() -> Section {
    let part = VARIABLES.split("\n## ").find(|part| part.contains("For users\n"));
    let list = part.map_or("", |part| part.split_once("\n- ").map_or("", |(_, list)| list));
    // What follows the list is about other programs.
    let list = list.split("\n\n").next().unwrap_or_default();
    let item = |text: &str| {
        let text = plain(&joined(text));
        let (name, about) = text.split_once(": ").unwrap_or((text.as_str(), ""));
        Block::Item(name.to_owned(), about.to_owned())
    };
    Section { heading: "ENVIRONMENT", blocks: list.split("\n- ").map(item).collect() }
}

/// Without the marks of Markdown: of a link its text.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('[') {
        out.push_str(before);
        match behind.split_once("](").and_then(|(name, link)| Some((name, link.split_once(')')?.1)))
        {
            Some((name, after)) => {
                out.push_str(name);
                rest = after;
            }
            None => {
                out.push('[');
                rest = behind;
            }
        }
    }
    (out + rest).replace('`', "")
}

/// Files of a command, by the name of its page.
pub fn files(name: &str) -> Section {
    let of = |(name, about): (&str, &str)| Block::Item(name.to_owned(), about.to_owned());
    Section { heading: "FILES", blocks: related::files(name).into_iter().map(of).collect() }
}

/// Other pages, and topics of the guide.
pub fn see_also(name: &str) -> Section {
    let mut pages = vec!["ckptd".to_owned(), "ckptd-help".to_owned()];
    if let Some((above, _)) = name.strip_prefix("ckptd-").and_then(|inner| inner.split_once('-')) {
        pages.insert(1, format!("ckptd-{above}"));
    }
    for other in related::pages(name) {
        if !pages.contains(&other) {
            pages.push(other);
        }
    }
    let pages = pages.iter().filter(|page| *page != name).map(|page| format!("{page}(1)"));
    let topics: Vec<String> =
        related::topics(name).iter().map(|topic| format!("'ckptd help {topic}'")).collect();
    let topics = match topics.is_empty() {
        true => "'ckptd help' lists topics of the guide.".to_owned(),
        false => format!("In the guide: {}.", topics.join(", ")),
    };
    let pages = pages.collect::<Vec<_>>().join(", ");
    Section { heading: "SEE ALSO", blocks: vec![Block::Text(pages), Block::Text(topics)] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(section: &Section) -> String {
        let mut text = Vec::new();
        section.render(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn paragraphs_find_their_sections() {
        let help = "Examples:\n  ckptd x   does\n\nA cluster:\n  ckptd y\n\nJOB is\na job.\n\nExit status: 0,\nor 1.";
        let found = of_help(help);
        let headings: Vec<&str> = found.iter().map(|section| section.heading).collect();
        assert_eq!(headings, [EXAMPLES, "NOTES", EXIT]);
        assert_eq!(found[0].blocks.len(), 3);
        assert_eq!(found[1].blocks, [Block::Text("JOB is a job.".into())]);
        assert_eq!(found[2].blocks, [Block::Text("0, or 1.".into())]);
        assert_eq!(of_help("").first().map(|section| section.heading), Some(EXIT));
    }

    #[test]
    fn variables_are_those_of_the_book() {
        let section = all_variables();
        assert!(section.blocks.len() > 10, "{section:?}");
        let text = rendered(&section);
        assert!(text.contains("CKPTD_LOG") && text.contains("options of commands"), "{text}");
        assert!(!text.contains("](") && !text.contains('`') && !text.contains("CKPTD_FAULT"));
        assert_eq!(plain("a [b](c.md) [d] `e`"), "a b [d] e");
    }

    #[test]
    fn lines_stay_as_they_are() {
        let lines = vec![".dots and \\ and -".to_owned(), "'quotes'".to_owned()];
        let text = rendered(&Section { heading: EXAMPLES, blocks: vec![Block::Lines(lines)] });
        assert!(text.contains(".nf\n\\&.dots and \\\\ and \\-\n"), "{text}");
    }
}
