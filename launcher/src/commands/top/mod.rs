//! `ckptd top`: nodes, jobs, their processes, and what happens to them, live.
//!
//! - `data`: what is shown, from the listings of the cluster or of this machine.
//! - `draw`: a picture of it; pure.
//! - `screen`: the user's terminal, given back on every path.

mod data;
mod draw;
mod screen;

use super::{Context, print};
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use data::{Picture, Source};
use draw::View;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use screen::Screen;
use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How long a key may wait.
const KEY_LIMIT: Duration = Duration::from_millis(100);

/// The exit status; that of a signal if one came.
pub fn perform(context: &Context, every: Duration) -> Result<u8, Failure> {
    let source = Source::find(context)?;
    if !(std::io::stdout().is_terminal() && std::io::stdin().is_terminal()) {
        let picture = source.look(context)?;
        print(&draw::plain(&View::of(picture))?)?;
        return Ok(0);
    }
    // Before there is a second thread.
    let mut interrupts = Interrupts::hold()?;
    let (sender, pictures) = channel();
    let (end, ended) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| look_often(&source, context, every, &sender, ended));
        let result = Screen::open().and_then(|screen| show(screen, &pictures, &mut interrupts));
        // An answer that never comes is not waited for: the process ends.
        drop(end);
        match result {
            Ok(status) => std::process::exit(status.into()),
            Err(error) => Err(Failure::of("draw on the terminal", error)),
        }
    })
}

/// Looks at once and then again and again, until the other side is gone.
fn look_often(
    source: &Source,
    context: &Context,
    every: Duration,
    pictures: &Sender<Result<Picture, String>>,
    ended: Receiver<()>,
) {
    loop {
        let looked = source.look(context).map_err(|failure| failure.to_string());
        if pictures.send(looked).is_err() {
            return;
        }
        if ended.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

fn show(
    mut screen: Screen,
    pictures: &Receiver<Result<Picture, String>>,
    interrupts: &mut Interrupts,
) -> std::io::Result<u8> {
    let mut view = View::default();
    loop {
        for looked in pictures.try_iter() {
            match looked {
                Ok(picture) => view.show(picture),
                Err(problem) => view.problem = Some(problem),
            }
        }
        screen.draw(&view)?;
        if let Some(signal) = interrupts.came() {
            return Ok(128 + signal);
        }
        if !event::poll(KEY_LIMIT)? {
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Ok(0),
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(0),
            KeyCode::Down | KeyCode::Char('j') => view.select(1),
            KeyCode::Up | KeyCode::Char('k') => view.select(-1),
            _ => {}
        }
    }
}
