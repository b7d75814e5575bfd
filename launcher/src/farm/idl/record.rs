//! What the C library reads of a function: a file FOLDER/MODULE/FUNCTION of lines.

use super::{Argument, Function, Module};
use crate::farm::FarmError;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The folder of this user's functions.
///
/// # Errors
/// Where there is neither `XDG_DATA_HOME` nor `HOME`.
pub fn default_folder() -> Result<PathBuf, FarmError> {
    let of = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = of("XDG_DATA_HOME").or_else(|| of("HOME").map(|home| home.join(".local/share")));
    let missing = || {
        let reason = "find the folder of functions: HOME is not set; '--folder DIR' names one";
        FarmError::Refused(reason.to_owned())
    };
    Ok(data.ok_or_else(missing)?.join("ckptd/farm/functions"))
}

/// Makes the functions of a module known, which `program` runs; their names.
///
/// # Errors
/// Where the program is none, or they can't be written.
pub fn register(module: &Module, program: &Path, folder: &Path) -> Result<Vec<String>, FarmError> {
    let program = fs::canonicalize(program).map_err(FarmError::io("find", program))?;
    let metadata = fs::metadata(&program).map_err(FarmError::io("find", &program))?;
    let reason = if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
        Some("it is no program that can be executed")
    } else if program.as_os_str().as_bytes().contains(&b'\n') {
        Some("its name has several lines")
    } else {
        None
    };
    if let Some(reason) = reason {
        let text = format!("register {}: {reason}", program.display());
        return Err(FarmError::Refused(text));
    }
    let folder = folder.join(&module.name);
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(&folder).map_err(FarmError::io("make", &folder))?;
    let mut names = Vec::new();
    for function in &module.functions {
        let path = folder.join(&function.name);
        write(&path, &record(module, function, &program)).map_err(FarmError::io("write", &path))?;
        names.push(format!("{}/{}", module.name, function.name));
    }
    Ok(names)
}

/// Whoever reads it meanwhile finds all of it.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let done = written.and_then(|()| fs::rename(&new, path));
    if done.is_err() {
        let _ = fs::remove_file(&new);
    }
    done
}

fn record(module: &Module, function: &Function, program: &Path) -> Vec<u8> {
    let mut bytes =
        format!("ckptd function 1\nname {}/{}\nprogram ", module.name, function.name).into_bytes();
    bytes.extend_from_slice(program.as_os_str().as_bytes());
    bytes.push(b'\n');
    bytes.extend_from_slice(lines(function).as_bytes());
    bytes.extend_from_slice(b"end\n");
    bytes
}

/// A line for each argument. The library and the function's program compare a checksum of these.
pub fn lines(function: &Function) -> String {
    function.arguments.iter().map(line).collect()
}

fn line(argument: &Argument) -> String {
    let mut line = format!("argument {} {} {}", argument.mode, argument.kind.name(), argument.name);
    if argument.is_pointer {
        line.push_str(" 1");
    }
    for factor in argument.size.iter().flatten() {
        line.push_str(&format!(" {factor}"));
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn a_function_is_made_known() {
        let folder = tempfile::tempdir().unwrap();
        let text = "Module m; Define f(IN int n, INOUT double a[n][3*n], OUT long *c) Calls \"C\" f(n, a, c);";
        let module = parse(text).unwrap();
        let names = register(&module, Path::new("/bin/sh"), folder.path()).unwrap();
        assert_eq!(names, ["m/f"]);
        let written = fs::read_to_string(folder.path().join("m/f")).unwrap();
        let program = fs::canonicalize("/bin/sh").unwrap();
        let expected = format!(
            "ckptd function 1\nname m/f\nprogram {}\nargument in int n\nargument inout double a n 3 n\n\
             argument out long c 1\nend\n",
            program.display()
        );
        assert_eq!(written, expected);
        assert_eq!(fs::read_dir(folder.path().join("m")).unwrap().count(), 1);
        let refused = register(&module, Path::new("/etc"), folder.path()).unwrap_err().to_string();
        assert_eq!(refused, "register /etc: it is no program that can be executed");
        assert!(register(&module, Path::new("/no-such"), folder.path()).is_err());
    }
}
