//! Writes a source file in which every change can be selected at run time.

use std::cmp::Reverse;
use std::ops::Range;

use super::sites::{Edit, Site};

/// A source file with its changes.
pub(super) struct Rewritten {
    pub(super) text: String,
    /// Where each site is in the text.
    ranges: Vec<(usize, Range<usize>)>,
}

impl Rewritten {
    /// The smallest site around this range.
    pub(super) fn site_at(&self, range: &Range<usize>) -> Option<usize> {
        let around = self
            .ranges
            .iter()
            .filter(|(_, site)| site.start <= range.start && range.end <= site.end);
        around.min_by_key(|(_, site)| site.len()).map(|(id, _)| *id)
    }

    /// The sites inside of this range.
    pub(super) fn sites_in(&self, range: &Range<usize>) -> Vec<usize> {
        let inside = self
            .ranges
            .iter()
            .filter(|(_, site)| range.start <= site.start && site.end <= range.end);
        inside.map(|(id, _)| *id).collect()
    }
}

/// Where the site at this index begins or ends.
struct Insertion {
    at: usize,
    index: usize,
}

/// `sites` have their ids; all are of this file.
pub(super) fn rewrite(text: &str, sites: &[(usize, &Site)]) -> Rewritten {
    // Outer ones open first and close last.
    let mut sites = sites.to_vec();
    sites.sort_by_key(|(id, site)| {
        let range = extent(&site.edit);
        (range.start, Reverse(range.end), *id)
    });
    let openings = sites
        .iter()
        .enumerate()
        .map(|(index, (_, site))| Insertion {
            at: extent(&site.edit).start,
            index,
        });
    let closings = sites
        .iter()
        .enumerate()
        .map(|(index, (_, site))| Insertion {
            at: extent(&site.edit).end,
            index,
        });
    let has_length = |it: &Insertion| !extent(&sites[it.index].1.edit).is_empty();
    let mut closings: Vec<Insertion> = closings.filter(has_length).collect();
    closings.sort_by_key(|it| (it.at, Reverse(it.index)));

    let mut out = String::with_capacity(text.len() * 4);
    let mut starts = vec![0; sites.len()];
    let mut ranges = Vec::new();
    let mut copied = 0;
    let mut openings = openings.peekable();
    let mut closings = closings.into_iter().peekable();
    loop {
        // What ends at a place ends before the next one begins there.
        let opens = match (openings.peek(), closings.peek()) {
            (Some(opening), Some(closing)) => opening.at < closing.at,
            (opening, _) => opening.is_some(),
        };
        let next = if opens {
            openings.next()
        } else {
            closings.next()
        };
        let Some(Insertion { at, index }) = next else {
            break;
        };
        let (id, site) = sites[index];
        let (opening, closing) = around(id, &site.edit);
        out.push_str(&text[copied..at]);
        copied = at;
        if opens {
            starts[index] = out.len();
        }
        out.push_str(if opens { &opening } else { closing });
        if !opens || extent(&site.edit).is_empty() {
            ranges.push((id, starts[index]..out.len()));
        }
    }
    out.push_str(&text[copied..]);
    Rewritten { text: out, ranges }
}

fn extent(edit: &Edit) -> Range<usize> {
    match edit {
        Edit::Expression { range, .. } | Edit::Statement { range } => range.clone(),
        Edit::Return { at, .. } | Edit::Never { at } => *at..*at,
    }
}

/// What stands before and behind the original text.
fn around(id: usize, edit: &Edit) -> (String, &'static str) {
    let is = format!("crate::mutant::is({id})");
    match edit {
        Edit::Expression { text, .. } => (format!("(if {is} {{ {text} }} else {{ "), " })"),
        Edit::Statement { .. } => (format!("if {is} {{}} else {{ "), " }"),
        Edit::Return { value, .. } => (format!(" if {is} {{ return {value}; }} "), ""),
        Edit::Never { .. } => (format!("!{is} && "), ""),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sites;
    use super::*;

    fn rewritten(text: &str) -> Rewritten {
        let found = sites::find("a.rs", text).unwrap();
        let numbered: Vec<(usize, &Site)> = found.iter().enumerate().collect();
        rewrite(text, &numbered)
    }

    #[test]
    fn every_change_can_be_selected() {
        for (case, text, want) in [
            (
                "an operator",
                "fn f() -> i64 { a + b }",
                "fn f() -> i64 { (if crate::mutant::is(0) { (a) - (b) } else { a + b }) }",
            ),
            (
                "one in the other: the changed text has no further change",
                "fn f() -> i64 { a + b * c }",
                "fn f() -> i64 { (if crate::mutant::is(0) { (a) - (b * c) } else { a + \
                 (if crate::mutant::is(1) { (b) / (c) } else { b * c }) }) }",
            ),
            (
                "a call",
                "fn f() -> i64 { g(x); y }",
                "fn f() -> i64 { if crate::mutant::is(0) {} else { g(x); } y }",
            ),
            (
                "a condition and its operator",
                "fn f() -> i64 { if a < b { c } else { d } }",
                "fn f() -> i64 { if (if crate::mutant::is(0) { true } else { (if crate::mutant::is(1) { false } else { \
                 (if crate::mutant::is(2) { (a) <= (b) } else { a < b }) }) }) { c } else { d } }",
            ),
            (
                "a condition that binds names",
                "fn f() -> i64 { if let Some(a) = b && c { a } else { d } }",
                "fn f() -> i64 { if !crate::mutant::is(0) && let Some(a) = b && \
                 (if crate::mutant::is(1) { true } else { c }) { a } else { d } }",
            ),
            (
                "the value of a function",
                "fn f() -> bool { g(x) }",
                "fn f() -> bool { if crate::mutant::is(0) { return true; }  if crate::mutant::is(1) { return false; }  g(x) }",
            ),
        ] {
            let text = rewritten(text).text;
            assert_eq!(text, want, "{case}");
            assert!(syn::parse_file(&text).is_ok(), "{case}");
        }
    }

    #[test]
    fn an_error_belongs_to_the_smallest_site_around_it() {
        let file = rewritten("fn f() -> i64 { a + b * c }");
        let at = |part: &str| {
            let start = file.text.find(part).unwrap();
            file.site_at(&(start..start + part.len()))
        };
        assert_eq!(at("(a) - (b * c)"), Some(0));
        assert_eq!(at("(b) / (c)"), Some(1));
        assert_eq!(at("fn f"), None);
        assert_eq!(file.sites_in(&(0..file.text.len())), [1, 0]);
    }
}
