//! The settings in force: from a file or a ConfigMap, read again after a change. The last valid ones stay.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::model::Labels;
use engine::node::AgentSettings;
use k8s_openapi::api::core::v1::ConfigMap;
use tokio_util::sync::CancellationToken;

/// Where settings come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingsSource {
    ConfigMap,
    File(PathBuf),
}

/// JSON documents by key, as in the ConfigMap.
pub type Documents = BTreeMap<String, String>;

/// Shared by the part that reads documents and the part that uses the settings.
#[derive(Debug, Clone, Default)]
pub struct SettingsStore {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    documents: Documents,
    /// Why the source cannot be read.
    source_error: Option<String>,
    /// The documents and labels that `settings` or `error` are from.
    used: Option<(Documents, Labels)>,
    settings: Arc<AgentSettings>,
    /// Why the documents are not in force.
    error: Option<String>,
}

impl Inner {
    /// What is in force instead of settings that cannot be used.
    fn kept(&self) -> &'static str {
        match *self.settings == AgentSettings::default() {
            true => "the defaults",
            false => "the last valid ones",
        }
    }
}

impl SettingsStore {
    /// New documents of the source.
    pub fn set(&self, documents: Documents) {
        let mut inner = self.lock();
        inner.documents = documents;
        inner.source_error = None;
    }

    /// The source cannot be read: the last documents stay.
    pub fn fail(&self, why: String) {
        let mut inner = self.lock();
        if inner.source_error.as_ref() != Some(&why) {
            let stay = inner.kept();
            tracing::warn!(why, "cannot read settings; {stay} stay in force");
        }
        inner.source_error = Some(why);
    }

    /// The settings of a node with these labels.
    pub fn get(&self, labels: &Labels) -> Arc<AgentSettings> {
        let mut inner = self.lock();
        let is_used = |(documents, used): &(Documents, Labels)| {
            *documents == inner.documents && used == labels
        };
        if !inner.used.as_ref().is_some_and(is_used) {
            inner.used = Some((inner.documents.clone(), labels.clone()));
            match api::agent_settings::agent_settings(&inner.documents, labels) {
                Ok(settings) => {
                    if *inner.settings != settings || inner.error.is_some() {
                        tracing::info!("new settings are in force");
                    }
                    inner.settings = Arc::new(settings);
                    inner.error = None;
                }
                Err(error) => {
                    let why = error.to_string();
                    let stay = inner.kept();
                    tracing::warn!(why, "settings are invalid; {stay} stay in force");
                    inner.error = Some(why);
                }
            }
        }
        inner.settings.clone()
    }

    /// Why the newest settings are not in force.
    pub fn error(&self) -> Option<String> {
        let inner = self.lock();
        inner.source_error.clone().or_else(|| inner.error.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The documents of the ConfigMap; none if it does not exist.
pub fn of_config_map(map: Option<&ConfigMap>) -> Documents {
    let data = map.and_then(|map| map.data.as_ref());
    data.cloned().unwrap_or_default()
}

/// Reads the file at every period, until cancelled.
pub async fn follow_file(
    path: PathBuf,
    period: Duration,
    store: SettingsStore,
    cancel: CancellationToken,
) {
    let work = async {
        loop {
            read_file(&path, &store);
            tokio::time::sleep(period).await;
        }
    };
    cancel.run_until_cancelled(work).await;
}

/// Reads the file once.
pub fn read_file(path: &std::path::Path, store: &SettingsStore) {
    let text = std::fs::read_to_string(path);
    let documents = match &text {
        Ok(text) => {
            api::agent_settings::agent_settings_file(text).map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    match documents {
        Ok(documents) => store.set(documents),
        Err(why) => store.fail(format!("{}: {why}", path.display())),
    }
}
