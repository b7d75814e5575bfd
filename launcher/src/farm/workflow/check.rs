//! What tasks of a workflow wait for, and what must not be. All of it is seen before anything is begun.

use super::WorkflowError;
use super::format::{Executed, Instance, Specified};
use super::names::shown;
use super::place::link_on_the_way;
use super::steps::Step;
use crate::farm::limits::MOST_TASKS;
use ckptd_farm::{BadGraph, Graph, MOST_EDGES, Task};
use std::collections::HashMap;
use std::path::{Component, Path};

/// The most pairs that are looked at: the same one may be among parents, children and files.
const MOST_PAIRS: usize = 4 * MOST_EDGES;

/// The longest id and name of a task, in bytes.
const LONGEST_NAME: usize = 1024;

/// A workflow that can be run: the first one of each is task 1.
#[derive(Debug, PartialEq, Eq)]
pub struct Checked {
    /// The commands, for the shell.
    pub commands: Vec<String>,
    /// All else.
    pub steps: Vec<Step>,
}

/// Checks a workflow that is run in that folder.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn check(instance: Instance, directory: &Path) -> Result<Checked, WorkflowError> {
    let all = instance.workflow.specification.tasks;
    if all.is_empty() {
        return Err(WorkflowError::Empty);
    }
    if all.len() > MOST_TASKS as usize {
        return Err(WorkflowError::TooMany(MOST_TASKS));
    }
    let is_long = |task: &&Specified| task.id.len().max(task.name.len()) > LONGEST_NAME;
    if let Some(task) = all.iter().find(is_long) {
        return Err(WorkflowError::LongName { id: shown(&task.id), most: LONGEST_NAME });
    }
    let numbers = numbers(&all)?;
    let commands = commands(&all, instance.workflow.execution.tasks)?;
    let mut outputs = Vec::with_capacity(all.len());
    for task in &all {
        let mut files = files(task, &task.output_files)?;
        files.sort_unstable();
        files.dedup();
        outputs.push(files);
    }
    links(&all, &outputs, directory)?;
    let mut edges = of_relatives(&all, &numbers)?;
    of_files(&all, &outputs, &mut edges)?;
    edges.sort_unstable();
    edges.dedup();
    let mut parents: Vec<Vec<u32>> = vec![Vec::new(); all.len()];
    for (parent, child) in &edges {
        parents[child.0 as usize - 1].push(parent.0);
    }
    Graph::new(all.len() as u32, edges).map_err(|bad| of_graph(&bad, &all))?;
    let steps = all.into_iter().zip(outputs).zip(parents);
    let steps = steps.map(|((task, outputs), parents)| Step {
        id: task.id,
        name: task.name,
        parents,
        outputs,
    });
    Ok(Checked { commands, steps: steps.collect() })
}

/// The number of each task, by its id.
fn numbers(all: &[Specified]) -> Result<HashMap<&str, Task>, WorkflowError> {
    let mut numbers = HashMap::with_capacity(all.len());
    for (number, task) in (1..).zip(all) {
        if numbers.insert(task.id.as_str(), Task(number)).is_some() {
            return Err(WorkflowError::SameId(shown(&task.id)));
        }
    }
    Ok(numbers)
}

fn commands(all: &[Specified], executed: Vec<Executed>) -> Result<Vec<String>, WorkflowError> {
    let known = executed.into_iter().filter_map(|task| Some((task.id, task.command?)));
    let known: HashMap<String, _> = known.collect();
    let command = |task: &Specified| match known.get(&task.id) {
        Some(command) if !command.program.trim().is_empty() => Ok(command.line()),
        _ => Err(WorkflowError::NoCommand(shown(&task.id))),
    };
    all.iter().map(command).collect()
}

/// Paths, each written in one way only.
fn files(task: &Specified, files: &[String]) -> Result<Vec<String>, WorkflowError> {
    let within = |file: &String| {
        let mut parts = Vec::new();
        for part in Path::new(file).components() {
            match part {
                Component::Normal(part) => parts.push(part.to_str()?),
                Component::CurDir => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
            }
        }
        (!parts.is_empty() && !file.contains('\0')).then(|| parts.join("/"))
    };
    let within = |file| {
        within(file)
            .ok_or_else(|| WorkflowError::Outside { task: shown(&task.id), file: shown(file) })
    };
    files.iter().map(within).collect()
}

/// Refuses links on the way to what is written, and those that lead to it in another way.
fn links(
    all: &[Specified],
    outputs: &[Vec<String>],
    directory: &Path,
) -> Result<(), WorkflowError> {
    let own = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let leads_back =
        |link: &str| directory.join(link).canonicalize().is_ok_and(|to| to.starts_with(&own));
    for (task, outputs) in all.iter().zip(outputs) {
        let written = outputs.iter().map(|file| (file.clone(), true));
        let read = files(task, &task.input_files)?.into_iter().map(|file| (file, false));
        for (file, is_written) in written.chain(read) {
            let Some(link) = link_on_the_way(directory, &file) else { continue };
            if is_written || leads_back(&link) {
                let (file, link) = (shown(&file), shown(&link));
                return Err(WorkflowError::Linked { task: shown(&task.id), file, link });
            }
        }
    }
    Ok(())
}

type Edges = Vec<(Task, Task)>;

fn add(edges: &mut Edges, parent: Task, child: Task) -> Result<(), WorkflowError> {
    edges.push((parent, child));
    match edges.len() {
        0..=MOST_PAIRS => Ok(()),
        _ => Err(WorkflowError::TooManyPairs(MOST_EDGES)),
    }
}

/// Who waits for whom as parents and children say it.
fn of_relatives(all: &[Specified], numbers: &HashMap<&str, Task>) -> Result<Edges, WorkflowError> {
    let mut edges = Vec::new();
    for (number, task) in (1..).zip(all) {
        for parent in &task.parents {
            let unknown =
                || WorkflowError::UnknownParent { task: shown(&task.id), parent: shown(parent) };
            let parent = *numbers.get(parent.as_str()).ok_or_else(unknown)?;
            add(&mut edges, parent, Task(number))?;
        }
        for child in &task.children {
            let unknown =
                || WorkflowError::UnknownChild { task: shown(&task.id), child: shown(child) };
            let child = *numbers.get(child.as_str()).ok_or_else(unknown)?;
            add(&mut edges, Task(number), child)?;
        }
    }
    Ok(edges)
}

/// Who waits for whom since it reads what that one writes.
fn of_files(
    all: &[Specified],
    outputs: &[Vec<String>],
    edges: &mut Edges,
) -> Result<(), WorkflowError> {
    let mut writers: HashMap<&str, Task> = HashMap::new();
    let id = |task: Task| shown(&all[task.0 as usize - 1].id);
    for (number, outputs) in (1..).zip(outputs) {
        for file in outputs {
            match writers.insert(file, Task(number)) {
                Some(first) if first != Task(number) => {
                    let (first, second) = (id(first), id(Task(number)));
                    return Err(WorkflowError::TwoWriters { file: shown(file), first, second });
                }
                _ => {}
            }
        }
    }
    for (number, task) in (1..).zip(all) {
        for file in files(task, &task.input_files)? {
            match writers.get(file.as_str()) {
                Some(writer) if writer.0 == number => {
                    let file = shown(&file);
                    return Err(WorkflowError::ReadsItsOutput { task: shown(&task.id), file });
                }
                Some(writer) => add(edges, *writer, Task(number))?,
                None => {}
            }
        }
    }
    Ok(())
}

fn of_graph(bad: &BadGraph, all: &[Specified]) -> WorkflowError {
    match bad {
        BadGraph::Cycle(tasks) => {
            let id = |task: &Task| all.get(task.0 as usize - 1).map(|task| shown(&task.id));
            let ids: Vec<String> = tasks.iter().filter_map(id).collect();
            WorkflowError::Cycle(ids.join(", "))
        }
        BadGraph::TooMany => WorkflowError::TooManyPairs(MOST_EDGES),
        BadGraph::Unknown(_) => WorkflowError::Format(bad.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::parse;
    use super::*;
    use serde_json::{Value, json};

    fn task(id: &str, parents: &[&str], inputs: &[&str], outputs: &[&str]) -> Value {
        json!({"id": id, "name": id, "parents": parents, "children": [], "inputFiles": inputs,
            "outputFiles": outputs})
    }

    fn checked(tasks: &[Value]) -> Result<Checked, WorkflowError> {
        let executed: Vec<Value> = tasks
            .iter()
            .map(|task| {
                json!({"id": task["id"], "runtimeInSeconds": 1.5,
                    "command": {"program": "run", "arguments": [task["id"], "--to 'a b'"]}})
            })
            .collect();
        let instance = json!({"name": "w", "schemaVersion": "1.5", "workflow": {
            "specification": {"tasks": tasks, "files": [{"id": "x", "sizeInBytes": 5}]},
            "execution": {"makespanInSeconds": 3, "executedAt": "now", "tasks": executed}}});
        check(parse(instance.to_string().as_bytes())?, Path::new("/nowhere"))
    }

    fn refused(tasks: &[Value]) -> String {
        checked(tasks).unwrap_err().to_string()
    }

    #[test]
    fn tasks_wait_for_parents_and_for_files() {
        let mut first = task("a", &[], &["given"], &["./d//x"]);
        first["children"] = json!(["c"]);
        let found =
            checked(&[first, task("b", &[], &["d/x"], &["y"]), task("c", &["b"], &["y"], &[])]);
        let found = found.unwrap();
        assert_eq!(found.commands, ["run a --to 'a b'", "run b --to 'a b'", "run c --to 'a b'"]);
        let parents: Vec<_> = found.steps.iter().map(|step| step.parents.clone()).collect();
        assert_eq!(parents, [vec![], vec![1], vec![1, 2]]);
        assert_eq!(found.steps[0].outputs, ["d/x"]);
    }

    #[test]
    fn what_can_not_be_run_is_refused_in_one_line() {
        let plain = |id| task(id, &[], &[], &[]);
        for (tasks, said) in [
            (vec![], "there is no task"),
            (vec![plain("a"), plain("a")], "two tasks have the id 'a'"),
            (vec![task("a", &["z"], &[], &[])], "task 'a' has the parent 'z', which there is not"),
            (vec![task("a", &[], &[], &["/x"])], "file '/x' of task 'a' is not within"),
            (vec![task("a", &[], &["d/../../x"], &[])], "file 'd/../../x' of task 'a'"),
            (vec![task("a", &[], &[], &["."])], "file '.' of task 'a'"),
            (vec![task("a", &[], &["x"], &["./x"])], "task 'a' writes the file 'x' that it reads"),
            (
                vec![task("a", &[], &[], &["x"]), task("b", &[], &[], &["./x"])],
                "file 'x' is written by two tasks, 'a' and 'b'",
            ),
            (
                vec![
                    task("a", &["c"], &[], &["x"]),
                    task("b", &[], &["x"], &["y"]),
                    task("c", &[], &["y"], &[]),
                ],
                "tasks wait for each other in a circle: ",
            ),
            (vec![task("a\n\u{1b}[31m", &["z"], &[], &[])], "task 'a??[31m' has the parent"),
        ] {
            let text = refused(&tasks);
            assert!(text.starts_with(said) && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn files_are_reached_without_links() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        std::os::unix::fs::symlink("/usr", dir.path().join("away")).unwrap();
        std::os::unix::fs::symlink("d", dir.path().join("back")).unwrap();
        let checked = |tasks: &[Value]| {
            let executed: Vec<Value> = tasks
                .iter()
                .map(|task| json!({"id": task["id"], "command": {"program": "run"}}))
                .collect();
            let instance = json!({"schemaVersion": "1.5", "workflow": {
                "specification": {"tasks": tasks}, "execution": {"tasks": executed}}});
            check(parse(instance.to_string().as_bytes()).unwrap(), dir.path())
        };
        assert!(checked(&[task("a", &[], &["away/x", "d/x"], &["d/y", "d/y"])]).is_ok());
        for (inputs, outputs) in [(vec![], vec!["away/x"]), (vec!["back/x"], vec![])] {
            let text = checked(&[task("a", &[], &inputs, &outputs)]).unwrap_err().to_string();
            assert!(text.contains("is reached by the link"), "{text}");
        }
    }

    #[test]
    fn commands_and_versions_are_needed() {
        let bare = json!({"schemaVersion": "1.5", "workflow": {"specification": {"tasks": [task("a", &[], &[], &[])]}}});
        let bare = bare.to_string();
        let text = check(parse(bare.as_bytes()).unwrap(), Path::new("/")).unwrap_err().to_string();
        assert!(text.starts_with("task 'a' has no command"), "{text}");
        let text = parse(bare.replace("1.5", "1.4").as_bytes()).unwrap_err().to_string();
        assert!(text.starts_with("it has schemaVersion '1.4'"), "{text}");
        assert!(matches!(parse(b"[1, 2]"), Err(WorkflowError::Format(_))));
    }
}
