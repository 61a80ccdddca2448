//! What the kubelet's CPU and memory managers decided, from their state files.

use std::collections::BTreeMap;
use std::path::Path;

use engine::node::CpuSet;
use serde::Deserialize;

const FILE: &str = "cpu_manager_state";
const MEMORY_FILE: &str = "memory_manager_state";
/// A larger file is not the kubelet's.
const LARGEST: usize = 4 << 20;

/// The state of the CPU manager. Without the file, or if it cannot be read, the policy counts as `none`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuManager {
    /// The policy is `static`: it binds containers to CPUs, and it writes the cpusets of pods.
    pub is_static: bool,
    /// By the uid of the pod.
    pub bound: BTreeMap<String, CpuSet>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StateFile {
    policy_name: String,
    /// Pod uid, container name, CPUs.
    #[serde(default)]
    entries: BTreeMap<String, BTreeMap<String, String>>,
}

pub fn cpu_manager(kubelet_root: &Path) -> CpuManager {
    let text = std::fs::read(kubelet_root.join(FILE));
    text.map(|text| parse(&text)).unwrap_or_default()
}

/// Whether the policy of the memory manager is `Static`: it binds Guaranteed pods to NUMA nodes.
pub fn has_static_memory_manager(kubelet_root: &Path) -> bool {
    let text = std::fs::read(kubelet_root.join(MEMORY_FILE));
    text.is_ok_and(|text| is_static_memory(&text))
}

fn is_static_memory(text: &[u8]) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct State {
        policy_name: String,
    }
    let state = serde_json::from_slice::<State>(text).ok();
    text.len() <= LARGEST && state.is_some_and(|state| state.policy_name == "Static")
}

fn parse(text: &[u8]) -> CpuManager {
    if text.len() > LARGEST {
        return CpuManager::default();
    }
    let Ok(state) = serde_json::from_slice::<StateFile>(text) else {
        return CpuManager::default();
    };
    let bound = state.entries.into_iter().map(|(uid, containers)| {
        let mut cpus = CpuSet::default();
        for set in containers.values().filter_map(|text| CpuSet::parse(text)) {
            cpus.0.extend(set.0);
        }
        (uid, cpus)
    });
    CpuManager {
        is_static: state.policy_name == "static",
        bound: bound.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_file_names_the_policy_of_the_memory_manager() {
        for (text, want) in [
            (
                r#"{"policyName":"Static","machineState":{},"entries":{},"checksum":1}"#,
                true,
            ),
            (
                r#"{"policyName":"None","machineState":{},"checksum":1}"#,
                false,
            ),
            ("", false),
            ("[]", false),
        ] {
            assert_eq!(is_static_memory(text.as_bytes()), want, "{text}");
        }
        assert!(!has_static_memory_manager(Path::new("/nonexistent")));
    }

    #[test]
    fn the_state_file_names_policy_and_cpus() {
        let text = br#"{"policyName":"static","defaultCpuSet":"0-1","entries":{"u":{"a":"2","b":"3-4"}},"checksum":1}"#;
        let manager = parse(text);
        assert!(manager.is_static);
        assert_eq!(manager.bound["u"].to_string(), "2-4");
        let none = parse(br#"{"policyName":"none","defaultCpuSet":"","checksum":1}"#);
        assert_eq!(none, CpuManager::default());
        for text in ["", "{}", "[]", r#"{"policyName": 3}"#] {
            assert_eq!(parse(text.as_bytes()), CpuManager::default(), "{text}");
        }
        assert_eq!(
            cpu_manager(Path::new("/nonexistent")),
            CpuManager::default()
        );
    }
}
