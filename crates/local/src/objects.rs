//! Kinds as they are needed here: the fields that somebody reads, and nothing else.
//!
//! There are many pods, so they are a tenth of the whole; pod templates stay JSON, because they are only
//! copied and compared, and the hundreds of types inside them would double the time to compile this crate.
//! What is written is a patch or JSON, never one of these objects.

pub(crate) mod deployment;
pub(crate) mod job;
pub(crate) mod pod;
pub(crate) mod replica_set;

pub(crate) use self::{deployment::Deployment, job::Job, pod::Pod, replica_set::ReplicaSet};

/// Says where a namespaced kind is found.
macro_rules! kind {
    ($kind:ident, $group:literal, $plural:literal) => {
        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = k8s_openapi::NamespaceResourceScope;

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
