//! Builders of the reports of agents.

use crate::kinds::Object;
use crate::model::{CustomNodeResource, Effect, QosLevel, QosTaint, Reclaimed, Taint};

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

    pub fn build(self) -> CustomNodeResource {
        self.0
    }
}

impl From<ReportBuilder> for Object {
    fn from(report: ReportBuilder) -> Self {
        report.build().into()
    }
}
