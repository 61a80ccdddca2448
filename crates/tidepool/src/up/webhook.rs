//! The admission webhook in the cluster of `up`: the objects of `deploy/webhook.yaml` that it needs, with answers from this
//! process instead of a Service.

use api::contracts::NAMESPACE;
use std::sync::Arc;

use anyhow::Context;
use apiserver::{Cluster, ServiceBackend, ServiceHandler};
use control_plane::webhook::{InProcessWebhook, NAME};
use futures::FutureExt;
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    scheduling::v1::PriorityClass,
};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::contents::create_object;

const MANIFEST: &str = include_str!("../../../../deploy/webhook.yaml");

/// Creates the PriorityClasses, starts the webhook and then has the cluster call it.
pub(super) async fn install(cluster: &Cluster, client: &Client) -> anyhow::Result<()> {
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(MANIFEST).context("cannot use deploy/webhook.yaml")?;
    for class in of_kind::<PriorityClass>(&objects)? {
        create_object(client, &class).await?;
    }
    let webhook = Arc::new(InProcessWebhook::start(client).await);
    let handler: ServiceHandler = Arc::new(move |request| {
        let webhook = webhook.clone();
        async move { webhook.respond(request.uri().path(), request.body()).await }.boxed()
    });
    cluster.route_service(NAMESPACE, NAME, ServiceBackend::InProcess(handler));
    for configuration in of_kind::<MutatingWebhookConfiguration>(&objects)? {
        create_object(client, &configuration).await?;
    }
    for configuration in of_kind::<ValidatingWebhookConfiguration>(&objects)? {
        create_object(client, &configuration).await?;
    }
    Ok(())
}

fn of_kind<K: Resource<DynamicType = ()> + DeserializeOwned>(
    objects: &[Value],
) -> anyhow::Result<Vec<K>> {
    let kind = K::kind(&());
    let found = objects.iter().filter(|object| object["kind"] == *kind);
    found
        .map(|object| serde_json::from_value(object.clone()))
        .collect::<Result<_, _>>()
        .with_context(|| format!("cannot use {kind} of deploy/webhook.yaml"))
}
