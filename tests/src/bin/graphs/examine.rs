//! What needs no process: changed images are opened, checked, divided and planned, in this process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use ckpt_engine::restore::{Image, Past, tree};
use ckpt_engine::split::PartOrder;
use ckptd_tests::job::Failure;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::Options;
use super::material::{Case, Material};
use super::{impossible, subjects::Subject};

/// How long one may take.
const LIMIT: Duration = Duration::from_secs(10);
/// How much memory all of this process may have meanwhile.
const MEMORY: u64 = 4 << 30;

/// Looks at this part's share of them. How many have failed.
pub fn all(material: &Material, options: &Options, shard: u64) -> Result<u32, Failure> {
    let failed = |e: nix::errno::Errno| Failure(format!("failed to limit memory: {e}"));
    let (soft, hard) = getrlimit(Resource::RLIMIT_AS).map_err(failed)?;
    setrlimit(Resource::RLIMIT_AS, MEMORY.min(hard), hard).map_err(failed)?;
    let begun = Instant::now();
    let (mut right, mut wrong, mut fails) = (0, 0, 0);
    let first = (impossible::ALL.len() * material.subjects.len()) as u64;
    for number in first..first + options.examined {
        if number % options.shards != shard {
            continue;
        }
        let subject = (number % material.subjects.len().max(1) as u64) as usize;
        let case = Case { number, subject, by_hand: None };
        let Some((documents, what)) = material.changed(&case) else { continue };
        let subject = &material.subjects[subject];
        documents.write(&subject.checkpoint()?)?;
        let started = Instant::now();
        let looked = catch_unwind(AssertUnwindSafe(|| look(subject)));
        let outcome = match looked {
            Err(_) => Err("it panicked".to_owned()),
            Ok(_) if started.elapsed() > LIMIT => Err(format!("took {:?}", started.elapsed())),
            Ok(Err(failure)) => Err(failure.0),
            Ok(Ok(None)) => {
                right += 1;
                Ok(())
            }
            Ok(Ok(Some(line))) if line.lines().count() != 1 => Err(format!("no line: {line:?}")),
            Ok(Ok(Some(_))) => {
                wrong += 1;
                Ok(())
            }
        };
        if let Err(why) = outcome {
            fails += 1;
            println!("FAIL case {number} of {}, examined: {what}: {why}", subject.name);
        }
        material.documents[case.subject].write(&subject.checkpoint()?)?;
    }
    setrlimit(Resource::RLIMIT_AS, soft, hard).map_err(failed)?;
    println!(
        "part {shard}: {right} graphs could be restored, {wrong} are refused, {fails} failed, in {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    Ok(fails)
}

/// Why it is refused, if it is.
fn look(subject: &Subject) -> Result<Option<String>, Failure> {
    let folder = subject.folder()?;
    if let Err(error) = Past::of(&folder, 1) {
        return Ok(Some(error.to_string()));
    }
    let outcome = Image::open(&folder, 1).and_then(|(mut image, mut processes)| {
        let order = PartOrder::whole(&image.graph);
        let part = image.take_part(&mut processes, &order)?;
        image.relay_states()?;
        Ok(part)
    });
    let part = match outcome {
        Ok(part) => part,
        Err(error) => return Ok(Some(error.to_string())),
    };
    Ok(tree::plan(&part.nodes).err().map(|error| error.to_string()))
}
