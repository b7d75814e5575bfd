//! An archive on its way into a bucket, part by part. Nobody sees it before it is whole.

use super::client::{LOOK, Object, unless, wait};
use super::connector::Patience;
use super::{Address, BucketError, GiveUp, Over, asked, claim, draft};
use object_store::multipart::{MultipartStore, PartId};
use object_store::{MultipartId, PutPayload};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::task::JoinSet;

/// The smallest part; S3 takes none below 5 MiB but the last.
const SMALLEST: usize = 8 << 20;
/// The largest part that S3 takes.
const LARGEST: u64 = 5 << 30;
/// The most parts that S3 takes.
const MOST_PARTS: usize = 10_000;
/// So many are aimed at: what is expected is only about right.
const AIMED_PARTS: u64 = 8_000;
/// The most parts under way.
const MOST_UNDER_WAY: usize = 4;
/// Bytes of parts under way, where these are large.
const BYTES_UNDER_WAY: usize = 64 << 20;
/// How long it may take to abort one.
const ABORTING: Duration = Duration::from_secs(3);
/// How often a part is sent, if that fails sooner than it may take.
const TRIES: usize = 3;

enum Order {
    Part(Vec<u8>),
    Complete,
}

/// What is written to it goes into an object. Dropped before [`keep`](Self::keep), nothing of it stays.
pub struct Upload {
    orders: Option<mpsc::Sender<Order>>,
    sender: Option<JoinHandle<Result<(), BucketError>>>,
    give_up: GiveUp,
    /// The sender gives it up, too.
    is_dropped: Arc<AtomicBool>,
    buffer: Vec<u8>,
    part: usize,
}

/// All parts have the same size, which some servers ask for.
fn part_size(bytes: u64) -> usize {
    let wanted = (bytes / AIMED_PARTS).min(LARGEST).next_multiple_of(1 << 20);
    usize::try_from(wanted).unwrap_or(usize::MAX).max(SMALLEST)
}

fn under_way(part: usize) -> usize {
    (BYTES_UNDER_WAY / part).clamp(1, MOST_UNDER_WAY)
}

impl Upload {
    /// Begins one of about so many bytes. `over`: what there may be already. `give_up` is asked while it waits.
    ///
    /// # Errors
    /// Where nothing can be written there.
    pub fn begin(
        address: &Address,
        bytes: u64,
        over: Over,
        give_up: GiveUp,
    ) -> Result<Self, BucketError> {
        if over == Over::Nothing && asked::exists(address, &give_up)? {
            return Err(BucketError::There(address.clone()));
        }
        let part = part_size(bytes);
        let asked = Object::of(address, Patience::SMALL)?;
        let object = Arc::new(Object::of(address, Patience::for_bytes(part))?);
        let begun = async {
            // What another run has under way there is not swept away.
            if let Over::Claimed(run) = &over {
                claim::check(&asked, run).await?;
            }
            begin(&asked).await
        };
        let upload = wait(unless(&give_up, begun))?;
        let (orders, receiver) = mpsc::channel(1);
        let is_dropped = Arc::new(AtomicBool::new(false));
        let (dropped, asked_for) = (is_dropped.clone(), give_up.clone());
        let ends = GiveUp::when(move || dropped.load(Ordering::SeqCst) || asked_for.is_asked());
        let sending = Sending { asked, object, upload, over, most: under_way(part), give_up: ends };
        let thread = std::thread::Builder::new().name("upload".to_owned());
        let sender = thread.spawn(move || wait(sending.send(receiver)))?;
        let (orders, sender) = (Some(orders), Some(sender));
        Ok(Self { orders, sender, give_up, is_dropped, buffer: Vec::new(), part })
    }

    /// Gives a part or the end to the sender; a failure is the one of the sender.
    fn order(&mut self, order: Order) -> Result<(), BucketError> {
        let mut order = order;
        loop {
            let Some(orders) = &self.orders else { return Err(BucketError::GivenUp) };
            match orders.try_send(order) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(same)) if !self.give_up.is_asked() => order = same,
                Err(TrySendError::Full(_)) => return Err(BucketError::GivenUp),
                Err(TrySendError::Closed(_)) => {
                    return self.end().and(Err(BucketError::GivenUp));
                }
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits for the sender, which has all it is to get.
    fn end(&mut self) -> Result<(), BucketError> {
        self.orders = None;
        let Some(sender) = self.sender.take() else { return Err(BucketError::GivenUp) };
        sender.join().unwrap_or(Err(BucketError::GivenUp))
    }

    /// Completes it: from now on the object is this.
    ///
    /// # Errors
    /// Where it is not whole; nothing of it stays then.
    pub fn keep(mut self) -> Result<(), BucketError> {
        if !self.buffer.is_empty() {
            let last = std::mem::take(&mut self.buffer);
            self.order(Order::Part(last))?;
        }
        self.order(Order::Complete)?;
        self.end()
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // Aborts it, if it is not kept.
        self.is_dropped.store(true, Ordering::SeqCst);
        let _ = self.end();
    }
}

impl Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.part - self.buffer.len());
        let (bytes, _) = bytes.split_at(count);
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() == self.part {
            let next = Vec::with_capacity(self.part);
            let part = std::mem::replace(&mut self.buffer, next);
            self.order(Order::Part(part)).map_err(io::Error::other)?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn begin(object: &Object) -> Result<MultipartId, BucketError> {
    draft::sweep(object).await?;
    let upload = object.store.create_multipart(&object.path).await;
    let upload = upload.map_err(|error| object.told(&error))?;
    if let Err(error) = draft::note(object, Some(&upload)).await {
        let _ = object.store.abort_multipart(&object.path, &upload).await;
        return Err(error);
    }
    Ok(upload)
}

/// What sends parts as they come.
struct Sending {
    /// For orders.
    asked: Object,
    /// For parts, and for their completion, which may take a server as long.
    object: Arc<Object>,
    upload: MultipartId,
    over: Over,
    /// The most under way.
    most: usize,
    give_up: GiveUp,
}

type Sent = Result<(usize, PartId), BucketError>;

impl Sending {
    /// Completes the upload when that is told, or aborts it.
    async fn send(&self, orders: mpsc::Receiver<Order>) -> Result<(), BucketError> {
        let Self { asked, object, upload, .. } = self;
        let sent = async {
            let parts = self.send_parts(orders).await?;
            if let Over::Claimed(run) = &self.over {
                claim::check(asked, run).await?;
            }
            let done = object.store.complete_multipart(&object.path, upload, parts).await;
            done.map(drop).map_err(|error| object.told(&error))
        };
        // The server may complete what is given up meanwhile: then the object is this, and whole.
        let sent = unless(&self.give_up, sent).await;
        // Where not even that is possible, the next one there does it.
        let clear = async {
            if sent.is_ok() || asked.store.abort_multipart(&asked.path, upload).await.is_ok() {
                let _ = draft::forget(asked, upload).await;
            }
        };
        let _ = tokio::time::timeout(ABORTING, clear).await;
        sent
    }

    async fn send_parts(
        &self,
        mut orders: mpsc::Receiver<Order>,
    ) -> Result<Vec<PartId>, BucketError> {
        // Dropped, they end.
        let mut under_way: JoinSet<Sent> = JoinSet::new();
        let mut parts: Vec<Option<PartId>> = Vec::new();
        let mut is_whole = false;
        while !is_whole || !under_way.is_empty() {
            tokio::select! {
                Some(done) = under_way.join_next(), if !under_way.is_empty() => {
                    let (index, part) = done.map_err(|_| BucketError::GivenUp)??;
                    if let Some(place) = parts.get_mut(index) {
                        *place = Some(part);
                    }
                }
                order = orders.recv(), if !is_whole && under_way.len() < self.most => match order {
                    Some(Order::Part(_)) if parts.len() == MOST_PARTS => {
                        return Err(BucketError::TooLarge);
                    }
                    Some(Order::Part(bytes)) => {
                        let (object, upload) = (self.object.clone(), self.upload.clone());
                        let index = parts.len();
                        parts.push(None);
                        under_way.spawn(async move {
                            send_part(&object, &upload, index, bytes).await
                        });
                    }
                    Some(Order::Complete) => is_whole = true,
                    None => return Err(BucketError::GivenUp),
                },
            }
        }
        parts.into_iter().collect::<Option<_>>().ok_or(BucketError::GivenUp)
    }
}

/// Sends one part; those that are there already stay there while it is tried again.
async fn send_part(object: &Object, upload: &MultipartId, index: usize, bytes: Vec<u8>) -> Sent {
    let limit = Patience::for_bytes(bytes.len()).request;
    let payload = PutPayload::from(bytes);
    let (mut tries, since) = (0, Instant::now());
    loop {
        tries += 1;
        match object.store.put_part(&object.path, upload, index, payload.clone()).await {
            Ok(part) => return Ok((index, part)),
            Err(error) => match object.told(&error) {
                BucketError::Other { .. } if tries < TRIES && since.elapsed() < limit => {}
                told => return Err(told),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_as_large_as_it_takes_and_no_larger() {
        assert_eq!(part_size(0), SMALLEST);
        assert_eq!(part_size(40 << 30), SMALLEST);
        for bytes in [1 << 38, 1 << 40, 5 << 40] {
            let part = part_size(bytes) as u64;
            assert!(part * MOST_PARTS as u64 > bytes + bytes / 5, "{bytes}: {part}");
            assert_eq!(part % (1 << 20), 0);
        }
        assert_eq!(part_size(u64::MAX) as u64, LARGEST);
        assert_eq!((under_way(SMALLEST), under_way(1 << 30)), (MOST_UNDER_WAY, 1));
    }
}
