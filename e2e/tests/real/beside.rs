//! Two schedulers in one cluster: each schedules its own pods and sees those of the other.

use std::collections::BTreeMap;

use e2e::eventually;
use serde_json::{Value, json};

use crate::shared_cluster::{OURS, SHORT, THEIRS, asks, node, pod, text, with};

#[test]
fn kube_scheduler_and_tidepool_each_schedule_their_own_pods() {
    const PODS: usize = 60;
    with(|cluster| {
        for index in 0..8 {
            cluster.create(&node(&format!("n{index}"), "a", json!({})));
        }
        for index in 0..PODS {
            let scheduler = if index % 2 == 0 { OURS } else { THEIRS };
            let spec = json!({"schedulerName": scheduler, "containers": asks("cpu", "500m")});
            cluster.create(&pod(&format!("p{index}"), spec));
        }
        let list = "/api/v1/namespaces/default/pods";
        let pods = eventually("every pod is bound", SHORT, || {
            let pods = cluster.api.list(list).unwrap();
            let waiting = pods.iter().filter(|pod| pod["spec"]["nodeName"].is_null());
            match waiting.count() {
                0 => Ok(pods),
                waiting => Err(format!("{waiting} wait")),
            }
        });
        let speakers = eventually("every pod has an event", SHORT, || {
            let path = "/apis/events.k8s.io/v1/namespaces/default/events";
            let mut speakers: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for event in cluster.api.list(path).unwrap() {
                if event["reason"] == "Scheduled" {
                    let uid = text(&event["regarding"]["uid"]);
                    speakers
                        .entry(uid)
                        .or_default()
                        .push(text(&event["reportingController"]));
                }
            }
            let uid = |pod: &Value| text(&pod["metadata"]["uid"]);
            let count = pods
                .iter()
                .filter(|pod| speakers.contains_key(&uid(pod)))
                .count();
            if count == PODS {
                Ok(speakers)
            } else {
                Err(format!("{count} of {PODS}"))
            }
        });
        let mut load: BTreeMap<String, usize> = BTreeMap::new();
        for pod in &pods {
            let scheduler = text(&pod["spec"]["schedulerName"]);
            let uid = text(&pod["metadata"]["uid"]);
            assert_eq!(speakers[&uid], [scheduler], "{}", pod["metadata"]["name"]);
            *load.entry(text(&pod["spec"]["nodeName"])).or_default() += 1;
        }
        // A scheduler that does not see the other's pods overloads some nodes and leaves others empty.
        assert!(
            load.len() == 8 && load.values().all(|&pods| pods <= 16),
            "{load:?}"
        );
    });
}
