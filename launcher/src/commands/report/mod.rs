//! `ckptd report`: one page about a job, to be opened in a browser.
//!
//! - `page`: the page: facts, tables, the words of each part.
//! - `picture`: the drawing of the whole time, and of each recovery by its phases.
//! - `phases`: what a recovery consists of.

mod page;
mod phases;
mod picture;

pub(super) use page::{STYLE, table};
pub(super) use picture::{LANE, LEFT, Scale, WIDTH, drawing, escaped, lane_name, span};

use super::summary::JobSummary;
use super::target::Target;
use super::{Context, print};
use crate::failure::Failure;
use crate::out;
use crate::text;
use protocol::cluster::client::Ask;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The file that stands for standard output.
const STANDARD_OUTPUT: &str = "-";

pub fn perform(context: &Context, wanted: &str, to: Option<PathBuf>) -> Result<(), Failure> {
    let what = format!("report on {wanted}");
    let job = match context.target(wanted)? {
        Target::Cluster(cluster) => {
            let all = cluster.listing(&what, &Ask::Status { job: Some(wanted.to_owned()) })?;
            match all {
                Value::Array(mut all) if all.len() == 1 => all.remove(0),
                one => one,
            }
        }
        Target::Own(job) => serde_json::to_value(JobSummary::of(&job)?)
            .map_err(|error| Failure::of(&what, error))?,
    };
    let page = page::of_job(&job, text::now_ms());
    let name = crate::cluster::listing::word(&job, "name");
    let to = to.unwrap_or_else(|| PathBuf::from(format!("{name}.html")));
    if to == Path::new(STANDARD_OUTPUT) {
        return print(&page);
    }
    out::write_file(&to, page.as_bytes()).map_err(|error| Failure::of(&what, error))?;
    print(&format!("{}\n", to.display()))
}
