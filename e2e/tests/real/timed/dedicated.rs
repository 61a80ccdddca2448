//! Dedicated pods on NUMA zones of their own, on the real API server with simulated nodes: more pods than zones, and a scheduler
//! that is killed while it binds them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use e2e::{Api, ControlPlane, Process, eventually};
use serde_json::{Value, json};

use crate::deployed;
use crate::shared_cluster::{asks, condition, merge, pod, pod_path, text};

const LONG: Duration = Duration::from_secs(120);
const NODES: usize = 4;
/// Two sockets with two zones each.
const ZONES: usize = 4 * NODES;
const COUNT: usize = 20;
const PODS: &str = "/api/v1/namespaces/default/pods";
const REPORTS: &str = "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources";
const DEFINITION: &str = "deploy/crds/node.katalyst.kubewharf.io_customnoderesources.yaml";
const REASON: &str =
    "0/4 nodes are available: 4 cannot align container: it needs 1 idle NUMA zone.";
const CONFIGURATION: &str = "\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: { leaderElect: false }
profiles:
- schedulerName: tidepool
  plugins:
    multiPoint: { enabled: [{ name: QoSAwareNodeResourcesFit, weight: 4 }] }
    score: { disabled: [{ name: NodeResourcesFit }] }
";

struct ZonedCluster {
    api: Api,
    // Stopped in this order.
    nodes: Process,
    control_plane: ControlPlane,
}

impl ZonedCluster {
    /// Four simulated nodes with their zones in the CustomNodeResources.
    fn start() -> Self {
        let control_plane = deployed::start(&[]);
        let kubeconfig = control_plane.kubeconfig_file("admin").unwrap();
        let arguments = [
            "nodes".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--nodes={NODES}"),
            "--numa=2x2".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        let run = |name: &str| {
            let binary = e2e::tidepool::binary().unwrap();
            control_plane.run(name, &binary, &arguments).unwrap()
        };
        // Without the kind it ends, with one sentence, and leaves no node behind.
        let mut refused = run("refused");
        let status = eventually("it ends", LONG, || {
            let ended = refused.ended().unwrap();
            ended.ok_or_else(|| refused.last_words())
        });
        assert_eq!(status.code(), Some(1));
        let words = "cannot report NUMA zones: the cluster has no kind CustomNodeResource";
        assert!(refused.log().contains(words), "{}", refused.log());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let api = deployed::serve_definition(&control_plane, &root.join(DEFINITION), REPORTS);
        assert!(api.list("/api/v1/nodes").unwrap().is_empty());
        let cluster = Self {
            nodes: run("nodes"),
            api,
            control_plane,
        };
        eventually("every node reports its zones", LONG, || {
            let reported = cluster.allocations().len();
            match reported == ZONES {
                true => Ok(()),
                false => Err(format!("{reported}: {}", cluster.nodes.last_words())),
            }
        });
        cluster
    }

    fn schedule(&self, name: &str) -> Process {
        let file = self.control_plane.logs().join("scheduler.yaml");
        std::fs::write(&file, CONFIGURATION).unwrap();
        let flag = format!("--config={}", file.display());
        deployed::with_flags(&self.control_plane, name, &[&flag])
    }

    /// The uids in each zone, as reported.
    fn allocations(&self) -> BTreeMap<(String, String), Vec<String>> {
        let mut found = BTreeMap::new();
        for report in self.api.list(REPORTS).unwrap() {
            let sockets = report["status"]["topologyZone"].as_array();
            for socket in sockets.into_iter().flatten() {
                for zone in socket["children"].as_array().unwrap() {
                    let key = (text(&report["metadata"]["name"]), text(&zone["name"]));
                    let pods = zone["allocations"].as_array().into_iter().flatten();
                    let uid = |it: &Value| {
                        let consumer = text(&it["consumer"]);
                        consumer.rsplit('/').next().unwrap_or_default().to_owned()
                    };
                    found.insert(key, pods.map(uid).collect());
                }
            }
        }
        found
    }

    /// The uid of the pod that has each zone, by the annotations of the pods. No zone has two.
    fn owners(&self) -> BTreeMap<(String, String), String> {
        let mut owners = BTreeMap::new();
        for pod in self.api.list(PODS).unwrap() {
            let node = text(&pod["spec"]["nodeName"]);
            let zones = text(&pod["metadata"]["annotations"]["tidepool.io/numa-zones"]);
            assert_eq!(node.is_empty(), zones.is_empty(), "{pod}");
            for zone in zones.split(',').filter(|zone| !zone.is_empty()) {
                let uid = text(&pod["metadata"]["uid"]);
                let other = owners.insert((node.clone(), zone.to_owned()), uid);
                assert_eq!(other, None, "zone {zone} of {node} has two owners");
            }
        }
        owners
    }

    fn waiting(&self) -> Vec<Value> {
        let mut pods = self.api.list(PODS).unwrap();
        pods.retain(|pod| pod["spec"]["nodeName"].is_null());
        pods
    }

    /// Every zone has one owner that runs, the simulated agents report it, and the other pods wait with a reason that counts zones.
    fn check_full(&self, scheduler: &Process) {
        eventually("each zone has its pod", LONG, || {
            let owners = self.owners();
            let reported = self.allocations();
            let agree = reported
                .iter()
                .all(|(zone, uids)| owners.get(zone).into_iter().eq(uids));
            match (owners.len(), agree) {
                (ZONES, true) => Ok(()),
                _ => Err(format!(
                    "{owners:?} {reported:?} {}",
                    scheduler.last_words()
                )),
            }
        });
        eventually("the others wait", LONG, || {
            let reasons = self.waiting();
            let reasons = reasons.iter().map(|pod| condition(pod, "PodScheduled"));
            let reasons: Vec<String> = reasons.map(|it| text(&it["message"])).collect();
            let all = reasons.iter().all(|reason| reason.starts_with(REASON));
            match reasons.len() == COUNT - ZONES && all {
                true => Ok(()),
                false => Err(format!("{reasons:?}")),
            }
        });
    }

    fn explain(&self, scheduler: &Process, arguments: &[&str]) -> String {
        let server = deployed::server(scheduler).unwrap();
        let output = Command::new(e2e::tidepool::binary().unwrap())
            .arg("explain")
            .args(arguments)
            .args(["--server", &server])
            .env_clear()
            .env(
                "KUBECONFIG",
                self.control_plane.kubeconfig_file("admin").unwrap(),
            )
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns once no pod that waits is in backoff.
    fn await_backoff(&self, scheduler: &Process) {
        for waiting in self.waiting() {
            let name = format!("default/{}", text(&waiting["metadata"]["name"]));
            eventually(&format!("{name} is not in backoff"), LONG, || {
                let report = self.explain(scheduler, &["pod", &name, "-o", "json"]);
                let report: Value = serde_json::from_str(&report).unwrap();
                let attempts = report["attempts"].as_u64().unwrap_or(1);
                let backoff = Duration::from_secs(1 << (attempts.clamp(1, 5) - 1));
                let at = text(&report["lastAttempt"]["at"]);
                let at: jiff::Timestamp = at.parse().map_err(|_| at.clone())?;
                let over = Duration::try_from(jiff::Timestamp::now().duration_since(at));
                match report["state"] == "unschedulable" && over.unwrap_or_default() > backoff {
                    true => Ok(()),
                    false => Err(report["state"].to_string()),
                }
            });
        }
    }
}

/// A pod that wants one zone for itself.
fn dedicated(name: &str) -> Value {
    let mut wanted = pod(
        name,
        json!({"containers": asks("cpu", "3"), "terminationGracePeriodSeconds": 0}),
    );
    let annotations = json!({
        "katalyst.kubewharf.io/qos_level": "dedicated_cores",
        "katalyst.kubewharf.io/memory_enhancement": r#"{"numa_binding": "true"}"#,
    });
    merge(
        &mut wanted,
        json!({"metadata": {"annotations": annotations}}),
    );
    wanted
}

#[test]
fn twenty_dedicated_pods_share_sixteen_numa_zones() {
    let cluster = ZonedCluster::start();
    let api = &cluster.api;
    let mut first = cluster.schedule("first");
    // The first scheduler is killed after some of the zones are given, the second one after more of them.
    let create = |range: std::ops::Range<usize>| {
        for index in range {
            api.create(&dedicated(&format!("search-{index:02}")))
                .unwrap();
        }
    };
    create(0..6);
    eventually("some zones are given", LONG, || {
        match cluster.owners().len() {
            0..3 => Err(first.last_words()),
            _ => Ok(()),
        }
    });
    create(6..12);
    first.stop();
    assert!(cluster.owners().len() < ZONES);
    let mut second = cluster.schedule("second");
    create(12..COUNT);
    eventually("more zones are given", LONG, || {
        match cluster.owners().len() {
            0..13 => Err(second.last_words()),
            _ => Ok(()),
        }
    });
    second.stop();
    let third = cluster.schedule("third");
    cluster.check_full(&third);

    let node = cluster.explain(&third, &["node", "simulated-001"]);
    let head = "zones      4 NUMA zones in 2 sockets; 0 idle\n";
    assert!(node.contains(head), "{node}");
    assert_eq!(
        node.matches("  exclusive  default/search-").count(),
        4,
        "{node}"
    );
    let waiting = text(&cluster.waiting()[0]["metadata"]["name"]);
    let explained = cluster.explain(&third, &["pod", &format!("default/{waiting}")]);
    let words = "cannot align container: it needs 1 idle NUMA zone; 0 of 4 are idle";
    assert!(explained.contains(words), "{explained}");

    // One is deleted: one of those that wait has its zone within a second.
    cluster.await_backoff(&third);
    let before = cluster.owners();
    let (zone, uid) = before.iter().next().unwrap();
    let pods = api.list(PODS).unwrap();
    let owner = pods.iter().find(|pod| pod["metadata"]["uid"] == **uid);
    let owner = text(&owner.unwrap()["metadata"]["name"]);
    let begun = Instant::now();
    api.delete_now(&pod_path(&owner)).unwrap();
    let next = loop {
        let found = cluster.owners().remove(zone);
        if let Some(next) = found.filter(|next| next != uid) {
            break next;
        }
        let waited = begun.elapsed();
        assert!(waited < LONG, "{}", third.last_words());
        std::thread::sleep(Duration::from_millis(5));
    };
    let took = begun.elapsed();
    println!("a zone that was freed had its next owner after {took:?}");
    assert!(
        took < Duration::from_secs(1),
        "the next pod waited {took:?}"
    );
    assert!(!before.values().any(|uid| *uid == next));
    let pods = api.list(PODS).unwrap();
    let next = pods.iter().find(|pod| pod["metadata"]["uid"] == *next);
    let next = text(&next.unwrap()["metadata"]["name"]);
    let explained = cluster.explain(&third, &["pod", &format!("default/{next}")]);
    let words = format!("zones      NUMA zone {} of {}, exclusive\n", zone.1, zone.0);
    assert!(explained.contains(&words), "{explained}");
    deployed::check_permissions(&cluster.control_plane);
}
