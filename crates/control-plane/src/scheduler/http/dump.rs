//! The state of all nodes as JSON, written while it is sent.
//!
//! The engine hands over a copy of its state and goes on deciding. The JSON is written here, some nodes at a time and no
//! faster than the client reads it, so that a dump of a large cluster neither blocks this thread nor fills the memory. A
//! client that stops reading is disconnected.

use std::io;
use std::time::Duration;

use api::http::{CacheDump, NodeDump};
use bytes::Bytes;
use engine::model::{Amounts, Timestamp};
use futures::Stream;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::scheduler::channel::EngineDump;

/// Nodes in one chunk: about a tenth of a millisecond of work.
const PIECE: usize = 64;
/// The timeout for one chunk to be read.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn one_node(dump: &EngineDump) -> Option<NodeDump<Timestamp, Amounts>> {
    Some(NodeDump {
        time: dump.at,
        synced: dump.synced,
        node: dump.view.node(0)?,
    })
}

/// Pieces of a [`CacheDump`]. The permit ends with the last of them.
pub(super) fn stream(
    dump: EngineDump,
    permit: OwnedSemaphorePermit,
    patience: Duration,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let (send, receive) = mpsc::channel(1);
    tokio::spawn(async move {
        for piece in pieces(&dump) {
            let is_last = piece.is_err();
            let sent = tokio::time::timeout(patience, send.send(Some(piece))).await;
            if is_last || !matches!(sent, Ok(Ok(()))) {
                return;
            }
        }
        // Marks the end; without it the response is incomplete.
        let _ = tokio::time::timeout(patience, send.send(None)).await;
        drop(permit);
    });
    futures::stream::unfold(Some(receive), |receive| async {
        let mut receive = receive?;
        match receive.recv().await {
            Some(Some(piece)) => Some((piece, Some(receive))),
            Some(None) => None,
            None => {
                let cut =
                    io::Error::new(io::ErrorKind::TimedOut, "the client did not read in time");
                Some((Err(cut), None))
            }
        }
    })
}

fn pieces(dump: &EngineDump) -> impl Iterator<Item = io::Result<Bytes>> + Send {
    let view = &dump.view;
    let head = CacheDump::<_, Amounts> {
        time: dump.at,
        synced: dump.synced,
        pods: view.pods(),
        unknown_nodes: view.unknown().to_vec(),
        nodes: Vec::new(),
    };
    let head = serde_json::to_vec(&head).map(|mut text| {
        // The list and the object stay open.
        text.truncate(text.len().saturating_sub(2));
        Bytes::from(text)
    });
    let positions = view.by_name();
    let count = positions.len().div_ceil(PIECE);
    let nodes = (0..count).map(move |piece| {
        let mut text = Vec::new();
        for (index, position) in positions.iter().enumerate().skip(piece * PIECE).take(PIECE) {
            if index > 0 {
                text.push(b',');
            }
            serde_json::to_writer(&mut text, &view.node(*position))?;
        }
        Ok(Bytes::from(text))
    });
    std::iter::once(head.map_err(io::Error::from))
        .chain(nodes)
        .chain(std::iter::once(Ok(Bytes::from_static(b"]}"))))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use engine::cluster::Cluster;
    use engine::testing::{node, pod};
    use futures::StreamExt;
    use tokio::sync::Semaphore;

    use super::*;

    fn dump(nodes: usize) -> EngineDump {
        let mut cluster = Cluster::new();
        for index in 0..nodes {
            cluster.set_node(node(&format!("n{index:04}")).allocatable("cpu=4").build());
        }
        cluster.set_pod(pod("lost").on("gone").build()).unwrap();
        EngineDump {
            at: Timestamp::from_secs(0),
            synced: true,
            view: cluster.view(),
        }
    }

    fn permits() -> (Arc<Semaphore>, OwnedSemaphorePermit) {
        let all = Arc::new(Semaphore::new(1));
        let one = all.clone().try_acquire_owned().unwrap();
        (all, one)
    }

    #[tokio::test]
    async fn pieces_make_one_document() {
        for nodes in [0, 1, PIECE, PIECE + 1, 3 * PIECE] {
            let (all, permit) = permits();
            let pieces: Vec<_> = stream(dump(nodes), permit, PATIENCE).collect().await;
            let text: Vec<u8> = pieces
                .into_iter()
                .flat_map(|piece| piece.unwrap())
                .collect();
            let dump: CacheDump = serde_json::from_slice(&text).unwrap();
            assert_eq!(dump.nodes.len(), nodes);
            assert!(dump.nodes.is_sorted_by_key(|node| node.name.clone()));
            let unknown: Vec<_> = dump
                .unknown_nodes
                .iter()
                .map(|it| (&*it.name, it.pods))
                .collect();
            assert_eq!(unknown, [("gone", 1)]);
            // Pods on unknown nodes do not count.
            assert_eq!((dump.pods, dump.synced), (0, true));
            // The permit is free again.
            all.acquire().await.unwrap().forget();
        }
    }

    #[tokio::test]
    async fn a_client_that_stops_reading_is_disconnected() {
        let (all, permit) = permits();
        let mut pieces = Box::pin(stream(dump(10 * PIECE), permit, Duration::from_millis(20)));
        assert!(pieces.next().await.unwrap().is_ok());
        // The permit is free again.
        all.acquire().await.unwrap().forget();
        let rest: Vec<_> = pieces.collect().await;
        let cut = rest.last().unwrap().as_ref().unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::TimedOut);
    }
}
