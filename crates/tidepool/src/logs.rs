//! The log, on stderr.

mod lines;

use std::{
    collections::VecDeque,
    io::{self, IsTerminal, Write},
    sync::{Mutex, MutexGuard, PoisonError},
};

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

use self::lines::Lines;

#[derive(Args)]
pub(crate) struct Flags {
    /// Log level, on stderr [default: warn; info for components of a cluster].
    #[arg(long, value_enum, global = true)]
    log_level: Option<Level>,
    /// Log level as a number, as in Kubernetes: 0 to 3 is info, 4 and 5 debug, higher trace.
    #[arg(
        short,
        long,
        value_name = "NUMBER",
        global = true,
        conflicts_with = "log_level"
    )]
    v: Option<u8>,
    /// Log format.
    #[arg(
        long,
        value_enum,
        default_value = "text",
        alias = "logging-format",
        global = true
    )]
    log_format: LogFormat,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl Flags {
    /// Starts the log; `default` is the level without flags.
    pub(crate) fn start(&self, default: Level) {
        let number = self.v.map(|number| match number {
            0..=3 => Level::Info,
            4..=5 => Level::Debug,
            _ => Level::Trace,
        });
        let level = match self.log_level.or(number).unwrap_or(default) {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
            Level::Trace => "trace",
        };
        // Libraries log warnings only.
        let others = if level == "error" { "error" } else { "warn" };
        let ours = [
            "agent",
            "tidepool",
            "apiserver",
            "control_plane",
            "local",
            "reconcile",
        ]
        .map(|crate_| format!("{crate_}={level}"));
        // kube's client and the verifier also return the errors that they log.
        let ours = ours.join(",");
        // Scores and sizes are logged only on request.
        let asked = "scores=info,asked=info";
        let filter = EnvFilter::new(format!(
            "{others},kube_client=off,rustls_platform_verifier=off,{asked},{ours}"
        ));
        tracing_subscriber::fmt()
            .event_format(match self.log_format {
                LogFormat::Text => Lines::Text,
                LogFormat::Json => Lines::Json,
            })
            .with_writer(|| Stderr)
            .with_env_filter(filter)
            .init();
    }
}

/// Lines that wait until the terminal is free; `None` while it is free.
static HELD: Mutex<Option<VecDeque<String>>> = Mutex::new(None);
const MOST_HELD: usize = 200;

/// Keeps the log off the terminal while this exists, and writes the latest lines there afterwards.
pub(crate) struct Hold(());

pub(crate) fn hold() -> Hold {
    if io::stderr().is_terminal() {
        *lock() = Some(VecDeque::new());
    }
    Hold(())
}

/// The waiting lines, the oldest first.
pub(crate) fn held() -> Vec<String> {
    lock().iter().flatten().cloned().collect()
}

impl Drop for Hold {
    fn drop(&mut self) {
        for line in lock().take().into_iter().flatten() {
            // If stderr is closed, there is nowhere to report it.
            let _ = writeln!(io::stderr(), "{line}");
        }
    }
}

fn lock() -> MutexGuard<'static, Option<VecDeque<String>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Standard error, unless it is held.
struct Stderr;

impl Write for Stderr {
    /// The log writes whole lines.
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let Some(held) = &mut *lock() else {
            return io::stderr().write(text);
        };
        if held.len() == MOST_HELD {
            held.pop_front();
        }
        held.push_back(String::from_utf8_lossy(text).trim_end().to_owned());
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
