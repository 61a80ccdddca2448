//! Bodies and the answers that kube-apiserver v1.36.4 gave to them.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn decode(
    kind: (&str, &str),
    content_type: Option<&str>,
    text: &str,
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let schema = Schema::builtin(kind.0, kind.1).unwrap();
    let expected = Expected {
        api_version: kind.0,
        kind: kind.1,
        schema: &schema,
        custom: false,
    };
    body(content_type, text.as_bytes(), &expected, validation)
}

fn widget_schema() -> Schema {
    Schema::structural(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "a": {"type": "string"},
            "embedded": {"type": "object", "x-kubernetes-embedded-resource": true},
        }},
    }}))
}

fn decode_widget(text: &str, validation: FieldValidation) -> Result<Decoded, Status> {
    let schema = widget_schema();
    let expected = Expected {
        api_version: "t.io/v1",
        kind: "Widget",
        schema: &schema,
        custom: true,
    };
    body(None, text.as_bytes(), &expected, validation)
}

const POD: (&str, &str) = ("v1", "Pod");
const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");

#[test]
fn a_body_need_not_name_its_kind() {
    let text = r#"{"metadata":{"name":"x"},"data":{"a":"1"}}"#;
    let decoded = decode(CONFIG_MAP, None, text, FieldValidation::Strict).unwrap();
    assert_eq!(
        decoded.object.to_string(),
        r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x"},"data":{"a":"1"}}"#
    );
    assert_eq!(
        decode(
            POD,
            Some("application/json; charset=utf-8"),
            "null",
            FieldValidation::Strict
        )
        .unwrap()
        .object,
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": {}, "spec": {"containers": null}, "status": {}})
    );
}

#[test]
fn bodies_that_are_not_objects_of_the_kind() {
    for (text, want) in [
        (
            r#"{"a":"#,
            "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: unexpected end of JSON input ({\"a\":)",
        ),
        (
            "",
            "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)",
        ),
        (
            "[]",
            "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" } (5b5d)",
        ),
        (
            r#"{"kind":5,"apiVersion":"v1","metadata":{}}"#,
            "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string ({\"kind\":5,\"apiVersion\":\"v1\",\"m ...)",
        ),
        (
            r#"{"kind":"Foo","apiVersion":"v1"}"#,
            "Foo in version \"v1\" cannot be handled as a Pod: no kind \"Foo\" is registered for version \"v1\" in scheme \"pkg/runtime/scheme.go:111\"",
        ),
        (
            r#"{"kind":"Pod","apiVersion":"v9"}"#,
            "Pod in version \"v9\" cannot be handled as a Pod: no kind \"Pod\" is registered for version \"v9\" in scheme \"pkg/runtime/scheme.go:111\"",
        ),
        (
            r#"{"kind":"Deployment","apiVersion":"apps/v1"}"#,
            "Deployment in version \"v1\" cannot be handled as a Pod: converting (apps/v1.Deployment) to (Pod): unknown conversion",
        ),
        (
            r#"{"spec":{"containers":"x"}}"#,
            "Pod in version \"v1\" cannot be handled as a Pod: json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
    ] {
        let status = decode(POD, None, text, FieldValidation::Ignore).unwrap_err();
        assert_eq!(
            (status.code, status.message.as_str()),
            (400, want),
            "{text}"
        );
    }
    for content_type in ["text/plain", "application/xml", "x"] {
        let status = decode(POD, Some(content_type), "{}", FieldValidation::Ignore).unwrap_err();
        assert_eq!(status.code, 415, "{content_type}");
    }
    let options = decode(
        ("v1", "DeleteOptions"),
        None,
        r#"{"kind":"DeleteOptions","apiVersion":"apps/v1","gracePeriodSeconds":0}"#,
        FieldValidation::Ignore,
    );
    assert_eq!(options.unwrap().object["gracePeriodSeconds"], 0);
}

#[test]
fn field_validation() {
    let text = r#"{"metadata":{"name":"x","bar":1},"foo":1,"data":{"a":"1","a":"2"},"foo":2}"#;
    let status = decode(CONFIG_MAP, None, text, FieldValidation::Strict).unwrap_err();
    assert_eq!(
        (status.code, status.message.as_str()),
        (
            400,
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"metadata.bar\", unknown field \"foo\", duplicate field \"data.a\""
        )
    );
    let decoded = decode(CONFIG_MAP, None, text, FieldValidation::Warn).unwrap();
    assert_eq!(
        decoded.warnings,
        [
            "unknown field \"metadata.bar\"",
            "unknown field \"foo\"",
            "duplicate field \"data.a\""
        ]
    );
    assert_eq!(decoded.object["data"], json!({"a": "2"}));
    let silent = decode(CONFIG_MAP, None, text, FieldValidation::Ignore).unwrap();
    assert_eq!((silent.object, silent.warnings), (decoded.object, vec![]));
    // A YAML document is sorted first.
    let yaml = "metadata: {name: x, bar: 1}\nfoo: 1\n";
    let status = decode(
        CONFIG_MAP,
        Some("application/yaml"),
        yaml,
        FieldValidation::Strict,
    );
    assert!(
        status
            .unwrap_err()
            .message
            .ends_with("unknown field \"foo\", unknown field \"metadata.bar\"")
    );
    let many: Vec<String> = (0..150).map(|i| format!("\"f{i}\":1")).collect();
    let many = format!("{{{}}}", many.join(","));
    let decoded = decode(CONFIG_MAP, None, &many, FieldValidation::Warn).unwrap();
    assert_eq!(decoded.warnings.len(), 100);
}

#[test]
fn custom_objects() {
    let text = r#"{"apiVersion":"t.io/v1","kind":"Widget","metadata":{"name":"w","name":"v","x":1},
        "spec":{"a":"1","zz":1,"a":"2","embedded":{"metadata":{"y":1}}},"b":1}"#;
    let status = decode_widget(text, FieldValidation::Strict).unwrap_err();
    assert_eq!(
        status.message,
        "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: duplicate field \"metadata.name\", duplicate field \"spec.a\", unknown field \"metadata.x\", unknown field \"b\", unknown field \"spec.zz\", unknown field \"spec.embedded.metadata.y\""
    );
    for (text, code, want) in [
        (
            r#"{"metadata":{"name":"w"}}"#,
            400,
            "the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing in '{\"metadata\":{\"name\":\"w\"}}' ({\"metadata\":{\"name\":\"w\"}})",
        ),
        (
            r#"{"apiVersion":"t.io/v2","kind":"Widget"}"#,
            400,
            "the API version in the data (t.io/v2) does not match the expected API version (t.io/v1)",
        ),
        (
            r#"{"apiVersion":"t.io/v1","kind":"Foo","metadata":{"name":"w"}}"#,
            422,
            "Foo.t.io \"w\" is invalid: kind: Invalid value: \"Foo\": must be Widget",
        ),
        (
            r#"{"apiVersion":"t.io/v1","kind":"Widget","metadata":{"labels":5}}"#,
            400,
            "Widget in version \"v1\" cannot be handled as a Widget: json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type map[string]string",
        ),
        (
            r#"{"apiVersion":"t.io/v1","kind":"Widget","metadata":[]}"#,
            400,
            "Widget in version \"v1\" cannot be handled as a Widget: json: cannot unmarshal array into Go value of type v1.ObjectMeta",
        ),
    ] {
        let status = decode_widget(text, FieldValidation::Warn).unwrap_err();
        assert_eq!(
            (status.code, status.message.as_str()),
            (code, want),
            "{text}"
        );
    }
    // What does not fit the schema is left to validation.
    let odd = r#"{"apiVersion":"t.io/v1","kind":"Widget","metadata":null,"spec":{"a":5}}"#;
    let decoded = decode_widget(odd, FieldValidation::Strict).unwrap();
    assert_eq!(
        decoded.object,
        json!({"apiVersion": "t.io/v1", "kind": "Widget", "metadata": {}, "spec": {"a": 5}})
    );
}

#[test]
fn applied_configurations() {
    let schema = Schema::builtin("v1", "ConfigMap").unwrap();
    let expected = Expected {
        api_version: "v1",
        kind: "ConfigMap",
        schema: &schema,
        custom: false,
    };
    let apply = |text: &str, validation| apply_body(text.as_bytes(), &expected, validation);
    for (text, want) in [
        (
            r#"{"apiVersion":"v1","kind":"Secret"}"#,
            "invalid object type: /v1, Kind=Secret",
        ),
        (
            r#"{"kind":"ConfigMap"}"#,
            "invalid object type: /, Kind=ConfigMap",
        ),
        ("", "invalid object type: /, Kind="),
        (
            "[]",
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"managedFields":[]}}"#,
            "metadata.managedFields must be nil",
        ),
    ] {
        let status = apply(text, FieldValidation::Warn).unwrap_err();
        assert_eq!(
            (status.code, status.message.as_str()),
            (400, want),
            "{text}"
        );
    }
    let twice = r#"{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"1","a":"2"}}"#;
    let decoded = apply(twice, FieldValidation::Warn).unwrap();
    assert_eq!(decoded.warnings, ["line 1: key \"a\" already set in map"]);
    assert_eq!(decoded.object["data"]["a"], "2");
    assert_eq!(apply(twice, FieldValidation::Strict).unwrap_err().code, 400);
    let yaml = "apiVersion: v1\nkind: ConfigMap\ndata: {y: \"1\"}\n";
    let decoded = apply(yaml, FieldValidation::Strict).unwrap();
    assert_eq!(decoded.object["data"], json!({"true": "1"}));
}

/// JSON that is nearly an object of the kind.
fn json_like() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z0-9.:Z-]{0,12}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        4 => proptest::sample::select(vec![
            "metadata", "spec", "status", "containers", "name", "labels", "resources", "requests", "cpu",
            "conditions", "lastTransitionTime", "managedFields", "fieldsV1", "ports", "volumes", "finalizers",
            "template", "data", "stringData",
        ]).prop_map(str::to_owned),
        1 => "[a-z$./]{0,6}",
    ];
    leaf.prop_recursive(6, 48, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((key.clone(), inner), 0..6)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_body_panics(text in "\\PC{0,60}", bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        for content_type in [None, Some("application/yaml"), Some("application/vnd.kubernetes.protobuf")] {
            let _ = decode(POD, content_type, &text, FieldValidation::Strict);
            let schema = Schema::builtin("v1", "Pod").unwrap();
            let expected = Expected { api_version: "v1", kind: "Pod", schema: &schema, custom: false };
            let _ = body(content_type, &bytes, &expected, FieldValidation::Strict);
            let _ = apply_body(&bytes, &expected, FieldValidation::Strict);
        }
        let _ = decode_widget(&text, FieldValidation::Strict);
    }

    #[test]
    fn normalising_twice_changes_nothing(object in json_like()) {
        for kind in [POD, CONFIG_MAP, ("v1", "Node"), ("apps/v1", "Deployment")] {
            if let Ok(once) = decode(kind, None, &object.to_string(), FieldValidation::Ignore) {
                let again = decode(kind, None, &once.object.to_string(), FieldValidation::Strict);
                prop_assert_eq!(again.unwrap(), once);
            }
        }
        if let Ok(once) = decode_widget(&object.to_string(), FieldValidation::Ignore) {
            let again = decode_widget(&once.object.to_string(), FieldValidation::Strict);
            prop_assert_eq!(again.unwrap(), once);
        }
    }
}
