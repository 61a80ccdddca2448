//! Texts that others wrote, made fit for a line of ours.
//!
//! Names and messages come from whoever may make a pod or runs an extender. On a line of a log or a terminal they must
//! not end it, begin another one, or move the cursor.

use std::borrow::Cow;

/// Longer texts are cut. It is as much as an Event has room for.
const LONGEST: usize = 1024;

/// The text on one line: cut if it is long, and with every control character escaped.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    let kept = cut(text);
    if kept.len() == text.len() && !kept.contains(is_unfit) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(kept.len());
    for c in kept.chars() {
        match is_unfit(c) {
            true => line.extend(c.escape_default()),
            false => line.push(c),
        }
    }
    if kept.len() < text.len() {
        line.push('…');
    }
    Cow::Owned(line)
}

/// As much of the text as there is room for.
pub(crate) fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}

/// Controls, and marks that let a text be read in another order than it is written.
fn is_unfit(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stays_on_its_line() {
        for (text, want) in [
            ("0/2 nodes: naïve ✓", "0/2 nodes: naïve ✓"),
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            ("\u{1b}[2Jx\u{9b}1m", "\\u{1b}[2Jx\\u{9b}1m"),
            ("abc\u{202e}fed", "abc\\u{202e}fed"),
        ] {
            assert_eq!(one_line(text), want);
        }
    }

    #[test]
    fn a_long_text_is_cut_between_letters() {
        let long = "ü".repeat(LONGEST);
        let want = format!("{}…", "ü".repeat(LONGEST / 2));
        assert_eq!(one_line(&long), want);
        let whole = "x".repeat(LONGEST);
        assert_eq!(one_line(&whole), whole);
    }
}
