//! What must hold however the page is looked at.

use super::Failed;
use super::browser::{Browser, Look};
use serde_json::Value;

/// The most that a browser has to load, in bytes: all files of the page.
const MOST: f64 = 300.0 * 1024.0;

/// Elements that end beyond the window, or beyond what is beside them, and can't be scrolled there.
const CUT: &str = "
const wide = window.innerWidth + 0.5;
const hidden = (one) => one.closest('.scroll, thead, caption, pre, noscript, [hidden]');
const cut = [...document.querySelectorAll('body *')].filter((one) => {
  if (hidden(one) || one instanceof SVGElement && one.tagName !== 'svg') return false;
  const box = one.getBoundingClientRect();
  return box.width > 0 && (box.right > wide || box.left < -0.5);
});
const drawn = [...document.querySelectorAll('.chart svg text')].filter((one) => {
  const [text, all] = [one.getBoundingClientRect(), one.closest('.chart').getBoundingClientRect()];
  return text.right > all.right + 0.5 || text.left < all.left - 0.5;
});
return [...cut, ...drawn].map((one) => `${one.tagName} ${one.textContent.slice(0, 40)}`);";

/// How bright the page and its text are, from 0 to 1.
const BRIGHT: &str = "
const bright = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 765;
const style = getComputedStyle(document.body);
return [bright(style.backgroundColor), bright(style.color)];";

/// What was loaded, and how large that was without what is told again and again.
const LOADED: &str = "
const all = performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'));
const files = all.filter((one) => !/\\/(data|events|log)/.test(new URL(one.name).pathname));
return [all.map((one) => new URL(one.name).origin).filter((from) => from !== location.origin),
  files.reduce((sum, one) => sum + one.decodedBodySize, 0), files.length];";

/// Nothing is cut, the page is no wider than the window, and its colours are those that were asked for.
pub async fn all_is_seen(browser: &mut Browser, look: Look) -> Result<(), Failed> {
    let fits = "return document.documentElement.scrollWidth <= window.innerWidth";
    browser.wait_for(fits, "the page is no wider than the window").await?;
    if look == Look::LightNarrow {
        let width = browser.ask("return window.innerWidth").await?;
        if width != 360 {
            return Err(format!("the window is {width} pixels wide").into());
        }
    }
    let cut = browser.ask(CUT).await?;
    if cut.as_array().is_none_or(|cut| !cut.is_empty()) {
        return Err(format!("these are cut ({look:?}): {cut}").into());
    }
    let bright = browser.ask(BRIGHT).await?;
    let (back, text) = (bright[0].as_f64(), bright[1].as_f64());
    let (back, text) = back.zip(text).ok_or_else(|| format!("no colours: {bright}"))?;
    let is_right = if look == Look::DarkWide { text - back > 0.5 } else { back - text > 0.5 };
    if is_right { Ok(()) } else { Err(format!("its colours ({look:?}): {bright}").into()) }
}

/// Whatever was loaded came from the coordinator, and is small.
pub async fn nothing_is_from_elsewhere(browser: &mut Browser) -> Result<(), Failed> {
    let loaded = browser.ask(LOADED).await?;
    let [elsewhere, size, files] = [0, 1, 2].map(|at| &loaded[at]);
    let none_elsewhere = elsewhere.as_array().is_some_and(Vec::is_empty);
    println!("the page is {size} bytes in {files} files");
    let is_small = size.as_f64().is_some_and(|size| size > 0.0 && size < MOST);
    if none_elsewhere && is_small && files.as_u64() > Some(5) {
        return Ok(());
    }
    Err(format!("what was loaded: {}", Value::clone(&loaded)).into())
}
