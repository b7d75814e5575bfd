//! Who ordered what of a cluster: a log of lines, each of which has the hash of the one before, so that none can be
//! changed, taken out or put between others without all that follow telling. Whoever owns the coordinator's machine can
//! write the whole log anew: against that helps a hash that was noted elsewhere.

use super::NodeName;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest line, in bytes: what others have a say in is cut to [`MAX_TEXT`], and JSON has six bytes for one of these
/// if it is a control character.
pub const MAX_LINE: usize = 16 * 1024;

/// The most of a text from outside that a line takes, in bytes.
pub const MAX_TEXT: usize = 512;

/// What somebody wants of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Order {
    /// The user's name.
    pub user: String,
    /// The member at whose socket the order was given, which said who the user is; None: the coordinator's own, where
    /// the kernel did.
    pub through: Option<NodeName>,
    /// The account there that has logged in as the user by a key; empty: none has.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub account: String,
    /// At the coordinator's page: the name of the token there, or `-` for its own user; empty: the order was a command.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub page: String,
    /// Whether the user counts as an operator there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub operator: bool,
    /// The command, as `stop`.
    pub order: String,
    /// What it was about: a job, a node, a program.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
}

/// What a line tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "kebab-case")]
pub enum AuditEvent {
    /// A coordinator began to decide.
    Began {
        /// Its term: above 1 it carries on for one whose machine was lost, and whose log may have been lost with it.
        term: u64,
        /// The version of ckptd.
        version: String,
    },
    /// Somebody gave an order, which was taken up.
    Ordered {
        /// The order.
        order: Order,
    },
    /// It was refused, or failed, at once or later.
    Refused {
        /// The order.
        order: Order,
        /// Why, in one line.
        reason: String,
    },
    /// Orders were refused of which there is no line each: a member gave too many for users for whom it does not speak.
    LeftOut {
        /// The member.
        node: NodeName,
        /// How many orders.
        orders: u64,
    },
    /// A machine became a member.
    Joined {
        /// Its name.
        node: NodeName,
        /// The fingerprint of its key; in lines of before, of its certificate.
        #[serde(alias = "certificate")]
        key: String,
    },
    /// The cluster got a new authority. Tokens of before are worth nothing, and members get new certificates.
    Exchanged {
        /// The fingerprint of the new one.
        authority: String,
    },
}
crate::tagged!(AuditEvent, "what");

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditLine {
    /// Which line it is: 1 for the first.
    pub number: u64,
    /// Milliseconds since 1970 UTC, by the coordinator's clock.
    pub at_ms: u64,
    /// What happened.
    pub event: AuditEvent,
    /// The hash of the line before, in hexadecimal digits; that of nothing for the first.
    pub before: String,
}

/// Where a chain of lines stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    number: u64,
    head: String,
}

impl Default for Chain {
    /// The chain without lines.
    fn default() -> Self {
        Self { number: 0, head: hash("") }
    }
}

/// What is wrong with a chain; the text fits after "failed to read the audit log: ".
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChainError {
    /// It is none of ours.
    #[error("line {0} can't be read")]
    Unreadable(u64),
    /// The line before is not the one that it was written after.
    #[error("line {0} does not follow the one before it: lines were changed, taken out or put in")]
    Broken(u64),
}

impl Chain {
    /// Lines so far.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.number
    }

    /// The hash of the last line, in hexadecimal digits.
    #[must_use]
    pub fn head(&self) -> &str {
        &self.head
    }

    /// The next line, without a newline; the chain goes on behind it.
    ///
    /// # Errors
    /// None is known: all of an event can be written.
    pub fn add(&mut self, at_ms: u64, event: AuditEvent) -> serde_json::Result<String> {
        let number = self.number + 1;
        let line = AuditLine { number, at_ms, event, before: self.head.clone() };
        let text = serde_json::to_string(&line)?;
        *self = Self { number, head: hash(&text) };
        Ok(text)
    }

    /// Goes on behind a line that does not follow, so that those that come after it at least follow it.
    pub fn begin_behind(&mut self, text: &str) {
        *self = Self { number: self.number + 1, head: hash(text) };
    }

    /// Takes a line as the next one, if it is.
    ///
    /// # Errors
    /// It is not.
    pub fn follow(&mut self, text: &str) -> Result<AuditLine, ChainError> {
        let number = self.number + 1;
        let unreadable = || ChainError::Unreadable(number);
        let line: AuditLine = match text.len() <= MAX_LINE {
            true => crate::json::read(text.as_bytes()).map_err(|_| unreadable())?,
            false => return Err(unreadable()),
        };
        if line.number != number || line.before != self.head {
            return Err(ChainError::Broken(number));
        }
        *self = Self { number, head: hash(text) };
        Ok(line)
    }
}

/// A text from outside, as much of it as a line takes.
#[must_use]
pub fn short(text: &str) -> String {
    if text.len() <= MAX_TEXT {
        return text.to_owned();
    }
    let fits = |(at, character): &(usize, char)| at + character.len_utf8() <= MAX_TEXT;
    text.char_indices()
        .take_while(fits)
        .map(|(_, character)| character)
        .chain("...".chars())
        .collect()
}

fn hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(user: &str) -> Order {
        Order {
            user: user.to_owned(),
            through: Some("a".parse().unwrap()),
            account: String::new(),
            page: String::new(),
            operator: false,
            order: "stop".to_owned(),
            about: "queens".to_owned(),
        }
    }

    fn stop(user: &str) -> AuditEvent {
        AuditEvent::Ordered { order: order(user) }
    }

    fn log() -> Vec<String> {
        let mut chain = Chain::default();
        let began = AuditEvent::Began { term: 1, version: "0".to_owned() };
        let refused = AuditEvent::Refused { order: order("eve"), reason: "no".to_owned() };
        [began, stop("alice"), refused].map(|event| chain.add(7, event).unwrap()).to_vec()
    }

    fn read(lines: &[String]) -> Result<Vec<AuditLine>, ChainError> {
        let mut chain = Chain::default();
        lines.iter().map(|line| chain.follow(line)).collect()
    }

    #[test]
    fn a_log_is_read_as_it_was_written() {
        let lines = read(&log()).unwrap();
        assert_eq!(lines[1].event, stop("alice"));
        assert!(
            matches!(&lines[2].event, AuditEvent::Refused { order, .. } if order.user == "eve")
        );
    }

    #[test]
    fn whatever_is_changed_is_found() {
        let whole = log();
        let mut changed = whole.clone();
        changed[1] = changed[1].replace("alice", "bob");
        assert_eq!(read(&changed), Err(ChainError::Broken(3)));
        let without = [whole[0].clone(), whole[2].clone()];
        assert_eq!(read(&without), Err(ChainError::Broken(2)));
        let twice = [whole[0].clone(), whole[0].clone()];
        assert_eq!(read(&twice), Err(ChainError::Broken(2)));
        assert_eq!(read(&["{}".to_owned()]), Err(ChainError::Unreadable(1)));
    }

    #[test]
    fn the_worst_texts_from_outside_make_a_line_that_can_be_read() {
        let worst = short(&"\u{1}".repeat(2 * MAX_TEXT));
        let order = Order {
            user: worst.clone(),
            account: worst.clone(),
            page: worst.clone(),
            about: worst.clone(),
            ..order("")
        };
        let event = AuditEvent::Refused { order, reason: worst };
        let line = Chain::default().add(u64::MAX, event.clone()).unwrap();
        assert_eq!(Chain::default().follow(&line).unwrap().event, event);
    }

    #[test]
    fn texts_from_outside_are_short() {
        assert_eq!(short("x"), "x");
        let long = short(&"ü".repeat(MAX_TEXT));
        assert!(long.ends_with("ü...") && long.len() <= MAX_TEXT + 3, "{long}");
    }
}
