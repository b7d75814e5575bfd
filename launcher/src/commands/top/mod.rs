//! `ckptd top`: nodes, jobs, their processes, and what happens to them, live.
//!
//! - `data`: what is shown, from the listings of the cluster or of this machine.
//! - `view`: what of it is looked at, and what keys do; `columns`: those of its tables. Pure.
//! - `draw`: that, drawn; pure.
//! - `deeds`: what is done from it.
//! - `screen`: the user's terminal, given back on every path.

mod columns;
mod data;
mod deeds;
mod draw;
mod screen;
mod view;

use super::{Context, print};
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use data::{Picture, Source};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use screen::Screen;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use view::{Key, Step, View};

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
        let dir = context.asked_dir.as_deref();
        let result =
            Screen::open().and_then(|screen| show(screen, &pictures, dir, &mut interrupts));
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
    dir: Option<&Path>,
    interrupts: &mut Interrupts,
) -> std::io::Result<u8> {
    let mut view = View::default();
    let (tell, told) = channel();
    loop {
        for looked in pictures.try_iter() {
            match looked {
                Ok(picture) => view.show(picture),
                Err(problem) => view.problem = Some(problem),
            }
        }
        view.said = told.try_iter().last().or(view.said);
        screen.draw(&view)?;
        if let Some(signal) = interrupts.came() {
            return Ok(128 + signal);
        }
        if !event::poll(KEY_LIMIT)? {
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        let Some(key) = meant(key) else { continue };
        match view.press(key) {
            Step::Stay => {}
            Step::Quit => return Ok(0),
            Step::Do(deed) => {
                view.said = Some(match deed.begin(dir, interrupts, tell.clone()) {
                    Ok(()) => format!("{} ...", deed.name()),
                    Err(error) => format!("{}: {error}", deed.name()),
                });
            }
        }
    }
}

/// The key that was pressed, if it is one that means something.
fn meant(key: KeyEvent) -> Option<Key> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    Some(match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Key::End,
        KeyCode::Char(_) if key.modifiers.contains(KeyModifiers::CONTROL) => return None,
        KeyCode::Char(letter) => Key::Letter(letter),
        KeyCode::Down => Key::Down,
        KeyCode::Up => Key::Up,
        KeyCode::Home => Key::First,
        KeyCode::End => Key::Last,
        KeyCode::Tab => Key::Table,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Erase,
        _ => return None,
    })
}
