//! The subset of JSONPath that definitions use: fields, indexes, `[*]`, unions and filters with one comparison.

use serde_json::Value;

/// A path such as `.status.conditions[?(@.type=="Ready")].status`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct JsonPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    /// Counted from the end when negative.
    Index(i64),
    All,
    /// The paths are tried in this order.
    Union(Vec<JsonPath>),
    Where {
        path: JsonPath,
        equal: bool,
        value: Value,
    },
}

/// Not a path, or an unsupported part of JSONPath.
#[derive(Debug, PartialEq)]
pub(super) struct UnsupportedPath;

impl JsonPath {
    pub(super) fn parse(text: &str) -> Result<Self, UnsupportedPath> {
        if !text.starts_with(['.', '[']) {
            return Err(UnsupportedPath);
        }
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            rest = if let Some(after) = rest.strip_prefix('[') {
                let end = closing_bracket(after).ok_or(UnsupportedPath)?;
                steps.extend(bracket(&after[..end])?);
                &after[end + 1..]
            } else {
                let after = rest.strip_prefix('.').ok_or(UnsupportedPath)?;
                let (name, rest) = field(after);
                if name == "*" {
                    steps.push(Step::All);
                } else if !name.is_empty() {
                    steps.push(Step::Field(name));
                } else if !rest.starts_with('[') {
                    return Err(UnsupportedPath);
                }
                rest
            };
        }
        Ok(Self(steps))
    }

    /// The first value that the path leads to.
    pub(super) fn first<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        walk(&self.0, value)
    }
}

fn walk<'a>(steps: &[Step], value: &'a Value) -> Option<&'a Value> {
    let Some((step, rest)) = steps.split_first() else {
        return Some(value);
    };
    match step {
        Step::Field(name) => walk(rest, value.get(name)?),
        Step::Index(index) => {
            let list = value.as_array()?;
            let length = i64::try_from(list.len()).ok()?;
            let index = if *index < 0 { length + index } else { *index };
            walk(rest, list.get(usize::try_from(index).ok()?)?)
        }
        Step::All => members(value)
            .into_iter()
            .find_map(|member| walk(rest, member)),
        Step::Union(paths) => paths.iter().find_map(|path| {
            let found = path.first(value)?;
            walk(rest, found)
        }),
        Step::Where {
            path,
            equal,
            value: wanted,
        } => members(value)
            .into_iter()
            .filter(|member| {
                path.first(member)
                    .is_some_and(|found| (found == wanted) == *equal)
            })
            .find_map(|member| walk(rest, member)),
    }
}

fn members(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(list) => list.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    }
}

/// A name up to the next dot or bracket; a backslash takes the next character as it is.
fn field(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            '.' | '[' => return (name, &text[at..]),
            _ => name.push(character),
        }
    }
    (name, "")
}

/// Where the bracket ends; brackets inside quotes and inner brackets do not count.
fn closing_bracket(text: &str) -> Option<usize> {
    let mut depth = 0;
    let mut quote = None;
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn bracket(inside: &str) -> Result<Vec<Step>, UnsupportedPath> {
    if inside.contains(',') && !inside.starts_with('?') {
        let parts = inside.split(',').map(|part| bracket(part.trim()));
        let paths = parts
            .map(|steps| steps.map(JsonPath))
            .collect::<Result<_, _>>()?;
        return Ok(vec![Step::Union(paths)]);
    }
    if inside == "*" {
        return Ok(vec![Step::All]);
    }
    // As Kubernetes has it: the same as fields after a dot, so that a dot within a name wants a backslash here, too.
    if let Some(fields) = quoted(inside) {
        return Ok(JsonPath::parse(&format!(".{fields}"))?.0);
    }
    if let Some(filter) = inside
        .strip_prefix("?(")
        .and_then(|rest| rest.strip_suffix(')'))
    {
        return Ok(vec![condition(filter)?]);
    }
    let index = inside.parse().map_err(|_| UnsupportedPath)?;
    Ok(vec![Step::Index(index)])
}

fn condition(filter: &str) -> Result<Step, UnsupportedPath> {
    let (left, right, equal) = match (filter.split_once("=="), filter.split_once("!=")) {
        (Some((left, right)), _) => (left, right, true),
        (None, Some((left, right))) => (left, right, false),
        (None, None) => return Err(UnsupportedPath),
    };
    let path = left.trim().strip_prefix('@').ok_or(UnsupportedPath)?;
    let literal = right.trim();
    let value = match quoted(literal) {
        Some(text) => Value::from(text),
        None => serde_json::from_str(literal).map_err(|_| UnsupportedPath)?,
    };
    let path = JsonPath::parse(path)?;
    Ok(Step::Where { path, equal, value })
}

fn quoted(text: &str) -> Option<&str> {
    ['"', '\'']
        .into_iter()
        .find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_path_leads_to_its_first_value() {
        let object = json!({
            "metadata": {"labels": {"a.b/c": "dotted"}},
            "spec": {"list": [{"name": "a", "n": 1}, {"name": "b", "n": 2}], "map": {"k": "v"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "x]y"}]},
        });
        for (path, want) in [
            (".spec.map.k", Some(json!("v"))),
            (".spec.list[1].name", Some(json!("b"))),
            (".spec.list[-1].name", Some(json!("b"))),
            (".spec.list[*].name", Some(json!("a"))),
            (".spec.list[9].name", None),
            (".spec.nothing", None),
            (".metadata.labels.a\\.b/c", Some(json!("dotted"))),
            (".metadata.labels['a\\.b/c']", Some(json!("dotted"))),
            (".metadata.labels['a.b/c']", None),
            (".spec['map.k']", Some(json!("v"))),
            (".spec['map.none','map.k', 'list']", Some(json!("v"))),
            (".spec['list','map']['none','k']", Some(json!("v"))),
            (".spec.list[7,1].name", Some(json!("b"))),
            (".spec['no','none'].name", None),
            (
                ".status.conditions[?(@.type==\"Ready\")].status",
                Some(json!("True")),
            ),
            (".status.conditions[?(@.type=='Nope')].status", None),
            (
                ".status.conditions[?(@.status==\"x]y\")].type",
                Some(json!("Other")),
            ),
            (".spec.list[?(@.n!=1)].name", Some(json!("b"))),
        ] {
            let parsed = JsonPath::parse(path).expect(path);
            assert_eq!(parsed.first(&object), want.as_ref(), "{path}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "x",
            "spec.a",
            ".a[",
            ".a[?(",
            ".a[?(@.b)]",
            ".a[x]",
            ".a['b',x]",
            ".a..b",
        ] {
            assert_eq!(JsonPath::parse(text), Err(UnsupportedPath), "{text}");
        }
    }
}
