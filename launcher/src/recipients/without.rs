//! Where keys for archives are left out (cargo feature `recipients`), as for phones: what asks for them is told so.

use super::KeyError;
use crate::cli::RecipientArguments;
use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::path::PathBuf;

/// There are none.
pub struct Recipients(Infallible);

impl Recipients {
    pub fn named(arguments: &RecipientArguments) -> Result<Option<Self>, KeyError> {
        match arguments.recipient.is_empty() && arguments.recipients_file.is_empty() {
            true => Ok(None),
            false => Err(KeyError::Without),
        }
    }
}

/// There are none.
pub struct Identities(Infallible);

impl Identities {
    pub fn of(files: &[PathBuf]) -> Result<Option<Self>, KeyError> {
        if files.is_empty() { Ok(None) } else { Err(KeyError::Without) }
    }
}

/// Never made.
pub struct Encrypting<W: Write>(Infallible, PhantomData<W>);

impl<W: Write> Encrypting<W> {
    pub(super) fn of(recipients: &Recipients, _out: W) -> Result<Self, KeyError> {
        match recipients.0 {}
    }

    pub(super) fn finish(self) -> io::Result<W> {
        match self.0 {}
    }
}

impl<W: Write> Write for Encrypting<W> {
    fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
        match self.0 {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0 {}
    }
}

/// Never made.
pub struct Decrypting<R: Read>(Infallible, PhantomData<R>);

impl<R: Read> Decrypting<R> {
    pub(super) fn of(_from: R, identities: Option<&Identities>) -> Result<Self, KeyError> {
        match identities {
            Some(identities) => match identities.0 {},
            None => Err(KeyError::Without),
        }
    }
}

impl<R: Read> Read for Decrypting<R> {
    fn read(&mut self, _into: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }
}
