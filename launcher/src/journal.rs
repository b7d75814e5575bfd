//! The journal of systemd, with fields (systemd.journal-fields(7)): `journalctl CKPTD_NODE=desk` finds what is said of a node.
//!
//! Where standard error is the journal (JOURNAL_STREAM, systemd.exec(5)), each event goes to its socket instead
//! (systemd's "Native Journal Protocol"): the line that would stand on standard error, its level, and each of its values as a
//! field.

use crate::commands::escaped;
use nix::sys::stat::fstat;
use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::os::unix::net::UnixDatagram;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// "device:inode" of the standard streams that are the journal.
const VARIABLE: &str = "JOURNAL_STREAM";
const SOCKET: &str = "/run/systemd/journal/socket";
/// Before the names of ckptd's own fields.
const PREFIX: &str = "CKPTD_";
/// The longest name of a field that the journal takes (journal_field_valid()).
const LONGEST_NAME: usize = 64;

/// The journal.
#[derive(Debug)]
pub struct Journal {
    socket: UnixDatagram,
}

impl Journal {
    /// That of this process, where its standard error goes to one.
    pub fn of_standard_error() -> Option<Self> {
        let stream = std::env::var(VARIABLE).ok()?;
        let found = fstat(io::stderr()).ok()?;
        if stream != format!("{}:{}", found.st_dev, found.st_ino) {
            return None;
        }
        let socket = UnixDatagram::unbound().ok()?;
        socket.connect(SOCKET).ok()?;
        Some(Self { socket })
    }

    fn say(&self, about: &Metadata<'_>, values: Values) {
        let line = values.line();
        let mut entry = Vec::new();
        add(&mut entry, "PRIORITY", priority(*about.level()));
        add(&mut entry, "SYSLOG_IDENTIFIER", "ckptd");
        add(&mut entry, "MESSAGE", &line);
        add(&mut entry, &format!("{PREFIX}PART"), about.target());
        for (name, value) in &values.named {
            add(&mut entry, &field_name(name), value);
        }
        if self.socket.send(&entry).is_err() {
            // One that is too long, or a journal that is being started again: it takes lines all the same.
            let _ = writeln!(io::stderr(), "{line}");
        }
    }
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut values = Values::default();
        event.record(&mut values);
        self.say(event.metadata(), values);
    }
}

/// What an event says.
#[derive(Debug, Default)]
struct Values {
    message: String,
    named: Vec<(&'static str, String)>,
}

impl Values {
    /// As a line on standard error: names and reasons come from other machines, and must not begin another line.
    fn line(&self) -> String {
        let mut line = self.message.clone();
        for (name, value) in &self.named {
            // Writing to a string can't fail.
            let _ = write!(line, " {name}={value}");
        }
        escaped(line.trim_start())
    }
}

impl Visit for Values {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            name => self.named.push((name, value.to_owned())),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

/// Levels of syslog(3).
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        _ => "7",
    }
}

/// Capital letters, digits and underscores.
fn field_name(name: &str) -> String {
    let fit = |c: char| match c {
        c if c.is_ascii_alphanumeric() => c.to_ascii_uppercase(),
        _ => '_',
    };
    PREFIX.chars().chain(name.chars().map(fit)).take(LONGEST_NAME).collect()
}

/// Adds a field: one whose value has a newline is told by its length.
fn add(entry: &mut Vec<u8>, name: &str, value: &str) {
    entry.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        entry.push(b'\n');
        entry.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        entry.push(b'=');
    }
    entry.extend_from_slice(value.as_bytes());
    entry.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    #[test]
    fn values_are_fields_and_stand_in_the_line() {
        let (near, far) = UnixDatagram::pair().unwrap();
        let subscriber = tracing_subscriber::registry().with(Journal { socket: near });
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(node = %"desk", slots = 4, "member: joined");
            tracing::info!(reason = "a\nb", "lost");
        });
        let heard = || {
            let mut bytes = [0; 1024];
            let length = far.recv(&mut bytes).unwrap();
            bytes[..length].to_vec()
        };
        let first = String::from_utf8(heard()).unwrap();
        let lines: Vec<&str> = first.lines().collect();
        assert!(lines.contains(&"MESSAGE=member: joined node=desk slots=4"), "{first}");
        for line in ["PRIORITY=4", "CKPTD_NODE=desk", "CKPTD_SLOTS=4", "SYSLOG_IDENTIFIER=ckptd"] {
            assert!(lines.contains(&line), "{line} is not in {first}");
        }
        let second = heard();
        let has = |part: &[u8]| second.windows(part.len()).any(|window| window == part);
        assert!(has(b"MESSAGE=lost reason=a\\nb\n"));
        assert!(has(b"CKPTD_REASON\n\x03\0\0\0\0\0\0\0a\nb\n"));
    }

    #[test]
    fn names_are_fit_for_the_journal() {
        assert_eq!(field_name("node"), "CKPTD_NODE");
        assert_eq!(field_name("a.b-c"), "CKPTD_A_B_C");
        assert_eq!(field_name(&"x".repeat(100)).len(), LONGEST_NAME);
    }
}
