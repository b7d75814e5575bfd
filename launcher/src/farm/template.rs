//! Commands that are made of a template and values, as GNU parallel does it.

use super::quoting::{Quoting, in_quotes};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Values come after it.
const VALUES: &str = ":::";
/// Files of values come after it, one a line.
const FILES: &str = "::::";

/// Why words are no template with values.
#[derive(Debug, Error)]
pub enum TemplateError {
    /// There is nothing before the first list.
    #[error("there is no command before the values")]
    NoCommand,
    /// A file of values can't be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A value would not be one word of the command's.
    #[error(
        "{0} is quoted already: leave the quotes out; nor can it stand in a comment, in backquotes, in arithmetic or behind '<<'"
    )]
    Quoted(String),
    /// A place is for a list's value that there is not.
    #[error("there is no list {which}, but {lists}")]
    NoList {
        /// Which list is meant.
        which: usize,
        /// How many there are.
        lists: usize,
    },
    /// There would be more tasks than anybody waits for.
    #[error("there are more than {0} combinations of the values")]
    TooMany(u64),
}

/// A command with places for values.
#[derive(Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Text(Vec<u8>),
    /// The task's number.
    Number,
    /// A value: which one, from 1; None: all of them. And what of it.
    Value(Option<usize>, Piece),
}

/// What of a value is meant, by the names that GNU parallel has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    Whole,
    /// `.`
    WithoutExtension,
    /// `/`
    FileName,
    /// `//`
    Folder,
    /// `/.`
    Stem,
}

/// A template with the lists of its values.
#[derive(Debug)]
pub struct Combined {
    template: Template,
    lists: Vec<Vec<Vec<u8>>>,
}

impl Combined {
    /// What the words of a command line say; None where there are no values among them.
    ///
    /// # Errors
    /// Where they make no sense.
    pub fn of(words: &[OsString], most: u64) -> Result<Option<Self>, TemplateError> {
        let is_mark = |word: &OsString| word == VALUES || word == FILES;
        let Some(first) = words.iter().position(is_mark) else { return Ok(None) };
        if first == 0 {
            return Err(TemplateError::NoCommand);
        }
        let mut lists: Vec<Vec<Vec<u8>>> = Vec::new();
        let mut are_files = false;
        for word in &words[first..] {
            if is_mark(word) {
                are_files = word == FILES;
                lists.push(Vec::new());
                continue;
            }
            let Some(list) = lists.last_mut() else { continue };
            match are_files {
                true => list.extend(lines(Path::new(word))?),
                false => list.push(word.as_bytes().to_vec()),
            }
        }
        let all = lists.iter().try_fold(1u64, |all, list| all.checked_mul(list.len() as u64));
        if all.is_none_or(|all| all > most) {
            return Err(TemplateError::TooMany(most));
        }
        let text: Vec<&[u8]> = words[..first].iter().map(|word| word.as_bytes()).collect();
        let template = Template::of(&text.join(&b' '))?;
        match template.highest() {
            which if which > lists.len() => {
                Err(TemplateError::NoList { which, lists: lists.len() })
            }
            _ => Ok(Some(Self { template, lists })),
        }
    }

    /// Gives each command, the last list's values changing first.
    ///
    /// # Errors
    /// What `each` fails with.
    pub fn each<E>(&self, mut each: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        if self.lists.iter().any(Vec::is_empty) {
            return Ok(());
        }
        let mut at = vec![0; self.lists.len()];
        for number in 1u64.. {
            let chosen = self.lists.iter().zip(&at).filter_map(|(list, at)| list.get(*at));
            let values: Vec<&[u8]> = chosen.map(Vec::as_slice).collect();
            each(&self.template.fill(number, &values))?;
            // As a counter does: the last digit first.
            let mut digits = at.iter_mut().zip(&self.lists).rev();
            let is_over = loop {
                let Some((digit, list)) = digits.next() else { break true };
                *digit += 1;
                if *digit < list.len() {
                    break false;
                }
                *digit = 0;
            };
            if is_over {
                return Ok(());
            }
        }
        Ok(())
    }
}

fn lines(path: &Path) -> Result<Vec<Vec<u8>>, TemplateError> {
    let failed = |source| TemplateError::Unreadable { path: path.to_owned(), source };
    let source: Box<dyn BufRead> = match path == Path::new("-") {
        true => Box::new(std::io::stdin().lock()),
        false => Box::new(BufReader::new(File::open(path).map_err(failed)?)),
    };
    source.split(b'\n').map(|line| line.map_err(failed)).collect()
}

impl Template {
    /// A text with places in braces; without any, the values come at its end.
    ///
    /// # Errors
    /// Where a value would not be one word.
    fn of(text: &[u8]) -> Result<Self, TemplateError> {
        let mut quoting = Quoting::of(text);
        let mut parts = Vec::new();
        let mut plain = Vec::new();
        let mut rest = text;
        let quoted = |place: &[u8]| TemplateError::Quoted(String::from_utf8_lossy(place).into());
        while let Some((first, after)) = rest.split_first() {
            let place =
                (*first == b'{').then(|| after.iter().position(|byte| *byte == b'}')).flatten();
            match place.and_then(|end| Some((part(after.get(..end)?)?, after.get(end + 1..)?))) {
                Some((part, behind)) => {
                    if matches!(part, Part::Value(..)) && !quoting.is_plain() {
                        return Err(quoted(&rest[..rest.len() - behind.len()]));
                    }
                    quoting.value();
                    parts.push(Part::Text(std::mem::take(&mut plain)));
                    parts.push(part);
                    rest = behind;
                }
                None => {
                    let (passed, behind) = rest.split_at(quoting.pass(rest).clamp(1, rest.len()));
                    plain.extend_from_slice(passed);
                    rest = behind;
                }
            }
        }
        parts.push(Part::Text(plain));
        if !parts.iter().any(|part| matches!(part, Part::Value(..))) {
            if !quoting.is_plain() {
                return Err(quoted(b"the place for the values, which is the command's end,"));
            }
            parts.push(Part::Text(b" ".to_vec()));
            parts.push(Part::Value(None, Piece::Whole));
        }
        Ok(Self { parts })
    }

    /// The highest number of a list.
    fn highest(&self) -> usize {
        let which = |part: &Part| match part {
            Part::Value(Some(which), _) => *which,
            _ => 0,
        };
        self.parts.iter().map(which).max().unwrap_or(0)
    }

    fn fill(&self, number: u64, values: &[&[u8]]) -> Vec<u8> {
        let mut command = Vec::new();
        for (index, part) in self.parts.iter().enumerate() {
            let is_redirected = self.parts.get(index + 1).is_some_and(Part::redirects);
            let word = |value: &[u8]| if is_redirected { in_quotes(value) } else { quoted(value) };
            match part {
                Part::Text(text) => command.extend_from_slice(text),
                Part::Number => command.extend(word(number.to_string().as_bytes())),
                Part::Value(Some(which), piece) => {
                    let value = which.checked_sub(1).and_then(|index| values.get(index));
                    command.extend(word(piece.of(value.copied().unwrap_or_default())));
                }
                Part::Value(None, piece) => {
                    let all: Vec<Vec<u8>> =
                        values.iter().map(|value| word(piece.of(value))).collect();
                    command.extend(all.join(&b' '));
                }
            }
        }
        command
    }
}

impl Part {
    /// Whether digits before it would be the number of a descriptor.
    fn redirects(&self) -> bool {
        let Self::Text(text) = self else { return false };
        matches!(text.iter().find(|byte| !byte.is_ascii_digit()), Some(b'<' | b'>'))
    }
}

/// What stands between braces, if that is a place.
fn part(text: &[u8]) -> Option<Part> {
    if text == b"#" {
        return Some(Part::Number);
    }
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, piece) = text.split_at(digits);
    let piece = match piece {
        b"" => Piece::Whole,
        b"." => Piece::WithoutExtension,
        b"/" => Piece::FileName,
        b"//" => Piece::Folder,
        b"/." => Piece::Stem,
        _ => return None,
    };
    let which = match number {
        b"" => None,
        number => Some(std::str::from_utf8(number).ok()?.parse().ok().filter(|which| *which > 0)?),
    };
    Some(Part::Value(which, piece))
}

impl Piece {
    fn of(self, value: &[u8]) -> &[u8] {
        match self {
            Self::Whole => value,
            Self::WithoutExtension => without_extension(value),
            Self::FileName => file_name(value),
            Self::Stem => without_extension(file_name(value)),
            Self::Folder => match value.iter().rposition(|byte| *byte == b'/') {
                Some(0) => b"/",
                Some(slash) => &value[..slash],
                None => b".",
            },
        }
    }
}

fn file_name(value: &[u8]) -> &[u8] {
    value.rsplit(|byte| *byte == b'/').next().unwrap_or(value)
}

fn without_extension(value: &[u8]) -> &[u8] {
    let name = value.len() - file_name(value).len();
    match value.iter().rposition(|byte| *byte == b'.') {
        // A name that begins with a dot has no extension by that.
        Some(dot) if dot > name => &value[..dot],
        _ => value,
    }
}

/// Words that mean something to a shell where a command may stand.
const RESERVED: [&[u8]; 17] = [
    b"if",
    b"then",
    b"else",
    b"elif",
    b"fi",
    b"for",
    b"in",
    b"while",
    b"until",
    b"do",
    b"done",
    b"case",
    b"esac",
    b"function",
    b"select",
    b"time",
    b"coproc",
];

/// A value as one word of the shell's, wherever that stands.
fn quoted(value: &[u8]) -> Vec<u8> {
    // None with '=', which would be an assignment where a command may stand.
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-+./,:@%^".contains(byte);
    match !value.is_empty() && value.iter().all(is_plain) && !RESERVED.contains(&value) {
        true => value.to_vec(),
        false => in_quotes(value),
    }
}

/// A name for a run of these words.
pub fn stem(words: &[OsString]) -> Option<&OsStr> {
    let first = words.first().filter(|first| *first != "-")?;
    Path::new(first).file_stem()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(words: &[&str]) -> Vec<String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let mut all = Vec::new();
        let combined = Combined::of(&words, 1000).unwrap().unwrap();
        let keep = |command: &[u8]| -> Result<(), ()> {
            all.push(String::from_utf8(command.to_vec()).unwrap());
            Ok(())
        };
        combined.each(keep).unwrap();
        all
    }

    #[test]
    fn values_take_their_places() {
        assert_eq!(commands(&["gzip", ":::", "a", "b"]), ["gzip a", "gzip b"]);
        assert_eq!(
            commands(&["echo {#}: {} {.} {/} {//} {/.}", ":::", "/d.x/f.tar.gz"]),
            ["echo 1: /d.x/f.tar.gz /d.x/f.tar f.tar.gz /d.x f.tar"]
        );
        assert_eq!(
            commands(&["x {//} {.}", ":::", "f", "/f", "a/.b"]),
            ["x . f", "x / /f", "x a a/.b"]
        );
        assert_eq!(
            commands(&["t", "{2.}-{1}", ":::", "1", "2", ":::", "a.c", "b"]),
            ["t a-1", "t b-1", "t a-2", "t b-2"]
        );
        assert_eq!(commands(&["t {}", ":::", "1", ":::", "a"]), ["t 1 a"]);
        assert_eq!(commands(&["t ${x} {0} {a} {", ":::", "1"]), ["t ${x} {0} {a} { 1"]);
        assert!(commands(&["t", ":::", "1", ":::"]).is_empty());
    }

    #[test]
    fn values_mean_nothing_to_the_shell_by_where_they_stand() {
        let filled = |template: &str, value: &str| commands(&[template, ":::", value]).remove(0);
        for (template, value, command) in [
            ("{}", "A=b", "'A=b'"),
            ("{}", "if", "'if'"),
            ("! {} x", "time", "! 'time' x"),
            ("echo {}>f", "2", "echo '2'>f"),
            ("echo {}2<f", "1", "echo '1'2<f"),
            ("echo {} 2>{#}", "1", "echo 1 2>1"),
            ("echo {#}>{}", "1", "echo '1'>1"),
        ] {
            assert_eq!(filled(template, value), command);
        }
    }

    #[test]
    fn values_are_words_and_nothing_else() {
        let hostile = ["a b", "$(id)", "it's", "", "*", "a\nb", "~", "x;y", "#", "\\", "a=b", "fi"];
        let templates = [
            "printf %s {}",
            "printf '%s' {} # it's \"",
            "# it's\nprintf \"%s\" {}",
            "x=\"$(printf %s. {})\"; printf %s \"${x%.}\"",
            "a=${b}'\"'\\'\"'\"; (printf %s {})",
            "i=$((1+(2)));x=`printf %s '\\`'`; y=\"$((i+1))`printf 'a'`\"; printf %s {}",
            "printf %s",
        ];
        for template in templates {
            for (value, command) in
                hostile.iter().zip(commands(&[&[template, ":::"][..], &hostile].concat()))
            {
                let said =
                    std::process::Command::new("/bin/sh").arg("-c").arg(&command).output().unwrap();
                assert_eq!(String::from_utf8(said.stdout).unwrap(), *value, "{command}");
            }
        }
    }

    #[test]
    fn no_value_stands_where_it_would_not_be_a_word() {
        let refused = [
            "echo '{}'",
            "echo \"{}\"",
            "sh -c 'x {1.}'",
            "echo # {}",
            "echo # it's\necho '{}'",
            "echo \"$(echo \"{}\")\"",
            "echo \"${x:-\"{}\"}\"",
            "echo `echo {}`",
            "cat <<E\n{}\nE",
            "echo $(({}))",
            "echo \"$(({}))\"",
            "((i = {}))",
            "true && (({} > 1))",
            "echo $[{}]",
            "echo \"$[{}]\"",
            "echo ${1}",
            "echo 'it",
            "echo #",
            "echo \\",
        ];
        for template in refused {
            let words = [template, ":::", "1"].map(OsString::from);
            let found = Combined::of(&words, 10);
            assert!(matches!(found, Err(TemplateError::Quoted(_))), "{template}: {found:?}");
        }
        let words = ["t {3}", ":::", "1", ":::", "2"].map(OsString::from);
        let found = Combined::of(&words, 10);
        assert!(matches!(found, Err(TemplateError::NoList { which: 3, lists: 2 })), "{found:?}");
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        assert!(Combined::of(&words(&["a", "b"]), 10).unwrap().is_none());
        assert!(matches!(Combined::of(&words(&[":::", "b"]), 10), Err(TemplateError::NoCommand)));
        let many = words(&["t", ":::", "1", "2", "3", "4", ":::", "1", "2", "3"]);
        assert!(matches!(Combined::of(&many, 10), Err(TemplateError::TooMany(10))));
        let missing = words(&["t", "::::", "/no/such/file"]);
        assert!(matches!(Combined::of(&missing, 10), Err(TemplateError::Unreadable { .. })));
    }
}
