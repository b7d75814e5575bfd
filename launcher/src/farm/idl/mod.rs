//! Functions that a program in C calls as tasks of a farm: a subset of Ninf IDL describes them.
//!
//! - `words`: a text's words, each with its place.
//! - `parse`: the functions that they describe.
//! - `check`: what a description has to hold.
//! - `record`: what the C library reads of a function, in a folder of the user's.
//! - `stub`: the program that runs them, in C.

mod check;
mod parse;
mod record;
mod stub;
mod words;

pub use parse::parse;
pub use record::{default_folder, register};
pub use stub::stub;

use std::fmt;
use thiserror::Error;

/// The largest description, in bytes.
pub const MOST_BYTES: u64 = 1 << 20;
/// The most functions of a module.
const MOST_FUNCTIONS: usize = 1000;
/// The most arguments of a function. As in the C library.
const MOST_ARGUMENTS: usize = 64;
/// The most factors of an array's size. As in the C library.
const MOST_FACTORS: usize = 8;
/// The longest name. As in the C library.
const LONGEST_NAME: usize = 63;

/// Where something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    line: usize,
    column: usize,
}

/// What is wrong with a description, and where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}:{}: {reason}", place.line, place.column)]
pub struct IdlError {
    place: Place,
    reason: String,
}

impl IdlError {
    fn at(place: Place, reason: impl Into<String>) -> Self {
        Self { place, reason: reason.into() }
    }
}

/// A module: functions that one program runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// Its functions.
    pub functions: Vec<Function>,
}

/// A function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its name within the module.
    pub name: String,
    place: Place,
    /// What it takes.
    arguments: Vec<Argument>,
    /// The function in C.
    calls: String,
    /// What that takes, by its place among the arguments.
    passes: Vec<usize>,
}

/// An argument.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Argument {
    place: Place,
    name: String,
    mode: Mode,
    kind: Kind,
    /// `*` stands before its name.
    is_pointer: bool,
    /// What is multiplied to its number of elements; None: it is no array.
    size: Option<Vec<Factor>>,
}

impl Argument {
    /// Whether C has a pointer for it, other than of a string.
    fn is_by_pointer(&self) -> bool {
        self.is_pointer || self.size.is_some()
    }
}

/// Which way an argument goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    In,
    Out,
    InOut,
}

impl fmt::Display for Mode {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::In => "in",
            Self::Out => "out",
            Self::InOut => "inout",
        })
    }
}

/// What an argument, or each element of it, is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Char,
    Short,
    Int,
    Long,
    Float,
    Double,
    String,
}

impl Kind {
    const ALL: [(&'static str, Self); 7] = [
        ("char", Self::Char),
        ("short", Self::Short),
        ("int", Self::Int),
        ("long", Self::Long),
        ("float", Self::Float),
        ("double", Self::Double),
        ("string", Self::String),
    ];

    fn of(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(name, _)| *name == word).map(|(_, kind)| *kind)
    }

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| *name)
    }

    fn counts(self) -> bool {
        matches!(self, Self::Short | Self::Int | Self::Long)
    }
}

/// A factor of an array's size.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Factor {
    Number(u32),
    Argument(Place, String),
}

impl fmt::Display for Factor {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(to, "{number}"),
            Self::Argument(_, name) => to.write_str(name),
        }
    }
}
