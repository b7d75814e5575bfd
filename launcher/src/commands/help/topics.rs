//! The pages of the manual that are in the executable.

/// A page, or a part of one.
#[derive(Debug)]
pub struct Topic {
    /// By which it is asked for.
    pub name: &'static str,
    /// What it is about, in a line.
    pub about: &'static str,
    page: &'static str,
    /// The heading of the part; none: the whole page.
    part: Option<&'static str>,
}

/// A topic whose text is in a file of the book.
macro_rules! topic {
    ($name:literal, $about:literal, $file:literal) => {
        topic!($name, $about, $file, None)
    };
    ($name:literal, $about:literal, $file:literal, $part:expr) => {
        Topic {
            name: $name,
            about: $about,
            page: include_str!(concat!("../../../../docs/src/", $file)),
            part: $part,
        }
    };
}

/// All topics, in the order in which they are listed.
pub const TOPICS: &[Topic] = &[
    topic!("tutorial", "20 minutes: one machine, then a cluster of two, and a loss", "tutorial.md"),
    topic!("install", "packages, services, a coordinator and agents", "guides/install.md"),
    topic!("faq", "questions that are asked first", "faq.md"),
    topic!("one-machine", "jobs on one machine, files, archives", "guides/one-machine.md"),
    topic!("farm", "many tasks, on one machine or on a cluster", "guides/farm.md"),
    topic!("cluster", "members, losses, departures, users, firewalls", "guides/cluster.md"),
    topic!("operations", "what an admin of many machines needs", "guides/operations.md"),
    topic!("upgrades", "another version, machine by machine", "guides/upgrades.md"),
    topic!("owners", "machines of others, who may do what", "guides/owners.md"),
    topic!("machines", "machines that differ", "guides/machines.md"),
    topic!("mpi", "MPI run times", "guides/mpi.md"),
    topic!("slurm", "jobs in allocations of Slurm", "guides/slurm.md"),
    topic!("schedulers", "PBS, LSF, Kubernetes and others", "guides/schedulers.md"),
    topic!("watch", "a cluster's page, metrics, commands that are called", "guides/watch.md"),
    topic!(
        "hooks",
        "commands that are called when something happens to a job (--on)",
        "guides/watch.md",
        Some("## Commands that are called")
    ),
    topic!("tracing", "timelines, levels of logs, spans", "guides/seeing-inside.md"),
    topic!("troubleshooting", "messages, and what to do", "guides/troubleshooting.md"),
    topic!("configuration", "options in files and variables", "reference/configuration.md"),
    topic!("environment", "environment variables", "reference/environment.md"),
    topic!(
        "exit-status",
        "what exit statuses mean",
        "guides/troubleshooting.md",
        Some("## Exit status")
    ),
    topic!("limits", "what is not kept, and what is refused", "reference/limits.md"),
];

impl Topic {
    /// Its text, as it is in the book.
    pub fn text(&self) -> String {
        match self.part {
            None => self.page.to_owned(),
            Some(heading) => part(self.page, heading),
        }
    }
}

/// From a heading to the next one of the same level or above.
fn part(page: &str, heading: &str) -> String {
    let level = |line: &str| line.bytes().take_while(|byte| *byte == b'#').count();
    let own = level(heading);
    let lines = page.lines().skip_while(|line| *line != heading);
    let first = lines.clone().take(1);
    let rest = lines.skip(1).take_while(|line| !(1..=own).contains(&level(line)));
    first.chain(rest).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_topic_has_a_text_that_begins_with_its_heading() {
        for topic in TOPICS {
            let text = topic.text();
            assert!(text.starts_with('#') && text.lines().count() > 5, "{}: {text}", topic.name);
        }
    }

    #[test]
    fn a_part_ends_where_the_next_one_begins() {
        let page = "# a\n\n## b\nc\n### d\n## e\nf\n";
        assert_eq!(part(page, "## b"), "## b\nc\n### d\n");
        assert_eq!(part(page, "## x"), "");
    }
}
