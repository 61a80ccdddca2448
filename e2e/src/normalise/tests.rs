use serde_json::json;

use super::*;
use crate::transcript::differences;

const ONE: &str = "8f9a7c53-96e2-4f7c-8f6a-000000000001";
const TWO: &str = "8f9a7c53-96e2-4f7c-8f6a-000000000002";
const THREE: &str = "8f9a7c53-96e2-4f7c-8f6a-000000000003";

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().unwrap()
}

fn step(sent: Value, answer: Value) -> Step {
    Step {
        request: "POST /x".to_owned(),
        sent,
        answer,
        quiet: false,
    }
}

fn normal(steps: Vec<Step>) -> Transcript {
    normalise(&Transcript { steps }, now())
}

/// Whether two servers with these answers count as equal.
fn equal(left: &[Value], right: &[Value]) -> bool {
    let steps = |answers: &[Value]| {
        answers
            .iter()
            .map(|answer| step(Value::Null, answer.clone()))
            .collect()
    };
    differences(&normal(steps(left)), &normal(steps(right))).is_empty()
}

fn object(uid: &str, version: &str) -> Value {
    json!({"metadata": {"name": "a", "uid": uid, "resourceVersion": version}})
}

#[test]
fn values_that_a_server_chooses_may_differ() {
    // (case, one server's answers, the other's)
    for (case, left, right) in [
        ("uid", vec![object(ONE, "5")], vec![object(TWO, "5")]),
        ("version", vec![object(ONE, "5")], vec![object(ONE, "7001")]),
        (
            "versions in the same order",
            vec![object(ONE, "5"), object(ONE, "6"), object(ONE, "5")],
            vec![object(ONE, "80"), object(ONE, "99"), object(ONE, "80")],
        ),
        (
            "a list's version",
            vec![
                json!({"kind": "PodList", "metadata": {"resourceVersion": "5"}}),
                object(ONE, "5"),
            ],
            vec![
                json!({"kind": "PodList", "metadata": {"resourceVersion": "8"}}),
                object(ONE, "7"),
            ],
        ),
        (
            "time",
            vec![json!({"at": "2026-01-02T03:04:05Z", "and": "2026-01-02T03:00:00.123456Z"})],
            vec![json!({"at": "2026-01-02T03:05:06Z", "and": "2026-01-02T03:04:00.654321Z"})],
        ),
        (
            "generated name",
            vec![
                json!({"metadata": {"generateName": "a-", "name": "a-bcdfg"}, "message": "pods a-bcdfg"}),
            ],
            vec![
                json!({"metadata": {"generateName": "a-", "name": "a-x2456"}, "message": "pods a-x2456"}),
            ],
        ),
        (
            "versions in a message",
            vec![
                object(ONE, "5"),
                json!({"message": "the ResourceVersion in the precondition (1) is not 5"}),
            ],
            vec![
                object(ONE, "9"),
                json!({"message": "the ResourceVersion in the precondition (1) is not 9"}),
            ],
        ),
        (
            "the oldest version",
            vec![json!({"message": "too old resource version: 1 (764)"})],
            vec![json!({"message": "too old resource version: 1 (2)"})],
        ),
        (
            "the newest version",
            vec![json!({"message": "Timeout: Too large resource version: 999, current: 12"})],
            vec![json!({"message": "Timeout: Too large resource version: 999, current: 7"})],
        ),
        (
            "young ages",
            vec![json!({"cells": ["p", "5s"]})],
            vec![json!({"cells": ["p", "2m3s"]})],
        ),
        (
            "an allocated address",
            vec![json!({"spec": {"clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"]}})],
            vec![json!({"spec": {"clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"]}})],
        ),
        (
            "managers of one second or of two",
            vec![json!({"managedFields": [
                {"manager": "a", "operation": "Update", "time": "2026-01-02T03:04:05Z"},
                {"manager": "b", "operation": "Update", "time": "2026-01-02T03:04:05Z"}]})],
            vec![json!({"managedFields": [
                {"manager": "b", "operation": "Update", "time": "2026-01-02T03:04:05Z"},
                {"manager": "a", "operation": "Update", "time": "2026-01-02T03:04:06Z"}]})],
        ),
        (
            "a quoted object",
            vec![
                json!({"message": "patch: Invalid value: \"{\\\"a\\\":1,\\\"b\\\":2}\": unknown"}),
            ],
            vec![
                json!({"message": "patch: Invalid value: \"{\\\"b\\\":2,\\\"a\\\":1}\": unknown"}),
            ],
        ),
        (
            "conflicting managers",
            vec![
                json!({"causes": [{"reason": "FieldManagerConflict", "field": "a"}, {"reason": "FieldManagerConflict", "field": "b"}]}),
            ],
            vec![
                json!({"causes": [{"reason": "FieldManagerConflict", "field": "b"}, {"reason": "FieldManagerConflict", "field": "a"}]}),
            ],
        ),
        (
            "a cause that is repeated",
            vec![json!({"causes": [{"field": "a"}, {"field": "b"}, {"field": "a"}]})],
            vec![json!({"causes": [{"field": "a"}, {"field": "b"}]})],
        ),
        (
            "what Go's decoder says",
            vec![
                json!({"message": "Pod in version \"v1\" cannot be handled as a Pod: json: cannot unmarshal x"}),
            ],
            vec![
                json!({"message": "Pod in version \"v1\" cannot be handled as a Pod: json: invalid type"}),
            ],
        ),
        (
            "columns as wide as their ages",
            vec![json!({"stdout": ["p    5s    x"]})],
            vec![json!({"stdout": ["p    15s   x"]})],
        ),
    ] {
        assert!(equal(&left, &right), "{case}");
    }
}

#[test]
fn everything_else_still_differs() {
    for (case, left, right) in [
        (
            "one uid, two uids",
            vec![object(ONE, "5"), object(ONE, "6")],
            vec![object(ONE, "5"), object(TWO, "6")],
        ),
        (
            "uids that change places",
            vec![json!([ONE, TWO, ONE])],
            vec![json!([ONE, TWO, TWO])],
        ),
        (
            "a write or none",
            vec![object(ONE, "5"), object(ONE, "5")],
            vec![object(ONE, "5"), object(ONE, "6")],
        ),
        (
            "versions that fall",
            vec![object(ONE, "5"), object(ONE, "6")],
            vec![object(ONE, "6"), object(ONE, "5")],
        ),
        ("no version", vec![object(ONE, "5")], vec![object(ONE, "")]),
        (
            "a list without a version",
            vec![json!({"metadata": {"resourceVersion": "5"}})],
            vec![json!({"metadata": {"resourceVersion": ""}})],
        ),
        (
            "a time long ago",
            vec![json!("2026-01-02T03:04:05Z")],
            vec![json!("2001-01-02T03:04:05Z")],
        ),
        (
            "decimals",
            vec![json!("2026-01-02T03:04:05Z")],
            vec![json!("2026-01-02T03:04:05.000001Z")],
        ),
        (
            "no time",
            vec![json!("2026-01-02T03:04:05Z")],
            vec![Value::Null],
        ),
        (
            "a suffix of other letters",
            vec![json!({"metadata": {"generateName": "a-", "name": "a-bcdfg"}})],
            vec![json!({"metadata": {"generateName": "a-", "name": "a-aaaaa"}})],
        ),
        (
            "a longer suffix",
            vec![json!({"metadata": {"generateName": "a-", "name": "a-bcdfg"}})],
            vec![json!({"metadata": {"generateName": "a-", "name": "a-bcdfgh"}})],
        ),
        (
            "numbers that are no versions",
            vec![object(ONE, "10"), json!({"message": "must be at most 10"})],
            vec![object(ONE, "11"), json!({"message": "must be at most 11"})],
        ),
        (
            "old ages",
            vec![json!({"cells": ["5d"]})],
            vec![json!({"cells": ["6d"]})],
        ),
        (
            "an age or none",
            vec![json!({"cells": ["5s"]})],
            vec![json!({"cells": ["<unknown>"]})],
        ),
        (
            "an address that was asked for",
            vec![json!({"clusterIP": "None"})],
            vec![json!({"clusterIP": "10.0.0.1"})],
        ),
        (
            "managers in a forbidden order",
            vec![
                json!({"managedFields": [{"manager": "a", "operation": "Apply"}, {"manager": "b", "operation": "Update"}]}),
            ],
            vec![
                json!({"managedFields": [{"manager": "b", "operation": "Update"}, {"manager": "a", "operation": "Apply"}]}),
            ],
        ),
        (
            "strict decoding",
            vec![
                json!({"message": "Pod cannot be handled as a Pod: strict decoding error: unknown field \"a\""}),
            ],
            vec![
                json!({"message": "Pod cannot be handled as a Pod: strict decoding error: unknown field \"b\""}),
            ],
        ),
        (
            "what follows a quoted object",
            vec![json!({"message": "patch: Invalid value: \"{}\": unknown field \"a\""})],
            vec![json!({"message": "patch: Invalid value: \"{}\": unknown field \"b\""})],
        ),
        (
            "the order of other causes",
            vec![json!({"causes": [{"field": "a"}, {"field": "b"}]})],
            vec![json!({"causes": [{"field": "b"}, {"field": "a"}]})],
        ),
        (
            "printed quantities",
            vec![json!({"stdout": ["cpu  100m"]})],
            vec![json!({"stdout": ["cpu  200m"]})],
        ),
        (
            "printed seconds",
            vec![json!({"stdout": ["for 300s"]})],
            vec![json!({"stdout": ["for 200s"]})],
        ),
    ] {
        assert!(!equal(&left, &right), "{case}");
    }
}

#[test]
fn values_from_the_test_are_kept() {
    let kept = normal(vec![step(
        json!({"metadata": {"uid": ONE}}),
        object(ONE, "5"),
    )]);
    assert_eq!(kept.steps[0].answer["metadata"]["uid"], json!(ONE));
    // One that an answer showed before is the server's.
    let known = normal(vec![
        step(Value::Null, object(TWO, "5")),
        step(json!({"uid": TWO}), object(TWO, "5")),
    ]);
    assert_eq!(known.steps[1].answer["metadata"]["uid"], json!("<uid 1>"));
}

#[test]
fn quiet_steps_define_labels_and_are_left_out() {
    let mut quiet = step(Value::Null, object(THREE, "5"));
    quiet.quiet = true;
    let normal = normal(vec![quiet, step(json!({"uid": THREE}), object(THREE, "5"))]);
    assert_eq!(normal.steps.len(), 1);
    assert_eq!(normal.steps[0].answer["metadata"]["uid"], json!("<uid 1>"));
}

#[test]
fn requests_name_versions_and_tokens_by_what_they_mean() {
    let mut listed = step(Value::Null, json!({"metadata": {"resourceVersion": "42"}}));
    listed.request = "GET /x?resourceVersion=42".to_owned();
    let mut own = step(Value::Null, Value::Null);
    own.request =
        "GET /x?resourceVersion=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiJhIn0"
            .to_owned();
    let normal = normal(vec![listed, own]);
    assert_eq!(normal.steps[0].request, "GET /x?resourceVersion=<version>");
    assert_eq!(
        normal.steps[1].request,
        r#"GET /x?resourceVersion=1&continue=<continue {"v":"meta.k8s.io/v1","rv":"<version>","start":"a"}>"#
    );
}
