//! `ckptd audit`.

use super::{Context, print, print_json};
use crate::cli::AuditArguments;
use crate::client::refusal::unexpected;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::tables::{printable, table};
use crate::text::{self, utc};
use protocol::cluster::audit::{AuditEvent, AuditLine, Chain, Order};
use protocol::cluster::client::{Answer, Ask};

const WHAT: &str = "read the audit log";

pub fn perform(context: &Context, arguments: &AuditArguments) -> Result<(), Failure> {
    let cluster = context.operators_cluster(WHAT, arguments.state.as_ref())?;
    let log = read(&cluster, arguments.contains.as_deref())?;
    match arguments.list.json {
        true => print_json(&log.lines)?,
        false => print(&table(&rows(&log.lines)))?,
    }
    if let Some((line, error)) = log.broken {
        let cause = format!("{error}; what is shown ends before that; the line is {line:?}");
        return Err(Failure::of(WHAT, cause));
    }
    if let (Some(wanted), false) = (&arguments.contains, log.contains) {
        let cause =
            format!("no line has the hash {wanted}: the log was written anew since you noted that");
        return Err(Failure::of(WHAT, cause));
    }
    if !arguments.list.json {
        eprintln!(
            "ckptd: {}, each following the one before; the last one's hash is {}; noted on another machine, it shows \
             (--contains) whether the log was written anew",
            text::count(log.chain.length(), "line"),
            log.chain.head()
        );
    }
    Ok(())
}

/// What was read of the log.
#[derive(Default)]
struct Log {
    lines: Vec<AuditLine>,
    chain: Chain,
    /// Whether the hash that was looked for is one of its lines'.
    contains: bool,
    /// The line that does not follow, and what is wrong with it.
    broken: Option<(String, String)>,
}

/// Reads it to its end, or to the first line that does not follow the one before.
fn read(cluster: &Cluster, wanted: Option<&str>) -> Result<Log, Failure> {
    let mut log = Log::default();
    let mut from = 0;
    loop {
        let (lines, next, over) = match cluster.ask(WHAT, &Ask::Audit { from })? {
            Answer::Audit { lines, next, over } => (lines, next, over),
            other => return Err(unexpected(WHAT, &other)),
        };
        for line in lines {
            match log.chain.follow(&line) {
                Ok(line) => log.lines.push(line),
                Err(error) => {
                    log.broken = Some((line, error.to_string()));
                    return Ok(log);
                }
            }
            log.contains |= wanted.is_some_and(|wanted| wanted == log.chain.head());
        }
        if over || next <= from {
            return Ok(log);
        }
        from = next;
    }
}

fn rows(lines: &[AuditLine]) -> Vec<Vec<String>> {
    let heading = ["TIME", "USER", "THROUGH", "ORDER", "ABOUT", "CAME TO"].map(str::to_owned);
    std::iter::once(heading.to_vec()).chain(lines.iter().map(row)).collect()
}

fn row(line: &AuditLine) -> Vec<String> {
    let [user, through, order, about, came_to] = match &line.event {
        AuditEvent::Began { term, version } => {
            let about = format!("term {term}, ckptd {version}");
            ["", "", "", about.as_str(), "the coordinator began"].map(str::to_owned)
        }
        AuditEvent::Joined { node, key } => {
            let about = format!("{node}, key {key:.16}");
            ["", "", "", about.as_str(), "joined"].map(str::to_owned)
        }
        AuditEvent::Exchanged { authority } => {
            let about = format!("authority {authority:.16}");
            ["", "", "", about.as_str(), "exchanged"].map(str::to_owned)
        }
        AuditEvent::LeftOut { node, orders } => {
            let (through, more) =
                (node.to_string(), format!("refused, and left out here: {orders}"));
            ["", through.as_str(), "more orders", "", more.as_str()].map(str::to_owned)
        }
        AuditEvent::Ordered { order } => cells(order, String::new()),
        AuditEvent::Refused { order, reason } => cells(order, format!("failed: {reason}")),
    };
    [utc(line.at_ms), user, through, order, about, came_to].map(|cell| printable(&cell)).to_vec()
}

fn cells(order: &Order, came_to: String) -> [String; 5] {
    let role = if order.operator { " (operator)" } else { "" };
    let through =
        order.through.as_ref().map_or_else(|| "coordinator".to_owned(), ToString::to_string);
    let page = match order.page.as_str() {
        "" => String::new(),
        "-" => " (at the page)".to_owned(),
        name => format!(" (at the page: {name})"),
    };
    let account = match order.account.as_str() {
        "" => String::new(),
        account => format!(" (login of {account})"),
    };
    [
        format!("{}{role}{account}{page}", order.user),
        through,
        order.order.clone(),
        order.about.clone(),
        came_to,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_who_ordered_what_and_what_came_of_it() {
        let order = Order {
            user: "alice\n".to_owned(),
            through: Some("desk".parse().unwrap()),
            account: "guest".to_owned(),
            page: String::new(),
            operator: true,
            order: "stop".to_owned(),
            about: "queens".to_owned(),
        };
        let events = [
            AuditEvent::Began { term: 2, version: "0.1.0".to_owned() },
            AuditEvent::Joined {
                node: "desk".parse().unwrap(),
                key: "0123456789abcdef0".to_owned(),
            },
            AuditEvent::Ordered { order: order.clone() },
            AuditEvent::Refused { order, reason: "it does not run".to_owned() },
        ];
        let mut chain = Chain::default();
        let mut add = |event| {
            let line = chain.clone().add(1_764_000_000_000, event).unwrap();
            chain.follow(&line).unwrap()
        };
        let lines = events.map(&mut add);
        insta::assert_snapshot!(table(&rows(&lines)));
        assert_eq!(utc(u64::MAX), "?");
    }
}
