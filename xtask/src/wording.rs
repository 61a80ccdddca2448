//! Refuses phrases that a reader in a hurry has to read twice, in texts that users read; and comments and names that hide their
//! subject, in Rust sources.
//!
//! It looks for phrases in string literals and doc comments of Rust sources (not in tests), in documents, and in comments of
//! manifests, scenarios and settings. It looks at the beginnings of comments and at names in all Rust sources, tests included.
//! It knows short lists, not grammar: a review has to find the rest.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::process;

/// Phrases in lower case, and what to write instead. A phrase matches whole words, across line breaks. Doc comments are checked, too.
const PHRASES: &[(&[&str], &str)] = &[
    (
        &[
            "whoever",
            "whomever",
            "whom",
            "somebody",
            "someone",
            "nobody",
            "no one",
            "anybody",
            "everybody",
        ],
        "the component, client or user that acts",
    ),
    (
        &["he", "him", "his", "one's own"],
        "`it`, or the name of the component",
    ),
    (&["told", "tells"], "`reports`, `logs` or `sends an event`"),
    (&["warned of", "warns of"], "`logs a warning about`"),
    (&["done without", "does without"], "`continuing without`"),
    (
        &[
            "make no sense",
            "makes no sense",
            "made no sense",
            "misunderstood",
        ],
        "`invalid`, with what was found and what is allowed",
    ),
    (&["its like", "their like"], "`pods of the same class`"),
    (
        &[
            "no word",
            "last word",
            "its say",
            "their say",
            "nothing to say",
        ],
        "`no result`, `no update` or `no opinion`",
    ),
    (&["news"], "`updates`, `inputs` or `events`"),
    (&["the truth"], "`the observed state`"),
    (&["rights", "the right to"], "`permissions`"),
    (
        &["the world"],
        "`the cluster`, `the API server` or `the environment`",
    ),
    (&["mend", "mends", "mended"], "`fix`"),
    (
        &[
            "by and by",
            "once and for all",
            "for ever",
            "in vain",
            "mid-drain",
        ],
        "a plain statement of when",
    ),
    (
        &["comes to know", "come to know", "by which to"],
        "`receives`, `learns` or `that`",
    ),
];

/// Words that are refused only in what users read: strings, documents, comments of manifests and `--help`.
const FOR_USERS: &[(&[&str], &str)] = &[
    (&["room"], "`capacity`"),
    (&["words"], "`message` or `text`"),
    (&["said"], "`result`, `status` or `message`"),
    (&["asked for"], "`requested`"),
];

/// How a comment of a Rust source does not begin, as whole words: the reader has to look for the subject in the lines above.
const BEGINNINGS: &[(&[&str], &str)] = &[
    (&["The same"], "what the item is or does, with its noun"),
    (
        &[
            "Of a", "Of all", "Of an", "Of each", "Of its", "Of one", "Of the", "Of these",
            "Of this", "Of those", "Of what", "Of which",
        ],
        "the noun first, such as `The name of the Service`",
    ),
];

/// Names that are refused in Rust sources, and verbs and nouns that say what happens.
const NAMES: &[(&[&str], &str)] = &[
    (&["denominate"], "`remove_nomination`"),
    (&["come_to_nothing"], "`end_and_requeue`"),
    (&["give_room_back"], "`end_binding`"),
    (&["break_off"], "`fail_binding`"),
    (&["take_in"], "`apply_input`"),
    (&["turn_to"], "`reset_to_node`"),
    (&["homeless_reports"], "`reports_without_node`"),
];

/// Texts of Kubernetes, Katalyst and Koordinator, which we repeat byte for byte.
const UPSTREAM: &[&str] = &["the server has asked for the client to provide credentials"];

/// Files and folders whose texts users read; in `crates` only `src`.
const CHECKED: &[&str] = &[
    ".cargo",
    "Cargo.toml",
    "Dockerfile",
    "clippy.toml",
    "crates",
    "deny.toml",
    "deploy",
    "docs",
    "examples",
    "rustfmt.toml",
    "scenarios",
    "xtask",
];

/// Folders in which only the beginnings of comments and the names are checked.
const SOURCES: &[&str] = &["e2e"];

/// This file is not checked: it has the lists.
const THIS: &str = "wording.rs";

/// A phrase at its place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    path: PathBuf,
    line: usize,
    phrase: &'static str,
    instead: &'static str,
}

impl fmt::Display for Hit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            line,
            phrase,
            instead,
        } = self;
        write!(
            f,
            "{}:{line}: \"{phrase}\": write {instead}",
            path.display()
        )
    }
}

/// `cargo xtask wording`: every hit, then how many there are.
pub(crate) fn run() -> Result<ExitCode> {
    let hits = hits()?;
    hits.iter().for_each(|hit| println!("{hit}"));
    println!("{} phrases found", hits.len());
    Ok(if hits.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Every hit in the repository, by path and line.
pub(crate) fn hits() -> Result<Vec<Hit>> {
    let root = process::root();
    let mut files = Vec::new();
    for entry in CHECKED.iter().chain(SOURCES) {
        walk(&root.join(entry), &mut files)?;
    }
    for entry in std::fs::read_dir(root).context("cannot list the repository")? {
        let path = entry.context("cannot list the repository")?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let path = file.strip_prefix(root).unwrap_or(&file);
        let (kind, is_source) = (kind(path), is_source(path));
        if kind.is_none() && !is_source {
            continue;
        }
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        let mut hits = Vec::new();
        if let Some(kind) = kind {
            let [all, for_users] = projections(kind, &text);
            hits.extend(find(&all, PHRASES));
            hits.extend(find(&for_users, FOR_USERS));
        }
        if is_source {
            hits.extend(beginnings(&text));
            hits.extend(names(&text));
        }
        hits.sort();
        found.extend(hits.into_iter().map(|(line, phrase, instead)| Hit {
            path: path.to_owned(),
            line,
            phrase,
            instead,
        }));
    }
    Ok(found)
}

fn walk(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if path.is_file() {
        files.push(path.to_owned());
        return Ok(());
    }
    let cannot = || format!("cannot list {}", path.display());
    for entry in std::fs::read_dir(path).with_context(cannot)? {
        walk(&entry.with_context(cannot)?.path(), files)?;
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Document,
    Library,
    /// Its doc comments are the text of `--help`.
    CommandLine,
    /// Manifests, scenarios and settings.
    Settings,
}

/// Whether comments and names of a file are checked.
fn is_source(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with(THIS)
}

/// What kind of text for users a file has; `None` if it has none.
fn kind(path: &Path) -> Option<Kind> {
    let has = |name: &str| path.iter().any(|part| part == name);
    match path.extension().and_then(|extension| extension.to_str()) {
        _ if SOURCES.iter().any(|folder| path.starts_with(folder)) => None,
        Some("md") => Some(Kind::Document),
        Some("rs") if !has("src") || has("tests") || has("tests.rs") => None,
        Some("rs") if path.ends_with(THIS) => None,
        Some("rs") if path.starts_with("crates") && !has("tidepool") => Some(Kind::Library),
        Some("rs") => Some(Kind::CommandLine),
        Some("yaml" | "toml") => Some(Kind::Settings),
        None if has("Dockerfile") => Some(Kind::Settings),
        _ => None,
    }
}

/// What [`PHRASES`] are refused in, and what [`FOR_USERS`] are refused in.
///
/// A projection keeps lines and whitespace. Every other character that is not such text becomes NUL, which no phrase spans.
fn projections(kind: Kind, text: &str) -> [String; 2] {
    match kind {
        Kind::Document => [text.to_owned(), text.to_owned()],
        Kind::Library => [rust(text, true), rust(text, false)],
        Kind::CommandLine => [rust(text, true), rust(text, true)],
        Kind::Settings => [hash_comments(text), hash_comments(text)],
    }
}

/// Comments after `#`.
fn hash_comments(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let quotes = |before: &str| before.matches(['"', '\'']).count();
        let is_start = |at: &usize| {
            let before = &line[..*at];
            before.chars().next_back().is_none_or(char::is_whitespace) && quotes(before) % 2 == 0
        };
        let start = line.match_indices('#').map(|(at, _)| at).find(is_start);
        let (code, comment) = line.split_at(start.unwrap_or(line.len()));
        kept.extend(code.chars().map(hidden));
        kept.push_str(&comment.replacen('#', " ", 1));
    }
    kept
}

fn hidden(character: char) -> char {
    if character.is_whitespace() {
        character
    } else {
        '\0'
    }
}

/// String literals and, if wanted, doc comments, up to the tests at the end of the file.
fn rust(text: &str, with_comments: bool) -> String {
    let text = without_tests(text);
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word = rest.len() - rest.trim_start_matches(is_part_of_name).len();
        let (prefix, after) = rest.split_at(word);
        let hashes = after.len() - after.trim_start_matches('#').len();
        let taken = if matches!(prefix, "r" | "br" | "cr") && after[hashes..].starts_with('"') {
            let end = format!("\"{}", &after[..hashes]);
            let inside = &after[hashes + 1..];
            let length = inside.find(&end).unwrap_or(inside.len());
            kept.push('\0');
            kept.push_str(&inside[..length]);
            kept.push('\0');
            (word + hashes + 1 + length + end.len()).min(rest.len())
        } else if word > 0 {
            kept.push('\0');
            word
        } else if let Some(comment) = rest.strip_prefix("//") {
            let line = comment.find('\n').unwrap_or(comment.len());
            let comment = &comment[..line];
            let is_doc = match comment.as_bytes() {
                [b'/', b'/', ..] => false,
                [b'/' | b'!', ..] => with_comments,
                _ => false,
            };
            if is_doc {
                kept.push(' ');
                kept.push_str(&comment[1..]);
            } else {
                kept.push('\0');
            }
            2 + line
        } else if rest.starts_with("/*") {
            let length = block_comment(rest);
            kept.extend(rest[..length].chars().map(hidden));
            length
        } else if first == '"' {
            let length = 1 + string(&rest[1..], &mut kept);
            length.min(rest.len())
        } else if first == '\'' {
            kept.push('\0');
            character_or_lifetime(rest)
        } else {
            kept.push(hidden(first));
            first.len_utf8()
        };
        rest = &rest[taken..];
    }
    kept
}

/// What stands before `#[cfg(test)] mod name {`, which ends a file here.
fn without_tests(text: &str) -> &str {
    let tests = text.match_indices("#[cfg(test)]\nmod ");
    let mut modules = tests.filter(|(at, _)| {
        let line = text[*at..].lines().nth(1).unwrap_or_default();
        line.ends_with('{')
    });
    modules.next().map_or(text, |(at, _)| &text[..at])
}

/// The length of a comment that begins here; such comments nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let step = match text.as_bytes().get(at..at + 2) {
            Some(b"/*") => {
                depth += 1;
                2
            }
            Some(b"*/") => {
                depth -= 1;
                2
            }
            _ => 1,
        };
        at += step;
        if depth == 0 {
            break;
        }
    }
    at
}

/// Keeps what a string literal says, from behind its first quote; returns its length with the last one.
fn string(text: &str, kept: &mut String) -> usize {
    kept.push('\0');
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => {
                kept.push('\0');
                return at + 1;
            }
            // A line that goes on, a line break or a quote: none of them is part of a word.
            '\\' => match characters.next() {
                Some((_, '\n')) => kept.push_str(" \n"),
                Some((_, 'n' | 'r' | 't')) => kept.push(' '),
                _ => kept.push('\0'),
            },
            _ => kept.push(character),
        }
    }
    text.len()
}

/// The length of `'a'`, `'\n'`, or of the quote of a lifetime.
fn character_or_lifetime(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1);
    match characters.next() {
        Some((_, '\\')) => {
            characters.next();
            let end = characters.find(|(_, character)| *character == '\'');
            end.map_or(text.len(), |(at, _)| at + 1)
        }
        _ => match characters.next() {
            Some((at, '\'')) => at + 1,
            _ => 1,
        },
    }
}

/// Line, phrase and what to write instead.
type Found = (usize, &'static str, &'static str);

/// Comments that begin with one of [`BEGINNINGS`]. A line that goes on with the comment of the line above does not begin one.
fn beginnings(source: &str) -> Vec<Found> {
    let (mut found, mut goes_on) = (Vec::new(), false);
    for (line, text) in (1..).zip(source.lines()) {
        let whole = text.trim_start().strip_prefix("//");
        let behind_code = || text.split_once(" // ").map(|(_, comment)| comment);
        let Some(comment) = whole.or_else(behind_code) else {
            goes_on = false;
            continue;
        };
        let comment = comment.trim_start_matches(['/', '!']).trim();
        if !(goes_on && whole.is_some()) {
            let begins = |phrase: &str| {
                let rest = comment.strip_prefix(phrase);
                rest.is_some_and(|rest| !rest.starts_with(is_part_of_name))
            };
            found.extend(matching(BEGINNINGS, begins).map(|(phrase, it)| (line, phrase, it)));
        }
        goes_on = whole.is_some() && !comment.is_empty();
    }
    found
}

/// Uses and definitions of [`NAMES`], in comments and literals, too.
fn names(source: &str) -> Vec<Found> {
    let mut found = Vec::new();
    for (line, text) in (1..).zip(source.lines()) {
        for word in text.split(|character| !is_part_of_name(character)) {
            let hits = matching(NAMES, |name| name == word);
            found.extend(hits.map(|(name, instead)| (line, name, instead)));
        }
    }
    found
}

fn is_part_of_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The phrases of a list that the test accepts, each with what to write instead.
fn matching(
    list: &[(&'static [&'static str], &'static str)],
    accepts: impl Fn(&str) -> bool,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    list.iter()
        .flat_map(|(phrases, instead)| phrases.iter().map(move |phrase| (*phrase, *instead)))
        .filter(move |(phrase, _)| accepts(phrase))
}

/// Line, phrase and what to write instead, in order.
fn find(visible: &str, list: &[(&[&'static str], &'static str)]) -> Vec<Found> {
    let text = UPSTREAM
        .iter()
        .fold(visible.to_owned(), |text, upstream| {
            text.replace(upstream, "\0")
        })
        .to_ascii_lowercase();
    let words = words(&text);
    let mut found = Vec::new();
    for index in 0..words.len() {
        for (phrases, instead) in list {
            let hits = phrases.iter().filter(|phrase| {
                let mut at = index;
                phrase.split(' ').all(|want| {
                    let is_next = words
                        .get(at)
                        .is_some_and(|word| word.text == want && (at == index || word.follows));
                    at += 1;
                    is_next
                })
            });
            found.extend(hits.map(|phrase| (words[index].line, *phrase, *instead)));
        }
    }
    found
}

struct Word<'a> {
    text: &'a str,
    line: usize,
    /// Only whitespace is between it and the word before.
    follows: bool,
}

fn words(text: &str) -> Vec<Word<'_>> {
    let is_part =
        |character: char| character.is_alphanumeric() || matches!(character, '_' | '\'' | '-');
    let (mut words, mut rest, mut line) = (Vec::new(), text, 1);
    while !rest.is_empty() {
        let start = rest.find(is_part).unwrap_or(rest.len());
        let (between, from) = rest.split_at(start);
        line += between.matches('\n').count();
        let end = from
            .find(|character| !is_part(character))
            .unwrap_or(from.len());
        let (word, behind) = from.split_at(end);
        // The name of a value in a format string is no text.
        let is_name = between.ends_with('{');
        let text = if is_name { "" } else { word };
        words.push(Word {
            text: text.trim_matches(['\'', '-']),
            line,
            follows: between.chars().all(char::is_whitespace),
        });
        rest = behind;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(visible: &str) -> Vec<(usize, &'static str)> {
        let hits = find(visible, PHRASES);
        hits.into_iter()
            .map(|(line, phrase, _)| (line, phrase))
            .collect()
    }

    #[test]
    fn phrases_are_whole_words_in_any_case_and_across_lines() {
        for (text, want) in [
            ("Whoever asks", vec![(1, "whoever")]),
            ("evicts its\nlike only", vec![(1, "its like")]),
            ("a\nb is told", vec![(2, "told")]),
            ("its likeness, a shell, tolding", vec![]),
            ("it is done, without a pod", vec![]),
            ("kube-scheduler's", vec![]),
            ("`he` waits", vec![(1, "he")]),
        ] {
            assert_eq!(found(text), want, "{text}");
        }
    }

    #[test]
    fn strings_and_doc_comments_of_rust_count_and_nothing_else() {
        for (case, source, want) in [
            ("a string", r#"f("nobody");"#, vec![(1, "nobody")]),
            ("a value", r#"format!("{whom}: {he:?}")"#, vec![]),
            (
                "a format",
                r#"format!("{pod} makes no {x} sense, nobody's");"#,
                vec![],
            ),
            (
                "a line that goes on",
                "f(\"it is done \\\n   without\");",
                vec![(1, "done without")],
            ),
            (
                "an escape",
                r#"f("a \"quoted\" his\nhim");"#,
                vec![(1, "his"), (1, "him")],
            ),
            (
                "a raw string",
                "f(r#\"a \"whom\" b\"#); g(\"he\")",
                vec![(1, "whom"), (1, "he")],
            ),
            ("bytes", "b\"whom\"; br\"he\"", vec![(1, "whom"), (1, "he")]),
            (
                "a doc comment",
                "    /// Its\n    /// like.\n    fn f() {}",
                vec![(1, "its like")],
            ),
            ("a header", "//! whom", vec![(1, "whom")]),
            ("two strings", r#"["its", "like"]"#, vec![]),
            ("code", "let he = whom;", vec![]),
            (
                "a comment",
                "// whom\n/* he /* his */ him */ f(\"he\")",
                vec![(2, "he")],
            ),
            (
                "a quote as a character",
                r#"f('"', "he", '\'', "his")"#,
                vec![(1, "he"), (1, "his")],
            ),
            (
                "a lifetime",
                "fn f<'a>(x: &'a str) { g(\"he\") }",
                vec![(1, "he")],
            ),
            (
                "tests",
                "f(\"he\");\n#[cfg(test)]\nmod tests {\n    f(\"whom\");\n}",
                vec![(1, "he")],
            ),
            (
                "a module for tests",
                "#[cfg(test)]\nmod testing;\nf(\"he\")",
                vec![(3, "he")],
            ),
        ] {
            let visible = rust(source, true);
            assert_eq!(found(&visible), want, "{case}: {visible:?}");
        }
    }

    #[test]
    fn some_words_are_refused_only_in_texts_for_users() {
        let source = "/// There is room.\nf(\"no room\")";
        for (path, want) in [
            ("crates/engine/src/scheduling/queue.rs", vec![2]),
            ("crates/engine/src/scheduling/queue/tests.rs", vec![]),
            ("crates/engine/tests/engine/shape.rs", vec![]),
            ("crates/tidepool/src/up.rs", vec![1, 2]),
            ("docs/scenarios.md", vec![1, 2]),
            ("LICENSE", vec![]),
        ] {
            let kind = kind(Path::new(path));
            let hits = kind.map(|kind| find(&projections(kind, source)[1], FOR_USERS));
            let lines: Vec<usize> = hits.into_iter().flatten().map(|hit| hit.0).collect();
            assert_eq!(lines, want, "{path}");
        }
    }

    #[test]
    fn a_comment_of_a_source_begins_with_its_subject() {
        for (case, source, want) in [
            (
                "a doc comment",
                "/// The same of its labels.",
                vec![(1, "The same")],
            ),
            ("a dot", "    // The same.", vec![(1, "The same")]),
            ("a comma", "//! The same, decoded.", vec![(1, "The same")]),
            ("an end", "// The same\n// as above.", vec![(1, "The same")]),
            ("behind code", "f(); // Of the pod.", vec![(1, "Of the")]),
            (
                "a paragraph",
                "/// A pod.\n///\n/// Of each, one.",
                vec![(3, "Of each")],
            ),
            (
                "after code",
                "// A pod.\nf();\n// Of all nodes.",
                vec![(3, "Of all")],
            ),
            (
                "two comments",
                "f(); // A pod.\n// Of its node.",
                vec![(2, "Of its")],
            ),
            (
                "a line that goes on",
                "/// A pod. What\n/// Of the rest, one.",
                vec![],
            ),
            (
                "a longer word",
                "// Of another one.\n\n// The sameness.",
                vec![],
            ),
            ("in the middle", "// As the same and Of the.", vec![]),
            ("a string", "f(\"The same\")", vec![]),
        ] {
            let hits = beginnings(source).into_iter();
            let found: Vec<_> = hits.map(|(line, phrase, _)| (line, phrase)).collect();
            assert_eq!(found, want, "{case}");
        }
    }

    #[test]
    fn names_that_hide_what_happens_are_refused_as_whole_words() {
        for (source, want) in [
            ("fn take_in(&self) {}", vec![(1, "take_in")]),
            (
                "use a::{f, turn_to};\nself.break_off()",
                vec![(1, "turn_to"), (2, "break_off")],
            ),
            ("/// See [`denominate`].", vec![(1, "denominate")]),
            ("take_into; mistake_in; turn_to_node; denominated", vec![]),
        ] {
            let hits = names(source).into_iter();
            let found: Vec<_> = hits.map(|(line, name, _)| (line, name)).collect();
            assert_eq!(found, want, "{source}");
        }
    }

    #[test]
    fn sources_are_checked_with_their_tests() {
        for (path, want) in [
            ("crates/engine/src/scheduling/queue.rs", true),
            ("crates/engine/src/scheduling/queue/tests.rs", true),
            ("e2e/tests/real/gate.rs", true),
            ("xtask/src/wording.rs", false),
            ("e2e/README.md", false),
        ] {
            assert_eq!(is_source(Path::new(path)), want, "{path}");
        }
        assert_eq!(kind(Path::new("e2e/README.md")), None);
    }

    #[test]
    fn only_comments_of_manifests_count() {
        let text = "# Its\n# like.\na: he # whom\nb: 'x # his'\nc: x#him\n";
        assert_eq!(found(&hash_comments(text)), [(1, "its like"), (3, "whom")]);
    }

    #[test]
    fn a_hit_says_where_it_is_and_what_to_write() {
        let hit = Hit {
            path: "docs/a.md".into(),
            line: 3,
            phrase: "mend",
            instead: "`fix`",
        };
        assert_eq!(hit.to_string(), "docs/a.md:3: \"mend\": write `fix`");
    }
}
