//! The watches of a component: they start together, and a controller waits for all of them.

use std::sync::{Arc, Mutex, MutexGuard};

use futures::{FutureExt, future::BoxFuture};
use kube::{Api, runtime::watcher};
use tokio::sync::watch::Receiver;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::cache::{Cache, Object};
use crate::outage::Outage;

/// The caches that a component keeps up to date.
#[derive(Default)]
pub struct Watches {
    watches: Mutex<Vec<Watch>>,
}

struct Watch {
    kind: String,
    synced: Receiver<bool>,
    run: Option<Run>,
}

type Run = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

impl Watches {
    /// Adds a cache, to be filled with the objects that `api` and `config` select.
    pub fn add<K: Object>(&self, cache: &Arc<Cache<K>>, api: Api<K>, config: watcher::Config) {
        let watched = cache.clone();
        self.lock().push(Watch {
            kind: K::plural(&()).into_owned(),
            synced: cache.subscribe_synced(),
            run: Some(Box::new(|cancel| {
                watched.run(api, config, cancel, Outage::default()).boxed()
            })),
        });
    }

    /// Starts the watches that were added. Register listeners before this: they miss what arrived earlier.
    pub fn start(&self, tasks: &TaskTracker, cancel: &CancellationToken) {
        for watch in self.lock().iter_mut() {
            if let Some(run) = watch.run.take() {
                tasks.spawn(run(cancel.clone()));
            }
        }
    }

    /// Returns when every first list is complete, or on cancellation. Before that, absence means nothing.
    pub async fn synced(&self, cancel: &CancellationToken) {
        let all: Vec<_> = self.lock().iter().map(|it| it.synced.clone()).collect();
        cancel
            .run_until_cancelled(async {
                for mut synced in all {
                    // An error is a cache that was dropped, so that nothing waits for it.
                    let _ = synced.wait_for(|synced| *synced).await;
                }
            })
            .await;
    }

    /// The kinds whose first list is not complete.
    pub fn unsynced(&self) -> Vec<String> {
        let watches = self.lock();
        let unsynced = watches.iter().filter(|watch| !*watch.synced.borrow());
        unsynced.map(|watch| watch.kind.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Watch>> {
        self.watches.lock().expect("no panic while held")
    }
}
