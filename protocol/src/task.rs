//! Tasks of the async run time, each in a box. tokio's own functions are compiled once for each future, a dozen functions every
//! time; for phones these were a quarter of a megabyte. One allocation more for each task costs nothing that shows.

use std::future::Future;
use std::pin::Pin;

use tokio::task::{JoinError, JoinHandle};

/// Starts a task, as [`tokio::spawn`].
pub fn spawn<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let boxed: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(task);
    tokio::spawn(boxed)
}

/// Runs on a thread what waits for the kernel, as [`tokio::task::spawn_blocking`].
pub fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let boxed: Box<dyn FnOnce() -> T + Send> = Box::new(work);
    tokio::task::spawn_blocking(boxed)
}

/// The same for what can fail. A panic there becomes an error like others.
///
/// # Errors
/// Those of the work.
pub async fn blocking<T: Send + 'static, E: From<JoinError> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    spawn_blocking(work).await?
}
