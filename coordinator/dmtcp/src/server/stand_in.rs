//! Connections in the stead of peers that departed: they are there, and silent.

use protocol::task;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// How long a worker's listener may take to answer.
const DIALLING: Duration = Duration::from_secs(10);

/// Accepts whoever comes in the stead of a departed peer; where.
pub async fn listen(own_address: Ipv4Addr) -> Option<SocketAddr> {
    let listener = match TcpListener::bind((own_address, 0)).await {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!("DMTCP: nobody can stand in for departed peers: {error}");
            return None;
        }
    };
    let address = listener.local_addr().ok()?;
    task::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(task::spawn(hold(stream))),
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    });
    Some(address)
}

/// Takes what comes and says nothing, until the other side has enough.
async fn hold(mut stream: TcpStream) {
    let mut room = vec![0; 512];
    while matches!(stream.read(&mut room).await, Ok(count) if count > 0) {}
}

/// Connects to a worker's restore listener, as the departed peer of that connection.
pub fn dial(address: SocketAddr, key: String) {
    task::spawn(async move {
        let Some(name) = connection_name(&key) else {
            return tracing::warn!("DMTCP: {key} names no connection: its worker waits in vain");
        };
        match tokio::time::timeout(DIALLING, TcpStream::connect(address)).await {
            Ok(Ok(mut stream)) => {
                if stream.write_all(&name).await.is_ok() {
                    hold(stream).await;
                }
            }
            Ok(Err(error)) => tracing::warn!("DMTCP: failed to reach {address}: {error}"),
            Err(_) => tracing::warn!("DMTCP: failed to reach {address}: it does not answer"),
        }
    });
}

/// What the connecting side says first: the connection's name as DMTCP keeps it, of which `HOST-PID-TIME(NUMBER)` is
/// the text: host u64, time u64, pid i32, generation i32, number i64.
fn connection_name(key: &str) -> Option<Vec<u8>> {
    let (process, number) = key.strip_suffix(')')?.split_once('(')?;
    let mut parts = process.split('-');
    let host = u64::from_str_radix(parts.next()?, 16).ok()?;
    let pid: i32 = parts.next()?.parse().ok()?;
    let time = u64::from_str_radix(parts.next()?, 16).ok()?;
    let number: i64 = number.parse().ok()?;
    let mut name = Vec::with_capacity(32);
    name.extend(host.to_le_bytes());
    name.extend(time.to_le_bytes());
    name.extend(pid.to_le_bytes());
    // That of a connection's name is never counted up.
    name.extend(0_i32.to_le_bytes());
    name.extend(number.to_le_bytes());
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_name_is_understood() {
        let name = connection_name("98ff-40000-7770a9950e1(99005)").unwrap();
        assert_eq!(name.len(), 32);
        assert_eq!(name[..2], [0xff, 0x98]);
        assert_eq!(name[16..20], 40000_i32.to_le_bytes());
        assert_eq!(name[24..], 99005_i64.to_le_bytes());
        assert_eq!(connection_name("x"), None);
    }
}
