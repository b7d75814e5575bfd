//! What a description has to hold beside its form.

use super::{
    Argument, Factor, Function, IdlError, Kind, LONGEST_NAME, MOST_ARGUMENTS, MOST_FACTORS,
    MOST_FUNCTIONS, Mode, Module, Place,
};
use std::collections::BTreeSet;

/// Checks a module.
pub fn check(module: &Module) -> Result<(), IdlError> {
    let top = Place { line: 1, column: 1 };
    check_name(top, &module.name)?;
    if module.functions.is_empty() {
        return Err(IdlError::at(top, "the module has no function"));
    }
    if module.functions.len() > MOST_FUNCTIONS {
        return Err(IdlError::at(
            top,
            format!("the module has more than {MOST_FUNCTIONS} functions"),
        ));
    }
    let mut names = BTreeSet::new();
    for function in &module.functions {
        if !names.insert(&function.name) {
            return Err(IdlError::at(
                function.place,
                format!("there is a function {} already", function.name),
            ));
        }
        check_function(function)?;
    }
    Ok(())
}

fn check_name(place: Place, name: &str) -> Result<(), IdlError> {
    match name.len() {
        ..=LONGEST_NAME => Ok(()),
        _ => Err(IdlError::at(place, format!("a name has {LONGEST_NAME} letters at most"))),
    }
}

fn check_function(function: &Function) -> Result<(), IdlError> {
    check_name(function.place, &function.name)?;
    check_name(function.place, &function.calls)?;
    if function.arguments.len() > MOST_ARGUMENTS {
        let reason = format!("a function has {MOST_ARGUMENTS} arguments at most");
        return Err(IdlError::at(function.place, reason));
    }
    let mut names = BTreeSet::new();
    for argument in &function.arguments {
        if !names.insert(&argument.name) {
            let reason = format!("there is an argument {} already", argument.name);
            return Err(IdlError::at(argument.place, reason));
        }
        check_argument(argument, &function.arguments)?;
    }
    Ok(())
}

fn check_argument(argument: &Argument, all: &[Argument]) -> Result<(), IdlError> {
    let Argument { place, name, mode, kind, is_pointer, size } = argument;
    check_name(*place, name)?;
    let wrong = |reason: &str| Err(IdlError::at(*place, format!("{name} {reason}")));
    if *kind == Kind::String && (*mode != Mode::In || argument.is_by_pointer()) {
        return wrong(
            "can't be that: a string goes in, without '*' or a size; 'char' with a size comes back",
        );
    }
    if *is_pointer && size.is_some() {
        return wrong("has a '*' and a size; one of them is enough");
    }
    match mode {
        Mode::In if *is_pointer => {
            return wrong("needs a size in brackets: it is a pointer that goes in");
        }
        Mode::Out | Mode::InOut if !argument.is_by_pointer() => {
            return wrong("has to be a pointer or an array: it comes back");
        }
        _ => {}
    }
    let factors = size.as_deref().unwrap_or_default();
    if factors.len() > MOST_FACTORS {
        return wrong(&format!("has a size of more than {MOST_FACTORS} factors"));
    }
    factors.iter().try_for_each(|factor| check_factor(factor, all))
}

fn check_factor(factor: &Factor, all: &[Argument]) -> Result<(), IdlError> {
    let Factor::Argument(place, name) = factor else { return Ok(()) };
    match all.iter().find(|argument| argument.name == *name) {
        None => Err(IdlError::at(*place, format!("there is no argument {name}"))),
        Some(found) if found.kind.counts() && found.mode == Mode::In && !found.is_by_pointer() => {
            Ok(())
        }
        Some(_) => {
            let reason =
                format!("{name} can't be a size: it is no 'short', 'int' or 'long' that goes in");
            Err(IdlError::at(*place, reason))
        }
    }
}
