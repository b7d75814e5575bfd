//! Messages in the format of protobuf, as far as spans need it (protobuf.dev/programming-guides/encoding).

/// What a field has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// A message: its fields in their order, by their numbers.
#[derive(Debug)]
pub(super) struct Message<'a>(Vec<(u64, Value<'a>)>);

impl<'a> Message<'a> {
    /// None: it is none.
    pub(super) fn read(mut bytes: &'a [u8]) -> Option<Self> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes)?;
            let value = match key & 7 {
                0 => Value::Number(varint(&mut bytes)?),
                1 => Value::Number(u64::from_le_bytes(take(&mut bytes, 8)?.try_into().ok()?)),
                2 => {
                    let length = usize::try_from(varint(&mut bytes)?).ok()?;
                    Value::Bytes(take(&mut bytes, length)?)
                }
                5 => {
                    let number = u32::from_le_bytes(take(&mut bytes, 4)?.try_into().ok()?);
                    Value::Number(number.into())
                }
                _ => return None,
            };
            fields.push((key >> 3, value));
        }
        Some(Self(fields))
    }

    pub(super) fn fields(&self) -> &[(u64, Value<'a>)] {
        &self.0
    }

    /// The last of that number, which counts.
    fn value(&self, number: u64) -> Option<Value<'a>> {
        self.0.iter().rfind(|(known, _)| *known == number).map(|(_, value)| *value)
    }

    pub(super) fn number(&self, number: u64) -> Option<u64> {
        match self.value(number)? {
            Value::Number(value) => Some(value),
            Value::Bytes(_) => None,
        }
    }

    pub(super) fn bytes(&self, number: u64) -> Option<&'a [u8]> {
        match self.value(number)? {
            Value::Bytes(value) => Some(value),
            Value::Number(_) => None,
        }
    }

    /// All messages in fields of that number; None: one is none.
    pub(super) fn messages(&self, number: u64) -> Option<Vec<Message<'a>>> {
        let of_number = self.0.iter().filter(|(known, _)| *known == number);
        let read = |(_, value): &(u64, Value<'a>)| match value {
            Value::Bytes(bytes) => Message::read(bytes),
            Value::Number(_) => None,
        };
        of_number.map(read).collect()
    }
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

/// Seven bits a byte, the lowest first; the eighth says that another one follows.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *take(bytes, 1)?.first()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read() {
        // The two examples of the format's description: 150 in field 1, "testing" in field 2.
        let message = Message::read(b"\x08\x96\x01\x12\x07testing").unwrap();
        assert_eq!((message.number(1), message.bytes(2)), (Some(150), Some(&b"testing"[..])));
        assert!(Message::read(b"\x12\x07test").is_none());
        assert!(Message::read(b"\x08\x96").is_none());
    }
}
