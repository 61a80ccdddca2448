//! Who drains the backlog, and how it is started: as a process, without limits on its requests, with events.

use anyhow::Result;
use e2e::{ControlPlane, Process};
use serde_json::{Value, json};

use crate::drain::Backlog;
use crate::workload::{PROFILE, Workload};

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Contestant {
    Tidepool,
    /// As it is by default: it looks at a part of the nodes
    KubeScheduler,
    /// It looks at all of them, as tidepool does
    KubeSchedulerAll,
    /// Binds what is already decided, without events
    RawBinder,
}

impl Contestant {
    /// Who runs in a round, in this order. Whoever runs first changes, should that be an advantage.
    pub(crate) fn of_round(round: usize) -> Vec<Self> {
        let mut pair = [Self::Tidepool, Self::KubeScheduler];
        if !round.is_multiple_of(2) {
            pair.reverse();
        }
        let mut all = pair.to_vec();
        all.push(Self::RawBinder);
        if round == 0 {
            all.push(Self::KubeSchedulerAll);
        }
        all
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tidepool => "tidepool",
            Self::KubeScheduler => "kube-scheduler",
            Self::KubeSchedulerAll => "kube-scheduler-all",
            Self::RawBinder => "raw-binder",
        }
    }

    pub(crate) fn writes_events(self) -> bool {
        self != Self::RawBinder
    }

    pub(crate) fn start(
        self,
        workload: Workload,
        control_plane: &ControlPlane,
        backlog: &Backlog,
    ) -> Result<Process> {
        match self {
            Self::Tidepool => {
                let profile = match workload.configuration() {
                    None => format!("--scheduler-name={PROFILE}"),
                    Some(text) => {
                        let file = control_plane.logs().join("tidepool.yaml");
                        std::fs::write(&file, text)?;
                        format!("--config={}", file.display())
                    }
                };
                // As kube-scheduler is run here.
                let flags = ["--leader-elect=false", "--secure-port=0", &profile];
                control_plane.tidepool("tidepool", &control_plane.admin(), &flags)
            }
            Self::KubeScheduler => control_plane.kube_scheduler(&kube_scheduler(0), &[]),
            Self::KubeSchedulerAll => control_plane.kube_scheduler(&kube_scheduler(100), &[]),
            Self::RawBinder => {
                let file = control_plane.logs().join("placements");
                std::fs::write(&file, backlog.placements())?;
                let kubeconfig = control_plane.kubeconfig_file("admin")?;
                let arguments = [
                    "replay".to_owned(),
                    format!("--kubeconfig={}", kubeconfig.display()),
                    file.display().to_string(),
                ];
                control_plane.run("replay", &e2e::tidepool::binary()?, &arguments)
            }
        }
    }
}

/// 0 percent of the nodes means: as many as it finds right.
fn kube_scheduler(percentage: u32) -> Value {
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"qps": 100_000, "burst": 100_000},
        "percentageOfNodesToScore": percentage,
        // It knows nothing of what nodes lend, and places jobs as pods that ask for nothing.
        "profiles": [{"schedulerName": PROFILE, "pluginConfig": [{"name": "NodeResourcesFit", "args": {
            "ignoredResourceGroups": ["resource.katalyst.kubewharf.io"]}}]}],
    })
}
