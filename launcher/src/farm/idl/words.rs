//! The words of a description.

use super::{IdlError, Place};

/// A word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// Letters, digits and `_`, not beginning with a digit.
    Name(String),
    /// Digits.
    Number(u32),
    /// What stands between quotes.
    Text(String),
    /// Any other character.
    Sign(char),
    /// There is no more.
    End,
}

/// A text's words with their places; the last one is [`Word::End`].
///
/// # Errors
/// Where a comment or a text has no end, a number is too large, or a character can't be in a description.
pub fn words(text: &str) -> Result<Vec<(Place, Word)>, IdlError> {
    let mut reader = Reader { rest: text, place: Place { line: 1, column: 1 } };
    let mut words = Vec::new();
    loop {
        reader.skip()?;
        let place = reader.place;
        let word = reader.word()?;
        let is_end = word == Word::End;
        words.push((place, word));
        if is_end {
            return Ok(words);
        }
    }
}

struct Reader<'a> {
    rest: &'a str,
    place: Place,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        for character in taken.chars() {
            if character == '\n' {
                self.place = Place { line: self.place.line + 1, column: 1 };
            } else {
                self.place.column += 1;
            }
        }
        self.rest = rest;
        taken
    }

    fn take_while(&mut self, fits: impl Fn(char) -> bool) -> &'a str {
        let length = self.rest.find(|character| !fits(character)).unwrap_or(self.rest.len());
        self.take(length)
    }

    /// Passes over blanks and comments.
    fn skip(&mut self) -> Result<(), IdlError> {
        loop {
            self.take_while(char::is_whitespace);
            if self.rest.starts_with("//") {
                self.take_while(|character| character != '\n');
            } else if self.rest.starts_with("/*") {
                let Some(length) = self.rest[2..].find("*/") else {
                    return Err(IdlError::at(self.place, "this comment has no end"));
                };
                self.take(length + 4);
            } else {
                return Ok(());
            }
        }
    }

    fn word(&mut self) -> Result<Word, IdlError> {
        let place = self.place;
        match self.rest.chars().next() {
            None => Ok(Word::End),
            Some('"') => self.text(),
            Some('0'..='9') => {
                let digits = self.take_while(|character| character.is_ascii_alphanumeric());
                let wrong = |_| {
                    IdlError::at(place, format!("\"{digits}\" is no number up to {}", u32::MAX))
                };
                digits.parse().map(Word::Number).map_err(wrong)
            }
            Some('A'..='Z' | 'a'..='z' | '_') => {
                let is_of_name =
                    |character: char| character.is_ascii_alphanumeric() || character == '_';
                Ok(Word::Name(self.take_while(is_of_name).to_owned()))
            }
            Some(sign) if sign.is_ascii_punctuation() => {
                self.take(1);
                Ok(Word::Sign(sign))
            }
            Some(other) => Err(IdlError::at(place, format!("{other:?} can't be here"))),
        }
    }

    fn text(&mut self) -> Result<Word, IdlError> {
        match self.rest[1..].find(['"', '\n']) {
            Some(length) if self.rest[1 + length..].starts_with('"') => {
                let text = self.take(length + 2);
                Ok(Word::Text(text[1..=length].to_owned()))
            }
            _ => Err(IdlError::at(self.place, "this text has no '\"' at its end, in its line")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_places() {
        let words = words("Module m; // one\n/* two\n */  IN \"t x\" 12").unwrap();
        let places: Vec<_> = words.iter().map(|(place, _)| (place.line, place.column)).collect();
        assert_eq!(places, [(1, 1), (1, 8), (1, 9), (3, 6), (3, 9), (3, 15), (3, 17)]);
        assert_eq!(words[4].1, Word::Text("t x".into()));
        assert_eq!(words[5].1, Word::Number(12));
    }

    #[test]
    fn what_has_no_end_is_named_where_it_begins() {
        for (text, said) in [
            ("a\n /* b", "2:2: this comment has no end"),
            ("\"b\n\"", "1:1: this text has no '\"' at its end, in its line"),
            ("a é", "1:3: 'é' can't be here"),
            ("12a", "1:1: \"12a\" is no number up to 4294967295"),
        ] {
            assert_eq!(words(text).unwrap_err().to_string(), said);
        }
    }
}
