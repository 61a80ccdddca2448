//! `tidepool status`, `explain` and `debug` from a laptop, of the scheduler that `deploy/` installs.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use e2e::{Api, ControlPlane, Kubelet, Process, User, eventually};
use serde_json::{Value, json};

use crate::deployed::{self, NAMESPACE};
use crate::shared::Shared;
use crate::shared_cluster::{SHORT, text};

const LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/tidepool-system/leases/tidepool-scheduler";
const POD: &str = "scheduler-0";
const CERTIFICATE: &str = "tidepool.io/server-certificate";
const SERVER: &str = "tidepool.io/server";

struct Output {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

static SHARED: Shared<Deployed> = Shared::by(2);

/// A scheduler with the flags and permissions of the manifests, in a pod of a node whose kubelet forwards ports.
struct Deployed {
    api: Api,
    kubelet: Kubelet,
    // Stopped in this order.
    scheduler: Process,
    control_plane: ControlPlane,
}

impl Deployed {
    fn start() -> Self {
        let viewer = User {
            name: "viewer".to_owned(),
            groups: vec![],
        };
        let control_plane = deployed::start_as(vec![viewer], &[], &[]);
        let api = Api::new(&control_plane.admin()).unwrap();
        let kubelet = Kubelet::start().unwrap();
        api.create(&kubelet.node("n")).unwrap();
        api.create(&json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": POD, "namespace": NAMESPACE},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}}))
            .unwrap();
        let rules = json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list"]}]);
        api.create(
            &json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "viewer"}, "rules": rules}),
        )
        .unwrap();
        api.create(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "viewer"}, "subjects": [{"kind": "User", "name": "viewer"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "viewer"}}))
            .unwrap();
        let objects = deployed::manifests();
        let mut flags = deployed::flags(&control_plane, &objects);
        // Another scheduler on this machine may have the port.
        flags.retain(|flag| !flag.starts_with("--secure-port"));
        let user = deployed::account(&control_plane, NAMESPACE, "tidepool-scheduler");
        let kubeconfig = control_plane.logs().join("scheduler.kubeconfig");
        std::fs::write(&kubeconfig, user.to_yaml()).unwrap();
        // As the downward API sets them.
        let variables = deployed::container(&objects)["env"].clone();
        let value = |variable: &Value| match text(&variable["valueFrom"]["fieldRef"]["fieldPath"])
            .as_str()
        {
            "metadata.namespace" => NAMESPACE,
            "metadata.name" => POD,
            other => panic!("unknown field {other}"),
        };
        let mut arguments: Vec<String> = variables
            .as_array()
            .unwrap()
            .iter()
            .map(|it| format!("{}={}", text(&it["name"]), value(it)))
            .collect();
        arguments.push(e2e::tidepool::binary().unwrap().display().to_string());
        arguments.push("scheduler".to_owned());
        arguments.push(format!("--kubeconfig={}", kubeconfig.display()));
        arguments.extend(flags);
        let env = PathBuf::from("/usr/bin/env");
        let scheduler = control_plane.run("scheduler", &env, &arguments).unwrap();
        let deployed = Self {
            api,
            kubelet,
            scheduler,
            control_plane,
        };
        eventually("it leads", SHORT, || {
            let log = deployed.scheduler.log();
            if log.contains("starting to schedule") {
                Ok(())
            } else {
                Err(log)
            }
        });
        eventually("the Lease names the pod", SHORT, || {
            let lease = deployed
                .api
                .get(LEASE)
                .map_err(|error| format!("{error:#}"))?;
            let annotations = &lease["metadata"]["annotations"];
            let pod = &annotations["tidepool.io/server-pod"];
            let names = &annotations["tidepool.io/scheduler-names"];
            let want = (&json!(format!("{NAMESPACE}/{POD}")), &json!("tidepool"));
            if (pod, names) == want {
                Ok(())
            } else {
                Err(lease.to_string())
            }
        });
        deployed
    }

    /// Creates a Lease like the scheduler's, with these annotations instead of its own; null removes one.
    fn copy_lease(&self, namespace: &str, name: &str, changes: Value) {
        let lease = self.api.get(LEASE).unwrap();
        let mut copy = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": namespace, "annotations": lease["metadata"]["annotations"]},
            "spec": {"holderIdentity": lease["spec"]["holderIdentity"]}});
        let annotations = copy["metadata"]["annotations"].as_object_mut().unwrap();
        for (key, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => annotations.remove(key),
                value => annotations.insert(key.clone(), value.clone()),
            };
        }
        self.api.create(&copy).unwrap();
    }

    fn annotation(&self, name: &str) -> String {
        text(&self.api.get(LEASE).unwrap()["metadata"]["annotations"][name])
    }

    /// Runs a command with a kubeconfig of this text.
    fn ask(&self, kubeconfig: &str, arguments: &[&str]) -> Output {
        let path = self.control_plane.logs().join("laptop.kubeconfig");
        std::fs::write(&path, kubeconfig).unwrap();
        let output = Command::new(e2e::tidepool::binary().unwrap())
            .args(arguments)
            .env_clear()
            .env("KUBECONFIG", path)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Output {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

#[test]
fn a_deployed_scheduler_answers_users_with_tokens_and_certificates() {
    SHARED.with(Deployed::start, |deployed| answers_users(deployed));
}

fn answers_users(deployed: &Deployed) {
    let plane = &deployed.control_plane;
    let token = plane.admin().to_yaml();
    let certificate = plane
        .certificate_kubeconfig("kubernetes-admin", "system:masters")
        .unwrap();
    let stranger = plane.certificate_kubeconfig("stranger", "viewers").unwrap();
    let place = format!("c, cluster c at {}", plane.url());
    let pod = format!("{NAMESPACE}/{POD}");
    for (user, kubeconfig) in [("token", &token), ("certificate", &certificate)] {
        for (command, words) in [
            (
                &["status"][..],
                "leader, holds tidepool-system/tidepool-scheduler",
            ),
            (&["explain", "pod", &pod], "bound to n"),
            (&["debug", "cache"], "NODE "),
            (&["debug", "cache", "n"], "RESOURCE"),
        ] {
            let output = deployed.ask(kubeconfig, command);
            assert_eq!(
                (output.code, &*output.stderr),
                (Some(0), ""),
                "{user}: {command:?}"
            );
            assert!(output.stdout.contains(words), "{user}: {}", output.stdout);
            assert!(output.stdout.contains(&place), "{user}: {}", output.stdout);
        }
    }
    let server = deployed.annotation(SERVER);
    for (case, kubeconfig, command, code, words) in [
        (
            "no permission to list Leases",
            &stranger,
            &["status"][..],
            5,
            "User \"stranger\" cannot list resource \"leases\"",
        ),
        (
            "no permission",
            &stranger,
            &[
                "debug",
                "cache",
                "--server",
                &server,
                "--insecure-skip-tls-verify",
            ],
            5,
            "user `stranger` has no permission to get /debug/cache",
        ),
        (
            "not verified",
            &certificate,
            &["status", "--server", &server, "--insecure-skip-tls-verify"],
            0,
            "leader, holds",
        ),
        (
            "unknown CA",
            &token,
            &["status", "--server", &server],
            4,
            "its certificate is signed by an unknown authority; pass its CA with --certificate-authority",
        ),
    ] {
        let output = deployed.ask(kubeconfig, command);
        let all = output.stdout + &output.stderr;
        assert_eq!(output.code, Some(code), "{case}: {all}");
        assert!(all.contains(words), "{case}: {all}");
        assert!(
            all.matches("unknown authority").count() <= 1,
            "{case}: {all}"
        );
    }
    deployed::check_permissions(plane);
}

#[test]
fn a_scheduler_that_cannot_be_reached_is_reached_by_port_forward() {
    SHARED.with(Deployed::start, |deployed| {
        is_reached_by_port_forward(deployed);
        for namespace in ["default", "kube-system"] {
            let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
            let copied = deployed.api.list(&leases).unwrap();
            for lease in copied
                .iter()
                .filter(|it| it["metadata"]["annotations"].is_object())
            {
                let name = text(&lease["metadata"]["name"]);
                deployed.api.delete(&format!("{leases}/{name}")).unwrap();
            }
        }
    });
}

fn is_reached_by_port_forward(deployed: &Deployed) {
    let forwarded = deployed.kubelet.forwarded();
    let plane = &deployed.control_plane;
    let admin = plane.admin().to_yaml();
    // The scheduler listens on IPv4 only.
    let far = deployed.annotation(SERVER).replace("127.0.0.1", "[::1]");
    deployed.copy_lease("default", "far", json!({SERVER: far}));
    let lease = ["--lease", "default/far"];
    let note = format!("tidepool: cannot reach the scheduler at {far} (");
    for (user, kubeconfig) in [
        ("token", admin.clone()),
        (
            "certificate",
            plane
                .certificate_kubeconfig("root", "system:masters")
                .unwrap(),
        ),
    ] {
        for command in [&["status"][..], &["debug", "cache"]] {
            let output = deployed.ask(&kubeconfig, &[command, &lease].concat());
            assert_eq!(output.code, Some(0), "{user}: {}", output.stderr);
            assert_eq!(
                output.stderr.lines().count(),
                1,
                "{user}: {}",
                output.stderr
            );
            let end = "; using port-forward to pod tidepool-system/scheduler-0\n";
            assert!(
                output.stderr.starts_with(&note),
                "{user}: {}",
                output.stderr
            );
            assert!(output.stderr.ends_with(end), "{user}: {}", output.stderr);
            assert!(!output.stdout.is_empty());
        }
    }
    assert_eq!(deployed.kubelet.forwarded() - forwarded, 4);

    let found = deployed.annotation(CERTIFICATE);
    let wanted = "ab".repeat(32);
    let no_port = far.rsplit_once(':').unwrap().0.to_owned() + ":1";
    for (name, changes) in [
        ("wrong", json!({CERTIFICATE: wanted})),
        ("wrong-far", json!({CERTIFICATE: wanted, SERVER: far})),
        ("older", json!({CERTIFICATE: null})),
        (
            "no-pod",
            json!({"tidepool.io/server-pod": null, SERVER: far}),
        ),
        (
            "gone",
            json!({"tidepool.io/server-pod": "default/gone", SERVER: far}),
        ),
        ("closed", json!({SERVER: no_port})),
    ] {
        deployed.copy_lease("default", name, changes);
    }
    let viewer = plane.kubeconfig("viewer").to_yaml();
    let both = format!("the SHA-256 of its certificate is {found}, that on the Lease is {wanted}");
    for (case, kubeconfig, flags, code, words) in [
        (
            "another certificate",
            &admin,
            &["default/wrong"][..],
            4,
            &*both,
        ),
        (
            "another certificate by port-forward",
            &admin,
            &["default/wrong-far"],
            4,
            &both,
        ),
        (
            "no fingerprint",
            &admin,
            &["default/older"],
            4,
            "signed by an unknown authority, and Lease default/older has no fingerprint of it, because the scheduler has an older version",
        ),
        (
            "no fingerprint, not verified",
            &admin,
            &["default/older", "--insecure-skip-tls-verify"],
            0,
            "leader, holds",
        ),
        (
            "another certificate, not verified",
            &admin,
            &["default/wrong", "--insecure-skip-tls-verify"],
            0,
            "leader, holds",
        ),
        (
            "forbidden",
            &viewer,
            &["default/far"],
            5,
            "refuses port-forward to pod tidepool-system/scheduler-0: pods \"scheduler-0\" is forbidden",
        ),
        (
            "no pod",
            &admin,
            &["default/no-pod"],
            4,
            "the scheduler of Lease default/no-pod does not answer at https://[::1]:",
        ),
        (
            "a missing pod",
            &admin,
            &["default/gone"],
            4,
            "port-forward to pod default/gone fails: pods \"gone\" not found",
        ),
        (
            "nothing listens",
            &admin,
            &["default/closed"],
            4,
            "fails: error forwarding port 1 to pod: Connection refused",
        ),
        (
            "no Lease",
            &admin,
            &["tidepool-system/nope"],
            4,
            "Lease tidepool-system/nope does not exist on https://127.0.0.1:",
        ),
    ] {
        let output = deployed.ask(kubeconfig, &[&["status", "--lease"], flags].concat());
        let all = output.stdout + &output.stderr;
        assert_eq!(output.code, Some(code), "{case}: {all}");
        assert!(all.contains(words), "{case}: {all}");
    }

    // Leases of other namespaces and of other components do not count, and of two that do neither is chosen.
    let component = json!({SERVER: far, "tidepool.io/scheduler-names": null});
    deployed.copy_lease("kube-system", "component", component);
    let output = deployed.ask(&admin, &["status"]);
    assert_eq!((output.code, &*output.stderr), (Some(0), ""));
    deployed.copy_lease("kube-system", "tidepool-scheduler", json!({SERVER: far}));
    let output = deployed.ask(&admin, &["status"]);
    let words = "tidepool: the cluster has several schedulers: pass --lease tidepool-system/tidepool-scheduler (https://127.0.0.1:";
    assert_eq!(output.code, Some(2), "{}", output.stderr);
    assert!(output.stderr.starts_with(words), "{}", output.stderr);
    assert!(!output.stderr.contains("no scheduler"), "{}", output.stderr);
}
