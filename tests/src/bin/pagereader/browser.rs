//! A browser without a screen, driven by WebDriver.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fantoccini::actions::{InputSource, MOUSE_BUTTON_LEFT, MouseActions, PointerAction};
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Failed;

/// How long something may take to be seen.
const LIMIT: Duration = Duration::from_secs(60);
const PERIOD: Duration = Duration::from_millis(50);
/// chromedriver's port: this machine has no other.
const PORT: u16 = 9515;
/// What scripts have: the text of the first element that fits, if there is one.
const HELP: &str = "const text = (what) => document.querySelector(what)?.textContent ?? '';\n";

/// How the page is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// On a large screen, in light colours.
    LightWide,
    /// The same in dark ones.
    DarkWide,
    /// On a phone, 360 pixels wide.
    LightNarrow,
}

/// A browser with one page. It ends with this.
pub struct Browser {
    client: Client,
    driver: Driver,
    _profile: TempDir,
}

struct Driver(Child);

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Browser {
    pub async fn start(look: Look) -> Result<Self, Failed> {
        let profile = tempfile::tempdir()?;
        let driver = Command::new("chromedriver")
            .arg(format!("--port={PORT}"))
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("chromedriver: {error}"))?;
        let driver = Driver(driver);
        let mut arguments: Vec<String> = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
        ]
        .map(str::to_owned)
        .to_vec();
        arguments.push(format!("--user-data-dir={}", profile.path().display()));
        arguments.push("--window-size=1100,1180".to_owned());
        let is_light = u8::from(look != Look::DarkWide);
        arguments.push(format!("--blink-settings=preferredColorScheme={is_light}"));
        let mut options = json!({ "args": arguments });
        if look == Look::LightNarrow {
            // No window is as narrow.
            let phone = json!({ "width": 360, "height": 1500, "pixelRatio": 1.0 });
            options["mobileEmulation"] = json!({ "deviceMetrics": phone });
        }
        // A page for other machines has a certificate of its own.
        let options = json!({ "goog:chromeOptions": options, "acceptInsecureCerts": true });
        let Value::Object(options) = options else { return Err("no object".into()) };
        let deadline = Instant::now() + LIMIT;
        loop {
            let mut builder = ClientBuilder::new(HttpConnector::new());
            let builder = builder.capabilities(options.clone());
            match builder.connect(&format!("http://127.0.0.1:{PORT}")).await {
                Ok(client) => return Ok(Self { client, driver, _profile: profile }),
                Err(error) if Instant::now() >= deadline => return Err(error.into()),
                Err(_) => tokio::time::sleep(PERIOD).await,
            }
        }
    }

    pub async fn go(&self, address: &str) -> Result<(), Failed> {
        Ok(self.client.goto(address).await?)
    }

    /// Waits until a script returns true.
    pub async fn wait_for(&mut self, script: &str, what: &str) -> Result<(), Failed> {
        let script = format!("{HELP}{script}");
        let deadline = Instant::now() + LIMIT;
        loop {
            // Another page may be taking the place of this one.
            let found = self.client.execute(&script, Vec::new()).await;
            if matches!(found, Ok(Value::Bool(true))) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                found?;
                let page = "return document.body.innerText";
                let page = self.client.execute(page, Vec::new()).await?;
                return Err(format!(
                    "not seen: {what}; the page:\n{}",
                    page.as_str().unwrap_or("")
                )
                .into());
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    pub async fn press(&self, element: &str, key: &str) -> Result<(), Failed> {
        let element = self.client.find(Locator::Css(element)).await?;
        Ok(element.send_keys(key).await?)
    }

    pub async fn click(&self, element: &str) -> Result<(), Failed> {
        Ok(self.client.find(Locator::Css(element)).await?.click().await?)
    }

    /// Drags with the mouse over an element, from one part of its width to another.
    pub async fn drag(&self, element: &str, (from, to): (f64, f64)) -> Result<(), Failed> {
        let element = self.client.find(Locator::Css(element)).await?;
        let (_, _, width, _) = element.rectangle().await?;
        let soon = Some(PERIOD);
        let at = |part: f64| PointerAction::MoveToElement {
            element: element.clone(),
            duration: soon,
            // Counted from the middle.
            x: ((part - 0.5) * width).round(),
            y: 0.0,
        };
        let mouse = MouseActions::new("mouse".to_owned())
            .then(at(from))
            .then(PointerAction::Down { button: MOUSE_BUTTON_LEFT })
            .then(at(f64::midpoint(from, to)))
            .then(at(to))
            .then(PointerAction::Up { button: MOUSE_BUTTON_LEFT });
        Ok(self.client.perform_actions(mouse).await?)
    }

    /// What a script returns.
    pub async fn ask(&self, script: &str) -> Result<Value, Failed> {
        Ok(self.client.execute(script, Vec::new()).await?)
    }

    /// A picture of what is to be seen, as PNG.
    pub async fn picture(&self) -> Result<Vec<u8>, Failed> {
        Ok(self.client.screenshot().await?)
    }

    pub async fn close(self) -> Result<(), Failed> {
        self.client.close().await?;
        drop(self.driver);
        Ok(())
    }
}
