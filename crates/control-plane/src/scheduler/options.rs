//! Options of a scheduler.

use api::config::{self, Configuration, Effective, Errors, Warning};
use engine::scheduling::framework::Entry;
use engine::scheduling::plugins;
use engine::scheduling::profile::Profile;
use engine::scheduling::scheduler::Settings;
use serde_json::Value;

use super::Mode;
use crate::election::Election;
use crate::serve::Serve;

/// For a cluster: [`Mode::settle`] the configuration, [`Options::new`], then `mode`, `election` ([`Election::new`] if the
/// configuration's `leader_elect` is set) and `serve` ([`Serve::default`] is loopback). Without the last two it runs
/// without leader election and HTTP server.
pub struct Options {
    pub profiles: Vec<Profile>,
    pub settings: Settings,
    /// How to reach each of the settings' extenders, in the same order.
    pub extenders: Vec<config::Extender>,
    /// The host name for events.
    pub host: String,
    /// Whether to decide at once, or only after [`Running::decide`]. With an election, only the leader decides.
    pub decide: bool,
    pub mode: Mode,
    /// None: no leader election.
    pub election: Option<Election>,
    /// None: no HTTP server.
    pub serve: Option<Serve>,
    /// The configuration for `/configz`.
    pub configuration: Value,
    /// The number of nodes whose scores are logged for each decision; 0 for none. The HTTP API can change it.
    pub debug_scores: u16,
}

impl Options {
    /// The options of a configuration, with these plugins available.
    pub fn new(
        configuration: &Configuration,
        plugins: &[Entry],
        host: &str,
    ) -> Result<(Self, Vec<Warning>), Errors> {
        let (profiles, warnings) = configuration.profiles(plugins)?;
        let shown = Effective::new(configuration, plugins)?;
        let options = Self {
            profiles,
            settings: configuration.settings(),
            extenders: configuration.extenders.clone(),
            host: host.to_owned(),
            decide: true,
            mode: Mode::default(),
            election: None,
            serve: None,
            configuration: serde_json::to_value(&shown).unwrap_or_default(),
            debug_scores: 0,
        };
        Ok((options, warnings))
    }

    /// One profile with this name, and kube-scheduler's defaults.
    pub fn with_defaults(scheduler_name: &str, host: &str) -> Result<Self, Errors> {
        let mut configuration = Configuration::default();
        for profile in &mut configuration.profiles {
            profile.scheduler_name = scheduler_name.to_owned();
            profile.is_named = true;
        }
        Ok(Self::new(&configuration, plugins::ALL, host)?.0)
    }
}
