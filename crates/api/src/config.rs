//! The configuration of a scheduler: KubeSchedulerConfiguration as kube-scheduler reads it, in four versions.
//!
//! [`load`] reads a file, fills in the defaults of its version and makes every check that needs no plugin.
//! [`Configuration::profiles`] then merges the plugins and builds them; their arguments are read from the text straight
//! into each plugin's own type. Errors and warnings have line numbers. Rules about single plugins are in the engine:
//! nothing here names one.
//!
//! ```
//! let text = "
//! apiVersion: kubescheduler.config.k8s.io/v1
//! kind: KubeSchedulerConfiguration
//! profiles:
//! - schedulerName: packing
//!   pluginConfig:
//!   - name: NodeResourcesFit
//!     args: { scoringStrategy: { type: MostAllocated } }
//! ";
//! let (configuration, warnings) = api::config::load(text)?;
//! let (profiles, more_warnings) = configuration.profiles(engine::scheduling::plugins::ALL)?;
//! let scheduler = engine::scheduling::scheduler::Scheduler::new(profiles, configuration.settings()).unwrap();
//! # assert!(warnings.is_empty());
//! # Ok::<(), api::config::Errors>(())
//! ```

mod args;
mod build;
mod companions;
mod document;
mod effective;
mod merge;
mod resolve;
mod source;
#[cfg(test)]
mod tests;
mod types;
mod validate;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use engine::scheduling::framework::Entry;
use serde::de::DeserializeSeed;

pub use effective::{
    Effective, EffectivePlugin, EffectivePluginConfig, EffectivePluginSet, EffectiveProfile,
    to_json, to_yaml,
};
pub use types::{
    ClientConnection, Configuration, DisabledPlugin, EnabledPlugin, Extender, ExtenderTls,
    LeaderElection, ManagedResource, PluginConfig, PluginSet, Plugins, Profile,
};

use crate::yaml::{self, Finding, Tree};

/// A finding about an accepted setting that may not have the expected effect.
pub type Warning = Finding;

/// All errors of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errors(pub Vec<Finding>);

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Errors {}

/// Reads and checks a configuration, without its plugins: for those see [`Configuration::profiles`].
pub fn load(text: &str) -> Result<(Configuration, Vec<Warning>), Errors> {
    let mut findings = Findings::default();
    match read(text, &mut findings) {
        Some(configuration) => Ok((configuration, findings.finish()?)),
        None => Err(Errors(findings.errors)),
    }
}

/// Reads and checks a configuration with its plugins.
pub fn check(text: &str, plugins: &[Entry]) -> Check {
    let mut findings = Findings::default();
    if let Some(configuration) = read(text, &mut findings) {
        build::profiles(&configuration, plugins, &mut findings);
    }
    Check {
        errors: findings.errors,
        warnings: findings.warnings,
    }
}

/// The findings of [`check`].
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Check {
    /// Empty if the configuration is valid.
    pub errors: Vec<Finding>,
    pub warnings: Vec<Warning>,
}

impl Configuration {
    /// The profiles, built from these plugins and from the retired plugins of older configurations.
    pub fn profiles(
        &self,
        plugins: &[Entry],
    ) -> Result<(Vec<engine::scheduling::profile::Profile>, Vec<Warning>), Errors> {
        let mut findings = Findings {
            tree: self.tree.clone(),
            ..Findings::default()
        };
        let profiles = build::profiles(self, plugins, &mut findings);
        Ok((profiles, findings.finish()?))
    }
}

/// `None` if the text is not readable as a configuration at all.
fn read(text: &str, findings: &mut Findings) -> Option<Configuration> {
    let (tree, errors) = match source::open(text) {
        Ok(opened) => opened,
        Err(errors) => {
            findings.errors = errors;
            return None;
        }
    };
    let tree = Arc::new(tree);
    findings.tree = tree.clone();
    findings.errors = errors;
    let document = findings.read(&tree, "", || PhantomData)?;
    let configuration = resolve::configuration(document, findings)?;
    validate::configuration(&configuration, findings);
    Some(configuration)
}

/// The findings so far.
#[derive(Default)]
struct Findings {
    tree: Arc<Tree>,
    errors: Vec<Finding>,
    warnings: Vec<Warning>,
    /// Places of a wrong type or name; faults that follow from these are not reported.
    wrong: Vec<String>,
}

impl Findings {
    /// Reads the value at a path without its faulty fields.
    fn read<'t, S: DeserializeSeed<'t>>(
        &mut self,
        tree: &'t Tree,
        path: &str,
        seed: impl Fn() -> S,
    ) -> Option<S::Value> {
        let read = tree.read(path, seed);
        self.wrong
            .extend(read.faults.iter().map(|fault| fault.field.clone()));
        self.errors.extend(read.faults);
        read.value
    }

    fn at(&self, field: impl Into<String>, text: impl Into<String>) -> Finding {
        let field = field.into();
        Finding {
            line: self.tree.line(&field),
            field,
            text: text.into(),
        }
    }

    fn error(&mut self, field: impl Into<String>, text: impl Into<String>) {
        let finding = self.at(field, text);
        let follows = |wrong: &String| {
            yaml::is_at_or_below(&finding.field, wrong)
                || yaml::parent(wrong) == finding.field
                || self.is_meant(&finding.field, wrong)
        };
        if !self.wrong.iter().any(follows) {
            self.errors.push(finding);
        }
    }

    /// Whether a missing field may be a neighbouring one with a wrong name.
    fn is_meant(&self, field: &str, wrong: &str) -> bool {
        yaml::parent(field) == yaml::parent(wrong) && !self.tree.has(field)
    }

    fn warn(&mut self, field: impl Into<String>, text: impl Into<String>) {
        let finding = self.at(field, text);
        self.warnings.push(finding);
    }

    fn finish(self) -> Result<Vec<Warning>, Errors> {
        if self.errors.is_empty() {
            Ok(self.warnings)
        } else {
            Err(Errors(self.errors))
        }
    }
}
