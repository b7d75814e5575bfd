//! Connections that are made after a move: the calls bind, connect, listen, getpeername, getsockname and accept of
//! a job's processes are answered as if nothing had moved, and so are the calls of ioctl that ask for the addresses of
//! network interfaces.
//!
//! A seccomp filter (seccomp_unotify(2)) that all processes of an instance inherit from its init sends these calls to
//! a thread of the init, which lives as long as they do. It knows from the [`AddressMap`] what has moved, asks nobody,
//! and lets every call that is none of its business go on at once.
//!
//! * `filter`: the filter, and the word by which the init's own calls pass it;
//! * `notify`: calls as they arrive, and their answers;
//! * `calls`: the same calls, made for a process on a copy of its descriptor;
//! * `sockaddr`: addresses as calls carry them;
//! * `addresses`: which address is where; pure;
//! * `names`: what single sockets are called;
//! * `answer`: what is done about each call;
//! * `interfaces`: addresses of network interfaces;
//! * `connecting`: connections that were being made at the checkpoint;
//! * `serve`: the thread.
//!
//! The acceptor of a connection from a process that has moved sees the machine's address. Whose it is, it knows from
//! the port: such processes connect from ports that mean their logical node on that machine. So nothing has to be told
//! to anybody before a connection is made, and nothing is lost with an agent or a coordinator.
//!
//! The arguments of a call are read from the memory of its process, which may change them at the same time: this is
//! no border of trust. What the init does for a process it does to the process's own socket, at addresses of the
//! job's own address map.

mod address_map;
mod answer;
mod calls;
mod connecting;
mod filter;
mod interfaces;
mod names;
mod notify;
mod serve;
mod sockaddr;

pub use address_map::Addresses;
pub use answer::{cookie_of, is_v6_only};
pub use connecting::{Connecting, ask_all};
pub use filter::{Installed, filters_of, install_or_say};
pub use names::{Name, NamedSocket, Names};
pub use serve::{Late, Restored};

use protocol::cluster::NodeName;
use protocol::cluster::addresses::AddressMap;
use serde::{Deserialize, Serialize};

/// What an init is told of late connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// The machine.
    pub machine: NodeName,
    /// What has moved.
    #[serde(rename = "addresses")]
    pub addresses: AddressMap,
}
