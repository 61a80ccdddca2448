//! Namespaces: their labels, which pod (anti-)affinity can select.

use super::{Applied, Key, Watched, set_in};
use crate::cluster::{Catalog, Cluster};
use crate::model::{Labels, Name};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    pub name: Name,
    pub labels: Labels,
}

impl Watched for Namespace {
    const NAME: &'static str = "Namespace";
    const PLURAL: &'static str = "namespaces";
    const NAMESPACED: bool = false;

    fn key(&self) -> Key {
        self.name.clone().into()
    }

    fn apply(cluster: &mut Cluster, key: Key, new: Option<Self>) -> Applied {
        set_in(&mut cluster.catalog_mut().objects.namespaces, key, new);
        Ok(Vec::new())
    }
}

impl Catalog {
    /// The labels of a namespace; `None` if it is not known.
    pub fn namespace(&self, name: &str) -> Option<&Labels> {
        let namespace = self.objects.namespaces.get("")?.get(name)?;
        Some(&namespace.labels)
    }

    pub fn namespaces(&self) -> impl Iterator<Item = (&Name, &Labels)> {
        let all = self.objects.namespaces.values().flatten();
        all.map(|(name, namespace)| (name, &namespace.labels))
    }
}
