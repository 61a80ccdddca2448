//! Text into types, with line numbers. What is wrong in a file is said with its line and its field and, for a name that
//! does not exist, the nearest one that does; as much of it at once as can be found. Nothing here knows what the files
//! are about.

mod reader;
mod tree;

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, DeserializeSeed};

use self::reader::{Attempt, Reader};
pub(crate) use self::tree::Booleans;
use self::tree::{Node, Value};

/// Beyond so many faults nobody reads on.
const MOST_FAULTS: usize = 50;

/// Something to say about a file: an error or a warning.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// Counted from 1.
    pub line: Option<u64>,
    /// Path of the field as `profiles[0].schedulerName`; empty if the text has none.
    pub field: String,
    pub text: String,
}

impl Finding {
    /// With the name of its file, as compilers write it: `FILE:LINE: error: FIELD: TEXT`.
    pub fn in_file(&self, file: &str, kind: &str) -> String {
        let place = match self.line {
            Some(line) => format!("{file}:{line}"),
            None => file.to_owned(),
        };
        let finding = Self {
            line: None,
            ..self.clone()
        };
        format!("{place}: {kind}: {finding}")
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.text)
    }
}

impl std::error::Error for Finding {}

/// Reads one document in which every field must be read by somebody, however deep it is. Only `true` and `false` are
/// truth values.
pub fn decode_strict<T: DeserializeOwned>(text: &str) -> Result<T, Vec<Finding>> {
    let (tree, mut findings) =
        Tree::parse(text, Booleans::TrueAndFalse).map_err(|finding| vec![finding])?;
    let read = tree.read("", || PhantomData::<T>);
    findings.extend(read.faults);
    findings.extend(read.unread.into_iter().map(|field| Finding {
        line: tree.line(&field),
        field,
        text: "unknown field, or one that nothing here depends on".to_owned(),
    }));
    match read.value {
        Some(value) if findings.is_empty() => Ok(value),
        _ => Err(findings),
    }
}

/// The line of a field, or of the nearest thing around it that the text has.
pub fn line(text: &str, path: &str) -> Option<u64> {
    Tree::parse(text, Booleans::TrueAndFalse).ok()?.0.line(path)
}

/// A document with its lines.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree(Node);

/// What was read at a path.
pub(crate) struct Read<T> {
    /// Without what is wrong, if that can be left out.
    pub(crate) value: Option<T>,
    pub(crate) faults: Vec<Finding>,
    /// Fields that nobody asked for.
    unread: Vec<String>,
}

impl Tree {
    /// Reads one document, with the keys that it has twice.
    pub(crate) fn parse(text: &str, booleans: Booleans) -> Result<(Self, Vec<Finding>), Finding> {
        let (node, findings) = Node::parse(text, booleans)?;
        Ok((Self(node), findings))
    }

    pub(crate) fn line(&self, path: &str) -> Option<u64> {
        self.0.line_of(path)
    }

    /// Whether the text has something at a path.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.0.find(path).is_some()
    }

    /// The text at a path.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        match &self.0.find(path)?.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The texts below a path by their keys, with the lines of these.
    pub(crate) fn texts(&self, path: &str) -> Vec<(&str, u64, &str)> {
        let entries = match self.0.find(path).map(|node| &node.value) {
            Some(Value::Map(entries)) => &entries[..],
            _ => &[],
        };
        let texts = entries.iter().filter_map(|(key, node)| match &node.value {
            Value::Text(text) => Some((&key.name[..], key.line, &text[..])),
            _ => None,
        });
        texts.collect()
    }

    /// Gives every line a new number.
    pub(crate) fn renumber(&mut self, number: impl Fn(u64) -> u64) {
        self.0.renumber(&number);
    }

    /// Reads what is at a path. What is wrong is left out, and the rest read again, until nothing more is found.
    pub(crate) fn read<'t, S: DeserializeSeed<'t>>(
        &'t self,
        path: &str,
        seed: impl Fn() -> S,
    ) -> Read<S::Value> {
        const NOTHING: &Node = &Node {
            line: 0,
            value: Value::Null,
        };
        let node = self.0.find(path).unwrap_or(NOTHING);
        let line = self.line(path).unwrap_or(node.line);
        let (mut wrong, mut faults): (Vec<String>, Vec<Finding>) = (Vec::new(), Vec::new());
        loop {
            let attempt = Attempt {
                wrong: &wrong,
                ..Attempt::default()
            };
            let reader = Reader {
                node,
                line,
                path: path.to_owned(),
                attempt: &attempt,
            };
            let error = match seed().deserialize(reader) {
                Ok(value) => {
                    return Read {
                        value: Some(value),
                        faults,
                        unread: attempt.unread.into_inner(),
                    };
                }
                Err(error) => error.to_string(),
            };
            let fault = attempt.fault.into_inner().unwrap_or_else(|| Finding {
                line: Some(line),
                field: path.to_owned(),
                text: error,
            });
            let is_new = !wrong.contains(&fault.field);
            let place = fault.field.clone();
            // What lacks a field because its value is wrong is not a fault of its own.
            if !wrong.iter().any(|wrong| is_at_or_below(wrong, &place)) {
                faults.push(fault);
            }
            if !is_new || place == path || faults.len() >= MOST_FAULTS {
                return Read {
                    value: None,
                    faults,
                    unread: Vec::new(),
                };
            }
            wrong.push(place);
        }
    }
}

/// Whether a path is the other one or leads to something in it.
pub(crate) fn is_at_or_below(path: &str, other: &str) -> bool {
    let rest = path.strip_prefix(other);
    other.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The path of what a field is in.
pub(crate) fn parent(path: &str) -> &str {
    path.rfind(['.', '[']).map_or("", |end| &path[..end])
}

/// `, did you mean ...?` if a known name is close, else all of them.
pub fn suggest<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let distance =
        |name: &str| strsim::damerau_levenshtein(&found.to_lowercase(), &name.to_lowercase());
    let close = (found.chars().count() / 3).max(2);
    let nearest = known.iter().map(|name| (distance(name), *name)).min();
    match nearest {
        Some((far, name)) if far <= close => format!(", did you mean `{name}`?"),
        Some(_) if known.len() <= 16 => format!("; known are {}", known.join(", ")),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
