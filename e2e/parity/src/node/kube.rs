//! The cgroup of a pod, against the kubelet's own code.

use anyhow::Result;
use engine::model::Name;
use engine::node::cgroup::{pod_qos, pod_values};
use engine::node::pods::ContainerRole;
use engine::node::{CpuMemory, LocalContainer, LocalPod, PodQos, ResourcePair};
use serde_json::{Value, json};

use super::{Figure, NodeQuestion};
use crate::oracle::Oracle;
use crate::random::Random;
use crate::sample::Sample;

pub(super) const FIGURES: &[Figure] = &[Figure {
    name: "cgroups of pods",
    generate: cgroup,
    listed: &[],
}];

pub(crate) fn compare(oracle: &mut Oracle, sample: &Sample) -> Result<bool> {
    super::compare("kube", FIGURES, oracle, sample, |verdicts| {
        verdicts["cgroup"].clone()
    })
}

fn amounts(random: &mut Random) -> CpuMemory {
    let milli_cpu = random.one(&[0, 0, 1, 5, 10, 100, 250, 500, 1500, 4000, 300_000]);
    let memory = random.one(&[0, 0, 1, 4096, 64 << 20, 1 << 30, 3 << 30]);
    CpuMemory { milli_cpu, memory }
}

fn list(amounts: CpuMemory) -> Value {
    let mut list = json!({});
    // A zero is the same as an absent resource, and both occur.
    if amounts.milli_cpu > 0 {
        list["cpu"] = json!(format!("{}m", amounts.milli_cpu));
    }
    if amounts.memory > 0 {
        list["memory"] = json!(amounts.memory.to_string());
    }
    list
}

/// Requests as the API server leaves them: not above limits, and copied from limits where they are absent.
fn pair(random: &mut Random) -> ResourcePair {
    let limits = amounts(random);
    let requests = match random.below(3) {
        0 => limits,
        _ => amounts(random),
    };
    let request = |request: i64, limit: i64| match (request, limit) {
        (_, 0) => request,
        (0, limit) => limit,
        (request, limit) => request.min(limit),
    };
    ResourcePair {
        requests: requests.zip(limits, request),
        limits,
    }
}

fn cgroup(random: &mut Random) -> NodeQuestion {
    let mut pod = LocalPod::default();
    let (mut containers, mut init) = (Vec::new(), Vec::new());
    let shared = pair(random);
    for i in 0..random.between(1, 5) {
        let role = match i {
            0 => ContainerRole::Regular,
            _ => random.one(&[
                ContainerRole::Regular,
                ContainerRole::Init,
                ContainerRole::Sidecar,
            ]),
        };
        let native = match random.chance(40) {
            true => shared,
            false => pair(random),
        };
        let mut object = json!({
            "name": format!("c{i}"),
            "resources": {"requests": list(native.requests), "limits": list(native.limits)},
        });
        if role == ContainerRole::Sidecar {
            object["restartPolicy"] = json!("Always");
        }
        match role {
            ContainerRole::Regular => containers.push(object),
            _ => init.push(object),
        }
        pod.containers.push(LocalContainer {
            name: Name::from(format!("c{i}")),
            role,
            native,
            ..LocalContainer::default()
        });
    }
    // Init containers come first, as in the object.
    pod.containers
        .sort_by_key(|container| container.role == ContainerRole::Regular);
    let mut spec = json!({"containers": containers, "initContainers": init});
    if random.chance(20) {
        pod.overhead = CpuMemory::new(250, 64 << 20);
        spec["overhead"] = list(pod.overhead);
    }
    let qos = pod_qos(&pod);
    let values = pod_values(&pod, |container| container.native);
    let mut ours = json!({
        "qos": format!("{qos:?}"),
        "shares": values.shares,
    });
    // The kubelet writes no limits of BestEffort pods, and neither has one.
    if qos == PodQos::BestEffort {
        ours["shares"] = json!(2);
    }
    if let Some(quota) = values.quota {
        ours["quota"] = json!(quota);
    }
    if let Some(memory) = values.memory {
        ours["memory"] = json!(memory);
    }
    NodeQuestion {
        asked: json!({"cgroup": {"metadata": {"name": "p"}, "spec": spec}}),
        ours,
    }
}
