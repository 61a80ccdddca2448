//! Makes texts of others fit on one line.
//!
//! Names and messages come from users who create pods and from extenders. In a log or terminal they must not end the
//! line, begin another one, or move the cursor.

use std::borrow::Cow;

/// Longer texts are truncated. Events have the same limit.
const LONGEST: usize = 1024;

/// The text on one line: truncated, and with every control character escaped.
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

/// The start of the text, up to [`LONGEST`].
pub(crate) fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}

/// Control characters, and marks that change the reading order.
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
