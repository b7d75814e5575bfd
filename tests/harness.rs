//! What cargo test and cargo nextest ask of a test executable without Rust's own harness, whose main function can't be a
//! job's init. nextest lists the tests by `--list --format terse`, those of them to be ignored by adding `--ignored`,
//! and runs each by `--exact NAME --nocapture`.

/// What a test executable was asked for.
pub struct Asked {
    list: bool,
    /// Only what is to be ignored, which is nothing.
    ignored: bool,
    exact: bool,
    names: Vec<String>,
}

impl Asked {
    /// Reads arguments, without the executable's own name. Options that change what is printed are left to Rust's harness.
    pub fn new(arguments: &[String]) -> Self {
        let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
        let mut names = Vec::new();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--format" | "--test-threads" | "--color" => drop(rest.next()),
                name if !name.starts_with('-') => names.push(name.to_owned()),
                _ => {}
            }
        }
        Self { list: has("--list"), ignored: has("--ignored"), exact: has("--exact"), names }
    }

    /// Whether nothing is to be run but the names to be listed, and if so lists those of `all` that are wanted.
    pub fn lists<'a>(&self, all: impl Iterator<Item = &'a str>) -> bool {
        if self.list {
            all.filter(|name| self.wants(name)).for_each(|name| println!("{name}: test"));
        }
        self.list
    }

    /// Whether a test is to be run or listed.
    pub fn wants(&self, name: &str) -> bool {
        let matches = |wanted: &String| match self.exact {
            true => name == wanted,
            false => name.contains(wanted.as_str()),
        };
        !self.ignored && (self.names.is_empty() || self.names.iter().any(matches))
    }
}
