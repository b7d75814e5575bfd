//! What of a picture is looked at, and what keys do to that. Pure.

use super::columns::{Column, JOBS, NODES, PROCESSES};
use super::data::Picture;
use crate::cluster::listing::{list, word};
use serde_json::Value;

/// The longest filter, in characters.
const LONGEST_FILTER: usize = 60;

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Up,
    Down,
    First,
    Last,
    /// Tab.
    Table,
    Enter,
    Escape,
    /// Backspace.
    Erase,
    Letter(char),
    /// Ctrl-C.
    End,
}

/// What a key asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Stay,
    Quit,
    Do(Deed),
}

/// Something that is done to the cluster or to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    /// A checkpoint of a job is taken now.
    Checkpoint { job: String },
    /// A member is about to go.
    Leave { node: String },
}

/// The tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    Nodes,
    Jobs,
    Processes,
}

impl Table {
    /// What it shows of each item.
    pub fn columns(self) -> &'static [Column] {
        match self {
            Self::Nodes => NODES,
            Self::Jobs => JOBS,
            Self::Processes => PROCESSES,
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Jobs => Self::Processes,
            Self::Processes => Self::Nodes,
            Self::Nodes => Self::Jobs,
        }
    }

    /// What makes an item the same in the next picture.
    fn identity(self, item: &Value) -> String {
        match self {
            Self::Nodes => word(item, "name"),
            Self::Jobs => name_of(item),
            Self::Processes => word(item, "pid"),
        }
    }
}

/// The name by which a job is told from all others.
fn name_of(job: &Value) -> String {
    let key = if job["id"].is_string() { "id" } else { "name" };
    word(job, key)
}

/// How a table is looked at.
#[derive(Debug, Clone, Default)]
pub struct Look {
    /// The item that is selected.
    selected: Option<String>,
    /// The column that it is sorted by; `None`: as listed.
    pub sorted_by: Option<usize>,
    /// From the last to the first.
    pub reversed: bool,
    /// What a row has to have in it.
    pub filter: String,
}

/// What keys mean.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Tables,
    /// A filter is typed.
    Filter,
    /// Whether it is meant is asked.
    Asked(Deed),
    /// All about one item, from that line on.
    Details(u16),
}

/// What is drawn.
#[derive(Debug, Clone)]
pub struct View {
    picture: Option<Picture>,
    /// Why there is no newer picture.
    pub problem: Option<String>,
    looks: [Look; 3],
    /// The table that keys are about.
    pub table: Table,
    /// What keys mean.
    pub mode: Mode,
    /// What something that was done has come to.
    pub said: Option<String>,
}

impl Default for View {
    fn default() -> Self {
        Self {
            picture: None,
            problem: None,
            looks: <[Look; 3]>::default(),
            table: Table::Jobs,
            mode: Mode::default(),
            said: None,
        }
    }
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
    }

    /// The newest picture.
    pub fn picture(&self) -> Option<&Picture> {
        self.picture.as_ref()
    }

    /// How a table is looked at.
    pub fn look(&self, table: Table) -> &Look {
        &self.looks[table as usize]
    }

    fn look_mut(&mut self) -> &mut Look {
        &mut self.looks[self.table as usize]
    }

    /// All that a table could show.
    fn all(&self, table: Table) -> &[Value] {
        let Some(picture) = &self.picture else { return &[] };
        match table {
            Table::Nodes => &picture.nodes,
            Table::Jobs => &picture.jobs,
            Table::Processes => self.job().map_or(&[], |job| list(job, "processes")),
        }
    }

    /// What a table shows, in this order.
    pub fn shown(&self, table: Table) -> Vec<&Value> {
        let look = self.look(table);
        let wanted = look.filter.to_lowercase();
        let has_it = |item: &&Value| {
            let mut cells = table.columns().iter().map(|column| (column.cell)(item));
            wanted.is_empty() || cells.any(|cell| cell.to_lowercase().contains(&wanted))
        };
        let mut items: Vec<&Value> = self.all(table).iter().filter(has_it).collect();
        if let Some(column) = look.sorted_by.and_then(|by| table.columns().get(by)) {
            items.sort_by(|a, b| (column.rank)(a).order(&(column.rank)(b)));
        }
        if look.reversed {
            items.reverse();
        }
        items
    }

    /// Which of the items that a table shows is selected: the first one where that one is gone.
    pub fn selected(&self, table: Table) -> Option<usize> {
        let shown = self.shown(table);
        let wanted = self.look(table).selected.as_ref();
        let found = shown.iter().position(|item| Some(&table.identity(item)) == wanted);
        found.or((!shown.is_empty()).then_some(0))
    }

    /// The item that is selected in a table.
    pub fn item(&self, table: Table) -> Option<&Value> {
        self.shown(table).get(self.selected(table)?).copied()
    }

    /// The job that is looked at.
    pub fn job(&self) -> Option<&Value> {
        self.item(Table::Jobs)
    }

    /// What a key does.
    pub fn press(&mut self, key: Key) -> Step {
        if key == Key::End {
            return Step::Quit;
        }
        match std::mem::take(&mut self.mode) {
            Mode::Tables => return self.press_in_tables(key),
            Mode::Filter => self.press_in_filter(key),
            Mode::Asked(deed) => {
                if matches!(key, Key::Letter('y' | 'Y')) {
                    return Step::Do(deed);
                }
                self.said = Some("nothing was done".to_owned());
            }
            Mode::Details(line) => match key {
                Key::Down | Key::Letter('j') => self.mode = Mode::Details(line.saturating_add(1)),
                Key::Up | Key::Letter('k') => self.mode = Mode::Details(line.saturating_sub(1)),
                Key::First => self.mode = Mode::Details(0),
                // Back to the tables.
                Key::Escape | Key::Enter | Key::Letter('q' | 'd') => {}
                _ => self.mode = Mode::Details(line),
            },
        }
        Step::Stay
    }

    fn press_in_tables(&mut self, key: Key) -> Step {
        self.said = None;
        match key {
            Key::Letter('q') => return Step::Quit,
            Key::Escape if self.look(self.table).filter.is_empty() => return Step::Quit,
            Key::Escape => self.look_mut().filter.clear(),
            Key::Down | Key::Letter('j') => self.select(1),
            Key::Up | Key::Letter('k') => self.select(-1),
            Key::First => self.select(isize::MIN),
            Key::Last => self.select(isize::MAX),
            Key::Table => self.table = self.table.next(),
            Key::Letter('s') => self.sort(),
            Key::Letter('r') => self.look_mut().reversed ^= true,
            Key::Letter('/') => self.mode = Mode::Filter,
            Key::Enter | Key::Letter('d') if self.item(self.table).is_some() => {
                self.mode = Mode::Details(0);
            }
            Key::Letter('c') => match self.job().map(name_of) {
                Some(job) => return Step::Do(Deed::Checkpoint { job }),
                None => self.said = Some("there is no job".to_owned()),
            },
            Key::Letter('l') => match self.item(Table::Nodes) {
                Some(node) if self.table == Table::Nodes => {
                    self.mode = Mode::Asked(Deed::Leave { node: word(node, "name") });
                }
                _ => {
                    self.said =
                        Some("Tab leads to the nodes; select one that is to leave".to_owned())
                }
            },
            _ => {}
        }
        Step::Stay
    }

    fn press_in_filter(&mut self, key: Key) {
        let filter = &mut self.look_mut().filter;
        match key {
            Key::Enter => return,
            Key::Escape => return filter.clear(),
            Key::Erase => drop(filter.pop()),
            Key::Letter(letter) if filter.chars().count() < LONGEST_FILTER => filter.push(letter),
            _ => {}
        }
        self.mode = Mode::Filter;
    }

    /// Another item of the table.
    fn select(&mut self, by: isize) {
        let shown = self.shown(self.table);
        let at = self.selected(self.table).unwrap_or(0).saturating_add_signed(by);
        let item = shown.get(at.min(shown.len().saturating_sub(1)));
        let identity = item.map(|item| self.table.identity(item));
        self.look_mut().selected = identity;
    }

    /// By the next column.
    fn sort(&mut self) {
        let columns = self.table.columns().len();
        let look = self.look_mut();
        look.sorted_by = match look.sorted_by {
            None => Some(0),
            Some(by) if by + 1 < columns => Some(by + 1),
            Some(_) => None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn view() -> View {
        let nodes = vec![
            json!({"name": "a", "load": 2.5}),
            json!({"name": "b", "load": 0.25}),
            json!({"name": "c"}),
        ];
        let jobs =
            vec![json!({"id": "fold-1", "name": "fold"}), json!({"id": "fold-2", "name": "fold"})];
        View::of(Picture { title: "cluster".into(), nodes, jobs })
    }

    fn names(view: &View, table: Table) -> Vec<String> {
        view.shown(table).into_iter().map(|item| table.identity(item)).collect()
    }

    fn press(view: &mut View, keys: &str) -> Step {
        keys.chars().map(|key| view.press(Key::Letter(key))).last().unwrap_or(Step::Stay)
    }

    #[test]
    fn a_checkpoint_is_of_the_job_that_is_selected() {
        let mut view = view();
        view.press(Key::Down);
        let job = "fold-2".to_owned();
        assert_eq!(press(&mut view, "c"), Step::Do(Deed::Checkpoint { job: job.clone() }));
        // Also while its processes are looked at, and when it stands elsewhere.
        view.press(Key::Table);
        view.show(Picture { jobs: vec![json!({"id": job, "name": "fold"})], ..Picture::default() });
        assert_eq!(press(&mut view, "c"), Step::Do(Deed::Checkpoint { job }));
        view.show(Picture::default());
        assert_eq!((press(&mut view, "c"), view.said.is_some()), (Step::Stay, true));
    }

    #[test]
    fn a_departure_is_asked_about() {
        let mut view = view();
        // Of what is not in sight nobody means the selected one.
        assert_eq!((press(&mut view, "l"), &view.mode), (Step::Stay, &Mode::Tables));
        view.press(Key::Table);
        view.press(Key::Table);
        view.press(Key::Last);
        assert_eq!(press(&mut view, "ln"), Step::Stay);
        assert_eq!(view.said.as_deref(), Some("nothing was done"));
        assert_eq!(press(&mut view, "ly"), Step::Do(Deed::Leave { node: "c".to_owned() }));
        assert_eq!(view.mode, Mode::Tables);
    }

    #[test]
    fn what_has_no_number_comes_last() {
        let mut view = view();
        view.press(Key::Table);
        view.press(Key::Table);
        let load = NODES.iter().position(|column| column.heading == "LOAD").unwrap();
        for _ in 0..=load {
            press(&mut view, "s");
        }
        assert_eq!(names(&view, Table::Nodes), ["b", "a", "c"]);
        for _ in load..NODES.len() - 1 {
            press(&mut view, "s");
        }
        press(&mut view, "s");
        assert_eq!(names(&view, Table::Nodes), ["a", "b", "c"]);
    }

    #[test]
    fn a_filter_is_kept_or_dropped() {
        let mut view = view();
        view.press(Key::Table);
        view.press(Key::Table);
        // Letters that are keys elsewhere are letters here.
        press(&mut view, "/qb");
        view.press(Key::Erase);
        view.press(Key::Erase);
        press(&mut view, "B");
        view.press(Key::Enter);
        assert_eq!(names(&view, Table::Nodes), ["b"]);
        assert_eq!(view.press(Key::Escape), Step::Stay);
        assert_eq!(names(&view, Table::Nodes), ["a", "b", "c"]);
        press(&mut view, &format!("/{}", "x".repeat(200)));
        assert_eq!(view.look(Table::Nodes).filter.len(), LONGEST_FILTER);
        view.press(Key::Escape);
        assert_eq!(view.press(Key::Escape), Step::Quit);
        assert_eq!(view.press(Key::End), Step::Quit);
    }
}
