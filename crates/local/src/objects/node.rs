//! Nodes, as the engine reads them.

use api::{
    parse::{self, ParseError},
    wire::{core as wire, meta},
};
use k8s_openapi::api::core::v1::Node;

/// The engine's model of a node, or why it cannot be parsed.
pub(crate) fn model(node: &Node) -> Result<engine::model::Node, ParseError> {
    parse::node(&wire(node))
}

fn wire(node: &Node) -> wire::Node {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (spec, status) = (node.spec.as_ref(), node.status.as_ref());
    let taints = spec.and_then(|spec| spec.taints.as_ref());
    let taints = taints.into_iter().flatten().map(|taint| wire::Taint {
        key: taint.key.clone(),
        value: text(&taint.value),
        effect: taint.effect.clone(),
    });
    let allocatable = status.and_then(|status| status.allocatable.as_ref());
    let allocatable = allocatable.into_iter().flatten();
    wire::Node {
        metadata: meta::ObjectMeta {
            name: text(&node.metadata.name),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            ..meta::ObjectMeta::default()
        },
        spec: wire::NodeSpec {
            taints: taints.collect(),
            ..wire::NodeSpec::default()
        },
        status: wire::NodeStatus {
            allocatable: allocatable
                .map(|(name, amount)| (name.clone(), meta::Quantity(amount.0.clone())))
                .collect(),
            ..wire::NodeStatus::default()
        },
    }
}
