//! Binds pods to given nodes, without watches, decisions or events.
//!
//! It is the upper bound in benchmarks: the scheduler uses the same client and cannot bind faster.

use std::sync::Arc;

use engine::model::{Pod, PodKind};
use futures::{StreamExt, stream};

use super::bind::{BindOutcome, bind};
use super::requests::Writer;
use crate::client::{Connect, ConnectError, Refusal};
use api::http::Role;

use crate::election::leadership::Leadership;

/// The scheduler's own limit.
const AT_ONCE: usize = 64;

#[derive(Debug, Clone)]
pub struct Placement {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub node: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("cannot bind pod {namespace}/{name} to {node}: {why}")]
    NotBound {
        namespace: String,
        name: String,
        node: String,
        why: String,
    },
}

/// Returns when all are bound, or one cannot be.
pub async fn replay(connect: Connect, placements: Vec<Placement>) -> Result<(), ReplayError> {
    let writer = Writer {
        exchange: connect.clients().await?.write,
        leadership: Arc::new(Leadership::new(Role::Alone)),
    };
    let binds = stream::iter(placements).map(|placement| {
        let writer = writer.clone();
        async move {
            let kind = PodKind {
                namespace: placement.namespace.as_str().into(),
                ..PodKind::default()
            };
            let pod = Pod {
                kind: Arc::new(kind),
                name: placement.name.as_str().into(),
                uid: placement.uid.as_str().into(),
                ..Pod::default()
            };
            let why = match bind(&writer, &pod, &placement.node, &[]).await.bound {
                BindOutcome::Done => return Ok(()),
                BindOutcome::Elsewhere(pod) => {
                    format!("it is on {}", pod.node.as_deref().unwrap_or(""))
                }
                BindOutcome::Gone => "it is gone".to_owned(),
                BindOutcome::Refused(text) | BindOutcome::Conflict(text) => text,
                BindOutcome::NotLeader => Refusal::NotLeader.to_string(),
            };
            let Placement {
                namespace,
                name,
                node,
                ..
            } = placement;
            Err(ReplayError::NotBound {
                namespace,
                name,
                node,
                why,
            })
        }
    });
    let mut results = binds.buffer_unordered(AT_ONCE);
    while let Some(result) = results.next().await {
        result?;
    }
    Ok(())
}
