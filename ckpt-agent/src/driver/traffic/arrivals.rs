//! Where connections of jobs arrive that are made again between machines that encrypt: not at the agent's port, which stays
//! as it is, but at one that only packets through the device reach.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use protocol::task;
use protocol::transport::Refusals;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};

use crate::rewire::{self, Wires};

/// Pause after a failed accept(2): no descriptors left, most often.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens, and hands what comes to whoever waits for it; the port. Within a tokio run time.
///
/// # Errors
/// As bind(2).
pub fn listen(device: &str, wires: Arc<Wires>) -> io::Result<u16> {
    let listener = rewire::listen_through(device)?;
    let port = listener.local_addr()?.port();
    task::spawn(accept(listener, wires));
    Ok(port)
}

async fn accept(listener: TcpListener, wires: Arc<Wires>) {
    let refusals = Arc::<Refusals>::default();
    loop {
        match listener.accept().await {
            Ok((stream, remote)) => {
                let (wires, refusals) = (wires.clone(), refusals.clone());
                task::spawn(async move {
                    if let Err(error) = free(&stream) {
                        return refusals.tell(remote, &error);
                    }
                    if let Err(error) = wires.admit(stream).await {
                        refusals.tell(remote, &error);
                    }
                });
            }
            Err(error) => {
                tracing::warn!("failed to accept a connection of a job: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// It becomes a job's, to whom the device means nothing, and which may move: routes lead it through the device as well.
fn free(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).bind_device(None)
}
