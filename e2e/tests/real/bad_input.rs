//! Invalid objects and missing kinds: the scheduler reports them, and schedules everything else.

use api::wire::{core, envelope};
use e2e::{Api, ControlPlane, eventually};
use serde_json::{Value, json};

use crate::deployed;
use crate::shared_cluster::{
    LESSER, OURS, SHORT, SharedCluster, asks, condition, node, pod, pod_path, text, with,
};

const CUSTOM: &str =
    include_str!("../../../deploy/crds/node.katalyst.kubewharf.io_customnoderesources.yaml");

/// Go's protobuf lets text through that is none; the API server keeps it.
#[test]
fn an_invalid_pod_gets_an_event_and_the_others_are_scheduled() {
    with(|cluster| {
        cluster.create(&node("n", "a", json!({})));
        create_garbled(cluster, "bad");
        cluster.create(&pod("good", json!({})));
        assert_eq!(cluster.node_of("good"), "n");
        let words = "pod default/bad cannot be read: ";
        let found = eventually("the pod has an event", SHORT, || {
            let pod = cluster.pod("bad");
            let events = cluster.events(&text(&pod["metadata"]["uid"]));
            let condition = condition(&pod, "PodScheduled");
            let note = events.first().map(|event| text(&event["note"]));
            match note {
                Some(note) if text(&condition["message"]) == note => Ok((condition, events)),
                _ => Err(format!("{condition} {events:?}")),
            }
        });
        let (condition, events) = found;
        assert_eq!(condition["reason"], "SchedulerError");
        let message = text(&condition["message"]);
        assert!(
            message.starts_with(words) && message.contains("UTF-8"),
            "{message}"
        );
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(events[0]["reason"], "FailedScheduling");

        // Mended, it is a pod like any other.
        let fix = json!({"metadata": {"annotations": null}});
        cluster.api.patch(&pod_path("bad"), &fix).unwrap();
        assert_eq!(cluster.node_of("bad"), "n");
    });
}

/// A pod whose annotation is no text.
fn create_garbled(cluster: &SharedCluster, name: &str) {
    const TEXT: &str = "will be garbled";
    let object = json!({
        "metadata": {"name": name, "annotations": {"example.com/note": TEXT}},
        "spec": {"schedulerName": OURS, "containers": [{"name": "c", "image": "i"}]},
    });
    let object: core::Pod = serde_json::from_value(object).unwrap();
    let mut bytes = envelope::wrap("v1", "Pod", &object);
    let place = bytes
        .windows(TEXT.len())
        .position(|it| it == TEXT.as_bytes());
    let place = place.unwrap();
    bytes[place..place + TEXT.len()].fill(0xff);
    let path = "/api/v1/namespaces/default/pods";
    cluster.api.post_protobuf(path, bytes).unwrap();
}

/// The API server refuses unknown classes, so a class can only go away later.
#[test]
fn an_unknown_or_deleted_priority_class_affects_only_its_pods() {
    with(|cluster| {
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": "passing"}, "value": 500});
        let refused = cluster
            .api
            .create(&pod("p", json!({"priorityClassName": "passing"})));
        let refused = format!("{:#}", refused.unwrap_err());
        assert!(
            refused.contains("no PriorityClass with name passing was found"),
            "{refused}"
        );

        cluster.create(&class);
        let waits = pod(
            "p",
            json!({"priorityClassName": "passing", "containers": asks("cpu", "8")}),
        );
        // kube-apiserver's admission learns of the class by a watch of its own.
        eventually("the class is known", SHORT, || {
            let created = cluster.api.create(&waits);
            created.map_err(|error| format!("{error:#}"))
        });
        let path = "/apis/scheduling.k8s.io/v1/priorityclasses/passing";
        cluster.api.delete(path).unwrap();
        cluster.create(&node("n", "a", json!({})));
        assert_eq!(cluster.node_of("p"), "n");
        // What its class was worth is written on the pod: a lesser one does not push it out.
        let lesser = json!({"priorityClassName": LESSER, "containers": asks("cpu", "8")});
        cluster.create(&pod("lesser", lesser));
        eventually("the lesser one waits", SHORT, || {
            let condition = condition(&cluster.pod("lesser"), "PodScheduled");
            if condition["status"] == "False" {
                Ok(())
            } else {
                Err(condition.to_string())
            }
        });
        assert_eq!(cluster.node_of("p"), "n");
    });
}

/// As on a smaller or older cluster; then the cluster grows.
#[test]
fn missing_kinds_are_reported_once_and_watched_when_they_appear() {
    const MISSING: [&str; 3] = [
        "poddisruptionbudgets",
        "csistoragecapacities",
        "customnoderesources",
    ];
    let mut control_plane = deployed::start_with(
        &[],
        &["--runtime-config=policy/v1=false,storage.k8s.io/v1/csistoragecapacities=false"],
    );
    // This kind has only a version that we do not know.
    let mut definition: Value = serde_saphyr::from_str(CUSTOM).unwrap();
    let mut known = definition["spec"]["versions"][0].clone();
    definition["spec"]["versions"][0]["name"] = json!("v9");
    deployed::apply(&control_plane, vec![definition.clone()]);
    let ours = deployed::scheduler(&control_plane, "tidepool");
    let place = |control_plane: &ControlPlane, name: &str| {
        let api = Api::new(&control_plane.admin()).unwrap();
        api.create(&node(name, "a", json!({}))).unwrap();
        let spec = json!({"nodeSelector": {"kubernetes.io/hostname": name}});
        api.create(&pod(name, spec)).unwrap();
        eventually("the pod is bound", SHORT, || {
            let pod = api.get(&pod_path(name)).unwrap();
            if pod["spec"]["nodeName"] == name {
                Ok(())
            } else {
                Err(pod["status"].to_string())
            }
        });
    };
    let is_missing = |missing: bool| {
        for kind in MISSING {
            eventually(&format!("{kind}: missing is {missing}"), 2 * SHORT, || {
                let status = deployed::get(&ours, "/tidepool/v1/status")?;
                let watches = status["watches"].as_array().unwrap();
                let watch = watches.iter().find(|it| it["kind"] == kind).unwrap();
                if watch["missing"] == missing && watch["synced"] == true {
                    Ok(())
                } else {
                    Err(watch.to_string())
                }
            });
        }
    };
    place(&control_plane, "before");
    is_missing(true);
    let asked = |kind: &str| {
        let requests = deployed::requests(&control_plane);
        requests.iter().filter(|it| it.resource == kind).count()
    };
    let before = MISSING.map(asked);
    eventually("it has asked for each kind again", SHORT, || {
        let now = MISSING.map(asked);
        match now.iter().zip(before).all(|(now, before)| *now > before) {
            true => Ok(()),
            false => Err(format!("{now:?} requests, {before:?} before")),
        }
    });
    // A line about it is in the log before a pod that comes later is bound.
    place(&control_plane, "between");
    let log = ours.log();
    for kind in MISSING {
        let words = format!("{kind}: not served by the API server; watching begins once they are");
        assert_eq!(log.matches(&words).count(), 1, "{log}");
    }
    control_plane.restart_apiserver_with(&[]).unwrap();
    known["storage"] = json!(false);
    definition["spec"]["versions"]
        .as_array_mut()
        .unwrap()
        .push(known);
    deployed::apply(&control_plane, vec![definition]);
    is_missing(false);
    place(&control_plane, "after");
}
