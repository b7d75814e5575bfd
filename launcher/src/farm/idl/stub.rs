//! The program that runs a module's functions: its `main()` in C, to be linked with them and the library.

use super::record::lines;
use super::{Argument, Function, Kind, Module};
use std::fmt::Write;

/// The program's source.
pub fn stub(module: &Module) -> String {
    let mut text =
        String::from("/* By 'ckptd farm register --stub'. */\n#include <ckptd_farm_stub.h>\n\n");
    let mut declared = std::collections::BTreeSet::new();
    for function in &module.functions {
        if declared.insert(&function.calls) {
            let _ = writeln!(text, "{}", declaration(function));
        }
    }
    for (number, function) in module.functions.iter().enumerate() {
        let values: Vec<_> = function.passes.iter().map(|at| value(function, *at)).collect();
        // A function without arguments does not use them.
        let _ = write!(
            text,
            "\nstatic void call_{number}(void **values)\n{{\n    (void)values;\n    {}({});\n}}\n",
            function.calls,
            values.join(", ")
        );
    }
    text.push_str("\nstatic const struct ckptd_farm_function functions[] = {\n");
    for (number, function) in module.functions.iter().enumerate() {
        let _ =
            write!(text, "    {{\"{}/{}\", call_{number},\n     \"", module.name, function.name);
        text.push_str(&lines(function).replace('\n', "\\n\"\n     \""));
        text.push_str("\"},\n");
    }
    text.push_str("    {0, 0, 0},\n};\n\nint main(int argc, char **argv)\n{\n");
    text.push_str("    return ckptd_farm_stub_main(argc, argv, functions);\n}\n");
    text
}

fn c_type(argument: &Argument) -> String {
    match argument.kind {
        Kind::String => "char *".to_owned(),
        kind if argument.is_by_pointer() => format!("{} *", kind.name()),
        kind => kind.name().to_owned(),
    }
}

fn declaration(function: &Function) -> String {
    let types: Vec<_> =
        function.passes.iter().filter_map(|at| function.arguments.get(*at)).map(c_type).collect();
    let types = if types.is_empty() { "void".to_owned() } else { types.join(", ") };
    format!("void {}({types});", function.calls)
}

fn value(function: &Function, at: usize) -> String {
    match function.arguments.get(at) {
        Some(argument) if argument.kind != Kind::String && !argument.is_by_pointer() => {
            format!("*({} *)values[{at}]", argument.kind.name())
        }
        _ => format!("values[{at}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    #[test]
    fn a_program_is_written() {
        let module = parse(
            "Module m; Define f(IN int n, IN string s, OUT double a[n]) Calls \"C\" g(s, n, a);",
        );
        let text = super::stub(&module.unwrap());
        for wanted in [
            "void g(char *, int, double *);\n",
            "    g(values[1], *(int *)values[0], values[2]);\n",
            "{\"m/f\", call_0,\n     \"argument in int n\\n\"\n     \"argument in string s\\n\"\n",
        ] {
            assert!(text.contains(wanted), "{wanted:?} in {text}");
        }
    }
}
