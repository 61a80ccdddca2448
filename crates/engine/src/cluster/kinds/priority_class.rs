//! PriorityClasses: the priority of pods that the API server has not given one. It gives one to most, on creation.

use super::{Applied, Key, Watched, set_in};
use crate::cluster::{Catalog, Cluster};
use crate::model::{Name, PreemptionPolicy};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriorityClass {
    pub name: Name,
    pub value: i32,
    /// It is the class of pods that name none.
    pub global_default: bool,
    pub preemption_policy: PreemptionPolicy,
}

impl Watched for PriorityClass {
    const NAME: &'static str = "scheduling.k8s.io/PriorityClass";
    const PLURAL: &'static str = "priorityClasses";
    const NAMESPACED: bool = false;

    fn key(&self) -> Key {
        self.name.clone().into()
    }

    fn apply(cluster: &mut Cluster, key: Key, new: Option<Self>) -> Applied {
        set_in(
            &mut cluster.catalog_mut().objects.priority_classes,
            key,
            new,
        );
        Ok(Vec::new())
    }
}

impl Catalog {
    /// The class of this name; for pods that name none the default, of several the one with the smallest value.
    pub fn priority_class(&self, name: Option<&str>) -> Option<&PriorityClass> {
        let classes = self.objects.priority_classes.get("")?;
        let class = match name {
            Some(name) => classes.get(name),
            None => {
                let defaults = classes.values().filter(|class| class.global_default);
                defaults.min_by_key(|class| class.value)
            }
        };
        class.map(|class| &**class)
    }
}
