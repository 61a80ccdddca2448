//! Whether an applied configuration fits its schema, with the messages of the real server.

use std::collections::HashSet;

use serde_json::Value;

use super::compare::element_key;
use super::set::{display, value_element};
use crate::objects::decode::group_version_kind;
use crate::objects::golang;
use crate::objects::schema::{ListKind, ListType, Schema, Struct, StructTypes, Type};
use crate::objects::status::Status;

/// An applied configuration may not have unknown fields, whatever the field validation of the request.
pub(super) fn check(schema: &Schema, applied: &Value) -> Result<(), Status> {
    let mut checker = Checker {
        types: schema.types(),
        path: String::new(),
        errors: Vec::new(),
    };
    checker.value(&Type::Struct(schema.root_id()), applied);
    let errors = checker.errors;
    match errors.as_slice() {
        [] => Ok(()),
        [one] => Err(failed(
            "create typed patch object",
            applied,
            &format!(": {one}"),
        )),
        _ => {
            let errors = format!(": errors:\n  {}", errors.join("\n  "));
            Err(failed("create typed patch object", applied, &errors))
        }
    }
}

/// `failed to <what> (ns/name; apps/v1, Kind=Deployment)<why>`.
pub(super) fn failed(what: &str, object: &Value, why: &str) -> Status {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let namespace = text(&object["metadata"]["namespace"]);
    let name = text(&object["metadata"]["name"]);
    let kind = group_version_kind(&text(&object["apiVersion"]), &text(&object["kind"]));
    Status::internal(format!(
        "failed to {what} ({namespace}/{name}; {kind}){why}"
    ))
}

struct Checker<'a> {
    types: &'a StructTypes,
    path: String,
    errors: Vec<String>,
}

impl Checker<'_> {
    fn error(&mut self, why: impl std::fmt::Display) {
        self.errors.push(format!("{}: {why}", self.path));
    }

    /// Looks at something below, whose path continues with `step`.
    fn at(&mut self, step: &str, look: impl FnOnce(&mut Self)) {
        let base = self.path.len();
        self.path.push_str(step);
        look(self);
        self.path.truncate(base);
    }

    fn value(&mut self, ty: &Type, value: &Value) {
        match (ty, value) {
            (_, Value::Null) => (),
            (Type::Struct(id), Value::Object(map)) => self.fields(self.types.get(*id), map),
            (Type::Map(entries), Value::Object(map)) => {
                for (key, value) in sorted(map) {
                    self.at(&format!(".{key}"), |this| this.value(&entries.value, value));
                }
            }
            (Type::Struct(_) | Type::Map(_), other) => {
                self.error(format!("expected map, got &{{{}}}", golang::text(other)));
            }
            (Type::List(list), Value::Array(items)) => self.list(list, items),
            (Type::List(_), other) => {
                self.error(format!("expected list, got &{{{}}}", golang::text(other)));
            }
            (Type::String | Type::Bytes | Type::Time | Type::MicroTime | Type::Duration, other) => {
                if !other.is_string() {
                    let found = golang::syntax(other);
                    self.error(format!(
                        "expected string, got &value.valueUnstructured{{Value:{found}}}"
                    ));
                }
            }
            (Type::Bool, other) => {
                if !other.is_boolean() {
                    self.error(format!(
                        "expected boolean, got &{{{}}}",
                        golang::text(other)
                    ));
                }
            }
            (Type::Int32 | Type::Int64 | Type::Double, other) => {
                if !other.is_number() {
                    let found = match other {
                        Value::Array(_) => "[]interface {}",
                        Value::Object(_) => "map[string]interface {}",
                        other => golang::json_type(other),
                    };
                    self.error(format!("expected numeric (int or float), got {found}"));
                }
            }
            (Type::Quantity | Type::IntOrString | Type::Any, _) => (),
        }
    }

    fn fields(&mut self, holder: &Struct, map: &serde_json::Map<String, Value>) {
        for (key, value) in sorted(map) {
            let Some(ty) = holder.field_type(key) else {
                self.at(&format!(".{key}"), |this| {
                    this.error("field not declared in schema")
                });
                return;
            };
            self.at(&format!(".{key}"), |this| this.value(ty, value));
        }
    }

    fn list(&mut self, list: &ListType, items: &[Value]) {
        let mut seen = HashSet::new();
        for (index, item) in items.iter().enumerate() {
            let element = match &list.kind {
                ListKind::Atomic => format!("i:{index}"),
                ListKind::Set => value_element(item),
                ListKind::Map(keys) => match self.keyed(list, keys, index, item) {
                    Some(element) => element,
                    None => continue,
                },
            };
            let step = display(&element);
            if !seen.insert(element) {
                self.error(format!("duplicate entries for key {step}"));
                continue;
            }
            self.at(&step, |this| this.value(&list.item, item));
        }
    }

    fn keyed(
        &mut self,
        list: &ListType,
        keys: &[String],
        index: usize,
        item: &Value,
    ) -> Option<String> {
        let wrong = match item {
            Value::Object(_) => None,
            Value::Null => {
                Some("associative list with keys may not have a null element".to_owned())
            }
            _ => Some("associative list with keys may not have non-map elements".to_owned()),
        };
        let key = element_key(self.types, list, keys, item);
        let wrong = wrong.or_else(|| {
            key.is_none().then(|| {
                format!(
                    "associative list with keys has an element that omits all key fields {} (and doesn't have default values for any key fields)",
                    golang::text(&Value::from(keys.iter().map(|key| format!("{key:?}")).collect::<Vec<_>>()))
                )
            })
        });
        if let Some(wrong) = wrong {
            self.error(format!("element {index}: {wrong}"));
            return None;
        }
        key
    }
}

fn sorted(map: &serde_json::Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The messages of kube-apiserver v1.36.4 for the same configurations.
    #[test]
    fn misfits_are_reported() {
        let config_map = Schema::builtin("v1", "ConfigMap").unwrap();
        let whole = |mut object: Value| {
            object["apiVersion"] = json!("v1");
            object["kind"] = json!("ConfigMap");
            object
        };
        for (applied, want) in [
            (
                json!({"foo": 1, "goo": 2, "metadata": {"name": "a2", "bar": 1}}),
                "(/a2; /v1, Kind=ConfigMap): .foo: field not declared in schema",
            ),
            (
                json!({"data": {"a": 1}}),
                "(/; /v1, Kind=ConfigMap): .data.a: expected string, got &value.valueUnstructured{Value:1}",
            ),
            (
                json!({"data": {"a": {"x": 1}}}),
                "(/; /v1, Kind=ConfigMap): .data.a: expected string, got &value.valueUnstructured{Value:map[string]interface {}{\"x\":1}}",
            ),
            (
                json!({"data": ["a"]}),
                "(/; /v1, Kind=ConfigMap): .data: expected map, got &{[a]}",
            ),
            (
                json!({"immutable": "x"}),
                "(/; /v1, Kind=ConfigMap): .immutable: expected boolean, got &{x}",
            ),
            (
                json!({"metadata": {"foo": 1}, "data": {"a": 1}}),
                "(/; /v1, Kind=ConfigMap): errors:\n  .data.a: expected string, got &value.valueUnstructured{Value:1}\n  .metadata.foo: field not declared in schema",
            ),
            (
                json!({"metadata": {"finalizers": ["a/d", "a/d"]}}),
                "(/; /v1, Kind=ConfigMap): .metadata.finalizers: duplicate entries for key [=\"a/d\"]",
            ),
        ] {
            let status = check(&config_map, &whole(applied.clone())).unwrap_err();
            let want = format!("failed to create typed patch object {want}");
            assert_eq!((status.code, status.message), (500, want), "{applied}");
        }
        assert_eq!(
            check(
                &config_map,
                &whole(json!({"data": {"a": null}, "binaryData": null}))
            ),
            Ok(())
        );

        let pod = Schema::builtin("v1", "Pod").unwrap();
        for (containers, want) in [
            (
                json!([{"name": "c"}, {"name": "c"}]),
                ".spec.containers: duplicate entries for key [name=\"c\"]",
            ),
            (
                json!([{"name": "c", "foo": 1}]),
                ".spec.containers[name=\"c\"].foo: field not declared in schema",
            ),
            (
                json!([{"name": "c", "ports": [{"containerPort": "80"}]}]),
                ".spec.containers[name=\"c\"].ports[containerPort=\"80\",protocol=\"TCP\"].containerPort: expected numeric (int or float), got string",
            ),
            (
                json!([{"name": "c", "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "TCP"}]}]),
                ".spec.containers[name=\"c\"].ports: duplicate entries for key [containerPort=80,protocol=\"TCP\"]",
            ),
            (
                json!([{"name": "c", "args": [1]}]),
                ".spec.containers[name=\"c\"].args[0]: expected string, got &value.valueUnstructured{Value:1}",
            ),
            (json!("x"), ".spec.containers: expected list, got &{x}"),
            (
                json!([5]),
                ".spec.containers: element 0: associative list with keys may not have non-map elements",
            ),
            (
                json!([null]),
                ".spec.containers: element 0: associative list with keys may not have a null element",
            ),
        ] {
            let status = check(&pod, &json!({"spec": {"containers": containers}})).unwrap_err();
            assert!(
                status.message.ends_with(&format!(": {want}")),
                "{}",
                status.message
            );
        }
    }
}
