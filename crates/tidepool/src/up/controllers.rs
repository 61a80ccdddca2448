//! The controllers in the cluster of `up`.

use std::time::Duration;

use anyhow::anyhow;
use control_plane::{
    client::Connect,
    controllers::{
        self, Controllers, ControllersError, ControllersOptions, Settings,
        hot_spots::{ReliefSettings, SchedulerProfiles},
    },
};
use engine::policies::hot_spots::HotSpotSettings;
use kube::Client;
use tokio::{sync::oneshot, task::JoinHandle};

/// A node that is hot for an eighth of a tide is relieved: the usual six minutes are longer than the tide of the demo.
fn relief(scheduler: SchedulerProfiles, tide: Duration) -> ReliefSettings {
    let settings = ReliefSettings::default();
    ReliefSettings {
        scheduler,
        interval: tide / 24,
        plan: HotSpotSettings {
            rounds: 3,
            workload_pause: tide / 6,
            mid_best_effort_pause: tide / 3,
            ..settings.plan
        },
        ..settings
    }
}

/// The controllers of `tidepool controllers`. They need no Lease: there is no other replica.
pub(super) struct RunningControllers {
    task: JoinHandle<Result<(), ControllersError>>,
    stop: oneshot::Sender<()>,
}

impl RunningControllers {
    /// `scheduler` places the pods that the controller of hot spots evicts.
    pub(super) fn start(
        client: Client,
        scheduler: SchedulerProfiles,
        tide: Duration,
    ) -> anyhow::Result<Self> {
        let options = ControllersOptions {
            controllers: controllers::ALL,
            settings: Settings {
                hot_spots: relief(scheduler, tide),
                ..Settings::default()
            },
            election: None,
            serve: None,
        };
        let controllers = Controllers::new(Connect::Client(client), options)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(controllers.run(async {
            // An error is a `stop` that was dropped: stop as well.
            let _ = stopped.await;
        }));
        Ok(Self { task, stop })
    }

    /// Returns why they ended without being stopped.
    pub(super) async fn ended(&mut self) -> anyhow::Error {
        match (&mut self.task).await {
            Ok(Ok(())) => anyhow!("the controllers ended unexpectedly"),
            Ok(Err(error)) => error.into(),
            Err(error) => error.into(),
        }
    }

    pub(super) async fn stop(self) {
        drop(self.stop);
        // A task whose end was seen must not be awaited again.
        if !self.task.is_finished() {
            // How they end does not matter any more.
            let _ = self.task.await;
        }
    }
}
