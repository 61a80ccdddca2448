//! The requests and answers of a test, and the differences between two such records.

use serde_json::Value;

/// The record of one behaviour on one server.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Transcript {
    pub steps: Vec<Step>,
}

/// One request with its answer, or a fact worked out from several.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// `POST /api/v1/...`, a kubectl command line, or the name of a fact.
    pub request: String,
    /// What was sent, for the report and for telling our own values from the server's.
    pub sent: Value,
    /// Status, headers and body, whatever is worth comparing.
    pub answer: Value,
    /// Only a preparation: it tells which values are the server's, and is not compared.
    pub quiet: bool,
}

/// One place where two answers differ. A side without the place is `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct Delta {
    /// The place of the step among those compared.
    pub step: usize,
    pub request: String,
    /// A JSON pointer into the answer.
    pub path: String,
    pub left: Option<Value>,
    pub right: Option<Value>,
}

/// Everything in which the two differ, step by step.
pub fn differences(left: &Transcript, right: &Transcript) -> Vec<Delta> {
    let mut deltas = Vec::new();
    let steps = left.steps.len().max(right.steps.len());
    for index in 0..steps {
        match (left.steps.get(index), right.steps.get(index)) {
            (Some(l), Some(r)) => {
                let mut report = |path: &str, left: Option<&Value>, right: Option<&Value>| {
                    deltas.push(Delta {
                        step: index,
                        request: l.request.clone(),
                        path: path.to_owned(),
                        left: left.cloned(),
                        right: right.cloned(),
                    });
                };
                if l.request != r.request {
                    report(
                        "/request",
                        Some(&Value::from(l.request.as_str())),
                        Some(&Value::from(r.request.as_str())),
                    );
                }
                compare("", &l.answer, &r.answer, &mut report);
            }
            (l, r) => deltas.push(Delta {
                step: index,
                request: l.or(r).map(|step| step.request.clone()).unwrap_or_default(),
                path: String::new(),
                left: l.map(|step| step.answer.clone()),
                right: r.map(|step| step.answer.clone()),
            }),
        }
    }
    deltas
}

fn compare(
    path: &str,
    left: &Value,
    right: &Value,
    report: &mut impl FnMut(&str, Option<&Value>, Option<&Value>),
) {
    match (left, right) {
        (Value::Object(l), Value::Object(r)) => {
            for (key, value) in l {
                let path = format!("{path}/{}", escape(key));
                match r.get(key) {
                    Some(other) => compare(&path, value, other, report),
                    None => report(&path, Some(value), None),
                }
            }
            for (key, value) in r.iter().filter(|(key, _)| !l.contains_key(*key)) {
                report(&format!("{path}/{}", escape(key)), None, Some(value));
            }
        }
        (Value::Array(l), Value::Array(r)) => {
            for index in 0..l.len().max(r.len()) {
                let path = format!("{path}/{index}");
                match (l.get(index), r.get(index)) {
                    (Some(l), Some(r)) => compare(&path, l, r, report),
                    (l, r) => report(&path, l, r),
                }
            }
        }
        (l, r) if l == r => (),
        (l, r) => report(path, Some(l), Some(r)),
    }
}

fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn transcript(answers: &[Value]) -> Transcript {
        let steps = answers.iter().enumerate().map(|(index, answer)| Step {
            request: format!("GET /{index}"),
            sent: Value::Null,
            answer: answer.clone(),
            quiet: false,
        });
        Transcript {
            steps: steps.collect(),
        }
    }

    #[test]
    fn every_kind_of_difference_is_named() {
        // (case, left, right, paths that differ)
        for (case, left, right, paths) in [
            (
                "equal",
                json!({"a": [1, {"b": 2}]}),
                json!({"a": [1, {"b": 2}]}),
                vec![],
            ),
            (
                "key order",
                json!({"a": 1, "b": 2}),
                json!({"b": 2, "a": 1}),
                vec![],
            ),
            ("value", json!({"a": 1}), json!({"a": 2}), vec!["/a"]),
            ("type", json!({"a": 1}), json!({"a": "1"}), vec!["/a"]),
            (
                "null is not absent",
                json!({"a": null}),
                json!({}),
                vec!["/a"],
            ),
            ("only right", json!({}), json!({"a": {}}), vec!["/a"]),
            (
                "element order",
                json!([1, 2]),
                json!([2, 1]),
                vec!["/0", "/1"],
            ),
            (
                "more elements",
                json!([1]),
                json!([1, 2, 3]),
                vec!["/1", "/2"],
            ),
            (
                "slash in a key",
                json!({"a/b": 1}),
                json!({"a/b": 2}),
                vec!["/a~1b"],
            ),
        ] {
            let deltas = differences(&transcript(&[left]), &transcript(&[right]));
            let found: Vec<&str> = deltas.iter().map(|delta| delta.path.as_str()).collect();
            assert_eq!(found, paths, "{case}");
        }
    }

    #[test]
    fn a_missing_step_is_a_difference() {
        let deltas = differences(&transcript(&[json!(1), json!(2)]), &transcript(&[json!(1)]));
        assert_eq!(deltas.len(), 1);
        assert_eq!(deltas[0].request, "GET /1");
        assert_eq!(
            (&deltas[0].left, &deltas[0].right),
            (&Some(json!(2)), &None)
        );
    }
}
