//! termios as the graph keeps it.

use serde::{Deserialize, Serialize};

/// struct termios2 (include/uapi/asm-generic/termbits.h).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modes {
    /// c_iflag
    pub input: u32,
    /// c_oflag
    pub output: u32,
    /// c_cflag
    pub control: u32,
    /// c_lflag
    pub local: u32,
    /// c_line: the line discipline.
    pub line: u8,
    /// c_cc
    pub characters: [u8; 19],
    /// c_ispeed, baud.
    pub input_speed: u32,
    /// c_ospeed, baud.
    pub output_speed: u32,
}

impl From<libc::termios2> for Modes {
    fn from(raw: libc::termios2) -> Self {
        Self {
            input: raw.c_iflag,
            output: raw.c_oflag,
            control: raw.c_cflag,
            local: raw.c_lflag,
            line: raw.c_line,
            characters: raw.c_cc,
            input_speed: raw.c_ispeed,
            output_speed: raw.c_ospeed,
        }
    }
}

impl From<&Modes> for libc::termios2 {
    fn from(modes: &Modes) -> Self {
        Self {
            c_iflag: modes.input,
            c_oflag: modes.output,
            c_cflag: modes.control,
            c_lflag: modes.local,
            c_line: modes.line,
            c_cc: modes.characters,
            c_ispeed: modes.input_speed,
            c_ospeed: modes.output_speed,
        }
    }
}
