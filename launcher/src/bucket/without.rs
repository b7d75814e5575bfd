//! Where S3 is left out (cargo feature `s3`), as for phones: what asks for it is told so.

use super::{Address, BucketError, GiveUp, Over};
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Write};

pub fn check(_object: &Address, _give_up: &GiveUp) -> Result<(), BucketError> {
    Err(BucketError::Without)
}

pub fn exists(_object: &Address, _give_up: &GiveUp) -> Result<bool, BucketError> {
    Err(BucketError::Without)
}

pub fn remove(_object: &Address, _own: &Claim, _give_up: &GiveUp) -> Result<(), BucketError> {
    Err(BucketError::Without)
}

/// Never made.
#[derive(Debug)]
pub struct Claim(Infallible);

impl Claim {
    pub fn take(
        _address: &Address,
        _give_up: &GiveUp,
        _tells: impl Fn(&str),
    ) -> Result<Self, BucketError> {
        Err(BucketError::Without)
    }

    pub fn run(&self) -> &str {
        match self.0 {}
    }
}

/// Never made.
pub struct Upload(Infallible);

impl Upload {
    pub fn begin(
        _object: &Address,
        _bytes: u64,
        _over: Over,
        _give_up: GiveUp,
    ) -> Result<Self, BucketError> {
        Err(BucketError::Without)
    }

    pub fn keep(self) -> Result<(), BucketError> {
        match self.0 {}
    }
}

impl Write for Upload {
    fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
        match self.0 {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0 {}
    }
}

/// Never made.
pub struct Download(Infallible);

impl Download {
    pub fn begin(_object: &Address, _give_up: &GiveUp) -> Result<(File, Self), BucketError> {
        Err(BucketError::Without)
    }

    pub fn end(self) -> Result<(), BucketError> {
        match self.0 {}
    }
}
