//! Roles and their bindings. They are checked as on the real server, but every user may do everything here.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::kind::Kind;
use super::super::{cluster, namespaced, printer};
use super::{CREATED_AT, PLAIN, Plain, created_at};
use crate::objects::fields::{JsonObject, at, each, fill, is_empty, items, open, text};
use crate::objects::names::path_segment;
use crate::objects::status::FieldError;

const VERSION: &str = "rbac.authorization.k8s.io/v1";
const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn kinds() -> Vec<Kind> {
    let role = Plain {
        check: |object, _, errors| check_rules(object, false, errors),
        check_name: path_segment,
        creates_on_update: true,
        columns: CREATED_AT,
        cells: created_at,
        no_effect: Some("every user may do everything"),
        ..PLAIN
    };
    let binding = Plain {
        defaults: default_binding,
        check: |object, old, errors| check_binding(object, old, &["Role", "ClusterRole"], errors),
        columns: "Name, Role, Age, Users*, Groups*, ServiceAccounts*",
        cells: binding_cells,
        ..role
    };
    let cluster_role = Plain {
        check: |object, _, errors| check_rules(object, true, errors),
        ..role
    };
    let cluster_binding = Plain {
        check: |object, old, errors| check_binding(object, old, &["ClusterRole"], errors),
        ..binding
    };
    vec![
        cluster(
            VERSION,
            "clusterrolebindings",
            "ClusterRoleBinding",
            cluster_binding,
        ),
        cluster(VERSION, "clusterroles", "ClusterRole", cluster_role),
        namespaced(VERSION, "rolebindings", "RoleBinding", binding),
        namespaced(VERSION, "roles", "Role", role),
    ]
}

fn default_binding(object: &mut JsonObject) {
    fill(open(object, "roleRef"), "apiGroup", GROUP);
    for subject in each(object, "subjects") {
        let kind = subject.get("kind").and_then(Value::as_str);
        if matches!(kind, Some("User" | "Group")) {
            fill(subject, "apiGroup", GROUP);
        }
    }
}

/// Only cluster roles have rules about paths that are no resources.
fn check_rules(object: &Value, paths: bool, errors: &mut Vec<FieldError>) {
    for (index, rule) in items(object, "rules").iter().enumerate() {
        let field = format!("rules[{index}]");
        let lacks = |part: &str| is_empty(at(rule, part));
        if lacks("verbs") {
            let detail = "verbs must contain at least one value";
            errors.push(FieldError::required(format!("{field}.verbs"), detail));
        }
        if !lacks("nonResourceURLs") {
            let detail = match paths {
                false => "namespaced rules cannot apply to non-resource URLs",
                true if lacks("apiGroups") && lacks("resources") && lacks("resourceNames") => {
                    continue;
                }
                true => "rules cannot apply to both regular resources and non-resource URLs",
            };
            let field = format!("{field}.nonResourceURLs");
            errors.push(FieldError::invalid(
                field,
                at(rule, "nonResourceURLs"),
                detail,
            ));
            continue;
        }
        for (part, noun) in [("apiGroups", "api group"), ("resources", "resource")] {
            if lacks(part) {
                let detail = format!("resource rules must supply at least one {noun}");
                errors.push(FieldError::required(format!("{field}.{part}"), &detail));
            }
        }
    }
}

fn check_binding(
    object: &Value,
    old: Option<&Value>,
    kinds: &[&str],
    errors: &mut Vec<FieldError>,
) {
    let role = at(object, "roleRef");
    let mut one_of = |field: String, found: &Value, allowed: &[&str]| {
        if !allowed.contains(&found.as_str().unwrap_or_default()) {
            errors.push(FieldError::not_supported(field, found, allowed));
        }
    };
    one_of(
        "roleRef.apiGroup".to_owned(),
        at(role, "apiGroup"),
        &[GROUP],
    );
    one_of("roleRef.kind".to_owned(), at(role, "kind"), kinds);
    if text(role, "name").is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    }
    for (index, subject) in items(object, "subjects").iter().enumerate() {
        let field = format!("subjects[{index}]");
        if text(subject, "name").is_empty() {
            errors.push(FieldError::required(format!("{field}.name"), ""));
        }
        let known = ["ServiceAccount", "User", "Group"];
        let kind = at(subject, "kind");
        if !known.contains(&kind.as_str().unwrap_or_default()) {
            let field = format!("{field}.kind");
            errors.push(FieldError::not_supported(field, kind, &known));
        }
    }
    if old.is_some_and(|old| at(old, "roleRef") != role) {
        // The real server quotes the names of its own fields.
        let quoted = json!({
            "APIGroup": text(role, "apiGroup"), "Kind": text(role, "kind"), "Name": text(role, "name"),
        });
        let detail = "cannot change roleRef";
        errors.push(FieldError::invalid("roleRef", &quoted, detail));
    }
}

fn binding_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let subjects = |kind: &str| {
        let subjects = items(object, "subjects").iter();
        let names: Vec<String> = subjects
            .filter(|subject| text(subject, "kind") == kind)
            .map(|subject| match kind {
                "ServiceAccount" => {
                    format!("{}/{}", text(subject, "namespace"), text(subject, "name"))
                }
                _ => text(subject, "name").to_owned(),
            })
            .collect();
        json!(names.join(", "))
    };
    let role = at(object, "roleRef");
    vec![
        printer::name(object),
        format!("{}/{}", text(role, "kind"), text(role, "name")).into(),
        printer::created(object, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}
