//! ResourcePolicies: which nodes the pods of a workload fill first, and how many of them each kind of node takes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Applied, Changed, Key, Watched, set_in};
use crate::cluster::{Catalog, Cluster};
use crate::model::{Labels, Name, PodKind, SharedSpec};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourcePolicy {
    pub namespace: Name,
    pub name: Name,
    pub generation: i64,
    /// What it says, or why it has no effect: one sentence that names the field, its value and what is allowed.
    pub spec: Result<SharedSpec, Name>,
}

impl Watched for ResourcePolicy {
    const NAME: &'static str = "scheduling.sigs.x-k8s.io/ResourcePolicy";
    const PLURAL: &'static str = "resourcePolicies";
    const NAMESPACED: bool = true;

    fn key(&self) -> Key {
        Key::new(self.namespace.clone(), self.name.clone())
    }

    /// A change of labels or of the status is no event: nothing here says that it was one.
    fn apply(cluster: &mut Cluster, key: Key, new: Option<Self>) -> Applied {
        let change = set_in(
            &mut cluster.catalog_mut().objects.resource_policies,
            key,
            new,
        );
        let spec = |policy: &Arc<Self>| policy.spec.clone();
        if change.old.as_ref().map(spec) == change.new.as_ref().map(spec) {
            return Ok(Vec::new());
        }
        Ok(change.events(Changed::ResourcePolicy))
    }
}

impl ResourcePolicy {
    /// Whether it has effect on the pod.
    pub fn selects(&self, pod: &PodKind) -> bool {
        let spec = self.spec.as_ref();
        self.namespace == pod.namespace && spec.is_ok_and(|spec| spec.selects(&pod.labels))
    }
}

impl Catalog {
    /// Those of the namespace that have effect on pods with these labels, by name.
    pub fn policies_for(
        &self,
        namespace: &str,
        pod: &Labels,
    ) -> Vec<(&Arc<ResourcePolicy>, &SharedSpec)> {
        let policies = self.resource_policies(namespace);
        let policies = policies.filter_map(|policy| Some((policy, policy.spec.as_ref().ok()?)));
        policies.filter(|(_, spec)| spec.selects(pod)).collect()
    }

    /// All of a namespace by name, also those without effect.
    pub fn resource_policies(&self, namespace: &str) -> impl Iterator<Item = &Arc<ResourcePolicy>> {
        let policies = self.objects.resource_policies.get(namespace);
        policies.into_iter().flat_map(BTreeMap::values)
    }
}
