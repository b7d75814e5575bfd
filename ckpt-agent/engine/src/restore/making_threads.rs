//! In which order, and by which thread of its process, each thread of a restored job is made.

use super::super::error::Result;
use super::super::graph::{Graph, Pid};
use super::super::job_init::World;
use super::super::job_init::world::wants_numbers;
use super::super::sys::rounds::{self, Counter};
use super::super::trace::Remote;
use super::held::Held;
use super::numbers::Numbers;
use super::{Helper, namespaces, pids, threads};

/// A thread to be made: its number, whose it is, and its place among that one's threads.
type Awaited = (Pid, usize, usize);

/// Makes all threads of all processes. Where numbers can't be asked for, they are taken as the kernel hands them out; what
/// has slipped away is tried again in its next round.
pub(super) fn make_threads(
    helpers: &mut [Helper<'_>],
    graph: &Graph,
    numbers: &Numbers,
) -> Result<()> {
    let namespaces = &graph.namespaces;
    let mut all: Vec<Awaited> = Vec::new();
    for (process, helper) in helpers.iter().enumerate() {
        let others = helper.image.threads.iter().enumerate().skip(1);
        all.extend(others.map(|(place, thread)| (thread.tid, process, place)));
    }
    // Those that are made by another one than the main thread, after that one.
    let made_by_another = |(_, process, place): &Awaited| {
        helpers[*process].image.threads[*place].directories_of.is_some()
    };
    all.sort_by_key(made_by_another);
    if World::of_this_init() == World::Own {
        return all.into_iter().try_for_each(|thread| {
            // To ask for a number is a right in the user namespace that the PID namespace belongs to.
            let (helper, place) = (&helpers[thread.1], thread.2);
            let asking = match namespaces::is_among_other_users(helper, namespaces) {
                true => {
                    threads::Asking::ByTheLast(pids::last_inside(helper, place, graph, numbers)?)
                }
                false => threads::Asking::Plainly(helper.image.threads[place].tid_inside),
            };
            make_thread(helpers, thread, asking).map(drop)
        });
    }
    let counter = Counter::default();
    let mut held = Held::new();
    if wants_numbers() {
        for (tid, process, _) in &all {
            if namespaces::is_among_other_users(&helpers[*process], namespaces) {
                held.hold(*tid);
            }
        }
    }
    let end = rounds::end().unwrap_or(Pid::MAX);
    for _ in 0..rounds::TRIES {
        let last = counter.last().unwrap_or(0);
        all.sort_by_key(|(tid, ..)| rounds::distance(last, *tid, end));
        let mut missed = Vec::new();
        let mut before = None;
        for thread in all {
            // What has gone by does not come before all others have.
            let step = before.map_or(Pid::MAX, |before| rounds::distance(before, thread.0, end));
            let asking = match held.has(thread.0) {
                true => threads::Asking::Held(&counter, &mut held),
                false => threads::Asking::Near(&counter, step),
            };
            match make_thread(helpers, thread, asking)? {
                true => before = Some(thread.0),
                false => missed.push(thread),
            }
        }
        all = missed;
    }
    all.sort_by_key(|(_, process, place)| {
        helpers[*process].image.threads[*place].directories_of.is_some()
    });
    all.into_iter().try_for_each(|thread| {
        make_thread(helpers, thread, threads::Asking::Not(&counter)).map(drop)
    })
}

fn make_thread(
    helpers: &mut [Helper<'_>],
    (tid, process, place): Awaited,
    asking: threads::Asking<'_, '_>,
) -> Result<bool> {
    let helper = &mut helpers[process];
    let (image, entry_point, scratch) = (helper.image, helper.entry_point, helper.scratch);
    let own = &image.threads[place];
    let maker = match own.directories_of {
        // What is made by another one than its main thread has that one's directories.
        Some(other) => {
            let other = image.threads.iter().position(|thread| thread.tid == other);
            match other.and_then(|place| helper.others.get_mut(&place)) {
                Some(maker) => maker,
                // It comes first.
                None => return Ok(false),
            }
        }
        None => &mut helper.leader,
    };
    let mut remote = Remote::take(maker, entry_point)?.with_scratch(scratch);
    let born = threads::Born::thread(own.directories.is_some());
    let made = threads::make(&mut remote, tid, scratch, (asking, born))?;
    drop(remote);
    let done = made.is_some();
    helper.others.extend(made.map(|made| (place, made)));
    Ok(done)
}
