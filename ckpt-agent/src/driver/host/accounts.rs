//! Whose jobs this machine runs.

use ckpt_engine::sys::standing::{NOBODY, acts_for_all, acts_for_all_but_root};
use std::collections::BTreeSet;

use nix::unistd::Uid;
use protocol::cluster::agent::{MOST_ACCOUNTS, Takes};
use protocol::database::users::{Account, all_in_passwd, are_all_in_passwd, name_of};

/// Whether an agent that acts for all users but root can become that one.
pub fn is_known(uid: u32) -> bool {
    uid != 0 && uid != NOBODY
}

/// As root, or one who may become all users: those of all users that the machine knows, as far as they can be listed. Else its own user's, and where the
/// machine is shared everybody's.
pub fn takes(shared: bool) -> Takes {
    let own = Uid::effective();
    match acts_for_all() {
        false if shared => Takes::Everybody,
        false => Takes::Users(BTreeSet::from([name_of(own.as_raw())])),
        true if !are_all_in_passwd() => Takes::Everybody,
        true => {
            let mut names: BTreeSet<String> = all_in_passwd();
            if acts_for_all_but_root() {
                names
                    .retain(|name| Account::of_name(name).is_some_and(|known| is_known(known.uid)));
            }
            if names.len() > MOST_ACCOUNTS { Takes::Everybody } else { Takes::Users(names) }
        }
    }
}
