//! Counts pods as they are bound, at little cost for the API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use http_body_util::BodyExt;
use kube::client::Body;

use crate::Kubeconfig;

/// A watch on bound pods, on a thread of its own. It requests what schedulers request, so that the API server need not
/// encode anything for us alone.
pub struct Binds {
    count: Arc<AtomicUsize>,
    runtime: Option<tokio::runtime::Runtime>,
    watch: tokio::task::JoinHandle<Result<std::convert::Infallible>>,
}

impl Binds {
    /// Every pod that is bound already counts; none may be deleted.
    pub fn watch(kubeconfig: &Kubeconfig) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let count = Arc::<AtomicUsize>::default();
        let (counted, kubeconfig) = (count.clone(), kubeconfig.clone());
        let (ready, is_ready) = std::sync::mpsc::channel();
        let watch = runtime.spawn(async move {
            let config = kubeconfig.to_client_config().await?;
            let client = kube::Client::try_from(config)?;
            let mut body = open(&client).await?;
            ready
                .send(())
                .context("the test does not wait for the watch any more")?;
            loop {
                count_frames(body, &counted).await;
                // A server with much to do ends the watches of those who are slow to read.
                body = open(&client).await?;
            }
        });
        let binds = Self {
            count,
            runtime: Some(runtime),
            watch,
        };
        is_ready.recv().context("bound pods cannot be watched")?;
        Ok(binds)
    }

    pub fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// The API server has gone: nothing more is counted.
    pub fn is_over(&self) -> bool {
        self.watch.is_finished()
    }
}

impl Drop for Binds {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // It may be dropped inside another runtime, which must not wait.
            runtime.shutdown_background();
        }
    }
}

/// Every watch begins with all that are bound.
async fn count_frames(mut body: http_body_util::BodyDataStream<Body>, counted: &AtomicUsize) {
    let mut bytes = Vec::new();
    let mut count = 0;
    while let Some(Ok(chunk)) = body.next().await {
        bytes.extend_from_slice(&chunk);
        while let Some(frame) = frame(&mut bytes) {
            // The first field of an event is its type. A pod comes into sight when it is bound.
            count += usize::from(frame.starts_with(b"\x0a\x05ADDED"));
            counted.fetch_max(count, Relaxed);
        }
    }
}

async fn open(client: &kube::Client) -> Result<http_body_util::BodyDataStream<Body>> {
    let selector = "fieldSelector=spec.nodeName!%3D&resourceVersion=0";
    let request = http::Request::get(format!("/api/v1/pods?watch=1&{selector}"))
        .header("accept", "application/vnd.kubernetes.protobuf;stream=watch")
        .body(Body::empty())?;
    let answer = client.send(request).await?;
    if !answer.status().is_success() {
        bail!("the watch was answered {}", answer.status());
    }
    Ok(answer.into_body().into_data_stream())
}

/// Takes the next frame: four bytes of length, and then so many.
fn frame(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let head: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
    let end = 4 + u32::from_be_bytes(head) as usize;
    let frame = bytes.get(4..end)?.to_vec();
    bytes.drain(..end);
    Some(frame)
}
