//! The conformance programs, and what the first comment of each tells the runner.
//!
//! A line ` * conform: WORDS` may hold:
//! - `optional`: not promised; a refusal at checkpoint time passes, a wrong restart does not;
//! - `unrehearsable`: ckptd says of its restart that it can't be rehearsed;
//! - `root`: runs as root only;
//! - `user`: runs as an ordinary user only;
//! - `pause=MS`: time between the end of the job and its restart;
//! - `held`: its memory is filled on demand, and after the last restart only where it is touched, until the program removes
//!   `faults/fill.reached`, or `faults/fill`, in its folder;
//! - `work=DIR`: the program's folder is made below DIR instead of in the session directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// One program of the suite.
#[derive(Clone, Debug)]
pub struct Program {
    /// Name, which is the file's without its ending.
    pub name: String,
    /// The source.
    pub source: PathBuf,
    /// What the program is about, from its first comment.
    pub about: String,
    /// Must the checkpoint be refused?
    pub refused: bool,
    /// May the checkpoint be refused?
    pub optional: bool,
    /// Must a rehearsal say that it can't be one?
    pub unrehearsable: bool,
    /// Makes sense as root only.
    pub root_only: bool,
    /// Makes sense as an ordinary user only.
    pub user_only: bool,
    /// Is its memory filled only where it is touched?
    pub held: bool,
    /// Time between the end of the job and its restart.
    pub pause: Duration,
    /// Where the program's folder is made, if not in the session directory.
    pub work: Option<PathBuf>,
}

/// All programs below `tests/programs`, sorted by name.
///
/// # Errors
/// When the folder or a source cannot be read.
pub fn list(folder: &Path) -> std::io::Result<Vec<Program>> {
    let mut programs = Vec::new();
    for (folder, refused) in [(folder.to_owned(), false), (folder.join("refused"), true)] {
        for entry in std::fs::read_dir(&folder)? {
            let source = entry?.path();
            let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if source.extension().is_some_and(|e| e == "c") && name != "conform" {
                let text = std::fs::read_to_string(&source)?;
                programs.push(describe(name, source, &text, refused));
            }
        }
    }
    programs.sort_by(|a, b| (a.refused, &a.name).cmp(&(b.refused, &b.name)));
    Ok(programs)
}

fn describe(name: String, source: PathBuf, text: &str, refused: bool) -> Program {
    let comment = text.split("*/").next().unwrap_or_default();
    let mut program = Program {
        name,
        source,
        about: String::new(),
        refused,
        optional: false,
        unrehearsable: false,
        root_only: false,
        user_only: false,
        held: false,
        pause: Duration::ZERO,
        work: None,
    };
    for line in comment.lines() {
        let line = line.trim().trim_start_matches("/*").trim_start_matches('*').trim();
        let Some(words) = line.strip_prefix("conform:") else {
            program.about.push_str(line);
            program.about.push(' ');
            continue;
        };
        for word in words.split_whitespace() {
            match word.split_once('=').unwrap_or((word, "")) {
                ("optional", _) => program.optional = true,
                ("unrehearsable", _) => program.unrehearsable = true,
                ("root", _) => program.root_only = true,
                ("held", _) => program.held = true,
                ("user", _) => program.user_only = true,
                ("pause", ms) => program.pause = Duration::from_millis(ms.parse().unwrap_or(0)),
                ("work", folder) => program.work = Some(folder.into()),
                (other, _) => panic!("{}: unknown word \"{other}\"", program.source.display()),
            }
        }
    }
    program.about = program.about.trim().to_owned();
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read() {
        let text = "/*\n * About it.\n * conform: optional pause=2500 work=/var/tmp\n */\n/* conform: root */";
        let program = describe("x".into(), "x.c".into(), text, false);
        assert_eq!(program.about, "About it.");
        assert!(program.optional && !program.root_only);
        assert_eq!(program.pause, Duration::from_millis(2500));
        assert_eq!(program.work.as_deref(), Some(Path::new("/var/tmp")));
    }

    #[test]
    fn the_suite_is_large_enough() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
        let programs = list(&folder).expect("programs");
        let promised = programs.iter().filter(|p| !p.refused && !p.optional).count();
        assert!(promised >= 40, "{promised} programs");
    }
}
