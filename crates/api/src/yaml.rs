//! YAML into types. Each fault has its line and its field; for an unknown name the text suggests the nearest known one.
//! One pass reports as many faults as it can find. Nothing here knows what the files mean.

mod reader;
mod tree;

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, DeserializeSeed};

use self::reader::{Attempt, Reader};
pub(crate) use self::tree::Booleans;
use self::tree::{Value, YamlNode};

/// The most faults that are reported for a file.
const MOST_FAULTS: usize = 50;

/// The text of a finding about a field that the type does not have.
pub(crate) const UNKNOWN_FIELD: &str = "unknown or unused field";

/// An error or a warning about a file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// Counted from 1.
    pub line: Option<u64>,
    /// Path of the field, such as `profiles[0].schedulerName`; empty for the whole file.
    pub field: String,
    pub text: String,
}

impl Finding {
    /// In the format of compilers: `FILE:LINE: error: FIELD: TEXT`, or without the kind or the file if it is empty.
    pub fn in_file(&self, file: &str, kind: &str) -> String {
        let place = match self.line {
            _ if file.is_empty() => return self.to_string(),
            Some(line) => format!("{file}:{line}"),
            None => file.to_owned(),
        };
        let finding = Self {
            line: None,
            ..self.clone()
        };
        match kind {
            "" => format!("{place}: {finding}"),
            kind => format!("{place}: {kind}: {finding}"),
        }
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

/// Reads one document and finds every field that the type does not have, at any depth. Only `true` and `false` are
/// booleans. The value lacks the faulty fields; there is none if the type does not allow that.
pub fn decode<T: DeserializeOwned>(text: &str) -> (Option<T>, Vec<Finding>) {
    let (tree, mut findings) = match Tree::parse(text, Booleans::TrueAndFalse) {
        Ok(parsed) => parsed,
        Err(finding) => return (None, vec![finding]),
    };
    let read = tree.read("", || PhantomData::<T>);
    findings.extend(read.faults);
    findings.extend(read.unread.into_iter().map(|field| Finding {
        line: tree.line(&field),
        field,
        text: UNKNOWN_FIELD.to_owned(),
    }));
    (read.value, findings)
}

/// Whether a document has a value at a path.
pub fn has(text: &str, path: &str) -> bool {
    Tree::parse(text, Booleans::TrueAndFalse).is_ok_and(|(tree, _)| tree.has(path))
}

/// The line of a field, or of the nearest field around it.
pub fn line(text: &str, path: &str) -> Option<u64> {
    Tree::parse(text, Booleans::TrueAndFalse).ok()?.0.line(path)
}

/// A document with its lines.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree(YamlNode);

/// The result of reading at a path.
pub(crate) struct Read<T> {
    /// Without the faulty fields, if the type allows that.
    pub(crate) value: Option<T>,
    pub(crate) faults: Vec<Finding>,
    /// Fields that the type does not have.
    unread: Vec<String>,
}

impl Tree {
    /// Reads one document; the findings are its duplicate keys.
    pub(crate) fn parse(text: &str, booleans: Booleans) -> Result<(Self, Vec<Finding>), Finding> {
        let (node, findings) = YamlNode::parse(text, booleans)?;
        Ok((Self(node), findings))
    }

    pub(crate) fn line(&self, path: &str) -> Option<u64> {
        self.0.line_of(path)
    }

    /// Whether the document has a value at a path.
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

    /// The texts below a path: key, line of the key, text.
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

    /// Reads the value at a path. After a fault it skips the faulty field and reads again, until it finds no other fault.
    pub(crate) fn read<'t, S: DeserializeSeed<'t>>(
        &'t self,
        path: &str,
        seed: impl Fn() -> S,
    ) -> Read<S::Value> {
        const NOTHING: &YamlNode = &YamlNode {
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
            // A field that is missing because its value has a fault is not another fault.
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

/// Whether a path equals the other one or is below it.
pub fn is_at_or_below(path: &str, other: &str) -> bool {
    let rest = path.strip_prefix(other);
    other.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The path of the parent of a field.
pub(crate) fn parent(path: &str) -> &str {
    path.rfind(['.', '[']).map_or("", |end| &path[..end])
}

/// `, did you mean ...?` if a known name is close; else all known names if they are few.
pub fn suggest<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let distance =
        |name: &str| strsim::damerau_levenshtein(&found.to_lowercase(), &name.to_lowercase());
    // Two names of two letters have nothing in common after two changes.
    let close = match found.chars().count() {
        0..3 => 0,
        letters => (letters / 3).max(1),
    };
    let nearest = known.iter().map(|name| (distance(name), *name)).min();
    match nearest {
        Some((far, name)) if far <= close => format!(", did you mean `{name}`?"),
        Some(_) if known.len() <= 16 => format!("; known: {}", known.join(", ")),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
