//! The page: its frame, what a browser without scripts is shown, and the files that it is made of.

use crate::role::Sight;
use crate::token::Visitor;
use crate::view::items;
use maud::{DOCTYPE, Markup, html};
use serde_json::Value;

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// A file of the page: its type and content. All of them are in the executable.
pub fn asset(path: &str) -> Option<(&'static str, &'static str)> {
    Some(match path {
        "/app.js" => (SCRIPT, include_str!("../assets/app.js")),
        "/job.js" => (SCRIPT, include_str!("../assets/job.js")),
        "/chart.js" => (SCRIPT, include_str!("../assets/chart.js")),
        "/orders.js" => (SCRIPT, include_str!("../assets/orders.js")),
        "/dom.js" => (SCRIPT, include_str!("../assets/dom.js")),
        "/style.css" => ("text/css; charset=utf-8", include_str!("../assets/style.css")),
        "/icon.svg" => ("image/svg+xml", include_str!("../assets/icon.svg")),
        _ => return None,
    })
}

/// `scripts`: what they show with an order, empty for who orders nothing; None: there are none.
fn frame(title: &str, scripts: Option<&str>, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="icon" href="/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/style.css";
                @if let Some(secret) = scripts {
                    @if !secret.is_empty() { meta name="ckptd-order" content=(secret); }
                    script type="module" src="/app.js" {}
                }
            }
            body { (body) }
        }
    };
    page.into_string()
}

/// What is shown to who has no cookie, or a login that is not good (any more).
pub fn login(wrong: bool) -> String {
    let body = html! {
        main class="login" {
            h1 { "ckptd" }
            @if wrong {
                p role="alert" { "That address or token is used up, too old, or none of this coordinator." }
            }
            form method="post" action="/login" {
                label for="token" { "Token" }
                input id="token" name="token" type="password" autocomplete="current-password" required;
                button { "Log in" }
            }
            p class="soft" {
                "On the coordinator's machine " code { "ckptd page --add NAME" }
                " makes a token, and " code { "ckptd page" }
                " prints an address that shows the cluster once, for ten minutes."
            }
        }
    };
    frame("ckptd", None, &body)
}

/// Leads a browser that was let in on to the page.
pub fn let_in() -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="refresh" content="0;url=/";
                title { "ckptd" }
            }
            body { p { a href="/" { "To the page" } } }
        }
    }
    .into_string()
}

/// By what somebody is known, in a few words.
fn who(sight: &Sight) -> String {
    let name = if sight.name.is_empty() { "the coordinator's user" } else { &sight.name };
    let jobs = sight.user.as_ref().map_or_else(String::new, |user| format!(", jobs of {user}"));
    format!("{name} ({}{jobs})", sight.role.name())
}

/// The page of somebody, with what is known of the cluster for browsers without scripts.
pub fn whole(view: &Value, visitor: &Visitor) -> String {
    let secret = visitor.order_secret().unwrap_or_default();
    let acts = visitor.sight.may_act() && !secret.is_empty();
    let body = html! {
        header {
            h1 { "ckptd" }
            p id="summary" role="status" {}
            p class="who" {
                (who(&visitor.sight)) " "
                @if visitor.is_browser() { button id="logout" type="button" hidden { "Log out" } }
            }
        }
        p id="said" role="status" hidden {}
        p id="alert" role="alert" hidden {}
        p id="attention" role="status" hidden {}
        main data-acts=[acts.then_some("yes")] {
            section aria-labelledby="nodes-title" {
                h2 id="nodes-title" { "Nodes" }
                div id="nodes" {}
            }
            section aria-labelledby="jobs-title" {
                h2 id="jobs-title" { "Jobs" }
                div id="jobs" {}
            }
            noscript { (plain(view)) }
        }
        footer { "ckptd " (view["version"].as_str().unwrap_or_default()) }
    };
    frame("ckptd: cluster", Some(secret), &body)
}

/// Tables of nodes and jobs, without scripts.
fn plain(view: &Value) -> Markup {
    html! {
        @if let Some(error) = view["error"].as_str() { p role="alert" { (error) } }
        @for line in items(&view["attention"], usize::MAX) { p role="status" { (word(line)) } }
        table {
            caption { "Nodes at the moment; scripts are off, so load the page again for newer ones" }
            tr { th { "Node" } th { "State" } th { "Slots" } th { "Load" } }
            @for node in items(&view["nodes"], usize::MAX) {
                tr { @for key in ["name", "state", "slots", "load"] { td { (word(&node[key])) } } }
            }
        }
        table {
            caption { "Jobs" }
            tr { th { "Job" } th { "User" } th { "State" } th { "Process" } th { "Node" } th { "Why" } }
            @for job in items(&view["jobs"], usize::MAX) {
                tr {
                    @for key in ["name", "user", "state"] { td { (word(&job[key])) } }
                    td {} td {} td {}
                }
                @for process in items(&job["processes"], usize::MAX) {
                    tr {
                        td {} td {} td {}
                        td { (word(&process["name"])) " (" (word(&process["pid"])) ")" }
                        @for key in ["node", "why"] { td { (word(&process[key])) } }
                    }
                }
            }
        }
    }
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const FILES: [&str; 7] =
        ["/app.js", "/job.js", "/chart.js", "/orders.js", "/dom.js", "/style.css", "/icon.svg"];

    /// Somebody whose token was called so.
    fn visitor(name: &str) -> Visitor {
        let dir = tempfile::tempdir().unwrap();
        let tokens = crate::token::Tokens::open(dir.path()).unwrap();
        let mut visitor = tokens.bearer(tokens.secret()).unwrap();
        visitor.sight.name = name.to_owned();
        visitor
    }

    #[test]
    fn hostile_names_are_text() {
        let hostile = "</noscript><script>alert(1)</script>\" onload='x";
        let view = json!({"version": "1", "error": hostile,
            "nodes": [{"name": hostile, "state": hostile}],
            "jobs": [{"name": hostile, "user": hostile, "processes": [{"name": hostile, "pid": 1, "why": hostile}]}]});
        let page = whole(&view, &visitor(hostile));
        assert_eq!(page.matches("<script").count(), 1, "{page}");
        assert_eq!(page.matches("</noscript>").count(), 1, "{page}");
        assert!(page.contains("&lt;script&gt;alert(1)"), "{page}");
    }

    #[test]
    fn all_is_small_and_nothing_comes_from_elsewhere() {
        let files: Vec<&str> = FILES.iter().map(|path| asset(path).unwrap().1).collect();
        let size: usize = files.iter().map(|file| file.len()).sum();
        assert!(size < 300 * 1024, "{size}");
        for file in files
            .into_iter()
            .chain([whole(&json!({}), &visitor("a")).as_str(), login(true).as_str()])
        {
            // Of what a browser would load or run: the name of a vocabulary is no address.
            let file = file.replace("http://www.w3.org/2000/svg", "");
            for forbidden in [
                "http:",
                "https:",
                "innerHTML",
                "insertAdjacentHTML",
                "eval(",
                " style=\"",
                "onclick=",
            ] {
                assert!(!file.contains(forbidden), "{forbidden} is in {file}");
            }
        }
    }
}
