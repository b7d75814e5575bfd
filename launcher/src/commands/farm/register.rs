//! `ckptd farm register`.

use super::print;
use crate::cli::RegisterArguments;
use crate::failure::Failure;
use crate::farm::{self, FarmError, idl};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

pub fn perform(arguments: RegisterArguments) -> Result<(), Failure> {
    let RegisterArguments { file, program, stub, folder } = arguments;
    let text =
        read(&file).map_err(|error| Failure::of(format!("read {}", file.display()), error))?;
    let wrong = |error| FarmError::Idl { path: file.clone(), error };
    let module = idl::parse(&text).map_err(wrong)?;
    let Some(program) = program.filter(|_| !stub) else {
        return print(&idl::stub(&module));
    };
    let folder = folder.map_or_else(idl::default_folder, Ok)?;
    for name in farm::idl::register(&module, &program, &folder)? {
        print(&format!("{name}\n"))?;
    }
    Ok(())
}

fn read(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(idl::MOST_BYTES + 1).read_to_string(&mut text)?;
    match text.len() as u64 {
        ..=idl::MOST_BYTES => Ok(text),
        _ => Err(io::Error::other(format!("it has more than {} bytes", idl::MOST_BYTES))),
    }
}
