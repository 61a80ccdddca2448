//! Answers of extenders, read as Go reads JSON: keys in any case, unknown fields ignored, `null` for any type. Any other
//! value of the wrong type makes the whole answer invalid.

use engine::model::Name;
use engine::scheduling::extender::{Answer, Response};
use serde_json::{Map, Value};

/// Why an answer is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {found}: only {wanted} or null is allowed")]
pub(super) struct WrongType {
    name: &'static str,
    found: &'static str,
    wanted: &'static str,
}

/// A part of an answer, and its name.
#[derive(Clone, Copy)]
struct Part<'a> {
    name: &'static str,
    value: &'a Value,
}

impl<'a> Part<'a> {
    fn whole(value: &'a Value) -> Self {
        let name = "the answer";
        Self { name, value }
    }

    fn wrong(self, wanted: &'static str) -> WrongType {
        let found = match self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(number) if number.is_f64() => "no whole number",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        WrongType {
            name: self.name,
            found,
            wanted,
        }
    }

    /// Empty for `null`.
    fn text(self) -> Result<&'a str, WrongType> {
        match self.value {
            Value::Null => Ok(""),
            other => other.as_str().ok_or_else(|| self.wrong("a string")),
        }
    }

    fn integer(self) -> Result<i64, WrongType> {
        let wanted = "a whole number of 64 bits";
        match self.value {
            Value::Null => Ok(0),
            other => other.as_i64().ok_or_else(|| self.wrong(wanted)),
        }
    }

    fn object(self) -> Result<Option<&'a Map<String, Value>>, WrongType> {
        match self.value {
            Value::Null => Ok(None),
            Value::Object(fields) => Ok(Some(fields)),
            _ => Err(self.wrong("an object")),
        }
    }

    /// `null` if it is missing, and the last one if it occurs more than once.
    fn field(self, name: &'static str) -> Result<Self, WrongType> {
        let mut fields = self.object()?.into_iter().flatten();
        let found = fields.rfind(|(key, _)| key.eq_ignore_ascii_case(name));
        let value = found.map_or(&Value::Null, |(_, value)| value);
        Ok(Self { name, value })
    }

    /// Every item of a list; `None` for `null`.
    fn list<T>(
        self,
        item: &'static str,
        read: impl Fn(Self) -> Result<T, WrongType>,
    ) -> Result<Option<Vec<T>>, WrongType> {
        let items = match self.value {
            Value::Null => return Ok(None),
            Value::Array(items) => items.iter(),
            _ => return Err(self.wrong("a list")),
        };
        let items = items.map(|value| read(Self { name: item, value }));
        items.collect::<Result<_, _>>().map(Some)
    }

    /// Every entry of an object whose keys are names.
    fn entries<T>(
        self,
        entry: &'static str,
        read: impl Fn(Name, Self) -> Result<T, WrongType>,
    ) -> Result<Vec<T>, WrongType> {
        let entries = self.object()?.into_iter().flatten();
        let entries = entries.map(|(key, value)| {
            let part = Self { name: entry, value };
            read(Name::from(key.as_str()), part)
        });
        entries.collect()
    }

    fn messages(self, entry: &'static str) -> Result<Vec<(Name, String)>, WrongType> {
        self.entries(entry, |node, text| Ok((node, text.text()?.to_owned())))
    }
}

/// The extender's `Error`, if any.
pub(super) fn error(answer: &Value) -> Result<Result<(), String>, WrongType> {
    Ok(match Part::whole(answer).field("Error")?.text()? {
        "" => Ok(()),
        text => Err(text.to_owned()),
    })
}

/// An extender that caches nodes answers with names; one that gets whole nodes answers with whole nodes.
pub(super) fn filtered(answer: &Value, node_cache_capable: bool) -> Result<Answer, WrongType> {
    let part = Part::whole(answer);
    let names = part.field("NodeNames")?;
    let names = names.list("an item of NodeNames", |item| item.text().map(Name::from))?;
    let whole = part.field("Nodes")?.field("items")?;
    let whole = whole.list("an item of Nodes", |node| {
        let name = node.field("metadata")?.field("name")?;
        name.text().map(Name::from)
    })?;
    let said = Response::Filter {
        nodes: names
            .filter(|_| node_cache_capable)
            .or(whole)
            .unwrap_or_default(),
        failed: part
            .field("FailedNodes")?
            .messages("an entry of FailedNodes")?,
        unresolvable: part
            .field("FailedAndUnresolvableNodes")?
            .messages("an entry of FailedAndUnresolvableNodes")?,
    };
    Ok(error(answer)?.map(|()| said))
}

pub(super) fn prioritized(answer: &Value) -> Result<Answer, WrongType> {
    let scores = Part::whole(answer).list("a score", |score| {
        let host = Name::from(score.field("Host")?.text()?);
        Ok((host, score.field("Score")?.integer()?))
    })?;
    Ok(Ok(Response::Prioritize(scores.unwrap_or_default())))
}

pub(super) fn preempted(answer: &Value) -> Result<Answer, WrongType> {
    let nodes = Part::whole(answer).field("NodeNameToMetaVictims")?;
    let entry = "an entry of NodeNameToMetaVictims";
    let nodes = nodes.entries(entry, |node, victims| {
        let pods = victims.field("Pods")?;
        let uids = pods.list("an item of Pods", |pod| {
            pod.field("UID")?.text().map(Name::from)
        })?;
        let violations = victims.field("NumPDBViolations")?.integer()?;
        let violations = usize::try_from(violations).unwrap_or(0);
        Ok((node, uids.unwrap_or_default(), violations))
    })?;
    Ok(Ok(Response::Preempt(nodes)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_of_any_case() {
        let filter = |nodes: &[&str], failed: &[(&str, &str)]| Response::Filter {
            nodes: nodes.iter().map(|it| Name::from(*it)).collect(),
            failed: failed
                .iter()
                .map(|(n, t)| (Name::from(*n), (*t).to_owned()))
                .collect(),
            unresolvable: vec![],
        };
        for (case, capable, answer, want) in [
            (
                "names",
                true,
                json!({"NodeNames": ["a"], "FailedNodes": {"b": "no"}, "Error": ""}),
                Ok(filter(&["a"], &[("b", "no")])),
            ),
            (
                "whole nodes, lower case",
                false,
                json!({"nodes": {"items": [{"metadata": {"name": "a"}}]}, "nodenames": null}),
                Ok(filter(&["a"], &[])),
            ),
            (
                "names from one that was shown whole nodes",
                false,
                json!({"NodeNames": ["b"], "Nodes": {"items": [{"metadata": {"name": "a"}}]}}),
                Ok(filter(&["a"], &[])),
            ),
            (
                "whole nodes from one that was shown names",
                true,
                json!({"Nodes": {"items": [{"metadata": {"name": "a"}}]}}),
                Ok(filter(&["a"], &[])),
            ),
            (
                "the same twice",
                true,
                json!({"NodeNames": ["a"], "nodeNames": ["b"]}),
                Ok(filter(&["b"], &[])),
            ),
            ("nothing", true, json!({}), Ok(filter(&[], &[]))),
            (
                "an error",
                true,
                json!({"error": "broken"}),
                Err("broken".to_owned()),
            ),
        ] {
            assert_eq!(filtered(&answer, capable), Ok(want), "{case}");
        }
        assert_eq!(
            prioritized(&json!([{"Host": "a", "Score": 7}, {"host": "b", "score": 1}])),
            Ok(Ok(Response::Prioritize(vec![
                ("a".into(), 7),
                ("b".into(), 1)
            ])))
        );
        let victims = json!({"NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "u"}], "NumPDBViolations": 2}}});
        assert_eq!(
            preempted(&victims),
            Ok(Ok(Response::Preempt(vec![(
                "n".into(),
                vec!["u".into()],
                2
            )])))
        );
    }

    #[test]
    fn null_is_empty_and_unknown_fields_are_ignored() {
        let empty = Response::Filter {
            nodes: vec![],
            failed: vec![],
            unresolvable: vec![],
        };
        for answer in [
            json!(null),
            json!({"NodeNames": null, "Nodes": null, "FailedNodes": null, "Error": null}),
            json!({"Nodes": {"items": null}, "more": [1]}),
        ] {
            assert_eq!(filtered(&answer, true), Ok(Ok(empty.clone())), "{answer}");
        }
        assert_eq!(
            prioritized(&json!([null, {"Host": "a", "Score": null}])),
            Ok(Ok(Response::Prioritize(vec![
                ("".into(), 0),
                ("a".into(), 0)
            ])))
        );
        assert_eq!(
            prioritized(&json!(null)),
            Ok(Ok(Response::Prioritize(vec![])))
        );
        let victims = json!({"NodeNameToMetaVictims": {"n": null}});
        assert_eq!(
            preempted(&victims),
            Ok(Ok(Response::Preempt(vec![("n".into(), vec![], 0)])))
        );
        assert_eq!(error(&json!(null)), Ok(Ok(())));
    }

    #[test]
    fn an_answer_of_the_wrong_type_is_invalid() {
        type Read = fn(&Value) -> Option<WrongType>;
        let filter: Read = |answer| filtered(answer, true).err();
        let score: Read = |answer| prioritized(answer).err();
        let preempt: Read = |answer| preempted(answer).err();
        let bind: Read = |answer| error(answer).err();
        let no_object = "the answer is a string: only an object or null is allowed";
        for (read, answer, want) in [
            (filter, json!("hello"), no_object),
            (
                filter,
                json!([]),
                "the answer is a list: only an object or null is allowed",
            ),
            (
                filter,
                json!(42),
                "the answer is a number: only an object or null is allowed",
            ),
            (
                filter,
                json!({"nodenames": "abc"}),
                "NodeNames is a string: only a list or null is allowed",
            ),
            (
                filter,
                json!({"NodeNames": ["a", 7]}),
                "an item of NodeNames is a number: only a string or null is allowed",
            ),
            (
                filter,
                json!({"NodeNames": ["a"], "Nodes": {"items": {}}}),
                "items is an object: only a list or null is allowed",
            ),
            (
                filter,
                json!({"FailedNodes": {"a": true}, "Error": "no"}),
                "an entry of FailedNodes is a boolean: only a string or null is allowed",
            ),
            (
                filter,
                json!({"Error": {}}),
                "Error is an object: only a string or null is allowed",
            ),
            (
                score,
                json!({}),
                "the answer is an object: only a list or null is allowed",
            ),
            (
                score,
                json!([{"Host": "a", "Score": 1.5}]),
                "Score is no whole number: only a whole number of 64 bits or null is allowed",
            ),
            (
                score,
                json!([["a", 1]]),
                "a score is a list: only an object or null is allowed",
            ),
            (preempt, json!("hello"), no_object),
            (
                preempt,
                json!({"NodeNameToMetaVictims": {"n": {"Pods": [{"UID": 1}]}}}),
                "UID is a number: only a string or null is allowed",
            ),
            (bind, json!("hello"), no_object),
        ] {
            let found = read(&answer).map(|wrong| wrong.to_string());
            assert_eq!(found.as_deref(), Some(want), "{answer}");
        }
    }
}
