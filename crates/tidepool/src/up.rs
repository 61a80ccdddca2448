//! `tidepool up`: a cluster in one process.

mod board;
mod screen;
mod terminal;
mod view;
mod welcome;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow};
use api::config::Configuration;
use apiserver::{Cluster, ServeError, ServeOptions, Serving};
use clap::Args;
use control_plane::{
    client::Connect,
    election::Election,
    scheduler::{self, Mode},
    serve::{self, Port, Serve},
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, api::PostParams};
use local::{Local, Timings};
use tokio::signal::unix::{SignalKind, signal};

use self::{terminal::Terminal, view::View, welcome::Welcome};
use crate::{
    kubeconfig::{self, USER},
    logs, say,
    signals::StatusSignal,
};

/// The name of this machine in events and in the Lease.
const HOST: &str = "tidepool-up";
/// Stopping takes a second. After this time some task hangs, and it is safe to exit.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Start a local cluster in this process: a Kubernetes API, a scheduler and simulated nodes
///
/// It needs no other program and leaves only the kubeconfig behind. On a terminal it shows a live page, otherwise it prints a
/// line for each event.
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
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    run_for: Option<Duration>,
    /// Log the scores of the best COUNT nodes with every decision; 0 disables it
    #[arg(short = 's', long, value_name = "COUNT", default_value_t = 0, value_parser = engine::scheduler::score_count)]
    debug_scores: u16,
    /// Do not create the demo workload
    #[arg(long)]
    no_demo: bool,
    /// Start without nodes and workload; every Node created through the API becomes a simulated node
    #[arg(long, conflicts_with = "nodes")]
    empty: bool,
    /// Print lines instead of the live page, also on a terminal
    #[arg(long)]
    plain: bool,
}

const EXAMPLES: &str = "\
Examples:
  tidepool up                             six nodes with a demo workload
  tidepool up --nodes 100 --no-demo       a hundred empty nodes
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

fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "use a duration like 20s, 5m or 1h30m".to_owned())
}

pub(crate) fn run(flags: Flags) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
    runtime.block_on(up(flags))
}

async fn up(flags: Flags) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let asked = StatusSignal::listen()?;
    let time_is_up = async {
        match flags.run_for {
            Some(duration) => tokio::time::sleep(duration).await,
            None => std::future::pending().await,
        }
    };
    let mut end = std::pin::pin!(async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = time_is_up => {}
        }
    });
    let mut running = tokio::select! {
        running = Running::start(&flags) => running?,
        () = &mut end => return Ok(()),
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
    /// The scheduler names that pods can use.
    schedulers: Vec<String>,
}

impl Running {
    async fn start(flags: &Flags) -> anyhow::Result<Self> {
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
        let root_ca = serving.ca_pem().to_owned();
        let local = local::start(client.clone(), root_ca, Timings::default());
        local.synced().await;
        let nodes = if flags.empty { 0 } else { flags.nodes.into() };
        let added = local.nodes().add_demo(nodes).await;
        added.context("cannot add the demo nodes")?;
        let lease = &configuration.leader_election.resource_namespace;
        create_namespace(&client, lease).await?;
        let scheduler = scheduler::Running::start(Connect::Client(client.clone()), options)?;
        let demo = !(flags.no_demo || flags.empty);
        if demo && let Some(name) = schedulers.first() {
            let loaded = local.load_demo(nodes, name).await;
            loaded.context("cannot load the demo workload")?;
        }
        if let Some(address) = scheduler.server()
            && let Err(error) = kubeconfig::write_server(&kubeconfig, &url(address))
        {
            // Commands can also find it by its Lease.
            tracing::warn!("cannot save the address of the scheduler: {error}");
        }
        Ok(Self {
            scheduler,
            local,
            serving,
            client,
            shown: Shown {
                kubeconfig,
                nodes,
                demo,
                schedulers,
            },
        })
    }

    /// Shows events until the end, or until a component fails.
    async fn show(&mut self, plain: bool, end: impl Future<Output = ()>) -> anyhow::Result<()> {
        let url = self.serving.url();
        let program = std::env::args().next();
        let welcome = Welcome {
            url: &url,
            kubeconfig: &self.shown.kubeconfig,
            nodes: self.shown.nodes,
            demo: self.shown.demo,
            schedulers: &self.shown.schedulers,
            program: program.as_deref().unwrap_or("tidepool"),
        };
        let mut view = View::new(self.client.clone(), welcome.frame());
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
        self.scheduler.stop().await;
        self.local.stop().await;
        self.serving.shutdown().await;
    }
}

/// The URL of a scheduler that listens there.
fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

fn configuration(file: Option<&Path>) -> anyhow::Result<Configuration> {
    let Some(file) = file else {
        return Ok(Configuration::default());
    };
    let (configuration, warnings) = api::config::load(&crate::read_input(file)?)
        .with_context(|| format!("cannot use {}", file.display()))?;
    for warning in warnings {
        tracing::warn!("{}: {warning}", file.display());
    }
    Ok(configuration)
}

fn scheduler_options(
    configuration: &Configuration,
    file: Option<&Path>,
) -> anyhow::Result<scheduler::Options> {
    let file = file.map_or_else(String::new, |file| file.display().to_string());
    let options = scheduler::Options::new(configuration, engine::plugins::ALL, HOST);
    let (mut options, warnings) = options.with_context(|| format!("cannot use {file}"))?;
    for warning in warnings {
        tracing::warn!("{file}: {warning}");
    }
    let election = &configuration.leader_election;
    options.mode = Mode::Primary;
    options.election = election.leader_elect.then(|| Election::new(election, HOST));
    Ok(options)
}

/// Creates the namespace of the scheduler's Lease.
async fn create_namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    match namespaces.create(&PostParams::default(), &namespace).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot create the namespace {name}")),
        Ok(_) => Ok(()),
    }
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
