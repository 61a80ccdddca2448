//! `tidepool scheduler`: schedules the pods of a cluster until it is stopped.
//!
//! Flags have kube-scheduler's names where it has them, and override the configuration file.

mod flags;
mod manifests;

use std::hash::BuildHasher;

use anyhow::{Context, bail};
use api::config::Configuration;
use control_plane::client::Connect;
use control_plane::scheduler::{Mode, Options, Running};
use engine::scheduling::evaluate::Cursor;

use crate::component::{self, STOPPED_TWICE, StopSignals};
use crate::config;
use crate::exit::{Code, error};
use crate::signals::StatusSignal;
pub(crate) use flags::Flags;

pub(crate) fn run(flags: Flags) -> anyhow::Result<()> {
    if let Some(name) = flags.manifests_of() {
        return crate::say(&manifests_of(name, &flags)?);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    runtime.block_on(schedule(flags))
}

async fn schedule(flags: Flags) -> anyhow::Result<()> {
    let mut signals = StopSignals::listen()?;
    let status_signal = StatusSignal::listen()?;
    let (configuration, options) = prepare(&flags)?;
    let config = connection(&flags, &configuration).await?;
    let mut running = Running::start(Connect::Config(Box::new(config)), options)?;
    status_signal.answer(running.handle().clone());
    tokio::select! {
        () = signals.next() => {}
        why = running.ended() => return Err(why.into()),
    }
    tokio::select! {
        () = running.stop() => Ok(()),
        () = signals.next() => bail!(STOPPED_TWICE),
    }
}

/// The objects that run a scheduler of this name.
fn manifests_of(name: &str, flags: &Flags) -> anyhow::Result<String> {
    let file = flags.config.as_deref();
    let text = file.map(crate::read_input).transpose()?;
    let (mut configuration, _) = match (file, &text) {
        (Some(file), Some(text)) => {
            api::config::load(text).map_err(|errors| config::refused(file, &errors))?
        }
        _ => (Configuration::default(), Vec::new()),
    };
    Mode::Second
        .settle(&mut configuration)
        .map_err(|why| error(Code::BadInput, why))?;
    let file = file.zip(text.as_deref());
    manifests::print(name, file, &configuration).map_err(|why| error(Code::BadInput, why))
}

/// The configuration of file and flags.
fn prepare(flags: &Flags) -> anyhow::Result<(Configuration, Options)> {
    let file = flags.config.as_deref();
    let (mut configuration, warnings) = match file {
        None => (Configuration::default(), Vec::new()),
        Some(file) => api::config::load(&crate::read_input(file)?)
            .map_err(|errors| config::refused(file, &errors))?,
    };
    let mode: Mode = flags.mode;
    flags
        .change(&mut configuration)
        .map_err(|why| error(Code::BadInput, why))?;
    mode.settle(&mut configuration)
        .map_err(|why| error(Code::BadInput, why))?;
    let host = component::host();
    let options = Options::new(&configuration, engine::scheduling::plugins::ALL, &host);
    let (mut options, more) = match file {
        None => options.context("invalid configuration")?,
        Some(file) => options.map_err(|errors| config::refused(file, &errors))?,
    };
    let name = file.map_or_else(String::new, |file| file.display().to_string());
    for warning in warnings.iter().chain(&more) {
        tracing::warn!("{}", warning.in_file(&name, ""));
    }
    for text in flags
        .without_effect()
        .into_iter()
        .chain(mode.warning(&configuration))
    {
        tracing::warn!("{text}");
    }
    options.election = flags.election(&configuration.leader_election, &host);
    options.mode = mode;
    options.serve = flags.serve();
    options.debug_scores = flags.debug_scores;
    if let Some(among) = flags.random_nodes() {
        // Seeded by the operating system, so that no two processes make the same choices.
        let seed = std::hash::RandomState::new().hash_one(among);
        tracing::info!(
            nodes = among,
            seed,
            "choosing at random among the best nodes"
        );
        options.settings.cursor = Cursor::random(among, seed);
    }
    if let Some(longest) = flags.longest_parked() {
        options.settings.timing.longest_parked = longest;
    }
    Ok((configuration, options))
}

/// `--kubeconfig`, then the file's `clientConnection.kubeconfig`, then the cluster that this process runs in.
async fn connection(flags: &Flags, configuration: &Configuration) -> anyhow::Result<kube::Config> {
    let in_file = &configuration.client_connection.kubeconfig;
    let path = match &flags.kubeconfig {
        Some(path) => Some(path.clone()),
        None => (!in_file.is_empty()).then(|| in_file.into()),
    };
    component::connection(path.as_deref(), flags.master.as_ref()).await
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        flags: Flags,
    }

    #[test]
    fn the_number_of_nodes_to_choose_among_reaches_the_engine() {
        let cursor = |arguments: &[&str]| {
            let cli = Cli::try_parse_from([&["x"], arguments].concat()).unwrap();
            prepare(&cli.flags).unwrap().1.settings.cursor
        };
        assert_eq!(cursor(&[]), Cursor::default());
        let among_three = format!("{:?}", cursor(&["--randomize-node-selection=3"]));
        assert!(among_three.contains("among: 3"), "{among_three}");
    }
}
