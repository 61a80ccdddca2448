//! The metrics of the controller of agents.

use engine::policies::agents::Judgement;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// What is counted; the rest is read from the last judgement.
#[derive(Debug, Default)]
pub(super) struct AgentMetrics {
    pub(super) taints: Counter,
    pub(super) evictions: Counter,
}

impl AgentMetrics {
    pub(super) fn register(&self, registry: &mut Registry, judgement: Judgement) {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        for (name, help, value) in [
            (
                "tidepool_agents",
                "Nodes with the Lease of an agent",
                count(judgement.agents),
            ),
            (
                "tidepool_silent_agents",
                "Agents that have not renewed their Leases",
                count(judgement.silent),
            ),
            (
                "tidepool_silent_agents_brake",
                "1 while too many agents are late: no node is tainted and no pod is evicted",
                i64::from(judgement.brake),
            ),
        ] {
            let gauge: Gauge = Gauge::default();
            gauge.set(value);
            registry.register(name, help, gauge);
        }
        registry.register(
            "tidepool_silent_agent_taints",
            "Nodes tainted because their agents were silent",
            self.taints.clone(),
        );
        registry.register(
            "tidepool_silent_agent_evictions",
            "Pods evicted because the agents of their nodes were silent",
            self.evictions.clone(),
        );
    }
}
