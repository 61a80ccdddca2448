//! `tidepool nodes` and `tidepool controllers` on the real API server, as processes.

use std::time::Duration;

use e2e::{Api, ControlPlane, Options, Process, eventually};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);
const FOREIGN: &str = "/api/v1/nodes/foreign";

fn start(control_plane: &ControlPlane, command: &str, flags: &[&str]) -> Process {
    let kubeconfig = control_plane.kubeconfig_file("admin").unwrap();
    let mut arguments = vec![
        command.to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
    ];
    arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
    let binary = e2e::tidepool::binary().unwrap();
    control_plane.run(command, &binary, &arguments).unwrap()
}

/// The address in the log line about the HTTP server.
fn server(process: &Process) -> String {
    eventually("it serves", PATIENCE, || {
        let log = process.log();
        let found = log.split("serving on http://").nth(1);
        let address = found.and_then(|rest| rest.split_whitespace().next());
        let plain = address.map(|it| it.trim_matches(|c: char| !c.is_ascii_digit()).to_owned());
        plain.ok_or(log)
    })
}

/// The body of a plain HTTP response, with its status line.
fn get(address: &str, path: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

fn pod(name: &str, node: Option<&str>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": node,
            "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "app:1"}],
        },
    })
}

fn phase(api: &Api, pod: &str) -> String {
    let pod = api.get(&format!("/api/v1/namespaces/default/pods/{pod}"));
    pod.unwrap()["status"]["phase"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn node_names(api: &Api) -> Vec<String> {
    let nodes = api.list("/api/v1/nodes").unwrap();
    let names = nodes
        .iter()
        .map(|it| it["metadata"]["name"].as_str().unwrap_or_default());
    names.map(str::to_owned).collect()
}

#[test]
fn simulated_nodes_run_pods_and_leave_foreign_nodes_alone() {
    let control_plane = ControlPlane::start(Options {
        scheduler: Some(json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
        })),
        // No controller runs here that removes the taint of a new node.
        disable_admission_plugins: vec!["TaintNodesByCondition".to_owned()],
        ..Options::default()
    })
    .unwrap();
    let api = Api::new(&control_plane.admin()).unwrap();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "default", "namespace": "default"}});
    api.create(&account).unwrap();
    let ready = json!([{"type": "Ready", "status": "False", "reason": "Broken", "message": "x"}]);
    let foreign = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "foreign"},
        "spec": {"unschedulable": true}, "status": {"conditions": ready}});
    api.create(&foreign).unwrap();
    api.create(&pod("theirs", Some("foreign"))).unwrap();

    let mut nodes = start(&control_plane, "nodes", &["--nodes=2", "--cpu=4"]);
    let before = (
        api.get(FOREIGN).unwrap(),
        api.get("/api/v1/namespaces/default/pods/theirs").unwrap(),
    );
    let address = server(&nodes);
    api.create(&pod("ours", None)).unwrap();
    eventually("our pod runs", PATIENCE, || match &*phase(&api, "ours") {
        "Running" => Ok(()),
        other => Err(format!("{other}: {}", nodes.last_words())),
    });
    let ours = api.get("/api/v1/nodes/simulated-001").unwrap();
    assert_eq!(ours["metadata"]["labels"]["tidepool.io/simulated"], "true");
    assert_eq!(ours["status"]["capacity"]["cpu"], "4");
    assert_eq!(ours["spec"]["podCIDR"], Value::Null);
    let conditions = ours["status"]["conditions"].as_array().unwrap();
    let is_ready = |it: &Value| it["type"] == "Ready" && it["status"] == "True";
    assert!(conditions.iter().any(is_ready), "{conditions:?}");
    let after = (
        api.get(FOREIGN).unwrap(),
        api.get("/api/v1/namespaces/default/pods/theirs").unwrap(),
    );
    assert_eq!(before, after);
    for path in ["/livez", "/readyz"] {
        assert!(get(&address, path).ends_with("\r\n\r\nok"), "{path}");
    }
    let metrics = get(&address, "/metrics");
    assert!(metrics.contains("tidepool_simulated_nodes 2"), "{metrics}");

    let status = nodes.terminate().unwrap();
    assert!(status.success(), "{status}: {}", nodes.last_words());
    assert_eq!(node_names(&api), ["foreign"]);

    // With --keep the nodes stay, and the next start uses them again.
    let flags = ["--nodes=1", "--keep", "--secure-port=0"];
    let mut kept = start(&control_plane, "nodes", &flags);
    let exists = || match node_names(&api) {
        names if names == ["foreign", "simulated-001"] => Ok(()),
        names => Err(names.join(" ")),
    };
    eventually("the node exists", PATIENCE, exists);
    assert!(kept.terminate().unwrap().success());
    exists().unwrap();
    let mut again = start(&control_plane, "nodes", &["--nodes=1", "--secure-port=0"]);
    // The log has the lines of the earlier runs too.
    eventually("it acts for the node", PATIENCE, || match again.log() {
        log if log.contains("created=0 existing=1") => Ok(()),
        log => Err(log),
    });
    assert!(again.terminate().unwrap().success());
    assert_eq!(node_names(&api), ["foreign"]);
}

#[test]
fn controllers_take_their_lease_and_give_it_back() {
    let control_plane = ControlPlane::start(Options::default()).unwrap();
    let api = Api::new(&control_plane.admin()).unwrap();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "tidepool-system"}});
    api.create(&namespace).unwrap();
    let mut controllers = start(&control_plane, "controllers", &[]);
    let holder = || -> Result<String, String> {
        let lease =
            "/apis/coordination.k8s.io/v1/namespaces/tidepool-system/leases/tidepool-controllers";
        let lease = api.get(lease).map_err(|error| format!("{error:#}"))?;
        let holder = lease["spec"]["holderIdentity"].as_str();
        Ok(holder.unwrap_or_default().to_owned())
    };
    eventually("it leads", PATIENCE, || match holder()? {
        holder if holder.is_empty() => Err(holder),
        _ => Ok(()),
    });
    let address = server(&controllers);
    // The API server knows of the Lease before the process does.
    eventually("it leads and is ready", PATIENCE, || {
        let (ready, metrics) = (get(&address, "/readyz"), get(&address, "/metrics"));
        let leads = metrics.contains("tidepool_role{role=\"leader\"} 1");
        let log = controllers.log();
        match ready.ends_with("\r\n\r\nok") && leads && log.contains("started controller") {
            true => Ok(()),
            false => Err(format!("{ready}\n{metrics}\n{log}")),
        }
    });
    assert!(controllers.terminate().unwrap().success());
    assert_eq!(holder().unwrap(), "");
}
