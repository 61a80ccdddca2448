//! The built-in kinds: names, verbs and subresources as discovery shows them.
//!
//! The rules of the kinds are in `kinds/`, one file per kind or small family.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::objects::schema::Schema;
use kind::{Alias, Kind, Name, Rules, ScalePaths, Subresource};

mod config;
mod disruption_budget;
mod event;
pub(crate) mod kind;
mod lease;
mod limit_range;
pub(crate) mod metadata;
pub(crate) mod metrics;
mod namespace;
mod node;
mod plain;
mod pod;
pub(crate) mod printer;
mod priority_class;
mod quantity;
mod review;
mod runtime_class;
mod selector;
mod service;
mod spec_status;
mod storage;
mod workload;

use disruption_budget::DisruptionBudget;
use plain::PLAIN;
use priority_class::PriorityClass;
use runtime_class::RuntimeClass;

pub(crate) use pod::TOPOLOGY_LABELS;
pub(crate) use review::reviews;
pub(crate) use spec_status::{count_spec_changes, separate_status};

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
/// The verbs of subresources that open a connection to a container.
const CONNECT: [&str; 2] = ["create", "get"];
const READ_AND_WRITE: [&str; 3] = ["get", "patch", "update"];

/// Every built-in kind.
pub(crate) fn builtin() -> Vec<Kind> {
    let mut kinds = core();
    kinds.extend(workloads());
    kinds.extend(policy());
    kinds.extend(storage());
    kinds.extend(plain::kinds());
    kinds
}

fn core() -> Vec<Kind> {
    vec![
        namespaced("v1", "bindings", "Binding", PLAIN).only(&["create"]),
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
            .returns_deleted()
            .in_all()
            .sub_of("attach", ("", "v1", "PodAttachOptions"), &CONNECT)
            .sub_of("binding", ("", "v1", "Binding"), &["create"])
            .sub_of("eviction", ("policy", "v1", "Eviction"), &["create"])
            .sub_of("exec", ("", "v1", "PodExecOptions"), &CONNECT)
            .sub("log", &["get"])
            .sub_of("portforward", ("", "v1", "PodPortForwardOptions"), &CONNECT)
            .sub("resize", &READ_AND_WRITE)
            .status(),
        namespaced("v1", "secrets", "Secret", config::Secret),
        namespaced("v1", "serviceaccounts", "ServiceAccount", PLAIN)
            .short(&["sa"])
            .returns_deleted(),
        namespaced("v1", "services", "Service", service::Service)
            .short(&["svc"])
            .returns_deleted()
            .in_all()
            .status(),
    ]
}

fn workloads() -> Vec<Kind> {
    vec![
        namespaced(
            "v1",
            "replicationcontrollers",
            "ReplicationController",
            workload::ReplicationController,
        )
        .short(&["rc"])
        .in_all()
        .scale()
        .status(),
        namespaced("apps/v1", "deployments", "Deployment", workload::Deployment)
            .short(&["deploy"])
            .in_all()
            .scale()
            .status(),
        namespaced("apps/v1", "replicasets", "ReplicaSet", workload::ReplicaSet)
            .short(&["rs"])
            .in_all()
            .scale()
            .status(),
        namespaced(
            "apps/v1",
            "statefulsets",
            "StatefulSet",
            workload::StatefulSet,
        )
        .short(&["sts"])
        .in_all()
        .scale()
        .status(),
        namespaced("apps/v1", "daemonsets", "DaemonSet", workload::DaemonSet)
            .short(&["ds"])
            .in_all()
            .status(),
        namespaced("batch/v1", "cronjobs", "CronJob", workload::CronJob)
            .short(&["cj"])
            .in_all()
            .status(),
        namespaced("batch/v1", "jobs", "Job", workload::Job)
            .in_all()
            .status(),
    ]
}

fn policy() -> Vec<Kind> {
    vec![
        namespaced("coordination.k8s.io/v1", "leases", "Lease", lease::Lease),
        namespaced("events.k8s.io/v1", "events", "Event", event::EventV1)
            .short(&["ev"])
            .alias(event::ALIAS),
        cluster(
            "node.k8s.io/v1",
            "runtimeclasses",
            "RuntimeClass",
            RuntimeClass,
        ),
        namespaced(
            "policy/v1",
            "poddisruptionbudgets",
            "PodDisruptionBudget",
            DisruptionBudget,
        )
        .short(&["pdb"])
        .status(),
        cluster(
            "scheduling.k8s.io/v1",
            "priorityclasses",
            "PriorityClass",
            PriorityClass,
        )
        .short(&["pc"]),
    ]
}

fn storage() -> Vec<Kind> {
    vec![
        namespaced(
            "v1",
            "persistentvolumeclaims",
            "PersistentVolumeClaim",
            storage::Claim,
        )
        .short(&["pvc"])
        .returns_deleted()
        .status(),
        cluster(
            "v1",
            "persistentvolumes",
            "PersistentVolume",
            storage::Volume,
        )
        .short(&["pv"])
        .returns_deleted()
        .status(),
        cluster(
            "storage.k8s.io/v1",
            "csidrivers",
            "CSIDriver",
            storage::CsiDriver,
        )
        .returns_deleted(),
        cluster("storage.k8s.io/v1", "csinodes", "CSINode", storage::CsiNode).returns_deleted(),
        namespaced(
            "storage.k8s.io/v1",
            "csistoragecapacities",
            "CSIStorageCapacity",
            storage::StorageCapacity,
        ),
        cluster(
            "storage.k8s.io/v1",
            "storageclasses",
            "StorageClass",
            storage::StorageClass,
        )
        .short(&["sc"])
        .returns_deleted(),
        cluster(
            "storage.k8s.io/v1",
            "volumeattachments",
            "VolumeAttachment",
            storage::VolumeAttachment,
        )
        .returns_deleted()
        .status(),
    ]
}

/// The objects that every cluster has from the start.
pub(crate) fn initial_objects() -> Vec<Value> {
    let namespaces = ["default", "kube-node-lease", "kube-public", "kube-system"];
    let mut objects: Vec<Value> = namespaces
        .iter()
        .map(|name| json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}))
        .collect();
    objects.extend(priority_class::system_classes());
    objects.push(service::kubernetes_service());
    objects
}

pub(crate) fn cluster(
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
        deprecated: None,
        returns_deleted: false,
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
    pub(crate) fn short(mut self, names: &[&'static str]) -> Self {
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

    pub(crate) fn status(self) -> Self {
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

    /// A deletion is answered with the object.
    fn returns_deleted(mut self) -> Self {
        self.returns_deleted = true;
        self
    }

    /// Every response warns with this text.
    fn deprecated(mut self, warning: &'static str) -> Self {
        self.deprecated = Some(warning);
        self
    }

    fn alias(mut self, alias: Alias) -> Self {
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
        .then(|| selector_text(crate::objects::fields::at(object, path)))
}

fn names(fields: &'static [&'static str]) -> Vec<Name> {
    fields.iter().map(|field| Name::from(*field)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::fields::text;

    #[test]
    fn a_cluster_starts_with_its_own_namespaces() {
        let names: Vec<_> = initial_objects()
            .iter()
            .map(|object| text(object, "metadata.name").to_owned())
            .collect();
        for name in [
            "default",
            "kube-system",
            "kube-public",
            "kube-node-lease",
            "kubernetes",
            "system-node-critical",
        ] {
            assert!(names.iter().any(|n| n == name), "{name}");
        }
    }
}
