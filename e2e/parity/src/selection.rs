//! Which plugins a run compares: all of a case's profile, or a few by themselves.

use anyhow::{Result, bail};
use engine::scheduling::plugins::DEFAULT;
use serde_json::{Value, json};

use super::generate::Case;
use super::verdicts::Verdicts;

/// A profile must have these, whatever else it has; they judge no node.
const NEEDED: &[&str] = &["PrioritySort", "DefaultBinder"];

/// The plugins that are compared; none named means all of a case's profile.
pub(crate) struct Selection {
    named: Vec<String>,
    /// Whether the kubelet's admission is compared too.
    kubelets: bool,
    /// Whether queueing hints for rejected pods are compared.
    hints: bool,
}

impl Selection {
    /// All, together with preemption and kubelets.
    pub(crate) const ALL: Self = Self {
        named: Vec::new(),
        kubelets: true,
        hints: true,
    };

    /// The verdicts of all plugins about nodes, and nothing else.
    pub(crate) const PLUGINS: Self = Self {
        named: Vec::new(),
        kubelets: false,
        hints: false,
    };

    pub(crate) fn new(names: Vec<String>) -> Result<Self> {
        for name in &names {
            if !DEFAULT.iter().any(|(known, _)| known == name) {
                let known: Vec<&str> = DEFAULT.iter().map(|(name, _)| *name).collect();
                bail!(
                    "no plugin {name} in the default profile: use {}",
                    known.join(", ")
                );
            }
        }
        Ok(Self {
            kubelets: names.is_empty(),
            hints: true,
            named: names,
        })
    }

    pub(crate) fn is_all(&self) -> bool {
        self.named.is_empty()
    }

    /// What must be built for the comparison to make sense, besides what judges nodes.
    pub(crate) fn plugins(&self) -> impl Iterator<Item = &str> {
        DEFAULT
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| self.is_all() || self.named.iter().any(|chosen| chosen == name))
    }

    /// The case with a profile that has the chosen plugins only, each with the case's arguments for it.
    pub(crate) fn narrow(&self, case: &Case) -> Case {
        let mut case = case.clone();
        if self.is_all() {
            return case;
        }
        let enabled = |(name, weight): &(&str, i64)| {
            (NEEDED.contains(name) || self.named.iter().any(|chosen| chosen == name))
                .then(|| json!({"name": name, "weight": weight}))
        };
        let enabled: Vec<Value> = DEFAULT.iter().filter_map(enabled).collect();
        let args: Vec<Value> = case.0["profile"]["pluginConfig"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|args| self.named.iter().any(|chosen| args["name"] == **chosen))
            .cloned()
            .collect();
        case.0["profile"] = json!({
            "schedulerName": "default-scheduler",
            "plugins": {"multiPoint": {"disabled": [{"name": "*"}], "enabled": enabled}},
            "pluginConfig": args,
        });
        case
    }

    /// Leaves out what is no plugin's answer.
    pub(crate) fn strip(&self, mut verdicts: Verdicts) -> Verdicts {
        if !self.kubelets {
            verdicts.kubelet.clear();
        }
        if !self.hints {
            verdicts.hints.clear();
        }
        verdicts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrowed_case_runs_the_chosen_plugin_with_its_arguments() {
        let chosen = Selection::new(vec!["NodeAffinity".to_owned()]).unwrap();
        let case = json!({"profile": {"pluginConfig": [
            {"name": "NodeAffinity", "args": {"addedAffinity": {}}},
            {"name": "InterPodAffinity", "args": {}},
        ]}});
        assert_eq!(
            chosen.narrow(&Case(case)).0["profile"],
            json!({
                "schedulerName": "default-scheduler",
                "plugins": {"multiPoint": {
                    "disabled": [{"name": "*"}],
                    "enabled": [
                        {"name": "PrioritySort", "weight": 0},
                        {"name": "NodeAffinity", "weight": 2},
                        {"name": "DefaultBinder", "weight": 0},
                    ],
                }},
                "pluginConfig": [{"name": "NodeAffinity", "args": {"addedAffinity": {}}}],
            })
        );
    }

    #[test]
    fn an_unknown_plugin_is_refused() {
        let error = Selection::new(vec!["NodePort".to_owned()]).err().unwrap();
        assert!(
            error.to_string().starts_with("no plugin NodePort"),
            "{error}"
        );
    }
}
