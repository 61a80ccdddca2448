//! Creates what pods need in every namespace: the default ServiceAccount and the ConfigMap with the root certificate.

use std::{future::Future, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::Resource;
use reconcile::{Error, Key, Requeue, WorkQueue, is_already_exists, is_not_found};
use serde_json::{Value, json};

use crate::context::Context;

const WORKERS: usize = 4;
/// It creates a deleted ServiceAccount or ConfigMap again after at most this time.
const REPAIR: Duration = Duration::from_secs(30);
const ROOT_CA: &str = "kube-root-ca.crt";

struct NamespaceDefaults {
    context: Arc<Context>,
    root_ca: String,
}

/// Registers the listeners; the returned future does the work.
pub(crate) fn start(context: Arc<Context>, root_ca: String) -> impl Future<Output = ()> {
    let queue = WorkQueue::new("namespace-defaults");
    let wake = queue.clone();
    context.namespaces.listen(move |change| {
        if let Some(namespace) = change.new {
            wake.add(Key::of(&namespace.metadata));
        }
    });
    async move {
        context.synced().await;
        let cancel = context.cancel.clone();
        let controller = NamespaceDefaults { context, root_ca };
        let work = |key| controller.update(key);
        queue.run(WORKERS, cancel, work).await;
    }
}

impl NamespaceDefaults {
    async fn update(&self, key: Key) -> Result<Requeue, Error> {
        let namespace = self.context.namespaces.get(&key);
        if namespace.is_none_or(|namespace| namespace.metadata.deletion_timestamp.is_some()) {
            return Ok(Requeue::OnChange);
        }
        let account = json!({"metadata": {"name": "default"}});
        self.create_missing::<ServiceAccount>(&key.name, account)
            .await?;
        let bundle = json!({"metadata": {"name": ROOT_CA}, "data": {"ca.crt": self.root_ca}});
        self.create_missing::<ConfigMap>(&key.name, bundle).await?;
        Ok(Requeue::After(REPAIR))
    }

    async fn create_missing<K: Resource<DynamicType = ()>>(
        &self,
        namespace: &str,
        object: Value,
    ) -> Result<(), Error> {
        let requests = &self.context.requests;
        match requests.create::<K>(Some(namespace), &object).await {
            // A namespace that is being deleted accepts no new objects.
            Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(()),
            Err(error) if is_already_exists(&error) || is_not_found(&error) => Ok(()),
            result => Ok(result.map(drop)?),
        }
    }
}
