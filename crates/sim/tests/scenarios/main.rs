//! Every file in `scenarios/` holds, twice with the same words; and bad ones are refused in one sentence.

#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

mod strategies;

use std::path::{Path, PathBuf};

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn every_scenario_holds_and_repeats_itself() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let files = files(&folder);
    assert!(files.len() >= 25, "only {} scenarios", files.len());
    let mut wrong = Vec::new();
    for file in files {
        let name = file.display();
        assert_eq!(file.extension().unwrap(), "yaml", "{name} is no scenario");
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(
            text.starts_with('#'),
            "{name} does not begin with its reason"
        );
        match sim::run(&text) {
            Err(bad) => wrong.push(format!("{name}: {bad}")),
            Ok(report) => {
                let unmet = report
                    .failures
                    .iter()
                    .map(|failure| format!("{name}: {failure}"));
                wrong.extend(unmet);
                assert_eq!(
                    sim::run(&text).unwrap(),
                    report,
                    "{name} does not repeat itself"
                );
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_default_plugin_has_a_scenario() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let texts: Vec<String> = files(&folder)
        .iter()
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect();
    let older = [
        "NodeResourcesLeastAllocated",
        "NodeResourcesMostAllocated",
        "RequestedToCapacityRatio",
    ];
    for entry in engine::scheduling::plugins::ALL
        .iter()
        .filter(|entry| !older.contains(&entry.name))
    {
        let is_named = texts.iter().any(|text| text.contains(entry.name));
        assert!(is_named, "no scenario names {}", entry.name);
    }
}

const SMALL: &str = "cluster: {nodes: [{name: a, cpu: 1}]}\npods: [{name: p, cpu: 1}]\n";

/// The configuration of a page of the documentation does what the page says.
#[test]
fn gpu_machines_are_kept_for_gpu_work() {
    let page = include_str!("../../../../docs/keep-gpu-machines-for-gpu-work.md");
    let (_, page) = page.split_once("```yaml\n").unwrap();
    let (configuration, _) = page.split_once("```").unwrap();
    let configuration: String = configuration
        .lines()
        .map(|line| format!("  {line}\n"))
        .collect();
    let text = format!(
        "configuration: |\n{configuration}\
         cluster:\n  \
           nodes:\n  \
           - {{name: half, cpu: 64, memory: 256Gi, resources: {{nvidia.com/gpu: 8, ephemeral-storage: 1Ti}}}}\n  \
           - {{name: whole, cpu: 64, memory: 256Gi, resources: {{nvidia.com/gpu: 8, ephemeral-storage: 1Ti}}}}\n  \
           - {{name: plain, cpu: 64, memory: 256Gi, resources: {{ephemeral-storage: 1Ti}}}}\n  \
           pods:\n  \
           - {{name: trainer, node: half, cpu: 16, memory: 64Gi, requests: {{nvidia.com/gpu: 4}}}}\n  \
           - {{name: web, node: plain, cpu: 16, memory: 64Gi}}\n\
         pods:\n\
         - {{name: gpu, cpu: 4, memory: 16Gi, requests: {{nvidia.com/gpu: 1}}}}\n\
         - {{name: other, cpu: 4, memory: 16Gi}}\n\
         expect: {{gpu: half, other: plain}}\n"
    );
    let report = sim::run(&text).unwrap_or_else(|bad| panic!("{bad}\n{text}"));
    assert_eq!(report.failures, []);
    assert!(
        !report.log.iter().any(|line| line.starts_with("warning")),
        "{:?}",
        report.log
    );
}

/// A name that no node has is most likely misspelt; a node that comes later is soon enough.
#[test]
fn a_resource_that_no_node_has_is_warned_of() {
    let args = "configuration: |\n  apiVersion: kubescheduler.config.k8s.io/v1\n  kind: KubeSchedulerConfiguration\n  \
        profiles:\n  - plugins: {score: {enabled: [{name: ScarceResourceAvoidance}]}}\n    \
        pluginConfig: [{name: ScarceResourceAvoidance, args: {resources: [nvidia.com/gpus]}}]\n";
    let later =
        "steps: [{create: {nodes: [{name: b, cpu: 1, resources: {nvidia.com/gpus: 1}}]}}]\n";
    for (case, more, warned) in [("never", "", true), ("later", later, false)] {
        let report = sim::run(&[args, SMALL, "expect: {p: a}\n", more].concat()).unwrap();
        let want = "warning: configuration: no node has `nvidia.com/gpus` (scored by ScarceResourceAvoidance); \
            nodes have cpu, memory, ephemeral-storage, pods";
        let found: Vec<_> = report
            .log
            .iter()
            .filter(|line| line.contains("gpus`"))
            .collect();
        assert_eq!(
            found,
            [want; 1][..usize::from(warned)].to_vec(),
            "{case}: {:?}",
            report.log
        );
    }
}

/// Every kind that can be created can be deleted, once.
#[test]
fn whatever_is_created_can_be_deleted() {
    let in_namespaces = [
        ("services", "Service", "{}"),
        ("replicationControllers", "ReplicationController", "{}"),
        ("replicaSets", "ReplicaSet", "{}"),
        ("statefulSets", "StatefulSet", "{}"),
        ("disruptionBudgets", "PodDisruptionBudget", "{}"),
        ("claims", "PersistentVolumeClaim", "{}"),
        ("storageCapacities", "CSIStorageCapacity", ""),
    ];
    let alone = [
        ("namespaces", "Namespace", ""),
        ("priorityClasses", "PriorityClass", ""),
        ("volumes", "PersistentVolume", "{}"),
        ("storageClasses", "StorageClass", ""),
        ("csiNodes", "CSINode", "{}"),
        ("csiDrivers", "CSIDriver", "{}"),
        ("volumeAttachments", "VolumeAttachment", "{}"),
    ];
    let in_default = in_namespaces.map(|kind| (kind, "default/x", ""));
    let in_namespaces = in_namespaces.map(|kind| (kind, "team/x", "namespace: team, "));
    let alone = alone.map(|kind| (kind, "x", ""));
    let all = in_default.into_iter().chain(in_namespaces).chain(alone);
    for ((list, kind, spec), name, namespace) in all {
        let spec = if spec.is_empty() {
            String::new()
        } else {
            format!(", spec: {spec}")
        };
        let text = format!(
            "{SMALL}expect: {{p: a}}\nsteps:\n- create:\n    {list}: [{{metadata: {{{namespace}name: x}}{spec}}}]\n\
             - delete: {{{list}: [{name}]}}\n"
        );
        let report = sim::run(&text).unwrap_or_else(|bad| panic!("{list}: {bad}"));
        let last = report.log.last().unwrap();
        assert!(
            last.ends_with(&format!("{kind} {name} is deleted")),
            "{last}"
        );
        let twice = format!("{text}- delete: {{{list}: [{name}]}}\n");
        assert_eq!(
            sim::run(&twice).unwrap_err().to_string(),
            format!("line 8: steps[2].delete: there is no {kind} `{name}`")
        );
        let again = text.replacen("}]\n- delete", "}, {metadata: {}}]\n- delete", 1);
        assert_eq!(
            sim::run(&again).unwrap_err().to_string(),
            format!("line 6: steps[0].create.{list}[1]: a {kind} needs a name")
        );
        let object = format!("{{metadata: {{{namespace}name: x}}{spec}}}");
        let again = text.replacen(&object, &format!("{object}, {object}"), 1);
        assert_eq!(
            sim::run(&again).unwrap_err().to_string(),
            format!("line 6: steps[0].create.{list}[1]: {kind} `{name}` is given twice")
        );
    }
}

#[test]
fn what_is_wrong_with_tiers_is_said() {
    let with = |more: &str| format!("{SMALL}expect: {{p: a}}\n{more}");
    for (more, want) in [
        (
            "colocationConfig: '{\"degradeTimeMinutes\": \"x\"}'\n",
            "line 4: colocationConfig: line 1: degradeTimeMinutes: ",
        ),
        (
            "steps:\n- colocationConfig: '{'\n",
            "line 5: steps[0].colocationConfig: line 1: ",
        ),
        (
            "steps:\n- create: {nodeMetrics: [{metadata: {name: b}}]}\n",
            "line 5: steps[0].create.nodeMetrics[0]: node `b` does not exist",
        ),
        (
            "steps:\n- create: {nodeMetrics: [{status: {}}]}\n",
            "line 5: steps[0].create.nodeMetrics[0]: a NodeMetric needs a name",
        ),
        (
            "steps:\n- create: {nodeMetrics: [{metadata: {name: a}, status: {usage: 1}}]}\n",
            "line 5: steps[0].create.nodeMetrics[0].status.usage: unknown or unused field",
        ),
        (
            "steps:\n- delete: {nodeMetrics: [a]}\n",
            "line 5: steps[0].delete: there is no NodeMetric `a`",
        ),
    ] {
        let found = sim::run(&with(more)).unwrap_err().to_string();
        assert!(found.starts_with(want), "{more}: {found}");
    }
    let deleted =
        "steps:\n- create: {nodeMetrics: [{metadata: {name: a}}]}\n- delete: {nodeMetrics: [a]}\n";
    let report = sim::run(&with(deleted)).unwrap();
    let last = report.log.last().unwrap();
    assert!(last.ends_with("NodeMetric a is deleted"), "{last}");
}

#[test]
fn an_expectation_that_is_not_met() {
    let failures = |expect: &str| -> Vec<String> {
        let report = sim::run(&format!("{SMALL}{expect}")).unwrap();
        report.failures.iter().map(ToString::to_string).collect()
    };
    let none: Vec<String> = Vec::new();
    assert_eq!(failures("expect: {p: a}"), none);
    assert_eq!(failures("expect: {p: {on: a, attempts: 1, at: 0s}}"), none);
    assert_eq!(
        failures("expect: {p: b}"),
        ["line 3: expect.p: it should be on b, but it is on a"]
    );
    assert_eq!(
        failures("expect:\n  p: {attempts: 2, at: 1s}"),
        [
            "line 4: expect.p: expected 2 attempts, found 1",
            "line 4: expect.p: it should be bound at 1s, but it was bound at 0s",
        ]
    );
    assert_eq!(
        failures("expect: {p: {gated: true}}"),
        ["line 3: expect.p: it should wait, but it is on a"]
    );
    assert_eq!(
        failures("expect: {p: {gone: true}}"),
        ["line 3: expect.p: it should be gone, but it is on a"]
    );
    assert_eq!(
        failures("expectNodes: {a: 2}"),
        ["line 3: expectNodes.a: expected 2 pods, found 1"]
    );
}

#[test]
fn what_makes_no_sense_is_refused_with_its_line() {
    for (text, want) in [
        (
            "cluster: {}\n",
            "the scenario has no expectation; add expect or expectNodes",
        ),
        (
            "expcet: {}\n",
            "line 1: expcet: unknown field `expcet`, did you mean `expect`?",
        ),
        (
            "expect: {}\nexpect: {}\n",
            "line 2: expect: duplicate key `expect`",
        ),
        (
            "pods:\n- {name: p, cpus: 1}\nexpect: {p: a}\n",
            "line 2: pods[0].cpus: unknown field `cpus`, did you mean `cpu`?",
        ),
        (
            "pods:\n- name: p\n  spec:\n    tolerationz: []\nexpect: {p: a}\n",
            "line 4: pods[0].spec.tolerationz: unknown or unused field",
        ),
        // The API server would take them for requests.
        (
            "pods:\n- name: p\n  spec:\n    containers: [{resources: {limits: {cpu: 1}}}]\nexpect: {p: a}\n",
            "line 4: pods[0].spec.containers[0].resources.limits: unknown or unused field",
        ),
        (
            "pods:\n- {name: 5, labels: {a: 1}}\nexpect: {p: a}\n",
            "line 2: pods[0].name: found the number 5: only text (numbers, and true and false, in quotes) is allowed\n\
             line 2: pods[0].labels.a: found the number 1: only text (numbers, and true and false, in quotes) is allowed",
        ),
        (
            "expect: {p: a}\n",
            "line 1: expect.p: pod `p` does not exist",
        ),
        (
            "expectNodes: {a: 1}\n",
            "line 1: expectNodes.a: node `a` does not exist",
        ),
        (
            "pods:\n- {name: p, cpu: 1x}\nexpect: {p: a}\n",
            "line 2: pods[0]: pod default/p: cpu of spec.containers: `1x` is not a quantity: use a number such as 2, 0.5, 500m, \
             1e3, 128Mi or 1G",
        ),
        (
            "pods:\n- {name: p}\n- {name: p}\nexpect: {p: a}\n",
            "line 3: pods[1]: pod `default/p` exists already",
        ),
        (
            "pods:\n- {cpu: 1}\nexpect: {p: a}\n",
            "line 2: pods[0]: a pod needs a name",
        ),
        (
            "pods:\n- {name: p, node: a}\nexpect: {p: a}\n",
            "line 2: pods[0]: pod `default/p`: node `a` does not exist",
        ),
        (
            "expect: {p: a}\nsteps:\n- advance: 5s\n",
            "line 1: expect.p: pod `p` does not exist",
        ),
        (
            "cluster: {pods: [{name: p}]}\nsteps:\n- advance: '5'\n  expect: {p: {attempts: 1}}\n",
            "line 3: steps[0].advance: time: missing unit in duration \"5\"",
        ),
        (
            "cluster: {pods: [{name: p}]}\nsteps:\n- advance: -1s\n  expect: {p: {attempts: 1}}\n",
            "line 3: steps[0].advance: `-1s` is not between 0s and 8784h",
        ),
        (
            "cluster: {pods: [{name: p}]}\nsteps:\n- advance: 1s\n  cordon: a\n  expect: {p: {attempts: 1}}\n",
            "line 3: steps[0]: the step has 2 actions; a step has exactly one action",
        ),
        (
            "cluster: {pods: [{name: p}]}\nsteps:\n- cordon: a\n  expect: {p: {attempts: 1}}\n",
            "line 3: steps[0]: node `a` does not exist",
        ),
        (
            "cluster: {nodes: [{name: a, taints: [x]}]}\nexpectNodes: {a: 0}\n",
            "line 1: cluster.nodes[0]: taint `x` is not of the form key=value:Effect",
        ),
        (
            "configuration: |\n  apiVersion: kubescheduler.config.k8s.io/v1\n  kind: KubeSchedulerConfiguration\n  \
             profile: []\nexpectNodes: {a: 0}\n",
            "line 4: profile: unknown field `profile`, did you mean `profiles`?",
        ),
    ] {
        match sim::run(text) {
            Err(bad) => assert_eq!(bad.to_string(), want, "{text}"),
            Ok(report) => panic!("{text} was played: {:?}", report.log),
        }
    }
}

#[test]
fn all_errors_of_a_file_are_reported() {
    let text = "\
configuration: |
  apiVersion: kubescheduler.config.k8s.io/v1
  kind: KubeSchedulerConfiguration
  profiles:
  - schedulerName: mine
    plugins: {score: {enabled: [{name: Peaks}]}}
cluster:
  nodes:
  - {name: a, cpu: -1, resources: {example.com/gpu: -2}}
  - {name: b, count: 0}
  - {cpu: 1, taints: [x]}
pods:
- {name: p, cpus: 1}
- {name: q, memory: -1Gi, scheduler: yours, leavesAfter: never}
- {name: r, spec: {containers: [{name: c, resources: {requests: {cpu: -100m}}}]}}
expect:
  p: {}
  q: {among: []}
steps:
- {}
- {advance: '5', cordon: a}
- {resize: {pod: p, cpu: -1}}
- {resize: {}}
";
    let want = [
        "line 6: profiles[0].plugins.score.enabled[0]: ScorePlugin \"Peaks\" does not exist: it is a plugin of \
         scheduler-plugins and has no counterpart here",
        "line 9: cluster.nodes[0].cpu: `-1` is negative; use an amount of 0 or more",
        "line 9: cluster.nodes[0].resources.example.com/gpu: `-2` is negative; use an amount of 0 or more",
        "line 10: cluster.nodes[1]: count is 0: use 1 to 10000, or leave the node out",
        "line 11: cluster.nodes[2]: a node needs a name",
        "line 11: cluster.nodes[2]: taint `x` is not of the form key=value:Effect",
        "line 13: pods[0].cpus: unknown field `cpus`, did you mean `cpu`?",
        "line 14: pods[1].memory: `-1Gi` is negative; use an amount of 0 or more",
        "line 14: pods[1].leavesAfter: time: invalid duration \"never\"",
        "line 15: pods[2].spec.containers[0].resources.requests.cpu: `-100m` is negative; use an amount of 0 or more",
        "line 17: expect.p: the expectation is empty; name a node, or say what is expected",
        "line 18: expect.q.among: the list is empty; name nodes",
        "line 20: steps[0]: the step has no action and no expectation",
        "line 21: steps[1]: the step has 2 actions; a step has exactly one action",
        "line 21: steps[1].advance: time: missing unit in duration \"5\"",
        "line 22: steps[2].resize.cpu: `-1` is negative; use an amount of 0 or more",
        "line 23: steps[3].resize: name one pod or one node",
    ];
    let found = sim::run(text).unwrap_err().to_string();
    assert_eq!(found.lines().collect::<Vec<_>>(), want);
    let unknown = "pods: [{name: p, scheduler: tidepol}]\nexpect: {p: a}\n";
    assert_eq!(
        sim::run(unknown).unwrap_err().to_string(),
        "line 1: pods[0].scheduler: no profile is named `tidepol`; known: default-scheduler; a pod of another scheduler \
         has spec.schedulerName"
    );
    let objects = "cluster: {nodes: [{name: a}, {name: a}]}\npods: [{name: p, cpu: x}, {name: q, cpu: y}]\nexpectNodes: {a: 0}\n";
    let found = sim::run(objects).unwrap_err().to_string();
    assert_eq!(found, "line 1: cluster.nodes[1]: node `a` exists already");
    let found = sim::run(&objects.replace(", {name: a}", "")).unwrap_err();
    assert_eq!(found.0.len(), 2, "{found}");
}

#[test]
fn mangled_scenarios_never_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    for file in files(&folder) {
        let text = std::fs::read_to_string(&file).unwrap();
        for seed in 0..20 {
            let keep = |(i, _): &(usize, char)| (i * 7 + seed * 13) % 61 != 0;
            let mangled: String = text
                .chars()
                .enumerate()
                .filter(keep)
                .map(|(_, c)| c)
                .collect();
            let _ = sim::run(&mangled);
        }
    }
}

#[test]
fn what_is_wrong_with_a_report_is_said() {
    let reports = "cluster:\n  nodes: [{name: a, cpu: 4}]\n  customNodeResources:\n  \
        - {metadata: {name: a}, status: {resources: {allocatable: {resource.katalyst.kubewharf.io/reclaimed_millicpu: much}}}}\n";
    let text = [reports, "pods: [{name: p, cpu: 1}]\nexpect: {p: a}\n"].concat();
    let report = sim::run(&text).unwrap_or_else(|bad| panic!("{bad}"));
    let said = report
        .log
        .iter()
        .any(|line| line.contains("warning: customnoderesource a: ") && line.contains("`much`"));
    assert!(said, "{:?}", report.log);
}
