//! Builders of the reports of agents.

use std::sync::Arc;

use super::objects::quantities;
use crate::cluster::CustomNodeResource;
use crate::cluster::kinds::Object;
use crate::model::{
    Allocation, Amounts, Effect, QosLevel, QosTaint, Reclaimed, Taint, Topology, TopologyPolicy,
    Zone,
};

#[derive(Debug, Clone)]
pub struct ReportBuilder(CustomNodeResource);

/// The report of a node that lends nothing.
pub fn report(node: &str) -> ReportBuilder {
    ReportBuilder(CustomNodeResource {
        node: node.into(),
        ..CustomNodeResource::default()
    })
}

impl ReportBuilder {
    /// Thousandths of a core, and bytes.
    pub fn lends(mut self, milli_cpu: i64, memory: i64) -> Self {
        self.0.allocatable = Reclaimed::lent(milli_cpu, memory);
        self
    }

    /// With this capacity: the idle pool.
    pub fn pool(mut self, milli_cpu: i64, memory: i64) -> Self {
        self.0.pool = Some(Reclaimed::lent(milli_cpu, memory));
        self
    }

    pub fn taint(mut self, key: &str, value: &str, effect: &str, level: QosLevel) -> Self {
        let taint = Taint {
            key: key.into(),
            value: value.into(),
            effect: Effect::parse(effect),
        };
        self.0.taints.push(QosTaint { taint, level });
        self
    }

    /// With the condition `MidLSUnsupported`.
    pub fn refuses_mid_latency_sensitive(mut self) -> Self {
        self.0.refuses_mid_latency_sensitive = true;
        self
    }

    /// A NUMA zone: `zone("0", 1, "cpu=4 memory=8Gi")` is zone 1 in socket 0.
    pub fn zone(self, socket: &str, id: u8, amounts: &str) -> Self {
        self.with_topology(|_, zones| {
            let amounts = amounts_of(amounts);
            zones.push(Zone {
                id,
                socket: socket.into(),
                allocatable: amounts.clone(),
                capacity: amounts,
                reclaimed: None,
                distances: Vec::new(),
                reserved_cpus: "".into(),
                allocations: Vec::new(),
            });
        })
    }

    /// The agent saw the pod use this much of a zone.
    pub fn allocation(self, id: u8, uid: &str, amounts: &str) -> Self {
        self.with_topology(|_, zones| {
            for zone in zones.iter_mut().filter(|zone| zone.id == id) {
                zone.allocations.push(Allocation {
                    uid: uid.into(),
                    requests: amounts_of(amounts),
                });
            }
        })
    }

    pub fn policy(self, policy: &str) -> Self {
        self.with_topology(|known, _| *known = TopologyPolicy::parse(policy))
    }

    /// Anything else about its zones.
    pub fn with_topology(
        mut self,
        change: impl FnOnce(&mut TopologyPolicy, &mut Vec<Zone>),
    ) -> Self {
        let known = self.0.topology.as_deref().cloned().unwrap_or_default();
        let (mut policy, mut zones) = (known.policy, known.zones().to_vec());
        change(&mut policy, &mut zones);
        self.0.topology = Some(Arc::new(Topology::new(policy, zones)));
        self
    }

    pub fn build(self) -> CustomNodeResource {
        self.0
    }
}

impl From<ReportBuilder> for Object {
    fn from(report: ReportBuilder) -> Self {
        report.build().into()
    }
}

fn amounts_of(text: &str) -> Amounts {
    let quantities = quantities(text).into_iter();
    let amounts = quantities.map(|(resource, quantity)| {
        let amount = resource.integer(quantity);
        (resource, amount)
    });
    amounts.collect()
}
