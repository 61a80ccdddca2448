//! `tidepool config`, as a person runs it.

use std::path::Path;
use std::process::Command;

/// Exit code, standard output and standard error.
fn config(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidepool"));
    let output = command.arg("config").args(arguments).env_clear().output();
    let output = output.unwrap();
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

fn file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

const OLD: &str = "apiVersion: kubescheduler.config.k8s.io/v1beta1\nkind: KubeSchedulerConfiguration\n\
                   healthzBindAddress: 0.0.0.0:10251\nparallelism: 4\n";

#[test]
fn check_names_file_line_and_field() {
    let folder = tempfile::tempdir().unwrap();
    let bad = file(
        folder.path(),
        "bad.yaml",
        "kind: ConfigMap\ndata:\n  scheduler: |\n    apiVersion: kubescheduler.config.k8s.io/v1\n    kind: \
         KubeSchedulerConfiguration\n    parallelism: \"4\"\n    profles: []\n",
    );
    let (code, out, err) = config(&["check", &bad]);
    assert_eq!(code, 3);
    assert_eq!(
        out,
        format!(
            "{bad}:6: error: parallelism: found the text \"4\": only a whole number is allowed\n\
             {bad}:7: error: profles: unknown field `profles`, did you mean `profiles`?\n"
        )
    );
    assert_eq!(err, format!("tidepool: {bad} has 2 errors\n"));
    let (_, json, _) = config(&["check", &bad, "-o", "json"]);
    assert!(json.contains("\"line\": 6"), "{json}");
    let good = file(folder.path(), "good.yaml", OLD);
    let (code, out, _) = config(&["check", &good]);
    assert_eq!(code, 0);
    assert_eq!(
        out,
        format!(
            "{good}:4: warning: parallelism: has no effect: the scheduler decides on one thread\n{good}: ok\n"
        )
    );
}

#[test]
fn check_prints_findings_by_line() {
    let folder = tempfile::tempdir().unwrap();
    let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
                parallelism: 4\nprofiles:\n- plugins:\n    score:\n      enabled:\n      - name: Coscheduling\n\
                percentageOfNodesToScore: 10\nprofles: []\n";
    let path = file(folder.path(), "mixed.yaml", text);
    let (code, out, _) = config(&["check", &path]);
    assert_eq!(code, 3, "{out}");
    let found: Vec<String> = out
        .lines()
        .map(|line| {
            let rest = line.strip_prefix(&path[..]).unwrap();
            let mut parts = rest.splitn(4, ':');
            let line = parts.by_ref().nth(1).unwrap();
            format!("{line}{}", parts.next().unwrap())
        })
        .collect();
    assert_eq!(
        found,
        ["3 warning", "8 error", "9 warning", "10 error"],
        "{out}"
    );
    let peer = "ScorePlugin \"Coscheduling\" does not exist: it is a plugin of scheduler-plugins and Koordinator and \
                has no counterpart here\n";
    assert!(out.contains(peer), "{out}");
}

/// A resource that no node has is most likely misspelt.
#[test]
fn check_looks_at_nodes_if_it_is_given_some() {
    let folder = tempfile::tempdir().unwrap();
    let misspelt = file(
        folder.path(),
        "misspelt.yaml",
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n\
         - plugins: {score: {enabled: [{name: NodeResourcesFitPlus}, {name: ScarceResourceAvoidance}], \
         disabled: [{name: NodeResourcesFit}]}}\n  pluginConfig:\n  \
         - {name: NodeResourcesFitPlus, args: {resources: {nvidia.com/gpus: {type: MostAllocated, weight: 1}}}}\n  \
         - {name: ScarceResourceAvoidance, args: {resources: [nvidia.com/gpus]}}\n",
    );
    let node = |gpu: &str| {
        format!(
            r#"{{"kind": "Node", "status": {{"allocatable": {{"cpu": "8", "pods": "9", "{gpu}": "1"}}}}}}"#
        )
    };
    let list = |nodes: &str| format!(r#"{{"kind": "List", "items": [{nodes}]}}"#);
    let warning = "warning: no node has `nvidia.com/gpus` (scored by NodeResourcesFitPlus and ScarceResourceAvoidance); \
                   nodes have cpu, pods, nvidia.com/gpu\n";
    let two = format!("{}, {}", node("memory"), node("nvidia.com/gpus"));
    for (case, nodes, code, said) in [
        ("none has it", list(&node("nvidia.com/gpu")), 0, warning),
        ("one has it", list(&two), 0, "misspelt.yaml: ok\n"),
        ("a node alone", node("nvidia.com/gpu"), 0, warning),
        (
            "no node",
            list(""),
            1,
            "nodes.json contains no nodes: pass the output of `kubectl get nodes -o yaml`\n",
        ),
        (
            "something else",
            list(r#"{"kind": "Pod"}"#),
            1,
            "nodes.json contains a `Pod` instead of a Node: pass the output of `kubectl get nodes -o yaml`\n",
        ),
        ("no object", "[1]".to_owned(), 1, "cannot read nodes from "),
    ] {
        let nodes = file(folder.path(), "nodes.json", &nodes);
        let (found, out, err) = config(&["check", &misspelt, "--nodes", &nodes]);
        assert_eq!(found, code, "{case}: {out}{err}");
        assert!((out.clone() + &err).contains(said), "{case}: {out}{err}");
        assert_eq!(out.contains("warning"), said == warning, "{case}: {out}");
    }
}

#[test]
fn show_writes_every_default() {
    let (code, table, _) = config(&["show"]);
    assert_eq!(code, 0);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = table.lines().map(words).collect();
    for line in [
        "leaderElection.leaseDuration 15s",
        "leaderElection.resourceName tidepool-scheduler, or kube-scheduler with --mode primary",
        "PROFILE tidepool (default-scheduler unless --mode is second)",
        "POINT PLUGINS",
        "bind DefaultBinder",
        "permit -",
        "VolumeBinding {\"bindTimeoutSeconds\":600}",
    ] {
        assert!(lines.iter().any(|found| found == line), "{line}\n{table}");
    }
    let scorers = "score TaintToleration (3), NodeAffinity (2), NodeResourcesFit (1), ";
    assert!(
        lines.iter().any(|line| line.starts_with(scorers)),
        "{table}"
    );
    let (_, json, _) = config(&["show", "-o", "json"]);
    assert!(json.contains("\"leaseDuration\": \"15s\""), "{json}");
    // They depend on how the scheduler is run.
    for name in ["schedulerName", "resourceName\""] {
        assert!(!json.contains(name), "{name}\n{json}");
    }
}

#[test]
fn convert_writes_v1_and_says_what_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let old = file(folder.path(), "old.yaml", OLD);
    let (code, converted, said) = config(&["convert", &old]);
    assert_eq!(code, 0, "{said}");
    assert!(
        converted.starts_with("apiVersion: kubescheduler.config.k8s.io/v1\n"),
        "{converted}"
    );
    assert!(
        said.contains(": warning: healthzBindAddress: removed `0.0.0.0:10251`"),
        "{said}"
    );
    let new = file(folder.path(), "new.yaml", &converted);
    let (code, again, said) = config(&["convert", &new]);
    assert_eq!((code, again), (0, converted), "{said}");
    let (code, _, said) = config(&["convert", "/no/such/file"]);
    assert_eq!(code, 1);
    assert!(said.contains("cannot read /no/such/file"), "{said}");
}
