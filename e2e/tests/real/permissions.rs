//! The permissions of the manifests in `deploy/` suffice, and the scheduler reports one that is missing.

use e2e::{Process, eventually};
use serde_json::{Value, json};

use crate::deployed::{
    self, NAMESPACE, account, ask, bind, container, flags, manifests, namespace, of_kind,
    primary_manifests,
};
use crate::shared_cluster::{SHORT, node, pod, text, with};

const POOR: &str = "poor";

#[test]
fn kubectl_accepts_the_manifests() {
    with(|cluster| {
        let kubectl = cluster.control_plane.kubectl().unwrap();
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");
        let mut arguments = vec!["apply", "--dry-run=server", "--validate=strict"];
        let files = [
            "namespace",
            "policies",
            "scheduler",
            "scheduler-primary",
            "controllers",
            "agent",
            "agent-node-taints",
            "gate",
            "gate-strict",
            "webhook",
            "webhook-evictions",
            "webhook-evictions-strict",
            "webhook-node-names",
            "webhook-node-names-strict",
        ];
        let files = files.map(|it| format!("{directory}/{it}.yaml"));
        for file in &files {
            arguments.extend(["-f", file]);
        }
        let applied = kubectl.run(&arguments, SHORT).unwrap();
        assert_eq!(
            (applied.code, &applied.stderr[..]),
            (Some(0), ""),
            "{applied:?}"
        );
        let deployment = "deployment.apps/tidepool-scheduler created (server dry run)";
        assert!(applied.stdout.contains(deployment), "{applied:?}");
    });
}

/// Else deleting one component would delete all.
#[test]
fn only_its_own_manifest_has_the_namespace() {
    let has_namespace = |objects: &[Value]| objects.iter().any(|it| it["kind"] == "Namespace");
    assert!(has_namespace(&namespace()));
    assert!(!has_namespace(&manifests()) && !has_namespace(&primary_manifests()));
}

/// What kubelet and Prometheus would see.
#[test]
fn probes_are_public_and_metrics_need_permission() {
    with(|cluster| {
        let objects = manifests();
        let mut flags = flags(&cluster.control_plane, &objects);
        // Another scheduler may have the port already.
        flags.retain(|flag| !flag.starts_with("--secure-port"));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let user = account(&cluster.control_plane, NAMESPACE, "tidepool-scheduler");
        let standby = cluster
            .control_plane
            .tidepool("standby", &user, &flags)
            .unwrap();
        let server = eventually("it serves", SHORT, || deployed::server(&standby));
        for probe in ["livenessProbe", "readinessProbe"] {
            let get = container(&objects)[probe]["httpGet"].take();
            assert_eq!(get["scheme"], "HTTPS", "{probe}");
            let path = text(&get["path"]);
            eventually(&format!("{path} is well"), SHORT, || {
                match ask(&server, &path, None) {
                    (200, _) => Ok(()),
                    answer => Err(format!("{answer:?}")),
                }
            });
        }
        let reader = |name: &str| {
            cluster.create(
                &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}),
            );
            account(&cluster.control_plane, "default", name).token
        };
        let (may, may_not, viewer) = (
            reader("metrics-may"),
            reader("metrics-may-not"),
            reader("viewer"),
        );
        cluster.create(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "metrics"}, "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]}));
        for (name, role, who) in [
            ("metrics", "metrics", "metrics-may"),
            ("viewer", "tidepool-scheduler-viewer", "viewer"),
        ] {
            let subject = json!({"name": who, "namespace": "default"});
            bind(&cluster.api, name, role, subject);
        }
        for (token, want) in [(None, 401), (Some("nonsense"), 401), (Some(&*may_not), 403)] {
            let (code, body) = ask(&server, "/metrics", token);
            assert_eq!(code, want, "{token:?}: {body}");
        }
        // The API server takes a moment to grant the permission.
        eventually("metrics may be seen", 2 * SHORT, || {
            match ask(&server, "/metrics", Some(&may)) {
                (200, text) if text.contains("scheduler_pending_pods") => Ok(()),
                answer => Err(format!("{answer:?}")),
            }
        });
        eventually("the viewer may view", 2 * SHORT, || {
            match ask(&server, "/configz", Some(&viewer)) {
                (200, _) => Ok(()),
                answer => Err(format!("{answer:?}")),
            }
        });
        // Every path needs a permission that users do not have by default.
        for (path, viewed) in [
            ("/metrics", 200),
            ("/configz", 200),
            ("/tidepool/v1/status", 200),
            // It may get the path, but not the pod.
            ("/tidepool/v1/pods/default/p/explain", 403),
            ("/debug/cache", 200),
            ("/debug/cache/n", 404),
            ("/debug/scores", 200),
            ("/debug/flags/s", 200),
            ("/nowhere", 403),
        ] {
            let (code, body) = ask(&server, path, None);
            assert_eq!(code, 401, "{path}: {body}");
            let (code, body) = ask(&server, path, Some(&may_not));
            assert_eq!(code, 403, "{path}: {body}");
            let (code, body) = ask(&server, path, Some(&viewer));
            assert_eq!(code, viewed, "{path}: {body}");
        }
        // The API server lets every user get this one.
        assert_eq!(ask(&server, "/apis/v1/status", Some(&may_not)).0, 404);
    });
}

/// Without any one rule of the manifests, the scheduler reports a missing permission.
#[test]
fn a_missing_permission_is_reported_and_used_once_granted() {
    with(|cluster| {
        cluster.create(&node("n", "a", json!({})));
        cluster
            .create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": POOR}}));
        let subject = json!({"name": "scheduler", "namespace": POOR});
        cluster.create(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": subject}));
        let user = account(&cluster.control_plane, POOR, "scheduler");
        let lease = format!("--leader-elect-resource-namespace={POOR}");
        let flags = ["--scheduler-name=poor", &lease];
        let poor = cluster.control_plane.tidepool(POOR, &user, &flags).unwrap();

        let objects = manifests();
        let all = of_kind(&objects, "ClusterRole");
        let is_reading = |rule: &&Value| rule["verbs"] == json!(["list", "watch"]);
        let reading: Vec<&Value> = all["rules"]
            .as_array()
            .unwrap()
            .iter()
            .filter(is_reading)
            .collect();
        let mut kinds = 0;
        for rule in &reading {
            for resource in rule["resources"].as_array().unwrap() {
                let group = &rule["apiGroups"][0];
                // To list it or to watch it, whichever was tried first.
                let read = format!("resource {resource} in API group {group} at the cluster scope");
                assert_eq!(denied(&poor, &read), 1, "it repeats itself");
                kinds += 1;
            }
        }
        assert!(kinds > 12, "only {kinds} kinds are listed");
        denied(
            &poor,
            r#"get resource "leases" in API group "coordination.k8s.io" in the namespace "poor""#,
        );

        // It may look now, and lead.
        cluster.create(
            &json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "looks"}, "rules": reading}),
        );
        bind(&cluster.api, "looks", "looks", subject.clone());
        let mut role = of_kind(&objects, "Role");
        role["metadata"]["namespace"] = json!(POOR);
        cluster.create(&role);
        let mut binding = of_kind(&objects, "RoleBinding");
        binding["metadata"]["namespace"] = json!(POOR);
        binding["subjects"][0]["namespace"] = json!(POOR);
        binding["subjects"][0]["name"] = json!("scheduler");
        cluster.create(&binding);
        cluster.create(&pod("p", json!({"schedulerName": POOR})));
        denied(
            &poor,
            r#"create resource "pods/binding" in API group "" in the namespace "default""#,
        );
        denied(
            &poor,
            r#"patch resource "pods/status" in API group "" in the namespace "default""#,
        );

        bind(
            &cluster.api,
            "works",
            &text(&all["metadata"]["name"]),
            subject,
        );
        assert_eq!(cluster.node_of("p"), "n");
    });
}

/// It reports this missing permission, this many times.
fn denied(process: &Process, what: &str) -> usize {
    eventually(&format!("it reports that it cannot {what}"), SHORT, || {
        let log = process.log();
        // Quotes are escaped in fields.
        let log = log.replace("\\\"", "\"");
        match log.lines().filter(|line| line.contains(what)).count() {
            0 => Err(process.last_words()),
            times => Ok(times),
        }
    })
}
