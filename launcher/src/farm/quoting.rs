//! Where in a command of the shell's a quoted value is one word: outside of quotes, and of all that is read in another way.

/// How the shell reads what comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Context {
    /// As words.
    Plain,
    Single,
    Double,
    /// As words, in $(...) within double quotes; so many parentheses are open.
    Substitution(usize),
    Comment,
    /// In $((...)), where quotes do not quote; so many parentheses are open.
    Arithmetic(usize),
    /// In backquotes, where quotes are read twice.
    Backquoted,
    /// As nobody can tell who does not read the whole of it as a shell does: here-documents, for example.
    Unclear,
}

/// Follows the text of a command.
#[derive(Debug)]
pub struct Quoting {
    open: Vec<Context>,
    /// Whether a word may begin here, and so a comment.
    at_word: bool,
    /// Within $(...), a ')' of these is none that closes it.
    has_case: bool,
}

impl Quoting {
    /// Before the first byte of that command.
    pub fn of(command: &[u8]) -> Self {
        let has_case = command.windows(4).any(|word| word == b"case");
        Self { open: Vec::new(), at_word: true, has_case }
    }

    fn context(&self) -> Context {
        self.open.last().copied().unwrap_or(Context::Plain)
    }

    /// Whether a quoted value is one word here.
    pub fn is_plain(&self) -> bool {
        matches!(self.context(), Context::Plain | Context::Substitution(_))
    }

    /// A place for a value has been passed.
    pub fn value(&mut self) {
        self.at_word = false;
    }

    /// Passes what the shell reads as one, at least a byte of what comes next; how many bytes that is.
    pub fn pass(&mut self, next: &[u8]) -> usize {
        let context = self.context();
        let length = match context {
            Context::Plain | Context::Substitution(_) => self.pass_plain(next),
            Context::Double => self.pass_double(next),
            Context::Single => self.until(next, b'\''),
            Context::Comment => self.until(next, b'\n'),
            Context::Arithmetic(depth) => self.pass_arithmetic(next, depth),
            Context::Backquoted if next.first() == Some(&b'\\') => 2,
            Context::Backquoted => self.until(next, b'`'),
            Context::Unclear => 1,
        };
        let last = next.get(length.saturating_sub(1)).copied().unwrap_or_default();
        self.at_word = self.is_plain()
            && (context == Context::Comment || (length == 1 && b" \t\n;&|()".contains(&last)));
        length
    }

    fn until(&mut self, next: &[u8], end: u8) -> usize {
        if next.first() == Some(&end) {
            self.open.pop();
        }
        1
    }

    fn enter(&mut self, context: Context, length: usize) -> usize {
        self.open.push(context);
        length
    }

    fn pass_plain(&mut self, next: &[u8]) -> usize {
        match next {
            [b'\\', _, ..] => 2,
            // What is behind it is quoted by that.
            [b'\\'] => self.enter(Context::Unclear, 1),
            [b'\'', ..] => self.enter(Context::Single, 1),
            [b'"', ..] => self.enter(Context::Double, 1),
            [b'#', ..] if self.at_word => self.enter(Context::Comment, 1),
            [b'`', ..] => self.enter(Context::Backquoted, 1),
            [b'$', b'(', b'(', ..] => self.enter(Context::Arithmetic(2), 3),
            // Arithmetic for some shells, and two subshells for others.
            [b'(', b'(', ..] if self.at_word => self.enter(Context::Unclear, 1),
            [b'<', b'<', ..] | [b'$', b'\'' | b'[', ..] => self.enter(Context::Unclear, 1),
            // Of ${1}, a value would make $'...', whose quotes are others.
            [b'$', b'{', first, ..] if !(first.is_ascii_alphabetic() || *first == b'_') => {
                self.enter(Context::Unclear, 1)
            }
            [b'(', ..] => self.parenthesis(true),
            [b')', ..] => self.parenthesis(false),
            _ => 1,
        }
    }

    fn parenthesis(&mut self, opens: bool) -> usize {
        match self.open.last_mut() {
            Some(Context::Substitution(depth)) if opens => *depth += 1,
            Some(Context::Substitution(0)) => drop(self.open.pop()),
            Some(Context::Substitution(depth)) => *depth -= 1,
            _ => {}
        }
        1
    }

    fn pass_arithmetic(&mut self, next: &[u8], depth: usize) -> usize {
        let depth = match next.first() {
            Some(b'(') => depth + 1,
            Some(b')') => depth - 1,
            // It may be a command that begins with a subshell.
            Some(b'\'' | b'"' | b'`' | b'\\' | b'#') => return self.enter(Context::Unclear, 1),
            _ => depth,
        };
        self.open.pop();
        if depth > 0 {
            self.open.push(Context::Arithmetic(depth));
        }
        1
    }

    fn pass_double(&mut self, next: &[u8]) -> usize {
        match next {
            [b'\\', _, ..] => 2,
            [b'"', ..] => {
                self.open.pop();
                1
            }
            [b'`', ..] => self.enter(Context::Backquoted, 1),
            [b'$', b'(', b'(', ..] => self.enter(Context::Arithmetic(2), 3),
            [b'$', b'[', ..] => self.enter(Context::Unclear, 1),
            [b'$', b'(', ..] if self.has_case => self.enter(Context::Unclear, 1),
            [b'$', b'(', ..] => self.enter(Context::Substitution(0), 2),
            [b'$', b'{', rest @ ..] => {
                let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
                let name = rest.iter().take_while(|byte| is_name(byte)).count();
                match rest.get(name) {
                    Some(b'}')
                        if rest.first().is_some_and(|first| !first.is_ascii_digit())
                            && name > 0 =>
                    {
                        name + 3
                    }
                    // Quotes in it may begin anew.
                    _ => self.enter(Context::Unclear, 1),
                }
            }
            _ => 1,
        }
    }
}

/// A value as one word of the shell's, whatever is in it.
pub fn in_quotes(value: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for byte in value {
        match byte {
            b'\'' => quoted.extend_from_slice(b"'\\''"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'\'');
    quoted
}
