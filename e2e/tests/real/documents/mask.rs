//! Compares what a document shows with what was printed: word by word, except for what differs in every run.

use std::sync::LazyLock;

use regex::Regex;

/// A line that stands for any number of lines.
const ELISION: &str = "...";

/// How strictly lines are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Precision {
    /// Numbers, ages, times, hashes, amounts and generated names, and the width of columns, may differ.
    Masked,
    /// Only ports of this machine may differ: the test takes free ones.
    Exact,
}

/// The first difference, or none.
pub(super) fn difference(
    shown: &str,
    printed: &str,
    precision: Precision,
    varying: &[String],
) -> Option<String> {
    let normal = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| match precision {
            Precision::Masked => masked(line),
            Precision::Exact => PORT.replace_all(line.trim_end(), "$1<port>").into_owned(),
        });
        cut(lines, varying)
    };
    let (shown, printed) = (normal(shown), normal(printed));
    let parts: Vec<&[String]> = shown.split(|line| line.trim() == ELISION).collect();
    let [first, between @ ..] = &parts[..] else {
        return None;
    };
    let Some((last, between)) = between.split_last() else {
        return first_difference(first, &printed);
    };
    let Some((head, mut rest)) = printed.split_at_checked(first.len()) else {
        return first_difference(first, &printed);
    };
    if let Some(difference) = first_difference(first, head) {
        return Some(difference);
    }
    for part in between {
        match position(part, rest) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return Some(missing(part, rest)),
        }
    }
    match rest.len().checked_sub(last.len()) {
        Some(at) if rest[at..] == **last => None,
        _ => Some(missing(last, rest)),
    }
}

/// The lines, with nothing but the beginning of those that begin like this, and each beginning once.
fn cut(lines: impl Iterator<Item = String>, beginnings: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for line in lines {
        match beginnings.iter().find(|it| line.starts_with(&it[..])) {
            Some(beginning) if all.last() == Some(beginning) => {}
            Some(beginning) => all.push(beginning.clone()),
            None => all.push(line),
        }
    }
    all
}

fn position(part: &[String], lines: &[String]) -> Option<usize> {
    if part.is_empty() {
        return Some(0);
    }
    lines.windows(part.len()).position(|window| window == part)
}

fn missing(part: &[String], lines: &[String]) -> String {
    format!(
        "these lines, as far as they are compared:\n{}\nare not in, or not at the end of:\n{}",
        part.join("\n"),
        lines.join("\n")
    )
}

fn first_difference(shown: &[String], printed: &[String]) -> Option<String> {
    let none = "(nothing)".to_owned();
    let count = shown.len().max(printed.len());
    (0..count).find_map(|at| {
        let (left, right) = (shown.get(at), printed.get(at));
        let show = |line: Option<&String>| line.unwrap_or(&none).clone();
        (left != right).then(|| {
            format!(
                "line {}, as far as it is compared:\nshown:   {}\nprinted: {}",
                at + 1,
                show(left),
                show(right)
            )
        })
    })
}

static PORT: LazyLock<Regex> = LazyLock::new(|| pattern(r"(\b127\.0\.0\.1:)\d+"));

fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap()
}

/// What stands for each pattern. The order matters: the parts of a time are numbers, too.
static MASKS: LazyLock<[(Regex, &str); 12]> = LazyLock::new(|| {
    let mask = |text, stands| (pattern(text), stands);
    [
        mask(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
        mask(r"\b\d\d:\d\d:\d\d\b", "<time>"),
        // A replica, by its host.
        mask(
            r"[\w.-]+_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b",
            "<replica>",
        ),
        mask(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<uid>"),
        mask(r"\b[0-9a-f]{16,}\b", "<hash>"),
        // Letters and digits that Kubernetes generates names from: neither vowels nor digits that look like letters.
        mask(
            r"(-[bcdfghjklmnpqrstvwxz2456789]{6,10})?-[bcdfghjklmnpqrstvwxz2456789]{5}\b",
            "-<generated>",
        ),
        mask(
            r"\b\d+(\.\d+)?(ns|µs|us|ms|s|m|h|d|y)( ?\d+(ms|s|m|h|d)\b)+",
            "#",
        ),
        mask(
            r"\b\d+(\.\d+)*(ns|µs|us|ms|s|h|d|y|m|k|M|G|T|Ki|Mi|Gi|Ti|%)?\b",
            "#",
        ),
        mask(r"\d+", "#"),
        // The number decides about the plural.
        mask(r"# (\w+[^s\W])s\b", "# $1"),
        mask(r"(^| )[+-]#", "$1#"),
        // How full a node is, on the page of `up`.
        mask("[█▒·]+", "<bar>"),
    ]
});

/// A line without what differs in every run, and with one space between its words.
fn masked(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut text = words.join(" ");
    for (pattern, stands) in MASKS.iter() {
        text = pattern.replace_all(&text, *stands).into_owned();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(shown: &str, printed: &str, precision: Precision) -> Option<String> {
        super::difference(shown, printed, precision, &[])
    }

    #[test]
    fn what_differs_in_every_run_is_masked_and_nothing_else() {
        for (left, right) in [
            ("node-001   10k   24Gi   0s", "node-001  9500   1024Mi  12m"),
            (
                "oldest     demo/a, for 46s (since 2026-01-02T03:04:05Z): 0/6 nodes",
                "oldest demo/a, for 1m 2s (since 2027-11-12T13:14:15.123Z): 1/7 nodes",
            ),
            (
                "06:36:53  placed   demo/render-5s4kb on node-005",
                "16:06:03  placed   demo/render-bcdfg on node-001",
            ),
            ("web-7d5b9c7f4-x2k9q", "web-khqdn4fxsx-27788"),
            ("at https://127.0.0.1:6440", "at https://127.0.0.1:39201"),
            ("4m 59s (1 attempt so far)", "12s (25 attempts so far)"),
            (
                "12 pods bound, 1 bind failed",
                "1 pod bound, 0 binds failed",
            ),
            ("14.5/15.6  ███▒▒··  52/63Gi", "1.0/15.6  ▒▒▒▒▒▒▒  5/63Gi"),
            ("need  0.000 cores", "need -12.500 cores"),
            (
                "yes  tidepool-up_123e4567-e89b-12d3-a456-426614174000  0",
                "yes host.example_00000000-e89b-12d3-a456-4266141740ff 1",
            ),
            ("14.5/15.6 used (51%)", "3/15 used (7%)"),
            (
                "uid 123e4567-e89b-12d3-a456-426614174000",
                "uid 00000000-e89b-12d3-a456-4266141740ff",
            ),
        ] {
            assert_eq!(masked(left), masked(right));
        }
        for (left, right) in [
            ("web-1 created", "web-1 configured"),
            ("Insufficient cpu", "Insufficient memory"),
            ("demo/render-5s4kb", "demo/recommend-5s4kb"),
            ("default/web", "default/api"),
            ("node-001 Running", "node-001 Running 0"),
            ("6 nodes: cpu", "6 nodes; cpu"),
            ("kube-system/lease", "tidepool-system/lease"),
            ("2 nodes", "2 pods"),
            ("reason NodeAffinity", "reason NodePorts"),
        ] {
            assert_ne!(masked(left), masked(right));
        }
    }

    #[test]
    fn a_wrong_word_anywhere_is_a_difference() {
        let printed = "pod        demo/train-large (scheduler default-scheduler)\nstate      unschedulable: rejected by NodeResourcesFit\nlast try   12s ago: the same result as now\nnow        0/6 nodes fit\n";
        assert_eq!(difference(printed, printed, Precision::Masked), None);
        let older = printed.replace("12s", "1m 3s").replace("0/6", "1/7");
        assert_eq!(difference(&older, printed, Precision::Masked), None);
        assert_ne!(difference(&older, printed, Precision::Exact), None);
        let words: Vec<&str> = printed.split_whitespace().collect();
        for word in words
            .into_iter()
            .filter(|it| !it.contains(char::is_numeric))
        {
            let shown = printed.replacen(word, "wrong", 1);
            let difference = difference(&shown, printed, Precision::Masked);
            assert!(difference.unwrap().contains("wrong"), "{word}");
        }
        let shorter = printed.rsplit_once("now").unwrap().0;
        assert_ne!(difference(shorter, printed, Precision::Masked), None);
        assert_ne!(difference(printed, shorter, Precision::Masked), None);
        assert_ne!(difference("", printed, Precision::Masked), None);
    }

    #[test]
    fn exact_lines_have_the_same_numbers_and_columns() {
        let printed = "NODE         COST   UNIT\nreserved-1   11     web/reserved=11\n";
        let printed = &[printed, "at http://127.0.0.1:31234/\n"].concat();
        let with_port = printed.replace("31234", "6440");
        assert_eq!(difference(&with_port, printed, Precision::Exact), None);
        let shown = printed.replacen("11", "12", 1);
        let difference = difference(&shown, printed, Precision::Exact).unwrap();
        let lines = "shown:   reserved-1   12     web/reserved=11\nprinted: reserved-1   11     web/reserved=11";
        assert!(difference.ends_with(lines), "{difference}");
    }

    #[test]
    fn lines_that_vary_are_compared_as_far_as_they_begin_alike() {
        let beginnings = ["oldest ".to_owned(), "<time> placed".to_owned()];
        let differs = |shown, printed| {
            super::difference(shown, printed, Precision::Masked, &beginnings).is_some()
        };
        let printed = "oldest demo/a, waits\ndone a\n10:11:12 placed a\n10:11:13 placed b\nend\n";
        for (shown, fits) in [
            (printed, true),
            (
                "oldest x\ndone a\n00:00:00  placed z on node-1\nend\n",
                true,
            ),
            (
                "oldest x\ndone b\n00:00:00  placed z on node-1\nend\n",
                false,
            ),
            ("oldest x\ndone a\n00:00:00  evicted z\nend\n", false),
            ("oldest x\ndone a\nend\n", false),
            (
                "the oldest x\ndone a\n00:00:00  placed z on node-1\nend\n",
                false,
            ),
        ] {
            assert_eq!(differs(shown, printed), !fits, "{shown}");
        }
    }

    #[test]
    fn three_dots_stand_for_lines_that_are_left_out() {
        let printed = "a\nb\nc\nd\ne\n";
        for (shown, fits) in [
            ("...\n", true),
            ("a\n...\n", true),
            ("...\ne\n", true),
            ("a\n...\nc\nd\n...\n", true),
            ("a\nb\n...\nc\nd\ne\n", true),
            ("a\n...\nb\n...\n  ...\ne\n", true),
            ("b\n...\n", false),
            ("...\nd\n", false),
            ("...\nb\nd\n...\n", false),
            ("...\nd\n...\nb\n...\n", false),
            ("a\nb\nc\n...\nc\nd\ne\n", false),
            ("a\nb\nc\nd\ne\n...\nf\n", false),
            ("a\nb\nc\nd\ne\nf\n...\n", false),
        ] {
            let difference = difference(shown, printed, Precision::Exact);
            assert_eq!(difference.is_none(), fits, "{shown}{difference:?}");
        }
    }
}
