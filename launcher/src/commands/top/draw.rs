//! A picture, drawn.

use super::data::Picture;
use crate::cluster::listing::{self, age, decimals, list, number, word};
use crate::text;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table};
use ratatui::{Frame, Terminal};
use serde_json::Value;

/// Columns of a frame that goes into a file or pipe.
const PLAIN_WIDTH: u16 = 120;
/// The most lines of one.
const PLAIN_HEIGHT: usize = 500;
/// Checkpoints and moves shown of a job.
const EVENTS: usize = 50;

/// What is drawn.
#[derive(Debug, Clone, Default)]
pub struct View {
    picture: Option<Picture>,
    /// Why there is no newer picture.
    pub problem: Option<String>,
    selected: usize,
}

impl View {
    /// Of this picture.
    pub fn of(picture: Picture) -> Self {
        Self { picture: Some(picture), ..Self::default() }
    }

    /// A newer picture.
    pub fn show(&mut self, picture: Picture) {
        self.picture = Some(picture);
        self.problem = None;
        self.select(0);
    }

    /// Another job: the next one, or the one before.
    pub fn select(&mut self, by: isize) {
        let jobs = self.picture.as_ref().map_or(0, |picture| picture.jobs.len());
        let wanted = self.selected.saturating_add_signed(by);
        self.selected = wanted.min(jobs.saturating_sub(1));
    }

    fn job(&self) -> Option<&Value> {
        self.picture.as_ref()?.jobs.get(self.selected)
    }
}

/// The whole picture as text, for a file or pipe.
///
/// # Errors
/// None: what is drawn on is memory.
pub fn plain(view: &View) -> std::io::Result<String> {
    let picture = view.picture.clone().unwrap_or_default();
    let job = view.job();
    let processes = job.map_or(0, |job| list(job, "processes").len());
    let events = job.map_or(0, |job| events(job).len());
    // A frame and a heading for each of the four tables, and the two lines around.
    let rows = picture.nodes.len() + picture.jobs.len() + processes.max(1) + events.max(1);
    let height = (rows + 4 * 3 + 2).min(PLAIN_HEIGHT) as u16;
    let mut terminal = Terminal::new(TestBackend::new(PLAIN_WIDTH, height))?;
    terminal.draw(|frame| draw(frame, view))?;
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
    let empty = Picture::default();
    let picture = view.picture.as_ref().unwrap_or(&empty);
    let height = |rows: usize| Constraint::Max(u16::try_from(rows + 3).unwrap_or(u16::MAX));
    let job = view.job();
    let events = job.map(events).unwrap_or_default();
    let [title, nodes, jobs, processes, happened, foot] = Layout::vertical([
        Constraint::Length(1),
        height(picture.nodes.len()),
        height(picture.jobs.len()),
        Constraint::Min(4),
        height(events.len().clamp(1, EVENTS)),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(heading(view, picture)), title);
    draw_nodes(frame, nodes, &picture.nodes);
    draw_jobs(frame, jobs, picture, view.selected);
    draw_processes(frame, processes, job);
    let happened_title = job.map_or(String::new(), |job| format!(" of {}", word(job, "name")));
    let lines: Vec<Line<'_>> = events.into_iter().map(Line::from).collect();
    let block = framed(format!("checkpoints and moves{happened_title}"));
    frame.render_widget(Paragraph::new(lines).block(block), happened);
    let foot_text = "q quit   up/down another job";
    frame.render_widget(Paragraph::new(foot_text).style(Style::new().dim()), foot);
}

fn heading<'a>(view: &'a View, picture: &'a Picture) -> Line<'a> {
    let running = picture.jobs.iter().filter(|job| word(job, "state") == "running").count();
    let nodes = text::count(picture.nodes.len() as u64, "node");
    let mut spans = vec![
        Span::styled("ckptd top", Style::new().add_modifier(Modifier::BOLD)),
        format!(" - {}: {nodes}, {} running", picture.title, text::count(running as u64, "job"))
            .into(),
    ];
    if view.picture.is_none() {
        spans = vec!["ckptd top: looking ...".into()];
    }
    let attention = attention(picture);
    if attention > 0 {
        let text = format!("  {attention} to look after: see 'ckptd status'");
        spans.push(Span::styled(text, Style::new().fg(Color::Yellow)));
    }
    if let Some(problem) = &view.problem {
        let text = format!("  ({problem})");
        spans.push(Span::styled(text, Style::new().fg(Color::Red)));
    }
    Line::from(spans)
}

/// How much of the cluster somebody should look after. Jobs tell all of it, nodes what concerns them.
fn attention(picture: &Picture) -> usize {
    let of_nodes = picture.nodes.iter().map(|node| list(node, "attention").len()).sum::<usize>();
    let of_jobs = picture.jobs.iter().map(|job| list(job, "attention").len()).max();
    of_nodes.max(of_jobs.unwrap_or(0))
}

fn framed(title: impl Into<String>) -> Block<'static> {
    Block::new().borders(Borders::TOP).title(format!(" {} ", title.into()))
}

fn table(
    frame: &mut Frame<'_>,
    area: Rect,
    title: impl Into<String>,
    heading: &[&'static str],
    rows: Vec<(Vec<String>, Style)>,
) {
    let width = |column: usize| {
        let cells =
            rows.iter().map(|(cells, _)| cells.get(column).map_or(0, |c| c.chars().count()));
        cells.chain([heading[column].len()]).max().unwrap_or(0)
    };
    let last = heading.len() - 1;
    let widths: Vec<Constraint> = (0..=last)
        .map(|column| match column == last {
            true => Constraint::Fill(1),
            false => Constraint::Length(u16::try_from(width(column).min(40)).unwrap_or(40)),
        })
        .collect();
    let rows: Vec<Row<'_>> = rows
        .into_iter()
        .map(|(cells, style)| Row::new(cells.into_iter().map(Cell::from)).style(style))
        .collect();
    let heading = Row::new(heading.iter().copied()).style(Style::new().dim());
    let table = Table::new(rows, widths).header(heading).column_spacing(2).block(framed(title));
    frame.render_widget(table, area);
}

fn draw_nodes(frame: &mut Frame<'_>, area: Rect, nodes: &[Value]) {
    let heading = ["NODE", "STATE", "SLOTS", "CORES", "SPEED", "LOAD", "BATTERY", "HEARD", "RUNS"];
    let row = |node: &Value| {
        let style = match word(node, "state").as_str() {
            "alive" => Style::new().fg(Color::Green),
            "gone" => Style::new().fg(Color::Red),
            _ => Style::new().fg(Color::Yellow),
        };
        let heard =
            number(node, "heard_ms").map_or("-".to_owned(), |ms| format!("{} s", ms / 1000));
        let cells = vec![
            word(node, "name"),
            listing::node_state(node),
            word(node, "slots"),
            word(node, "cores"),
            decimals(node, "speed"),
            decimals(node, "load"),
            listing::battery(node),
            heard,
            listing::words(node, "instances"),
        ];
        (cells, style)
    };
    table(frame, area, "nodes", &heading, nodes.iter().map(row).collect());
}

fn draw_jobs(frame: &mut Frame<'_>, area: Rect, picture: &Picture, selected: usize) {
    let heading =
        ["JOB", "STATE", "AGE", "PROCESSES", "CHECKPOINT", "ITS AGE", "PAUSE", "NEXT", "COMMAND"];
    let row = |(index, job): (usize, &Value)| {
        let live = job.get("live").unwrap_or(&Value::Null);
        let newest = list(job, "checkpoints").last().unwrap_or(&Value::Null);
        let flight = live.get("in_flight").unwrap_or(&Value::Null);
        let next = match (number(flight, "checkpoint"), number(live, "next_checkpoint_ms")) {
            (Some(checkpoint), _) => format!("{checkpoint}: {}", word(flight, "step")),
            (None, Some(ms)) => format!("in {} s", ms.div_ceil(1000)),
            (None, None) => "-".to_owned(),
        };
        let held = list(live, "held");
        let state = match held {
            [] => listing::state(job),
            _ => format!("held for {}", listing::words(live, "held")),
        };
        let cells = vec![
            word(job, "name"),
            state,
            age(job, "started_at_ms"),
            word(live, "processes"),
            word(newest, "checkpoint"),
            age(newest, "taken_at_ms"),
            number(newest, "pause_us").map_or("-".to_owned(), text::micros),
            next,
            listing::command(job),
        ];
        let style = match index == selected && picture.jobs.len() > 1 {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Style::new(),
        };
        (cells, style)
    };
    table(frame, area, "jobs", &heading, picture.jobs.iter().enumerate().map(row).collect());
}

fn draw_processes(frame: &mut Frame<'_>, area: Rect, job: Option<&Value>) {
    let heading = ["PID", "PROCESS", "NODE", "HOME", "WHY"];
    let row = |process: &Value| {
        let moved =
            process.get("why").and_then(Value::as_str).is_some_and(|w| w.starts_with("moved"));
        let style = if moved { Style::new().fg(Color::Yellow) } else { Style::new() };
        (["pid", "name", "node", "home", "why"].map(|key| word(process, key)).to_vec(), style)
    };
    let rows = job.map_or(Vec::new(), |job| list(job, "processes").iter().map(row).collect());
    let title = job.map_or(String::new(), |job| format!(" of {}", word(job, "name")));
    table(frame, area, format!("processes{title}"), &heading, rows);
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

    #[test]
    fn the_other_job_is_one_key_away() {
        let mut view = View::of(picture());
        view.select(1);
        let text = plain(&view).unwrap();
        assert!(text.contains("processes of fold") && !text.contains("orted"), "{text}");
        view.select(5);
        view.select(-9);
        assert!(plain(&view).unwrap().contains("processes of queens"));
        view.select(1);
        view.show(Picture { jobs: Vec::new(), ..picture() });
        assert!(view.job().is_none());
        plain(&view).unwrap();
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
        let mut terminal = Terminal::new(TestBackend::new(120, 24)).unwrap();
        terminal.draw(|frame| draw(frame, &views[2])).unwrap();
        let top: String = (0..120).map(|x| terminal.backend().buffer()[(x, 0)].symbol()).collect();
        assert!(top.contains("does not answer"), "{top}");
    }
}
