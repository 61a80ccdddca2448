//! `tidepool controllers`: runs the controllers of a cluster until it is stopped.

mod choice;
mod hot_spots;

use api::contracts::NAMESPACE;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use api::config::Configuration;
use clap::Args;
use control_plane::client::Connect;
use control_plane::controllers::{
    Controllers, ControllersOptions, NAME, PORT, Settings, agents, resource_policy, schedulers,
    tiers,
};
use control_plane::election::Election;

use hot_spots::HotSpotFlags;
pub(crate) use hot_spots::scheduler_profiles;

use crate::component::{self, ElectionFlags, STOPPED_TWICE, ServingFlags, StopSignals};
use crate::exit::{Code, error};

/// Run the controllers of a cluster
///
/// With several replicas, the one that holds the Lease runs them. The controller of ResourcePolicies writes the deletion costs of
/// pods and the status of policies. The tier controller publishes the mid and batch resources of nodes. The controller of agents
/// creates and deletes CustomNodeResources with their nodes, and taints nodes whose agents are silent. The controller of hot spots
/// evicts pods of the tiers from nodes whose pods use too much. The registry of schedulers writes the names of the schedulers that
/// run into the ConfigMap tidepool-system/schedulers, and writes an event and a condition on pods whose scheduler does not run.
#[derive(Args)]
pub(crate) struct Flags {
    /// Kubeconfig of the cluster [default: the cluster it runs in].
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Address of the API server; overrides the kubeconfig.
    #[arg(long, value_name = "URL")]
    master: Option<http::Uri>,
    /// Controllers to run: * for all, NAME for one, -NAME for all but one; names are agents, hot-spots, resourcepolicy,
    /// schedulers and tiers.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = choice::EVERY, allow_hyphen_values = true)]
    controllers: Vec<String>,
    #[command(flatten)]
    election: ElectionFlags,
    /// Name of the Lease [default: tidepool-controllers].
    #[arg(long, value_name = "NAME", help_heading = "Leader election")]
    leader_elect_resource_name: Option<String>,
    /// Namespace of the Lease [default: tidepool-system].
    #[arg(long, value_name = "NAME", help_heading = "Leader election")]
    leader_elect_resource_namespace: Option<String>,
    #[command(flatten)]
    agents: AgentFlags,
    #[command(flatten)]
    hot_spots: HotSpotFlags,
    #[command(flatten)]
    policies: PolicyFlags,
    #[command(flatten)]
    tiers: TierFlags,
    #[command(flatten)]
    schedulers: SchedulerFlags,
    #[command(flatten)]
    serving: ServingFlags,
    /// Port to serve on; 0 disables the server [default: 10267, or a free port if it is in use].
    #[arg(long, value_name = "PORT", help_heading = "HTTP server")]
    secure_port: Option<u16>,
}

/// When an agent is silent, and what follows.
#[derive(Args)]
#[command(next_help_heading = "Agents")]
struct AgentFlags {
    /// An agent that does not renew its Lease for this time is silent: its node gets a QoS taint.
    #[arg(long, value_name = "DURATION", default_value = "90s", value_parser = component::duration)]
    agent_silent_after: Duration,
    /// Evict the reclaimed, batch and free pods of nodes whose agents stay silent.
    #[arg(long)]
    evict_from_silent_nodes: bool,
    /// The time without renewal after which these pods are evicted; needs --evict-from-silent-nodes.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = component::duration)]
    agent_evict_after: Duration,
}

impl AgentFlags {
    fn settings(&self) -> anyhow::Result<agents::AgentSettings> {
        let (silent, evict) = (self.agent_silent_after, self.agent_evict_after);
        if silent < Duration::from_secs(1) {
            bail!("--agent-silent-after: {silent:?} is not allowed: use at least 1s");
        }
        if self.evict_from_silent_nodes && evict < silent {
            bail!(
                "--agent-evict-after: {evict:?} is not allowed: use at least --agent-silent-after, which is {silent:?}"
            );
        }
        Ok(agents::AgentSettings {
            silent_after: silent,
            evict_after: self.evict_from_silent_nodes.then_some(evict),
            ..agents::AgentSettings::default()
        })
    }
}

/// How often the controller of ResourcePolicies writes.
#[derive(Args)]
#[command(next_help_heading = "ResourcePolicies")]
struct PolicyFlags {
    /// Changes within this time are handled together.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = component::duration)]
    policy_sync_interval: Duration,
    /// Shortest time between two writes of the status of a policy.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = component::duration)]
    policy_status_interval: Duration,
    /// Time after which all deletion costs and statuses are checked, even without changes.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = component::duration)]
    policy_resync_period: Duration,
    /// The most writes of deletion costs and status in a second.
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    policy_writes_per_second: u32,
}

impl PolicyFlags {
    fn settings(&self) -> resource_policy::PolicySettings {
        resource_policy::PolicySettings {
            sync_interval: self.policy_sync_interval,
            status_interval: self.policy_status_interval,
            resync_period: self.policy_resync_period,
            writes_per_second: self.policy_writes_per_second,
        }
    }
}

/// Which schedulers run.
#[derive(Args)]
#[command(next_help_heading = "Schedulers")]
struct SchedulerFlags {
    /// Time after which a pod whose scheduler does not run gets an event and a condition.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = component::duration)]
    scheduler_not_found_after: Duration,
    /// Namespaces whose Leases register schedulers, beside kube-system and tidepool-system; name none where users may write
    /// Leases.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = component::namespace)]
    scheduler_namespaces: Vec<String>,
}

impl SchedulerFlags {
    fn settings(&self) -> schedulers::RegistrySettings {
        let namespaces = self.scheduler_namespaces.iter();
        // The flag holds until the process ends.
        let namespaces = namespaces.map(|it| &*it.clone().leak());
        schedulers::RegistrySettings {
            patience: self.scheduler_not_found_after,
            namespaces: namespaces.collect::<Vec<&str>>().leak(),
        }
    }
}

/// The mid and batch resources of nodes.
#[derive(Args)]
#[command(next_help_heading = "Tiers")]
struct TierFlags {
    /// ConfigMap with the settings, as NAMESPACE/NAME; that of Koordinator can be used too.
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        default_value = "tidepool-system/tidepool-colocation"
    )]
    slo_config: String,
    /// Features to switch on or off, such as MidNoOverselling=true: mid resources are then only what services do not request.
    #[arg(long, value_name = "NAME=BOOL", value_delimiter = ',')]
    feature_gates: Vec<String>,
}

impl TierFlags {
    fn settings(&self) -> anyhow::Result<tiers::TierSettings> {
        let parts = self.slo_config.split_once('/');
        let parts = parts.filter(|(namespace, name)| {
            let is_name = |text: &&str| engine::model::is_dns_label(text);
            is_name(namespace) && name.split('.').all(|part| is_name(&part))
        });
        let Some((namespace, name)) = parts else {
            bail!(
                "--slo-config: `{}` is not NAMESPACE/NAME of a ConfigMap",
                self.slo_config
            );
        };
        let mut settings = tiers::TierSettings::default();
        if (namespace, name) != settings.config {
            // The flag holds until the process ends.
            settings.config = (
                Box::leak(namespace.to_owned().into_boxed_str()),
                Box::leak(name.to_owned().into_boxed_str()),
            );
        }
        for gate in &self.feature_gates {
            settings.no_overselling = match gate.split_once('=') {
                Some(("MidNoOverselling", "true")) => true,
                Some(("MidNoOverselling", "false")) => false,
                _ => bail!(
                    "--feature-gates: `{gate}` is not known: use MidNoOverselling=true or MidNoOverselling=false"
                ),
            };
        }
        Ok(settings)
    }
}

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    runtime.block_on(control(flags))
}

async fn control(flags: &Flags) -> anyhow::Result<()> {
    let mut signals = StopSignals::listen()?;
    let options = ControllersOptions {
        controllers: choice::chosen(&flags.controllers)
            .map_err(|why| error(Code::BadInput, why))?,
        settings: Settings {
            agents: flags
                .agents
                .settings()
                .map_err(|why| error(Code::BadInput, why))?,
            hot_spots: flags
                .hot_spots
                .settings()
                .map_err(|why| error(Code::BadInput, why))?,
            resource_policy: flags.policies.settings(),
            schedulers: flags.schedulers.settings(),
            tiers: flags
                .tiers
                .settings()
                .map_err(|why| error(Code::BadInput, why))?,
        },
        election: flags.election().map_err(|why| error(Code::BadInput, why))?,
        serve: flags.serving.serve(flags.secure_port, PORT),
    };
    let config = component::connection(flags.kubeconfig.as_deref(), flags.master.as_ref()).await?;
    let controllers = Controllers::new(Connect::Config(Box::new(config)), options)?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut running = std::pin::pin!(controllers.run(async {
        // An error is this function that ended: stop as well.
        let _ = stopped.await;
    }));
    tokio::select! {
        result = &mut running => return Ok(result?),
        () = signals.next() => drop(stop),
    }
    tokio::select! {
        result = running => Ok(result?),
        () = signals.next() => bail!(STOPPED_TWICE),
    }
}

impl Flags {
    fn election(&self) -> anyhow::Result<Option<Election>> {
        let mut settings = Configuration::default().leader_election;
        settings.resource_name = NAME.to_owned();
        settings.resource_namespace = NAMESPACE.to_owned();
        self.election.apply(
            self.leader_elect_resource_name.as_ref(),
            self.leader_elect_resource_namespace.as_ref(),
            &mut settings,
        )?;
        Ok(self.election.election(&settings, &component::host()))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        flags: Flags,
    }

    #[test]
    fn a_bad_duration_is_refused_with_its_form() {
        for flag in [
            "--agent-silent-after",
            "--policy-sync-interval",
            "--scheduler-not-found-after",
            "--hot-spot-interval",
        ] {
            let refused = Command::try_parse_from(["x", &format!("{flag}=x")]);
            let found = refused.err().unwrap().to_string();
            let want = format!(
                "invalid value 'x' for '{flag} <DURATION>': use a duration like 20s, 5m or 1h30m"
            );
            assert!(found.contains(&want), "{found}");
        }
    }

    #[test]
    fn namespaces_of_schedulers_are_names() {
        let parse = |value: &str| {
            let flag = format!("--scheduler-namespaces={value}");
            Command::try_parse_from(["x", &flag])
                .map(|it| it.flags.schedulers.settings().namespaces)
        };
        assert_eq!(
            parse("volcano-system,kai").unwrap(),
            ["volcano-system", "kai"]
        );
        for bad in ["", "a,", "Team", "a/b", "*"] {
            let refused = parse(bad).unwrap_err().to_string();
            assert!(
                refused.contains("it is not the name of a namespace"),
                "{bad}: {refused}"
            );
        }
    }
}
