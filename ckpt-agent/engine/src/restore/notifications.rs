//! Who is told of the next message in a POSIX message queue (mq_notify(3)). A process is told no more once it has closed any
//! descriptor of the queue (ipc/mqueue.c, mqueue_flush_file): so it asks when it has only those that it had.

use super::super::error::{EngineError, Result};
use super::super::graph::{FileId, OpenFile};
use super::super::objects::{Object, RestoreContext};
use super::completing::Furnished;

/// Has all of them ask.
///
/// # Errors
/// Failed calls; damage.
pub fn ask(
    furnished: &mut [Furnished<'_>],
    files: &[OpenFile],
    context: &RestoreContext,
) -> Result<()> {
    let queue = |file: &OpenFile| match &file.object {
        Object::MessageQueue(queue) => Some(queue.queue),
        _ => None,
    };
    for (id, file) in files.iter().enumerate() {
        let Object::MessageQueue(own) = &file.object else { continue };
        // All holders of a queue are in one part of a job.
        if !context.needs(FileId(id as u32)) {
            continue;
        }
        let Some(notification) = &own.notification else { continue };
        let damaged = || {
            let (pid, name) = (notification.process, &own.name);
            EngineError::Damaged(format!(
                "process {pid} is told of messages in {name}, which it does not have"
            ))
        };
        let process = furnished.iter_mut().find(|one| one.image.pid == notification.process);
        let process = process.ok_or_else(damaged)?;
        let number = process.image.descriptors.iter().find_map(|one| {
            let file = files.get(one.file.0 as usize)?;
            (queue(file) == Some(own.queue)).then_some(one.fd)
        });
        let number = number.ok_or_else(damaged)?;
        notification.ask(&mut process.remote()?, number)?;
    }
    Ok(())
}
