use super::*;
use proptest::prelude::*;
use serde_json::json;

fn deployment() -> Value {
    json!({
        "metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["f/1", "f/2", "f/3"]},
        "spec": {
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
            "template": {"spec": {
                "nodeSelector": {"x": "y"},
                "tolerations": [{"key": "t1"}],
                "containers": [
                    {"name": "c1", "image": "1", "env": [{"name": "A"}, {"name": "B"}], "ports": [{"containerPort": 80}, {"containerPort": 81}]},
                    {"name": "c2", "image": "2"},
                    {"name": "c3", "image": "3"},
                ],
                "volumes": [{"name": "v1", "emptyDir": {}}],
            }},
        },
    })
}

fn patch(patch: Value) -> Result<Value, Status> {
    let schema = Schema::builtin("apps/v1", "Deployment").unwrap();
    apply(&schema, deployment(), patch.as_object().unwrap().clone())
}

fn pod_spec(spec: Value) -> Value {
    json!({"spec": {"template": {"spec": spec}}})
}

/// The names of the containers, in order; `c1=x` where the image is not the old one.
fn containers(object: &Value) -> String {
    let containers = object["spec"]["template"]["spec"]["containers"]
        .as_array()
        .unwrap();
    let name = |c: &Value| match (c["name"].as_str().unwrap(), c["image"].as_str()) {
        (name, Some(image)) if !name.ends_with(image) => format!("{name}={image}"),
        (name, _) => name.to_owned(),
    };
    containers.iter().map(name).collect::<Vec<_>>().join(" ")
}

/// What kube-apiserver v1.36.4 made of the same patches.
#[test]
fn lists_of_objects_merge_by_key() {
    for (spec, want) in [
        (
            json!({"containers": [{"name": "c2", "image": "x"}]}),
            "c1 c2=x c3",
        ),
        (
            json!({"containers": [{"name": "n1"}, {"name": "c2", "image": "x"}, {"name": "n2"}]}),
            "n1 c1 c2=x n2 c3",
        ),
        (
            json!({"containers": [{"name": "c2", "$patch": "delete"}]}),
            "c1 c3",
        ),
        (
            json!({"containers": [{"$patch": "replace"}, {"name": "z"}]}),
            "z",
        ),
        (
            json!({"containers": [{"name": "z"}, {"$patch": "replace"}]}),
            "z",
        ),
        (
            json!({"containers": [{"name": "c1", "$patch": "replace"}]}),
            "",
        ),
        (
            json!({"$setElementOrder/containers": [{"name": "c3"}, {"name": "c1"}], "containers": [{"name": "c1", "image": "x"}]}),
            "c2 c3 c1=x",
        ),
        (
            json!({"$setElementOrder/containers": [{"name": "c3"}, {"name": "n"}, {"name": "c1"}], "containers": [{"name": "n"}]}),
            "c2 c3 n c1",
        ),
        (
            json!({"$setElementOrder/containers": [{"name": "c3"}, {"name": "n"}, {"name": "c1"}],
                "containers": [{"name": "c3", "$patch": "delete"}, {"name": "n"}]}),
            "c2 n c1",
        ),
        (
            json!({"$setElementOrder/containers": [{"name": "c1"}, {"name": "n"}],
                "containers": [{"name": "c1", "$patch": "delete"}, {"name": "n"}]}),
            "c2 c3 n",
        ),
        (
            json!({"$setElementOrder/containers": [{"name": "c3"}, {"name": "c1"}, {"name": "c2"}]}),
            "c3 c1 c2",
        ),
    ] {
        assert_eq!(
            containers(&patch(pod_spec(spec.clone())).unwrap()),
            want,
            "{spec}"
        );
    }
    let nested = pod_spec(json!({"containers": [{"name": "c1",
        "env": [{"name": "B", "value": "9"}, {"name": "N"}], "ports": [{"containerPort": 81, "name": "x"}, {"containerPort": 82}]}]}));
    let nested = patch(nested).unwrap();
    let c1 = &nested["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        c1["env"],
        json!([{"name": "A"}, {"name": "B", "value": "9"}, {"name": "N"}])
    );
    assert_eq!(
        c1["ports"],
        json!([{"containerPort": 80}, {"containerPort": 81, "name": "x"}, {"containerPort": 82}])
    );
}

#[test]
fn lists_of_strings_merge_as_sets() {
    for (metadata, want) in [
        (
            json!({"finalizers": ["f/4"]}),
            json!(["f/4", "f/1", "f/2", "f/3"]),
        ),
        (
            json!({"finalizers": ["f/4", "f/2"]}),
            json!(["f/4", "f/1", "f/2", "f/3"]),
        ),
        (
            json!({"$deleteFromPrimitiveList/finalizers": ["f/2", "nope"]}),
            json!(["f/1", "f/3"]),
        ),
        (
            json!({"$deleteFromPrimitiveList/finalizers": "f/2"}),
            json!(["f/1", "f/2", "f/3"]),
        ),
        (
            json!({"$deleteFromPrimitiveList/finalizers": ["f/2"], "$setElementOrder/finalizers": ["f/3", "f/1"]}),
            json!(["f/3", "f/1"]),
        ),
        (
            json!({"$setElementOrder/finalizers": ["f/3", "f/9", "f/1"], "finalizers": ["f/9"]}),
            json!(["f/2", "f/3", "f/9", "f/1"]),
        ),
    ] {
        let got = patch(json!({"metadata": metadata})).unwrap();
        assert_eq!(got["metadata"]["finalizers"], want, "{metadata}");
    }
}

#[test]
fn maps_merge_unless_told_otherwise() {
    for (given, pointer, want) in [
        (
            json!({"metadata": {"labels": {"a": null, "z": "1"}}}),
            "/metadata/labels",
            json!({"b": "2", "z": "1"}),
        ),
        (
            json!({"metadata": {"labels": {"$patch": "replace", "z": "1"}}}),
            "/metadata/labels",
            json!({"z": "1"}),
        ),
        (
            json!({"metadata": {"labels": {"$patch": "delete"}}}),
            "/metadata/labels",
            json!({}),
        ),
        (
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
            "/spec/strategy",
            json!({"type": "Recreate"}),
        ),
        (
            pod_spec(json!({"nodeSelector": {"q": "r"}})),
            "/spec/template/spec/nodeSelector",
            json!({"x": "y", "q": "r"}),
        ),
        (
            pod_spec(json!({"tolerations": [{"key": "t2"}]})),
            "/spec/template/spec/tolerations",
            json!([{"key": "t2"}]),
        ),
        (
            pod_spec(
                json!({"volumes": [{"name": "v1", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}),
            ),
            "/spec/template/spec/volumes",
            json!([{"name": "v1", "hostPath": {"path": "/x"}}]),
        ),
    ] {
        assert_eq!(
            patch(given.clone()).unwrap().pointer(pointer),
            Some(&want),
            "{given}"
        );
    }
}

#[test]
fn mistakes_are_named() {
    for (given, code, want) in [
        (
            json!({"metadata": {"labels": {"$patch": "foo"}}}),
            500,
            "unknown patch type: foo in map: map[$patch:foo]",
        ),
        (
            pod_spec(json!({"containers": [{"image": "x"}]})),
            500,
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (
            pod_spec(json!({"containers": [{"name": "c1", "$patch": "foo"}]})),
            500,
            "unknown patch type: foo in map: map[$patch:foo name:c1]",
        ),
        (
            pod_spec(json!({"containers": [{"name": "c1", "$patch": "merge"}]})),
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        (
            pod_spec(
                json!({"$setElementOrder/containers": [{"name": "c1"}], "containers": [{"name": "new", "image": "n"}]}),
            ),
            500,
            "The order in patch list:\n[map[image:n name:new]]\n doesn't match $setElementOrder list:\n[map[name:c1]]\n",
        ),
        (
            json!({"spec": {"strategy": {"$retainKeys": ["rollingUpdate"], "type": "Recreate"}}}),
            400,
            "invalid patch format of retainKeys",
        ),
        (
            json!({"spec": {"strategy": {"$retainKeys": "type"}}}),
            400,
            "invalid patch format of retainKeys",
        ),
    ] {
        let status = patch(given.clone()).unwrap_err();
        assert_eq!(
            (status.code, status.message.as_str()),
            (code, want),
            "{given}"
        );
    }
    let status = patch(pod_spec(json!({"containers": [5]}))).unwrap_err();
    assert!(
        status
            .message
            .starts_with("list element types are not identical: [[map[")
    );
}

proptest! {
    #[test]
    fn no_patch_panics(
        name in "c1|c4|",
        directive in "replace|delete|merge|foo|",
        order in proptest::collection::vec("c[1-5]", 0..4),
        odd in prop_oneof![Just(json!(null)), Just(json!(5)), Just(json!([])), Just(json!({})), Just(json!("x"))],
    ) {
        let order: Vec<Value> = order.iter().map(|n| json!({"name": n})).collect();
        let _ = patch(pod_spec(json!({
            "$setElementOrder/containers": order, "$retainKeys": odd,
            "containers": [{"name": name, "$patch": directive, "env": odd}],
        })));
        let _ = patch(pod_spec(json!({
            "$setElementOrder/containers": odd, "containers": [{"name": name, "env": [odd]}], "volumes": odd,
        })));
        let _ = patch(json!({"metadata": {"$deleteFromPrimitiveList/finalizers": odd, "finalizers": odd, "$patch": odd}}));
    }
}
