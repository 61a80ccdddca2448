//! `tidepool up`: a cluster in one process.

mod agents;
mod board;
mod contents;
mod controllers;
mod keys;
mod screen;
mod scroll;
mod terminal;
mod view;
mod webhook;
mod welcome;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow};
use api::{config::Configuration, zone_grid::ZoneGrid};
use apiserver::{Cluster, ServeError, ServeOptions, Serving};
use clap::Args;
use control_plane::{
    client::Connect,
    controllers::hot_spots::SchedulerProfiles,
    election::Election,
    scheduler::{self, Mode},
    serve::{self, Port, Serve},
};
use engine::scheduling::profile::Profile;
use kube::Client;
use local::{Local, Shape, Timings, demo::DemoWorkload};
use tokio::{
    runtime::{Handle, Runtime},
    signal::unix::{SignalKind, signal},
};

use self::{
    agents::SimulatedAgents, controllers::RunningControllers, terminal::Terminal, view::View,
    welcome::Welcome,
};
use crate::{
    component, config,
    controllers::scheduler_profiles,
    kubeconfig::{self, USER},
    logs, say,
    signals::StatusSignal,
};

/// The configuration without `--config`.
const DEFAULT_PROFILE: &str = include_str!("up/default-profile.yaml");
/// The name of this machine in events and in the Lease.
const HOST: &str = "tidepool-up";
/// Stopping takes a second. After this time some task hangs, and it is safe to exit.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Start a local cluster in this process: a Kubernetes API, a scheduler and simulated nodes
///
/// The controllers and the admission webhook of Tidepool run in it, too; nodes of the demo have simulated agents. It needs no other
/// program and leaves only the kubeconfig behind. On a terminal it shows a live page, otherwise it prints a line for each event.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// Number of simulated nodes at the start
    #[arg(long, default_value_t = 6, value_parser = parse_nodes, allow_negative_numbers = true)]
    nodes: u16,
    /// The port of the Kubernetes API on 127.0.0.1; 0 picks a free one
    #[arg(long, default_value_t = 6440, value_parser = parse_port, allow_negative_numbers = true)]
    port: u16,
    /// A KubeSchedulerConfiguration for the scheduler
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,
    /// Where to write the kubeconfig [default: tidepool/kubeconfig in your cache directory]
    #[arg(long, value_name = "PATH")]
    kubeconfig_out: Option<PathBuf>,
    /// Stop after this time, such as 20s or 1h30m
    #[arg(long = "for", value_name = "DURATION", value_parser = component::duration_or_zero)]
    run_for: Option<Duration>,
    /// Log the scores of the best COUNT nodes with every decision; 0 disables it
    #[arg(short = 's', long, value_name = "COUNT", default_value_t = 0, value_parser = engine::scheduling::scheduler::score_count)]
    debug_scores: u16,
    /// Do not create the demo workload
    #[arg(long)]
    no_demo: bool,
    /// The time from one low tide of the demo to the next: how fast the use of its services rises and falls
    #[arg(long, value_name = "DURATION", default_value = "4m", value_parser = parse_tide)]
    tide: Duration,
    /// Start without nodes and workload; every Node created through the API becomes a simulated node
    #[arg(long, conflicts_with = "nodes")]
    empty: bool,
    /// NUMA zones of each node as sockets and zones per socket, such as 2x2; the demo then has pods with zones of their own
    #[arg(long, value_name = "SOCKETSxZONES", conflicts_with = "empty")]
    numa: Option<ZoneGrid>,
    /// Print lines instead of the live page, also on a terminal
    #[arg(long)]
    plain: bool,
}

const EXAMPLES: &str = "\
Examples:
  tidepool up                             six nodes with a demo workload
  tidepool up --nodes 100 --no-demo       a hundred empty nodes
  tidepool up --numa 2x2                  nodes with two sockets of two NUMA zones, and pods that have some for themselves
  tidepool up --config my-scheduler.yaml  with your scheduler's configuration
  tidepool up --for 20s --port 0 | cat    for scripts: lines, a free port, stops by itself";

/// The embedded cluster is not measured with more, and more would start slowly.
const MAX_NODES: u16 = 5000;

fn parse_nodes(text: &str) -> Result<u16, String> {
    let nodes = text.parse().ok().filter(|nodes| *nodes <= MAX_NODES);
    nodes.ok_or_else(|| format!("use a whole number from 0 to {MAX_NODES}"))
}

fn parse_port(text: &str) -> Result<u16, String> {
    text.parse()
        .map_err(|_| "use a whole number from 0 to 65535".to_owned())
}

/// The plugin that gives pods NUMA zones.
const TOPOLOGY_PLUGIN: &str = "NodeResourceTopology";

/// A configuration replaces the profile of `up`, which has the plugin.
fn warn_of_zones_without_plugin(profiles: &SchedulerProfiles) {
    let has_plugin = |it: &&Profile| it.plugins().iter().any(|it| it.name == TOPOLOGY_PLUGIN);
    let without = profiles.0.into_iter().flatten();
    for profile in without.filter(|it| !has_plugin(it)) {
        tracing::warn!(
            "pods of scheduler {} get no NUMA zones: its profile does not enable {TOPOLOGY_PLUGIN}",
            profile.scheduler_name
        );
    }
}

/// Agents look at their nodes many times in a tide.
const LEAST_TIDE: Duration = Duration::from_secs(20);

fn parse_tide(text: &str) -> Result<Duration, String> {
    let tide = component::duration(text)?;
    match tide < LEAST_TIDE {
        true => Err("use 20s or more".to_owned()),
        false => Ok(tide),
    }
}

pub(crate) fn run(flags: Flags) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
    let background = background().context("cannot start threads")?;
    let result = runtime.block_on(up(flags, background.handle()));
    background.shutdown_background();
    result
}

/// The threads of the controllers and simulated nodes. A flood of objects keeps them busy; the API server, the Lease and
/// the health checks have other threads.
fn background() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .thread_name("tidepool-local")
        .enable_all()
        .build()
}

async fn up(flags: Flags, background: &Handle) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let asked = StatusSignal::listen()?;
    let mut signalled = std::pin::pin!(async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    });
    let mut running = tokio::select! {
        running = Running::start(&flags, background) => running?,
        () = &mut signalled => return Ok(()),
    };
    // A slow start does not shorten the time of the cluster.
    let time_is_up = async {
        match flags.run_for {
            Some(duration) => tokio::time::sleep(duration).await,
            None => std::future::pending().await,
        }
    };
    let end = async {
        tokio::select! {
            () = signalled => {}
            () = time_is_up => {}
        }
    };
    asked.answer(running.scheduler.handle().clone());
    let result = running.show(flags.plain, end).await;
    let stopped = tokio::time::timeout(STOP_TIMEOUT, running.stop()).await;
    if stopped.is_err() {
        tracing::warn!("some components did not stop in time");
    }
    result
}

struct Running {
    scheduler: scheduler::Running,
    controllers: RunningControllers,
    /// The agents of the nodes of the demo; other nodes have none, so that users can report for them.
    agents: Option<SimulatedAgents>,
    local: Local,
    serving: Serving,
    client: Client,
    shown: Shown,
}

/// What the welcome text needs.
struct Shown {
    kubeconfig: PathBuf,
    nodes: usize,
    demo: bool,
    tide: Duration,
    /// The scheduler names that pods can use.
    schedulers: Vec<String>,
    debug_scores: bool,
}

impl Running {
    async fn start(flags: &Flags, background: &Handle) -> anyhow::Result<Self> {
        let kubeconfig = match &flags.kubeconfig_out {
            Some(path) => std::path::absolute(path).context("cannot write the kubeconfig")?,
            None => kubeconfig::default_path(|name| std::env::var_os(name))?,
        };
        kubeconfig::check_free(&kubeconfig).await?;
        let mut configuration = configuration(flags.config.as_deref())?;
        Mode::Primary.settle(&mut configuration)?;
        let mut options = scheduler_options(&configuration, flags.config.as_deref())?;
        options.debug_scores = flags.debug_scores;
        options.serve = Some(Serve {
            // A free port for the API means a free port for the scheduler too.
            port: match flags.port {
                0 => Port::Exactly(0),
                _ => Port::Preferred(serve::PORT),
            },
            ..Serve::default()
        });
        let names = configuration.profiles.iter();
        let schedulers: Vec<String> = names.map(|it| it.scheduler_name.clone()).collect();

        let cluster = Cluster::new(apiserver::Options::default());
        let serving = serve_api(&cluster, flags.port).await?;
        let text = serving
            .kubeconfig(USER)
            .ok_or_else(|| anyhow!("user {USER} has no kubeconfig"))?;
        kubeconfig::write(&kubeconfig, &text)?;
        let client = Client::new(cluster.service(), "default");
        contents::create(&client, &configuration.leader_election.resource_namespace).await?;
        // First, so that it answers for every pod.
        webhook::install(&cluster, &client).await?;
        let root_ca = serving.ca_pem().to_owned();
        let local = {
            // The tasks of this client and of everything that is started here run there.
            let _there = background.enter();
            let client = Client::new(cluster.service(), "default");
            local::start(client, root_ca, Timings::default())
        };
        local.synced().await;
        let nodes = if flags.empty { 0 } else { flags.nodes.into() };
        let shapes = (0..nodes).map(|index| Shape {
            numa: flags.numa,
            ..Shape::demo(index, nodes)
        });
        let added = local.nodes().add_all(&shapes.collect::<Vec<_>>()).await;
        added.context("cannot add the demo nodes")?;
        let scheduler = scheduler::Running::start(Connect::Client(client.clone()), options)?;
        let profiles = scheduler_profiles(&configuration, flags.config.as_deref())?;
        if flags.numa.is_some() {
            warn_of_zones_without_plugin(&profiles);
        }
        let controllers = RunningControllers::start(client.clone(), profiles, flags.tide)?;
        let demo = !(flags.no_demo || flags.empty);
        if demo && let Some(name) = schedulers.first() {
            let workload = DemoWorkload {
                nodes,
                numa: flags.numa,
                scheduler: name,
                tide: flags.tide,
            };
            let loaded = local.load_demo(&workload).await;
            loaded.context("cannot load the demo workload")?;
        }
        let agents = demo.then(|| {
            let client = Client::new(cluster.service(), "default");
            SimulatedAgents::start(client, background, flags.tide)
        });
        if let Some(address) = scheduler.server()
            && let Err(error) = kubeconfig::write_server(&kubeconfig, &url(address), &serving.url())
        {
            // Commands can also find it by its Lease.
            tracing::warn!("cannot save the address of the scheduler: {error}");
        }
        Ok(Self {
            scheduler,
            controllers,
            agents,
            local,
            serving,
            client,
            shown: Shown {
                kubeconfig,
                nodes,
                demo,
                tide: flags.tide,
                schedulers,
                debug_scores: flags.debug_scores > 0,
            },
        })
    }

    /// Shows events until the end, or until a component fails.
    async fn show(&mut self, plain: bool, end: impl Future<Output = ()>) -> anyhow::Result<()> {
        let api = self.serving.url();
        let program = std::env::args().next();
        let scores = self.scheduler.server().filter(|_| self.shown.debug_scores);
        let scores =
            scores.map(|address| format!("{}{}?output=table", url(address), api::http::SCORES));
        let welcome = Welcome {
            url: &api,
            kubeconfig: &self.shown.kubeconfig,
            nodes: self.shown.nodes,
            demo: self.shown.demo,
            schedulers: &self.shown.schedulers,
            scores,
            program: program.as_deref().unwrap_or("tidepool"),
        };
        let tide = self.shown.demo.then_some(self.shown.tide);
        let mut view = View::new(self.client.clone(), welcome.frame(), tide);
        // The log is held back while the page is on the terminal.
        let held = logs::hold();
        let terminal = if plain { None } else { Terminal::open() };
        let on_terminal = terminal.is_some();
        if !on_terminal {
            drop(held);
            say(&welcome.text())?;
        }
        let shows = async {
            match &terminal {
                Some(terminal) => view.page(terminal).await,
                None => view.lines().await,
            }
        };
        let result = tokio::select! {
            result = shows => result,
            () = end => Ok(()),
            why = self.scheduler.ended() => Err(why.into()),
            why = self.controllers.ended() => Err(why),
        };
        drop(terminal);
        if on_terminal {
            say(&view.summary())?;
        }
        result
    }

    async fn stop(self) {
        if let Some(address) = self.scheduler.server() {
            kubeconfig::remove_server(&self.shown.kubeconfig, &url(address));
        }
        if let Some(agents) = self.agents {
            agents.stop();
        }
        self.controllers.stop().await;
        self.scheduler.stop().await;
        self.local.stop().await;
        self.serving.shutdown().await;
    }
}

/// The URL of a scheduler that listens there.
fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

/// Without a file: the default profile of `up`.
pub(crate) fn configuration(file: Option<&Path>) -> anyhow::Result<Configuration> {
    let Some(file) = file else {
        let (configuration, _) =
            api::config::load(DEFAULT_PROFILE).context("cannot use the default profile")?;
        return Ok(configuration);
    };
    let (configuration, warnings) = api::config::load(&crate::read_input(file)?)
        .map_err(|errors| config::refused(file, &errors))?;
    let name = file.display().to_string();
    for warning in warnings {
        tracing::warn!("{}", warning.in_file(&name, ""));
    }
    Ok(configuration)
}

fn scheduler_options(
    configuration: &Configuration,
    file: Option<&Path>,
) -> anyhow::Result<scheduler::Options> {
    let options = scheduler::Options::new(configuration, engine::scheduling::plugins::ALL, HOST);
    let (mut options, warnings) = match file {
        None => options.context("cannot use the default configuration")?,
        Some(file) => options.map_err(|errors| config::refused(file, &errors))?,
    };
    let name = file.map_or_else(String::new, |file| file.display().to_string());
    for warning in warnings {
        tracing::warn!("{}", warning.in_file(&name, ""));
    }
    let election = &configuration.leader_election;
    options.mode = Mode::Primary;
    options.election = election.leader_elect.then(|| Election::new(election, HOST));
    Ok(options)
}

async fn serve_api(cluster: &Cluster, port: u16) -> anyhow::Result<Serving> {
    let options = ServeOptions {
        port,
        users: vec![USER.into()],
        ..ServeOptions::default()
    };
    cluster.serve(options).await.map_err(|error| match error {
        ServeError::Listen { address, source } => anyhow!(
            "cannot listen on {address}: {source}; choose another port with --port (0 picks a free one); a second cluster also needs --kubeconfig-out"
        ),
        other => other.into(),
    })
}

#[cfg(test)]
mod tests {
    use engine::scheduling::framework::Point;

    use super::*;

    #[test]
    fn the_default_profile_is_kube_schedulers_with_reclaimed_resources() {
        let configuration = configuration(None).unwrap();
        let (profiles, warnings) = configuration
            .profiles(engine::scheduling::plugins::ALL)
            .unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        let profile = &profiles[0];
        assert_eq!(profiles.len(), 1);
        assert_eq!(&*profile.scheduler_name, "default-scheduler");
        let names = |point| -> Vec<&str> {
            let order = profile.at(point).iter();
            order.map(|&index| profile.plugins()[index].name).collect()
        };
        for (point, plugin, enabled) in [
            (Point::Filter, "NodeResourcesFit", true),
            (Point::Filter, "QoSAwareNodeResourcesFit", true),
            (Point::Filter, "QoSAwareTaintToleration", true),
            (Point::PostFilter, "QoSAwarePreemption", true),
            (Point::PostFilter, "DefaultPreemption", false),
            (Point::Score, "QoSAwareNodeResourcesFit", true),
            (Point::Score, "NodeResourcesBalancedAllocation", true),
            (Point::Score, "NodeResourcesFit", false),
        ] {
            assert_eq!(
                names(point).contains(&plugin),
                enabled,
                "{plugin} at {point:?}"
            );
        }
    }
}
