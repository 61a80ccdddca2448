//! `explain pod`: the forms of names, and pods that the scheduler does not decide about.

use std::path::Path;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use crate::{Output, PATIENCE, Up, run, tidepool};

fn explain(kubeconfig: &Path, arguments: &[&str]) -> Output {
    let path = kubeconfig.to_str().unwrap();
    let arguments = [&["explain"], arguments, &["--kubeconfig", path]].concat();
    run(&mut tidepool(&arguments))
}

fn pod(name: &str, changes: Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]},
    });
    if let Some(scheduler) = changes.get("scheduler") {
        pod["spec"]["schedulerName"] = scheduler.clone();
    }
    if let Some(cpu) = changes.get("cpu") {
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu.clone();
    }
    if let Some(run_for) = changes.get("runFor") {
        pod["metadata"]["annotations"] = json!({"tidepool.io/run-for": run_for});
    }
    serde_json::from_value(pod).unwrap()
}

#[tokio::test]
async fn every_pod_has_an_explanation() {
    let home = tempfile::tempdir().unwrap();
    let (written, kubeconfig) = (home.path().join("up"), home.path().join("kubeconfig"));
    let _up = Up::start(&["--kubeconfig-out", written.to_str().unwrap(), "--no-demo"]);
    let mut file = Kubeconfig::read_from(&written).unwrap();
    let context = file.contexts[0].context.as_mut().unwrap();
    context.namespace = Some("mine".to_owned());
    std::fs::write(&kubeconfig, serde_json::to_string(&file).unwrap()).unwrap();
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let client = Client::try_from(config.unwrap()).unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = json!({"metadata": {"name": "mine"}});
    let namespace = serde_json::from_value(namespace).unwrap();
    let new = PostParams::default();
    namespaces.create(&new, &namespace).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client, "mine");
    for pod in [
        pod("big", json!({"cpu": "1000"})),
        pod("other", json!({"scheduler": "packing"})),
        pod("short", json!({"runFor": "100ms"})),
    ] {
        pods.create(&new, &pod).await.unwrap();
    }
    let ended = async {
        loop {
            let pod = pods.get("short").await.unwrap();
            let phase = pod.status.and_then(|status| status.phase);
            if phase.as_deref() == Some("Succeeded") {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.unwrap();

    let figures = [
        "pod        mine/big",
        "0/6 nodes fit",
        "RESOURCE  REQUESTED  TOO LITTLE ON  MOST FREE THERE",
        "cpu       1k         6 nodes",
        ": can never fit",
    ];
    let foreign = "state      waits for scheduler packing; none of that name runs\n";
    let ended = "state      ended: phase Succeeded, on node-";
    for (arguments, code, parts) in [
        (&["pod", "big"][..], 0, &figures[..]),
        (&["pod/big"], 0, &figures),
        (&["po", "big"], 0, &figures),
        (&["pods", "mine/big"], 0, &figures),
        (&["pod", "big", "-n", "mine"], 0, &figures),
        (&["pod", "other"], 0, &[foreign]),
        (&["pod", "short"], 0, &[ended]),
        (&["pod/big", "pod/other"], 0, &["mine/big", foreign]),
        (
            &["pod", "other", "-o", "json"],
            0,
            &["\"state\": \"foreign\"", "\"schedulerName\": \"packing\""],
        ),
        (
            &["pod", "big", "short", "-o", "json"],
            0,
            &[
                "\"items\": [",
                "\"canNeverFit\": true",
                "\"state\": \"ended\"",
                "\"context\": {",
            ],
        ),
        (
            &["pod", "none"],
            1,
            &["tidepool: pod mine/none does not exist in context "],
        ),
        (
            &["pod", "none", "other", "default/none"],
            1,
            &[
                foreign,
                "pod mine/none does not",
                "pod default/none does not",
            ],
        ),
        (&["big"], 2, &["`big` is not a kind"]),
    ] {
        let output = explain(&kubeconfig, arguments);
        let told = output.stdout + &output.stderr;
        assert_eq!(output.code, Some(code), "{arguments:?}: {told}");
        for part in parts {
            assert!(
                told.contains(part),
                "{arguments:?}: {part} is not in {told}"
            );
        }
    }
}
