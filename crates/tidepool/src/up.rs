//! `tidepool up`: a cluster in one process, until somebody stops it.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow};
use apiserver::{Cluster, Options, ServeError, ServeOptions, Serving};
use clap::Args;
use local::{Local, Shape, Timings};
use tokio::signal::unix::{SignalKind, signal};

use crate::kubeconfig;

/// The user in the kubeconfig.
const USER: &str = "admin";
/// Stopping takes a second; longer means that something hangs, and nothing is lost by leaving.
const LONGEST_STOP: Duration = Duration::from_secs(5);

/// Start a local cluster in this process: a Kubernetes API with simulated nodes.
#[derive(Args)]
pub(crate) struct Flags {
    /// How many simulated nodes to start with.
    #[arg(long, default_value_t = 3, value_parser = parse_nodes, allow_negative_numbers = true)]
    nodes: u16,
    /// The port of the Kubernetes API on 127.0.0.1; 0 picks a free one.
    #[arg(long, default_value_t = 6440, value_parser = parse_port, allow_negative_numbers = true)]
    port: u16,
    /// Where to write the kubeconfig [default: tidepool/kubeconfig in your cache directory].
    #[arg(long, value_name = "PATH")]
    kubeconfig_out: Option<PathBuf>,
    /// Stop by itself after this time, such as 20s or 1h30m.
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    run_for: Option<Duration>,
    /// Start without nodes; a Node made through the API then acts as a simulated one.
    #[arg(long, conflicts_with = "nodes")]
    empty: bool,
}

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
    let path = match &flags.kubeconfig_out {
        Some(path) => path.clone(),
        None => kubeconfig::default_path(|name| std::env::var_os(name))?,
    };
    let running = tokio::select! {
        running = start(&flags, &path) => running?,
        () = &mut end => return Ok(()),
    };
    end.await;
    if tokio::time::timeout(LONGEST_STOP, running.stop())
        .await
        .is_err()
    {
        tracing::warn!("some parts did not stop in time");
    }
    Ok(())
}

struct Running {
    local: Local,
    serving: Serving,
}

async fn start(flags: &Flags, path: &Path) -> anyhow::Result<Running> {
    let cluster = Cluster::new(Options::default());
    let serving = serve(&cluster, flags.port).await?;
    let client = kube::Client::new(cluster.service(), "default");
    let local = local::start(client, serving.ca_pem().to_owned(), Timings::default());
    local.synced().await;
    let nodes = if flags.empty { 0 } else { flags.nodes };
    let demo = local.nodes().add_demo(nodes.into());
    demo.await.context("cannot add the demo nodes")?;
    let text = serving
        .kubeconfig(USER)
        .ok_or_else(|| anyhow!("user {USER} has no kubeconfig"))?;
    kubeconfig::write(path, &text)?;
    say(&welcome(&serving.url(), path, nodes))?;
    Ok(Running { local, serving })
}

async fn serve(cluster: &Cluster, port: u16) -> anyhow::Result<Serving> {
    let options = ServeOptions {
        port,
        users: vec![USER.into()],
        ..ServeOptions::default()
    };
    cluster.serve(options).await.map_err(|error| match error {
        ServeError::Listen { address, source } => anyhow!(
            "cannot listen on {address}: {source}; choose another port with --port, or 0 for any free one"
        ),
        other => other.into(),
    })
}

impl Running {
    async fn stop(self) {
        self.local.stop().await;
        self.serving.shutdown().await;
    }
}

/// A reader that went away, as `head` does, does not stop the cluster.
fn say(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to stdout"),
    }
}

fn welcome(url: &str, path: &Path, nodes: u16) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let kubeconfig = path.display().to_string();
    let kubectl = format!("kubectl --kubeconfig {}", shell_word(&kubeconfig));
    let plural = if nodes == 1 { "" } else { "s" };
    let (first, node) = match nodes {
        0 => {
            let node = r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mine"}}"#;
            let create = format!("echo '{node}' | {kubectl} create -f -\n  ");
            (create, "mine".to_owned())
        }
        nodes => (String::new(), Shape::demo(0, nodes.into()).name),
    };
    format!(
        r#"tidepool {version}: a Kubernetes API on {url}, {nodes} simulated node{plural}
kubeconfig: {kubeconfig}

Try next:
  {first}{kubectl} get nodes
  {kubectl} run web --image=web --overrides='{{"spec": {{"nodeName": "{node}"}}}}'
  {kubectl} get pods -o wide

There is no scheduler in here yet: a pod runs where its spec.nodeName says, and others wait. Ctrl-C stops everything.
"#
    )
}

/// The text as one word of a shell command.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_welcome_says_what_can_be_done() {
        let url = "https://127.0.0.1:1";
        for (nodes, count, node) in [
            (0, "0 simulated nodes", "mine"),
            (1, "1 simulated node\n", "node-001"),
            (3, "3 simulated nodes", "node-001"),
            (1000, "1000 simulated nodes", "node-0001"),
        ] {
            let text = welcome(url, Path::new("/k"), nodes);
            assert!(text.contains(count), "{text}");
            let on_node = format!(r#"'{{"spec": {{"nodeName": "{node}"}}}}'"#);
            assert!(text.contains(&on_node), "{text}");
            assert_eq!(text.contains("create -f -"), nodes == 0, "{text}");
        }
    }

    #[test]
    fn printed_commands_can_be_copied() {
        for (path, want) in [
            ("/a/b-c.d", "/a/b-c.d"),
            ("/my dir/x", "'/my dir/x'"),
            ("/it's", r"'/it'\''s'"),
        ] {
            assert_eq!(shell_word(path), want);
        }
    }
}
