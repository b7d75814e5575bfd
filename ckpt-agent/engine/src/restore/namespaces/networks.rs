//! Network namespaces in which sockets are made: before there are processes, as all that is open.

use std::collections::BTreeSet;

use super::super::super::dump::MOST_NETWORKS;
use super::super::super::error::{EngineError, Result};
use super::super::super::graph::{FileId, NamespaceContent};
use super::super::super::job_init::UserOrder;
use super::super::super::objects::RestoreContext;
use super::super::super::sys::file_user::FileUser;
use super::super::super::sys::network::{self, Known, Network};
use super::super::super::sys::restrained::{OVER_OBJECTS, OVER_SOCKET_OPTIONS, Restrained};

/// Makes those that sockets of this part were made in. As long as the answer lives, the thread makes sockets in them; the
/// namespaces themselves are kept in the context.
///
/// # Errors
/// Damage; namespaces that can't be made here.
pub fn make(context: &mut RestoreContext<'_>) -> Result<Known> {
    let known = Known::begin();
    super::check(&context.graph.namespaces)?;
    let files = context.graph.files.iter().enumerate();
    if files.clone().any(|(_, file)| file.network.is_some() && !file.object.is_socket()) {
        return Err(EngineError::Damaged("a network of what is no socket".to_owned()));
    }
    let files = files.filter_map(|(at, file)| Some((FileId(at as u32), file.network?)));
    let files: Vec<(FileId, u32)> = files.collect();
    let needed = files.iter().filter(|(id, _)| context.needs(*id)).map(|(_, place)| *place);
    let needed: BTreeSet<u32> = needed.collect();
    for (_, place) in &files {
        loopback_of(context, *place)?;
    }
    if needed.len() > MOST_NETWORKS {
        return Err(EngineError::Damaged("more networks than a checkpoint keeps".to_owned()));
    }
    for place in needed {
        let loopback_up = loopback_of(context, place)?;
        let user = context.user.as_ref();
        let made = Network::new(loopback_up, || user.map_or(Ok(()), act_as));
        let made = made.map_err(|error| EngineError::Unfit {
            what: format!("a network namespace of the job's own cannot be made here: {error}"),
            way_out:
                "restart it where it may make such namespaces; `ckptd doctor` says what is allowed"
                    .into(),
        })?;
        network::add(place, made);
        let namespace = network::namespace(place)
            .map_err(|error| EngineError::system("open", "a network namespace", error))?;
        let namespace = context.lift(namespace)?;
        context.networks.insert(place, namespace);
    }
    Ok(known)
}

/// For good: the process makes nothing else.
fn act_as(user: &UserOrder) -> std::io::Result<()> {
    let acting = FileUser::begin(user.uid, user.gid, &user.groups);
    let acting = acting.and_then(|acting| {
        let objects = Restrained::begin(OVER_OBJECTS)?;
        Ok((acting, objects, Restrained::further(OVER_SOCKET_OPTIONS)?))
    });
    acting.map(std::mem::forget).map_err(std::io::Error::other)
}

/// Whether the loopback device is up in one.
fn loopback_of(context: &RestoreContext<'_>, place: u32) -> Result<bool> {
    let one = context.graph.namespaces.get(place as usize).filter(|one| one.owner.is_none());
    match one.map(|one| &one.content) {
        Some(NamespaceContent::OwnNetwork { loopback_up }) => Ok(*loopback_up),
        _ => Err(EngineError::Damaged("a socket of a network namespace that is none".to_owned())),
    }
}
