//! Finds a running scheduler and sends it a request.
//!
//! Every error is one sentence with a remedy.
//!
//! | module | content |
//! |---|---|
//! | [`lease`] | which scheduler: the leader of a Lease |
//! | [`route`] | how to reach it, and whether to trust it |
//! | [`connection`] | one HTTP connection |
//! | [`pin`] | trust by the fingerprint of its certificate |

mod connection;
mod lease;
mod pin;
mod route;

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use api::http::ErrorCode;
use clap::Args;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use kube::{Client, Config, client::Body};
use serde_json::{Value, json};

pub(crate) use self::lease::LEASE_NAMESPACES;
use self::lease::Missing;
use self::route::Route;
use crate::{
    causes,
    cluster::{Place, Source},
    exit::{Code, error},
    foreign::one_line,
    kubeconfig,
    output::Format,
};

const CONNECT: Duration = Duration::from_secs(3);
const ANSWER: Duration = Duration::from_secs(15);
/// From the first to the last byte.
const WHOLE_ANSWER: Duration = Duration::from_secs(120);
/// Bytes of an answer: the report about a pod on a very large cluster, with all scores.
const LONGEST_ANSWER: usize = 256 << 20;

#[derive(Args)]
#[command(next_help_heading = "Scheduler")]
// Commands that flatten these flags have a group of the same name.
#[group(skip)]
pub(crate) struct Flags {
    /// Address of the scheduler [default: from its Lease]
    #[arg(long, value_name = "URL", conflicts_with_all = ["lease", "lease_namespace"])]
    server: Option<String>,
    /// Kubeconfig of the cluster [default: $KUBECONFIG, else ~/.kube/config, else that of `tidepool up`]
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Lease of the scheduler [default: the Lease of a scheduler in kube-system or tidepool-system]
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = parse_lease)]
    lease: Option<(String, String)>,
    /// Namespace of the Lease [default: kube-system and tidepool-system]
    #[arg(long, value_name = "NAME", conflicts_with = "lease")]
    lease_namespace: Option<String>,
    /// CA certificates that verify the scheduler, in PEM [default: the fingerprint on its Lease, else the CA of the cluster]
    #[arg(long, value_name = "PATH")]
    certificate_authority: Option<PathBuf>,
    /// Do not verify the certificate of the scheduler; it may be another server that receives your token
    #[arg(long, conflicts_with = "certificate_authority")]
    insecure_skip_tls_verify: bool,
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

impl Flags {
    /// The kubeconfig of the cluster, for commands that need no scheduler.
    pub(crate) fn cluster(&self) -> Result<Source> {
        let source = Source::find(self.kubeconfig.as_deref(), |name| std::env::var_os(name));
        let text =
            "there is no kubeconfig: start a cluster with `tidepool up`, or pass --kubeconfig";
        source.ok_or_else(|| error(Code::Unreachable, text))
    }

    pub(crate) fn context(&self) -> Option<&str> {
        self.context.as_deref()
    }
}

/// A scheduler that can be queried.
pub(crate) struct Scheduler {
    pub(crate) server: Uri,
    /// The cluster that it was found in; `None` if only its address is known.
    pub(crate) cluster: Option<Config>,
    /// The name of that cluster.
    place: Option<Place>,
    /// That of the kubeconfig's context.
    pub(crate) default_namespace: String,
    client: Client,
}

/// Sends a request, on a runtime of its own.
pub(crate) fn ask(flags: &Flags, path: &str) -> Result<(Scheduler, Value)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let scheduler = connect(flags).await?;
        let mut answer = scheduler.get(path).await?;
        scheduler.name_place(&mut answer);
        Ok((scheduler, answer))
    })
}

/// Finds the scheduler, for several requests.
pub(crate) async fn connect(flags: &Flags) -> Result<Scheduler> {
    find(flags).await?.connect(flags).await
}

async fn find(flags: &Flags) -> Result<Route> {
    let source = Source::find(flags.kubeconfig.as_deref(), |name| std::env::var_os(name));
    let context = flags.context.as_deref();
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
        let is_named = flags.kubeconfig.is_some() || context.is_some();
        let read = match source {
            Some(source) => match source.read(context).await {
                Err(why) if is_named => return Err(why),
                read => read.ok(),
            },
            None => None,
        };
        let (cluster, place) = read.unzip();
        return Ok(Route {
            server,
            cluster: cluster.map(hastened),
            // The address may be that of another cluster than the kubeconfig's, unless the user names both.
            place: place.filter(|_| is_named),
            leader: None,
        });
    }
    let Some(source) = source else {
        return Err(error(
            Code::Unreachable,
            "no scheduler found: there is no kubeconfig; start a cluster with `tidepool up`, or pass --kubeconfig or --server",
        ));
    };
    let (config, place) = source.read(context).await?;
    let config = hastened(config);
    let (server, leader) = match lease::leader(&config, flags).await {
        Ok(leader) => (leader.server.clone(), Some(leader)),
        Err(missing) => match recorded(&source, &config, flags, &missing) {
            Some(server) => (server, None),
            None => return Err(not_found(missing, &source)),
        },
    };
    let server = parse_server(&server).map_err(|why| {
        let server = one_line(&server);
        let text = format!("the address `{server}` of the scheduler is invalid ({why}); pass another one with --server");
        error(Code::Failed, text)
    })?;
    Ok(Route {
        server,
        cluster: Some(config),
        place: Some(place),
        leader,
    })
}

/// The scheduler that `up` recorded beside this kubeconfig, for its own cluster. A record may be older than the cluster:
/// after the cluster is gone, another cluster's scheduler may have the address.
fn recorded(source: &Source, config: &Config, flags: &Flags, missing: &Missing) -> Option<String> {
    let is_asked = flags.lease.is_none() && flags.lease_namespace.is_none();
    let is_without = matches!(missing, Missing::Refused(_) | Missing::NoLeader(_));
    let path = source.file().filter(|_| is_asked && is_without)?;
    kubeconfig::read_server(&path, &config.cluster_url)
}

fn not_found(missing: Missing, source: &Source) -> anyhow::Error {
    let (code, why) = match missing {
        Missing::Several(which) => {
            let text = format!("the cluster has several schedulers: pass {which}");
            return error(Code::BadInput, text);
        }
        Missing::Silent(why) | Missing::NoLeader(why) => (Code::Unreachable, why),
        Missing::Refused(why) => (Code::Refused, why),
    };
    // A cluster of `up` is named, but not used: the question was about another one.
    let up = kubeconfig::default_path(|name| std::env::var_os(name)).ok();
    let up = up.filter(|path| kubeconfig::has_server(path) && source.file().as_ref() != Some(path));
    let remedy = match up {
        Some(path) => format!("for the cluster of `tidepool up` pass --kubeconfig {}", path.display()),
        None => "pass its Lease with --lease, its address with --server, or another cluster with --kubeconfig".to_owned(),
    };
    error(code, format_args!("no scheduler found: {why}; {remedy}"))
}

fn parse_server(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(_)) => Ok(uri),
        _ => Err("it must begin with http:// or https://".to_owned()),
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
fn hastened(mut config: Config) -> Config {
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(ANSWER);
    config.default_retry = false;
    config
}

impl Scheduler {
    /// The last line of a table: the cluster that it is about.
    pub(crate) fn place_line(&self) -> String {
        let place = self.place();
        place.map_or_else(String::new, |place| format!("context: {place}\n"))
    }

    /// Names the cluster for programs: in the field `context` of an answer.
    pub(crate) fn name_place(&self, answer: &mut Value) {
        if let (Some(place), Some(fields)) = (&self.place, answer.as_object_mut()) {
            fields.insert("context".to_owned(), json!(place));
        }
    }

    pub(crate) fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// The JSON object at this path.
    pub(crate) async fn get(&self, path: &str) -> Result<Value> {
        let server = self.server.to_string();
        let server = server.trim_end_matches('/');
        let prefix = self.server.path().trim_end_matches('/');
        let request = Request::get(format!("{prefix}{path}")).body(Body::empty())?;
        let silent = |why: &str| {
            let text = format!("the scheduler at {server} does not answer ({why}); try again");
            error(Code::Unreachable, text)
        };
        let answer = match tokio::time::timeout(ANSWER, self.client.send(request)).await {
            Ok(answer) => answer.map_err(|why| silent(&causes::of_connection(&why)))?,
            Err(_) => return Err(silent("the request timed out")),
        };
        let code = answer.status();
        let body = Limited::new(answer.into_body(), LONGEST_ANSWER).collect();
        let body = match tokio::time::timeout(WHOLE_ANSWER, body).await {
            Ok(body) => body.map_err(|why| why.to_string()),
            Err(_) => Err("it takes too long".to_owned()),
        };
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
                "the scheduler at {server} does not accept your credentials ({message}); pass the kubeconfig of another user with --kubeconfig"
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
        (status, Some(_))
            if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS =>
        {
            error(
                Code::Unreachable,
                format_args!("the scheduler at {server} cannot answer now ({message}); try again"),
            )
        }
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
    async fn a_recorded_address_counts_only_for_its_own_cluster_that_answers() {
        const RECORDED: &str = "http://127.0.0.1:1";
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        for (case, answers, own, more, want) in [
            (
                "the cluster answers",
                true,
                true,
                &[][..],
                Ok("http://127.0.0.1:1/"),
            ),
            ("it does not", false, true, &[], Err("cannot connect to")),
            (
                "the record is of another",
                true,
                false,
                &[],
                Err("answers: no"),
            ),
            (
                "a Lease is given",
                true,
                true,
                &["--lease=a/b"],
                Err("answers: no"),
            ),
            (
                "its namespace is",
                true,
                true,
                &["--lease-namespace=a"],
                Err("answers: no"),
            ),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let api = format!("http://{}", listener.local_addr().unwrap());
            if answers {
                refuse_all(listener);
            } else {
                drop(listener);
            }
            let text = format!(
                "clusters: [{{name: a, cluster: {{server: '{api}'}}}}]\n\
                 users: [{{name: a, user: {{}}}}]\n\
                 contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
                 current-context: a\n"
            );
            std::fs::write(&path, text).unwrap();
            let cluster = if own { &api } else { "https://10.0.0.1" };
            kubeconfig::write_server(&path, RECORDED, cluster).unwrap();
            let kubeconfig = format!("--kubeconfig={}", path.display());
            let arguments = [&["x", &kubeconfig], more].concat();
            let found = find(&Cli::parse_from(arguments).flags).await;
            match (found.map(|route| route.server.to_string()), want) {
                (Ok(server), Ok(want)) => assert_eq!(server, want, "{case}"),
                (Err(why), Err(want)) => {
                    let why = why.to_string();
                    assert!(why.contains(want), "{case}: {why}");
                }
                (found, _) => panic!("{case}: {found:?}"),
            }
        }
    }
}
