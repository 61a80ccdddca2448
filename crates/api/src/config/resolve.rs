//! From a file as written to a configuration: the version of the file, fields that the version lacks, defaults.

use std::time::Duration;

use engine::model::{parse_duration, write_duration};
use engine::scheduling::framework::{ConfigVersion, Point};

use super::Findings;
use super::args::ArgsHead;
use super::document::{
    ClientConnectionDocument, Document, LeaderElectionDocument, ProfileDocument,
};
use super::types::{ClientConnection, Configuration, LeaderElection, PluginConfig, Profile};
use crate::yaml::suggest;

const KIND: &str = "KubeSchedulerConfiguration";

/// Default of `resourceName`, and of a single profile's name.
const SCHEDULER: &str = "kube-scheduler";
/// kube-scheduler's limits of its requests.
const DEFAULT_QPS: f32 = 50.0;
const DEFAULT_BURST: i32 = 100;
const DEFAULT_PROFILE: &str = "default-scheduler";

impl Default for Configuration {
    fn default() -> Self {
        with_defaults(
            Document::default(),
            ConfigVersion::V1,
            &mut Findings::default(),
        )
    }
}

/// `None`, with an error, if the file names no known version.
pub(super) fn configuration(document: Document, findings: &mut Findings) -> Option<Configuration> {
    let version = version(&document, findings)?;
    check_version(&document, version, findings);
    Some(with_defaults(document, version, findings))
}

fn version(document: &Document, findings: &mut Findings) -> Option<ConfigVersion> {
    let known = ConfigVersion::ALL.map(|version| version.to_string());
    let known = || known.iter().map(String::as_str);
    if let Some(kind) = document.kind.as_deref().filter(|kind| *kind != KIND) {
        findings.error("kind", format!("unknown kind `{kind}`: use {KIND}"));
        return None;
    }
    if let Some(found) = &document.api_version {
        let version = ConfigVersion::parse(found);
        if version.is_none() {
            let text = format!("unknown version `{found}`{}", suggest(found, known()));
            findings.error("apiVersion", text);
        }
        return version;
    }
    let version = version_of_args(document, findings);
    let why = match version {
        Some(_) => "the version of its args",
        None => "the newest version",
    };
    let version = version.unwrap_or(ConfigVersion::V1);
    findings.warn(
        "",
        format!("the file has no apiVersion: using {version}, {why}"),
    );
    Some(version)
}

/// The version that the arguments of a plugin have.
fn version_of_args(document: &Document, findings: &Findings) -> Option<ConfigVersion> {
    let places = document
        .profiles
        .iter()
        .enumerate()
        .flat_map(|(i, profile)| {
            let args = 0..profile.plugin_config.len();
            args.map(move |j| format!("profiles[{i}].pluginConfig[{j}].args"))
        });
    places
        .filter_map(|place| findings.tree.read(&place, ArgsHead::seed).value)
        .find_map(|head| ConfigVersion::parse(head.api_version.as_deref()?))
}

/// Fields that only other versions have.
fn check_version(document: &Document, version: ConfigVersion, findings: &mut Findings) {
    use ConfigVersion::{V1, V1beta2, V1beta3};
    let mut since = |first: ConfigVersion, given: bool, field: String| {
        if given && version < first {
            findings.error(
                &field,
                format!(
                    "unknown field in {version}: it was added in {}",
                    first.short()
                ),
            );
        }
    };
    since(
        V1,
        document.delay_cache_until_active.is_some(),
        "delayCacheUntilActive".to_owned(),
    );
    for (i, profile) in document.profiles.iter().enumerate() {
        let plugins = &profile.plugins;
        let percentage = profile.percentage_of_nodes_to_score.is_some();
        since(
            V1,
            percentage,
            format!("profiles[{i}].percentageOfNodesToScore"),
        );
        let at = |point: &str| format!("profiles[{i}].plugins.{point}");
        let (pre_enqueue, multi_point) = (plugins.at(Point::PreEnqueue), plugins.multi_point());
        since(
            V1beta2,
            !pre_enqueue.is_empty(),
            at(Point::PreEnqueue.field()),
        );
        since(V1beta3, !multi_point.is_empty(), at("multiPoint"));
        for (field, set) in plugins.without_effect() {
            since(V1, !set.is_empty(), at(field));
        }
    }
    for (given, field) in [
        (&document.healthz_bind_address, "healthzBindAddress"),
        (&document.metrics_bind_address, "metricsBindAddress"),
    ] {
        if given.is_some() && version > V1beta2 {
            findings.error(
                field,
                format!("unknown field in {version}: it was removed in v1beta3"),
            );
        }
    }
}

fn with_defaults(
    document: Document,
    version: ConfigVersion,
    findings: &mut Findings,
) -> Configuration {
    if document.parallelism.is_some_and(|given| given > 0) {
        findings.warn(
            "parallelism",
            "has no effect: the scheduler decides on one thread",
        );
    }
    if document
        .percentage_of_nodes_to_score
        .is_some_and(|given| given > 0)
    {
        findings.warn("percentageOfNodesToScore", EVERY_NODE);
    }
    percentage(
        "percentageOfNodesToScore",
        document.percentage_of_nodes_to_score,
        findings,
    );
    let initial = document.pod_initial_backoff_seconds.unwrap_or(1);
    let max = document.pod_max_backoff_seconds.unwrap_or(10);
    if initial <= 0 {
        let text = format!("Invalid value: {initial}: must be greater than 0");
        findings.error("podInitialBackoffSeconds", text);
    }
    if max < initial {
        let text = format!(
            "Invalid value: {max}: must be greater than or equal to PodInitialBackoffSeconds"
        );
        findings.error("podMaxBackoffSeconds", text);
    }
    let profiling = document.enable_profiling.unwrap_or(true);
    let mut extenders = document.extenders;
    super::validate::extenders(&extenders, findings);
    extenders.sort_by_key(|extender| extender.ignorable);
    Configuration {
        version,
        parallelism: document.parallelism.unwrap_or(16),
        leader_election: leader_election(document.leader_election, version, findings),
        client_connection: client_connection(document.client_connection, findings),
        healthz_bind_address: socket(
            "healthzBindAddress",
            document.healthz_bind_address,
            findings,
        ),
        metrics_bind_address: socket(
            "metricsBindAddress",
            document.metrics_bind_address,
            findings,
        ),
        enable_profiling: profiling,
        enable_contention_profiling: profiling
            && document.enable_contention_profiling.unwrap_or(true),
        initial_backoff: Duration::from_secs(u64::try_from(initial).unwrap_or(0)),
        max_backoff: Duration::from_secs(u64::try_from(max).unwrap_or(0)),
        profiles: profiles(document.profiles, findings),
        extenders,
        delay_cache_until_active: document.delay_cache_until_active.unwrap_or(false),
        tree: findings.tree.clone(),
    }
}

const EVERY_NODE: &str = "has no effect: the scheduler scores every node";

fn percentage(field: &str, given: Option<i32>, findings: &mut Findings) {
    if let Some(given) = given.filter(|given| !(0..=100).contains(given)) {
        findings.error(
            field,
            format!("Invalid value: {given}: not in valid range [0-100]"),
        );
    }
}

fn profiles(given: Vec<ProfileDocument>, findings: &mut Findings) -> Vec<Profile> {
    let given = if given.is_empty() {
        vec![ProfileDocument::default()]
    } else {
        given
    };
    let is_alone = given.len() == 1;
    let profiles = given.into_iter().enumerate().map(|(i, profile)| {
        let place = format!("profiles[{i}]");
        let field = format!("{place}.percentageOfNodesToScore");
        if profile
            .percentage_of_nodes_to_score
            .is_some_and(|given| given > 0)
        {
            findings.warn(&field, EVERY_NODE);
        }
        percentage(&field, profile.percentage_of_nodes_to_score, findings);
        let plugin_config = profile.plugin_config.into_iter().enumerate();
        Profile {
            is_named: !profile.scheduler_name.is_empty(),
            scheduler_name: match profile.scheduler_name {
                name if name.is_empty() && is_alone => DEFAULT_PROFILE.to_owned(),
                name => name,
            },
            plugins: profile.plugins,
            plugin_config: plugin_config
                .map(|(j, config)| PluginConfig {
                    name: config.name,
                    given: config.args.is_some(),
                    place: format!("{place}.pluginConfig[{j}]"),
                })
                .collect(),
            place,
        }
    });
    profiles.collect()
}

fn client_connection(given: ClientConnectionDocument, findings: &mut Findings) -> ClientConnection {
    let limits = [
        (
            "clientConnection.qps",
            given
                .qps
                .filter(|qps| ![0.0, DEFAULT_QPS].contains(qps))
                .is_some(),
        ),
        (
            "clientConnection.burst",
            given
                .burst
                .filter(|burst| ![0, DEFAULT_BURST].contains(burst))
                .is_some(),
        ),
    ];
    for (field, is_changed) in limits {
        if is_changed {
            findings.warn(
                field,
                "has no effect: the scheduler does not limit its requests to the API server",
            );
        }
    }
    ClientConnection {
        kubeconfig: given.kubeconfig.unwrap_or_default(),
        accept_content_types: given.accept_content_types.unwrap_or_default(),
        content_type: given_or(given.content_type, "application/vnd.kubernetes.protobuf"),
        qps: given.qps.filter(|qps| *qps != 0.0).unwrap_or(DEFAULT_QPS),
        burst: given
            .burst
            .filter(|burst| *burst != 0)
            .unwrap_or(DEFAULT_BURST),
    }
}

fn leader_election(
    given: LeaderElectionDocument,
    version: ConfigVersion,
    findings: &mut Findings,
) -> LeaderElection {
    const SECOND: i64 = 1_000_000_000;
    let at = |field: &str| format!("leaderElection.{field}");
    let is_on = given.leader_elect.unwrap_or(true);
    let mut span = |field: &str, given: Option<String>, default: i64| {
        let given = match given.as_deref().map(parse_duration) {
            Some(Err(error)) => {
                findings.error(at(field), error.to_string());
                0
            }
            Some(Ok(nanos)) => nanos,
            None => 0,
        };
        let nanos = if given == 0 { default * SECOND } else { given };
        if nanos < 0 && is_on {
            let text = format!(
                "Invalid value: \"{}\": must be greater than zero",
                write_duration(nanos)
            );
            findings.error(at(field), text);
        }
        nanos
    };
    let lease = span("leaseDuration", given.lease_duration, 15);
    let renew = span("renewDeadline", given.renew_deadline, 10);
    let retry = span("retryPeriod", given.retry_period, 2);
    if is_on && lease <= renew {
        // kube-scheduler prints the other value.
        let text = format!(
            "Invalid value: \"{}\": must be greater than `RenewDeadline`",
            write_duration(renew)
        );
        findings.error(at("leaseDuration"), text);
    }
    // The wait between two attempts to renew is up to 1.2 retry periods.
    let longest_wait = retry.saturating_mul(6) / 5;
    if is_on && renew > 0 && renew <= longest_wait {
        let text = format!(
            "Invalid value: \"{}\": renewDeadline must be greater than retryPeriod*JitterFactor, which is {}",
            write_duration(renew),
            write_duration(longest_wait)
        );
        findings.error(at("renewDeadline"), text);
    }
    let lock = given_or(given.resource_lock, "leases");
    // Locks of older versions that include a Lease.
    let holds_lease =
        matches!(&lock[..], "endpointsleases" | "configmapsleases") && version < ConfigVersion::V1;
    if holds_lease {
        findings.warn(
            at("resourceLock"),
            format!("using leases instead of `{lock}`: the scheduler writes no other object"),
        );
    } else if is_on && lock != "leases" {
        let text = format!("Invalid value: \"{lock}\": resourceLock value must be \"leases\"");
        findings.error(at("resourceLock"), text);
    }
    LeaderElection {
        leader_elect: is_on,
        lease_duration: positive(lease),
        renew_deadline: positive(renew),
        retry_period: positive(retry),
        is_named: given
            .resource_name
            .as_ref()
            .is_some_and(|name| !name.is_empty()),
        resource_name: given_or(given.resource_name, SCHEDULER),
        resource_namespace: given_or(given.resource_namespace, "kube-system"),
    }
}

fn positive(nanos: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

/// An address with a port; port 0 turns the server off.
fn socket(field: &str, given: Option<String>, findings: &mut Findings) -> Option<String> {
    let given = given.filter(|address| !address.is_empty())?;
    let faults = match given.rsplit_once(':') {
        Some((host, port)) => {
            let host = host
                .strip_prefix('[')
                .and_then(|host| host.strip_suffix(']'))
                .unwrap_or(host);
            let port = port
                .parse::<u16>()
                .is_err()
                .then_some("must be between 1 and 65535, inclusive");
            let host = host.parse::<std::net::IpAddr>().is_err();
            let host =
                host.then_some("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
            [port, host]
        }
        None => [
            Some("must be a valid socket address format, (e.g. 0.0.0.0:10254 or [::]:10254)"),
            None,
        ],
    };
    for fault in faults.into_iter().flatten() {
        findings.error(field, format!("Invalid value: \"{given}\": {fault}"));
    }
    Some(given)
}

/// Empty text is "not given".
fn given_or(given: Option<String>, default: &str) -> String {
    given
        .filter(|text| !text.is_empty())
        .unwrap_or_else(|| default.to_owned())
}
