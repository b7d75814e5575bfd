//! Requests and answers, byte by byte (netlink(7)).

use std::collections::HashMap;
use std::io;

/// struct nlmsghdr
const HEADER: usize = 16;
/// struct rtattr
const ATTRIBUTE: usize = 4;
/// Of an attribute's type: what says how its content is to be read (NLA_TYPE_MASK).
const TYPE_MASK: u16 = 0x3fff;

/// What is asked or ordered.
pub(super) struct Request {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Request {
    /// Asks for all of a kind.
    pub(super) fn dump(kind: u16, header: &[u8]) -> Self {
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
        Self { kind, flags, body: header.to_vec() }
    }

    /// Orders something, with these flags besides.
    pub(super) fn change(kind: u16, flags: i32, header: &[u8]) -> Self {
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags) as u16;
        Self { kind, flags, body: header.to_vec() }
    }

    /// Adds an attribute.
    pub(super) fn add(&mut self, kind: u16, content: &[u8]) {
        self.body.extend(attribute(kind, content));
    }

    /// The whole message.
    pub(super) fn finish(self, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(HEADER + self.body.len()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(HEADER + self.body.len());
        bytes.extend_from_slice(&length.to_ne_bytes());
        bytes.extend_from_slice(&self.kind.to_ne_bytes());
        bytes.extend_from_slice(&self.flags.to_ne_bytes());
        bytes.extend_from_slice(&sequence.to_ne_bytes());
        bytes.extend_from_slice(&0_u32.to_ne_bytes());
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// An attribute, filled up to where the next one begins: several of them are the content of one that nests them.
pub(super) fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(ATTRIBUTE + content.len()).unwrap_or(u16::MAX);
    let mut bytes = Vec::with_capacity((ATTRIBUTE + content.len()).next_multiple_of(4));
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// One of the kernel's answers.
#[derive(Debug)]
pub(super) struct Answer {
    /// Nothing follows.
    pub(super) end: bool,
    /// What is behind the message's header.
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// Takes apart what came at once. Answers to other requests are left out.
    pub(super) fn split(
        mut bytes: &[u8],
        sequence: u32,
    ) -> impl Iterator<Item = io::Result<Answer>> {
        std::iter::from_fn(move || {
            loop {
                let length = number(bytes, 0)? as usize;
                if length < HEADER || length > bytes.len() {
                    return None;
                }
                let (message, _) = bytes.split_at(length);
                bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
                if number(message, 8) == Some(sequence) {
                    return Some(Self::of(message));
                }
            }
        })
    }

    fn of(message: &[u8]) -> io::Result<Answer> {
        let body = message.get(HEADER..).unwrap_or_default().to_vec();
        let kind = i32::from(u16::from_ne_bytes([message[4], message[5]]));
        let code = || number(&body, 0).map_or(0, |code| (code as i32).saturating_neg());
        match kind {
            libc::NLMSG_ERROR | libc::NLMSG_DONE => match code() {
                0 => Ok(Self { end: true, body }),
                errno => Err(io::Error::from_raw_os_error(errno)),
            },
            _ => Ok(Self { end: false, body }),
        }
    }

    /// Its attributes, behind a header of that length.
    pub(super) fn attributes(&self, header: usize) -> HashMap<u16, &[u8]> {
        let mut found = HashMap::new();
        let mut rest = self.body.get(header..).unwrap_or_default();
        while let [low, high, first, second, ..] = *rest {
            let length = usize::from(u16::from_ne_bytes([low, high]));
            let Some(content) = rest.get(ATTRIBUTE..length) else { break };
            found.insert(u16::from_ne_bytes([first, second]) & TYPE_MASK, content);
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        found
    }
}

/// Four bytes as the kernel has them.
pub(super) fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_are_read() {
        let answer = |error: i32| {
            let refused = u16::try_from(libc::NLMSG_ERROR).unwrap();
            let request = Request { kind: refused, flags: 0, body: error.to_ne_bytes().to_vec() };
            Answer::split(&request.finish(7), 7).next().unwrap()
        };
        assert!(answer(0).unwrap().end);
        let error = answer(-libc::EPERM).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        answer(i32::MIN).unwrap_err();
    }
}
