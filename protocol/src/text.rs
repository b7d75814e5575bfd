//! Texts from outside, short enough to be kept.

/// As much of a text as fits into so many bytes.
#[must_use]
pub fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn no_character_is_cut_in_two() {
        assert_eq!((cut("short", 9), cut("short", 3)), ("short", "sho"));
        assert_eq!((cut("né", 3), cut("né", 2), cut("é", 1), cut("", 0)), ("né", "n", "", ""));
    }
}
