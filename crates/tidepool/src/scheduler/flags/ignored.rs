//! Flags of kube-scheduler that are accepted because manifests have them, and that have no effect here.
//!
//! Each causes a warning with the reason. They are not in the help.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, value_parser};

/// Those that were given.
pub(super) struct Ignored {
    given: Vec<&'static Flag>,
}

struct Flag {
    name: &'static str,
    takes: Takes,
    why: &'static str,
}

#[derive(Clone, Copy)]
enum Takes {
    /// `--flag`, `--flag=false`
    Bool,
    /// Any value; it is not checked.
    Value,
}

const OWN_CONNECTION: &str =
    "the scheduler reviews callers over its own connection to the API server";
const CLIENT_CA: &str =
    "client certificates are verified with the client CA that the API server publishes";
const HEADERS: &str = "the scheduler does not authenticate callers by request headers";
const LOOKUPS: &str = "reviews of callers are not configurable";
const METRICS: &str = "the scheduler always serves all metrics with all labels";
const PROFILING: &str = "the scheduler has no profiling endpoint";
const REQUESTS: &str = "requests to the API server are not configurable";
const LOG: &str = "log lines are written at once, and --log-level applies to all modules";
const TLS: &str = "the scheduler serves TLS 1.2 and 1.3 with secure ciphers only";
const SERVER: &str = "the HTTP server does not share its port, and has fixed limits";
const CERTIFICATES: &str = "a self-signed certificate is not stored";

use Takes::{Bool, Value};

const FLAGS: &[Flag] = &[
    flag("authentication-kubeconfig", Value, OWN_CONNECTION),
    flag("authorization-kubeconfig", Value, OWN_CONNECTION),
    flag("authentication-skip-lookup", Bool, LOOKUPS),
    flag("authentication-tolerate-lookup-failure", Bool, LOOKUPS),
    flag("authentication-token-webhook-cache-ttl", Value, LOOKUPS),
    flag("authorization-webhook-cache-authorized-ttl", Value, LOOKUPS),
    flag(
        "authorization-webhook-cache-unauthorized-ttl",
        Value,
        LOOKUPS,
    ),
    flag("client-ca-file", Value, CLIENT_CA),
    flag("requestheader-allowed-names", Value, HEADERS),
    flag("requestheader-client-ca-file", Value, HEADERS),
    flag("requestheader-extra-headers-prefix", Value, HEADERS),
    flag("requestheader-group-headers", Value, HEADERS),
    flag("requestheader-uid-headers", Value, HEADERS),
    flag("requestheader-username-headers", Value, HEADERS),
    flag("allow-metric-labels", Value, METRICS),
    flag("allow-metric-labels-manifest", Value, METRICS),
    flag("disabled-metrics", Value, METRICS),
    flag("show-hidden-metrics-for-version", Value, METRICS),
    flag("contention-profiling", Bool, PROFILING),
    flag("profiling", Bool, PROFILING),
    flag("kube-api-burst", Value, REQUESTS),
    flag("kube-api-content-type", Value, REQUESTS),
    flag("kube-api-qps", Value, REQUESTS),
    flag("log-flush-frequency", Value, LOG),
    flag("vmodule", Value, LOG),
    flag("tls-cipher-suites", Value, TLS),
    flag("tls-min-version", Value, TLS),
    flag("http2-max-streams-per-connection", Value, SERVER),
    flag("permit-address-sharing", Bool, SERVER),
    flag("permit-port-sharing", Bool, SERVER),
    flag("cert-dir", Value, CERTIFICATES),
];

const fn flag(name: &'static str, takes: Takes, why: &'static str) -> Flag {
    Flag { name, takes, why }
}

/// kube-scheduler ends after writing the file, so ignoring the flag would be wrong.
const WRITE_CONFIG: &str = "write-config-to";

impl Ignored {
    /// One warning for each.
    pub(super) fn warnings(&self) -> Vec<String> {
        let given = self.given.iter();
        given
            .map(|flag| format!("--{} has no effect: {}", flag.name, flag.why))
            .collect()
    }
}

impl Args for Ignored {
    fn augment_args(command: Command) -> Command {
        let write = Arg::new(WRITE_CONFIG).long(WRITE_CONFIG).hide(true);
        let write = write.value_name("PATH").value_parser(refuse_write_config);
        let ignored = FLAGS.iter().map(|flag| {
            let arg = Arg::new(flag.name).long(flag.name).hide(true);
            let arg = arg.action(ArgAction::Append);
            match flag.takes {
                Value => arg,
                Bool => arg
                    .num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("true")
                    .value_parser(value_parser!(bool)),
            }
        });
        command.args(ignored).arg(write)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn refuse_write_config(_path: &str) -> Result<String, String> {
    Err("not supported; `tidepool config show --output yaml` prints the configuration".into())
}

impl FromArgMatches for Ignored {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = FLAGS.iter().filter(|flag| matches.contains_id(flag.name));
        Ok(Self {
            given: given.collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
