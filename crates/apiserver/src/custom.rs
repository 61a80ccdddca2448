//! Custom kinds: turns a CustomResourceDefinition into a [`Kind`].
//!
//! Rules in CEL are accepted and not evaluated. `objects::decode` prunes unknown fields.

use std::cmp::Reverse;
use std::sync::Arc;

use serde_json::Value;

use crate::kinds::cluster;
use crate::kinds::kind::{Kind, Name, Subresource};
use crate::objects::fields::{at, items, text};
use crate::objects::schema::Schema;

mod acceptance;
mod defaults;
mod definition;
mod formats;
mod json_path;
mod object;
mod scale;
mod structural;
mod validate;
mod validation_schema;

pub(crate) use acceptance::judge;
pub(crate) use definition::CLEANUP_FINALIZER;
use definition::Definition;

/// The order in which the real server's discovery lists them.
const VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];
const READ_AND_WRITE: [&str; 3] = ["get", "patch", "update"];

/// The kind `CustomResourceDefinition` itself.
pub(crate) fn definition_kind() -> Kind {
    let (version, plural) = ("apiextensions.k8s.io/v1", "customresourcedefinitions");
    let mut kind = cluster(version, plural, "CustomResourceDefinition", Definition)
        .short(&["crd", "crds"])
        .status();
    kind.categories = vec!["api-extensions".into()];
    kind
}

/// The kinds that a definition serves, the preferred version first; none before it is established.
pub(crate) fn kinds(definition: &Value) -> Vec<Kind> {
    if !acceptance::is_established(definition) {
        return Vec::new();
    }
    let mut versions: Vec<&Value> = items(definition, "spec.versions")
        .iter()
        .filter(|version| at(version, "served") == &Value::Bool(true))
        .collect();
    versions.sort_by_key(|version| Reverse(stability(text(version, "name"))));
    versions
        .into_iter()
        .map(|version| kind(definition, version))
        .collect()
}

fn kind(definition: &Value, version: &Value) -> Kind {
    let names = at(definition, "status.acceptedNames");
    let owned = |path: &str| Name::from(text(names, path).to_owned());
    let list = |path: &str| {
        let names = items(names, path).iter().filter_map(Value::as_str);
        names.map(|name| Name::from(name.to_owned())).collect()
    };
    let schema = at(version, "schema.openAPIV3Schema");
    let rules = object::CustomObject::new(definition, version);
    Kind {
        group: text(definition, "spec.group").to_owned().into(),
        version: text(version, "name").to_owned().into(),
        plural: owned("plural"),
        singular: owned("singular"),
        kind: owned("kind"),
        list_kind: owned("listKind"),
        short_names: list("shortNames"),
        categories: list("categories"),
        namespaced: text(definition, "spec.scope") == "Namespaced",
        verbs: VERBS.to_vec(),
        subresources: subresources(version),
        schema: Schema::structural(schema),
        rules: Arc::new(rules),
        scale: scale::paths(version),
        alias: None,
        deprecated: None,
        returns_deleted: false,
    }
}

fn subresources(version: &Value) -> Vec<Subresource> {
    let declared = at(version, "subresources");
    let mut found = Vec::new();
    if declared.get("status").is_some() {
        found.push(Subresource {
            name: "status".into(),
            body: None,
            verbs: READ_AND_WRITE.to_vec(),
        });
    }
    if declared.get("scale").is_some() {
        found.push(Subresource {
            name: "scale".into(),
            body: Some(("autoscaling".into(), "v1".into(), "Scale".into())),
            verbs: READ_AND_WRITE.to_vec(),
        });
    }
    found
}

/// Greater is preferred: `v2`, `v1`, `v1beta2`, `v1alpha1`, then all other names in their order.
fn stability(version: &str) -> (u8, u32, u32, Reverse<String>) {
    let numbers = || -> Option<(u8, u32, u32)> {
        let rest = version.strip_prefix('v')?;
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let major = rest[..digits].parse().ok()?;
        match &rest[digits..] {
            "" => Some((3, major, 0)),
            beta if beta.starts_with("beta") => Some((2, major, beta[4..].parse().ok()?)),
            alpha if alpha.starts_with("alpha") => Some((1, major, alpha[5..].parse().ok()?)),
            _ => None,
        }
    };
    let (stage, major, minor) = numbers().unwrap_or_default();
    (stage, major, minor, Reverse(version.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn versions_come_by_stability() {
        let mut versions = [
            "v1alpha1", "foo", "v10", "v1beta2", "v2", "v1beta10", "bar", "v1",
        ];
        versions.sort_by_key(|version| Reverse(stability(version)));
        assert_eq!(
            versions,
            [
                "v10", "v2", "v1", "v1beta10", "v1beta2", "v1alpha1", "bar", "foo"
            ]
        );
    }

    #[test]
    fn a_definition_serves_its_versions_once_established() {
        let version = |name: &str, served: bool| {
            json!({
                "name": name, "served": served, "schema": {"openAPIV3Schema": {"type": "object"}},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
            })
        };
        let mut definition = json!({
            "spec": {"group": "x.io", "scope": "Namespaced", "versions": [version("v1beta1", true), version("v1", true), version("v2", false)]},
            "status": {"acceptedNames": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList", "shortNames": ["wd"]}, "conditions": []},
        });
        assert!(kinds(&definition).is_empty());
        definition["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
        let kinds = kinds(&definition);
        let versions: Vec<_> = kinds.iter().map(|kind| &*kind.version).collect();
        assert_eq!(versions, ["v1", "v1beta1"]);
        assert_eq!(kinds[0].plural, "widgets");
        assert_eq!(kinds[0].scale.as_ref().unwrap().spec_replicas, "spec.n");
        let subresources: Vec<_> = kinds[0].subresources.iter().map(|s| &*s.name).collect();
        assert_eq!(subresources, ["status", "scale"]);
        assert!(kinds[0].namespaced && kinds[0].rules.is_custom());
    }
}
