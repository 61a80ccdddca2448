//! A builder of ResourcePolicies.

use std::sync::Arc;

use crate::cluster::ResourcePolicy;
use crate::cluster::kinds::{Object, Update};
use crate::model::{Labels, PolicySpec, PolicyStrategy, Requirement, Selector, Unit};

#[derive(Debug, Clone)]
pub struct PolicyBuilder {
    namespace: String,
    name: String,
    spec: PolicySpec,
}

/// A policy in namespace `default` for all its pods, without units.
pub fn policy(name: &str) -> PolicyBuilder {
    PolicyBuilder {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        spec: PolicySpec {
            pods: Selector::EVERYTHING,
            match_label_keys: Vec::new(),
            ignore_terminating: false,
            strategy: PolicyStrategy::Required,
            units: Vec::new(),
        },
    }
}

impl PolicyBuilder {
    pub fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    pub fn selects(mut self, key: &str, value: &str) -> Self {
        self.spec.pods = Selector::all([Requirement::equals(key, value)]);
        self
    }

    pub fn key(mut self, key: &str) -> Self {
        self.spec.match_label_keys.push(key.into());
        self
    }

    pub fn ignores_terminating(mut self) -> Self {
        self.spec.ignore_terminating = true;
        self
    }

    pub fn prefers(mut self) -> Self {
        self.spec.strategy = PolicyStrategy::Prefer;
        self
    }

    /// A unit of the nodes with all of these labels: `"kind=spot zone=a"`; without any of all nodes.
    pub fn unit(mut self, name: &str, priority: u16, max_count: Option<u32>, nodes: &str) -> Self {
        let pairs = nodes
            .split_whitespace()
            .filter_map(|pair| pair.split_once('='));
        self.spec.units.push(Unit {
            name: name.into(),
            priority,
            max_count,
            nodes: Selector::pairs(&pairs.collect::<Labels>()),
        });
        self
    }

    pub fn build(self) -> ResourcePolicy {
        ResourcePolicy {
            namespace: self.namespace.into(),
            name: self.name.into(),
            generation: 1,
            spec: Ok(Arc::new(self.spec)),
        }
    }
}

impl From<PolicyBuilder> for Update {
    fn from(builder: PolicyBuilder) -> Self {
        Self::Set(Object::from(builder.build()))
    }
}
