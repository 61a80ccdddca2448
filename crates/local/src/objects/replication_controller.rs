//! ReplicationControllers: ReplicaSets with an older form of selector.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::replica_set::{ReplicaSetSpec, ReplicaSetStatus, Replicated};

super::kind!(ReplicationController, "", "replicationcontrollers");

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct ReplicationController {
    pub(crate) metadata: ObjectMeta,
    #[serde(deserialize_with = "spec")]
    spec: ReplicaSetSpec,
    #[serde(default)]
    status: ReplicaSetStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    replicas: i32,
    min_ready_seconds: i32,
    selector: BTreeMap<String, String>,
    template: Value,
}

fn spec<'de, D: Deserializer<'de>>(input: D) -> Result<ReplicaSetSpec, D::Error> {
    let spec = Spec::deserialize(input)?;
    Ok(ReplicaSetSpec {
        replicas: spec.replicas,
        min_ready_seconds: spec.min_ready_seconds,
        selector: LabelSelector {
            match_labels: Some(spec.selector),
            match_expressions: None,
        },
        template: spec.template,
    })
}

impl Replicated for ReplicationController {
    const CONTROLLER: &'static str = "replication-controller";

    fn spec(&self) -> &ReplicaSetSpec {
        &self.spec
    }

    fn status(&self) -> &ReplicaSetStatus {
        &self.status
    }
}
