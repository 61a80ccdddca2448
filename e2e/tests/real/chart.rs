//! An ordinary chart on the embedded cluster, with the real kubectl: applied, diffed, upgraded and deleted with nothing left.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::up::Up;

const CHART: &str = include_str!("../charts/shop.yaml");
const DOCUMENTS: usize = 30;
const PATIENCE: Duration = Duration::from_secs(60);

/// Every object but events and leases, which come and go by themselves, and metrics, which are not stored.
fn objects(up: &Up) -> BTreeSet<String> {
    let kinds = up.kubectl("api-resources --verbs=list,create -o name --no-headers");
    let kinds: Vec<&str> = kinds
        .lines()
        .filter(|kind| !kind.starts_with("events") && !kind.starts_with("leases"))
        .collect();
    // With the namespace: two objects may have the same name.
    let columns = "custom-columns=K:.kind,S:.metadata.namespace,N:.metadata.name";
    let listed = up.kubectl(&format!(
        "get {} -A --no-headers -o {columns}",
        kinds.join(",")
    ));
    listed.lines().map(str::to_owned).collect()
}

/// What became of each document: `created`, `unchanged`, ...
fn results<'a>(output: &'a str, result: &str) -> Vec<&'a str> {
    let lines = output.lines();
    lines.filter_map(|line| line.strip_suffix(result)).collect()
}

#[test]
fn a_chart_is_applied_diffed_upgraded_and_deleted_with_nothing_left() {
    let up = Up::start(&["--nodes", "4", "--no-demo"]);
    // Controllers create these objects a moment after the start.
    eventually("the namespaces and nodes are complete", || {
        let found = objects(&up);
        let count = |kind: &str| found.iter().filter(|it| it.starts_with(kind)).count();
        let schedulers = found
            .iter()
            .any(|it| it.starts_with("ConfigMap ") && it.trim_end().ends_with(" schedulers"));
        let complete = schedulers
            && count("Namespace ") == count("ServiceAccount ")
            && count("Namespace ") + 1 == count("ConfigMap ")
            && count("Node ") == count("CustomNodeResource ");
        complete.then_some(()).ok_or_else(|| format!("{found:#?}"))
    });
    let before = objects(&up);
    up.write("chart.yaml", CHART);
    up.write(
        "upgrade.yaml",
        &CHART
            .replace("1.0", "1.1")
            .replace("replicas: 2", "replicas: 3"),
    );
    up.write("wrong.yaml", &CHART.replace("pathType:", "pathTpye:"));

    let run = up.run("apply -f wrong.yaml --dry-run=server");
    assert!(
        run.stderr
            .contains("unknown field \"spec.rules[0].http.paths[0].pathTpye\""),
        "{run:?}"
    );

    let run = up.run("apply -f chart.yaml");
    assert_eq!(results(&run.stdout, " created").len(), DOCUMENTS, "{run:?}");
    for kind in [
        "Ingress",
        "NetworkPolicy",
        "HorizontalPodAutoscaler",
        "Role",
        "ResourceQuota",
    ] {
        let warning = format!("Warning: {kind} has no effect in this cluster");
        assert!(run.stderr.contains(&warning), "{warning} is not in {run:?}");
    }
    let wait = |command: &str| up.kubectl(&format!("-n shop {command} --timeout=60s"));
    let runs = || {
        for workload in ["deployment/web", "statefulset/db", "daemonset/agent"] {
            wait(&format!("rollout status {workload}"));
        }
    };
    runs();
    wait("wait --for=condition=complete job/migrate");
    wait("wait --for=jsonpath={.status.phase}=Bound pvc --all");

    let again = up.kubectl("apply -f chart.yaml");
    let unchanged = results(&again, " unchanged").len();
    // The real server gives kubectl the same six empty patches.
    assert_eq!(
        (unchanged, results(&again, " configured").len()),
        (DOCUMENTS - 6, 6),
        "{again}"
    );
    assert_eq!(up.kubectl("diff -f chart.yaml"), "");

    let run = up.run("diff -f upgrade.yaml");
    assert_eq!(run.code, Some(1), "{run:?}");
    let added = |line: &str| {
        run.stdout
            .lines()
            .any(|found| found.starts_with('+') && found.contains(line))
    };
    for line in [
        "replicas: 3",
        "shop/web:1.1",
        "shop/report:1.1",
        "version: \"1.1\"",
    ] {
        assert!(added(line), "{line} is not in {}", run.stdout);
    }
    let upgraded = up.kubectl("apply -f upgrade.yaml");
    for changed in [
        "configmap/settings",
        "deployment.apps/web",
        "statefulset.apps/db",
        "daemonset.apps/agent",
        "cronjob.batch/report",
    ] {
        assert!(
            results(&upgraded, " configured").contains(&changed),
            "{changed}: {upgraded}"
        );
    }
    runs();
    eventually("only new pods are left", || {
        let images = "-n shop get pods -l app=web -o jsonpath={.items[*].spec.containers[*].image}";
        let images = up.kubectl(images);
        let new = images == ["registry.example.com/shop/web:1.1"; 3].join(" ");
        new.then_some(()).ok_or(images)
    });
    let top = up.kubectl("-n shop top pods --no-headers -l app=web");
    assert!(top.lines().all(|line| line.contains(" 40m ")), "{top}");
    assert_eq!(up.kubectl("top nodes --no-headers").lines().count(), 4);

    // The namespace is deleted first, and its objects may go before kubectl deletes them.
    up.kubectl("delete -f upgrade.yaml --ignore-not-found --timeout=60s");
    eventually("nothing is left", || {
        let left: Vec<String> = objects(&up).difference(&before).cloned().collect();
        left.is_empty()
            .then_some(())
            .ok_or_else(|| format!("{left:#?}"))
    });
}

/// Tries until it succeeds; the last failure is shown.
fn eventually(what: &str, check: impl Fn() -> Result<(), String>) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(found) = check() {
        assert!(Instant::now() < deadline, "{what}: {found}");
        std::thread::sleep(Duration::from_millis(200));
    }
}
