//! Who a restored thread acts as, and what else a change of user takes away.

use super::super::arch::calls;
use super::super::error::{EngineError, Result};
use super::super::graph::{Credentials, ThreadImage};
use super::super::sys::restrained::CAPABILITY_VERSION;
use super::super::trace::{Batch, Remote, Scratch, Ticket};

/// Bytes of what capset(2) reads.
const CAPABILITY_WORDS: u64 = 64;

/// SECBIT_KEEP_CAPS (include/uapi/linux/securebits.h), which is PR_SET_KEEPCAPS.
const KEEP_CAPS: u32 = 1 << 4;

/// Calls whose failure matters.
#[derive(Default)]
struct Calls {
    batch: Batch,
    checked: Vec<(&'static str, Ticket)>,
}

impl Calls {
    fn must(&mut self, name: &'static str, number: impl Into<i64>, arguments: &[u64]) {
        self.checked.push((name, self.batch.add(number, arguments)));
    }

    fn prctl(&mut self, name: &'static str, option: i32, arguments: [u64; 2]) {
        let [first, second] = arguments;
        self.must(name, libc::SYS_prctl, &[option as u64, first, second, 0, 0]);
    }

    fn run(self, remote: &mut Remote<'_>, thread: &ThreadImage) -> Result<()> {
        let answers = remote.run(&self.batch)?;
        for (name, ticket) in self.checked {
            if name == "setgroups" && answers[ticket.0] == -i64::from(libc::EPERM) {
                return Err(no_right_to_groups(thread));
            }
            remote.checked(name, answers[ticket.0])?;
        }
        Ok(())
    }
}

/// struct __user_cap_header_struct, two struct __user_cap_data_struct: effective, permitted, inheritable.
fn capabilities([effective, permitted, inheritable]: [u64; 3]) -> Vec<u8> {
    let halves = |shift: u32| [effective, permitted, inheritable].map(|set| (set >> shift) as u32);
    let words = [[CAPABILITY_VERSION, 0].as_slice(), &halves(0), &halves(32)].concat();
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn each(set: u64) -> impl Iterator<Item = u64> {
    (0..64).filter(move |capability| set & 1 << capability != 0)
}

/// Which bounding set a thread gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounding {
    /// The image's.
    Recorded,
    /// That of the one who restores. By an image's word root would make a user a process with a smaller one, which
    /// nobody gets by their own rights, and which set-user-ID programs do not expect: they could fail to give up
    /// rights.
    Here,
}

/// Gives a thread its credentials: the last calls of all, since they take the right to make others.
///
/// # Errors
/// EPERM where the one who restores may not act as that user.
pub fn become_user(
    remote: &mut Remote<'_>,
    scratch: Scratch,
    thread: &ThreadImage,
    own: &Credentials,
    bounding: Bounding,
) -> Result<()> {
    let wanted = &thread.credentials;
    let [inheritable, permitted, effective, recorded, ambient] = wanted.capabilities;
    // Who can get no new rights misleads nobody.
    let bounding = match bounding {
        Bounding::Here if !thread.no_new_privs => own.capabilities[3],
        _ => recorded,
    };
    let all = own.capabilities[1];
    let changes = [
        // What is to be inherited must be in the bounding set when it is added.
        capabilities([own.capabilities[2], all, inheritable]),
        // A change of user clears what is effective.
        capabilities([all, all, inheritable]),
        capabilities([effective, permitted, inheritable]),
    ];
    let at = scratch.data();
    let places = [0, 1, 2].map(|index| at + index * CAPABILITY_WORDS);
    let groups_at = at + 3 * CAPABILITY_WORDS;
    for (place, bytes) in places.iter().zip(changes) {
        remote.memory().write(*place, &bytes)?;
    }
    let groups: Vec<u8> = wanted.groups.iter().flat_map(|group| group.to_ne_bytes()).collect();
    remote.memory().write(groups_at, &groups)?;

    let mut calls = Calls::default();
    let capset = |calls: &mut Calls, which: usize| {
        calls.must("capset", libc::SYS_capset, &[places[which], places[which] + 8]);
    };
    if inheritable & !own.capabilities[0] != 0 {
        capset(&mut calls, 0);
    }
    for capability in each(own.capabilities[3] & !bounding) {
        // Where there is no right to, there was none to add to it either.
        calls.batch.add(libc::SYS_prctl, &[libc::PR_CAPBSET_DROP as u64, capability]);
    }
    if wanted.uids != own.uids || wanted.gids != own.gids || !same_groups(wanted, own) {
        // Capabilities must outlive the change of user (capabilities(7), PR_SET_KEEPCAPS).
        calls.prctl("PR_SET_KEEPCAPS", libc::PR_SET_KEEPCAPS, [1, 0]);
        change_user(&mut calls, wanted, own, groups_at);
        calls.prctl("PR_SET_KEEPCAPS", libc::PR_SET_KEEPCAPS, [0, 0]);
    }
    if ambient != 0 || wanted.securebits != own.securebits {
        capset(&mut calls, 1);
        for capability in each(ambient) {
            let raise = [libc::PR_CAP_AMBIENT_RAISE as u64, capability];
            calls.prctl("PR_CAP_AMBIENT", libc::PR_CAP_AMBIENT, raise);
        }
    }
    match wanted.securebits ^ own.securebits {
        0 => {}
        // This one takes no right.
        KEEP_CAPS => {
            let kept = u64::from(wanted.securebits & KEEP_CAPS != 0);
            calls.prctl("PR_SET_KEEPCAPS", libc::PR_SET_KEEPCAPS, [kept, 0]);
        }
        _ => {
            let bits = u64::from(wanted.securebits);
            calls.prctl("PR_SET_SECUREBITS", libc::PR_SET_SECUREBITS, [bits, 0]);
        }
    }
    capset(&mut calls, 2);
    if thread.no_new_privs {
        calls.prctl("PR_SET_NO_NEW_PRIVS", libc::PR_SET_NO_NEW_PRIVS, [1, 0]);
    }
    // A change of credentials forgets it (PR_SET_PDEATHSIG(2const)).
    let signal = thread.parent_death_signal as u64;
    calls.prctl("PR_SET_PDEATHSIG", libc::PR_SET_PDEATHSIG, [signal, 0]);
    calls.run(remote, thread)
}

/// Makes the ids of a process what they were: before it enters a user namespace of its own, in which it may have no numbers for
/// them. What is made for a user (`by_root`) is entered with that one's rights alone, else with all that it has.
///
/// # Errors
/// EPERM where the one who restores may not act as that user.
pub fn change_ids(
    remote: &mut Remote<'_>,
    scratch: Scratch,
    thread: &ThreadImage,
    own: &Credentials,
    by_root: bool,
) -> Result<()> {
    let wanted = &thread.credentials;
    if wanted.uids == own.uids && wanted.gids == own.gids && same_groups(wanted, own) {
        return Ok(());
    }
    let (at, groups_at) = (scratch.data(), scratch.data() + CAPABILITY_WORDS);
    let rights = match by_root {
        true => [0; 3],
        false => [own.capabilities[1], own.capabilities[1], own.capabilities[0]],
    };
    remote.memory().write(at, &capabilities(rights))?;
    let groups: Vec<u8> = wanted.groups.iter().flat_map(|group| group.to_ne_bytes()).collect();
    remote.memory().write(groups_at, &groups)?;
    let mut calls = Calls::default();
    calls.prctl("PR_SET_KEEPCAPS", libc::PR_SET_KEEPCAPS, [1, 0]);
    change_user(&mut calls, wanted, own, groups_at);
    calls.prctl("PR_SET_KEEPCAPS", libc::PR_SET_KEEPCAPS, [0, 0]);
    // A change of user clears what is effective.
    calls.must("capset", libc::SYS_capset, &[at, at + 8]);
    calls.run(remote, thread)
}

fn no_right_to_groups(thread: &ThreadImage) -> EngineError {
    EngineError::Unfit {
        what: format!(
            "thread {} is in groups {:?}, and may not be put into them here",
            thread.tid, thread.credentials.groups
        ),
        way_out: "restart it as a user who is in exactly these groups".into(),
    }
}

/// The order says nothing.
fn same_groups(one: &Credentials, other: &Credentials) -> bool {
    let sorted = |credentials: &Credentials| {
        let mut groups = credentials.groups.clone();
        groups.sort_unstable();
        groups
    };
    sorted(one) == sorted(other)
}

/// Groups first: to set them is a right of the user that is given up.
fn change_user(calls: &mut Calls, wanted: &Credentials, own: &Credentials, groups_at: u64) {
    if !same_groups(wanted, own) {
        // Else they stay: an ordinary user's namespace may not set any (user_namespaces(7)).
        calls.must("setgroups", calls::SETGROUPS, &[wanted.groups.len() as u64, groups_at]);
    }
    let [real, effective, saved, file_system] = wanted.gids.map(u64::from);
    calls.must("setresgid", calls::SETRESGID, &[real, effective, saved]);
    calls.batch.add(calls::SETFSGID, &[file_system]);
    let [real, effective, saved, file_system] = wanted.uids.map(u64::from);
    calls.must("setresuid", calls::SETRESUID, &[real, effective, saved]);
    calls.batch.add(calls::SETFSUID, &[file_system]);
}
