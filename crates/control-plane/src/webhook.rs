//! The admission webhook: changes and checks pods as `engine::admission` decides, and checks workloads, profiles and settings.
//!
//! Several replicas serve at the same time, without a leader. [`review`], [`server`] and [`certificates`] know nothing about pods:
//! the gate uses them, too.
//!
//! | module | content |
//! |---|---|
//! | [`review`] | AdmissionReviews: what the API server sends and what it gets |
//! | [`server`] | serves reviews over TLS |
//! | [`certificates`] | the certificate of the server, its renewal, and the CA bundle in webhook configurations |
//! | [`bind_permission`] | who may bind the pods of a scheduler |
//! | [`pods`] | the answers about pods, workloads and profiles |
//! | [`evictions`] | the answers about Evictions that agents create |
//! | [`settings`] | the answers about the settings of tiers and agents |
//! | [`objects`] | watched objects that the answers depend on |
//! | `intake` | takes in reviews within a bound on memory |
//! | `unanswered` | counts and logs reviews without an answer |
//! | `in_process` | the webhook of a cluster in the same process |

pub mod bind_permission;
pub mod certificates;
pub mod evictions;
mod in_process;
mod intake;
pub mod objects;
pub mod pods;
pub mod review;
pub mod server;
pub mod settings;
mod unanswered;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::admission::SystemNamespaces;
use prometheus_client::registry::Registry;
use reconcile::Watches;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::client::{Connect, ConnectError};
use crate::controllers;
use crate::serve::{Check, Component, Listening, Serve, ServeError, encode_metrics};
use bind_permission::{BindAuthorization, BindPermission};
use certificates::{CertificateKeeper, CertificateOptions};
pub use in_process::InProcessWebhook;
use objects::AdmissionObjects;
use pods::PodAdmission;
use server::{AdmissionListener, ReviewMetrics};

/// The name of the component: of its Secret, its Service and its webhook configurations.
pub const NAME: &str = "tidepool-webhook";
/// The port for reviews.
pub const PORT: u16 = 9443;
/// The port for health and metrics.
pub const HEALTH_PORT: u16 = 10269;

/// How to run the webhook.
pub struct WebhookOptions {
    /// Where API servers send reviews.
    pub address: SocketAddr,
    pub certificates: CertificateOptions,
    /// What follows for callers that create pods on a node and may not bind pods of their scheduler.
    pub bind_authorization: BindAuthorization,
    /// Pods of this namespace are admitted as they are, like those of `kube-system`.
    pub namespace: String,
    /// Where pods of class system are admitted, besides these namespaces.
    pub system_namespaces: SystemNamespaces,
    /// Health and metrics; none for no such server.
    pub serve: Option<Serve>,
    /// The time between the signal to stop and the end, in which API servers learn that this replica is not ready.
    pub shutdown_delay: Duration,
}

/// Why the webhook ended.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("cannot listen for reviews on {address}")]
    Listen {
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error("cannot serve")]
    Io(#[source] std::io::Error),
}

/// A webhook that is ready to run.
pub struct Webhook {
    connect: Connect,
    certificates: CertificateOptions,
    bind_authorization: BindAuthorization,
    namespace: String,
    system_namespaces: SystemNamespaces,
    shutdown_delay: Duration,
    listener: AdmissionListener,
    health: Option<Listening>,
}

impl Webhook {
    /// Binds both addresses.
    pub fn new(connect: Connect, options: WebhookOptions) -> Result<Self, WebhookError> {
        let address = options.address;
        let listener = AdmissionListener::bind(address)
            .map_err(|source| WebhookError::Listen { address, source })?;
        Ok(Self {
            connect,
            certificates: options.certificates,
            bind_authorization: options.bind_authorization,
            namespace: options.namespace,
            system_namespaces: options.system_namespaces,
            shutdown_delay: options.shutdown_delay,
            listener,
            health: options.serve.map(Serve::listen).transpose()?,
        })
    }

    /// Where API servers send reviews.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Answers reviews until `stopped`.
    pub async fn run(self, stopped: impl Future<Output = ()>) -> Result<(), WebhookError> {
        let client = self.connect.client()?;
        let cancel = CancellationToken::new();
        let _stop_tasks = cancel.clone().drop_guard();
        let watches = Watches::default();
        let objects = AdmissionObjects::watch(&client, &watches, self.system_namespaces);
        let keeper = CertificateKeeper::new(client, self.certificates)?;
        let state = WebhookState(Arc::new(WebhookStateInner {
            watches,
            keeper: keeper.clone(),
            metrics: ReviewMetrics::default(),
            permission: Arc::new(BindPermission::new(
                self.bind_authorization,
                self.connect.exchange()?,
            )),
            stopping: AtomicBool::new(false),
        }));
        if let Some(health) = self.health {
            let api = self.connect.exchange()?;
            health.serve(api, state.clone()).map_err(WebhookError::Io)?;
        }
        state.0.watches.start(&TaskTracker::new(), &cancel);
        let keep = keeper.clone().run(cancel.clone());
        let controllers = format!(
            "system:serviceaccount:{}:{}",
            self.namespace,
            controllers::NAME
        );
        let admission = PodAdmission::new(objects, self.namespace, controllers);
        let admission = Arc::new(admission);
        let metrics = state.0.metrics.clone();
        let mut paths = pods::paths(&admission);
        paths.push(pods::node_name_path(&admission, &state.0.permission));
        paths.push(evictions::path(self.connect.exchange()?));
        let serve = async {
            // Before the first lists are complete, a pod would be judged without its profiles.
            state.0.watches.synced(&cancel).await;
            let Some(certificate) = keeper.first().await else {
                return Ok(());
            };
            let address = self.listener.address();
            tracing::info!("answering reviews on https://{address}");
            self.listener.serve(certificate, paths, metrics).await
        };
        let stopped = async {
            stopped.await;
            state.0.stopping.store(true, Ordering::Relaxed);
            tracing::info!(delay = ?self.shutdown_delay, "stopping");
            tokio::time::sleep(self.shutdown_delay).await;
        };
        tokio::select! {
            () = stopped => Ok(()),
            () = keep => Ok(()),
            result = serve => result.map_err(WebhookError::Io),
        }
    }
}

/// Serves the state of the component.
#[derive(Clone)]
struct WebhookState(Arc<WebhookStateInner>);

struct WebhookStateInner {
    watches: Watches,
    keeper: Arc<CertificateKeeper>,
    metrics: ReviewMetrics,
    permission: Arc<BindPermission>,
    stopping: AtomicBool,
}

impl Component for WebhookState {
    fn ready(&self) -> Vec<Check> {
        let shutdown = match self.0.stopping.load(Ordering::Relaxed) {
            true => Err("process is shutting down".to_owned()),
            false => Ok(()),
        };
        let synced = match self.0.watches.unsynced() {
            kinds if kinds.is_empty() => Ok(()),
            kinds => Err(format!("not listed yet: {}", kinds.join(", "))),
        };
        vec![
            ("shutdown", shutdown),
            ("informer-sync", synced),
            ("certificate", self.0.keeper.check()),
        ]
    }

    fn warnings(&self) -> Vec<String> {
        self.0.keeper.warning().into_iter().collect()
    }

    fn metrics(&self) -> String {
        let mut registry = Registry::default();
        self.0.metrics.register(&mut registry);
        self.0.permission.register(&mut registry);
        self.0.keeper.register(&mut registry);
        encode_metrics(&registry)
    }
}
