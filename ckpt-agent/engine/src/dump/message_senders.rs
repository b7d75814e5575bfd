//! Who has sent what is queued in Unix sockets (SCM_CREDENTIALS), where that process has ended, or was never there: a restart
//! has a child of the init's send a message under its sender's number. Outside of the job's namespace nobody can tell that
//! number, so a process that has the socket looks at its queue.

use super::super::arch::words::{from_words, to_words};
use super::super::error::Result;
use super::super::graph::{Descriptor, OpenFile, Pid};
use super::super::objects::{BlobData, Object, Probe, UnixMessage, UnixSocket};
use super::super::sys::message;
use super::super::trace::{Batch, Remote};

/// Messages that are looked at at once.
const AT_ONCE: usize = 256;
/// What the kernel reads and writes for one of them.
const RECORD: u64 = 192;
/// Where in that are struct msghdr, struct iovec, the byte that is read, and room for struct cmsghdr with struct ucred alone:
/// no descriptor finds room behind it.
const HEADER: u64 = 8;
const PART: u64 = 96;
const BYTE: u64 = 120;
const CONTROL: u64 = 128;
const ROOM: u64 = 32;

/// Asks about the messages of unknown senders in these descriptors' sockets.
///
/// # Errors
/// The process's end.
pub(super) fn ask(
    remote: &mut Remote<'_>,
    descriptors: &[Descriptor],
    files: &mut [OpenFile],
    blobs: &[BlobData],
) -> Result<()> {
    for own in descriptors {
        let file = files.get_mut(own.file.0 as usize).map(|file| &mut file.object);
        let Some(Object::UnixSocket(socket)) = file else { continue };
        if !has_unknown(socket) || socket.received.iter().any(|message| message.urgent) {
            continue;
        }
        let mut unknown = Vec::new();
        let mut offset = 0;
        for message in &mut socket.received {
            let length = blobs.get(message.bytes.0 as usize).map_or(0, |blob| blob.length);
            // Empty ones are not shown again.
            if message.by.is_none() && length > 0 {
                unknown.push((offset, message));
            }
            offset += length;
        }
        for some in unknown.chunks_mut(AT_ONCE) {
            look(remote, own.fd, some)?;
        }
    }
    Ok(())
}

/// Whether a socket whose program asks for senders has messages of which none is known.
fn has_unknown(socket: &UnixSocket) -> bool {
    socket.asks_for_senders() && socket.received.iter().any(|message| message.by.is_none())
}

/// A line for each socket of which not all senders are known.
pub(super) fn unknown(files: &[OpenFile], probes: &[Probe]) -> Vec<String> {
    let all = files.iter().zip(probes);
    let unknown = all.filter(
        |(file, _)| matches!(&file.object, Object::UnixSocket(socket) if has_unknown(socket)),
    );
    unknown
        .map(|(_, probe)| {
            format!(
                "process {} ({}), descriptor {}: queued messages will carry the credentials of the job's init after \
                 a restart, where nobody knows their sender's number",
                probe.pid, probe.comm, probe.fd
            )
        })
        .collect()
}

/// Looks at each of these messages, at its offset in the queue, and leaves the program's own offset as it is.
fn look(remote: &mut Remote<'_>, fd: i32, messages: &mut [(u64, &mut UnixMessage)]) -> Result<()> {
    let at = remote.scratch_data()?;
    let (fd, level, name) = (fd as u64, libc::SOL_SOCKET as u64, libc::SO_PEEK_OFF as u64);
    // Where the kernel does not tell it, no offset (-1) is what most programs have.
    let mut memory = [(-1i32).to_ne_bytes(), 4i32.to_ne_bytes()].concat();
    let mut batch = Batch::new();
    batch.add(libc::SYS_getsockopt, &[fd, level, name, at, at + 4]);
    for (place, (offset, _)) in (0u64..).zip(messages.iter()) {
        let record = at + 8 + place * RECORD;
        let mut bytes = (*offset as i32).to_ne_bytes().to_vec();
        bytes.resize(HEADER as usize, 0);
        bytes.extend(to_words(&[0, 0, record + PART, 1, record + CONTROL, ROOM, 0]));
        bytes.resize(PART as usize, 0);
        bytes.extend(to_words(&[record + BYTE, 1]));
        bytes.resize(RECORD as usize, 0);
        memory.extend(bytes);
        batch.add(libc::SYS_setsockopt, &[fd, level, name, record, 4]);
        let flags = (libc::MSG_PEEK | libc::MSG_DONTWAIT) as u64;
        batch.add(libc::SYS_recvmsg, &[fd, record + HEADER, flags]);
    }
    batch.add(libc::SYS_setsockopt, &[fd, level, name, at, 4]);
    remote.memory().write(at, &memory)?;
    let answers = remote.run(&batch)?;
    remote.memory().read(at, &mut memory)?;
    let records = memory.get(8..).unwrap_or_default().chunks(RECORD as usize);
    let told = answers.get(1..).unwrap_or_default().chunks(2);
    for (((_, message), answer), record) in messages.iter_mut().zip(told).zip(records) {
        if answer.iter().all(|one| *one >= 0) {
            message.by = sender(record);
        }
    }
    Ok(())
}

/// Out of what the kernel has written. The init's number is everybody's who is not known.
fn sender(record: &[u8]) -> Option<Pid> {
    // The control data's length is the sixth word of struct msghdr.
    let header = from_words(record.get(HEADER as usize..PART as usize)?);
    let length = usize::try_from(*header.get(5)?).ok()?.min(ROOM as usize);
    let control = record.get(CONTROL as usize..CONTROL as usize + length)?;
    message::process(control).filter(|pid| *pid > 1)
}
