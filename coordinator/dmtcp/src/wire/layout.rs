//! Where each field lies.

use super::{
    CommandStatus, HEADER, Identity, Kind, MAX_NAME, MAX_PAYLOAD, Message, WireError, WorkerState,
};
use std::net::Ipv4Addr;

const MAGIC: &[u8; 16] = b"DMTCP_CKPT_V0\n\0\0";

const NAME: usize = 16;
const STORE_CODE: usize = 80;
const SIZE: usize = 88;
const EXTRA: usize = 92;
const KIND: usize = 96;
const STATE: usize = 100;
const FROM: usize = 104;
const GROUP: usize = 128;
const VIRTUAL_PID: usize = 152;
const REAL_PID: usize = 156;
const KEY_LENGTH: usize = 160;
const VALUE_LENGTH: usize = 164;
const PEERS: usize = 168;
const IS_RUNNING: usize = 172;
const COMMAND: usize = 176;
const COMMAND_STATUS: usize = 180;
const TIME_STAMP: usize = 184;
const INTERVAL: usize = 192;
const ADDRESS: usize = 196;
const EXIT_AFTER: usize = 204;

fn four(header: &[u8; HEADER], at: usize) -> [u8; 4] {
    [header[at], header[at + 1], header[at + 2], header[at + 3]]
}

fn u32_at(header: &[u8; HEADER], at: usize) -> u32 {
    u32::from_le_bytes(four(header, at))
}

fn i32_at(header: &[u8; HEADER], at: usize) -> i32 {
    i32::from_le_bytes(four(header, at))
}

fn u64_at(header: &[u8; HEADER], at: usize) -> u64 {
    u64::from(u32_at(header, at)) | (u64::from(u32_at(header, at + 4)) << 32)
}

fn identity(header: &[u8; HEADER], at: usize) -> Identity {
    Identity {
        host: u64_at(header, at),
        time: u64_at(header, at + 8),
        pid: i32_at(header, at + 16),
        generation: i32_at(header, at + 20),
    }
}

/// The message in a header, and the length of its payload.
pub fn decode(header: &[u8; HEADER]) -> Result<(Message, usize), WireError> {
    // DMTCP compares its magic with one NUL; what fills it up is not looked at.
    if header[..15] != MAGIC[..15] {
        return Err(WireError::Magic);
    }
    let size = u32_at(header, SIZE);
    if usize::try_from(size) != Ok(HEADER) {
        return Err(WireError::Version { size });
    }
    let size = u32_at(header, EXTRA);
    let extra = usize::try_from(size)
        .ok()
        .filter(|extra| *extra <= MAX_PAYLOAD)
        .ok_or(WireError::TooLarge { size })?;
    let kind = u32_at(header, KIND);
    let kind = Kind::of(kind).ok_or(WireError::Kind(kind))?;
    let state = u32_at(header, STATE);
    let state = WorkerState::of(state).ok_or(WireError::State(state))?;
    let name = match kind {
        Kind::Barrier | Kind::BarrierReleased | Kind::StoreRequest | Kind::StoreResponse => {
            let field = &header[NAME..NAME + MAX_NAME];
            let end = field.iter().position(|byte| *byte == 0).ok_or(WireError::Name)?;
            String::from_utf8_lossy(&field[..end]).into_owned()
        }
        _ => String::new(),
    };
    let message = Message {
        kind,
        name,
        store_code: u32_at(header, STORE_CODE),
        state,
        from: identity(header, FROM),
        group: identity(header, GROUP),
        virtual_pid: i32_at(header, VIRTUAL_PID),
        real_pid: i32_at(header, REAL_PID),
        key_length: u32_at(header, KEY_LENGTH),
        value_length: u32_at(header, VALUE_LENGTH),
        peers: u32_at(header, PEERS),
        is_running: u32_at(header, IS_RUNNING) != 0,
        command: u32_at(header, COMMAND),
        command_status: CommandStatus::of(i32_at(header, COMMAND_STATUS)),
        time_stamp: u64_at(header, TIME_STAMP),
        interval: i32_at(header, INTERVAL),
        address: Ipv4Addr::from(four(header, ADDRESS)),
        exit_after: u32_at(header, EXIT_AFTER) != 0,
        payload: Vec::new(),
    };
    Ok((message, extra))
}

/// The bytes of a message and its payload. A name that is too long is cut: one that was not UTF-8 has grown as it
/// was read.
pub fn encode(message: &Message) -> Vec<u8> {
    debug_assert!(message.payload.len() <= MAX_PAYLOAD);
    let mut bytes = vec![0; HEADER];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, MAGIC);
    put(NAME, &message.name.as_bytes()[..message.name.len().min(MAX_NAME - 1)]);
    put(STORE_CODE, &message.store_code.to_le_bytes());
    put(SIZE, &(HEADER as u32).to_le_bytes());
    put(EXTRA, &u32::try_from(message.payload.len()).unwrap_or(u32::MAX).to_le_bytes());
    put(KIND, &message.kind.number().to_le_bytes());
    put(STATE, &message.state.number().to_le_bytes());
    for (at, identity) in [(FROM, &message.from), (GROUP, &message.group)] {
        put(at, &identity.host.to_le_bytes());
        put(at + 8, &identity.time.to_le_bytes());
        put(at + 16, &identity.pid.to_le_bytes());
        put(at + 20, &identity.generation.to_le_bytes());
    }
    put(VIRTUAL_PID, &message.virtual_pid.to_le_bytes());
    put(REAL_PID, &message.real_pid.to_le_bytes());
    put(KEY_LENGTH, &message.key_length.to_le_bytes());
    put(VALUE_LENGTH, &message.value_length.to_le_bytes());
    put(PEERS, &message.peers.to_le_bytes());
    put(IS_RUNNING, &u32::from(message.is_running).to_le_bytes());
    put(COMMAND, &message.command.to_le_bytes());
    put(COMMAND_STATUS, &(message.command_status as i32).to_le_bytes());
    put(TIME_STAMP, &message.time_stamp.to_le_bytes());
    put(INTERVAL, &message.interval.to_le_bytes());
    put(ADDRESS, &message.address.octets());
    put(EXIT_AFTER, &u32::from(message.exit_after).to_le_bytes());
    bytes.extend_from_slice(&message.payload);
    bytes
}
