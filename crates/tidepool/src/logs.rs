//! Where the log goes and how much of it: to stderr, and little.

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

#[derive(Args)]
pub(crate) struct Flags {
    /// How much to log, on stderr.
    #[arg(long, value_enum, default_value = "warn", global = true)]
    log_level: Level,
    /// How log lines look.
    #[arg(long, value_enum, default_value = "text", global = true)]
    log_format: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

impl Flags {
    pub(crate) fn start(&self) {
        let level = match self.log_level {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
            Level::Trace => "trace",
        };
        // Libraries stay quiet: their details are not what anybody looks for here.
        let others = if level == "error" { "error" } else { "warn" };
        let ours = ["tidepool", "apiserver", "local"].map(|crate_| format!("{crate_}={level}"));
        let filter = EnvFilter::new(format!("{others},{}", ours.join(",")));
        let log = tracing_subscriber::fmt()
            .with_writer(std::io::stderr)
            .with_env_filter(filter);
        match self.log_format {
            Format::Text => log.init(),
            Format::Json => log.json().init(),
        }
    }
}
