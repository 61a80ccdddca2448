//! `tidepool up`: a cluster in one process, until somebody stops it.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow};
use apiserver::{Cluster, Options, ServeError, ServeOptions, Serving};
use clap::Args;
use local::{Local, Timings};
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
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(0..=5000))]
    nodes: u16,
    /// The port of the Kubernetes API on 127.0.0.1; 0 picks a free one.
    #[arg(long, default_value_t = 6440)]
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
    cluster.serve(options).await.map_err(|error| {
        let is_busy = matches!(&error, ServeError::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse);
        let error = anyhow::Error::new(error);
        if is_busy { error.context("choose another port with --port, or 0 for any free one") } else { error }
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
    let kubectl = format!(
        "kubectl --kubeconfig {}",
        shell_word(&path.display().to_string())
    );
    let mut text = String::new();
    let _ = writeln!(
        text,
        "tidepool {version}: a Kubernetes API on {url}, {nodes} simulated nodes"
    );
    let _ = writeln!(text, "kubeconfig: {}", path.display());
    let _ = writeln!(text, "\nTry next:");
    let _ = writeln!(text, "  {kubectl} get nodes");
    let _ = writeln!(
        text,
        "  {kubectl} create deployment web --image=web --replicas=3"
    );
    let _ = writeln!(text, "  {kubectl} get deployments,pods -o wide");
    let _ = writeln!(
        text,
        "\nThere is no scheduler yet: a pod runs where its spec.nodeName says. Ctrl-C stops everything."
    );
    text
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
