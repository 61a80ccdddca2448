//! Simulated kubelets, small controllers and a demo workload for the embedded cluster; the kubelets run on any cluster.
//!
//! Everything here uses an ordinary `kube::Client` and never sees the server behind it. It is not a controller manager:
//! there are no Endpoints, autoscalers or resource claims here, and nothing here schedules.
//!
//! Read `context` first, then any controller: each is a pure `plan` and a thin part that applies it, on top of the crate
//! `reconcile`.
//!
//! | function | starts |
//! |---|---|
//! | [`start`] | kubelets for every Node without the label [`SIMULATED`], and all controllers |
//! | [`start_nodes`] | kubelets for the Nodes with the label, and no controller |
//! | [`start_cleanup`] | only the controllers without which deletions never end |
//!
//! | module | contents |
//! |---|---|
//! | `budgets` | the status of PodDisruptionBudgets |
//! | `context` | the client, the caches and the timings that all parts share |
//! | `cron_jobs` | the CronJob controller |
//! | `daemon_sets` | the DaemonSet controller |
//! | [`demo`] | the demo nodes and workload |
//! | `deployments` | the Deployment controller |
//! | `discovery` | all kinds that the server serves |
//! | `events` | the events of a controller |
//! | `garbage` | the garbage collector |
//! | `jobs` | the Job controller |
//! | `namespace_defaults` | the service account and the CA certificates of a namespace |
//! | `namespaces` | deletion of the contents of a namespace |
//! | `node_lifecycle` | readiness and taints of nodes |
//! | `nodes` | the simulated kubelets |
//! | `objects` | the kinds, with only the fields that are read |
//! | `ownership` | adoption and release of objects by selector |
//! | `pod_control` | creation and deletion of the pods of a controller |
//! | `pod_gc` | deletion of pods without a node |
//! | `replica_sets` | the controller of ReplicaSets and ReplicationControllers |
//! | `revisions` | the templates of StatefulSets and DaemonSets over time |
//! | `scaled_value` | numbers that may be percentages |
//! | `stateful_sets` | the StatefulSet controller |
//! | `taint_eviction` | eviction of pods by NoExecute taints |
//! | [`tide`] | the load of simulated nodes, as their agents measure it |
//! | `volumes` | binding, provisioning, reclaiming and protection of claims and volumes |

mod budgets;
mod context;
mod cron_jobs;
mod daemon_sets;
pub mod demo;
mod deployments;
mod discovery;
mod events;
mod garbage;
mod jobs;
mod namespace_defaults;
mod namespaces;
mod node_lifecycle;
mod nodes;
mod objects;
mod ownership;
mod pod_control;
mod pod_gc;
mod replica_sets;
mod revisions;
mod scaled_value;
mod stateful_sets;
mod taint_eviction;
pub mod tide;
mod volumes;

use std::sync::Arc;

use kube::Client;
use tokio_util::task::TaskTracker;

use self::{context::Context, demo::DemoWorkload, nodes::Scope};
pub use self::{
    context::Timings,
    nodes::{EXIT_CODE, HEARTBEAT, NUMA, NodeError, Nodes, RUN_FOR, SIMULATED, Shape},
};

/// Running kubelets, with or without controllers.
pub struct Local {
    running: Running,
    nodes: Nodes,
}

/// Running controllers.
pub struct Running {
    context: Arc<Context>,
    tasks: TaskTracker,
}

/// Starts the kubelets and the controllers. `root_ca` is the certificate, in PEM, with which pods verify the server.
pub fn start(client: Client, root_ca: String, timings: Timings) -> Local {
    let running = Running::new(client, timings);
    let Running { context, tasks } = &running;
    let (nodes, run_nodes) = nodes::start(context.clone(), Scope::Unlabelled);
    tasks.spawn(run_nodes);
    tasks.spawn(node_lifecycle::start(context.clone()));
    tasks.spawn(taint_eviction::start(context.clone()));
    tasks.spawn(pod_gc::start(context.clone()));
    tasks.spawn(deployments::start(context.clone()));
    let (sets, older) = (&context.replica_sets, &context.replication_controllers);
    tasks.spawn(replica_sets::start(context.clone(), sets));
    tasks.spawn(replica_sets::start(context.clone(), older));
    tasks.spawn(stateful_sets::start(context.clone()));
    tasks.spawn(daemon_sets::start(context.clone()));
    tasks.spawn(jobs::start(context.clone()));
    tasks.spawn(cron_jobs::start(context.clone()));
    tasks.spawn(budgets::start(context.clone()));
    tasks.spawn(volumes::start(context.clone()));
    tasks.spawn(namespace_defaults::start(context.clone(), root_ca));
    running.end_deletions();
    context.watch_all();
    running.start_watches();
    Local { running, nodes }
}

/// Starts the kubelets of the Nodes with the label [`SIMULATED`], on any cluster, without controllers.
pub fn start_nodes(client: Client, timings: Timings) -> Local {
    let running = Running::new(client, timings);
    let Running { context, tasks } = &running;
    let (nodes, run_nodes) = nodes::start(context.clone(), Scope::Labelled);
    context.watch_simulated_nodes();
    tasks.spawn(run_nodes);
    running.start_watches();
    Local { running, nodes }
}

/// Starts only the controllers without which deletions never end: garbage collection and the emptying of namespaces.
pub fn start_cleanup(client: Client) -> Running {
    let running = Running::new(client, Timings::default());
    running.end_deletions();
    running.context.watch(&running.context.namespaces);
    running.start_watches();
    running
}

impl Local {
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Creates the demo workload.
    pub async fn load_demo(&self, demo: &DemoWorkload<'_>) -> Result<(), kube::Error> {
        demo::load(&self.running.context.requests, demo).await
    }

    /// Returns when the first list of every watched kind is complete.
    pub async fn synced(&self) {
        self.running.synced().await;
    }

    /// The kinds whose first list is not complete.
    pub fn unsynced(&self) -> Vec<String> {
        self.running.context.watches.unsynced()
    }

    /// Stops everything and returns when it has stopped. Objects stay as they are.
    pub async fn stop(&self) {
        self.running.stop().await;
    }
}

impl Running {
    fn new(client: Client, timings: Timings) -> Self {
        Self {
            context: Context::new(client, timings),
            tasks: TaskTracker::new(),
        }
    }

    fn end_deletions(&self) {
        let context = &self.context;
        self.tasks.spawn(namespaces::start(context.clone()));
        let garbage = garbage::run(context.client.clone(), context.cancel.clone());
        self.tasks.spawn(garbage);
    }

    /// The last step: listeners that come later miss the first lists.
    fn start_watches(&self) {
        let Self { context, tasks } = self;
        context.watches.start(tasks, &context.cancel);
    }

    /// Returns when the first list of every watched kind is complete.
    pub async fn synced(&self) {
        self.context.synced().await;
    }

    /// Stops everything and returns when it has stopped. Objects stay as they are.
    pub async fn stop(&self) {
        self.context.cancel.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
