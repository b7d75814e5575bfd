//! The functions that a description has.

use super::words::{Word, words};
use super::{Argument, Factor, Function, IdlError, Kind, Mode, Module, Place, check};

/// Reads a description.
///
/// # Errors
/// Where it is none: what is wrong, with its line and column.
pub fn parse(text: &str) -> Result<Module, IdlError> {
    let mut parser = Parser { words: words(text)?, next: 0 };
    let module = parser.module()?;
    check::check(&module)?;
    Ok(module)
}

struct Parser {
    words: Vec<(Place, Word)>,
    next: usize,
}

impl Parser {
    /// The next word; behind the last one, that again.
    fn look(&self) -> (Place, &Word) {
        let at = self.next.min(self.words.len().saturating_sub(1));
        self.words
            .get(at)
            .map_or((Place { line: 1, column: 1 }, &Word::End), |(place, word)| (*place, word))
    }

    fn take(&mut self) -> (Place, Word) {
        let (place, word) = self.look();
        let word = word.clone();
        self.next += 1;
        (place, word)
    }

    fn wrong<T>(&self, wanted: &str) -> Result<T, IdlError> {
        let (place, word) = self.look();
        let found = match word {
            Word::Name(name) => format!("\"{name}\""),
            Word::Number(number) => format!("\"{number}\""),
            Word::Text(_) => "a text".to_owned(),
            Word::Sign('{') if wanted.contains("Calls") => {
                let reason = "code in braces can't be taken; put it into a function, and name that behind 'Calls \"C\"'";
                return Err(IdlError::at(place, reason));
            }
            Word::Sign(sign) => format!("'{sign}'"),
            Word::End => "the end".to_owned(),
        };
        Err(IdlError::at(place, format!("there is {found} where {wanted} should be")))
    }

    fn is(&self, wanted: &Word) -> bool {
        self.look().1 == wanted
    }

    fn takes(&mut self, wanted: &Word) -> bool {
        let is = self.is(wanted);
        self.next += usize::from(is);
        is
    }

    fn takes_name(&mut self, wanted: &str) -> bool {
        self.takes(&Word::Name(wanted.to_owned()))
    }

    fn sign(&mut self, sign: char) -> Result<(), IdlError> {
        if self.takes(&Word::Sign(sign)) { Ok(()) } else { self.wrong(&format!("'{sign}'")) }
    }

    fn name(&mut self, what: &str) -> Result<(Place, String), IdlError> {
        match self.take() {
            (place, Word::Name(name)) => Ok((place, name)),
            _ => {
                self.next -= 1;
                self.wrong(what)
            }
        }
    }

    fn text(&mut self, what: &str) -> Result<(Place, String), IdlError> {
        match self.take() {
            (place, Word::Text(text)) => Ok((place, text)),
            _ => {
                self.next -= 1;
                self.wrong(what)
            }
        }
    }

    fn module(&mut self) -> Result<Module, IdlError> {
        if !self.takes_name("Module") {
            return self.wrong("'Module NAME;'");
        }
        let (_, name) = self.name("the module's name")?;
        self.sign(';')?;
        let mut functions = Vec::new();
        while !self.is(&Word::End) {
            if self.takes_name("Define") {
                functions.push(self.function()?);
            } else if ["CompileOptions", "Compile", "Library"]
                .iter()
                .any(|word| self.takes_name(word))
            {
                // Words for makefiles, which are not written here.
                self.text("a text")?;
                self.sign(';')?;
            } else {
                return self.wrong("'Define'");
            }
        }
        Ok(Module { name, functions })
    }

    fn function(&mut self) -> Result<Function, IdlError> {
        let (place, name) = self.name("the function's name")?;
        self.sign('(')?;
        let arguments = self.list(Self::argument)?;
        if matches!(self.look().1, Word::Text(_)) {
            self.take();
        }
        if self.takes_name("Required") {
            self.text("the name of a file")?;
            while matches!(self.look().1, Word::Text(_)) {
                self.take();
            }
        }
        if !self.takes_name("Calls") {
            return self.wrong("'Calls \"C\" FUNCTION(ARGUMENTS);'");
        }
        let (at, language) = self.text("\"C\"")?;
        if language != "C" {
            return Err(IdlError::at(
                at,
                format!("functions in {language:?} can't be called; \"C\" ones can"),
            ));
        }
        let (_, calls) = self.name("the function to call")?;
        self.sign('(')?;
        let passed = self.list(|parser| parser.name("the name of an argument"))?;
        self.sign(';')?;
        let passes = passed.into_iter().map(|(at, name)| {
            let found = arguments.iter().position(|argument| argument.name == name);
            found.ok_or_else(|| IdlError::at(at, format!("there is no argument {name}")))
        });
        let passes = passes.collect::<Result<_, _>>()?;
        Ok(Function { name, place, arguments, calls, passes })
    }

    /// What commas separate, up to the parenthesis.
    fn list<T>(
        &mut self,
        one: impl Fn(&mut Self) -> Result<T, IdlError>,
    ) -> Result<Vec<T>, IdlError> {
        let mut all = Vec::new();
        if self.takes(&Word::Sign(')')) {
            return Ok(all);
        }
        loop {
            all.push(one(self)?);
            if self.takes(&Word::Sign(')')) {
                return Ok(all);
            }
            if !self.takes(&Word::Sign(',')) {
                return self.wrong("',' or ')'");
            }
        }
    }

    fn argument(&mut self) -> Result<Argument, IdlError> {
        const MODES: [(&str, Mode); 6] = [
            ("IN", Mode::In),
            ("OUT", Mode::Out),
            ("INOUT", Mode::InOut),
            ("mode_in", Mode::In),
            ("mode_out", Mode::Out),
            ("mode_inout", Mode::InOut),
        ];
        let mode = MODES.iter().find(|(word, _)| self.is(&Word::Name((*word).to_owned())));
        let Some((_, mode)) = mode else { return self.wrong("'IN', 'OUT' or 'INOUT'") };
        self.take();
        let kind = match self.look().1 {
            Word::Name(name) => Kind::of(name),
            _ => None,
        };
        let Some(kind) = kind else {
            return self.wrong("'char', 'short', 'int', 'long', 'float', 'double' or 'string'");
        };
        self.take();
        let is_pointer = self.takes(&Word::Sign('*'));
        let (place, name) = self.name("the argument's name")?;
        let mut size: Option<Vec<Factor>> = None;
        while self.takes(&Word::Sign('[')) {
            let size = size.get_or_insert_default();
            loop {
                size.push(self.factor()?);
                if !self.takes(&Word::Sign('*')) {
                    break;
                }
            }
            if !self.takes(&Word::Sign(']')) {
                return self.wrong("'*' or ']'");
            }
        }
        Ok(Argument { place, name, mode: *mode, kind, is_pointer, size })
    }

    fn factor(&mut self) -> Result<Factor, IdlError> {
        match self.take() {
            (_, Word::Number(number)) => Ok(Factor::Number(number)),
            (place, Word::Name(name)) => Ok(Factor::Argument(place, name)),
            _ => {
                self.next -= 1;
                self.wrong("a number, or an argument that is one,")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PI: &str = "Module pi;\n\nDefine pi_trial(IN int seed, IN long times, OUT long *count)\n\
                      \"Monte Carlo\"\nRequired \"pi_trial.o\"\nCalls \"C\" pi_trial(seed, times, count);\n";

    #[test]
    fn a_description_is_read() {
        let module = parse(PI).unwrap();
        assert_eq!((module.name.as_str(), module.functions.len()), ("pi", 1));
        let function = &module.functions[0];
        assert_eq!((function.name.as_str(), function.calls.as_str()), ("pi_trial", "pi_trial"));
        assert_eq!(function.passes, [0, 1, 2]);
        assert!(function.arguments[2].is_pointer && function.arguments[2].mode == Mode::Out);
        let arrays = "Module m; Define f(IN int n, INOUT double a[n][3*n], IN string s) Calls \"C\" g(s, a);";
        let arrays = parse(arrays).unwrap();
        assert_eq!(arrays.functions[0].passes, [2, 1]);
        assert_eq!(arrays.functions[0].arguments[1].size.as_ref().map(Vec::len), Some(3));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let with = |from: &str, to: &str| parse(&PI.replacen(from, to, 1)).unwrap_err().to_string();
        for (from, to, said) in [
            ("Module", "Modul", "1:1: there is \"Modul\" where 'Module NAME;' should be"),
            ("IN int", "int", "3:17: there is \"int\" where 'IN', 'OUT' or 'INOUT' should be"),
            (
                "long times",
                "quad times",
                "3:33: there is \"quad\" where 'char', 'short', 'int', 'long', 'float', \
                                          'double' or 'string' should be",
            ),
            ("*count", "count", "3:54: count has to be a pointer or an array: it comes back"),
            (
                "int seed",
                "int *seed",
                "3:25: seed needs a size in brackets: it is a pointer that goes in",
            ),
            (
                "\"C\"",
                "\"Fortran\"",
                "6:7: functions in \"Fortran\" can't be called; \"C\" ones can",
            ),
            ("pi_trial(seed", "pi_trial(sed", "6:20: there is no argument sed"),
            (";\n\n", "\n\n", "3:1: there is \"Define\" where ';' should be"),
            ("*count", "count[m]", "3:60: there is no argument m"),
            (
                "*count",
                "count[count]",
                "3:60: count can't be a size: it is no 'short', 'int' or 'long' that goes in",
            ),
            ("times,", "times", "3:44: there is \"OUT\" where ',' or ')' should be"),
            (
                "Calls \"C\" pi_trial(seed, times, count);",
                "{ }",
                "6:1: code in braces can't be taken; put it into a \
                                          function, and name that behind 'Calls \"C\"'",
            ),
        ] {
            assert_eq!(with(from, to), said);
        }
        let twice = "Module m; Define f(IN int n, IN int n) Calls \"C\" f(n);";
        assert_eq!(parse(twice).unwrap_err().to_string(), "1:37: there is an argument n already");
        assert_eq!(parse("Module m;").unwrap_err().to_string(), "1:1: the module has no function");
        let twice = format!("{PI}{}", PI.trim_start_matches("Module pi;"));
        assert_eq!(
            parse(&twice).unwrap_err().to_string(),
            "9:8: there is a function pi_trial already"
        );
    }

    /// Whatever is missing, doubled or replaced: a module or a place, and nothing else.
    #[test]
    fn damaged_descriptions_are_refused_in_order() {
        let text = format!("/* é */ {PI} // end");
        let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        let lines = text.lines().count();
        for at in starts {
            let (before, rest) = text.split_at(at);
            let behind: String = rest.chars().skip(1).collect();
            let mut damaged = vec![before.to_owned(), rest.to_owned(), format!("{before}{behind}")];
            damaged.extend(
                ["\"", "[", "*", "/*", "é", "\0", "99999999999", "\n"]
                    .map(|new| format!("{before}{new}{behind}")),
            );
            for text in damaged {
                if let Err(error) = parse(&text) {
                    let place = error.place;
                    assert!(
                        (1..=lines + 1).contains(&place.line) && place.column >= 1,
                        "{error} in {text}"
                    );
                }
            }
        }
    }
}
