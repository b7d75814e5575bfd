//! Reads a coordinator's page in a browser, on the coordinator's machine: the part of the test `page` that is inside of the
//! cluster.

mod browser;
mod looks;
mod plain;
mod remote;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use browser::{Browser, Look};
use clap::{Args, Parser};
use plain::get;
use serde_json::Value;

/// What went wrong.
type Failed = Box<dyn Error>;

/// How long after the processes ran again the page may show that at the most: a second passes between two looks, and this
/// machine may be busy.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);

/// See the file.
#[derive(Parser)]
enum Options {
    /// On the coordinator's machine, while a node is lost
    Lost(Lost),
    /// On another machine
    Remote(remote::Remote),
}

#[derive(Args)]
struct Lost {
    /// The page's port
    #[arg(long)]
    port: u16,
    /// The coordinator's folder
    #[arg(long)]
    state: PathBuf,
    /// The job
    #[arg(long)]
    job: String,
    /// The node that is about to be lost
    #[arg(long)]
    lost: String,
    /// A folder for pictures of the page
    #[arg(long)]
    pictures: Option<PathBuf>,
}

fn main() -> ExitCode {
    let done = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failed::from)
        .and_then(|runtime| match Options::parse() {
            Options::Lost(options) => runtime.block_on(run(&options)),
            Options::Remote(options) => runtime.block_on(remote::run(&options)),
        });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pagereader: {error}");
            ExitCode::FAILURE
        }
    }
}

fn secret(state: &Path, name: &str) -> Result<String, Failed> {
    let text = std::fs::read_to_string(state.join(name));
    Ok(text.map_err(|error| format!("{name}: {error}"))?.trim().to_owned())
}

async fn run(options: &Lost) -> Result<(), Failed> {
    let token = secret(&options.state, "http.token")?;
    let metrics = secret(&options.state, "metrics.token")?;
    refused(options.port, &token)?;
    expect(
        told(options.port, &metrics)?,
        &["ckptd_nodes{state=\"alive\"} 3", "ckptd_jobs{state=\"running\"} 1"],
    )?;

    let mut browser = Browser::start(Look::LightWide).await?;
    let Lost { port, job, lost, .. } = options;
    let opened = login()?;
    if opened.contains(&token) {
        return Err(format!("the secret is in the address: {opened}").into());
    }
    browser.go(&opened).await?;
    let is_left = "return !document.location.search.includes('login')";
    browser.wait_for(is_left, "the login goes from the address").await?;
    spent(*port, &opened)?;
    let there = rows_of(job, lost, "=", lost);
    browser.wait_for(&format!("return {there} === 2"), "the ranks are on the node").await?;
    println!("the ranks are on {lost}");

    let moved = rows_of(job, lost, "!", lost);
    browser.wait_for(&format!("return {moved} === 2"), "the ranks are elsewhere").await?;
    shown_in_time(options.port, &token, job)?;
    let shown = [
        (format!("return text('tr[data-key=\"{lost}\"]').includes('gone')"), "the node is gone"),
        (format!("return text('.stops').includes('{lost} lost')"), "the loss is told"),
        ("return document.querySelectorAll('.way.lost').length >= 2".into(), "arrows are drawn"),
        ("return document.querySelectorAll('.checkpoint').length >= 2".into(), "dots are drawn"),
    ];
    for (script, what) in &shown {
        browser.wait_for(script, what).await?;
    }
    // Back to the beginning, and to now, by the keyboard.
    browser.press(".time", "\u{e011}").await?;
    browser.wait_for(&format!("return {there} === 2"), "the past is shown").await?;
    browser.press(".time", "\u{e010}").await?;
    browser.wait_for(&format!("return {moved} === 2"), "the present is shown").await?;
    // The same with the mouse: over the picture, from now to soon after the beginning, and past its right end.
    let drawn = format!("article[data-name=\"{job}\"] .chart svg");
    browser.drag(&drawn, (0.9, 0.25)).await?;
    browser.wait_for(&format!("return {there} === 2"), "the past is shown by the mouse").await?;
    let cursor = "return document.querySelectorAll('.chart .cursor').length === 1";
    browser.wait_for(cursor, "the moment is marked").await?;
    browser.drag(&drawn, (0.25, 0.999)).await?;
    browser.wait_for(&format!("return {moved} === 2"), "the present is shown by the mouse").await?;
    looks::nothing_is_from_elsewhere(&mut browser).await?;
    browser.click(".log summary").await?;
    let rank = "return text('.log pre').includes('rank 5 of 6')";
    browser.wait_for(rank, "the log is shown").await?;
    browser.close().await?;

    let all = [(Look::LightWide, "light"), (Look::DarkWide, "dark"), (Look::LightNarrow, "narrow")];
    for (look, name) in all {
        let mut browser = Browser::start(look).await?;
        browser.go(&login()?).await?;
        browser.wait_for(&format!("return {moved} === 2"), "the ranks are shown").await?;
        looks::all_is_seen(&mut browser, look).await?;
        if options.pictures.is_some() {
            let more = "return document.querySelectorAll('.checkpoint').length >= 4";
            browser.wait_for(more, "checkpoints after the loss").await?;
            picture(options, &browser, name).await?;
        }
        browser.close().await?;
    }
    let losses = [
        "ckptd_node_losses_total 1",
        "ckptd_nodes{state=\"gone\"} 1",
        "ckptd_rollback_seconds_count{reason=\"lost\"} 1",
    ];
    expect(told(options.port, &metrics)?, &losses)
}

/// Tells how long after the processes ran again, and after the node was last heard, the page showed that.
fn shown_in_time(port: u16, token: &str, job: &str) -> Result<(), Failed> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let (_, text) = get(port, "/data", "localhost", Some(&format!("Bearer {token}")))?;
    let told: Value = serde_json::from_str(&text)?;
    let jobs = told["jobs"].as_array().ok_or("no jobs")?;
    let stop = jobs.iter().find(|one| one["name"] == job).map(|one| &one["stops"][0]);
    let at = |key: &str| stop.and_then(|stop| stop[key].as_u64()).map(u128::from);
    let (lost, again) = at("from").zip(at("to")).ok_or_else(|| format!("no loss: {text}"))?;
    let after = now.saturating_sub(again);
    println!(
        "shown {after} ms after the ranks ran again, {} ms after their node was last heard",
        now.saturating_sub(lost)
    );
    if after > SHOWN_WITHIN.as_millis() {
        return Err(format!("the page showed it {after} ms after the ranks ran again").into());
    }
    Ok(())
}

/// How many ranks that began on a node are shown on a node that is (=) or is not (!) that one.
fn rows_of(job: &str, home: &str, relation: &str, node: &str) -> String {
    format!(
        "[...document.querySelectorAll('article[data-name=\"{job}\"] tr[data-key^=\"{home}/\"]')].filter((row) => \
         row.cells[0].textContent.startsWith('nqueens') && row.cells[1].textContent {relation}== '{node}').length"
    )
}

async fn picture(options: &Lost, browser: &Browser, name: &str) -> Result<(), Failed> {
    let Some(folder) = &options.pictures else { return Ok(()) };
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join(format!("{name}.png")), browser.picture().await?)?;
    Ok(())
}

/// Whoever has no secret, a wrong one, or asks for another host hears nothing.
fn refused(port: u16, token: &str) -> Result<(), Failed> {
    let own = format!("127.0.0.1:{port}");
    let right = format!("Bearer {token}");
    for path in ["/", "/data", "/events", "/log?job=queens", "/metrics"] {
        for (host, shown, status) in [
            (own.as_str(), None, 401),
            (&own, Some("Bearer 0123456789"), 401),
            ("evil.example", Some(&*right), 421),
            ("10.77.0.11", Some(&*right), 421),
        ] {
            let (found, _) = get(port, path, host, shown)?;
            if found != status {
                return Err(
                    format!("{path} for {host} with {shown:?}: {found}, not {status}").into()
                );
            }
        }
    }
    Ok(())
}

/// An address that lets a browser in.
fn login() -> Result<String, Failed> {
    let said = std::process::Command::new("ckptd").arg("page").output()?;
    let address = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    if said.status.success() && address.contains("/?login=") {
        return Ok(address);
    }
    Err(format!("ckptd page: {said:?}").into())
}

/// Nobody else gets in by an address that was opened.
fn spent(port: u16, address: &str) -> Result<(), Failed> {
    let path = address.find("/?").map_or("/", |at| &address[at..]);
    match get(port, path, "localhost", None)? {
        (403, _) => Ok(()),
        (status, text) => Err(format!("{path} once more: {status}: {text}").into()),
    }
}

/// The metrics.
fn told(port: u16, token: &str) -> Result<String, Failed> {
    let (status, text) = get(port, "/metrics", "localhost", Some(&format!("Bearer {token}")))?;
    if status == 200 { Ok(text) } else { Err(format!("/metrics: {status}: {text}").into()) }
}

fn expect(text: String, lines: &[&str]) -> Result<(), Failed> {
    for line in lines {
        if !text.lines().any(|found| found == *line) {
            return Err(format!("{line} is not in:\n{text}").into());
        }
    }
    Ok(())
}
