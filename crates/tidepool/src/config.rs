//! `tidepool config`: what a scheduler's configuration means, before it is used.

mod nodes;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::config::{self, Effective, Errors, Warning};
use clap::{Args, Subcommand, ValueEnum};
use control_plane::scheduler::{DEFAULT_LEASE, DEFAULT_SCHEDULER, SECOND_LEASE, SECOND_SCHEDULER};
use engine::plugins;

use crate::exit::{Code, error};

/// Look at the configuration of a scheduler
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

/// Say what is wrong with a KubeSchedulerConfiguration, and what has no effect
///
/// Warnings and errors go to standard output, one per line, with the line of the file. The exit code is 3 if there is an
/// error.
#[derive(Args)]
struct CheckFlags {
    #[command(flatten)]
    input: Input,
    /// The nodes of the cluster, as `kubectl get nodes -o yaml` prints them, or - for standard input: resources are then
    /// warned of that none of them has
    #[arg(long, value_name = "FILE")]
    nodes: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Show what a KubeSchedulerConfiguration comes to, with every default written out
///
/// For each profile: the plugins at each extension point in their order, with weights and arguments. Without a file: the
/// defaults. As YAML it can be loaded and means the same: names that depend on the scheduler's --mode stay open.
#[derive(Args)]
struct ShowFlags {
    /// The file, or - for standard input; a ConfigMap that holds one is good too
    file: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Write a KubeSchedulerConfiguration of any version as v1
///
/// The result means the same, and says no more than it must. What v1 cannot say is left out, with a warning on standard
/// error.
#[derive(Args)]
struct ConvertFlags {
    #[command(flatten)]
    input: Input,
    /// How to write it
    #[arg(short, long, value_enum, default_value_t = FileFormat::Yaml)]
    output: FileFormat,
}

#[derive(Args)]
struct Input {
    /// The file, or - for standard input; a ConfigMap that holds one is good too
    file: PathBuf,
}

#[derive(Args)]
struct Output {
    /// How to write it
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Table,
    Json,
    Yaml,
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
    if let Some(nodes) = &flags.nodes {
        found
            .warnings
            .extend(nodes::unoffered(nodes, &configuration)?);
    }
    let text = match flags.output.output {
        Format::Json => api::config::to_json(&found),
        Format::Yaml => api::config::to_yaml(&found),
        Format::Table => {
            let warnings = found.warnings.iter();
            let warnings = warnings.map(|warning| warning.in_file(&name, "warning"));
            let errors = found.errors.iter();
            let errors = errors.map(|error| error.in_file(&name, "error"));
            let good = found.errors.is_empty().then(|| format!("{name}: good"));
            let mut lines: Vec<String> = warnings.chain(errors).chain(good).collect();
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
        say(&format!(
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

/// What a file comes to; what has no effect in it is said.
fn effective(file: &Path) -> Result<Effective> {
    let name = file.display().to_string();
    let refused = |Errors(errors): Errors| {
        let lines: Vec<String> = errors
            .iter()
            .map(|error| error.in_file(&name, "error"))
            .collect();
        anyhow::anyhow!("the configuration cannot be used\n{}", lines.join("\n"))
    };
    let (configuration, warnings) = config::load(&crate::read_input(file)?).map_err(refused)?;
    let (_, more) = configuration.profiles(plugins::ALL).map_err(refused)?;
    let warn = |warning: &Warning| say(&warning.in_file(&name, "warning"));
    warnings.iter().chain(&more).for_each(warn);
    Effective::new(&configuration, plugins::ALL).map_err(refused)
}

/// To people; nobody is left to tell when this fails.
fn say(text: &str) {
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
            None => format!(
                "{SECOND_SCHEDULER}, or {DEFAULT_SCHEDULER} with another --mode than second"
            ),
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
