//! The sums behind the mid and batch resources of a node, planned again from the objects as the tier controller plans them.

use anyhow::Result;
use api::agent_settings::COLOCATION as COLOCATION_KEY;
use api::contracts::COLOCATION;
use api::parse::{self, koordinator};
use api::wire::core::Pod;
use api::wire::koordinator::{self as wire, CapacityNode};
use control_plane::controllers::tiers::phase_name;
use engine::model::Timestamp;
use engine::node::Figure;
use engine::policies::agents::AGENT_SILENT;
use engine::policies::tiers::{
    ColocationConfig, NodeMetric, TierNode, TierNodeObject, TierPlan, TierPod, plan,
};
use http::Request;
use kube::Client;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::exit::{Code, error};
use crate::foreign::one_line;

/// What the tier controller plans for a node.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TierSums {
    /// `current`, `stale` or `disabled`.
    pub(super) phase: String,
    /// Why the settings in the ConfigMap are not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) settings_error: Option<String>,
    pub(super) figures: Vec<TierSum>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TierSum {
    #[serde(flatten)]
    pub(super) figure: Figure,
    /// What the status of the Node has; None: it has no such key.
    pub(super) published: Option<i64>,
}

/// An object of the cluster, None if it does not exist.
pub(super) async fn get<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    what: &str,
) -> Result<Option<T>> {
    let request = Request::get(path).body(Vec::new())?;
    match client.request(request).await {
        Ok(object) => Ok(Some(object)),
        // A server without the kind answers 404 with a page instead of a Status.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(why) => {
            let why = why.to_string();
            let text = format!("cannot read {what}: {}", one_line(&why));
            Err(error(Code::Failed, text))
        }
    }
}

/// None if the Node does not exist. `cnr` is its CustomNodeResource, or null.
pub(super) async fn read(
    client: &Client,
    name: &str,
    cnr: &Value,
    pods: &[Pod],
) -> Result<Option<TierSums>> {
    let node = format!("/api/v1/nodes/{name}");
    let metric = format!("/apis/slo.koordinator.sh/v1alpha1/nodemetrics/{name}");
    let (node, metric, config) = tokio::try_join!(
        get::<CapacityNode>(client, &node, "the node"),
        get::<wire::NodeMetric>(client, &metric, "its NodeMetric"),
        settings(client),
    )?;
    let Some(node) = node else {
        return Ok(None);
    };
    let (node, _) = koordinator::tier_node(&node);
    let metric = metric.map(|metric| koordinator::node_metric(&metric).0);
    let (config, settings_error) = match config {
        Ok(config) => (config, None),
        Err(why) => (ColocationConfig::default(), Some(why)),
    };
    let pods = pods.iter();
    let pods: Vec<TierPod> = pods
        .filter_map(|pod| koordinator::tier_pod(pod).ok())
        .collect();
    let planned = planned(&node, &pods, metric.as_ref(), cnr, &config);
    let figures = planned.figures.into_iter().zip(node.published);
    Ok(Some(TierSums {
        phase: phase_name(planned.phase).to_owned(),
        settings_error,
        figures: figures
            .map(|(figure, published)| TierSum { figure, published })
            .collect(),
    }))
}

fn planned(
    node: &TierNodeObject,
    pods: &[TierPod],
    metric: Option<&NodeMetric>,
    cnr: &Value,
    config: &ColocationConfig,
) -> TierPlan {
    let report = serde_json::from_value(cnr.clone()).ok();
    let report = report.map(|report| parse::custom_node_resource(&report).0);
    let mut taints = cnr["spec"]["taints"].as_array().into_iter().flatten();
    let observed = TierNode {
        capacity: node.capacity,
        allocatable: node.allocatable,
        reservation: node.reservation,
        pods,
        metric,
        report: report.as_ref(),
        agent_silent: taints.any(|taint| taint["key"] == AGENT_SILENT),
    };
    let strategy = config.strategy(&node.labels, node.overrides.as_ref());
    let nanos = i64::try_from(jiff::Timestamp::now().as_nanosecond());
    let now = Timestamp(nanos.unwrap_or(i64::MAX));
    let with_gate = |no_overselling| {
        plan(
            &observed,
            &strategy,
            no_overselling,
            &node.published,
            None,
            now,
        )
    };
    // The feature gate MidNoOverselling is a flag of the controllers: only what they published shows it.
    let (usual, gated) = (with_gate(false), with_gate(true));
    let mid = |values: &engine::policies::tiers::Published| [values[0], values[1]];
    match mid(&gated.values) == mid(&node.published) && mid(&usual.values) != mid(&node.published) {
        true => gated,
        false => usual,
    }
}

/// The pods of a node that have not ended.
pub(super) async fn pods(client: &Client, node: &str) -> Result<Vec<Pod>> {
    #[derive(Deserialize)]
    struct PodList {
        #[serde(default)]
        items: Vec<Pod>,
    }
    let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}");
    let list: Option<PodList> = get(client, &path, "the pods of the node").await?;
    let pods = list.into_iter().flat_map(|list| list.items);
    Ok(pods.filter(|pod| !pod.is_finished()).collect())
}

/// The settings of the cluster, or why they cannot be used.
async fn settings(client: &Client) -> Result<Result<ColocationConfig, String>> {
    let (namespace, name) = COLOCATION;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
    let what = format!("ConfigMap {namespace}/{name}");
    let map: Option<Value> = get(client, &path, &what).await?;
    let map = map.unwrap_or_default();
    let text = map["data"][COLOCATION_KEY].as_str().unwrap_or_default();
    let config = koordinator::colocation_config(text);
    Ok(config.map_err(|why| format!("{COLOCATION_KEY} of {what}: {}", one_line(&why))))
}
