//! Slim types of the watched kinds, with only the fields that a controller here reads.
//!
//! A slim pod has a tenth of the size of a full one. Pod templates stay JSON: they are only copied and compared, and the
//! hundreds of types inside them would double the time to compile this crate. The controllers write patches or JSON, never
//! these types.

pub(crate) mod controller_revision;
pub(crate) mod cron_job;
pub(crate) mod daemon_set;
pub(crate) mod deployment;
pub(crate) mod job;
pub(crate) mod node;
pub(crate) mod pod;
pub(crate) mod replica_set;
pub(crate) mod replication_controller;
pub(crate) mod stateful_set;
pub(crate) mod storage;

pub(crate) use self::{
    controller_revision::ControllerRevision, cron_job::CronJob, daemon_set::DaemonSet,
    deployment::Deployment, job::Job, pod::Pod, replica_set::ReplicaSet,
    replication_controller::ReplicationController, stateful_set::StatefulSet,
};

/// Implements `Resource` for a kind, which is namespaced unless `cluster` follows.
macro_rules! kind {
    ($kind:ident, $group:literal, $plural:literal) => {
        $crate::objects::kind!($kind, $group, $plural, in NamespaceResourceScope);
    };
    ($kind:ident, $group:literal, $plural:literal, cluster) => {
        $crate::objects::kind!($kind, $group, $plural, in ClusterResourceScope);
    };
    ($kind:ident, $group:literal, $plural:literal, in $scope:ident) => {
        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = k8s_openapi::$scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                stringify!($kind).into()
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                "v1".into()
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(
                &mut self,
            ) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
pub(crate) use kind;
