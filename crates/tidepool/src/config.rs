//! `tidepool config`: checks, shows and converts a configuration.

mod kubelet;
mod nodes;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::config::{self, Effective, Errors, Warning};
use clap::{Args, Subcommand, ValueEnum};
use control_plane::scheduler::{DEFAULT_LEASE, DEFAULT_SCHEDULER, SECOND_LEASE, SECOND_SCHEDULER};
use engine::scheduling::plugins;

use crate::exit::{Code, error};
use crate::output::Format;

/// Check, show or convert the configuration of a scheduler
#[derive(Args)]
pub(crate) struct Flags {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(CheckFlags),
    Show(ShowFlags),
    Convert(ConvertFlags),
}

/// Report errors in a KubeSchedulerConfiguration, and settings without effect
///
/// Prints warnings and errors to standard output, one per line, with the line of the file. The exit code is 3 if there is
/// an error.
#[derive(Args)]
struct CheckFlags {
    #[command(flatten)]
    input: Input,
    /// The output of `kubectl get nodes -o yaml`, or - for standard input; warns about resources that no node has
    #[arg(long, value_name = "FILE")]
    nodes: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Show a KubeSchedulerConfiguration with all defaults
///
/// Shows for each profile the plugins of each extension point in their order, with weights and arguments. Without a file it
/// shows the defaults. The YAML output is a valid configuration with the same meaning; it leaves out names that depend on
/// the scheduler's --mode.
#[derive(Args)]
struct ShowFlags {
    /// Configuration file, or a ConfigMap with one; - for standard input
    file: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Convert a KubeSchedulerConfiguration of any version to v1
///
/// The result has the same meaning, without defaults. Settings that v1 does not have are left out, with a warning on
/// standard error.
#[derive(Args)]
struct ConvertFlags {
    #[command(flatten)]
    input: Input,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = FileFormat::Yaml)]
    output: FileFormat,
}

#[derive(Args)]
struct Input {
    /// Configuration file, or a ConfigMap with one; - for standard input
    file: PathBuf,
}

#[derive(Args)]
struct Output {
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum FileFormat {
    Json,
    Yaml,
}

pub(crate) fn run(flags: Flags) -> Result<()> {
    match flags.command {
        Command::Check(flags) => check(&flags),
        Command::Show(flags) => show(&flags),
        Command::Convert(flags) => convert(&flags),
    }
}

fn check(flags: &CheckFlags) -> Result<()> {
    let name = flags.input.file.display().to_string();
    let configuration = crate::read_input(&flags.input.file)?;
    let mut found = config::check(&configuration, plugins::ALL);
    found.warnings.extend(kubelet::unfiltered(&configuration));
    if let Some(nodes) = &flags.nodes {
        found
            .warnings
            .extend(nodes::unoffered(nodes, &configuration)?);
    }
    let text = match flags.output.output {
        Format::Json => api::config::to_json(&found),
        Format::Yaml => api::config::to_yaml(&found),
        Format::Table => {
            let errors = found.errors.iter().map(|error| (error, "error"));
            let warnings = found.warnings.iter().map(|warning| (warning, "warning"));
            let mut findings: Vec<_> = errors.chain(warnings).collect();
            // By line; those of the whole file last.
            findings.sort_by_key(|(finding, _)| finding.line.unwrap_or(u64::MAX));
            let findings = findings.into_iter();
            let findings = findings.map(|(finding, kind)| finding.in_file(&name, kind));
            let good = found.errors.is_empty().then(|| format!("{name}: ok"));
            let mut lines: Vec<String> = findings.chain(good).collect();
            lines.push(String::new());
            lines.join("\n")
        }
    };
    print(&text)?;
    match found.errors.len() {
        0 => Ok(()),
        1 => Err(error(Code::Problem, format_args!("{name} has an error"))),
        count => Err(error(
            Code::Problem,
            format_args!("{name} has {count} errors"),
        )),
    }
}

fn show(flags: &ShowFlags) -> Result<()> {
    let effective = match &flags.file {
        Some(file) => effective(file)?,
        None => Effective::new(&config::Configuration::default(), plugins::ALL)?,
    };
    print(&match flags.output.output {
        Format::Table => table(&effective),
        Format::Json => api::config::to_json(&effective),
        Format::Yaml => api::config::to_yaml(&effective),
    })
}

fn convert(flags: &ConvertFlags) -> Result<()> {
    let (converted, lost) = effective(&flags.input.file)?.in_v1(plugins::ALL);
    for warning in lost {
        warn(&format!(
            "{}: warning: {warning}",
            flags.input.file.display()
        ));
    }
    let short = converted.without_defaults(plugins::ALL);
    print(&match flags.output {
        FileFormat::Json => api::config::to_json(&short),
        FileFormat::Yaml => api::config::to_yaml(&short),
    })
}

/// The effective configuration of a file. Prints warnings about settings without effect.
fn effective(file: &Path) -> Result<Effective> {
    let name = file.display().to_string();
    let refused = |errors: Errors| refused(file, &errors);
    let (configuration, warnings) = config::load(&crate::read_input(file)?).map_err(refused)?;
    let (_, more) = configuration.profiles(plugins::ALL).map_err(refused)?;
    let print = |warning: &Warning| warn(&warning.in_file(&name, "warning"));
    warnings.iter().chain(&more).for_each(print);
    Effective::new(&configuration, plugins::ALL).map_err(refused)
}

/// The error about a file that cannot be used: a sentence, then each error as `config check` prints it.
pub(crate) fn refused(file: &Path, Errors(errors): &Errors) -> anyhow::Error {
    let name = file.display().to_string();
    let lines = errors.iter().map(|error| error.in_file(&name, "error"));
    let lines: Vec<String> = lines.collect();
    anyhow::anyhow!(
        "cannot use {name}; `tidepool config check {name}` reports warnings too\n{}",
        lines.join("\n")
    )
}

/// Prints to stderr. If it is closed, there is nowhere to report it.
fn warn(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .context("cannot write to standard output")
}

fn table(effective: &Effective) -> String {
    let mut settings = effective.settings();
    let lease = "leaderElection.resourceName";
    let namespace = "leaderElection.resourceNamespace";
    let is_open = !settings.iter().any(|(name, _)| name == lease);
    if let Some(place) = settings.iter().position(|(name, _)| name == namespace)
        && is_open
    {
        let either = format!("{SECOND_LEASE}, or {DEFAULT_LEASE} with --mode primary");
        settings.insert(place, (lease.to_owned(), either));
    }
    let mut text = columns(&settings);
    for profile in &effective.profiles {
        let mut rows = vec![("POINT".to_owned(), "PLUGINS".to_owned())];
        for (point, set) in &profile.plugins {
            let names = set.enabled.iter().map(|plugin| match plugin.weight {
                Some(weight) => format!("{} ({weight})", plugin.name),
                None => plugin.name.clone(),
            });
            let names: Vec<String> = names.collect();
            let names = if names.is_empty() {
                "-".to_owned()
            } else {
                names.join(", ")
            };
            rows.push((point.field().to_owned(), names));
        }
        let mut args = vec![("PLUGIN".to_owned(), "ARGS".to_owned())];
        let configs = profile.plugin_config.iter();
        args.extend(configs.map(|config| (config.name.clone(), config.args.to_string())));
        let name = match &profile.scheduler_name {
            Some(name) => name.clone(),
            None => format!("{SECOND_SCHEDULER} ({DEFAULT_SCHEDULER} unless --mode is second)"),
        };
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\nPROFILE {}\n{}\n{}",
            name,
            columns(&rows),
            columns(&args)
        );
    }
    text
}

fn columns(rows: &[(String, String)]) -> String {
    let width = rows.iter().map(|(first, _)| first.len()).max().unwrap_or(0);
    let line = |(first, second): &(String, String)| format!("{first:width$}  {second}\n");
    rows.iter().map(line).collect()
}
