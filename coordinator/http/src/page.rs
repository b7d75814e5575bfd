//! The page: its frame, what a browser without scripts is shown, and the files that it is made of.

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
        "/dom.js" => (SCRIPT, include_str!("../assets/dom.js")),
        "/style.css" => ("text/css; charset=utf-8", include_str!("../assets/style.css")),
        "/icon.svg" => ("image/svg+xml", include_str!("../assets/icon.svg")),
        _ => return None,
    })
}

fn frame(title: &str, with_script: bool, body: &Markup) -> String {
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
                @if with_script { script type="module" src="/app.js" {} }
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
            @if wrong { p role="alert" { "That address is used up, too old, or none of this coordinator." } }
            p {
                "On the coordinator's machine " code { "ckptd page" }
                " prints an address that shows the cluster. It is good once, for ten minutes."
            }
        }
    };
    frame("ckptd", false, &body)
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

/// The page, with what is known of the cluster for browsers without scripts.
pub fn whole(view: &Value) -> String {
    let body = html! {
        header {
            h1 { "ckptd" }
            p id="summary" role="status" {}
        }
        p id="alert" role="alert" hidden {}
        p id="attention" role="status" hidden {}
        main {
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
    frame("ckptd: cluster", true, &body)
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

    const FILES: [&str; 6] =
        ["/app.js", "/job.js", "/chart.js", "/dom.js", "/style.css", "/icon.svg"];

    #[test]
    fn hostile_names_are_text() {
        let hostile = "</noscript><script>alert(1)</script>\" onload='x";
        let view = json!({"version": "1", "error": hostile,
            "nodes": [{"name": hostile, "state": hostile}],
            "jobs": [{"name": hostile, "user": hostile, "processes": [{"name": hostile, "pid": 1, "why": hostile}]}]});
        let page = whole(&view);
        assert_eq!(page.matches("<script").count(), 1, "{page}");
        assert_eq!(page.matches("</noscript>").count(), 1, "{page}");
        assert!(page.contains("&lt;script&gt;alert(1)"), "{page}");
    }

    #[test]
    fn all_is_small_and_nothing_comes_from_elsewhere() {
        let files: Vec<&str> = FILES.iter().map(|path| asset(path).unwrap().1).collect();
        let size: usize = files.iter().map(|file| file.len()).sum();
        assert!(size < 300 * 1024, "{size}");
        for file in files.into_iter().chain([whole(&json!({})).as_str(), login(true).as_str()]) {
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
