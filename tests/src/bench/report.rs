//! One page with all results, its pictures within, that needs no network to be viewed.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::figure::Figure;
use super::host::Origin;
use super::kept::Kept;
use super::subject::failure;
use super::svg::escape;
use super::{splits, sweep, throttle, weights};
use crate::job::Failure;

/// The results of a folder, as the benchmarks write them.
pub struct Results {
    /// `tests/bench nqueens`.
    pub splits: Kept<splits::Measured>,
    /// Its throttled node.
    pub throttle: Kept<throttle::Measured>,
    /// Its ranks of unlike weights.
    pub weights: Kept<weights::Measured>,
    /// `tests/bench intervals`.
    pub sweep: Kept<sweep::Measured>,
}

/// Files of the newer benchmarks.
const SPLITS: &str = "nqueens.json";
const THROTTLE: &str = "nqueens-throttled.json";
const WEIGHTS: &str = "nqueens-weights.json";
const SWEEP: &str = "intervals.json";
/// Benchmarks that write a table of figures and one picture.
const PLAIN: [(&str, &str, &str); 3] = [
    ("engine", "Pause, image, restart, and what checkpoints cost", "engine"),
    ("cluster", "The loss of a node, phase by phase; departures and newcomers", "cluster"),
    ("scale", "How costs grow with the size of one job", "scale"),
];
const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:62em;margin:2em auto;padding:0 1em;background:#f6f8fa;\
color:#1f2328}table{border-collapse:collapse;margin:1em 0}td,th{text-align:left;padding:.3em .8em;\
border-bottom:1px solid #d1d9e0;vertical-align:top}td.n{text-align:right;white-space:nowrap}.from{color:#59636e}\
.missed{color:#b3391f;font-weight:600}.reached{color:#1f7a43}svg{max-width:100%;height:auto}pre{overflow-x:auto}\
@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}td,th{border-color:#30363d}\
.from{color:#9198a1}.missed{color:#f0806a}.reached{color:#4fb477}}";

impl Results {
    /// What is in a folder.
    #[must_use]
    pub fn read(folder: &Path) -> Results {
        Results {
            splits: Kept::read(&folder.join(SPLITS)),
            throttle: Kept::read(&folder.join(THROTTLE)),
            weights: Kept::read(&folder.join(WEIGHTS)),
            sweep: Kept::read(&folder.join(SWEEP)),
        }
    }
}

/// The page of all that is in a folder; None where there is nothing.
///
/// # Errors
/// When a file that is there can't be read.
pub fn page(folder: &Path) -> Result<Option<String>, Failure> {
    let mut body = String::new();
    let results = Results::read(folder);
    // In the order in which they are defined, not by the alphabet.
    for scenario in &splits::SCENARIOS {
        let Some(part) = results.splits.parts().get(scenario.name) else { continue };
        let title = format!("A node is lost: {}", part.data.title);
        let svg = splits::draw(&part.data, &part.origin);
        section(&mut body, &title, &told(&part.origin, part.finished), &svg);
        figures(&mut body, &values(&part.data.figures(scenario.name))?);
        let _ = writeln!(body, "<pre>{}</pre>", escape(&splits::table(scenario.name, &part.data)));
    }
    for part in results.throttle.parts().values() {
        let svg = throttle::draw(&part.data, &part.origin);
        section(&mut body, "A node is throttled", &told(&part.origin, part.finished), &svg);
        figures(&mut body, &values(&part.data.figures())?);
    }
    for part in results.weights.parts().values() {
        let svg = weights::draw(&part.data, &part.origin);
        section(&mut body, "Ranks that are not alike", &told(&part.origin, part.finished), &svg);
        figures(&mut body, &values(&part.data.figures())?);
    }
    for part in results.sweep.parts().values() {
        let svg = sweep::draw(&part.data, &part.origin);
        section(
            &mut body,
            "How often to take a checkpoint",
            &told(&part.origin, part.finished),
            &svg,
        );
        figures(&mut body, &values(&part.data.figures())?);
        let _ = writeln!(body, "<pre>{}</pre>", escape(&part.data.table()));
    }
    for (name, title, command) in PLAIN {
        let Ok(bytes) = fs::read(folder.join(format!("{name}.json"))) else { continue };
        let value: Value = serde_json::from_slice(&bytes).map_err(failure)?;
        let word = |key: &str| value[key].as_str().map(str::to_owned);
        let quick = value["quick"].as_bool().unwrap_or(false);
        let origin = Origin {
            machine: word("machine").unwrap_or_default(),
            date: word("date").unwrap_or_else(|| "day not told".to_owned()),
            command: word("command").unwrap_or_else(|| {
                format!("tests/bench {command}{}", if quick { " --quick" } else { "" })
            }),
            quick,
        };
        let svg = fs::read_to_string(folder.join(format!("{name}.svg"))).unwrap_or_default();
        section(&mut body, title, &told(&origin, true), &svg);
        figures(&mut body, value["figures"].as_array().map_or(&[], Vec::as_slice));
    }
    if body.is_empty() {
        return Ok(None);
    }
    Ok(Some(format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>ckptd: measured</title>\
         <style>{STYLE}</style></head><body>\n<h1>ckptd: measured</h1>\n\
         <p>Each figure stands beside the limit that was measured with it. A score is compared with its goal: it is a ratio to \
         the limit where there is one.</p>\n{body}</body></html>\n"
    )))
}

fn told(origin: &Origin, finished: bool) -> String {
    let unfinished = if finished { "" } else { "; not finished: the same command goes on" };
    format!("{}; {}; {}{unfinished}", origin.machine, origin.date, origin.command)
}

fn section(body: &mut String, title: &str, from: &str, svg: &str) {
    let (title, from) = (escape(title), escape(from));
    let _ = writeln!(body, "<h2>{title}</h2>\n<p class=\"from\">{from}</p>\n{svg}");
}

fn values(figures: &[Figure]) -> Result<Vec<Value>, Failure> {
    figures.iter().map(|figure| serde_json::to_value(figure).map_err(failure)).collect()
}

fn figures(body: &mut String, figures: &[Value]) {
    if figures.is_empty() {
        return;
    }
    body.push_str(
        "<table><tr><th>figure</th><th>measured</th><th>the limit beside it</th><th>score</th><th>goal</th><th></th></tr>\n",
    );
    for figure in figures {
        let series = |value: &Value| {
            let unit = value["unit"].as_str().unwrap_or_default();
            value["median"].as_f64().map(|median| format!("{} {unit}", short(median)))
        };
        let limit = series(&figure["limit"]).map_or_else(String::new, |limit| {
            format!("{limit}, {}", figure["limit"]["what"].as_str().unwrap_or_default())
        });
        let at_most = figure["sense"] == "at_most";
        let number = |key: &str| figure[key].as_f64().map_or("?".to_owned(), short);
        let verdict = if figure["reached"] == true { "reached" } else { "missed" };
        let _ = writeln!(
            body,
            "<tr><td>{}</td><td class=\"n\">{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{} {}</td>\
             <td class=\"{verdict}\">{verdict}</td></tr>",
            escape(figure["title"].as_str().unwrap_or_default()),
            escape(&series(&figure["measured"]).unwrap_or_default()),
            escape(&limit),
            number("score"),
            if at_most { "&le;" } else { "&ge;" },
            number("goal"),
        );
        for note in figure["notes"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let _ =
                writeln!(body, "<tr><td class=\"from\" colspan=\"6\">{}</td></tr>", escape(note));
        }
    }
    body.push_str("</table>\n");
}

fn short(value: f64) -> String {
    match value.abs() {
        0.0..10.0 => format!("{value:.3}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Copies results and pictures to where they are kept for good; the files.
///
/// # Errors
/// When a file can't be written.
pub fn save(from: &Path, to: &Path) -> Result<Vec<String>, Failure> {
    fs::create_dir_all(to).map_err(failure)?;
    let mut saved = Vec::new();
    for entry in fs::read_dir(from).map_err(failure)?.flatten() {
        let path = entry.path();
        let wanted = path.extension().is_some_and(|ending| ending == "json" || ending == "svg");
        if let (true, Some(name)) = (wanted && path.is_file(), path.file_name()) {
            fs::copy(&path, to.join(name)).map_err(failure)?;
            saved.push(name.to_string_lossy().into_owned());
        }
    }
    saved.sort();
    Ok(saved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_everything_and_needs_nothing() -> Result<(), Failure> {
        let folder = tempfile::tempdir().map_err(failure)?;
        assert!(page(folder.path())?.is_none());
        let mut results = Results::read(folder.path());
        let origin = || Origin {
            machine: "m1".into(),
            date: "d1".into(),
            command: "c1".into(),
            quick: false,
        };
        *results.splits.part("equal", origin) = splits::example();
        results.splits.finish("equal")?;
        let engine = serde_json::json!({
            "machine": "m2", "quick": true,
            "figures": [{"title": "pause <x>", "measured": {"median": 1.5, "unit": "ms"}, "limit": null,
                         "score": 1.5, "goal": 1.0, "sense": "at_most", "reached": false, "notes": ["n1"]}],
        });
        fs::write(folder.path().join("engine.json"), engine.to_string()).map_err(failure)?;
        fs::write(folder.path().join("engine.svg"), "<svg>x</svg>").map_err(failure)?;
        let page = page(folder.path())?.unwrap_or_default();
        for text in [
            "m1; d1; c1",
            "<svg>x</svg>",
            "pause &lt;x&gt;",
            "missed",
            "n1",
            "tests/bench engine --quick",
        ] {
            assert!(page.contains(text), "{text} is lacking");
        }
        assert_eq!(page.matches("<svg").count(), 2);
        assert!(!page.contains("src=") && !page.contains("href="));
        let saved = save(folder.path(), &folder.path().join("kept"))?;
        assert_eq!(saved, ["engine.json", "engine.svg", "nqueens.json"]);
        Ok(())
    }
}
