//! What lives in the embedded cluster: simulated nodes, the small controllers that clients notice, a demo workload.
//!
//! Everything here works through an ordinary `kube::Client` and never sees the server behind it. It is no
//! controller manager: StatefulSets, DaemonSets, CronJobs, ReplicationControllers, Endpoints and volume binding
//! are left to real clusters, and nothing here schedules.
//!
//! Read `world` first, then any controller: each is a pure `plan` and a thin shell around it.

mod budgets;
mod cache;
mod claims;
pub mod demo;
mod deployments;
mod echo;
mod events;
mod furnish;
mod garbage;
mod hash;
mod jobs;
mod kinds;
mod namespaces;
mod node_lifecycle;
mod nodes;
mod objects;
mod pod_gc;
mod queue;
mod replica_sets;
mod requests;
mod share;
mod taint_eviction;
mod world;

use std::sync::Arc;

use kube::Client;
use tokio_util::task::TaskTracker;

use self::world::World;
pub use self::{
    nodes::{EXIT_CODE, HEARTBEAT, Nodes, RUN_FOR, Shape},
    world::Timings,
};

/// The nodes and controllers of one cluster, while they run.
pub struct Local {
    running: Running,
    nodes: Nodes,
}

/// Controllers, while they run.
pub struct Running {
    world: Arc<World>,
    tasks: TaskTracker,
}

/// Starts the nodes and controllers. `root_ca` is the certificate by which pods would know the server, in PEM.
pub fn start(client: Client, root_ca: String, timings: Timings) -> Local {
    let running = Running::new(client, timings);
    let Running { world, tasks } = &running;
    let (nodes, run_nodes) = nodes::start(world.clone());
    tasks.spawn(run_nodes);
    tasks.spawn(node_lifecycle::start(world.clone()));
    tasks.spawn(taint_eviction::start(world.clone()));
    tasks.spawn(pod_gc::start(world.clone()));
    tasks.spawn(deployments::start(world.clone()));
    tasks.spawn(replica_sets::start(world.clone()));
    tasks.spawn(jobs::start(world.clone()));
    tasks.spawn(budgets::start(world.clone()));
    tasks.spawn(furnish::start(world.clone(), root_ca));
    running.end_deletions();
    world.watch(tasks);
    Local { running, nodes }
}

/// Starts only the controllers without which deletions never end: garbage collection and the emptying of namespaces.
pub fn start_cleanup(client: Client) -> Running {
    let running = Running::new(client, Timings::default());
    running.end_deletions();
    running.world.watch(&running.tasks);
    running
}

impl Local {
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Makes the demo workload, in a size for so many nodes. Its pods name this scheduler.
    pub async fn load_demo(&self, nodes: usize, scheduler: &str) -> Result<(), kube::Error> {
        demo::load(&self.running.world.requests, nodes, scheduler).await
    }

    /// Returns once everything that was there at the start has been seen.
    pub async fn synced(&self) {
        self.running.synced().await;
    }

    /// Stops everything and returns when it has stopped. Objects stay as they are.
    pub async fn stop(self) {
        self.running.stop().await;
    }
}

impl Running {
    fn new(client: Client, timings: Timings) -> Self {
        Self {
            world: World::new(client, timings),
            tasks: TaskTracker::new(),
        }
    }

    fn end_deletions(&self) {
        let world = &self.world;
        self.tasks.spawn(namespaces::start(world.clone()));
        let garbage = garbage::run(world.client.clone(), world.cancel.clone());
        self.tasks.spawn(garbage);
    }

    /// Returns once everything that was there at the start has been seen.
    pub async fn synced(&self) {
        self.world.synced().await;
    }

    /// Stops everything and returns when it has stopped. Objects stay as they are.
    pub async fn stop(self) {
        self.world.cancel.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
