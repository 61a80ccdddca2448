//! The modes of the scheduler: in place of kube-scheduler, and observing.

use std::time::{Duration, Instant};

use e2e::{Api, Binds, ControlPlane, Process, eventually};
use serde_json::{Value, json};

use crate::deployed::{self, account, check_permissions, primary_manifests};
use crate::faults::{check_placements, create_all};
use crate::shared_cluster::{SHORT, THEIRS, asks, node, pod, text, with};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler";
/// Requests under way get 5 s to end, and the Lease 2 s to be given back.
const LONGEST_STOP: Duration = Duration::from_secs(7);

/// Both want kube-scheduler's Lease, and change places by stopping.
#[test]
fn in_primary_mode_only_one_of_kube_scheduler_and_us_is_active() {
    let control_plane = deployed::start(&[]);
    deployed::apply(&control_plane, primary_manifests());
    let api = Api::new(&control_plane.admin()).unwrap();
    for index in 0..16 {
        let many = json!({"status": {"capacity": {"pods": "110"}}});
        api.create(&node(&format!("n{index}"), "a", many)).unwrap();
    }
    let config = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": true},
    });
    let leads = |who: &str, except: &str| {
        eventually(&format!("{who} leads"), SHORT, || {
            let lease = api.get(LEASE).map_err(|error| format!("{error:#}"))?;
            let holder = text(&lease["spec"]["holderIdentity"]);
            if holder.is_empty() || holder == except {
                Err(holder)
            } else {
                Ok(holder)
            }
        })
    };
    let batch = Batch {
        control_plane: &control_plane,
        binds: Binds::watch(&control_plane.admin()).unwrap(),
    };

    let mut theirs = control_plane.kube_scheduler(&config, &[]).unwrap();
    let first = leads("kube-scheduler", "");
    let mut ours = deployed::scheduler_of(&control_plane, "primary", &primary_manifests());
    batch.create("a", 40);
    batch.bound(40);
    assert_eq!(batch.bound_by_us(), 0, "we work beside a leader");
    // It releases the Lease, whatever its exit code.
    theirs.terminate().unwrap();

    let second = leads("tidepool", &first);
    batch.create("b", 40);
    batch.bound(80);
    assert_eq!(batch.bound_by_us(), 40);
    let _theirs = control_plane.kube_scheduler(&config, &[]).unwrap();
    // It is terminated while it binds.
    let took = std::thread::scope(|scope| {
        scope.spawn(|| batch.create("c", 300));
        batch.bound(130);
        let asked = Instant::now();
        assert_eq!(stop(&mut ours), Some(0), "{}", ours.last_words());
        asked.elapsed()
    });
    assert!(took < LONGEST_STOP, "it took {took:?} to stop");
    assert!(ours.log().contains("released the Lease"), "{}", ours.log());
    leads("kube-scheduler", &second);
    batch.bound(380);
    let by_us = batch.bound_by_us() - 40;
    assert!(
        (50..300).contains(&by_us),
        "{by_us} of 300 were bound before it stopped"
    );

    // Each was created and bound, by one of the two, and never touched again.
    let mut writes = control_plane.writes("/registry/pods/default/").unwrap();
    writes.retain(|_, &mut writes| writes != 2);
    assert!(
        writes.is_empty(),
        "these were not written twice: {writes:?}"
    );
    check_placements(&api, 380, 32);
    check_permissions(&control_plane);
}

fn stop(process: &mut Process) -> Option<i32> {
    process.terminate().unwrap().code()
}

struct Batch<'a> {
    control_plane: &'a ControlPlane,
    binds: Binds,
}

impl Batch<'_> {
    fn create(&self, name: &str, count: usize) {
        let spec = json!({"schedulerName": THEIRS, "containers": asks("cpu", "250m")});
        create_all(self.control_plane, count, |index| {
            pod(&format!("{name}{index}"), spec.clone())
        });
    }

    fn bound(&self, count: usize) {
        eventually(&format!("{count} pods are bound"), SHORT, || {
            match self.binds.count() {
                bound if bound >= count => Ok(()),
                bound => Err(bound.to_string()),
            }
        });
    }

    fn bound_by_us(&self) -> usize {
        let requests = self.control_plane.audit().unwrap();
        let bindings = requests.iter().filter(|it| it.resource == "pods/binding");
        bindings.filter(|binding| binding.code == 201).count()
    }
}

#[test]
fn observe_mode_logs_decisions_and_writes_nothing() {
    with(|cluster| {
        cluster.create(&node("n", "a", json!({})));
        let subject = json!({"name": "observer", "namespace": "default"});
        cluster.create(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": subject}));
        deployed::bind(&cluster.api, "observer", "tidepool-scheduler", subject);
        let user = account(&cluster.control_plane, "default", "observer");
        let flags = ["--mode=observe", "--scheduler-name=nobody"];
        let mut observer = cluster
            .control_plane
            .tidepool("observer", &user, &flags)
            .unwrap();
        let (fits, giant) = (asks("cpu", "1"), asks("cpu", "9"));
        for (name, containers) in [("fits", fits), ("giant", giant)] {
            cluster.create(&pod(
                name,
                json!({"schedulerName": "nobody", "containers": containers}),
            ));
        }
        for words in [
            "would bind pod pod=default/fits node=n",
            r#"unschedulable pod pod=default/giant reason=Unschedulable why="0/1 nodes are available: 1 Insufficient cpu. "#,
        ] {
            eventually(&format!("its log has `{words}`"), SHORT, || {
                let log = observer.log();
                if log.contains(words) {
                    Ok(())
                } else {
                    Err(log)
                }
            });
        }
        assert_eq!(stop(&mut observer), Some(0), "{}", observer.last_words());
        for name in ["fits", "giant"] {
            let pod = cluster.pod(name);
            assert_eq!(pod["spec"]["nodeName"], Value::Null);
            assert_eq!(pod["status"]["conditions"], Value::Null, "{pod}");
        }
        let mut requests = cluster.control_plane.audit().unwrap();
        requests.retain(|it| it.user == "system:serviceaccount:default:observer");
        assert!(
            requests.iter().any(|it| it.resource == "pods"),
            "{requests:?}"
        );
        requests.retain(|it| it.is_write() || it.resource == "leases");
        assert_eq!(requests, [], "it only looks");
    });
}

/// A user with permission for Leases in every namespace; otherwise the API server does not report which is missing.
#[test]
fn the_error_for_a_missing_lease_namespace_names_the_command_to_create_it() {
    with(|cluster| {
        let subject = json!({"name": "leases", "namespace": "default"});
        cluster.create(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": subject}));
        cluster.create(
            &json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "leases"}, "rules": [{"apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"], "verbs": ["get", "create", "update"]}]}),
        );
        deployed::bind(&cluster.api, "leases", "leases", subject);
        let user = account(&cluster.control_plane, "default", "leases");
        let start = || {
            let flags = ["--leader-elect-resource-namespace=nowhere"];
            cluster
                .control_plane
                .tidepool("nowhere", &user, &flags)
                .unwrap()
        };
        let mut lost = start();
        let status = eventually("it gives up", SHORT, || {
            lost.ended().unwrap().ok_or(lost.last_words())
        });
        assert_eq!(status.code(), Some(1));
        let command = "kubectl create namespace nowhere";
        let words = format!(
            "cannot create Lease nowhere/tidepool-scheduler: namespace `nowhere` does not exist; create it with `{command}`"
        );
        let said = lost.last_words();
        assert!(
            said.lines().last().unwrap_or_default().contains(&words),
            "{said}"
        );
        let kubectl = cluster.control_plane.kubectl().unwrap();
        let arguments: Vec<&str> = command.split(' ').skip(1).collect();
        let made = kubectl.run(&arguments, SHORT).unwrap();
        assert_eq!(made.code, Some(0), "{made:?}");
        let _found = start();
        eventually("it leads", SHORT, || {
            let lease = cluster.api.get(&LEASE.replace(
                "kube-system/leases/kube-scheduler",
                "nowhere/leases/tidepool-scheduler",
            ));
            lease.map(drop).map_err(|error| format!("{error:#}"))
        });
    });
}
