use proptest::prelude::*;

use crate::scheduling::plugins;
use crate::testing::{Lab, node, pod};

const GPU: &str = "nvidia.com/gpu";

fn lab(plugin: &str, args: &str) -> Result<Lab, String> {
    let entry = plugins::find(plugin).unwrap();
    let mut args = serde_json::Deserializer::from_str(args);
    Lab::with_args(
        entry,
        &mut <dyn erased_serde::Deserializer>::erase(&mut args),
    )
}

fn scores(lab: &Lab, request: &str) -> Vec<i64> {
    let scores = lab.scores(&pod("p").container(request)).unwrap();
    scores.iter().map(|(raw, _)| *raw).collect()
}

const MIXED: &str = r#"{"resources":{"nvidia.com/gpu":{"type":"MostAllocated","weight":2},
    "cpu":{"type":"LeastAllocated","weight":1},"memory":{"type":"LeastAllocated","weight":1}}}"#;

/// A node of a thousand cores, so that shares in percent are whole numbers of them.
fn filled(lab: Lab, name: &str, cpu: i64, memory: i64, gpus: Option<i64>) -> Lab {
    let gpu = |count: i64| format!(" {GPU}={count}");
    let offered = gpus.map_or(String::new(), |_| gpu(8));
    let taken = gpus.map_or(String::new(), gpu);
    let used = format!("cpu={} memory={}Gi{taken}", cpu * 10, memory * 10);
    lab.node(node(name).allocatable(&format!("cpu=1000 memory=1000Gi pods=110{offered}")))
        .placed(pod(&format!("on-{name}")).on(name).container(&used))
}

/// The two examples of the documents that the plugin comes from, with their shares.
#[test]
fn gpu_pods_fill_and_others_spread() {
    let lab_of = || lab("NodeResourcesFitPlus", MIXED).unwrap();
    let first = filled(lab_of(), "node1", 58, 21, Some(6));
    let first = filled(first, "node2", 22, 5, Some(0));
    let gpu_pod = format!("cpu=100 memory=100 {GPU}=2");
    // (2 * 100 + 32 + 78) / 4 and (2 * 25 + 68 + 94) / 4.
    assert_eq!(scores(&first, &gpu_pod), [77, 53]);
    let second = filled(lab_of(), "node1", 22, 10, Some(6));
    let second = filled(filled(second, "node2", 40, 50, None), "node3", 30, 20, None);
    assert_eq!(scores(&second, "cpu=100 memory=100"), [78, 49, 69]);
}

#[test]
fn only_what_is_asked_for_counts() {
    let nodes = |lab: Lab| {
        lab.node(node("gpu").allocatable("cpu=10 memory=10Gi nvidia.com/gpu=4"))
            .node(node("plain").allocatable("cpu=10 memory=10Gi"))
    };
    let lab = nodes(lab("NodeResourcesFitPlus", MIXED).unwrap());
    assert_eq!(scores(&lab, ""), [100, 100], "nothing is asked for");
    assert_eq!(
        scores(&lab, "ephemeral-storage=1"),
        [100, 100],
        "nothing that is configured"
    );
    assert_eq!(scores(&lab, "cpu=5"), [50, 50]);
    assert_eq!(scores(&lab, "cpu=20"), [0, 0], "more than there is");
    assert_eq!(
        scores(&lab, "nvidia.com/gpu=1"),
        [25, 0],
        "a node without it gets nothing"
    );
}

#[test]
fn arguments() {
    for (args, want) in [
        (
            "{}",
            "resources: Required value: at least one resource with its type and weight, as `cpu: {type: LeastAllocated, \
             weight: 1}`",
        ),
        (
            r#"{"resources":{"cpu":{"type":"Most","weight":1}}}"#,
            "resources.cpu.type: Unsupported value: \"Most\": supported values: \"LeastAllocated\", \"MostAllocated\"",
        ),
        (
            r#"{"resources":{"cpu":{"type":"MostAllocated"}}}"#,
            "resources.cpu.weight: Invalid value: 0: resource weight of cpu not in valid range (0, 100]",
        ),
        (
            r#"{"resources":{"cpu":{"type":"MostAllocated","weight":-1}}}"#,
            "resources.cpu.weight: Invalid value: -1: resource weight of cpu not in valid range (0, 100]",
        ),
        (
            r#"{"resources":{"gpu":{"type":"MostAllocated","weight":1}}}"#,
            "resources.gpu: Invalid value: \"gpu\": is not the name of a resource: use cpu, memory, ephemeral-storage, or one \
             with a prefix as nvidia.com/gpu",
        ),
    ] {
        assert_eq!(
            lab("NodeResourcesFitPlus", args).err().as_deref(),
            Some(want),
            "{args}"
        );
    }
}

proptest! {
    /// With one strategy for both, a pod that asks for cpu and memory gets what NodeResourcesFit gives.
    #[test]
    fn equal_to_node_resources_fit(
        most in any::<bool>(),
        weights in (1_i64..=100, 1_i64..=100),
        nodes in prop::collection::vec((1_i64..200, 1_i64..400, 0_i64..300, 0_i64..600), 1..8),
        request in (1_i64..100_000, 1_i64..200_000_000_000),
    ) {
        let kind = if most { "MostAllocated" } else { "LeastAllocated" };
        let (cpu, memory) = weights;
        let native = format!(
            r#"{{"scoringStrategy":{{"type":"{kind}","resources":[{{"name":"cpu","weight":{cpu}}},{{"name":"memory","weight":{memory}}}]}}}}"#
        );
        let plus = format!(
            r#"{{"resources":{{"cpu":{{"type":"{kind}","weight":{cpu}}},"memory":{{"type":"{kind}","weight":{memory}}}}}}}"#
        );
        let scores_of = |plugin: &str, args: &str| {
            let mut lab = lab(plugin, args).unwrap();
            for (i, (cpu, memory, used_cpu, used_memory)) in nodes.iter().enumerate() {
                let name = format!("n{i}");
                lab = lab.node(node(&name).allocatable(&format!("cpu={cpu} memory={memory}Gi pods=10")));
                let used = format!("cpu={used_cpu} memory={used_memory}Gi");
                lab = lab.placed(pod(&format!("on-{name}")).on(&name).container(&used));
            }
            raw_scores(&lab, &format!("cpu={}m memory={}", request.0, request.1))
        };
        prop_assert_eq!(scores_of("NodeResourcesFit", &native), scores_of("NodeResourcesFitPlus", &plus));
    }
}

/// The scores of all nodes, also of those that are full.
fn raw_scores(lab: &Lab, request: &str) -> Option<Vec<(i64, i64)>> {
    lab.scores(&pod("p").container(request))
}
