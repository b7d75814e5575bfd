//! The coordinator's own Unix socket, for commands on its machine.

use super::driver::Incoming;
use protocol::cluster::agent::JobUser;
use protocol::task;
use protocol::transport::{ClientEvent, CommandSocket};
use tokio::sync::mpsc;

/// Takes clients for ever.
pub async fn listen(socket: CommandSocket, incoming: mpsc::Sender<Incoming>) {
    let tell = move |event| {
        let incoming = incoming.clone();
        async move {
            let event = match event {
                ClientEvent::Opened { number, uid, answers } => {
                    // The user's name and groups may have to be asked for on the network.
                    let user = task::spawn_blocking(move || JobUser::of(uid)).await;
                    let Ok(user) = user else { return false };
                    Incoming::ClientOpened { number, user, answers }
                }
                ClientEvent::Line { number, line } => Incoming::ClientLine { number, line },
                ClientEvent::Closed { number } => Incoming::ClientClosed { number },
            };
            // Nobody listens any more when the coordinator itself ends.
            incoming.send(event).await.is_ok()
        }
    };
    socket.serve(tell, std::future::pending()).await;
}
