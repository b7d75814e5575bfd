//! What a launcher says of itself.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// More is no answer.
const MOST: u64 = 64 * 1024;
/// How long a launcher may take to say what it is.
const LIMIT: Duration = Duration::from_secs(5);

/// The first two numbers of a release.
pub type Release = (u32, u32);

/// What it says to --version.
pub fn asked(found: &Path) -> Option<String> {
    let mut child = Command::new(found)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let output = child.stdout.take()?;
    let (sender, answer) = mpsc::channel();
    // A child of its own may keep the pipe open: that one is left to itself.
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = output.take(MOST).read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    });
    let answer = answer.recv_timeout(LIMIT).ok();
    let _ = child.kill();
    let _ = child.wait();
    answer.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The release in such an answer, as it is written there: the first word that begins with a digit and has a point.
pub fn release_text(answer: &str) -> Option<&str> {
    let mut words = answer.split(|letter: char| letter.is_whitespace() || ",()".contains(letter));
    words.find(|word| word.starts_with(|first: char| first.is_ascii_digit()) && word.contains('.'))
}

/// Its numbers.
pub fn release(text: &str) -> Option<Release> {
    let mut numbers = text.split(|letter: char| !letter.is_ascii_digit()).map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_found_in_answers() {
        for (answer, text, numbers) in [
            ("mpirun (Open MPI) 5.0.11\n\nReport bugs", "5.0.11", (5, 0)),
            ("HYDRA build details:\n    Version:    4.1rc2\n", "4.1rc2", (4, 1)),
            (
                "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b4)",
                "2021.18.1",
                (2021, 18),
            ),
            ("prterun (PRRTE) 3.0.6", "3.0.6", (3, 0)),
        ] {
            assert_eq!(release_text(answer), Some(text));
            assert_eq!(release(text), Some(numbers));
        }
        assert_eq!(release_text("no version"), None);
        assert_eq!(release("5"), None);
    }
}
