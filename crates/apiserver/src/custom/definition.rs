//! CustomResourceDefinitions themselves: their defaults and validation.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::structural;
use crate::kinds::kind::{Column, Rules, Write};
use crate::kinds::printer;
use crate::kinds::separate_status;
use crate::objects::fields::{JsonObject, at, each, fill, is_empty, items, open, put, text};
use crate::objects::names::{dns_1035_label, dns_subdomain};
use crate::objects::status::{FieldError, FieldErrors};

/// Held until all objects of the kind are gone.
pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
const APPROVAL: &str = "api-approved.kubernetes.io";
const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];

pub(crate) struct Definition;

impl Rules for Definition {
    fn default(&self, object: &mut Value) {
        let Some(fields) = object.as_object_mut() else {
            return;
        };
        let spec = open(fields, "spec");
        fill(spec, "group", "");
        fill(spec, "scope", "");
        fill(spec, "versions", Value::Null);
        let names = open(spec, "names");
        fill(names, "plural", "");
        fill(names, "kind", "");
        let kind = names
            .get("kind")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        if !kind.is_empty() {
            fill(names, "singular", kind.to_lowercase());
            fill(names, "listKind", format!("{kind}List"));
        }
        fill(open(spec, "conversion"), "strategy", "None");
        for version in each(spec, "versions") {
            fill(version, "served", false);
            fill(version, "storage", false);
        }
        default_status(open(fields, "status"));
    }

    fn prepare(&self, object: &mut Value, old: Option<&Value>, write: Write<'_>) {
        let storage = storage_version(object);
        separate_status(object, old, write, |_| {
            let mut status = JsonObject::new();
            default_status(&mut status);
            Value::Object(status)
        });
        if let Some(fields) = object.as_object_mut()
            && write != Write::Subresource("status")
        {
            remember_storage(open(fields, "status"), &storage);
        }
        crate::kinds::count_spec_changes(object, old);
    }

    fn validate(&self, object: &Value, old: Option<&Value>, write: Write<'_>) -> FieldErrors {
        let mut errors = Vec::new();
        if write == Write::Subresource("status") {
            return errors;
        }
        check_name(object, old, &mut errors);
        check_spec(object, &mut errors);
        check_names(object, &mut errors);
        if let Some(old) = old {
            check_update(object, old, &mut errors);
        }
        errors
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn begin_delete(&self, object: &mut Value) {
        let since = at(object, "metadata.deletionTimestamp").clone();
        let Some(fields) = object.as_object_mut() else {
            return;
        };
        let finalizers = open(fields, "metadata")
            .entry("finalizers")
            .or_insert_with(|| json!([]));
        if let Some(list) = finalizers.as_array_mut()
            && !list.iter().any(|finalizer| finalizer == CLEANUP_FINALIZER)
        {
            list.push(CLEANUP_FINALIZER.into());
        }
        let conditions = open(fields, "status")
            .entry("conditions")
            .or_insert(Value::Null);
        if !conditions.is_array() {
            *conditions = json!([]);
        }
        if let Some(list) = conditions.as_array_mut() {
            list.push(json!({
                "type": "Terminating", "status": "True", "lastTransitionTime": since,
                "reason": "InstanceDeletionPending",
                "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
            }));
        }
    }

    fn holds_back_delete(&self, object: &Value) -> bool {
        let cleaning = |finalizer: &Value| finalizer == CLEANUP_FINALIZER;
        let begun = !at(object, "metadata.deletionTimestamp").is_null();
        !begun || items(object, "metadata.finalizers").iter().any(cleaning)
    }

    fn zero_fields(&self) -> Vec<(&'static str, Value)> {
        let names = json!({"plural": "", "kind": ""});
        vec![
            (
                "spec",
                json!({"group": "", "names": names, "scope": "", "versions": null}),
            ),
            (
                "status",
                json!({"conditions": null, "acceptedNames": names, "storedVersions": null}),
            ),
        ]
    }

    fn has_own_columns(&self) -> bool {
        false
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns("Name, Created At:date")
    }

    fn cells(&self, object: &Value, _now: Timestamp) -> Vec<Value> {
        vec![
            printer::name(object),
            at(object, "metadata.creationTimestamp").clone(),
        ]
    }
}

fn default_status(status: &mut JsonObject) {
    fill(status, "conditions", Value::Null);
    let names = open(status, "acceptedNames");
    fill(names, "plural", "");
    fill(names, "kind", "");
    fill(status, "storedVersions", Value::Null);
}

fn storage_version(definition: &Value) -> String {
    let mut versions = items(definition, "spec.versions").iter();
    let storage = versions.find(|version| at(version, "storage") == &Value::Bool(true));
    storage
        .map(|version| text(version, "name").to_owned())
        .unwrap_or_default()
}

fn remember_storage(status: &mut JsonObject, version: &str) {
    if version.is_empty() {
        return;
    }
    match status.get_mut("storedVersions") {
        Some(Value::Array(stored)) if stored.iter().any(|known| known == version) => {}
        Some(Value::Array(stored)) => stored.push(version.into()),
        _ => put(status, "storedVersions", Some(&json!([version]))),
    }
}

fn check_name(definition: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let (plural, group) = (
        text(definition, "spec.names.plural"),
        text(definition, "spec.group"),
    );
    let name = at(definition, "metadata.name");
    if old.is_none() && *name != format!("{plural}.{group}") {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", name, detail));
    }
    let protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group == *domain || group.ends_with(&format!(".{domain}")));
    if protected
        && at(definition, "metadata.annotations")
            .get(APPROVAL)
            .is_none()
    {
        let detail = format!(
            "protected groups must have approval annotation {APPROVAL:?}, see https://github.com/kubernetes/enhancements/pull/1111"
        );
        errors.push(FieldError::required(
            format!("metadata.annotations[{APPROVAL}]"),
            &detail,
        ));
    }
}

fn check_spec(definition: &Value, errors: &mut FieldErrors) {
    let group = at(definition, "spec.group");
    match group.as_str().unwrap_or_default() {
        "" => errors.push(FieldError::required("spec.group", "")),
        text => {
            if let Some(problem) = dns_subdomain(text) {
                errors.push(FieldError::invalid("spec.group", group, &problem));
            } else if !text.contains('.') {
                let detail = "should be a domain with at least one dot";
                errors.push(FieldError::invalid("spec.group", group, detail));
            }
        }
    }
    let scopes = ["Cluster", "Namespaced"];
    let scope = at(definition, "spec.scope");
    match scope.as_str().unwrap_or_default() {
        "" => errors.push(FieldError::required("spec.scope", "")),
        known if scopes.contains(&known) => {}
        _ => errors.push(FieldError::not_supported("spec.scope", scope, &scopes)),
    }
    if at(definition, "spec.preserveUnknownFields") == &Value::Bool(true) {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid(
            "spec.preserveUnknownFields",
            &json!(true),
            detail,
        ));
    }
    if text(definition, "spec.conversion.strategy") != "None" {
        let strategy = at(definition, "spec.conversion.strategy");
        let detail = "only None is supported here: this server calls no webhooks";
        errors.push(FieldError::invalid(
            "spec.conversion.strategy",
            strategy,
            detail,
        ));
    }
    check_versions(definition, errors);
}

fn check_versions(definition: &Value, errors: &mut FieldErrors) {
    let versions = items(definition, "spec.versions");
    let shown: Vec<Value> = versions
        .iter()
        .map(|version| json!({"name": at(version, "name"), "storage": at(version, "storage")}))
        .collect();
    let shown = if at(definition, "spec.versions").is_null() {
        Value::Null
    } else {
        json!(shown)
    };
    let storage = versions
        .iter()
        .filter(|version| at(version, "storage") == &Value::Bool(true));
    if storage.count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", &shown, detail));
    }
    let repeated = |(i, version): (usize, &Value)| {
        versions[..i]
            .iter()
            .any(|other| text(other, "name") == text(version, "name"))
    };
    if versions.iter().enumerate().any(repeated) {
        errors.push(FieldError::invalid(
            "spec.versions",
            &shown,
            "must contain unique version names",
        ));
    }
    for (i, version) in versions.iter().enumerate() {
        let field = format!("spec.versions[{i}]");
        let name = at(version, "name");
        if let Some(problem) = dns_1035_label(name.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(format!("{field}.name"), name, &problem));
        }
        // With one version the real server names the fields of an older API.
        let (schema_field, field) = match versions.len() {
            1 => (
                "spec.validation.openAPIV3Schema".to_owned(),
                "spec".to_owned(),
            ),
            _ => (format!("{field}.schema.openAPIV3Schema"), field),
        };
        let schema = at(version, "schema.openAPIV3Schema");
        if !schema.is_object() {
            let field = format!("spec.versions[{i}].schema.openAPIV3Schema");
            errors.push(FieldError::required(field, ""));
            continue;
        }
        structural::check(schema, &schema_field, errors);
        check_columns(version, &field, errors);
        check_scale(version, &field, errors);
        check_selectable(version, schema, &field, errors);
    }
}

fn check_columns(version: &Value, field: &str, errors: &mut FieldErrors) {
    for (i, column) in items(version, "additionalPrinterColumns")
        .iter()
        .enumerate()
    {
        let field = format!("{field}.additionalPrinterColumns[{i}]");
        if text(column, "name").is_empty() {
            errors.push(FieldError::required(format!("{field}.name"), ""));
        }
        let kind = at(column, "type");
        if !COLUMN_TYPES.contains(&kind.as_str().unwrap_or_default()) {
            let detail = format!("must be one of {}", COLUMN_TYPES.join(","));
            errors.push(FieldError::invalid(format!("{field}.type"), kind, &detail));
        }
        check_path(at(column, "jsonPath"), &format!("{field}.JSONPath"), errors);
    }
}

/// Columns may use more of JSONPath than this server evaluates; their cells are then empty.
fn check_path(path: &Value, field: &str, errors: &mut FieldErrors) -> bool {
    match path.as_str().unwrap_or_default() {
        "" => errors.push(FieldError::required(field, "")),
        text if text.starts_with('.') => return true,
        _ => {
            let detail = "must be a simple json path starting with .";
            errors.push(FieldError::invalid(field, path, detail));
        }
    }
    false
}

fn check_scale(version: &Value, field: &str, errors: &mut FieldErrors) {
    let scale = at(version, "subresources.scale");
    if !scale.is_object() {
        return;
    }
    for (key, root) in [
        ("specReplicasPath", ".spec"),
        ("statusReplicasPath", ".status"),
    ] {
        let path = at(scale, key);
        let field = format!("{field}.subresources.scale.{key}");
        let starts = path
            .as_str()
            .is_some_and(|path| path.starts_with(&format!("{root}.")));
        if check_path(path, &field, errors) && !starts {
            errors.push(FieldError::invalid(
                field,
                path,
                &format!("should be a json path under {root}"),
            ));
        }
    }
}

fn check_selectable(version: &Value, schema: &Value, field: &str, errors: &mut FieldErrors) {
    for (i, selectable) in items(version, "selectableFields").iter().enumerate() {
        let path = at(selectable, "jsonPath");
        let mut steps = path
            .as_str()
            .unwrap_or_default()
            .trim_start_matches('.')
            .split('.');
        let target = steps.try_fold(schema, |schema, step| at(schema, "properties").get(step));
        if target.is_none_or(|schema| is_empty(at(schema, "type"))) {
            let detail = "is an invalid path: does not refer to a valid field";
            errors.push(FieldError::invalid(
                format!("{field}.selectableFields[{i}].jsonPath"),
                path,
                detail,
            ));
        }
    }
}

fn check_names(definition: &Value, errors: &mut FieldErrors) {
    let names = at(definition, "spec.names");
    for key in ["plural", "singular", "kind", "listKind"] {
        let field = format!("spec.names.{key}");
        let value = at(names, key);
        let name = value.as_str().unwrap_or_default();
        let mixed_case = ["kind", "listKind"].contains(&key);
        if name.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if let Some(problem) = dns_1035_label(&if mixed_case {
            name.to_lowercase()
        } else {
            name.to_owned()
        }) {
            let prefix = if mixed_case {
                "may have mixed case, but should otherwise match: "
            } else {
                ""
            };
            errors.push(FieldError::invalid(
                field,
                value,
                &format!("{prefix}{problem}"),
            ));
        }
    }
    for (i, short) in items(names, "shortNames").iter().enumerate() {
        if let Some(problem) = dns_1035_label(short.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(
                format!("spec.names.shortNames[{i}]"),
                short,
                &problem,
            ));
        }
    }
    if items(definition, "status.storedVersions").is_empty() {
        let detail = "must have at least one stored version";
        errors.push(FieldError::invalid(
            "status.storedVersions",
            &Value::Null,
            detail,
        ));
    }
}

fn check_update(definition: &Value, old: &Value, errors: &mut FieldErrors) {
    let mut fixed = vec!["spec.group", "spec.names.plural"];
    // Objects may exist, so neither where they live nor what they are can change.
    if super::acceptance::is_established(old) {
        fixed.extend(["spec.scope", "spec.names.kind"]);
    }
    for field in fixed {
        let now = at(definition, field);
        if now != at(old, field) {
            errors.push(FieldError::invalid(field, now, "field is immutable"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(change: impl FnOnce(&mut Value)) -> Value {
        let mut definition = json!({
            "metadata": {"name": "foos.x.io"},
            "spec": {"group": "x.io", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]},
        });
        change(&mut definition);
        Definition.default(&mut definition);
        Definition.prepare(&mut definition, None, Write::Create);
        definition
    }

    #[test]
    fn names_follow_from_the_kind() {
        let made = definition(|_| {});
        assert_eq!(
            made["spec"]["names"],
            json!({"plural": "foos", "kind": "Foo", "singular": "foo", "listKind": "FooList"})
        );
        assert_eq!(
            made["status"],
            json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]})
        );
        assert_eq!(made["spec"]["conversion"], json!({"strategy": "None"}));
        assert_eq!(Definition.validate(&made, None, Write::Create), []);
    }

    #[test]
    fn invalid_definitions_are_refused() {
        type Edit = fn(&mut Value);
        let cases: [(&str, Edit, &str); 13] = [
            (
                "another name",
                |d| d["metadata"]["name"] = json!("bar"),
                "metadata.name",
            ),
            (
                "no domain",
                |d| {
                    d["spec"]["group"] = json!("x");
                    d["metadata"]["name"] = json!("foos.x");
                },
                "spec.group",
            ),
            (
                "a protected group",
                |d| {
                    d["spec"]["group"] = json!("x.k8s.io");
                    d["metadata"]["name"] = json!("foos.x.k8s.io");
                },
                "metadata.annotations[api-approved.kubernetes.io]",
            ),
            (
                "another scope",
                |d| d["spec"]["scope"] = json!("X"),
                "spec.scope",
            ),
            (
                "no version",
                |d| d["spec"]["versions"] = json!([]),
                "spec.versions",
            ),
            (
                "no storage",
                |d| d["spec"]["versions"][0]["storage"] = json!(false),
                "spec.versions",
            ),
            (
                "a capital version",
                |d| d["spec"]["versions"][0]["name"] = json!("V1"),
                "spec.versions[0].name",
            ),
            (
                "no schema",
                |d| d["spec"]["versions"][0]["schema"] = json!({}),
                "spec.versions[0].schema.openAPIV3Schema",
            ),
            (
                "a webhook",
                |d| d["spec"]["conversion"] = json!({"strategy": "Webhook"}),
                "spec.conversion.strategy",
            ),
            (
                "a bad column",
                |d| {
                    d["spec"]["versions"][0]["additionalPrinterColumns"] =
                        json!([{"name": "A", "type": "foo", "jsonPath": ".x"}])
                },
                "spec.additionalPrinterColumns[0].type",
            ),
            (
                "a bad path",
                |d| {
                    d["spec"]["versions"][0]["additionalPrinterColumns"] =
                        json!([{"name": "A", "type": "string", "jsonPath": "x"}])
                },
                "spec.additionalPrinterColumns[0].JSONPath",
            ),
            (
                "a scale elsewhere",
                |d| d["spec"]["versions"][0]["subresources"] = json!({"scale": {"specReplicasPath": ".spec.x", "statusReplicasPath": ".spec.y"}}),
                "spec.subresources.scale.statusReplicasPath",
            ),
            (
                "a field that is not there",
                |d| d["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.x"}]),
                "spec.selectableFields[0].jsonPath",
            ),
        ];
        for (case, change, want) in cases {
            let errors = Definition.validate(&definition(change), None, Write::Create);
            assert_eq!(
                errors.first().map(|e| e.field.as_str()),
                Some(want),
                "{case}"
            );
        }
    }

    #[test]
    fn an_established_kind_is_immutable() {
        let mut old = definition(|_| {});
        old["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
        for (case, path, value, want) in [
            ("its scope", "scope", json!("Cluster"), Some("spec.scope")),
            ("its group", "group", json!("y.io"), Some("spec.group")),
        ] {
            let mut new = old.clone();
            new["spec"][path] = value;
            let errors = Definition.validate(&new, Some(&old), Write::Update);
            assert_eq!(errors.first().map(|e| e.field.as_str()), want, "{case}");
        }
    }

    #[test]
    fn deleting_waits_for_the_objects() {
        let mut object = definition(|_| {});
        Definition.begin_delete(&mut object);
        assert_eq!(object["metadata"]["finalizers"], json!([CLEANUP_FINALIZER]));
        assert_eq!(
            object["status"]["conditions"][0]["reason"],
            "InstanceDeletionPending"
        );
    }
}
