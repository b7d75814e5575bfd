//! The user's terminal while `top` runs.

use super::draw::draw;
use super::view::View;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use std::io::{self, Stdout};

/// The terminal in raw mode, on its second screen. Dropping it gives it back as it was.
pub struct Screen {
    // Before the terminal, which would only show the cursor again.
    _guard: Guard,
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = disable_raw_mode();
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    }
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// Where it refuses; it is as it was then.
    pub fn open() -> io::Result<Self> {
        enable_raw_mode()?;
        let guard = Guard;
        execute!(io::stdout(), EnterAlternateScreen)?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(Self { _guard: guard, terminal })
    }

    /// Shows it.
    ///
    /// # Errors
    /// Where the terminal is gone.
    pub fn draw(&mut self, view: &View) -> io::Result<()> {
        self.terminal.draw(|frame| draw(frame, view)).map(drop)
    }
}
