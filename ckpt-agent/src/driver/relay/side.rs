//! One side of a relay at work.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use protocol::agent::CheckpointNumber;
use protocol::cluster::NodeName;
use protocol::cluster::agent::RelayLink;
use protocol::cluster::peer::PeerMessage;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::flow::{Arrival, Frame, LONGEST, MOST_DRAINED, Receiving, Sending};
use super::hub::{Final, Hub, other};
use super::{Carried, Order};
use ckpt_node::{End, RelayEvent, RelayOrder, RelayState};

use crate::driver::instance::RelayEndKind;
use crate::driver::native::Native;
use ckpt_engine::split::standin::Message;
use ckpt_engine::sys::reap::exit_kind;

/// Bytes read at a time.
const PIECE: usize = 64 * 1024;
/// A terminal that nobody has open is looked at again after this: the job may be about to open it.
const HUNG_UP_RETRY: Duration = Duration::from_millis(50);
/// A terminal's output takes this long at most from the job's write to our read: the kernel hands it
/// over in a work queue (drivers/tty/tty_buffer.c).
const TERMINAL_DELAY: Duration = Duration::from_millis(1);
/// A side that waits for the other one's mark, or misses bytes, asks no more often than this.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// How often.
const HUNG_UP_LOOKS: u32 = 3;

/// The other side has sent more than this one has room for.
#[derive(Debug, thiserror::Error)]
#[error("the other side sent more than it may")]
struct TooMuch;

struct Side<R> {
    hub: Hub,
    carried: Carried,
    native: Option<Native>,
    sending: Sending,
    receiving: Receiving,
    pause: Option<Pause>,
    /// The other side's mark: checkpoint and offset. It may come before our own order.
    mark: Option<(CheckpointNumber, u64)>,
    /// When this side last asked for what it misses.
    asked: Option<Instant>,
    hung_up: u32,
    /// Nobody has the other side.
    silent: bool,
    /// Nothing is written before the job goes on.
    withheld: bool,
    /// The job has the same open file description, and in it what was not read.
    shared: bool,
    report: R,
}

struct Pause {
    checkpoint: CheckpointNumber,
    /// None: it was answered, and nothing is written until the job runs.
    answer: Option<oneshot::Sender<RelayState>>,
}

/// Carries until both directions have ended, or the handle is dropped.
pub async fn carry(
    hub: Hub,
    carried: Carried,
    (native, shared): (Native, bool),
    mut inbox: UnboundedReceiver<Order>,
    mut death: oneshot::Receiver<()>,
    report: impl Fn(RelayEvent) + Send + Sync,
) {
    let datagrams = carried.kind == RelayEndKind::Messages;
    let receiving = Receiving::with(&carried.prefix, datagrams);
    let mut side = Side {
        hub,
        carried,
        native: Some(native),
        sending: Sending::default(),
        receiving,
        pause: None,
        mark: None,
        asked: None,
        hung_up: 0,
        silent: false,
        withheld: false,
        shared,
        report,
    };
    if side.link().is_some() {
        side.greet();
    }
    let mut buffer = vec![0; if datagrams { LONGEST } else { PIECE }];
    loop {
        side.follow_state();
        if side.is_done() {
            return side.finish(inbox);
        }
        let may_read = side.may_read();
        let whole = datagrams || side.silent;
        let room = if whole { buffer.len() } else { side.sending.room().min(buffer.len()) };
        let waits = side.waits_for_mark();
        let (native, front) = (side.native.as_ref(), side.to_write());
        tokio::select! {
            biased;
            order = inbox.recv() => match order {
                Some(order) => {
                    if matches!(order, Order::Pause { .. }) {
                        side.drain(&mut buffer).await;
                    }
                    if let Err(lost) = side.obey(order) {
                        let reason = lost.to_string();
                        (side.report)(RelayEvent::Lost(side.carried.side.clone(), reason));
                        return;
                    }
                }
                None => return,
            },
            _ = &mut death => return,
            () = sleep(ASK_AGAIN), if waits => side.ask(),
            written = write(native, front), if front.is_some() => side.wrote(written),
            read = read(native, &mut buffer[..room], side.hung_up), if may_read => {
                side.has_read(read, &buffer);
            }
        }
    }
}

async fn read(native: Option<&Native>, buffer: &mut [u8], hung_up: u32) -> io::Result<usize> {
    if hung_up > 0 {
        sleep(HUNG_UP_RETRY).await;
    }
    match native {
        Some(native) => native.read(buffer).await,
        None => std::future::pending().await,
    }
}

async fn write(native: Option<&Native>, bytes: Option<&[u8]>) -> io::Result<usize> {
    match (native, bytes) {
        (Some(native), Some(bytes)) => native.write(bytes).await,
        _ => std::future::pending().await,
    }
}

impl<R: Fn(RelayEvent)> Side<R> {
    fn link(&self) -> Option<&RelayLink> {
        self.carried.link.as_ref()
    }

    fn may_read(&self) -> bool {
        self.native.is_some()
            && self.carried.kind.reads()
            && !self.sending.ended
            && self.sending.room() > 0
            && self.pause.is_none()
            && (self.silent || self.link().is_some())
    }

    fn waits_for_mark(&self) -> bool {
        self.pause.as_ref().is_some_and(|pause| pause.answer.is_some()) && self.link().is_some()
    }

    fn is_frozen(&self) -> bool {
        self.pause.as_ref().is_some_and(|pause| pause.answer.is_none())
    }

    fn to_write(&self) -> Option<&[u8]> {
        let stands = self.is_frozen() || self.withheld;
        if self.native.is_none() || !self.carried.kind.writes() || stands {
            return None;
        }
        let front = self.receiving.front();
        front.filter(|bytes| !self.carried.gated || bytes.first() != Some(&Message::ENDED))
    }

    /// Reads everything that the job has written, standing still by now: its image does not hold it.
    async fn drain(&mut self, buffer: &mut [u8]) {
        if self.shared || !self.carried.kind.reads() || self.link().is_none() {
            return;
        }
        if self.carried.kind == RelayEndKind::Terminal {
            sleep(TERMINAL_DELAY).await;
        }
        let mut total = 0;
        while !self.sending.ended && total < MOST_DRAINED {
            // It was closed, since nobody reads on the other side.
            let Some(native) = &self.native else { return };
            let read = native.try_read(buffer);
            match &read {
                Ok(length) => total += length,
                Err(_) => return,
            }
            self.has_read(read, buffer);
        }
    }

    fn send(&self, message: impl FnOnce(&RelayLink) -> PeerMessage, body: Vec<u8>) {
        if let Some(link) = self.link() {
            self.hub.send(&link.node, message(link), body);
        }
    }

    fn send_frame(&self, frame: &Frame) {
        let (offset, datagram) = (frame.offset, frame.datagram);
        let message = |link: &RelayLink| PeerMessage::Relay {
            to: link.peer.clone(),
            side: other(&link.side),
            offset,
            datagram,
        };
        self.send(message, frame.bytes.clone());
    }

    fn send_end(&self) {
        let offset = self.sending.sent();
        let message = |link: &RelayLink| PeerMessage::RelayEnd {
            to: link.peer.clone(),
            side: other(&link.side),
            offset,
        };
        self.send(message, Vec::new());
    }

    fn send_taken(&self, taken: u64) {
        let message = |link: &RelayLink| PeerMessage::RelayTaken {
            to: link.peer.clone(),
            side: other(&link.side),
            taken,
        };
        self.send(message, Vec::new());
    }

    fn send_mark(&self, checkpoint: CheckpointNumber) {
        let (offset, ended) = (self.sending.sent(), self.sending.ended);
        let message = |link: &RelayLink| PeerMessage::RelayPaused {
            to: link.peer.clone(),
            side: other(&link.side),
            checkpoint,
            offset,
            ended,
        };
        self.send(message, Vec::new());
    }

    /// What this side misses, and what it may never have been sent: it was not here yet, or did not know
    /// whom to believe.
    fn ask(&mut self) {
        self.asked = Some(Instant::now());
        let received = self.receiving.received();
        let message = |link: &RelayLink| PeerMessage::RelayAsk {
            to: link.peer.clone(),
            side: other(&link.side),
            received,
        };
        self.send(message, Vec::new());
    }

    /// Something is missing before what has come.
    fn miss(&mut self) {
        if self.asked.is_none_or(|asked| asked.elapsed() > ASK_AGAIN) {
            self.ask();
        }
    }

    /// Everything that may have been lost with a connection.
    fn send_again(&self, received: u64) {
        for frame in self.sending.frames(received) {
            self.send_frame(frame);
        }
        self.send_taken(self.receiving.taken());
        if self.sending.ended {
            self.send_end();
        }
        if let Some(pause) = &self.pause {
            self.send_mark(pause.checkpoint);
        }
    }

    /// The first words to the other side: it may have spoken to this one in vain.
    fn greet(&mut self) {
        self.send_again(0);
        self.ask();
    }

    /// Messages of one connection come in order: what was sent before this one and is not here was lost.
    fn look_for_gap(&mut self, offset: u64) {
        if self.receiving.received() < offset {
            self.miss();
        }
    }

    fn obey(&mut self, order: Order) -> Result<(), TooMuch> {
        match order {
            Order::Message { from, message, body } => return self.hear(&from, message, body),
            Order::Node(RelayOrder::Link(link)) => {
                self.carried.link = Some(link);
                self.greet();
            }
            Order::LinkUp(node) => {
                // Its first words may have been lost with what waited for this connection.
                if self.link().is_some_and(|link| link.node == node) {
                    self.greet();
                }
            }
            Order::Pause { checkpoint, answer } => {
                self.pause = Some(Pause { checkpoint, answer: Some(answer) });
                self.send_mark(checkpoint);
            }
            Order::Node(RelayOrder::Resume) => {
                self.withheld = false;
                let paused = self.pause.take().map(|pause| pause.checkpoint);
                // The other side may be at the next checkpoint already.
                self.mark = self.mark.filter(|(checkpoint, _)| Some(*checkpoint) > paused);
            }
            Order::Node(RelayOrder::Silence) => self.silent = true,
            Order::Withhold(done) => {
                self.withheld = true;
                // Whoever asked may have given up.
                let _ = done.send(());
            }
            Order::Node(RelayOrder::Deserted) => {
                if self.silent {
                    self.receiving.end_at(0);
                }
                self.lose_reader();
            }
            Order::Node(RelayOrder::Open) => self.carried.gated = false,
        }
        Ok(())
    }

    fn hear(
        &mut self,
        from: &NodeName,
        message: PeerMessage,
        body: Vec<u8>,
    ) -> Result<(), TooMuch> {
        // Before the link is known nothing is believed; what comes then will come again.
        if self.link().is_none_or(|link| link.node != *from) {
            return Ok(());
        }
        match message {
            PeerMessage::Relay { offset, datagram, .. } => {
                let datagram = datagram && self.carried.kind == RelayEndKind::Messages;
                match self.receiving.accept(offset, datagram, body) {
                    Arrival::New => {}
                    Arrival::Early => self.miss(),
                    Arrival::Known => self.send_taken(self.receiving.taken()),
                    Arrival::TooMuch => {
                        return Err(TooMuch);
                    }
                }
            }
            PeerMessage::RelayTaken { taken, .. } => self.sending.taken(taken),
            PeerMessage::RelayEnd { offset, .. } => {
                self.receiving.end_at(offset);
                self.look_for_gap(offset);
            }
            PeerMessage::RelayPaused { checkpoint, offset, ended, .. } => {
                self.mark = Some((checkpoint, offset));
                if ended {
                    self.receiving.end_at(offset);
                }
                self.look_for_gap(offset);
            }
            PeerMessage::RelayAsk { received, .. } => self.send_again(received),
            _ => {}
        }
        Ok(())
    }

    fn wrote(&mut self, written: io::Result<usize>) {
        match written {
            Ok(length) => self.receiving.wrote(length),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // Nobody reads any more.
            Err(_) => self.lose_reader(),
        }
    }

    fn lose_reader(&mut self) {
        self.receiving.discard();
        if !self.carried.kind.reads() || self.carried.kind == RelayEndKind::Terminal {
            self.end_sending();
            self.close();
        }
    }

    fn has_read(&mut self, read: io::Result<usize>, buffer: &[u8]) {
        match read {
            Ok(0) => self.end_sending(),
            Ok(length) => {
                self.hung_up = 0;
                if self.silent {
                    return self.drop_word(&buffer[..length]);
                }
                let datagram = self.carried.kind == RelayEndKind::Messages;
                let frame = self.sending.push(datagram, buffer[..length].to_vec()).clone();
                self.send_frame(&frame);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error)
                if error.raw_os_error() == Some(Errno::EIO as i32)
                    && self.hung_up < HUNG_UP_LOOKS =>
            {
                self.hung_up += 1;
            }
            Err(_) => self.end_sending(),
        }
    }

    /// What a process says to somebody who has departed. Only the end of a process is of interest.
    fn drop_word(&self, bytes: &[u8]) {
        if self.carried.kind != RelayEndKind::Messages {
            return;
        }
        if let Some(Message::Ended { status }) = Message::decode(bytes) {
            if let Some(status) = exit_kind(status) {
                let side = self.carried.side.clone();
                (self.report)(RelayEvent::OrphanEnded(side, status));
            }
        }
    }

    fn end_sending(&mut self) {
        if !std::mem::replace(&mut self.sending.ended, true) {
            self.send_end();
        }
    }

    fn close(&mut self) {
        if self.native.take().is_some() {
            (self.report)(RelayEvent::Closed(End::Relay(self.carried.side.clone())));
        }
    }

    /// What follows from what is known.
    fn follow_state(&mut self) {
        if self.native.is_none() || !self.carried.kind.writes() {
            self.receiving.discard();
        }
        self.answer_pause();
        if self.receiving.is_over() && !self.is_frozen() {
            match self.carried.kind {
                RelayEndKind::Stream | RelayEndKind::Messages if !self.sending.ended => {
                    if let Some(native) = &self.native {
                        native.end_writing();
                    }
                }
                // The far side has closed: writers here are to be told, readers to see the end.
                _ => {
                    self.end_sending();
                    self.close();
                }
            }
        }
        if let Some(taken) = self.receiving.due_tell() {
            self.send_taken(taken);
        }
    }

    /// The whole job stands still: once everything that the other side has sent is here, what the native
    /// object does not take is what the image must hold.
    fn answer_pause(&mut self) {
        // Looked at after every step, and only wanted while the job stands still.
        let Some(pause) = &self.pause else { return };
        let complete = match (self.link(), self.mark) {
            (None, _) => true,
            // Nothing can be passed on, so that nothing is to be recorded.
            _ if self.native.is_none() => true,
            (Some(_), Some((checkpoint, offset))) => {
                checkpoint == pause.checkpoint && self.receiving.received() >= offset
            }
            (Some(_), None) => false,
        };
        if !complete || pause.answer.is_none() {
            return;
        }
        while let (Some(native), Some(bytes)) = (&self.native, self.to_write()) {
            match native.try_write(bytes) {
                Ok(length) => self.receiving.wrote(length),
                Err(_) => break,
            }
        }
        let state = self.receiving.state();
        if let Some(answer) = self.pause.as_mut().and_then(|pause| pause.answer.take()) {
            // Whoever asked may have given up.
            let _ = answer.send(state);
        }
    }

    fn is_done(&self) -> bool {
        self.pause.is_none()
            && self.sending.ended
            && self.receiving.is_over()
            // Where the native end was closed because nobody reads on the other side, what was under
            // way is lost as it would be in a pipe.
            && (self.sending.is_clear() || self.native.is_none())
    }

    fn finish(mut self, mut inbox: UnboundedReceiver<Order>) {
        self.close();
        let last = self.link().map(|link| Final {
            link: link.clone(),
            sent: self.sending.sent(),
            taken: self.receiving.taken(),
        });
        let address = (self.carried.key.clone(), self.carried.side.clone());
        self.hub.is_done(address, last, &mut inbox);
        (self.report)(RelayEvent::Done(self.carried.side.clone()));
    }
}
