//! Services: which pods they select, for default spreading.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Applied, Key, Watched, set_in};
use crate::cluster::{Catalog, Cluster};
use crate::model::{Labels, Name};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    pub namespace: Name,
    pub name: Name,
    /// `None` for services without a selector: they match no pod.
    pub selector: Option<Labels>,
}

impl Watched for Service {
    const NAME: &'static str = "Service";
    const PLURAL: &'static str = "services";
    const NAMESPACED: bool = true;

    fn key(&self) -> Key {
        Key::new(self.namespace.clone(), self.name.clone())
    }

    fn apply(cluster: &mut Cluster, key: Key, new: Option<Self>) -> Applied {
        set_in(&mut cluster.catalog_mut().objects.services, key, new);
        Ok(Vec::new())
    }
}

impl Catalog {
    pub fn services(&self, namespace: &str) -> impl Iterator<Item = &Arc<Service>> {
        let services = self.objects.services.get(namespace);
        services.into_iter().flat_map(BTreeMap::values)
    }
}
