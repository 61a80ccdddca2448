//! `tidepool up`: a cluster in one process, until somebody stops it.

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

/// This machine, as events and the Lease name it.
const HOST: &str = "tidepool-up";
/// Stopping takes a second; longer means that something hangs, and nothing is lost by leaving.
const LONGEST_STOP: Duration = Duration::from_secs(5);

/// Start a local cluster in this process: a Kubernetes API, a scheduler and simulated nodes
///
/// Nothing else is needed, and nothing is left behind but the kubeconfig. On a terminal it shows what happens as it happens;
/// otherwise it prints a line for each placement.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// How many simulated nodes to start with
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
    /// Stop by itself after this time, such as 20s or 1h30m
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    run_for: Option<Duration>,
    /// Log the scores of so many nodes with every decision, plugin by plugin; 0 logs none
    #[arg(short = 's', long, value_name = "COUNT", default_value_t = 0, value_parser = engine::scheduler::score_count)]
    debug_scores: u16,
    /// Leave out the demo workload
    #[arg(long)]
    no_demo: bool,
    /// Start without nodes and workload; a Node made through the API then acts as a simulated one
    #[arg(long, conflicts_with = "nodes")]
    empty: bool,
    /// Print lines on a terminal too
    #[arg(long)]
    plain: bool,
}

const EXAMPLES: &str = "\
Examples:
  tidepool up                             six nodes with a demo workload
  tidepool up --nodes 100 --no-demo       a hundred nodes with nothing on them
  tidepool up --config my-scheduler.yaml  with your scheduler's configuration
  tidepool up --for 20s --port 0 | cat    for scripts: lines, a free port, and an end";

/// More would be slow to start, and is more than the embedded cluster is measured with.
const MOST_NODES: u16 = 5000;

fn parse_nodes(text: &str) -> Result<u16, String> {
    let nodes = text.parse().ok().filter(|nodes| *nodes <= MOST_NODES);
    nodes.ok_or_else(|| format!("use a whole number from 0 to {MOST_NODES}"))
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
    let stopped = tokio::time::timeout(LONGEST_STOP, running.stop()).await;
    if stopped.is_err() {
        tracing::warn!("some parts did not stop in time");
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

/// What people are told about the cluster.
struct Shown {
    kubeconfig: PathBuf,
    nodes: usize,
    demo: bool,
    /// What pods can name as their scheduler.
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
            // Whoever leaves the choice of one port to us leaves that of the other too.
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
        make_namespace(&client, lease).await?;
        let scheduler = scheduler::Running::start(Connect::Client(client.clone()), options)?;
        let demo = !(flags.no_demo || flags.empty);
        if demo && let Some(name) = schedulers.first() {
            let loaded = local.load_demo(nodes, name).await;
            loaded.context("cannot load the demo workload")?;
        }
        if let Some(address) = scheduler.server()
            && let Err(error) = kubeconfig::write_server(&kubeconfig, &url(address))
        {
            // It can be found by its Lease, too.
            tracing::warn!("cannot write down where the scheduler answers: {error}");
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

    /// Shows what happens until the end, or until something breaks that cannot be mended.
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
        // The log comes back when the terminal is itself again.
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

/// Where a scheduler that listens there answers.
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

/// The namespace of the scheduler's Lease, which may be any.
async fn make_namespace(client: &Client, name: &str) -> anyhow::Result<()> {
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
            "cannot listen on {address}: {source}; choose another port with --port, or 0 for any free one; a second cluster needs --kubeconfig-out too"
        ),
        other => other.into(),
    })
}
