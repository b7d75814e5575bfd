//! The page from another machine: over TLS, by a token that is typed, with what its role allows.

use super::Failed;
use super::browser::{Browser, Look};
use clap::Args;
use std::time::Duration;

/// How long the test has to take a token back.
const TAKEN_BACK: Duration = Duration::from_secs(60);

/// See the file.
#[derive(Args)]
pub struct Remote {
    /// The page's address
    #[arg(long)]
    url: String,
    /// The token of somebody who looks
    #[arg(long)]
    viewer: String,
    /// The token of an operator
    #[arg(long)]
    operator: String,
    /// The job
    #[arg(long)]
    job: String,
    /// A node that is to be drained
    #[arg(long)]
    drained: String,
}

pub async fn run(options: &Remote) -> Result<(), Failed> {
    let Remote { url, viewer, operator, job, drained } = options;
    let mut browser = Browser::start(Look::LightWide).await?;
    log_in(&mut browser, url, "ckptdp1_0123", false).await?;
    log_in(&mut browser, url, viewer, true).await?;
    let row = format!("tr[data-key=\"{drained}\"]");
    let is_there = format!("return text('{row}').includes('alive')");
    browser.wait_for(&is_there, "the nodes are shown").await?;
    let orders = "return document.querySelectorAll('.order').length";
    if browser.ask(orders).await? != 0 {
        return Err("who only looks is offered orders".into());
    }
    browser.click("#logout").await?;
    browser.wait_for("return !!document.querySelector('#token')", "logged out").await?;

    log_in(&mut browser, url, operator, true).await?;
    browser.wait_for(&is_there, "the nodes are shown to operators").await?;
    let article = format!("article[data-name=\"{job}\"]");
    let runs = format!("return text('{article} .badge') === 'running'");
    browser.wait_for(&runs, "the job runs").await?;
    browser.click(&format!("{article} .order[data-what=checkpoint]")).await?;
    let committed = "return /checkpoint \\d+ of .* is committed/.test(text('#said'))";
    browser.wait_for(committed, "a checkpoint was taken").await?;
    let drain = format!("{row} .order[data-what=drain]");
    browser.click(&drain).await?;
    let asks = format!("return text('{drain}').endsWith('?')");
    browser.wait_for(&asks, "it asks before it drains").await?;
    browser.click(&drain).await?;
    let gone = format!("return text('{row}').includes('drained')");
    browser.wait_for(&gone, "the node is drained").await?;
    browser.click(&format!("{row} .order[data-what=uncordon]")).await?;
    browser.wait_for(&is_there, "the node takes processes again").await?;

    println!("take it back");
    let over = "return text('#alert').includes('does not let this page in any more')";
    tokio::time::timeout(TAKEN_BACK, browser.wait_for(over, "the page is let in no more"))
        .await??;
    browser.go(url).await?;
    browser.wait_for("return !!document.querySelector('#token')", "a token is needed").await?;
    browser.close().await
}

/// Types a token.
async fn log_in(
    browser: &mut Browser,
    url: &str,
    token: &str,
    is_good: bool,
) -> Result<(), Failed> {
    browser.go(url).await?;
    browser.wait_for("return !!document.querySelector('#token')", "a token is asked for").await?;
    browser.press("#token", token).await?;
    browser.click("form button").await?;
    let came = match is_good {
        true => "return !!document.querySelector('#nodes')",
        false => "return text('[role=alert]').includes('none of this coordinator')",
    };
    browser.wait_for(came, "what becomes of a token").await
}
