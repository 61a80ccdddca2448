//! A document as a tree in which every node has its line.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{
    DefaultMessageFormatter, DuplicateKeyPolicy, Error, Localizer, Location, Options, Spanned,
};

use super::Finding;

/// Twice as deep as any valid file. Reading uses kilobytes of stack for each level.
const DEEPEST: usize = 32;

/// A value with the line on which it begins, counted from 1.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct YamlNode {
    pub(super) line: u64,
    pub(super) value: Value,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Value {
    #[default]
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<YamlNode>),
    /// In the order of the text; a key may be there twice.
    Map(Vec<(Key, YamlNode)>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) line: u64,
}

/// Which plain texts are booleans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Booleans {
    TrueAndFalse,
    /// Also `yes`, `on`, `y` and their opposites, as Kubernetes reads its files.
    Kubernetes,
}

impl YamlNode {
    /// Reads one document. If duplicate keys are its only faults, they come with the tree.
    pub(super) fn parse(text: &str, booleans: Booleans) -> Result<(Self, Vec<Finding>), Finding> {
        match Self::parse_with(text, DuplicateKeyPolicy::Error, booleans) {
            Ok(node) if node.value == Value::Null => Err(empty()),
            Ok(node) => Ok((node, Vec::new())),
            Err(error) if matches!(error.without_snippet(), Error::DuplicateMappingKey { .. }) => {
                let node = Self::parse_with(text, DuplicateKeyPolicy::LastWins, booleans)
                    .map_err(|error| explain(&error))?;
                let mut findings = Vec::new();
                node.find_duplicates("", &mut findings);
                if findings.is_empty() {
                    return Err(explain(&error));
                }
                Ok((node, findings))
            }
            Err(error) => Err(explain(&error)),
        }
    }

    fn parse_with(
        text: &str,
        duplicate_keys: DuplicateKeyPolicy,
        booleans: Booleans,
    ) -> Result<Self, Error> {
        let strict_booleans = booleans == Booleans::TrueAndFalse;
        let options: Options = serde_saphyr::options! {
            budget: serde_saphyr::budget! { max_depth: DEEPEST },
            with_snippet: false,
            duplicate_keys: duplicate_keys,
            strict_booleans: strict_booleans,
        };
        serde_saphyr::from_str_with_options(text, options)
    }

    fn find_duplicates(&self, path: &str, findings: &mut Vec<Finding>) {
        match &self.value {
            Value::List(items) => {
                for (i, item) in items.iter().enumerate() {
                    item.find_duplicates(&format!("{path}[{i}]"), findings);
                }
            }
            Value::Map(entries) => {
                for (i, (key, value)) in entries.iter().enumerate() {
                    let path = below(path, &key.name);
                    if entries[..i].iter().any(|(known, _)| known.name == key.name) {
                        findings.push(Finding {
                            line: Some(key.line),
                            field: path.clone(),
                            text: format!("duplicate key `{}`", key.name),
                        });
                    }
                    value.find_duplicates(&path, findings);
                }
            }
            _ => {}
        }
    }

    /// The node at a path; keys may contain dots.
    pub(super) fn find(&self, path: &str) -> Option<&Self> {
        let (found, rest, _) = self.walk(path);
        rest.is_empty().then_some(found)
    }

    /// The line of a field, or of the nearest node around it.
    pub(super) fn line_of(&self, path: &str) -> Option<u64> {
        self.walk(path).2
    }

    /// Follows a path as far as possible: the last node, the rest of the path, and the line.
    fn walk<'a, 'p>(&'a self, mut path: &'p str) -> (&'a Self, &'p str, Option<u64>) {
        let (mut node, mut line) = (self, None);
        loop {
            let step = path.strip_prefix('.').unwrap_or(path);
            let next = match &node.value {
                Value::List(items) => index(step).and_then(|(index, rest)| {
                    let item = items.get(index)?;
                    Some((item, rest, item.line))
                }),
                Value::Map(entries) => entries
                    .iter()
                    .filter_map(|(key, value)| {
                        let rest = step.strip_prefix(&key.name[..])?;
                        let ends = rest.is_empty() || rest.starts_with(['.', '[']);
                        ends.then_some((value, rest, key.line))
                    })
                    .min_by_key(|(_, rest, _)| rest.len()),
                _ => None,
            };
            match next {
                Some((below, rest, found)) if !step.is_empty() => {
                    (node, path, line) = (below, rest, Some(found));
                }
                _ => return (node, step, line),
            }
        }
    }

    /// Gives every line a new number.
    pub(super) fn renumber(&mut self, number: &dyn Fn(u64) -> u64) {
        self.line = number(self.line);
        match &mut self.value {
            Value::List(items) => items.iter_mut().for_each(|item| item.renumber(number)),
            Value::Map(entries) => {
                for (key, value) in entries {
                    key.line = number(key.line);
                    value.renumber(number);
                }
            }
            _ => {}
        }
    }
}

/// The index in `[3]`, and the rest of the path.
fn index(step: &str) -> Option<(usize, &str)> {
    let (number, rest) = step.strip_prefix('[')?.split_once(']')?;
    Some((number.parse().ok()?, rest))
}

/// The path of a field.
pub(super) fn below(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

impl fmt::Display for Value {
    /// As error messages describe a value of the wrong type.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LONG: usize = 60;
        match self {
            Self::Null => f.write_str("nothing"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "the number {value}"),
            Self::Float(value) => write!(f, "the number {value}"),
            Self::Text(text) if text.chars().count() > LONG => {
                let start: String = text.chars().take(LONG).collect();
                write!(f, "the text {start:?}...")
            }
            Self::Text(text) => write!(f, "the text {text:?}"),
            Self::List(_) => f.write_str("a list"),
            Self::Map(_) => f.write_str("a map"),
        }
    }
}

fn empty() -> Finding {
    Finding {
        line: None,
        field: String::new(),
        text: "the file is empty".to_owned(),
    }
}

/// Leaves the location out of messages: a finding has it apart.
struct NoLocation;

impl Localizer for NoLocation {
    fn attach_location<'a>(&self, base: Cow<'a, str>, _: Location) -> Cow<'a, str> {
        base
    }
}

fn explain(error: &Error) -> Finding {
    let error = error.without_snippet();
    let line = error.location().map(|location| location.line());
    let text = match error {
        // The fault is in the alias's target.
        Error::AliasError { error, .. } => return explain(error),
        Error::MultipleDocuments { .. } => {
            "found several documents: only one is allowed".to_owned()
        }
        Error::Eof { .. } => return empty(),
        Error::DuplicateMappingKey { key, .. } => {
            format!("duplicate key `{}`", key.as_deref().unwrap_or_default())
        }
        Error::Budget {
            breach: BudgetBreach::Depth { depth },
            ..
        } => format!("found {depth} levels of lists and maps: only {DEEPEST} are allowed"),
        Error::Budget { .. } => "the text with its aliases expanded is too large".to_owned(),
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            "found an alias that contains itself".to_owned()
        }
        Error::NonFiniteFloat { value, .. } => {
            format!("found `{value}`: only finite numbers are allowed")
        }
        Error::Unexpected {
            expected: "string scalar",
            ..
        } => "found a list or a map as a key: only text is allowed".to_owned(),
        error => {
            let text =
                error.render_with_formatter(&DefaultMessageFormatter.with_localizer(&NoLocation));
            text.lines().next().unwrap_or_default().to_owned()
        }
    };
    Finding {
        line,
        field: String::new(),
        text,
    }
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self {
            line: spanned.referenced.line(),
            value: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        macro_rules! visits {
            ($($visit:ident($type:ty) => $value:expr),* $(,)?) => {
                $(fn $visit<E>(self, value: $type) -> Result<Value, E> { Ok($value(value)) })*
            };
        }
        impl<'de> Visitor<'de> for Any {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }

            visits!(
                visit_bool(bool) => Value::Bool,
                visit_i64(i64) => |value| Value::Integer(i128::from(value)),
                visit_u64(u64) => |value| Value::Integer(i128::from(value)),
                visit_i128(i128) => Value::Integer,
                visit_f64(f64) => Value::Float,
                visit_str(&str) => |text: &str| Value::Text(text.to_owned()),
                visit_string(String) => Value::Text,
            );

            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }

            fn visit_none<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Value::List(items))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(key) = map.next_key::<Spanned<String>>()? {
                    let line = key.referenced.line();
                    let name = key.value;
                    entries.push((Key { name, line }, map.next_value()?));
                }
                Ok(Value::Map(entries))
            }
        }
        deserializer.deserialize_any(Any)
    }
}
