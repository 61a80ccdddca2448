//! The agent's own taints, on the CNR or on the Node. Other taints stay.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::node::AgentTaint;
use engine::node::health::TAINT_KEYS;
use serde_json::{Value, json};

use super::{Field, Observation, Share, Source, Target, Urgency};

/// Where the agent sets its taints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TaintTarget {
    /// They keep away pods of the level `reclaimed_cores` only.
    #[default]
    Cnr,
    /// They keep away all pods.
    Node,
}

pub struct Taints {
    pub target: TaintTarget,
    pub form: TaintForm,
}

/// How a QoS taint is written. Definitions of different age accept different forms.
#[derive(Debug, Clone, Default)]
pub struct TaintForm {
    has_level: Arc<AtomicBool>,
}

impl TaintForm {
    /// Changes to the form with a QoS level. Returns false if that is the form already.
    pub fn use_level(&self) -> bool {
        !self.has_level.swap(true, Ordering::Relaxed)
    }

    fn write(&self, taint: &AgentTaint) -> Value {
        let mut written = json!({"key": taint.key, "value": taint.value});
        if self.has_level.load(Ordering::Relaxed) {
            written["effect"] = json!("NoSchedule");
            written["qosLevel"] = json!("reclaimed_cores");
        } else {
            written["effect"] = json!("NoScheduleForReclaimedTasks");
        }
        written
    }
}

/// The path of taints in both kinds.
pub const PATH: &[&str] = &["spec", "taints"];

fn is_ours(taint: &Value) -> bool {
    let key = taint["key"].as_str();
    key.is_some_and(|key| TAINT_KEYS.contains(&key))
}

const fn taints(target: Target) -> Field {
    Field {
        target,
        path: PATH,
        share: Share::Items(is_ours),
        urgency: Urgency::AtOnce,
    }
}

impl Source<Observation> for Taints {
    fn fields(&self) -> &'static [Field] {
        match self.target {
            TaintTarget::Cnr => const { &[taints(Target::CustomNodeResource)] },
            // Taints that the agent set on the CNR before its flags changed go away.
            TaintTarget::Node => {
                const { &[taints(Target::CustomNodeResource), taints(Target::Node)] }
            }
        }
    }

    fn values(&self, observed: &Observation) -> Vec<Option<Value>> {
        let taints = observed.taints.iter();
        match self.target {
            TaintTarget::Cnr => {
                let taints = taints.map(|taint| self.form.write(taint));
                vec![Some(taints.collect())]
            }
            TaintTarget::Node => {
                let taints = taints.map(
                    |taint| json!({"key": taint.key, "value": taint.value, "effect": "NoSchedule"}),
                );
                vec![Some(json!([])), Some(taints.collect())]
            }
        }
    }
}
