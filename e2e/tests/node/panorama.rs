//! A pod of each row of the tiers' table, as users write it, and the cgroup that it should have. The webhook admits all of them.

use e2e::Api;
use e2e::node::pod;
use serde_json::{Value, json};

use crate::users::LABEL;

/// One row.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// What the user writes: the priority class, labels, annotations, and cpu and memory.
    class: &'static str,
    labels: Value,
    annotations: Value,
    resources: Value,
    /// A resource of the admitted pod's requests, with its amount.
    admitted: Option<(&'static str, &'static str)>,
    /// Below `kubepods`; empty for Guaranteed pods.
    pub(crate) directory: &'static str,
    pub(crate) shares: u64,
    /// Microseconds in 100 ms; none: no limit.
    pub(crate) quota: Option<u64>,
    /// Bytes; none: no limit.
    pub(crate) memory: Option<u64>,
}

const MIB: u64 = 1 << 20;

/// A pod whose requests are its limits: cpu in thousandths of a core, and memory in MiB.
fn limited(
    name: &'static str,
    class: &'static str,
    qos: &str,
    milli_cpu: u64,
    mebibytes: u64,
) -> Row {
    let amounts = json!({"cpu": format!("{milli_cpu}m"), "memory": format!("{mebibytes}Mi")});
    Row {
        name,
        class,
        labels: json!({"koordinator.sh/qosClass": qos}),
        annotations: json!({}),
        resources: json!({"requests": amounts, "limits": amounts}),
        admitted: None,
        directory: "besteffort",
        shares: milli_cpu * 1024 / 1000,
        quota: Some(milli_cpu * 100),
        memory: Some(mebibytes * MIB),
    }
}

/// A pod without resources, whose cgroup stays as the kubelet makes it.
fn bare(name: &'static str, class: &'static str, labels: Value) -> Row {
    Row {
        labels,
        resources: json!({}),
        shares: 2,
        quota: None,
        memory: None,
        ..limited(name, class, "", 0, 0)
    }
}

/// The eight rows of the tiers, a reclaimed pod, and a pod that names no tier.
pub(crate) fn rows() -> Vec<Row> {
    let prod = |name, qos, milli_cpu| Row {
        admitted: Some(("memory", "32Mi")),
        directory: "",
        ..limited(name, "koord-prod", qos, milli_cpu, 32)
    };
    let burstable = prod("ls-burstable", "LS", 100);
    let reclaimed = limited("reclaimed", "", "", 400, 80);
    vec![
        prod("lse", "LSE", 1_000),
        prod("lsr", "LSR", 1_000),
        prod("ls", "LS", 100),
        Row {
            resources: json!({"requests": burstable.resources["requests"]}),
            directory: "burstable",
            quota: None,
            memory: None,
            ..burstable
        },
        Row {
            admitted: Some(("kubernetes.io/mid-cpu", "200")),
            directory: "burstable",
            ..limited("mid-ls", "koord-mid", "LS", 200, 48)
        },
        Row {
            admitted: Some(("kubernetes.io/mid-cpu", "200")),
            ..limited("mid-be", "koord-mid", "BE", 200, 48)
        },
        Row {
            admitted: Some(("kubernetes.io/batch-cpu", "300")),
            ..limited("batch", "koord-batch", "BE", 300, 64)
        },
        bare(
            "free",
            "koord-free",
            json!({"koordinator.sh/qosClass": "BE"}),
        ),
        Row {
            labels: json!({}),
            annotations: json!({"katalyst.kubewharf.io/qos_level": "reclaimed_cores"}),
            admitted: Some(("resource.katalyst.kubewharf.io/reclaimed_millicpu", "400")),
            ..reclaimed
        },
        bare("plain", "", json!({})),
    ]
}

impl Row {
    /// The pod of this row as a user writes it. The name of the node is part of its own.
    pub(crate) fn unplaced(&self, node: &str) -> Value {
        let mut pod = self.placed(node);
        pod["spec"].as_object_mut().unwrap().remove("nodeName");
        pod
    }

    /// The pod of this row for this node: nothing schedules it.
    pub(crate) fn placed(&self, node: &str) -> Value {
        let resources = self.resources.clone();
        let mut pod = pod(node, &self.pod(node), "sleep 100000", resources);
        pod["metadata"]["labels"] = self.labels.clone();
        pod["metadata"]["labels"][LABEL] = json!("yes");
        pod["metadata"]["annotations"] = self.annotations.clone();
        if !self.class.is_empty() {
            pod["spec"]["priorityClassName"] = json!(self.class);
        }
        pod
    }

    pub(crate) fn pod(&self, node: &str) -> String {
        format!("{}-{node}", self.name)
    }

    /// The webhook turned cpu and memory into the resources of the tier, and Kubernetes gave the pod its QoS class.
    pub(crate) fn check_admitted(&self, pod: &Value) {
        let class = match self.directory {
            "" => "Guaranteed",
            "burstable" => "Burstable",
            _ => "BestEffort",
        };
        assert_eq!(pod["status"]["qosClass"], class, "{}", self.name);
        let requests = &pod["spec"]["containers"][0]["resources"]["requests"];
        if let Some((resource, amount)) = self.admitted {
            assert_eq!(requests[resource], amount, "{}: {requests}", self.name);
        }
        let is_native = matches!(self.admitted, Some(("memory", _)));
        let cpu = requests["cpu"].as_str().unwrap_or("0");
        assert_eq!(cpu != "0", is_native, "{}: {requests}", self.name);
    }

    /// The pod's group below the kubelet's root group.
    pub(crate) fn group(&self, uid: &str) -> String {
        let directory = match self.directory {
            "" => String::new(),
            directory => format!("{directory}/"),
        };
        format!("kubepods/{directory}pod{uid}")
    }
}

/// Gives a node capacity of the tiers that the kubelet checks.
pub(crate) fn add_tiers(api: &Api, node: &str) {
    let amounts = json!({
        "kubernetes.io/mid-cpu": "4000", "kubernetes.io/mid-memory": "4Gi",
        "kubernetes.io/batch-cpu": "4000", "kubernetes.io/batch-memory": "4Gi",
    });
    let status = json!({"status": {"capacity": amounts, "allocatable": amounts}});
    api.patch(&format!("/api/v1/nodes/{node}/status"), &status)
        .unwrap();
}
