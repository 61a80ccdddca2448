//! Finds a running scheduler and sends it a request.
//!
//! Every error is one sentence with a remedy.

mod lease;

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use api::http::ErrorCode;
use clap::Args;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::Value;

use self::lease::{Holder, Unknown};
use crate::{
    exit::{Code, code_of, error},
    foreign::one_line,
    kubeconfig,
    output::Format,
};

const CONNECT: Duration = Duration::from_secs(3);
const ANSWER: Duration = Duration::from_secs(15);
/// Bytes of an answer: the report about a pod on a very large cluster, with all scores.
const LONGEST_ANSWER: usize = 256 << 20;

#[derive(Args)]
#[command(next_help_heading = "Scheduler")]
// Commands that flatten these flags have a group of the same name.
#[group(skip)]
pub(crate) struct Flags {
    /// Address of the scheduler [default: from its Lease, or a running `tidepool up`]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Kubeconfig of the cluster [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Lease of the scheduler [default: the Lease with the address of a scheduler]
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = parse_lease)]
    lease: Option<(String, String)>,
    /// Namespace of the Lease [default: all namespaces that you may list]
    #[arg(long, value_name = "NAME", conflicts_with = "lease")]
    lease_namespace: Option<String>,
    /// CA certificates that verify the scheduler, in PEM [default: those of the cluster]
    #[arg(long, value_name = "PATH")]
    certificate_authority: Option<PathBuf>,
    /// Output format
    #[arg(
        long,
        short,
        value_enum,
        default_value = "table",
        help_heading = "Output"
    )]
    pub(crate) output: Format,
}

/// A scheduler that can be queried.
pub(crate) struct Scheduler {
    pub(crate) server: Uri,
    client: Client,
    /// The holders of the Leases with this address.
    holders: Vec<Holder>,
}

/// Sends a request, on a runtime of its own.
pub(crate) fn ask(flags: &Flags, path: &str) -> Result<(Scheduler, Value)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let scheduler = find(flags).await?;
        scheduler.check_identity().await?;
        let answer = scheduler.get(path).await?;
        Ok((scheduler, answer))
    })
}

async fn find(flags: &Flags) -> Result<Scheduler> {
    if let Some(server) = &flags.server {
        let server = parse_server(server).map_err(|why| {
            error(
                Code::BadInput,
                format_args!(
                    "invalid address --server {server} ({why}); use one like http://127.0.0.1:10259"
                ),
            )
        })?;
        // The kubeconfig has the credentials; without one there are none.
        let config = match clusters(flags).into_iter().next() {
            Some(cluster) => match cluster.config(flags).await {
                Err(why) if flags.kubeconfig.is_some() => return Err(error(Code::BadInput, why)),
                config => config.ok(),
            },
            None => None,
        };
        return Scheduler::new(server, config, Vec::new(), flags);
    }
    let mut first = None;
    for cluster in clusters(flags) {
        match cluster.scheduler(flags).await {
            Ok(scheduler) => return Ok(scheduler),
            Err(why) => first = first.or(Some(why)),
        }
    }
    let why = first.unwrap_or_else(|| "no kubeconfig".to_owned());
    Err(error(
        Code::Unreachable,
        format_args!(
            "no scheduler found: {why}; start one with `tidepool up`, or pass its address with --server or --kubeconfig"
        ),
    ))
}

fn parse_server(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(_)) => Ok(uri),
        _ => Err("it must begin with http:// or https://".to_owned()),
    }
}

/// A kubeconfig that may lead to a scheduler.
enum Cluster {
    File(PathBuf),
    /// `$KUBECONFIG`, which may name several files.
    Environment,
}

/// The kubeconfigs to try, in this order.
fn clusters(flags: &Flags) -> Vec<Cluster> {
    if let Some(path) = &flags.kubeconfig {
        return vec![Cluster::File(path.clone())];
    }
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if variable("KUBECONFIG").is_some() {
        return vec![Cluster::Environment];
    }
    let home = variable("HOME").map(|home| PathBuf::from(home).join(".kube").join("config"));
    let up = kubeconfig::default_path(variable).ok();
    let there = home.into_iter().chain(up).filter(|path| path.is_file());
    there.map(Cluster::File).collect()
}

impl Cluster {
    async fn config(&self, flags: &Flags) -> Result<Config, String> {
        let options = KubeConfigOptions {
            context: flags.context.clone(),
            ..KubeConfigOptions::default()
        };
        let file = match self {
            Self::File(path) => {
                // kube's own error has the path and the cause twice.
                crate::read_input(path).map_err(|why| format!("{why:#}"))?;
                Kubeconfig::read_from(path)
            }
            Self::Environment => Kubeconfig::from_env().map(Option::unwrap_or_default),
        };
        let name = self.name();
        let unusable = |why| format!("cannot use kubeconfig {name} ({why})");
        let file = file.map_err(unusable)?;
        let config = Config::from_custom_kubeconfig(file, &options).await;
        let mut config = config.map_err(unusable)?;
        hasten(&mut config);
        Ok(config)
    }

    fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Environment => "$KUBECONFIG".to_owned(),
        }
    }

    /// The scheduler of the Lease, else the one that `up` recorded. A record may be older than the cluster: after the
    /// cluster is gone, another cluster's scheduler may have the address.
    async fn scheduler(&self, flags: &Flags) -> Result<Scheduler, String> {
        let config = self.config(flags).await?;
        let (server, holders) = match lease::server(&config, flags).await {
            Ok(found) => found,
            Err(Unknown::Silent(why)) => return Err(why),
            Err(Unknown::Unhelpful(why)) => (self.recorded_server().ok_or(why)?, Vec::new()),
        };
        let parsed = parse_server(&server)
            .map_err(|why| format!("its address `{server}` is invalid ({why})"))?;
        Scheduler::new(parsed, Some(config), holders, flags).map_err(|why| format!("{why:#}"))
    }

    fn recorded_server(&self) -> Option<String> {
        let path = match self {
            Self::File(path) => path.clone(),
            Self::Environment => PathBuf::from(std::env::var_os("KUBECONFIG")?),
        };
        kubeconfig::read_server(&path)
    }
}

fn parse_lease(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err("use NAMESPACE/NAME, such as kube-system/tidepool-scheduler".to_owned()),
    }
}

/// Short timeouts and no retries, because a user waits for the answer.
fn hasten(config: &mut Config) {
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(ANSWER);
    config.default_retry = false;
}

fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.last().map(ToString::to_string).unwrap_or_default()
}

impl Scheduler {
    fn new(
        server: Uri,
        cluster: Option<Config>,
        holders: Vec<Holder>,
        flags: &Flags,
    ) -> Result<Self> {
        let mut config = Config::new(server.clone());
        hasten(&mut config);
        // Tokens are sent only over TLS.
        if server.scheme_str() == Some("https")
            && let Some(cluster) = cluster
        {
            config.auth_info = cluster.auth_info;
            config.root_cert = cluster.root_cert;
        }
        if let Some(path) = &flags.certificate_authority {
            crate::read_input(path)?;
            config.root_cert_file = Some(path.clone());
        }
        Ok(Self {
            server,
            client: Client::try_from(config)?,
            holders,
        })
    }

    /// The address of a Lease may mean another machine, as 127.0.0.1 does, where a scheduler of another cluster answers.
    /// A scheduler without an identity, or that refuses to show it, is accepted.
    async fn check_identity(&self) -> Result<()> {
        let Some(first) = self.holders.first() else {
            return Ok(());
        };
        let status = match self.get(api::http::STATUS).await {
            Err(why) if code_of(&why) == Code::Refused => return Ok(()),
            status => status?,
        };
        let status: api::http::SchedulerStatus = serde_json::from_value(status).unwrap_or_default();
        let found = &status.identity;
        if found.is_empty() || self.holders.iter().any(|it| it.identity == *found) {
            return Ok(());
        }
        let (server, Holder { lease, identity }) = (&self.server, first);
        Err(error(
            Code::Unreachable,
            format_args!(
                "Lease {lease} has the address {server} for {}, but {} answers there: run the command on the machine of the former, or pass --server",
                one_line(identity),
                one_line(found)
            ),
        ))
    }

    /// The JSON object at this path.
    async fn get(&self, path: &str) -> Result<Value> {
        let server = self.server.to_string();
        let server = server.trim_end_matches('/');
        let request = Request::get(path).body(Body::empty())?;
        let answer = self.client.send(request).await.map_err(|why| {
            let cause = root_cause(&why);
            error(
                Code::Unreachable,
                format_args!("the scheduler at {server} does not answer ({cause}); start one with `tidepool up`, or pass another address with --server"),
            )
        })?;
        let code = answer.status();
        let body = Limited::new(answer.into_body(), LONGEST_ANSWER)
            .collect()
            .await;
        let body = body.map_err(|why| {
            let text =
                format!("the answer of the scheduler at {server} is incomplete ({why}); try again");
            error(Code::Unreachable, text)
        })?;
        let body: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or(Value::Null);
        if code.is_success() && body.is_object() {
            return Ok(body);
        }
        Err(refusal(code, serde_json::from_value(body).ok(), server))
    }
}

/// The error for a response without success.
fn refusal(status: StatusCode, answer: Option<api::http::Error>, server: &str) -> anyhow::Error {
    let code = answer.as_ref().map(|answer| answer.code);
    let message = answer.as_ref().map(|answer| one_line(&answer.message));
    let message = message.as_deref().unwrap_or("no reason given");
    match (status, code) {
        (StatusCode::UNAUTHORIZED, _) => error(
            Code::Refused,
            format_args!(
                "the scheduler at {server} does not accept your credentials ({message}); pass the kubeconfig of a user with a token with --kubeconfig"
            ),
        ),
        (StatusCode::FORBIDDEN, _) => error(
            Code::Refused,
            format_args!(
                "the scheduler at {server} refuses the request ({message}); ask a cluster administrator for this permission"
            ),
        ),
        (_, Some(ErrorCode::PodNotFound)) => error(
            Code::Failed,
            format_args!("{message}; `kubectl get pods -A` lists all pods"),
        ),
        (_, Some(ErrorCode::NodeNotFound)) => error(
            Code::Failed,
            format_args!("{message}; `kubectl get nodes` lists all nodes"),
        ),
        (status, Some(_)) if status.is_server_error() => error(
            Code::Unreachable,
            format_args!("the scheduler at {server} cannot answer now ({message}); try again"),
        ),
        _ => error(
            Code::Failed,
            format_args!(
                "the server at {server} is not a tidepool scheduler ({status}); pass its address with --server"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        flags: Flags,
    }

    /// Refuses all requests.
    fn refuse_all(listener: TcpListener) {
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
                let head = "HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\nconnection: close";
                stream
                    .write_all(format!("{head}\r\n\r\nno").as_bytes())
                    .unwrap();
            }
        });
    }

    #[tokio::test]
    async fn a_recorded_address_counts_only_where_the_cluster_answers() {
        let flags = Cli::parse_from(["x"]).flags;
        let directory = tempfile::tempdir().unwrap();
        for answers in [true, false] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let api = format!("http://{}", listener.local_addr().unwrap());
            if answers {
                refuse_all(listener);
            } else {
                drop(listener);
            }
            let path = directory.path().join(answers.to_string());
            let text = format!(
                "clusters: [{{name: a, cluster: {{server: '{api}'}}}}]\n\
                 users: [{{name: a, user: {{}}}}]\n\
                 contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
                 current-context: a\n"
            );
            std::fs::write(&path, text).unwrap();
            kubeconfig::write_server(&path, "http://127.0.0.1:1").unwrap();
            let found = Cluster::File(path).scheduler(&flags).await;
            match found.map(|scheduler| scheduler.server.to_string()) {
                Ok(server) => assert!(answers && server == "http://127.0.0.1:1/", "{server}"),
                Err(why) => assert!(!answers && why.contains("does not answer"), "{why}"),
            }
        }
    }
}
