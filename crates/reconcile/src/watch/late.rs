//! A first list that takes long must not go unnoticed, and that of an optional kind must not hold up the others.

use std::time::Duration;

use super::{Handler, Progress, Resource};

/// Reports a kind that is not listed in full, `after` so long. If it is optional, the component goes on without it.
pub(super) async fn report(
    resource: &Resource,
    handler: &impl Handler,
    progress: &Progress,
    after: Duration,
) {
    let name = resource.name();
    if progress.is_synced(name) {
        return;
    }
    let why = format!("the first list is not complete after {after:?}");
    if progress
        .kinds()
        .get(name)
        .is_none_or(|it| it.broken.is_none())
    {
        progress.broken(name, &why);
    }
    if !resource.optional {
        tracing::warn!("{name}: {why}; waiting for it");
        return;
    }
    tracing::warn!("{name}: {why}; continuing without it");
    if progress.late(name) {
        handler.synced(name).await;
    }
}
