//! Where a running scheduler is, and what it answers.
//!
//! Every failure is one sentence that says what to do.

mod lease;

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
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
/// A pod explained on a very large cluster, with all its scores.
const LONGEST_ANSWER: usize = 256 << 20;

#[derive(Args)]
#[command(next_help_heading = "Which scheduler")]
// Those who take these in have a group of the same name.
#[group(skip)]
pub(crate) struct Flags {
    /// The address of the scheduler [default: as its Lease says, or a running `tidepool up`]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// The cluster of the scheduler [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Which context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// The Lease of the scheduler, as NAMESPACE/NAME [default: the one that names a scheduler]
    #[arg(long, value_name = "LEASE", value_parser = parse_lease)]
    lease: Option<(String, String)>,
    /// Where to look for the Lease [default: in all namespaces that you may see]
    #[arg(long, value_name = "NAME", conflicts_with = "lease")]
    lease_namespace: Option<String>,
    /// Certificates by which to know the scheduler, in PEM [default: those of the cluster]
    #[arg(long, value_name = "PATH")]
    certificate_authority: Option<PathBuf>,
    /// How to print the answer
    #[arg(
        long,
        short,
        value_enum,
        default_value = "table",
        help_heading = "Output"
    )]
    pub(crate) output: Format,
}

/// A scheduler that can be asked.
pub(crate) struct Scheduler {
    pub(crate) server: Uri,
    client: Client,
    /// Who should answer there, if a Lease says so.
    holders: Vec<Holder>,
}

const STATUS: &str = "/apis/v1/status";

/// Asks on a runtime of its own.
pub(crate) fn ask(flags: &Flags, path: &str) -> Result<(Scheduler, Value)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let scheduler = find(flags).await?;
        scheduler.check_who_answers().await?;
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
                    "--server {server} is no address ({why}); give one like http://127.0.0.1:10259"
                ),
            )
        })?;
        // Whoever asks may have to say who he is; but he need not be in any cluster.
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
    let why = first.unwrap_or_else(|| "there is no kubeconfig".to_owned());
    Err(error(
        Code::Unreachable,
        format_args!(
            "no scheduler was found: {why}; start one with `tidepool up`, or say where it is with --server or --kubeconfig"
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

/// Where to look, in this order.
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
                // Said in our words: kube's name the path and the cause twice.
                crate::read_input(path).map_err(|why| format!("{why:#}"))?;
                Kubeconfig::read_from(path)
            }
            Self::Environment => Kubeconfig::from_env().map(Option::unwrap_or_default),
        };
        let name = self.name();
        let unusable = |why| format!("the kubeconfig {name} cannot be used ({why})");
        let file = file.map_err(unusable)?;
        let config = Config::from_custom_kubeconfig(file, &options).await;
        let mut config = config.map_err(unusable)?;
        hasten(&mut config);
        Ok(config)
    }

    fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Environment => "in $KUBECONFIG".to_owned(),
        }
    }

    /// The one that the Lease names, else the one that `up` wrote down. What was written down may be older than the
    /// cluster: where that is gone, another cluster's scheduler may answer at the address.
    async fn scheduler(&self, flags: &Flags) -> Result<Scheduler, String> {
        let config = self.config(flags).await?;
        let (server, holders) = match lease::server(&config, flags).await {
            Ok(found) => found,
            Err(Unknown::Silent(why)) => return Err(why),
            Err(Unknown::Unhelpful(why)) => (self.written_down().ok_or(why)?, Vec::new()),
        };
        let parsed = parse_server(&server)
            .map_err(|why| format!("its address `{server}` cannot be used ({why})"))?;
        Scheduler::new(parsed, Some(config), holders, flags).map_err(|why| format!("{why:#}"))
    }

    fn written_down(&self) -> Option<String> {
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
        _ => Err("give it as NAMESPACE/NAME, such as kube-system/tidepool-scheduler".to_owned()),
    }
}

/// Somebody waits for the answer: nothing is tried for long, nor twice.
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
        // Tokens go only where nobody can listen.
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

    /// An address on a Lease may mean another machine, as 127.0.0.1 does; whoever answers there answers for a cluster of
    /// its own. Schedulers that do not say who they are, or not to us, are believed.
    async fn check_who_answers(&self) -> Result<()> {
        let Some(first) = self.holders.first() else {
            return Ok(());
        };
        let status = match self.get(STATUS).await {
            Err(why) if code_of(&why) == Code::Refused => return Ok(()),
            status => status?,
        };
        let found = status["identity"].as_str().unwrap_or_default();
        if found.is_empty() || self.holders.iter().any(|it| it.identity == found) {
            return Ok(());
        }
        let (server, Holder { lease, identity }) = (&self.server, first);
        Err(error(
            Code::Unreachable,
            format_args!(
                "the Lease {lease} says that {} answers at {server}, but {} does: ask on the machine of the former, or say with --server whom you mean",
                one_line(identity),
                one_line(found)
            ),
        ))
    }

    /// What it answers to this path.
    async fn get(&self, path: &str) -> Result<Value> {
        let server = self.server.to_string();
        let server = server.trim_end_matches('/');
        let request = Request::get(path).body(Body::empty())?;
        let answer = self.client.send(request).await.map_err(|why| {
            let cause = root_cause(&why);
            error(
                Code::Unreachable,
                format_args!("the scheduler at {server} does not answer ({cause}); is it running? `tidepool up` starts one, and --server names another"),
            )
        })?;
        let code = answer.status();
        let body = Limited::new(answer.into_body(), LONGEST_ANSWER)
            .collect()
            .await;
        let body = body.map_err(|why| {
            let text =
                format!("the answer of the scheduler at {server} breaks off ({why}); try again");
            error(Code::Unreachable, text)
        })?;
        let body: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or(Value::Null);
        if code.is_success() && body.is_object() {
            return Ok(body);
        }
        Err(refusal(code, &body, server))
    }
}

/// What an answer without an answer means.
fn refusal(code: StatusCode, body: &Value, server: &str) -> anyhow::Error {
    let said = body["error"].as_str().map(one_line);
    let said = said.as_deref();
    let words = said.unwrap_or("no reason is given");
    match (code, said) {
        (StatusCode::UNAUTHORIZED, _) => error(
            Code::Refused,
            format_args!(
                "the scheduler at {server} does not know who asks ({words}); give the kubeconfig of a user who has a token with --kubeconfig"
            ),
        ),
        (StatusCode::FORBIDDEN, _) => error(
            Code::Refused,
            format_args!(
                "the scheduler at {server} does not allow it ({words}); ask whoever runs the cluster for this right"
            ),
        ),
        (StatusCode::NOT_FOUND, Some(words)) if words.starts_with("pod ") => error(
            Code::Failed,
            format_args!("{words}; `kubectl get pods -A` shows which there are"),
        ),
        (StatusCode::NOT_FOUND, Some(words)) if words.starts_with("node ") => error(
            Code::Failed,
            format_args!("{words}; `kubectl get nodes` shows which there are"),
        ),
        (code, Some(words)) if code.is_server_error() => error(
            Code::Unreachable,
            format_args!("the scheduler at {server} cannot answer now ({words}); try again"),
        ),
        _ => error(
            Code::Failed,
            format_args!(
                "what answers at {server} is no scheduler of tidepool ({code}); say where it is with --server"
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

    /// Says to everybody that nothing is allowed.
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
    async fn what_was_written_down_counts_only_where_the_cluster_answers() {
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
