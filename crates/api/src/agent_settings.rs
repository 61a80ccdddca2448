//! Settings of node agents: the keys of ConfigMap `tidepool-system/tidepool-colocation`, or a file with the same keys.
//!
//! Fields that a key does not name keep their defaults. One fault makes all settings invalid, so that the last valid ones stay in
//! force as a whole.

mod reclaim;
mod thresholds;

use std::collections::BTreeMap;
use std::fmt;

use engine::model::Labels;
use engine::node::{AgentSettings, Lend};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::parse;
use crate::wire::meta::LabelSelector;
use crate::yaml::{self, Finding};

pub const COLOCATION: &str = "colocation-config";
pub const THRESHOLDS: &str = "resource-threshold-config";
pub const RECLAIMED: &str = "reclaimed-resource-config";

/// The faults of the settings, one sentence each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSettingsError(pub Vec<String>);

impl fmt::Display for AgentSettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for AgentSettingsError {}

/// The settings of a node with these labels. Keys that are absent or empty stand for the defaults; other keys are ignored.
pub fn agent_settings(
    data: &BTreeMap<String, String>,
    labels: &Labels,
) -> Result<AgentSettings, AgentSettingsError> {
    let mut settings = AgentSettings::default();
    let mut faults = Faults::default();
    let text = |key| {
        data.get(key)
            .map(String::as_str)
            .filter(|text| !text.trim().is_empty())
    };
    if let Some(text) = text(COLOCATION) {
        faults.begin(COLOCATION, text);
        settings.lend = lend(text, labels, &mut faults);
    }
    if let Some(text) = text(THRESHOLDS) {
        faults.begin(THRESHOLDS, text);
        thresholds::read(text, labels, &mut settings, &mut faults);
    }
    if let Some(text) = text(RECLAIMED) {
        faults.begin(RECLAIMED, text);
        reclaim::read(text, &mut settings.reclaim, &mut faults);
    }
    match faults.found.is_empty() {
        true => Ok(settings),
        false => Err(AgentSettingsError(faults.found)),
    }
}

/// Checks the three keys for every node: what the tier controller and the agents of any node would refuse.
pub fn check(data: &BTreeMap<String, String>) -> Result<(), AgentSettingsError> {
    let text = data.get(COLOCATION).map_or("", String::as_str);
    let tiers = parse::koordinator::colocation_config(text);
    // The tier controller reads every field of this key, agents only one.
    let is_other = |fault: &String| !fault.starts_with(COLOCATION);
    let agents = agent_settings(data, &Labels::default());
    let agents = agents.err().map_or_else(Vec::new, |error| error.0);
    let tiers = tiers.err().map(|error| format!("{COLOCATION}: {error}"));
    let faults: Vec<String> = tiers
        .into_iter()
        .chain(agents.into_iter().filter(is_other))
        .collect();
    match faults.is_empty() {
        true => Ok(()),
        false => Err(AgentSettingsError(faults)),
    }
}

/// The keys of a settings file: a ConfigMap, or its `data` alone. The value of a key is text, or the object itself.
pub fn agent_settings_file(text: &str) -> Result<BTreeMap<String, String>, AgentSettingsError> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Entry {
        Text(String),
        Object(serde_json::Map<String, serde_json::Value>),
    }
    type Keys = BTreeMap<String, Entry>;
    #[derive(Deserialize)]
    struct ConfigMap {
        data: Keys,
    }
    let failed = |error: String| AgentSettingsError(vec![error]);
    let manifest: Result<ConfigMap, _> = serde_saphyr::from_str(text);
    let keys = match manifest {
        Ok(manifest) => manifest.data,
        Err(_) => {
            serde_saphyr::from_str::<Keys>(text).map_err(|error| failed(error.to_string()))?
        }
    };
    let known = [COLOCATION, THRESHOLDS, RECLAIMED];
    if let Some(key) = keys.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(failed(format!(
            "unknown key `{key}`{}",
            yaml::suggest(key, known)
        )));
    }
    let texts = keys.into_iter().map(|(key, entry)| {
        let text = match entry {
            Entry::Text(text) => text,
            Entry::Object(object) => serde_json::Value::Object(object).to_string(),
        };
        (key, text)
    });
    Ok(texts.collect())
}

/// Collects faults, each with the key and the line.
#[derive(Default)]
struct Faults {
    key: &'static str,
    text: String,
    found: Vec<String>,
}

impl Faults {
    fn begin(&mut self, key: &'static str, text: &str) {
        self.key = key;
        text.clone_into(&mut self.text);
    }

    fn add(&mut self, finding: &Finding) {
        self.found.push(format!("{}: {finding}", self.key));
    }

    /// A value that is not allowed.
    fn invalid(&mut self, field: String, found: impl fmt::Display, allowed: impl fmt::Display) {
        let finding = Finding {
            line: yaml::line(&self.text, &field),
            field,
            text: format!("found {found}; allowed: {allowed}"),
        };
        self.add(&finding);
    }

    /// Decodes the text of the key. Fields that are not known are faults, but for the settings that other components read too.
    fn decode<T: DeserializeOwned + Default>(&mut self, text: &str, unknown_is_fault: bool) -> T {
        let (value, findings) = yaml::decode::<T>(text);
        for finding in &findings {
            if unknown_is_fault || finding.text != yaml::UNKNOWN_FIELD {
                self.add(finding);
            }
        }
        value.unwrap_or_default()
    }
}

/// Whether a strategy for some nodes is for this one. A strategy without a selector is for none.
fn is_for(
    selector: Option<&LabelSelector>,
    field: &str,
    labels: &Labels,
    faults: &mut Faults,
) -> bool {
    match parse::label_selector(selector) {
        Ok(selector) => selector.matches(labels),
        Err(error) => {
            faults.invalid(format!("{field}.nodeSelector"), error, "a label selector");
            false
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Colocation {
    lend: Option<String>,
    node_configs: Vec<NodeColocation>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct NodeColocation {
    node_selector: Option<LabelSelector>,
    lend: Option<String>,
}

fn lend(text: &str, labels: &Labels, faults: &mut Faults) -> Lend {
    let config: Colocation = faults.decode(text, false);
    let mut lend = Lend::default();
    let mut read =
        |value: &Option<String>, field: String, faults: &mut Faults| match value.as_deref() {
            None => {}
            Some("reclaimed") => lend = Lend::Reclaimed,
            Some("batch") => lend = Lend::Batch,
            Some("shared") => lend = Lend::Shared,
            Some(other) => {
                faults.invalid(
                    field,
                    format_args!("`{other}`"),
                    "reclaimed, batch or shared",
                );
            }
        };
    read(&config.lend, "lend".to_owned(), faults);
    for (i, node) in config.node_configs.iter().enumerate() {
        let field = format!("nodeConfigs[{i}]");
        if is_for(node.node_selector.as_ref(), &field, labels, faults) {
            read(&node.lend, format!("{field}.lend"), faults);
            break;
        }
    }
    lend
}

#[cfg(test)]
mod tests;
