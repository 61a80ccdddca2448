//! The pods of a Job: their finalizer, which stays until they are counted, and their index.

use serde_json::{Value, json};

use crate::objects::Pod;

/// The finalizer of pods that have not been counted yet.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";

pub(super) fn is_tracked(pod: &Pod) -> bool {
    let mut finalizers = pod.metadata.finalizers.iter().flatten();
    finalizers.any(|finalizer| finalizer == TRACKING)
}

pub(super) fn index_of(pod: &Pod) -> Option<i32> {
    pod.annotation(INDEX).and_then(|text| text.parse().ok())
}

/// A pod from the Job's template as one of its members; those of an indexed Job have an index.
pub(super) fn member(mut pod: Value, index: Option<i32>) -> Value {
    let finalizers = &mut pod["metadata"]["finalizers"];
    match finalizers.as_array_mut() {
        Some(finalizers) => finalizers.push(TRACKING.into()),
        None => *finalizers = json!([TRACKING]),
    }
    let Some(index) = index else {
        return pod;
    };
    let prefix = pod["metadata"]["generateName"].as_str().unwrap_or_default();
    let hostname = format!("{prefix}{index}");
    pod["metadata"]["generateName"] = format!("{hostname}-").into();
    for map in ["annotations", "labels"] {
        pod["metadata"][map][INDEX] = index.to_string().into();
    }
    if pod["spec"]["hostname"].is_null() {
        pod["spec"]["hostname"] = hostname.into();
    }
    let variable = json!({
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"fieldPath": format!("metadata.labels['{INDEX}']")}},
    });
    for list in ["containers", "initContainers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            match container["env"].as_array_mut() {
                Some(env) => env.push(variable.clone()),
                None => container["env"] = json!([variable]),
            }
        }
    }
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_of_an_indexed_job_knows_its_index() {
        let template =
            json!({"metadata": {"generateName": "j-"}, "spec": {"containers": [{"name": "c"}]}});
        let made = member(template.clone(), Some(7));
        assert_eq!(made["metadata"]["generateName"], "j-7-");
        assert_eq!(made["metadata"]["annotations"][INDEX], "7");
        assert_eq!(made["metadata"]["finalizers"], json!([TRACKING]));
        assert_eq!(made["spec"]["hostname"], "j-7");
        assert_eq!(
            made["spec"]["containers"][0]["env"][0]["name"],
            "JOB_COMPLETION_INDEX"
        );
        let plain = member(template, None);
        assert_eq!(plain["metadata"]["generateName"], "j-");
        assert!(plain["spec"].get("hostname").is_none());
    }
}
