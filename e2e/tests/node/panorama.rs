//! A pod of each row of the tiers' table, as the admission webhook leaves it, and the cgroup that it should have.

use e2e::Api;
use e2e::node::pod;
use serde_json::{Value, json};

/// One row.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Labels of the pod.
    labels: Value,
    annotations: Value,
    resources: Value,
    /// Below `kubepods`; empty for Guaranteed pods.
    pub(crate) directory: &'static str,
    pub(crate) shares: u64,
    /// Microseconds in 100 ms; none: no limit.
    pub(crate) quota: Option<u64>,
    /// Bytes; none: no limit.
    pub(crate) memory: Option<u64>,
}

const MIB: u64 = 1 << 20;

fn koordinator(class: &str, qos: &str) -> Value {
    json!({"koordinator.sh/priority-class": class, "koordinator.sh/qosClass": qos})
}

fn both(amounts: &Value) -> Value {
    json!({"requests": amounts, "limits": amounts})
}

pub(crate) fn rows() -> Vec<Row> {
    let native = json!({"cpu": "100m", "memory": "32Mi"});
    let mid = json!({"kubernetes.io/mid-cpu": "200", "kubernetes.io/mid-memory": "48Mi"});
    let mut mid_ls_requests = mid.clone();
    mid_ls_requests["cpu"] = json!("0");
    mid_ls_requests["memory"] = json!("0");
    let mut mid_ls_limits = mid.clone();
    mid_ls_limits["cpu"] = json!("200m");
    mid_ls_limits["memory"] = json!("48Mi");
    let batch = json!({"kubernetes.io/batch-cpu": "300", "kubernetes.io/batch-memory": "64Mi"});
    let reclaimed = json!({
        "resource.katalyst.kubewharf.io/reclaimed_millicpu": "400",
        "resource.katalyst.kubewharf.io/reclaimed_memory": "80Mi",
    });
    let row = |name, labels, resources, directory, shares, quota, memory| Row {
        name,
        labels,
        annotations: json!({}),
        resources,
        directory,
        shares,
        quota,
        memory,
    };
    let (guaranteed, quota) = (Some(32 * MIB), Some(10_000));
    vec![
        row(
            "lse",
            koordinator("koord-prod", "LSE"),
            both(&native),
            "",
            102,
            quota,
            guaranteed,
        ),
        row(
            "lsr",
            koordinator("koord-prod", "LSR"),
            both(&native),
            "",
            102,
            quota,
            guaranteed,
        ),
        row(
            "ls",
            koordinator("koord-prod", "LS"),
            both(&native),
            "",
            102,
            quota,
            guaranteed,
        ),
        row(
            "ls-burstable",
            koordinator("koord-prod", "LS"),
            json!({"requests": native}),
            "burstable",
            102,
            None,
            None,
        ),
        row(
            "mid-ls",
            koordinator("koord-mid", "LS"),
            json!({"requests": mid_ls_requests, "limits": mid_ls_limits}),
            "burstable",
            204,
            Some(20_000),
            Some(48 * MIB),
        ),
        row(
            "mid-be",
            koordinator("koord-mid", "BE"),
            both(&mid),
            "besteffort",
            204,
            Some(20_000),
            Some(48 * MIB),
        ),
        row(
            "batch",
            koordinator("koord-batch", "BE"),
            both(&batch),
            "besteffort",
            307,
            Some(30_000),
            Some(64 * MIB),
        ),
        Row {
            annotations: json!({"katalyst.kubewharf.io/qos_level": "reclaimed_cores"}),
            ..row(
                "reclaimed",
                json!({}),
                both(&reclaimed),
                "besteffort",
                409,
                Some(40_000),
                Some(80 * MIB),
            )
        },
        // Free pods have no resources: their cgroups stay as the kubelet makes them.
        row(
            "free",
            json!({"koordinator.sh/priority-class": "koord-free"}),
            json!({}),
            "besteffort",
            2,
            None,
            None,
        ),
        row("plain", json!({}), json!({}), "besteffort", 2, None, None),
    ]
}

impl Row {
    /// The pod of this row on a node.
    pub(crate) fn create(&self, api: &Api, node: &str) {
        let mut pod = pod(
            node,
            &self.pod(node),
            "sleep 100000",
            self.resources.clone(),
        );
        pod["metadata"]["labels"] = self.labels.clone();
        pod["metadata"]["annotations"] = self.annotations.clone();
        api.create(&pod).unwrap();
    }

    pub(crate) fn pod(&self, node: &str) -> String {
        format!("{}-{node}", self.name)
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
