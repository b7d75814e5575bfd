//! A view, drawn.

use super::columns::Column;
use super::data::Picture;
use super::view::{Mode, Table, View};
use crate::cluster::listing::{self, list, number, word};
use crate::tables::printable;
use crate::text;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table as Grid, TableState, Wrap};
use ratatui::{Frame, Terminal};
use serde_json::Value;

/// Columns of a frame that goes into a file or pipe.
const PLAIN_WIDTH: u16 = 120;
/// The most lines of one.
const PLAIN_HEIGHT: usize = 500;
/// Checkpoints and moves shown of a job.
const EVENTS: usize = 50;
/// The widest column, but for the last one.
const WIDEST: usize = 40;
/// Between two columns.
const GAP: usize = 2;
/// What the last column has at least.
const LEAST_REST: usize = 8;

/// The whole picture as text, for a file or pipe.
///
/// # Errors
/// None: what is drawn on is memory.
pub fn plain(view: &View) -> std::io::Result<String> {
    let rows_of = |table| view.shown(table).len();
    let events = view.job().map_or(0, |job| events(job).len());
    // A frame and a heading for each of the four tables, and the line above.
    let rows = rows_of(Table::Nodes) + rows_of(Table::Jobs) + rows_of(Table::Processes).max(1);
    let height = (rows + events.max(1) + 4 * 3 + 1).min(PLAIN_HEIGHT) as u16;
    let mut terminal = Terminal::new(TestBackend::new(PLAIN_WIDTH, height))?;
    terminal.draw(|frame| draw_tables(frame, frame.area(), view, false))?;
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for y in 0..buffer.area.height {
        let line: String = (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    Ok(text)
}

/// Draws it, as far as there is room.
pub fn draw(frame: &mut Frame<'_>, view: &View) {
    let [above, foot] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(frame.area());
    match view.mode {
        Mode::Details(line) => draw_details(frame, above, view, line),
        _ => draw_tables(frame, above, view, true),
    }
    frame.render_widget(Paragraph::new(foot_of(view)), foot);
}

fn draw_tables(frame: &mut Frame<'_>, area: Rect, view: &View, with_keys: bool) {
    let height = |rows: usize| Constraint::Max(u16::try_from(rows + 3).unwrap_or(u16::MAX));
    let rows_of = |table| view.shown(table).len();
    let job = view.job();
    let events = job.map(events).unwrap_or_default();
    let [title, nodes, jobs, processes, happened] = Layout::vertical([
        Constraint::Length(1),
        height(rows_of(Table::Nodes)),
        height(rows_of(Table::Jobs)),
        Constraint::Min(4),
        height(events.len().clamp(1, EVENTS)),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(heading(view)), title);
    let of_job = job.map_or(String::new(), |job| format!(" of {}", word(job, "name")));
    for (table, area, name) in [
        (Table::Nodes, nodes, "nodes".to_owned()),
        (Table::Jobs, jobs, "jobs".to_owned()),
        (Table::Processes, processes, format!("processes{of_job}")),
    ] {
        draw_table(frame, area, view, table, name, with_keys);
    }
    let lines: Vec<Line<'_>> = events.into_iter().map(Line::from).collect();
    let block = framed(format!("checkpoints and moves{of_job}"), false);
    frame.render_widget(Paragraph::new(lines).block(block), happened);
}

/// What keys do, what is asked, or what something has come to.
fn foot_of(view: &View) -> Line<'static> {
    const KEYS: &str =
        "q quit  Tab table  s sort  r reverse  / filter  Enter details  c checkpoint";
    const KEYS_OF_NODES: &str =
        "q quit  Tab table  s sort  r reverse  / filter  Enter details  l leave";
    let strong = Style::new().add_modifier(Modifier::BOLD);
    match (&view.mode, &view.said) {
        (Mode::Filter, _) => {
            let filter = printable(&view.look(view.table).filter);
            Line::styled(format!("filter: {filter}_   Enter keeps it, Esc drops it"), strong)
        }
        (Mode::Asked { node }, _) => Line::styled(question(node), strong),
        (Mode::Details(_), _) => Line::from("Esc back  up/down scroll".dim()),
        (Mode::Tables, Some(said)) => Line::styled(said.clone(), strong),
        (Mode::Tables, None) if view.table == Table::Nodes => Line::from(KEYS_OF_NODES.dim()),
        (Mode::Tables, None) => Line::from(KEYS.dim()),
    }
}

/// Whether it is meant that a member goes.
fn question(node: &str) -> String {
    format!("{node} is about to go: what runs there moves away. Announce that? y/n")
}

/// All about one item.
fn draw_details(frame: &mut Frame<'_>, area: Rect, view: &View, line: u16) {
    let item = view.item(view.table);
    let (title, text) = match (view.table, item) {
        (_, None) => ("gone".to_owned(), String::new()),
        (Table::Jobs, Some(job)) => {
            (format!("job {}", word(job, "name")), listing::status(job, None))
        }
        (Table::Nodes, Some(node)) => (format!("node {}", word(node, "name")), fields(node)),
        (Table::Processes, Some(process)) => {
            (format!("process {}", word(process, "pid")), fields(process))
        }
    };
    let text = Paragraph::new(text).wrap(Wrap { trim: false }).scroll((line, 0));
    frame.render_widget(text.block(framed(title, true)), area);
}

/// What is known of something, a line for each.
fn fields(item: &Value) -> String {
    let Value::Object(all) = item else { return String::new() };
    let line = |(key, value): (&String, &Value)| {
        let value = match value {
            Value::Array(_) => listing::words(item, key),
            Value::Object(_) => printable(&value.to_string()),
            _ => word(item, key),
        };
        format!("{:<14}{value}\n", printable(key).replace('_', " "))
    };
    all.iter().filter(|(_, value)| !value.is_null()).map(line).collect()
}

fn heading(view: &View) -> Line<'_> {
    let problem = view.problem.as_ref().map(|problem| {
        Span::styled(format!("  ({})", printable(problem)), coloured(view, Some(Color::Red)))
    });
    let Some(picture) = view.picture() else {
        return Line::from_iter([Span::raw("ckptd top: looking ...")].into_iter().chain(problem));
    };
    let running = picture.jobs.iter().filter(|job| word(job, "state") == "running").count();
    let nodes = text::count(picture.nodes.len() as u64, "node");
    let mut spans = vec![
        Span::styled("ckptd top", Style::new().add_modifier(Modifier::BOLD)),
        format!(" - {}: {nodes}, {} running", picture.title, text::count(running as u64, "job"))
            .into(),
    ];
    let attention = attention(picture);
    if attention > 0 {
        let text = format!("  {attention} to look after: see 'ckptd status'");
        spans.push(Span::styled(text, coloured(view, Some(Color::Yellow))));
    }
    spans.extend(problem);
    Line::from(spans)
}

/// How much of the cluster somebody should look after. Jobs tell all of it, nodes what concerns them.
fn attention(picture: &Picture) -> usize {
    let of_nodes = picture.nodes.iter().map(|node| list(node, "attention").len()).sum::<usize>();
    let of_jobs = picture.jobs.iter().map(|job| list(job, "attention").len()).max();
    of_nodes.max(of_jobs.unwrap_or(0))
}

/// A line above, bold where keys are about what is below.
fn framed(title: impl Into<String>, has_keys: bool) -> Block<'static> {
    let title = format!(" {} ", title.into());
    let title = if has_keys { title.bold() } else { title.into() };
    Block::new().borders(Borders::TOP).title(title)
}

fn draw_table(
    frame: &mut Frame<'_>,
    area: Rect,
    view: &View,
    table: Table,
    name: String,
    with_keys: bool,
) {
    let (look, items) = (view.look(table), view.shown(table));
    let cells = |column: &Column| items.iter().map(|item| (column.cell)(item)).collect::<Vec<_>>();
    let heading = |at: usize, column: &Column| match look.sorted_by == Some(at) {
        true => {
            format!("{}{}", column.heading, if look.reversed { "v" } else { "^" })
        }
        false => column.heading.to_owned(),
    };
    let all = table.columns().iter().enumerate();
    let mut columns: Vec<Shown> = all
        .map(|(at, column)| Shown::of(heading(at, column), cells(column), column.dispensable))
        .collect();
    leave_out(&mut columns, usize::from(area.width));
    let last = columns.len().saturating_sub(1);
    let width = |(at, shown): (usize, &Shown)| match at == last {
        true => Constraint::Fill(1),
        false => Constraint::Length(u16::try_from(shown.width).unwrap_or(u16::MAX)),
    };
    let widths: Vec<Constraint> = columns.iter().enumerate().map(width).collect();
    let row = |(at, item): (usize, &&Value)| {
        let cells = columns.iter().map(|shown| Cell::from(shown.cells[at].clone()));
        Row::new(cells).style(coloured(view, colour_of(table, item)))
    };
    let rows: Vec<Row<'_>> = items.iter().enumerate().map(row).collect();
    let headings = Row::new(columns.iter().map(|shown| shown.heading.clone())).dim();
    let has_keys = with_keys && view.table == table;
    let name = match look.filter.as_str() {
        "" => name,
        filter => format!("{name} with \"{}\"", printable(filter)),
    };
    // The job that is looked at is shown where there are others, too.
    let is_shown = has_keys || (table == Table::Jobs && items.len() > 1);
    let grid = Grid::new(rows, widths).header(headings).column_spacing(GAP as u16);
    let grid = grid.block(framed(name, has_keys));
    let grid = grid.row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let selected = view.selected(table).filter(|_| is_shown && with_keys);
    let mut state = TableState::new().with_selected(selected);
    frame.render_stateful_widget(grid, area, &mut state);
}

/// A column as it is drawn.
struct Shown {
    heading: String,
    cells: Vec<String>,
    width: usize,
    dispensable: u8,
}

impl Shown {
    fn of(heading: String, cells: Vec<String>, dispensable: u8) -> Self {
        let widths = cells.iter().map(|cell| width_of(cell).min(WIDEST));
        let width = widths.max().unwrap_or(0).max(width_of(&heading));
        Self { heading, cells, width, dispensable }
    }
}

/// Columns of a terminal that a text takes.
fn width_of(text: &str) -> usize {
    Span::raw(text).width()
}

/// Leaves columns out until the others have room, with their whole headings; names are cut where that is not enough.
fn leave_out(columns: &mut Vec<Shown>, room: usize) {
    loop {
        let Some((last, others)) = columns.split_last() else { return };
        let rest = last.width.min(LEAST_REST.max(width_of(&last.heading)));
        let width = others.iter().map(|shown| shown.width + GAP).sum::<usize>() + rest;
        let missing = width.saturating_sub(room);
        let most = columns.iter().enumerate().max_by_key(|(_, shown)| shown.dispensable);
        match most.map(|(at, shown)| (at, shown.dispensable)) {
            _ if missing == 0 => return,
            Some((at, dispensable)) if dispensable > 0 => drop(columns.remove(at)),
            _ => {
                let names = &mut columns[0];
                names.width = names.width.saturating_sub(missing).max(LEAST_REST);
                return;
            }
        }
    }
}

fn colour_of(table: Table, item: &Value) -> Option<Color> {
    let moved = || item["why"].as_str().is_some_and(|why| why.starts_with("moved"));
    match (table, word(item, "state").as_str()) {
        (Table::Nodes, "alive") => Some(Color::Green),
        (Table::Nodes, "gone") => Some(Color::Red),
        (Table::Nodes, _) => Some(Color::Yellow),
        (Table::Processes, _) if moved() => Some(Color::Yellow),
        _ => None,
    }
}

/// With NO_COLOR, crossterm would write a reset for each colour, and with it end what is reversed.
fn coloured(view: &View, colour: Option<Color>) -> Style {
    colour.filter(|_| view.has_colours).map_or(Style::new(), |colour| Style::new().fg(colour))
}

/// What happened to a job, newest first.
fn events(job: &Value) -> Vec<String> {
    let now = text::now_ms();
    let mut events: Vec<(u64, String)> = Vec::new();
    for checkpoint in list(job, "checkpoints") {
        let summary = checkpoint.get("summary").unwrap_or(&Value::Null);
        let size = number(summary, "stored_bytes").map_or("-".to_owned(), text::size);
        let pause = number(checkpoint, "pause_us").map_or("-".to_owned(), text::micros);
        let at = number(checkpoint, "committed_at_ms").unwrap_or(now);
        let degraded = checkpoint.get("degraded").and_then(Value::as_bool) == Some(true);
        let copies = format!(
            "{} copies{}",
            word(checkpoint, "copies"),
            if degraded { ", degraded" } else { "" }
        );
        let number = word(checkpoint, "checkpoint");
        events.push((at, format!("checkpoint {number}: {size}, pause {pause}, {copies}")));
    }
    for rollback in list(job, "rollbacks") {
        let node = match rollback.get("node") {
            Some(Value::String(_)) => format!(" ({})", word(rollback, "node")),
            _ => String::new(),
        };
        let from = match number(rollback, "checkpoint") {
            Some(checkpoint) => format!("from checkpoint {checkpoint}"),
            None => "from the beginning".to_owned(),
        };
        let text = format!("moved: {}{node}, {from}", word(rollback, "reason"));
        // Since when it runs again; of one under way, since when it is known to be needed.
        let at = number(rollback, "running_ms").or_else(|| number(rollback, "declared_ms"));
        events.push((at.unwrap_or(now), text));
    }
    events.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    let mut lines: Vec<String> = events
        .into_iter()
        .take(EVENTS)
        .map(|(at, text)| format!("{:>8} ago  {text}", text::age(at, now)))
        .collect();
    if let Some(abandoned) = job.get("last_abandoned").filter(|found| !found.is_null()) {
        let (checkpoint, reason) = (word(abandoned, "checkpoint"), word(abandoned, "reason"));
        lines.push(format!("{:>12}  checkpoint {checkpoint} given up: {reason}", ""));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::view::Key;
    use super::*;
    use coordinator::End;
    use coordinator::cluster::entry::RollbackRecord;
    use protocol::agent::{CommitRecord, ExitKind, ImageSummary, InstanceId};
    use protocol::control::LiveStatus;
    use serde_json::json;

    /// Made of what the coordinator writes, so that no key is read that nobody writes.
    fn picture() -> Picture {
        let now = text::now_ms();
        let summary = ImageSummary {
            processes: 7,
            bytes: 1 << 20,
            stored_bytes: 1 << 19,
            ..Default::default()
        };
        let checkpoint = CommitRecord {
            format: CommitRecord::FORMAT,
            job: "queens-1".into(),
            checkpoint: 4,
            restored_from: None,
            taken_at_ms: now - 5000,
            committed_at_ms: now - 4000,
            pause_us: 12_000,
            log_length: 0,
            copies: 2,
            degraded: false,
            suspended: false,
            summary,
            agents: [InstanceId(1)].into_iter().collect(),
        };
        let lost = RollbackRecord {
            reason: "lost".into(),
            node: Some("c".parse().unwrap()),
            checkpoint: Some(3),
            lost_at_ms: now - 36_000,
            declared_ms: now - 33_000,
            running_ms: Some(now - 30_000),
            ..RollbackRecord::default()
        };
        let under_way = RollbackRecord {
            reason: "again".into(),
            declared_ms: now - 1_000,
            ..RollbackRecord::default()
        };
        let live = LiveStatus {
            launcher_pid: 0,
            processes: Some(7),
            interval_s: 30,
            next_checkpoint_ms: Some(25_000),
            in_flight: None,
            ending: false,
            rehearsal: None,
            suspended: false,
        };
        let end = End { at_ms: now, status: Some(ExitKind::Exited(3)), asked: false };
        let job = json!({
            "name": "queens", "state": "running", "command": ["mpirun", "./nqueens\u{1b}[31m"],
            "started_at_ms": now - 60_000,
            "live": live,
            "checkpoints": [checkpoint],
            "rollbacks": [lost, under_way],
            "processes": [
                {"pid": 3, "name": "orted", "node": "a", "home": "c", "why": "moved from c: c is gone"},
                {"pid": 2, "name": "mpirun", "node": "a", "home": "a", "why": "started here"},
            ],
        });
        let other = json!({"name": "fold", "state": "ended", "end": end});
        let nodes = vec![
            json!({"name": "a", "state": "alive", "slots": 2, "load": 0.5, "heard_ms": 900,
                   "instances": ["queens-1/1"]}),
            json!({"name": "c", "state": "gone", "drained": true, "battery": 12, "heard_ms": 31_000,
                   "attention": ["the disk of c is full"]}),
        ];
        Picture { title: "cluster".into(), nodes, jobs: vec![job, other] }
    }

    #[test]
    fn everything_is_in_the_picture() {
        let text = plain(&View::of(picture())).unwrap();
        for expected in [
            "cluster: 2 nodes, 1 job running  1 to look after: see 'ckptd status'",
            "gone, drained",
            "12 %",
            "31 s",
            "queens-1/1",
            "in 25 s",
            "mpirun ./nqueens?[31m",
            "moved from c: c is gone",
            "checkpoint 4: 512 KiB, pause 12 ms, 2 copies",
            "30 s ago  moved: lost (c), from checkpoint 3",
            " 1 s ago  moved: again, from the beginning",
            "ended (3)",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in\n{text}");
        }
        assert!(!text.contains('\u{1b}'));
    }

    fn screen(view: &View, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(line).collect()
    }

    #[test]
    fn the_other_job_is_one_key_away() {
        let mut view = View::of(picture());
        view.press(Key::Down);
        let text = plain(&view).unwrap();
        assert!(text.contains("processes of fold") && !text.contains("orted"), "{text}");
        for key in [Key::Down, Key::Down, Key::First] {
            view.press(key);
        }
        assert!(plain(&view).unwrap().contains("processes of queens"));
        view.press(Key::Down);
        view.show(Picture { jobs: Vec::new(), ..picture() });
        assert!(view.job().is_none());
        plain(&view).unwrap();
    }

    #[test]
    fn headings_are_whole_where_there_is_little_room() {
        let mut picture = picture();
        picture.jobs[0]["name"] = "a-job-with-a-rather-long-name".into();
        picture.nodes[0]["name"] = "a-member-with-a-rather-long-name".into();
        let all: Vec<&str> = [Table::Nodes, Table::Jobs, Table::Processes]
            .iter()
            .flat_map(|table| table.columns().iter().map(|column| column.heading))
            .collect();
        let view = View::of(picture);
        for width in [50, 60, 77, 80, 120, 200] {
            let lines = screen(&view, width, 40);
            let heads =
                |line: &&String| ["NODE ", "JOB ", "PID "].iter().any(|w| line.starts_with(w));
            let mut seen = 0;
            for line in lines.iter().filter(heads) {
                for heading in line.split("  ").map(str::trim).filter(|heading| !heading.is_empty())
                {
                    assert!(all.contains(&heading), "{heading:?} at {width} in {line:?}");
                    seen += 1;
                }
            }
            assert!(seen >= 12, "{seen} headings at {width}: {lines:#?}");
        }
        // A terminal of 80 columns has all keys.
        assert!(screen(&view, 77, 33)[32].trim_end().ends_with("c checkpoint"));
    }

    #[test]
    fn sorted_filtered_and_in_detail() {
        let mut view = View::of(picture());
        for key in [Key::Table, Key::Letter('s')] {
            view.press(key);
        }
        let at = |lines: &[String], word: &str| lines.iter().position(|line| line.contains(word));
        let sorted = screen(&view, 80, 33);
        assert!(at(&sorted, "PID^").is_some(), "{sorted:#?}");
        assert!(at(&sorted, "started here") < at(&sorted, "orted"), "{sorted:#?}");
        view.press(Key::Letter('r'));
        let reversed = screen(&view, 80, 33);
        assert!(at(&reversed, "started here") > at(&reversed, "orted"), "{reversed:#?}");
        for letter in "/ORT".chars() {
            view.press(Key::Letter(letter));
        }
        let typed = screen(&view, 80, 33);
        assert!(typed[32].starts_with("filter: ORT_") && at(&typed, "started here").is_none());
        view.press(Key::Enter);
        view.press(Key::Enter);
        let detail = screen(&view, 80, 33);
        assert!(at(&detail, "process 3").is_some() && at(&detail, "moved from c").is_some());
        assert!(at(&detail, "nodes").is_none(), "{detail:#?}");
        view.press(Key::Escape);
        assert!(at(&screen(&view, 80, 33), "with \"ORT\"").is_some());
    }

    #[test]
    fn any_size_and_no_data_will_do() {
        let mut views = vec![View::default(), View::of(Picture::default()), View::of(picture())];
        views[2].problem = Some("the coordinator does not answer".into());
        for view in &views {
            for (width, height) in [(1, 1), (20, 3), (80, 24), (300, 100)] {
                let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
                terminal.draw(|frame| draw(frame, view)).unwrap();
            }
        }
        let lines = screen(&views[2], 120, 24);
        assert!(lines[0].contains("does not answer"), "{}", lines[0]);
    }
}
