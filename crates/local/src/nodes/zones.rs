//! The NUMA zones of simulated nodes, as an agent reports them: a node with the annotation [`NUMA`] has equal zones in its
//! CustomNodeResource, with the pods that have them.
//!
//! Which pod has which zone is decided by the engine, from the annotations of the bound pods.

use std::{sync::Arc, time::Duration};

use api::{parse, zone_grid::ZoneGrid};
use engine::model;
use engine::scheduling::framework::{NodeZones, ZoneHolder};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Resource, core::Request};
use reconcile::{Error, Index, Key, Part, Requeue, is_already_exists};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Kubelets, NodeError, Nodes, is_silent, shape};
use crate::objects::Pod;

/// Annotation of a Node: its sockets and NUMA zones, such as `2x2`.
pub const NUMA: &str = "tidepool.io/numa";

const COLLECTION: &str = "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources";

pub(super) fn annotation(node: &Node) -> Option<&str> {
    let annotations = node.metadata.annotations.as_ref()?;
    annotations.get(NUMA).map(String::as_str)
}

/// Whether a change of the pod can change who has which zone.
pub(super) fn claims_zones(pod: &Pod) -> bool {
    pod.is_bound() && pod.annotation(model::NUMA_ZONES).is_some()
}

/// A pod has its zones while its containers exist.
fn is_seen(pod: &Pod) -> bool {
    !pod.is_finished() && !pod.status.container_statuses.is_empty()
}

/// The status of the CustomNodeResource of a node with these zones and pods.
fn status(grid: ZoneGrid, node: &Node, pods: &[Arc<Pod>]) -> Result<Value, String> {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let allocatable = node.status.as_ref().and_then(|it| it.allocatable.as_ref());
    let amount = |resource: &str| {
        let amount = allocatable.and_then(|all| all.get(resource));
        amount.map_or("0", |amount| &amount.0)
    };
    let mut report = grid.report(name, amount("cpu"), amount("memory"))?;
    let manifest = serde_json::from_value(report.clone()).map_err(|error| error.to_string())?;
    let (known, _) = parse::custom_node_resource(&manifest);
    let topology = known.topology.ok_or("the node has no NUMA zones")?;
    let seen = pods.iter().filter(|pod| is_seen(pod));
    let seen: Vec<&Arc<model::Pod>> = seen.filter_map(|pod| pod.model().ok()).collect();
    let zones = NodeZones::of(&topology, seen.iter().copied());
    let sockets = report["status"]["topologyZone"].as_array_mut();
    let children = sockets.into_iter().flatten();
    let children = children.filter_map(|socket| socket["children"].as_array_mut());
    for zone in children.flatten() {
        let id = zone["name"].as_str().and_then(|name| name.parse().ok());
        let allocations = allocations(&zones, &seen, id.unwrap_or(u8::MAX));
        if !allocations.is_empty() {
            zone["allocations"] = allocations.into();
        }
    }
    Ok(report["status"].take())
}

/// The pods in a zone, with what they request: a pod with several zones requests an equal part from each.
fn allocations(zones: &NodeZones, pods: &[&Arc<model::Pod>], id: u8) -> Vec<Value> {
    let holders = zones.holders().iter().filter(|it| it.zones.contains(id));
    let allocation = |holder: &ZoneHolder| {
        let pod = pods.iter().find(|pod| pod.uid == holder.uid)?;
        let parts = i64::try_from(holder.zones.len()).ok()?;
        let is_first = holder.zones.iter().next() == Some(id);
        let part = |amount: i64| match is_first {
            true => amount - amount / parts * (parts - 1),
            false => amount / parts,
        };
        let quantity = |resource: model::Resource| {
            let amount = part(pod.requests.placed.get(&resource));
            let quantity = resource.quantity(amount);
            (resource.name().to_owned(), Value::from(quantity))
        };
        let requests = [model::Resource::Cpu, model::Resource::Memory].map(quantity);
        Some(json!({
            "consumer": format!("{}/{}/{}", holder.namespace, holder.name, holder.uid),
            "requests": requests.into_iter().collect::<serde_json::Map<String, Value>>(),
        }))
    };
    holders.filter_map(allocation).collect()
}

impl Nodes {
    /// Fails if the cluster has no CustomNodeResources.
    pub async fn check_zones(&self) -> Result<(), NodeError> {
        let request = Request::new(COLLECTION).list(&kube::api::ListParams::default().limit(1));
        let request = request.map_err(kube::Error::BuildRequest)?;
        match self.kubelets.context.client.request_text(request).await {
            // kube-apiserver answers with a page, not with a Status, where it has no such path.
            Err(kube::Error::Api(status)) if status.code == 404 => Err(NodeError::NoZones),
            result => Ok(result.map(drop)?),
        }
    }
}

impl Kubelets {
    /// Reports the zones of a node and the pods that have them.
    pub(super) async fn update_zones(&self, key: Key) -> Result<Requeue, Error> {
        let node = self.context.nodes.get(&key).filter(|node| self.owns(node));
        let Some(node) = node.filter(|node| node.metadata.deletion_timestamp.is_none()) else {
            self.memory().zones.remove(&key.name);
            return Ok(Requeue::OnChange);
        };
        if is_silent(&node) {
            return Ok(Requeue::OnChange);
        }
        let known = self.memory().zones.get(&key.name).cloned();
        let Some(text) = annotation(&node) else {
            if known.is_some_and(|known| known.is_written) {
                let nothing = json!({"topologyPolicy": null, "topologyZone": null});
                self.write_zones(&node, nothing).await?;
            }
            self.memory().zones.remove(&key.name);
            return Ok(Requeue::OnChange);
        };
        let whole = shape::completed(&node, &self.network(&key.name), Timestamp::now());
        let pods = self.context.pods.indexed(&Index::Node(key.name.clone()));
        let grid = text.parse::<ZoneGrid>();
        let report = grid.and_then(|grid| status(grid, &whole, &pods));
        let interval = self.context.timings.node_status;
        // Ten seconds, where a node reports every five minutes.
        let check = interval / 30;
        let was_written = known.as_ref().is_some_and(|known| known.is_written);
        let mut uid = known.as_ref().and_then(|known| known.uid.clone());
        if was_written
            && self
                .are_zones_gone(&key.name, uid.as_deref(), check)
                .await?
        {
            self.memory().zone_check.gone = Some(Instant::now());
        }
        let gone = self.memory().zone_check.gone;
        // An unchanged report is written now and then, in case the object was deleted.
        if let Some(known) = known.filter(|known| known.report == report)
            && gone.is_none_or(|gone| known.at > gone)
            && let left = interval.saturating_sub(known.at.elapsed())
            && !left.is_zero()
        {
            return Ok(Requeue::After(left.min(check)));
        }
        match &report {
            Ok(status) => {
                let written = self.write_zones(&node, status.clone()).await?;
                if uid.is_some() && uid != written {
                    self.memory().zone_check.gone = Some(Instant::now());
                }
                uid = written;
            }
            Err(error) => {
                let message = format!("ignoring invalid annotation {NUMA}: {error}");
                let reason = "InvalidAnnotation";
                self.events.warning(&*node, reason, &message).await;
            }
        }
        let reported = ReportedZones {
            is_written: was_written || report.is_ok(),
            report,
            uid,
            at: Instant::now(),
        };
        self.memory().zones.insert(key.name, reported);
        Ok(Requeue::After(check))
    }

    /// Looks at one node's object now and then for all nodes: a definition that was deleted took all objects with it. Meanwhile the
    /// controllers may have made another object, which has no zones.
    async fn are_zones_gone(
        &self,
        node: &str,
        uid: Option<&str>,
        period: Duration,
    ) -> Result<bool, Error> {
        {
            let mut memory = self.memory();
            let at = memory.zone_check.at;
            if at.is_some_and(|at| at.elapsed() < period) {
                return Ok(false);
            }
            memory.zone_check.at = Some(Instant::now());
        }
        let request = Request::new(COLLECTION).get(node, &kube::api::GetParams::default());
        let request = request.map_err(kube::Error::BuildRequest)?;
        let object: Value = match self.context.client.request(request).await {
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(true),
            object => object?,
        };
        let is_other = object["metadata"]["uid"].as_str() != uid;
        Ok(is_other || object["status"]["topologyZone"].is_null())
    }

    /// Returns the uid of the object.
    async fn write_zones(&self, node: &Node, status: Value) -> Result<Option<String>, Error> {
        let requests = &self.context.requests;
        let target = ObjectMeta {
            name: node.metadata.name.clone(),
            ..ObjectMeta::default()
        };
        let fields = json!({"status": status});
        let write = || {
            let collection = COLLECTION.to_owned();
            requests.merge_at(collection, &target, Part::Status, fields.clone())
        };
        if let Some(written) = write().await? {
            return Ok(written.uid);
        }
        let object = json!({
            "apiVersion": "node.katalyst.kubewharf.io/v1alpha1",
            "kind": "CustomNodeResource",
            "metadata": {"name": target.name, "ownerReferences": [node.owner_ref(&())]},
            "spec": {},
        });
        match requests.create_at(COLLECTION, &object).await {
            Err(error) if !is_already_exists(&error) => return Err(error.into()),
            _ => {}
        }
        let written = write().await?;
        Ok(written.and_then(|written| written.uid))
    }
}

/// The look at an object for all nodes.
#[derive(Debug, Default)]
pub(super) struct ZoneCheck {
    at: Option<Instant>,
    /// When an object was found to be gone or another one. Older reports are written again.
    gone: Option<Instant>,
}

/// What was last reported for a node.
#[derive(Clone, Debug)]
pub(super) struct ReportedZones {
    /// The status, or why there is none.
    report: Result<Value, String>,
    /// The object has zones.
    is_written: bool,
    /// That of the object.
    uid: Option<String>,
    at: Instant,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::Shape;
    use crate::objects::pod::testing::pod;

    fn dedicated(name: &str, exclusive: &str, zones: &str, started: bool) -> Arc<Pod> {
        let enhancement = format!(r#"{{"numa_binding": "true", "numa_exclusive": "{exclusive}"}}"#);
        let statuses = if started { json!([{}]) } else { json!([]) };
        // Two zones are needed for more than one has.
        let cpu = if zones.contains(',') { "4" } else { "1500m" };
        let amounts = json!({"cpu": cpu, "memory": "2Gi"});
        Arc::new(pod(
            name,
            json!({
                "metadata": {"annotations": {
                    "katalyst.kubewharf.io/qos_level": "dedicated_cores",
                    "katalyst.kubewharf.io/memory_enhancement": enhancement,
                    "tidepool.io/numa-zones": zones,
                }},
                "spec": {"nodeName": "node-001", "containers": [{"name": "main", "resources": {"requests": amounts}}]},
                "status": {"containerStatuses": statuses},
            }),
        ))
    }

    #[test]
    fn each_zone_lists_the_pods_that_have_it() {
        let grid: ZoneGrid = "2x2".parse().unwrap();
        let node = Shape::demo(0, 1).node();
        let pods = [
            dedicated("alone", "true", "0,1", true),
            dedicated("x", "false", "2", true),
            dedicated("y", "false", "2", true),
            dedicated("late", "true", "0", true),
            dedicated("new", "true", "3", false),
        ];
        let status = status(grid, &node, &pods).unwrap();
        assert_eq!(status["topologyPolicy"], "NumericContainerLevel");
        let zone = |id: usize| &status["topologyZone"][id / 2]["children"][id % 2];
        assert_eq!(
            zone(0)["resources"]["allocatable"],
            json!({"cpu": "3900m", "memory": "16128Mi"})
        );
        let half = json!({"cpu": "2", "memory": "1Gi"});
        let part = json!({"cpu": "1500m", "memory": "2Gi"});
        let seen = |name: &str, requests: &Value| json!({"consumer": format!("ns/{name}/{name}"), "requests": requests});
        for (id, want) in [
            (0, json!([seen("alone", &half)])),
            (1, json!([seen("alone", &half)])),
            (2, json!([seen("x", &part), seen("y", &part)])),
            (3, Value::Null),
        ] {
            assert_eq!(zone(id)["allocations"], want, "{id}");
        }
    }
}
