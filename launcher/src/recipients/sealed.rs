//! Encrypting and decrypting as the bytes pass, 64 KiB at a time.

use super::keys::{Identities, Recipients};
use super::{KeyError, header};
use age::stream::{StreamReader, StreamWriter};
use age::{DecryptError, Decryptor, Encryptor};
use ckpt_store::archive::ArchiveError;
use std::io::{self, BufReader, Cursor, ErrorKind, Read, Write};

/// Encrypts what is written.
pub struct Encrypting<W: Write>(StreamWriter<W>);

impl<W: Write> Encrypting<W> {
    pub(super) fn of(recipients: &Recipients, out: W) -> Result<Self, KeyError> {
        let encryptor = Encryptor::with_recipients(recipients.iter())
            .map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self(encryptor.wrap_output(out)?))
    }

    pub(super) fn finish(self) -> io::Result<W> {
        self.0.finish()
    }
}

impl<W: Write> Write for Encrypting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Its head, which was read before, and the rest.
type Whole<R> = io::Chain<Cursor<Vec<u8>>, BufReader<R>>;

/// Decrypts what is read.
pub struct Decrypting<R: Read>(StreamReader<Whole<R>>);

impl<R: Read> Decrypting<R> {
    pub(super) fn of(from: R, identities: Option<&Identities>) -> Result<Self, KeyError> {
        let identities = identities.ok_or(KeyError::Needed)?;
        let mut from = BufReader::new(from);
        let head = header::read(&mut from)?;
        let decryptor = Decryptor::new_buffered(Cursor::new(head).chain(from)).map_err(of_head)?;
        if decryptor.is_scrypt() {
            return Err(KeyError::Other("encrypted with a passphrase"));
        }
        Ok(Self(decryptor.decrypt(identities.iter()).map_err(of_head)?))
    }
}

fn of_head(error: DecryptError) -> KeyError {
    match error {
        DecryptError::NoMatchingKeys => KeyError::Foreign,
        DecryptError::Io(error) if error.kind() != ErrorKind::UnexpectedEof => error.into(),
        _ => KeyError::Head,
    }
}

impl<R: Read> Read for Decrypting<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into).map_err(|error| match error.kind() {
            ErrorKind::InvalidData | ErrorKind::UnexpectedEof => {
                io::Error::other(ArchiveError::Altered)
            }
            _ => error,
        })
    }
}
