//! G: kinds that the embedded cluster only stores, and requests about containers that do not run.

use serde_json::{Value, json};

use super::behaviour;
use super::kubectl::{kubectl, manifest};
use crate::client::Request;
use crate::objects::{every_other_kind, pod, template};
use crate::session::{MERGE_PATCH, Session};
use crate::suite::Behaviour;

pub(super) const ALL: &[Behaviour] = &[
    behaviour("G1", "plain kinds: unknown fields", unknown_fields),
    behaviour("G2", "plain kinds: invalid objects", invalid_objects),
    behaviour("G3", "plain kinds: updates, status and deletion", lives),
    behaviour(
        "G4",
        "plain kinds: autoscalers in two versions",
        autoscalers,
    ),
    behaviour("G5", "plain kinds: kubectl", with_kubectl),
    behaviour("G6", "plain kinds: deprecated ones", deprecated),
    behaviour("G7", "plain kinds: reviews", reviews),
    behaviour("G8", "pods: logs, exec, attach, port-forward", containers),
    behaviour("G9", "pods: the token of the service account", tokens),
];

const NETWORKING: &str = "networking.k8s.io/v1";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

fn unknown_fields(s: &mut Session) {
    for (path, object) in every_other_kind("g1") {
        let Some((group, resource)) = path.rsplit_once('/').filter(|_| !path.starts_with('/'))
        else {
            continue;
        };
        let path = s.group(group, resource);
        let mut object = object;
        object["nope"] = json!(1);
        object["metadata"]["nope"] = json!({"a": "b"});
        for validation in ["Strict", "Warn", "Ignore"] {
            let query = format!("{path}?dryRun=All&fieldValidation={validation}");
            let answer = s.quietly(&Request::post(query).json(&object));
            s.fact(
                &format!("{resource}, {validation}"),
                json!([answer.status, answer.at("/message"), answer.at("/nope")]),
            );
        }
    }
    let path = s.group(NETWORKING, "ingresses");
    let nested = json!({"metadata": {"name": "i"}, "spec": {"defaultBackend": {"service": {"name": "a", "prot": {"number": 1}}}}});
    s.post(format!("{path}?fieldValidation=Strict"), &nested);
    let wrong = json!({"metadata": {"name": "i"}, "spec": {"rules": "all"}});
    s.post(path, &wrong);
}

fn invalid_objects(s: &mut Session) {
    let name = json!({"name": "x"});
    let role = |kind: &str, name: &str| json!({"kind": kind, "name": name});
    let path = |kind: Option<&str>| json!({"path": "/", "pathType": kind, "backend": {"service": {"name": "a", "port": {"number": 1}}}});
    let ingress =
        |path: Value| json!({"metadata": name, "spec": {"rules": [{"http": {"paths": [path]}}]}});
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let mounting = |volume: &str| {
        let mut template = template("x");
        template["spec"]["containers"][0]["volumeMounts"] =
            json!([{"name": volume, "mountPath": "/x"}]);
        template
    };
    for (group, resource, object) in [
        (
            RBAC,
            "roles",
            json!({"metadata": {"name": "a:b"}, "rules": [{"apiGroups": [""], "resources": ["pods"]}]}),
        ),
        (
            RBAC,
            "roles",
            json!({"metadata": name, "rules": [{"verbs": ["get"]}, {"verbs": ["get"], "nonResourceURLs": ["/x"]}]}),
        ),
        (
            RBAC,
            "rolebindings",
            json!({"metadata": name, "roleRef": role("Thing", ""), "subjects": [{"kind": "Foo", "name": ""}]}),
        ),
        (
            NETWORKING,
            "ingresses",
            json!({"metadata": name, "spec": {}}),
        ),
        (NETWORKING, "ingresses", ingress(path(None))),
        (NETWORKING, "ingresses", ingress(path(Some("Regex")))),
        (
            "apps/v1",
            "daemonsets",
            json!({"metadata": name, "spec": {"updateStrategy": {"type": "X"}, "template": template("x")}}),
        ),
        (
            "apps/v1",
            "daemonsets",
            json!({"metadata": name, "spec": {"selector": {"matchLabels": {"app": "y"}}, "template": template("x")}}),
        ),
        (
            "apps/v1",
            "controllerrevisions",
            json!({"metadata": name, "revision": 1}),
        ),
        (
            "batch/v1",
            "cronjobs",
            json!({"metadata": name, "spec": {"schedule": "", "concurrencyPolicy": "Foo",
            "startingDeadlineSeconds": -1, "jobTemplate": {"spec": {"template": template("x")}}}}),
        ),
        (
            "apps/v1",
            "statefulsets",
            json!({"metadata": name, "spec": {"selector": {"matchLabels": {"app": "x"}}, "serviceName": "s",
            "volumeClaimTemplates": [claim], "template": mounting("other")}}),
        ),
        (
            "apps/v1",
            "statefulsets",
            json!({"metadata": name, "spec": {"selector": {"matchLabels": {"app": "x"}}, "serviceName": "s",
            "volumeClaimTemplates": [claim], "template": mounting("data")}}),
        ),
        (
            "batch/v1",
            "cronjobs",
            json!({"metadata": {"name": "a".repeat(60)}, "spec": {"schedule": "60 25 * * *", "timeZone": "Nowhere/X",
            "jobTemplate": {"spec": {"template": template("x")}}}}),
        ),
        (
            "batch/v1",
            "cronjobs",
            json!({"metadata": name, "spec": {"schedule": "every day", "jobTemplate": {"spec": {"template": template("x")}}}}),
        ),
        (
            NETWORKING,
            "networkpolicies",
            json!({"metadata": {"name": "Not_A_Name"}, "spec": {}}),
        ),
    ] {
        s.post(s.group(group, resource), &object);
    }
}

fn lives(s: &mut Session) {
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}});
    let backend = |name: &str| json!({"spec": {"defaultBackend": {"service": {"name": name, "port": {"number": 1}}}}});
    let mut ingress = backend("a");
    ingress["metadata"] = json!({"name": "i"});
    ingress["status"] = status["status"].clone();
    let path = s.group(NETWORKING, "ingresses");
    s.post(&path, &ingress);
    let path = format!("{path}/i");
    s.patch(
        MERGE_PATCH,
        &path,
        &json!({"metadata": {"labels": {"a": "b"}}}),
    );
    s.patch(MERGE_PATCH, &path, &backend("b"));
    s.patch(MERGE_PATCH, &path, &status);
    s.patch(MERGE_PATCH, format!("{path}/status"), &status);
    s.patch(MERGE_PATCH, format!("{path}/status"), &backend("c"));
    s.delete(&path);

    let mut set = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template("x")}});
    let path = s.group("apps/v1", "daemonsets");
    s.post(&path, &set);
    let path = format!("{path}/d");
    set["spec"]["minReadySeconds"] = json!(5);
    s.put(&path, &set);
    set["spec"]["template"]["spec"]["hostNetwork"] = json!(true);
    s.put(&path, &set);
    s.patch(
        MERGE_PATCH,
        format!("{path}/status"),
        &json!({"status": {"numberReady": 3, "desiredNumberScheduled": 4}}),
    );
    set["spec"]["selector"] = json!({"matchLabels": {"app": "y"}});
    s.put(&path, &set);

    let cron = json!({"metadata": {"name": "c"}, "spec": {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}});
    let path = s.group("batch/v1", "cronjobs");
    s.post(&path, &cron);
    s.patch(
        MERGE_PATCH,
        format!("{path}/c"),
        &json!({"spec": {"suspend": true}}),
    );
    s.patch(
        MERGE_PATCH,
        format!("{path}/c/status"),
        &json!({"status": {"lastScheduleTime": "2020-01-02T03:04:05Z"}}),
    );

    // PUT of an object that does not exist.
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let role = json!({"metadata": {"name": "r"}, "rules": rules});
    s.put(s.group(RBAC, "roles/r"), &role);
    s.put(
        s.group(NETWORKING, "networkpolicies/n"),
        &json!({"metadata": {"name": "n"}, "spec": {}}),
    );
    let mut binding = json!({"metadata": {"name": "b"}, "roleRef": {"kind": "Role", "name": "r"}});
    s.put(s.group(RBAC, "rolebindings/b"), &binding);
    binding["roleRef"]["name"] = json!("other");
    s.put(s.group(RBAC, "rolebindings/b"), &binding);

    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "10"}}});
    s.post(s.core("resourcequotas"), &quota);
    let used =
        json!({"status": {"hard": {"pods": "10", "limits.cpu": "8"}, "used": {"pods": "3"}}});
    s.patch(MERGE_PATCH, s.core("resourcequotas/q/status"), &used);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let answer = s.quietly(&Request::get(s.core("resourcequotas/q")).accept(table));
    let cells = json!([answer.at("/rows/0/cells/1"), answer.at("/rows/0/cells/2")]);
    s.fact("what is used", cells);
    for path in ["resourcequotas/q", "serviceaccounts/default"] {
        s.delete(s.core(path));
    }
    s.get(s.group(NETWORKING, "ingresses?fieldSelector=spec.nope=x"));
}

fn autoscalers(s: &mut Session) {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"});
    let older = json!({"metadata": {"name": "old"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3, "targetCPUUtilizationPercentage": 50}});
    let newer = json!({"metadata": {"name": "new"}, "spec": {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 5}});
    let mut behaving = newer.clone();
    behaving["spec"]["behavior"] = json!({"scaleDown": {"stabilizationWindowSeconds": 5}});
    let (v1, v2) = (
        s.group("autoscaling/v1", "horizontalpodautoscalers"),
        s.group("autoscaling/v2", "horizontalpodautoscalers"),
    );
    s.post(&v1, &older);
    s.post(&v2, &newer);
    s.post(format!("{v2}?dryRun=All"), &with_name(behaving, "behaving"));
    for name in ["old", "new"] {
        s.get(format!("{v1}/{name}"));
        s.get(format!("{v2}/{name}"));
    }
    let more = json!({"spec": {"maxReplicas": 7}});
    s.patch(MERGE_PATCH, format!("{v1}/new"), &more);
    s.patch(MERGE_PATCH, format!("{v2}/old"), &more);
    s.get(format!("{v1}/old"));
    s.delete(format!("{v1}/new"));
    s.get(format!("{v2}/new"));
}

fn with_kubectl(s: &mut Session) {
    let meta = |name: &str| json!({"name": name});
    let port = |number: i32| json!({"service": {"name": "web", "port": {"number": number}}});
    let objects = |number: i32| {
        vec![
            json!({"apiVersion": NETWORKING, "kind": "Ingress", "metadata": meta("web"), "spec": {"rules": [{"host": "a.example.com",
                "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": port(number)}]}}]}}),
            json!({"apiVersion": NETWORKING, "kind": "NetworkPolicy", "metadata": meta("web"), "spec": {"podSelector": {"matchLabels": {"app": "web"}},
                "ingress": [{"ports": [{"port": number}]}]}}),
            json!({"apiVersion": RBAC, "kind": "Role", "metadata": meta("web"), "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]}),
            json!({"apiVersion": RBAC, "kind": "RoleBinding", "metadata": meta("web"), "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "web"},
                "subjects": [{"kind": "ServiceAccount", "name": "web"}]}),
            json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": meta("web"), "spec": {"maxReplicas": number,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}}),
            json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta("web"), "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": {
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": format!("i:{number}")}]}}}}}}),
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta("web"), "spec": {"selector": {"matchLabels": {"app": "web"}},
                "template": template("web")}}),
            json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": meta("web"), "spec": {"limits": [{"type": "Container", "default": {"cpu": number}}]}}),
        ]
    };
    manifest(s, "chart.yaml", &objects(80));
    manifest(s, "upgrade.yaml", &objects(81));
    let mut wrong = objects(80);
    wrong[0]["spec"]["ruels"] = json!([]);
    manifest(s, "wrong.yaml", &wrong[..1]);
    for line in [
        "apply -f wrong.yaml",
        "apply -f chart.yaml",
        "apply -f chart.yaml",
        "diff -f chart.yaml",
        "diff -f upgrade.yaml",
        "apply -f upgrade.yaml",
        "diff -f upgrade.yaml",
        "get ing,netpol,hpa,cj,ds,rolebindings -o wide",
        "get roles,limits -o name",
        "get ing web -o json",
        "describe ingress web",
        "describe networkpolicy web",
        "describe role web",
        "describe rolebinding web",
        "describe cronjob web",
        "describe limitrange web",
        "create role reader --verb=get --resource=pods",
        "create rolebinding reader --role=reader --user=u",
        "create quota q --hard=pods=3",
        "create cronjob tick --image=i --schedule=*/5\u{a0}*\u{a0}*\u{a0}*\u{a0}*",
        "autoscale deployment none --max=3",
        "auth can-i create pods",
        "delete -f upgrade.yaml",
        "get ing,netpol,hpa,cj,ds,rolebindings",
    ] {
        kubectl(s, line);
        // Here the time has another form than elsewhere.
        s.keep_lines_of_last(|line| !line.starts_with("Created on:"));
    }
    // Descriptions are not compared: the embedded cluster has none.
    for kind in [
        "deployment",
        "ingress",
        "cronjob",
        "hpa",
        "clusterrole",
        "widget",
    ] {
        kubectl(s, &format!("explain {kind} --recursive"));
        s.keep_lines_of_last(|line| line.contains("\t<") && !line.contains("fieldsV1"));
    }
    kubectl(s, "explain pod.nope");
}

fn deprecated(s: &mut Session) {
    let endpoints =
        json!({"metadata": {"name": "e"}, "subsets": [{"addresses": [{"ip": "10.1.2.5"}]}]});
    s.get(s.core("endpoints/e"));
    s.post(s.core("endpoints?dryRun=All"), &endpoints);
    s.get(s.core("endpoints"));
    let answer = s.quietly(&Request::get("/api/v1/componentstatuses"));
    s.fact(
        "component statuses",
        json!([
            answer.status,
            answer.headers.get("warning"),
            answer.at("/kind")
        ]),
    );
}

fn reviews(s: &mut Session) {
    let pods = json!({"verb": "get", "resource": "pods", "namespace": s.namespace()});
    let path = |resource: &str| format!("/apis/authorization.k8s.io/v1/{resource}");
    let own = json!({"spec": {"resourceAttributes": pods}});
    let answer = s.quietly(&Request::post(path("selfsubjectaccessreviews")).json(&own));
    s.fact(
        "an administrator may",
        json!([answer.status, answer.at("/status/allowed")]),
    );
    let all = json!({"spec": {"namespace": "default"}});
    let answer = s.quietly(&Request::post(path("selfsubjectrulesreviews")).json(&all));
    let rules = answer.at("/status/resourceRules").as_array().cloned();
    let everything = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
    s.fact(
        "an administrator may do everything",
        rules.is_some_and(|rules| rules.contains(&everything)),
    );
    let someone = json!({"spec": {"resourceAttributes": pods, "user": "admin", "groups": ["system:masters"]}});
    let answer = s.quietly(&Request::post(path("subjectaccessreviews")).json(&someone));
    s.fact(
        "so may this user",
        json!([answer.status, answer.at("/status/allowed")]),
    );
    let local = s.group("authorization.k8s.io/v1", "localsubjectaccessreviews");
    let answer = s.quietly(&Request::post(local).json(&someone));
    s.fact(
        "also in a namespace",
        json!([answer.status, answer.at("/status/allowed")]),
    );
    let token = s.server().kubeconfig.token.clone();
    for (what, token) in [("known", token.as_str()), ("unknown", "x")] {
        let review = json!({"spec": {"token": token}});
        let answer =
            s.quietly(&Request::post("/apis/authentication.k8s.io/v1/tokenreviews").json(&review));
        s.fact(
            &format!("a token that is {what}"),
            json!([
                answer.status,
                answer.at("/status/authenticated"),
                answer.at("/status/user/username")
            ]),
        );
    }
}

fn containers(s: &mut Session) {
    s.prepare(&Request::post(s.core("pods")).json(&pod("p")));
    for path in [
        "pods/missing/log",
        "pods/missing/exec?command=ls&container=c&stdout=true",
        "pods/p/log",
    ] {
        s.get(s.core(path));
    }
    s.put(s.core("pods/p/log"), &json!({}));
}

/// A container gets a token unless the pod, its account or a mount of its own prevents it.
fn tokens(s: &mut Session) {
    for (account, settings) in [
        ("robot", json!({})),
        (
            "puller",
            json!({"imagePullSecrets": [{"name": "registry"}]}),
        ),
        ("plain", json!({"automountServiceAccountToken": false})),
    ] {
        let mut object = settings;
        object["metadata"] = json!({"name": account});
        s.prepare(&Request::post(s.core("serviceaccounts")).json(&object));
    }
    let mount =
        json!([{"name": "own", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]);
    for (name, change) in [
        ("default", json!({})),
        ("robot", json!({"serviceAccountName": "robot"})),
        ("old-name", json!({"serviceAccount": "robot"})),
        ("puller", json!({"serviceAccountName": "puller"})),
        ("plain", json!({"serviceAccountName": "plain"})),
        (
            "wants",
            json!({"serviceAccountName": "plain", "automountServiceAccountToken": true}),
        ),
        (
            "refuses",
            json!({"serviceAccountName": "robot", "automountServiceAccountToken": false}),
        ),
        ("nobody", json!({"serviceAccountName": "nobody"})),
        (
            "mounts",
            json!({"serviceAccountName": "robot", "volumes": [{"name": "own", "emptyDir": {}}],
            "initContainers": [{"name": "i", "image": "i"}], "containers": [{"name": "c", "image": "i", "volumeMounts": mount}]}),
        ),
        (
            "all-mount",
            json!({"serviceAccountName": "robot", "volumes": [{"name": "own", "emptyDir": {}}],
            "containers": [{"name": "c", "image": "i", "volumeMounts": mount}]}),
        ),
    ] {
        let mut object = pod(name);
        for (field, value) in change.as_object().into_iter().flatten() {
            object["spec"][field] = value.clone();
        }
        s.post(s.core("pods"), &object);
    }
}

fn with_name(mut object: Value, name: &str) -> Value {
    object["metadata"]["name"] = json!(name);
    object
}
