//! Gives every namespace what pods in it need: the account they run as, and the certificates that name the server.

use std::{future::Future, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use serde_json::{Value, json};

use crate::{
    cache::Key,
    queue::{Next, Queue},
    requests::{Failure, Place, already_exists, is_gone},
    world::World,
};

const WORKERS: usize = 4;
/// A missing account or certificate bundle is put back at the latest after this time.
const REPAIR: Duration = Duration::from_secs(30);
const ROOT_CA: &str = "kube-root-ca.crt";

struct Furnish {
    world: Arc<World>,
    root_ca: String,
}

/// Registers for changes at once; the work begins when the future runs.
pub(crate) fn start(world: Arc<World>, root_ca: String) -> impl Future<Output = ()> {
    let queue = Queue::new();
    let wake = queue.clone();
    world.namespaces.listen(move |change| {
        if let Some(namespace) = change.new {
            wake.add(Key::of(&namespace.metadata));
        }
    });
    async move {
        world.synced().await;
        let cancel = world.cancel.clone();
        let controller = Furnish { world, root_ca };
        let work = |key| controller.update(key);
        queue.run("furnish", WORKERS, cancel, work).await;
    }
}

impl Furnish {
    async fn update(&self, key: Key) -> Result<Next, Failure> {
        let namespace = self.world.namespaces.get(&key);
        if namespace.is_none_or(|namespace| namespace.metadata.deletion_timestamp.is_some()) {
            return Ok(Next::Idle);
        }
        let account = json!({"metadata": {"name": "default"}});
        self.create_missing::<ServiceAccount>(&key.name, account)
            .await?;
        let bundle = json!({"metadata": {"name": ROOT_CA}, "data": {"ca.crt": self.root_ca}});
        self.create_missing::<ConfigMap>(&key.name, bundle).await?;
        Ok(Next::After(REPAIR))
    }

    async fn create_missing<K: Place>(
        &self,
        namespace: &str,
        object: Value,
    ) -> Result<(), Failure> {
        let requests = &self.world.requests;
        match requests.create::<K>(Some(namespace), &object).await {
            // A namespace that is being deleted takes nothing new.
            Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(()),
            Err(error) if already_exists(&error) || is_gone(&error) => Ok(()),
            result => Ok(result.map(drop)?),
        }
    }
}
