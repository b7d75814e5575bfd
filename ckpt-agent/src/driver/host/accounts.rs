//! Whose jobs this machine runs.

use std::collections::BTreeSet;

use nix::unistd::Uid;
use protocol::cluster::agent::{MOST_ACCOUNTS, Takes};
use protocol::database::users::{all_in_passwd, are_all_in_passwd, name_of};

/// As root: those of all users that the machine knows, as far as they can be listed. Else its own user's, and where the
/// machine is shared everybody's.
pub fn takes(shared: bool) -> Takes {
    let own = Uid::effective();
    match own.is_root() {
        false if shared => Takes::Everybody,
        false => Takes::Users(BTreeSet::from([name_of(own.as_raw())])),
        true if !are_all_in_passwd() => Takes::Everybody,
        true => {
            let names: BTreeSet<String> = all_in_passwd();
            if names.len() > MOST_ACCOUNTS { Takes::Everybody } else { Takes::Users(names) }
        }
    }
}
