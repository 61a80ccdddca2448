//! Sequences of writes, and the `managedFields` that kube-apiserver v1.36.4 recorded for them.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// One object, written again and again by different managers.
struct WriteHistory {
    schema: Schema,
    api_version: &'static str,
    kind: &'static str,
    has_status: bool,
    object: Option<Value>,
    /// Seconds since the first write.
    clock: i64,
}

impl WriteHistory {
    fn of(api_version: &'static str, kind: &'static str) -> Self {
        Self {
            schema: Schema::builtin(api_version, kind).unwrap(),
            api_version,
            kind,
            has_status: kind != "ConfigMap",
            object: None,
            clock: 0,
        }
    }

    fn widget() -> Self {
        let schema = Schema::structural(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "a": {"type": "string"},
                "m": {"type": "object", "additionalProperties": {"type": "string"}},
                "lm": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "properties": {"name": {"type": "string"}, "v": {"type": "integer"}}}},
            }},
            "status": {"type": "object", "properties": {"s": {"type": "string"}}},
        }}));
        Self {
            schema,
            api_version: "t.io/v1",
            kind: "Widget",
            has_status: true,
            object: None,
            clock: 0,
        }
    }

    fn writer<'w>(&self, manager: &'w str) -> Writer<'w> {
        let (manager, subresource) = manager.split_once('/').unwrap_or((manager, ""));
        Writer {
            manager,
            api_version: self.api_version,
            subresource,
            has_status: self.has_status,
            now: jiff::Timestamp::from_second(1_700_000_000 + self.clock).unwrap(),
        }
    }

    fn whole(&self, mut object: Value) -> Value {
        object["apiVersion"] = json!(self.api_version);
        object["kind"] = json!(self.kind);
        if object["metadata"].is_null() {
            object["metadata"] = json!({});
        }
        object
    }

    /// A create or update; `manager/subresource` writes through a subresource.
    fn write(&mut self, manager: &str, object: Value) -> &mut Self {
        let mut object = self.whole(object);
        decode::normalize(&self.schema, &mut object);
        update(
            &self.schema,
            self.object.as_ref(),
            &mut object,
            &self.writer(manager),
        );
        self.object = Some(object);
        self
    }

    fn try_apply(&mut self, manager: &str, applied: Value, force: bool) -> Result<(), Status> {
        let applied = self.whole(applied);
        let old = self.object.as_ref();
        let object = apply(&self.schema, old, applied, &self.writer(manager), force)?;
        self.object = Some(object);
        Ok(())
    }

    fn apply(&mut self, manager: &str, applied: Value) -> &mut Self {
        self.try_apply(manager, applied, false).unwrap();
        self
    }

    fn later(&mut self) -> &mut Self {
        self.clock += 1;
        self
    }

    fn field(&self, name: &str) -> &Value {
        &self.object.as_ref().unwrap()[name]
    }

    /// `manager operation @seconds/subresource` and the fields of each entry.
    fn record(&self) -> Vec<(String, Value)> {
        let entries = self.field("metadata")["managedFields"].as_array();
        let entries = entries.map(Vec::as_slice).unwrap_or_default();
        let describe = |entry: &Value| {
            let text = |field: &str| entry[field].as_str().unwrap_or_default();
            let time = match text("time").parse::<jiff::Timestamp>() {
                Ok(time) => format!("@{}", time.as_second() - 1_700_000_000),
                Err(_) => "@never".to_owned(),
            };
            let subresource = match text("subresource") {
                "" => String::new(),
                name => format!("/{name}"),
            };
            assert_eq!(entry["apiVersion"], self.api_version);
            (
                format!(
                    "{} {} {time}{subresource}",
                    text("manager"),
                    text("operation")
                ),
                entry["fieldsV1"].clone(),
            )
        };
        entries.iter().map(describe).collect()
    }
}

fn line(who: &str, fields: Value) -> (String, Value) {
    (who.to_owned(), fields)
}

#[test]
fn an_update_owns_what_it_changes() {
    let mut story = WriteHistory::of("v1", "ConfigMap");
    let labels = json!({"labels": {"l": "1"}});
    story.write(
        "c1",
        json!({"metadata": labels, "data": {"a": "1", "b": "2"}}),
    );
    let metadata = json!({"f:labels": {".": {}, "f:l": {}}});
    assert_eq!(
        story.record(),
        [line(
            "c1 Update @0",
            json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}, "f:metadata": metadata})
        )]
    );
    story.later().write(
        "c2",
        json!({"metadata": labels, "data": {"a": "9", "b": "2"}}),
    );
    assert_eq!(
        story.record(),
        [
            line(
                "c1 Update @0",
                json!({"f:data": {".": {}, "f:b": {}}, "f:metadata": metadata})
            ),
            line("c2 Update @1", json!({"f:data": {"f:a": {}}})),
        ]
    );
    // A removed field loses its owner; times do not change.
    story
        .later()
        .write("c2", json!({"metadata": labels, "data": {"a": "9"}}));
    assert_eq!(
        story.record(),
        [
            line(
                "c1 Update @0",
                json!({"f:data": {}, "f:metadata": metadata})
            ),
            line("c2 Update @1", json!({"f:data": {"f:a": {}}})),
        ]
    );
    story.later().write(
        "c1",
        json!({"metadata": labels, "data": {"a": "9", "z": "1"}}),
    );
    assert_eq!(
        story.record(),
        [
            line("c2 Update @1", json!({"f:data": {"f:a": {}}})),
            line(
                "c1 Update @3",
                json!({"f:data": {".": {}, "f:z": {}}, "f:metadata": metadata})
            ),
        ]
    );
    let before = story.record();
    story.later().write(
        "c4",
        json!({"metadata": labels, "data": {"a": "9", "z": "1"}}),
    );
    assert_eq!(story.record(), before, "nothing changed");
    story.write("c3", json!({"metadata": labels}));
    assert_eq!(
        story.record(),
        [line("c1 Update @3", json!({"f:metadata": metadata}))]
    );
}

#[test]
fn the_record_can_be_cleared_and_set() {
    let mut story = WriteHistory::of("v1", "ConfigMap");
    story.write("c1", json!({"data": {"a": "1"}}));
    for cleared in [json!([]), json!([{}])] {
        story.write(
            "c2",
            json!({"metadata": {"managedFields": cleared}, "data": {"a": "1"}}),
        );
        assert_eq!(story.record(), []);
        story.write("c3", json!({"data": {"a": "2"}}));
        assert_eq!(story.record(), [], "no record, no recording");
        let entry = json!({"manager": "set", "operation": "Update", "apiVersion": "v1", "time": "2023-11-14T22:13:20Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}}});
        story.write(
            "c4",
            json!({"metadata": {"managedFields": [entry]}, "data": {"a": "2", "b": "1"}}),
        );
        assert_eq!(
            story.record(),
            [
                line("c4 Update @0", json!({"f:data": {"f:b": {}}})),
                line("set Update @0", json!({"f:data": {"f:a": {}}})),
            ]
        );
        let broken = json!([{"manager": "x", "operation": "Foo"}]);
        let before = story.record();
        story.write(
            "c5",
            json!({"metadata": {"managedFields": broken}, "data": {"a": "2", "b": "1"}}),
        );
        assert_eq!(story.record(), before);
    }
    let mut empty = WriteHistory::of("v1", "ConfigMap");
    empty
        .write("c1", json!({}))
        .write("c2", json!({"data": {"a": "1"}}));
    assert_eq!(empty.record(), []);
}

#[test]
fn status_and_scale_are_owned_apart() {
    let mut story = WriteHistory::of("apps/v1", "Deployment");
    let deployment = |replicas: u32, status: Value| json!({"spec": {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}}}, "status": status});
    story.write("c1", deployment(1, json!({"replicas": 7})));
    assert_eq!(
        story.record(),
        [line(
            "c1 Update @0",
            json!({"f:spec": {"f:replicas": {}, "f:selector": {}}})
        )]
    );
    story.write("sc/scale", deployment(3, json!({"replicas": 7})));
    let status = json!({"replicas": 2, "conditions": [{"type": "A", "status": "True"}]});
    story.later().write("st/status", deployment(3, status));
    assert_eq!(
        story.record(),
        [
            line(
                "sc Update @never/scale",
                json!({"f:spec": {"f:replicas": {}}})
            ),
            line("c1 Update @0", json!({"f:spec": {"f:selector": {}}})),
            line(
                "st Update @1/status",
                json!({"f:status": {
                    "f:conditions": {".": {}, "k:{\"type\":\"A\"}": {
                        ".": {}, "f:lastTransitionTime": {}, "f:lastUpdateTime": {}, "f:status": {}, "f:type": {}}},
                    "f:replicas": {},
                }})
            ),
        ]
    );
    // Replicas without an owner stay without one.
    let mut unowned = WriteHistory::of("apps/v1", "Deployment");
    unowned.apply(
        "m1",
        json!({"spec": {"selector": {"matchLabels": {"a": "b"}}}}),
    );
    unowned.write(
        "sc/scale",
        json!({"spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}}}),
    );
    assert_eq!(unowned.record().len(), 1);
}

#[test]
fn applied_configurations_share_conflict_and_let_go() {
    let mut story = WriteHistory::of("v1", "ConfigMap");
    story.apply(
        "m1",
        json!({"metadata": {"labels": {"l": "1"}}, "data": {"a": "1", "b": "2"}}),
    );
    let m1 = line(
        "m1 Apply @0",
        json!({"f:data": {"f:a": {}, "f:b": {}}, "f:metadata": {"f:labels": {"f:l": {}}}}),
    );
    assert_eq!(story.record(), std::slice::from_ref(&m1));
    story.later().apply(
        "m1",
        json!({"metadata": {"labels": {"l": "1"}}, "data": {"a": "1", "b": "2"}}),
    );
    assert_eq!(story.record(), std::slice::from_ref(&m1), "applied again");
    story.apply("m2", json!({"data": {"a": "1"}}));
    assert_eq!(
        story.record(),
        [line("m2 Apply @never", json!({"f:data": {"f:a": {}}})), m1]
    );

    let conflict = story
        .try_apply("m2", json!({"data": {"a": "1", "b": "3"}}), false)
        .unwrap_err();
    assert_eq!(
        conflict.message,
        "Apply failed with 1 conflict: conflict with \"m1\": .data.b"
    );
    let conflict = story
        .try_apply("m3", json!({"data": {"a": "5", "b": "3"}}), false)
        .unwrap_err();
    assert_eq!(
        conflict.to_json(),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "Apply failed with 3 conflicts: conflicts with \"m1\":\n- .data.a\n- .data.b\nconflicts with \"m2\":\n- .data.a",
            "reason": "Conflict",
            "details": {"causes": [
                {"reason": "FieldManagerConflict", "message": "conflict with \"m1\"", "field": ".data.a"},
                {"reason": "FieldManagerConflict", "message": "conflict with \"m1\"", "field": ".data.b"},
                {"reason": "FieldManagerConflict", "message": "conflict with \"m2\"", "field": ".data.a"},
            ]},
            "code": 409,
        })
    );

    story
        .later()
        .try_apply("m3", json!({"data": {"a": "5"}}), true)
        .unwrap();
    story.apply("m1", json!({"data": {"c": "1"}}));
    assert_eq!(story.field("data"), &json!({"a": "5", "c": "1"}));
    assert_eq!(story.field("metadata").get("labels"), None);
    assert_eq!(
        story.record(),
        [
            line("m1 Apply @2", json!({"f:data": {"f:c": {}}})),
            line("m3 Apply @2", json!({"f:data": {"f:a": {}}})),
        ]
    );

    story
        .later()
        .write("u1", json!({"data": {"a": "7", "c": "1"}}));
    let conflict = story
        .try_apply("m3", json!({"data": {"a": "5"}}), false)
        .unwrap_err();
    assert_eq!(
        conflict.message,
        "Apply failed with 1 conflict: conflict with \"u1\" using v1: .data.a"
    );
    story
        .apply("m1", json!({"data": {"a": "7", "c": "1"}}))
        .apply("m1", json!({"data": {"c": "1"}}));
    assert_eq!(
        story.field("data"),
        &json!({"a": "7", "c": "1"}),
        "u1 still owns it"
    );
    story.apply("m1", json!({}));
    assert_eq!(story.field("data"), &json!({"a": "7"}));
    assert_eq!(
        story.record(),
        [line("u1 Update @3", json!({"f:data": {"f:a": {}}}))]
    );
}

#[test]
fn applied_lists_merge_by_key() {
    let mut story = WriteHistory::of("apps/v1", "Deployment");
    let deployment =
        |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
    story.apply(
        "m1",
        deployment(json!([{"name": "c", "image": "i", "ports": [{"containerPort": 80}], "env": [{"name": "A"}]}])),
    );
    story.apply(
        "m2",
        deployment(json!([{"name": "z", "image": "i"}, {"name": "c", "env": [{"name": "B"}]}])),
    );
    let m2 = json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {
        "k:{\"name\":\"c\"}": {".": {}, "f:env": {"k:{\"name\":\"B\"}": {".": {}, "f:name": {}}}, "f:name": {}},
        "k:{\"name\":\"z\"}": {".": {}, "f:image": {}, "f:name": {}},
    }}}}});
    assert_eq!(story.record()[1], line("m2 Apply @0", m2.clone()));
    let conflict = story.try_apply(
        "m3",
        deployment(json!([{"name": "c", "image": "x"}])),
        false,
    );
    assert_eq!(
        conflict.unwrap_err().message,
        "Apply failed with 1 conflict: conflict with \"m1\": .spec.template.spec.containers[name=\"c\"].image"
    );
    story.apply("m1", deployment(json!([{"name": "c", "image": "i2"}])));
    assert_eq!(
        story.field("spec")["template"]["spec"]["containers"],
        json!([
            {"name": "z", "image": "i", "resources": {}},
            {"name": "c", "image": "i2", "env": [{"name": "B"}], "resources": {}},
        ])
    );
    assert_eq!(
        story.record(),
        [
            line(
                "m1 Apply @0",
                json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {
                    "k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}}}}}}})
            ),
            line("m2 Apply @0", m2),
        ]
    );
    let bad = deployment(json!([{"name": "c", "resources": {"limits": {"cpu": "x"}}}]));
    let status = story.try_apply("m4", bad, false).unwrap_err();
    assert_eq!(status.code, 500);
    assert!(
        status.message.starts_with("failed to convert new object (/; apps/v1, Kind=Deployment) to proper version: unable to convert unstructured object to apps/v1, Kind=Deployment: quantities must match"),
        "{}",
        status.message
    );
}

#[test]
fn what_was_there_before_the_first_apply_has_an_owner() {
    let mut story = WriteHistory::of("v1", "ConfigMap");
    story.write(
        "c1",
        json!({"metadata": {"labels": {"x": "y"}}, "data": {"a": "1", "b": "2"}}),
    );
    let clear = json!({"labels": {"x": "y"}, "managedFields": [{}]});
    story.write(
        "c1",
        json!({"metadata": clear, "data": {"a": "1", "b": "2"}}),
    );
    story.apply("m1", json!({"data": {"a": "1"}}));
    assert_eq!(
        story.record(),
        [
            line("m1 Apply @never", json!({"f:data": {"f:a": {}}})),
            line(
                "before-first-apply Update @0",
                json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}, "f:metadata": {"f:labels": {".": {}, "f:x": {}}}})
            ),
        ]
    );
    let conflict = story
        .try_apply("m1", json!({"data": {"a": "1", "b": "9"}}), false)
        .unwrap_err();
    assert_eq!(
        conflict.message,
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.b"
    );
}

#[test]
fn custom_objects_are_owned_by_their_schema() {
    let mut story = WriteHistory::widget();
    story.write("u", json!({"metadata": {"labels": {"a": "b"}}, "spec": {"m": {"a": "b"}}, "status": {"s": "1"}}));
    assert_eq!(
        story.record(),
        [line(
            "u Update @0",
            json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {".": {}, "f:m": {".": {}, "f:a": {}}}})
        )]
    );
    story.apply(
        "m1",
        json!({"spec": {"lm": [{"name": "a", "v": 1}, {"name": "b"}], "m": {"z": "1"}}}),
    );
    story.apply("m1", json!({"spec": {"lm": [{"name": "a"}]}}));
    assert_eq!(
        story.field("spec"),
        &json!({"m": {"a": "b"}, "lm": [{"name": "a"}]})
    );
    story.apply("m1", json!({}));
    assert_eq!(
        story.field("spec"),
        &json!({"m": {"a": "b"}}),
        "an emptied list goes"
    );
    story.apply(
        "st/status",
        json!({"metadata": {"labels": {"q": "r"}}, "spec": {"a": "x"}, "status": {"s": "2"}}),
    );
    assert_eq!(
        story.record()[0],
        line("st Apply @0/status", json!({"f:status": {"f:s": {}}}))
    );
    assert_eq!(story.field("spec").get("a"), None);
}

proptest! {
    #[test]
    fn no_record_panics(
        fields in proptest::collection::vec("(f|k|v|i|x):(\\{\"name\":\"[a-c]\"\\}|\"[a-c]\"|[a-z]{1,8}|)", 0..4),
        operation in "Update|Apply|x",
        force in any::<bool>(),
    ) {
        let mut below = json!({});
        for field in &fields {
            below = json!({field: below});
        }
        let entry = json!({"manager": "m", "operation": operation, "fieldsType": "FieldsV1", "apiVersion": "v1", "fieldsV1": below});
        let mut story = WriteHistory::of("v1", "Pod");
        story.write("c", json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}}));
        story.write("c", json!({"metadata": {"managedFields": [entry]}, "spec": {"containers": [{"name": "c"}]}}));
        let _ = story.try_apply("m", json!({"spec": {"containers": [{"name": "b"}]}, "status": null}), force);
    }
}
