//! Q: the real kubectl against both servers.

use std::time::Duration;

use serde_json::{Value, json};

use super::{behaviour, discovery};
use crate::client::Request;
use crate::objects::{bound_pod, deployment, node, pod, widget};
use crate::session::{MERGE_PATCH, Session};
use crate::suite::Behaviour;

pub(super) const ALL: &[Behaviour] = &[
    behaviour("Q1", "kubectl: everyday commands", everyday_commands),
    behaviour(
        "Q2",
        "kubectl: commands that send protobuf",
        protobuf_commands,
    ),
];

const TIMEOUT: Duration = Duration::from_secs(30);

/// Runs kubectl in the behaviour's namespace and writes down what it printed. Words may have no-break spaces.
pub(super) fn kubectl(s: &mut Session, line: &str) {
    let words: Vec<String> = line
        .split(' ')
        .map(|word| word.replace('\u{a0}', " "))
        .collect();
    let arguments: Vec<&str> = words.iter().map(String::as_str).collect();
    run(s, line, &arguments);
}

fn run(s: &mut Session, line: &str, arguments: &[&str]) {
    let namespace = format!("--namespace={}", s.namespace());
    let mut all = vec![namespace.as_str()];
    all.extend(arguments);
    let run = s
        .kubectl()
        .run(&all, TIMEOUT)
        .expect("kubectl can be started");
    record(s, line, run);
}

fn start(s: &mut Session, line: &str) -> e2e::kubectl::Running {
    let namespace = format!("--namespace={}", s.namespace());
    let arguments: Vec<&str> = std::iter::once(&*namespace)
        .chain(line.split(' '))
        .collect();
    s.kubectl()
        .start(&arguments)
        .expect("kubectl can be started")
}

fn record(s: &mut Session, line: &str, run: e2e::kubectl::Run) {
    let server = s.server().kubeconfig.server.clone();
    let lines = |text: &str| -> Vec<String> {
        text.replace(&server, "https://server")
            .lines()
            .filter(|printed| {
                !(is_note(printed) || line.starts_with("diff") && is_made_up(printed))
            })
            .map(str::to_owned)
            .collect()
    };
    let stdout = serde_json::from_str(&run.stdout)
        .ok()
        .filter(Value::is_object);
    let stdout = stdout.unwrap_or_else(|| json!(lines(&run.stdout)));
    let answer = json!({"stdout": stdout, "stderr": lines(&run.stderr), "code": run.code});
    s.record(format!("kubectl {line}"), Value::Null, answer);
}

/// In a diff: the names of temporary files, and versions, which come without their quotes elsewhere.
fn is_made_up(line: &str) -> bool {
    let starts = ["diff ", "--- ", "+++ "];
    starts.iter().any(|start| line.starts_with(start))
        || line.trim_start().starts_with("resourceVersion:")
}

/// What kubectl logs for its makers, with time and process: now and then that a watch was short, whoever the server is.
fn is_note(line: &str) -> bool {
    let date = line.strip_prefix('I').and_then(|rest| rest.get(..4));
    date.is_some_and(|date| date.bytes().all(|byte| byte.is_ascii_digit()))
        // The one header that only the embedded cluster sends; C1 compares it.
        || line.contains("has no effect in this cluster")
}

pub(super) fn manifest(s: &mut Session, name: &str, objects: &[Value]) {
    let text: Vec<String> = objects.iter().map(Value::to_string).collect();
    let path = s.kubectl().directory().join(name);
    std::fs::write(path, text.join("\n---\n")).expect("kubectl's home can be written");
}

fn everyday_commands(s: &mut Session) {
    manifests(s);
    versions(s);
    for line in EVERYDAY {
        kubectl(s, line);
    }
    kubectl(s, "auth whoami");
    // Groups are for authorisation, which is left to real clusters.
    s.keep_lines_of_last(|line| !line.starts_with("UID") && !line.starts_with("Groups"));
    patches(s);
    watches(s);
    drain_and_delete(s);
}

fn manifests(s: &mut Session) {
    let mut changed = deployment("web");
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = json!("i:2");
    changed["metadata"]["labels"] = json!({"team": "blue"});
    manifest(s, "web.yaml", &[deployment("web")]);
    manifest(s, "web2.yaml", &[changed]);
    let mut labelled = pod("p");
    labelled["metadata"]["labels"] = json!({"app": "solo"});
    manifest(
        s,
        "more.yaml",
        &[
            labelled,
            widget("w"),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"k": "v"}}),
        ],
    );
    let listed = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "listed"}, "data": {"k": "v"}});
    manifest(
        s,
        "list.yaml",
        &[json!({"apiVersion": "v1", "kind": "List", "items": [listed]})],
    );
    let unknown =
        json!({"apiVersion": "nope.tidepool.io/v1", "kind": "Nothing", "metadata": {"name": "n"}});
    manifest(s, "unknown.yaml", &[unknown]);
    let mut invalid = pod("bad");
    invalid["spec"]["containres"] = json!([]);
    manifest(s, "bad.yaml", &[invalid]);
    manifest(s, "nodes.yaml", &[node("q1-a"), node("q1-b")]);
}

fn versions(s: &mut Session) {
    kubectl(s, "version -o json");
    s.keep_of_last(&[
        "/stdout/serverVersion/major",
        "/stdout/serverVersion/minor",
        "/code",
    ]);
    kubectl(s, "api-versions");
    s.keep_lines_of_last(is_compared);
    kubectl(s, "api-resources --no-headers -o wide");
    s.keep_lines_of_last(|line| line.split(' ').any(is_compared));
}

/// Whether a word is a version, such as `apps/v1`, whose kinds both servers have.
fn is_compared(word: &str) -> bool {
    match word.split_once('/') {
        Some((group, version)) => version.starts_with('v') && discovery::is_compared(group),
        None => word == "v1",
    }
}

const EVERYDAY: &[&str] = &[
    "apply -f web.yaml",
    "apply -f web.yaml",
    "apply -f web2.yaml",
    "apply -f more.yaml",
    "apply -f list.yaml",
    "apply -f list.yaml",
    "apply -f unknown.yaml",
    "apply -f bad.yaml",
    "apply -f missing.yaml",
    "apply --server-side -f more.yaml --field-manager=other",
    "apply --dry-run=server -f web.yaml",
    "create -f web.yaml",
    "create -f nodes.yaml",
    "get deployments",
    "get deploy web -o wide",
    "get pods",
    "get pods -o wide",
    "get pods -l app=solo -o name",
    "get pod p -o json",
    "get pods -o json",
    "get configmaps",
    "get cm settings -o jsonpath={.data.k}",
    "get widgets",
    "get widget w -o json",
    "get nodes q1-a q1-b",
    "get nodes -l none=none",
    "get all",
    "get pod nobody",
    "get nothings",
    "get ns q1",
    "get pods --sort-by=.metadata.name",
    "get pods --field-selector=status.phase=Pending",
    "get --raw /readyz",
    "get events",
    "describe deployment web",
    "describe pod p",
    "describe node q1-a",
    "describe configmap settings",
    "describe widget w",
    "describe pod nobody",
    "label pod p tier=back",
    "label pod p tier=front",
    "label pod p tier=front --overwrite",
    "label pod p tier-",
    "annotate pod p note=hello",
    "scale deployment web --replicas=5",
    "scale deployment web --replicas=1 --current-replicas=9",
    "get deployment web",
    "set image deployment/web c=i:3",
    "rollout restart deployment/nobody",
    "expose deployment web --port=80",
    "get svc web -o jsonpath={.spec.ports}",
    "wait pod/p --for=jsonpath={.status.phase}=Pending --timeout=5s",
    "wait pod/p --for=condition=Ready --timeout=1s",
    "wait pod/p --for=delete --timeout=1s",
    "cordon q1-a",
    "cordon q1-a",
    "get nodes q1-a",
    "uncordon q1-a",
    "taint nodes q1-a k=v:NoSchedule",
    "taint nodes q1-a k=v:NoSchedule",
    "taint nodes q1-a k-",
    "explain pods --api-version=nope/v1",
    "run solo --image=i:1",
    "get pod solo",
    "diff -f web2.yaml",
    "replace -f web.yaml",
];

fn patches(s: &mut Session) {
    for (kind, patch) in [
        (
            "strategic",
            r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i:7"}]}}}}"#,
        ),
        ("merge", r#"{"metadata":{"annotations":{"x":"y"}}}"#),
        (
            "json",
            r#"[{"op":"replace","path":"/spec/replicas","value":3}]"#,
        ),
        ("json", r#"[{"op":"remove","path":"/spec/nothing"}]"#),
        ("merge", r#"{"metadata":{"annotations":{"x":"y"}}}"#),
    ] {
        run(
            s,
            &format!("patch deployment web --type={kind} -p {patch}"),
            &[
                "patch",
                "deployment",
                "web",
                &format!("--type={kind}"),
                "-p",
                patch,
            ],
        );
    }
    kubectl(
        s,
        "get deployment web -o jsonpath={.spec.replicas}{.spec.template.spec.containers[*].image}{.metadata.annotations.x}",
    );
}

/// Commands that see what happens while they run.
fn watches(s: &mut Session) {
    let watching = start(s, "get configmaps -w --output-watch-events --no-headers");
    let one = start(s, "get configmap settings -w -o name");
    let waiting = start(
        s,
        "wait configmap/settings --for=jsonpath={.data.more}=x --timeout=20s",
    );
    // The watch starts at the version of the list that was printed.
    for command in [&watching, &one] {
        assert!(command.prints("settings", 1, TIMEOUT), "kubectl lists");
    }
    s.prepare(
        &Request::post(s.core("configmaps"))
            .json(&json!({"metadata": {"name": "late"}, "data": {"a": "1"}})),
    );
    s.prepare(
        &Request::new("PATCH", s.core("configmaps/settings"))
            .body(MERGE_PATCH, r#"{"data":{"more":"x"}}"#),
    );
    s.prepare(&Request::new("DELETE", s.core("configmaps/late")));
    // What is missing then is a difference.
    let _ = watching.prints("DELETED", 1, TIMEOUT) && one.prints("settings", 2, TIMEOUT);
    let seen = watching
        .wait(Duration::ZERO)
        .expect("kubectl can be stopped");
    record(s, "get configmaps -w", seen);
    let seen = one.wait(Duration::ZERO).expect("kubectl can be stopped");
    record(s, "get configmap settings -w", seen);
    let waited = waiting.wait(TIMEOUT).expect("kubectl ends");
    record(s, "wait configmap/settings", waited);
}

fn drain_and_delete(s: &mut Session) {
    for object in [bound_pod("victim"), pod("bystander")] {
        let mut object = object;
        if object["spec"]["nodeName"].is_string() {
            object["spec"]["nodeName"] = json!("q1-b");
            object["spec"]["terminationGracePeriodSeconds"] = json!(0);
        }
        s.prepare(&Request::post(s.core("pods")).json(&object));
    }
    for line in [
        "drain q1-b --timeout=5s",
        "drain q1-b --force --timeout=10s",
        "get nodes q1-b",
        "get pod victim",
        "delete pod bystander --wait=false",
        "delete pod p solo",
        "delete deployment web",
        "delete -f more.yaml --ignore-not-found",
        "delete -f list.yaml",
        "delete configmap nobody",
        "delete svc web",
        "delete node q1-a q1-b",
        "get deployments",
    ] {
        kubectl(s, line);
    }
}

fn protobuf_commands(s: &mut Session) {
    for line in [
        "create namespace q2-made",
        "create namespace q2-made",
        "get namespace q2-made",
        "create configmap cm --from-literal=a=1 --from-literal=b=two",
        "get configmap cm -o json",
        "create secret generic secret --from-literal=k=v",
        "get secret secret -o json",
        "create serviceaccount robot",
        "get serviceaccount robot -o json",
        "create deployment web --image=i:1 --replicas=3 --port=80",
        "get deployment web -o json",
        "create job once --image=i:1 -- run this",
        "get job once -o json",
        "create poddisruptionbudget pdb --selector=app=web --min-available=50%",
        "get pdb pdb -o json",
        "create priorityclass q2-class --value=10 --description=ten",
        "get priorityclass q2-class -o json",
        "create service clusterip svc --tcp=80:8080",
        "get service svc -o json",
        "create deployment Bad_Name --image=i:1",
        "create configmap cm --from-literal=a=1",
        "delete priorityclass q2-class",
        "delete namespace q2-made --wait=false",
    ] {
        kubectl(s, line);
    }
}
