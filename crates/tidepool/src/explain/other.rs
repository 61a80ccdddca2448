//! Pods that the scheduler does not decide about: ended ones, and those that wait for another scheduler. Only the API
//! server knows them.

use anyhow::Result;
use api::contracts::{SCHEDULER_NAMES, SERVER};
use jiff::Timestamp;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::{Api, Client, Config, api::ListParams};
use serde::Serialize;

use super::missing;
use crate::{ask::LEASE_NAMESPACES, cluster::Place, foreign::one_line};

/// Clocks of two machines may differ by this much.
const CLOCK_SKEW_SECONDS: i64 = 60;

/// The answer about such a pod.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OtherPod {
    namespace: String,
    name: String,
    scheduler_name: String,
    state: OtherState,
    message: String,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum OtherState {
    Ended,
    Foreign,
}

impl OtherPod {
    /// `None` if the scheduler decides about the pod, or if the pod cannot be read. `served` are the names of the
    /// scheduler that is asked; empty if they are unknown.
    pub(super) async fn find(
        cluster: &Config,
        place: &Place,
        (namespace, name): (&str, &str),
        served: &[String],
    ) -> Result<Option<Self>> {
        let client = Client::try_from(cluster.clone())?;
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        // The scheduler may know more than this user may read.
        let Ok(found) = pods.get_opt(name).await else {
            return Ok(None);
        };
        let pod = found.ok_or_else(|| missing(namespace, name, &place.context))?;
        let spec = pod.spec.as_ref();
        let scheduler = spec.and_then(|spec| spec.scheduler_name.as_deref());
        let scheduler = scheduler.unwrap_or("default-scheduler");
        let answer = |state, message| Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            scheduler_name: scheduler.to_owned(),
            state,
            message,
        };
        if let Some(message) = end_of(&pod) {
            return Ok(Some(answer(OtherState::Ended, message)));
        }
        let waits = spec.is_some_and(|spec| spec.node_name.is_none());
        let is_foreign = !served.is_empty() && !served.iter().any(|name| name == scheduler);
        if !waits || !is_foreign {
            return Ok(None);
        }
        let leases = leases(&client).await;
        let message = waits_for(scheduler, leases.as_deref(), Timestamp::now(), served);
        Ok(Some(answer(OtherState::Foreign, message)))
    }

    pub(super) fn text(&self) -> String {
        let Self {
            namespace,
            name,
            scheduler_name,
            message,
            ..
        } = self;
        format!(
            "pod        {namespace}/{name} (scheduler {scheduler_name})\nstate      {}\n",
            one_line(message)
        )
    }
}

/// How the pod ended; `None` if it did not.
fn end_of(pod: &Pod) -> Option<String> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    if pod.metadata.deletion_timestamp.is_some() && node.is_none() {
        return Some("is being deleted; no scheduler decides about it".to_owned());
    }
    let status = pod.status.as_ref()?;
    let phase = status.phase.as_deref();
    let phase = phase.filter(|phase| matches!(*phase, "Succeeded" | "Failed"))?;
    let mut text = format!("ended: phase {phase}");
    if let Some(reason) = &status.reason {
        text += &format!(", reason {reason}");
    }
    if let Some(node) = node {
        text += &format!(", on {node}");
    }
    Some(text + "; no scheduler decides about it")
}

/// The Leases of schedulers; `None` if they cannot be listed.
async fn leases(client: &Client) -> Option<Vec<Lease>> {
    let mut all = Vec::new();
    // Those of agents are many, and none is a scheduler's.
    let options = ListParams::default().labels("!tidepool.io/agent");
    for namespace in LEASE_NAMESPACES {
        let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
        all.extend(leases.list(&options).await.ok()?.items);
    }
    Some(all)
}

/// Which scheduler a pod waits for, and whether one of that name runs.
fn waits_for(
    scheduler: &str,
    leases: Option<&[Lease]>,
    now: Timestamp,
    served: &[String],
) -> String {
    let Some(leases) = leases else {
        return format!(
            "waits for scheduler {scheduler}; the scheduler that answers places pods of {}",
            served.join(", ")
        );
    };
    let mut running = leases.iter().filter(|lease| is_held(lease, now));
    match running.find(|lease| serves(lease, scheduler)) {
        None => format!("waits for scheduler {scheduler}; none of that name runs"),
        Some(lease) => {
            let (meta, spec) = (&lease.metadata, lease.spec.as_ref());
            let text = |field: &Option<String>| field.clone().unwrap_or_default();
            let place = format!("{}/{}", text(&meta.namespace), text(&meta.name));
            let holder = spec.map_or_else(String::new, |spec| text(&spec.holder_identity));
            let ask = match annotation(lease, SERVER) {
                Some(_) => format!("; ask it with --lease {place}"),
                None => String::new(),
            };
            format!("waits for scheduler {scheduler}, which {holder} runs (Lease {place}){ask}")
        }
    }
}

fn annotation<'a>(lease: &'a Lease, key: &str) -> Option<&'a str> {
    Some(lease.metadata.annotations.as_ref()?.get(key)?)
}

fn is_held(lease: &Lease, now: Timestamp) -> bool {
    let Some(spec) = &lease.spec else {
        return false;
    };
    let held = spec.holder_identity.as_ref();
    let seconds = i64::from(spec.lease_duration_seconds.unwrap_or(0)) + CLOCK_SKEW_SECONDS;
    let renewed = spec.renew_time.as_ref().map(|time| time.0);
    let is_fresh = renewed.is_some_and(|renewed| now.as_second() - renewed.as_second() < seconds);
    held.is_some_and(|holder| !holder.is_empty()) && is_fresh
}

/// kube-scheduler does not write its names: it serves the default.
fn serves(lease: &Lease, scheduler: &str) -> bool {
    match annotation(lease, SCHEDULER_NAMES) {
        Some(names) => names.split(',').any(|name| name.trim() == scheduler),
        None => {
            scheduler == "default-scheduler"
                && lease.metadata.name.as_deref() == Some("kube-scheduler")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(name: &str, holder: &str, renewed: &str, names: &str) -> Lease {
        let mut lease = json!({
            "metadata": {"namespace": "kube-system", "name": name, "annotations": {}},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
        });
        if !names.is_empty() {
            lease["metadata"]["annotations"] =
                json!({SCHEDULER_NAMES: names, SERVER: "https://10.0.0.1:1"});
        }
        serde_json::from_value(lease).unwrap()
    }

    #[test]
    fn the_scheduler_that_a_pod_waits_for_is_named() {
        let now: Timestamp = "2026-01-31T10:00:00Z".parse().unwrap();
        let leases = [
            lease("kube-scheduler", "k_1", "2026-01-31T09:59:55.000000Z", ""),
            lease("ours", "t_1", "2026-01-31T10:00:05.000000Z", "a, b"),
            lease("old", "t_2", "2026-01-31T09:00:00.000000Z", "c"),
            lease("free", "", "2026-01-31T09:59:55.000000Z", "d"),
            lease("controllers", "m_1", "2026-01-31T09:59:55.000000Z", ""),
        ];
        let served = ["x".to_owned(), "y".to_owned()];
        for (scheduler, want) in [
            (
                "b",
                "waits for scheduler b, which t_1 runs (Lease kube-system/ours); ask it with --lease kube-system/ours",
            ),
            (
                "default-scheduler",
                "waits for scheduler default-scheduler, which k_1 runs (Lease kube-system/kube-scheduler)",
            ),
            ("c", "waits for scheduler c; none of that name runs"),
            ("d", "waits for scheduler d; none of that name runs"),
            ("e", "waits for scheduler e; none of that name runs"),
        ] {
            assert_eq!(waits_for(scheduler, Some(&leases), now, &served), want);
        }
        let want = "waits for scheduler b; the scheduler that answers places pods of x, y";
        assert_eq!(waits_for("b", None, now, &served), want);
    }

    #[test]
    fn an_ended_pod_has_a_phase() {
        for (status, want) in [
            (json!({"phase": "Running"}), None),
            (
                json!({"phase": "Succeeded"}),
                Some("ended: phase Succeeded, on n; no scheduler decides about it"),
            ),
            (
                json!({"phase": "Failed", "reason": "Evicted"}),
                Some("ended: phase Failed, reason Evicted, on n; no scheduler decides about it"),
            ),
        ] {
            let pod = json!({"metadata": {}, "spec": {"containers": [], "nodeName": "n"}, "status": status});
            let pod = serde_json::from_value(pod).unwrap();
            assert_eq!(end_of(&pod).as_deref(), want);
        }
    }
}
