//! ReplicationControllers, ReplicaSets and StatefulSets: which pods they own, for default spreading.

use super::{Applied, Key, Watched, set_in};
use crate::cluster::{Catalog, Cluster};
use crate::model::{Name, Owner, Selector};

/// A controller that owns pods, as far as its selector goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    pub namespace: Name,
    pub name: Name,
    pub selector: Selector,
}

macro_rules! workloads {
    ($($kind:ident in $table:ident: $api_version:literal $name:literal $plural:literal;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum WorkloadKind {
            $($kind,)*
        }

        impl WorkloadKind {
            /// Only these owners have a selector that says which pods belong together.
            pub fn of(owner: &Owner) -> Option<Self> {
                match (&*owner.api_version, &*owner.kind) {
                    $(($api_version, stringify!($kind)) => Some(Self::$kind),)*
                    _ => None,
                }
            }
        }

        impl Catalog {
            pub fn workload(&self, kind: WorkloadKind, namespace: &str, name: &str) -> Option<&Workload> {
                match kind {
                    $(WorkloadKind::$kind => {
                        let workload = self.objects.$table.get(namespace)?.get(name);
                        workload.map(|workload| &workload.0)
                    })*
                }
            }
        }

        $(
            #[derive(Debug, Clone, PartialEq, Eq)]
            pub struct $kind(pub Workload);

            impl Watched for $kind {
                const NAME: &'static str = $name;
                const PLURAL: &'static str = $plural;
                const NAMESPACED: bool = true;

                fn key(&self) -> Key {
                    Key::new(self.0.namespace.clone(), self.0.name.clone())
                }

                fn apply(cluster: &mut Cluster, key: Key, new: Option<Self>) -> Applied {
                    set_in(&mut cluster.catalog_mut().objects.$table, key, new);
                    Ok(Vec::new())
                }
            }
        )*
    };
}

workloads! {
    ReplicationController in replication_controllers: "v1" "ReplicationController" "replicationControllers";
    ReplicaSet in replica_sets: "apps/v1" "apps/ReplicaSet" "replicaSets";
    StatefulSet in stateful_sets: "apps/v1" "apps/StatefulSet" "statefulSets";
}
