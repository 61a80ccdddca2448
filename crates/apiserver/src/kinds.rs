//! The built-in kinds: names, verbs and subresources as discovery shows them.
//!
//! What a kind does with its objects is in `kinds/`, one file per kind or small family.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::kind::{Kind, Name, Rules, ScalePaths, Subresource};
use crate::schema::Schema;

mod config;
mod event;
mod lease;
mod namespace;
mod node;
mod plain;
mod pod;
mod priority_class;
mod quantity;
mod split;

pub use event::{event_from_v1, event_to_v1};

/// Discovery sorts verbs by name.
const ALL_VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
const READ_AND_WRITE: [&str; 3] = ["get", "patch", "update"];

/// Every built-in kind, in the order of discovery.
pub fn builtin() -> Vec<Kind> {
    vec![
        namespaced("v1", "bindings", "Binding", plain::Plain).only(&["create"]),
        namespaced("v1", "configmaps", "ConfigMap", config::ConfigMap).short(&["cm"]),
        namespaced("v1", "events", "Event", event::CoreEvent).short(&["ev"]),
        cluster("v1", "namespaces", "Namespace", namespace::Namespace)
            .short(&["ns"])
            .without("deletecollection")
            .sub("finalize", &["update"])
            .status(),
        cluster("v1", "nodes", "Node", node::Node)
            .short(&["no"])
            .status(),
        namespaced("v1", "pods", "Pod", pod::Pod)
            .short(&["po"])
            .in_all()
            .sub_of("binding", ("", "v1", "Binding"), &["create"])
            .sub_of("eviction", ("policy", "v1", "Eviction"), &["create"])
            .sub("resize", &READ_AND_WRITE)
            .status(),
        namespaced("v1", "secrets", "Secret", config::Secret),
        namespaced("events.k8s.io/v1", "events", "Event", event::Event)
            .short(&["ev"])
            .alias(event::ALIAS),
        namespaced("coordination.k8s.io/v1", "leases", "Lease", lease::Lease),
        cluster(
            "scheduling.k8s.io/v1",
            "priorityclasses",
            "PriorityClass",
            priority_class::PriorityClass,
        )
        .short(&["pc"]),
    ]
}

/// What every cluster has before its first client.
pub fn initial_objects() -> Vec<Value> {
    let namespaces = ["default", "kube-node-lease", "kube-public", "kube-system"];
    let mut objects: Vec<Value> = namespaces
        .iter()
        .map(|name| json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}))
        .collect();
    objects.extend(priority_class::system_classes());
    objects
}

fn cluster(
    api_version: &'static str,
    plural: &'static str,
    kind: &'static str,
    rules: impl Rules + 'static,
) -> Kind {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Kind {
        group: group.into(),
        version: version.into(),
        plural: plural.into(),
        singular: kind.to_lowercase().into(),
        kind: kind.into(),
        list_kind: format!("{kind}List").into(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: false,
        verbs: ALL_VERBS.to_vec(),
        subresources: Vec::new(),
        schema: Schema::builtin(api_version, kind)
            .expect("the generated table has every built-in kind"),
        rules: Arc::new(rules),
        scale: None,
        alias: None,
    }
}

fn namespaced(
    api_version: &'static str,
    plural: &'static str,
    kind: &'static str,
    rules: impl Rules + 'static,
) -> Kind {
    Kind {
        namespaced: true,
        ..cluster(api_version, plural, kind, rules)
    }
}

impl Kind {
    fn short(mut self, names: &[&'static str]) -> Self {
        self.short_names = names.iter().map(|name| Name::from(*name)).collect();
        self
    }

    /// Shown by `kubectl get all`.
    fn in_all(mut self) -> Self {
        self.categories = vec!["all".into()];
        self
    }

    fn only(mut self, verbs: &[&'static str]) -> Self {
        self.verbs = verbs.to_vec();
        self
    }

    fn without(mut self, verb: &str) -> Self {
        self.verbs.retain(|v| *v != verb);
        self
    }

    fn sub(mut self, name: &'static str, verbs: &[&'static str]) -> Self {
        self.subresources.push(Subresource {
            name: name.into(),
            body: None,
            verbs: verbs.to_vec(),
        });
        self
    }

    fn sub_of(
        mut self,
        name: &'static str,
        (group, version, kind): (&'static str, &'static str, &'static str),
        verbs: &[&'static str],
    ) -> Self {
        self.subresources.push(Subresource {
            name: name.into(),
            body: Some((group.into(), version.into(), kind.into())),
            verbs: verbs.to_vec(),
        });
        self
    }

    fn status(self) -> Self {
        self.sub("status", &READ_AND_WRITE)
    }

    /// The `scale` subresource of a workload: its numbers are where all built-in kinds have them.
    fn scale(mut self) -> Self {
        self.scale = Some(ScalePaths {
            spec_replicas: "spec.replicas".into(),
            status_replicas: "status.replicas".into(),
            selector: Some("spec.selector".into()),
        });
        self.sub_of("scale", ("autoscaling", "v1", "Scale"), &READ_AND_WRITE)
    }

    fn alias(mut self, alias: crate::kind::Alias) -> Self {
        self.alias = Some(alias);
        self
    }
}

/// The text a field selector compares: numbers and booleans as written, nothing for no value.
fn selector_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The value of one of `fields`, for kinds whose selectors are plain paths.
fn select(object: &Value, fields: &[&str], path: &str) -> Option<String> {
    fields
        .contains(&path)
        .then(|| selector_text(crate::fields::at(object, path)))
}

fn names(fields: &'static [&'static str]) -> Vec<Name> {
    fields.iter().map(|field| Name::from(*field)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_and_subresources_come_sorted() {
        for kind in builtin() {
            let subresources: Vec<_> = kind.subresources.iter().map(|s| &s.name).collect();
            assert!(kind.verbs.is_sorted(), "{}", kind.plural);
            assert!(
                subresources.is_sorted(),
                "{}: {subresources:?}",
                kind.plural
            );
        }
    }
}
