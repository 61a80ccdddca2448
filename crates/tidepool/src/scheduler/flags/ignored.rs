//! Flags of kube-scheduler that are accepted because manifests have them, and that change nothing here.
//!
//! Each gets a warning that says why. They are not in the help.

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
    /// Anything: what is not used is not judged.
    Value,
}

const OWN_CONNECTION: &str = "callers are looked up with the scheduler's own connection";
const TOKENS: &str = "callers are known by their tokens alone";
const LOOKUPS: &str = "how callers are looked up cannot be changed";
const METRICS: &str = "all metrics are always shown, with all their labels";
const PROFILING: &str = "there is no profiler to ask";
const REQUESTS: &str = "how requests are sent to the API server cannot be changed";
const LOG: &str = "every line is logged at once, and --log-level holds for all of them";
const GATES: &str = "there are no feature gates";
const TLS: &str = "TLS 1.2 and 1.3 are served, with safe ciphers only";
const SERVER: &str = "the HTTP server shares its port with nobody, and has limits of its own";
const CERTIFICATES: &str = "a certificate that is not given is kept in no directory";

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
    flag("client-ca-file", Value, TOKENS),
    flag("requestheader-allowed-names", Value, TOKENS),
    flag("requestheader-client-ca-file", Value, TOKENS),
    flag("requestheader-extra-headers-prefix", Value, TOKENS),
    flag("requestheader-group-headers", Value, TOKENS),
    flag("requestheader-uid-headers", Value, TOKENS),
    flag("requestheader-username-headers", Value, TOKENS),
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
    flag("feature-gates", Value, GATES),
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

/// It would end the process after a file is written, so it cannot be passed over.
const WRITE_CONFIG: &str = "write-config-to";

impl Ignored {
    /// A sentence for each.
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
        let write = write.value_name("PATH").value_parser(no_file_is_written);
        let ignored = FLAGS.iter().map(|flag| {
            // Given twice it has no effect either.
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

fn no_file_is_written(_path: &str) -> Result<String, String> {
    Err("the scheduler writes no such file; `tidepool config show --output yaml` prints it".into())
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
