//! The configuration of a scheduler: KubeSchedulerConfiguration as kube-scheduler reads it, in four versions.
//!
//! [`load`] reads a file, fills in the defaults of its version and makes every check that needs no plugin.
//! [`Configuration::profiles`] then merges the plugins and builds them with their arguments, which are read from the
//! text straight into each plugin's own type. Errors and warnings have the line. Nothing here runs.
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
//! let (profiles, more_warnings) = configuration.profiles(engine::plugins::ALL)?;
//! let scheduler = engine::scheduler::Scheduler::new(profiles, configuration.settings()).unwrap();
//! # assert!(warnings.is_empty());
//! # Ok::<(), api::config::Errors>(())
//! ```

mod args;
mod build;
mod document;
mod merge;
mod resolve;
#[cfg(test)]
mod tests;
mod types;
mod validate;
mod version;

use std::fmt;

use engine::framework::Entry;

pub use types::{
    ClientConnection, Configuration, DisabledPlugin, EnabledPlugin, Extender, ExtenderTls,
    LeaderElection, ManagedResource, PluginConfig, PluginSet, Plugins, Profile,
};
pub use version::Version;

use crate::yaml::{self, Finding};

/// Something that is accepted and has not the effect its author may expect.
pub type Warning = Finding;

/// Everything that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errors(pub Vec<Finding>);

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Errors {}

/// Reads and checks a configuration. Plugins are not looked at: see [`Configuration::profiles`].
pub fn load(text: &str) -> Result<(Configuration, Vec<Warning>), Errors> {
    let mut findings = Findings::new(text);
    let configuration = read(text, &mut findings)?;
    let warnings = findings.finish()?;
    Ok((configuration, warnings))
}

/// All that can be said about a configuration before it is used.
pub fn check(text: &str, plugins: &[Entry]) -> Check {
    let mut findings = Findings::new(text);
    match read(text, &mut findings) {
        Ok(configuration) => drop(build::profiles(&configuration, plugins, &mut findings)),
        Err(Errors(errors)) => findings.errors = errors,
    }
    Check {
        errors: findings.errors,
        warnings: findings.warnings,
    }
}

/// What [`check`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// None if the configuration can be used.
    pub errors: Vec<Finding>,
    pub warnings: Vec<Warning>,
}

impl Configuration {
    /// The profiles, built from these plugins and those that only older configurations have.
    pub fn profiles(
        &self,
        plugins: &[Entry],
    ) -> Result<(Vec<engine::profile::Profile>, Vec<Warning>), Errors> {
        let mut findings = Findings::new(&self.text);
        let profiles = build::profiles(self, plugins, &mut findings);
        Ok((profiles, findings.finish()?))
    }
}

fn read(text: &str, findings: &mut Findings<'_>) -> Result<Configuration, Errors> {
    let document = yaml::decode(text).map_err(|finding| Errors(vec![finding]))?;
    let configuration = resolve::configuration(text, document, findings)?;
    validate::configuration(&configuration, findings);
    Ok(configuration)
}

/// What was found so far.
struct Findings<'a> {
    text: &'a str,
    errors: Vec<Finding>,
    warnings: Vec<Warning>,
}

impl<'a> Findings<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            errors: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn at(&self, field: impl Into<String>, text: impl Into<String>) -> Finding {
        let field = field.into();
        Finding {
            line: yaml::line(self.text, &field),
            field,
            text: text.into(),
        }
    }

    fn error(&mut self, field: impl Into<String>, text: impl Into<String>) {
        let finding = self.at(field, text);
        self.errors.push(finding);
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
