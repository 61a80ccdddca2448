//! What the cluster of `up` contains at its start: the definitions of `deploy/crds`, the namespaces of our components and a default
//! StorageClass.

use anyhow::Context;
use k8s_openapi::{
    api::{core::v1::Namespace, storage::v1::StorageClass},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client, Resource, api::PostParams};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

/// `lease` is the namespace of the scheduler's Lease.
pub(super) async fn create(client: &Client, lease: &str) -> anyhow::Result<()> {
    for (file, definition) in api::crds::all() {
        let definition: CustomResourceDefinition =
            serde_json::from_value(definition).with_context(|| format!("cannot use {file}"))?;
        create_object(client, &definition).await?;
    }
    for name in [lease, api::contracts::NAMESPACE] {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.to_owned());
        create_object(client, &namespace).await?;
    }
    // A claim without a class gets a volume, as on kind and minikube.
    let class: StorageClass = serde_json::from_value(json!({
        "metadata": {
            "name": "standard",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "tidepool.io/simulated",
        "volumeBindingMode": "WaitForFirstConsumer",
    }))?;
    create_object(client, &class).await
}

/// Creates a cluster-scoped object, unless it exists.
pub(super) async fn create_object<K>(client: &Client, object: &K) -> anyhow::Result<()>
where
    K: Resource<Scope = k8s_openapi::ClusterResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let all: Api<K> = Api::all(client.clone());
    match all.create(&PostParams::default(), object).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => {
            let (kind, name) = (K::kind(&()), object.meta().name.as_deref());
            let name = name.unwrap_or_default();
            Err(error).with_context(|| format!("cannot create {kind} {name}"))
        }
        Ok(_) => Ok(()),
    }
}
