//! PodDisruptionBudgets: which evictions preemption should avoid.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Applied, Key, Watched, set_in};
use crate::cluster::{Catalog, Cluster};
use crate::model::{Name, Selector, Timestamp};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    pub namespace: Name,
    pub name: Name,
    pub selector: Selector,
    pub disruptions_allowed: i32,
    /// Pods whose disruption is already counted, with the time it was.
    pub disrupted_pods: Vec<(Name, Timestamp)>,
}

impl Watched for Budget {
    const NAME: &'static str = "policy/PodDisruptionBudget";
    const PLURAL: &'static str = "podDisruptionBudgets";
    const NAMESPACED: bool = true;

    fn key(&self) -> Key {
        Key::new(self.namespace.clone(), self.name.clone())
    }

    fn apply(cluster: &mut Cluster, key: Key, new: Option<Self>) -> Applied {
        set_in(&mut cluster.catalog_mut().objects.budgets, key, new);
        Ok(Vec::new())
    }
}

impl Catalog {
    pub fn has_budgets(&self) -> bool {
        !self.objects.budgets.is_empty()
    }

    pub fn budgets(&self, namespace: &str) -> impl Iterator<Item = &Arc<Budget>> {
        let budgets = self.objects.budgets.get(namespace);
        budgets.into_iter().flat_map(BTreeMap::values)
    }
}
