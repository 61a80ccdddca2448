//! The permissions of the manifests in `deploy/` suffice, and the scheduler reports one that is missing.

use e2e::{Process, eventually};
use serde_json::{Value, json};

use crate::deployed::{NAMESPACE, account, ask, bind, container, flags, manifests, of_kind};
use crate::shared_cluster::{SHORT, node, pod, text, with};

const POOR: &str = "poor";

#[test]
fn kubectl_accepts_the_manifests() {
    with(|cluster| {
        let kubectl = cluster.control_plane.kubectl().unwrap();
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");
        let mut arguments = vec!["apply", "--dry-run=server", "--validate=strict"];
        let files =
            ["scheduler.yaml", "scheduler-primary.yaml"].map(|it| format!("{directory}/{it}"));
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
        let port = eventually("it serves", SHORT, || {
            let log = standby.log();
            let line = log
                .split_once("serving on https://0.0.0.0:")
                .ok_or(log.clone())?;
            let port: String = line.1.chars().take_while(char::is_ascii_digit).collect();
            port.parse::<u16>().map_err(|error| error.to_string())
        });
        for probe in ["livenessProbe", "readinessProbe"] {
            let get = container(&objects)[probe]["httpGet"].take();
            assert_eq!(get["scheme"], "HTTPS", "{probe}");
            let path = text(&get["path"]);
            eventually(&format!("{path} is well"), SHORT, || {
                match at(port, &path, None) {
                    (200, _) => Ok(()),
                    answer => Err(format!("{answer:?}")),
                }
            });
        }
        let reader = |may: &str| {
            let name = format!("metrics-{may}");
            cluster.create(
                &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}),
            );
            account(&cluster.control_plane, "default", &name).token
        };
        let (may, may_not) = (reader("may"), reader("may-not"));
        cluster.create(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "metrics"}, "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]}));
        bind(
            &cluster.api,
            "metrics",
            "metrics",
            json!({"name": "metrics-may", "namespace": "default"}),
        );
        for (token, want) in [(None, 401), (Some("nonsense"), 401), (Some(&*may_not), 403)] {
            let (code, body) = at(port, "/metrics", token);
            assert_eq!(code, want, "{token:?}: {body}");
        }
        // The API server takes a moment to grant the permission.
        eventually("metrics may be seen", 2 * SHORT, || {
            match at(port, "/metrics", Some(&may)) {
                (200, text) if text.contains("scheduler_pending_pods") => Ok(()),
                answer => Err(format!("{answer:?}")),
            }
        });
    });
}

fn at(port: u16, path: &str, token: Option<&str>) -> (u16, String) {
    ask(&format!("https://127.0.0.1:{port}"), path, token)
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
