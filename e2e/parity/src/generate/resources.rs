//! Quantities: capacities of nodes and requests of containers, in all notations.

use serde_json::{Value, json};

use super::{Draft, Mood};

const GPU: &str = "example.com/gpu";
const FPGA: &str = "other.example/fpga";
const HUGE: &str = "hugepages-2Mi";
/// In the group of Kubernetes, and no tier: a pod of a tier evicts no pod of a stronger class, whatever kube-scheduler does.
const NATIVE: &str = "kubernetes.io/licence";

pub(super) fn allocatable(draft: &mut Draft) -> Value {
    if draft.alike {
        return json!({"cpu": "2", "memory": "8Gi", "pods": "30"});
    }
    let small = draft.mood == Mood::Full;
    let random = &mut draft.random;
    let mut list = json!({});
    if random.chance(99) {
        list["cpu"] = json!(if small {
            random.pick(&["1500m", "2", "2.5", "4"])
        } else {
            random.pick(&["2", "4", "8", "3920m", "16", "6.5", "12e0"])
        });
    }
    if random.chance(98) {
        list["memory"] = json!(if small {
            random.pick(&["1Gi", "2Gi", "3000M", "4Gi"])
        } else {
            random.pick(&["4Gi", "8Gi", "7.5Gi", "16G", "32Gi", "16384000Ki", "9e9"])
        });
    }
    if random.chance(99) {
        let tight = random.chance(6);
        list["pods"] = json!(if tight {
            random.pick(&["1", "2", "3"])
        } else {
            random.pick(&["8", "30", "110"])
        });
    }
    if random.chance(85) {
        list["ephemeral-storage"] = json!(random.pick(&["1Gi", "5Gi", "20Gi", "1e9", "500M"]));
    }
    if random.chance(60) {
        list[GPU] = json!(random.pick(&["0", "1", "2", "4", "8"]));
    }
    if random.chance(25) {
        list[FPGA] = json!(random.pick(&["1", "2"]));
    }
    if random.chance(25) {
        list[HUGE] = json!(random.pick(&["0", "64Mi", "128Mi", "1Gi"]));
    }
    if random.chance(15) {
        list[NATIVE] = json!(random.pick(&["500", "2k"]));
    }
    if random.chance(10) {
        list["attachable-volumes-csi-csi.example.com"] = json!("3");
    }
    if random.chance(5) {
        list["storage"] = json!("10Gi"); // In no class of names: no plugin counts it.
    }
    list
}

/// The requests of one container of a pod that is already there.
pub(super) fn bound_requests(draft: &mut Draft) -> Value {
    let heavy = draft.mood == Mood::Full;
    let random = &mut draft.random;
    let mut list = json!({});
    if random.chance(75) {
        list["cpu"] = json!(if heavy {
            random.pick(&["400m", "500m", "750m", "1", "1.5"])
        } else {
            random.pick(&["50m", "100m", "250m", "0.5", "1", "0", "333m", "0.0004"])
        });
    }
    if random.chance(75) {
        list["memory"] = json!(if heavy {
            random.pick(&["256Mi", "512Mi", "800M", "1Gi"])
        } else {
            random.pick(&["64Mi", "200Mi", "1Gi", "1e8", "0", "1500m", "123456789"])
        });
    }
    if random.chance(20) {
        list["ephemeral-storage"] = json!(random.pick(&["100Mi", "1G", "0.5Gi"]));
    }
    if random.chance(15) {
        list[GPU] = json!(random.pick(&["1", "2"]));
    }
    if random.chance(6) {
        list[HUGE] = json!("64Mi");
    }
    if random.chance(5) {
        list[NATIVE] = json!("250");
    }
    list
}

/// The requests of a pod that waits for its node: large enough to be missed there.
pub(super) fn nominated_requests(draft: &mut Draft) -> Value {
    let random = &mut draft.random;
    let mut list = json!({"cpu": random.pick(&["1", "2", "3500m", "7", "12"])});
    if random.chance(50) {
        list["memory"] = json!(random.pick(&["1Gi", "3Gi", "7Gi"]));
    }
    list
}

/// The requests of one container of the pod to place.
pub(super) fn incoming_requests(draft: &mut Draft) -> Value {
    let mood = draft.mood;
    let random = &mut draft.random;
    let mut list = json!({});
    if random.chance(80) {
        list["cpu"] = json!(match mood {
            Mood::Easy | Mood::Stored =>
                random.pick(&["0", "10m", "100m", "250m", "0.5", "1", "1e-1", "1n"]),
            Mood::Picky => random.pick(&["100m", "500m", "1", "2", "3500m", "7", "20"]),
            Mood::Full => random.pick(&["400m", "700m", "900m"]),
        });
    }
    if random.chance(80) {
        list["memory"] = json!(match mood {
            Mood::Easy | Mood::Stored =>
                random.pick(&["0", "64Mi", "200Mi", "1Gi", "1.5e8", "100k", "1"]),
            Mood::Picky => random.pick(&["200Mi", "1Gi", "3Gi", "6Gi", "12Gi", "40Gi"]),
            Mood::Full => random.pick(&["200Mi", "400M"]),
        });
    }
    let rare = mood.chance(3, 30, 3, 2);
    if random.chance(rare) {
        list["ephemeral-storage"] = json!(random.pick(&["1", "300Mi", "1Gi", "10Gi"]));
    }
    if random.chance(rare) {
        list[GPU] = json!(random.pick(&["0", "1", "2", "3"]));
    }
    if random.chance(rare / 3) {
        list[FPGA] = json!("1");
    }
    if random.chance(rare / 3) {
        list[HUGE] = json!(random.pick(&["64Mi", "256Mi"]));
    }
    if random.chance(rare / 4) {
        list[NATIVE] = json!(random.pick(&["100", "1k"]));
    }
    if random.chance(2) {
        list["storage"] = json!("1Ti");
    }
    list
}

/// `spec.resources` of a pod: the requests of the whole pod.
pub(super) fn pod_level(draft: &mut Draft) -> Value {
    let random = &mut draft.random;
    let mut list = json!({});
    if random.chance(70) {
        list["cpu"] = json!(random.pick(&["200m", "1", "1.5"]));
    }
    if random.chance(60) {
        list["memory"] = json!(random.pick(&["100Mi", "2Gi"]));
    }
    if random.chance(10) {
        list[HUGE] = json!("64Mi");
    }
    json!({"requests": list})
}

pub(super) fn overhead(draft: &mut Draft) -> Value {
    let random = &mut draft.random;
    match random.below(3) {
        0 => json!({"cpu": "50m"}),
        1 => json!({"cpu": "0.25", "memory": "120Mi"}),
        _ => json!({"memory": "64M", "ephemeral-storage": "10Mi", "example.com/unknown": "0"}),
    }
}
