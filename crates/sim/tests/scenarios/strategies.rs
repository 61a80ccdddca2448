//! Katalyst's three scoring strategies in the four versions of the configuration: one scenario, one row per combination.

const SCENARIO: &str = include_str!(
    "../../../../scenarios/colocation/the-strategy-places-reclaimed-and-online-pods.yaml"
);

/// Replaces a part of the scenario that must occur in it exactly so often.
fn replace(text: &str, part: &str, count: usize, with: &str) -> String {
    assert_eq!(text.matches(part).count(), count, "{part}");
    text.replace(part, with)
}

#[test]
fn every_strategy_of_every_version_places_reclaimed_and_online_pods() {
    let curves = "type: RequestedToCapacityRatio\
        \n          requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}\
        \n          reclaimedRequestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}";
    // A v1beta1 file disables the plugin that had the strategy then. Where this is not NodeResourcesLeastAllocated, the
    // default, both score, and the strategy wins by its weight.
    let strategies = [
        (
            "type: MostAllocated",
            "NodeResourcesMostAllocated",
            15,
            "half",
        ),
        (
            "type: LeastAllocated",
            "NodeResourcesLeastAllocated",
            4,
            "free",
        ),
        (curves, "RequestedToCapacityRatio", 15, "half"),
    ];
    for version in ["v1beta1", "v1beta2", "v1beta3", "v1"] {
        for (strategy, v1beta1_plugin, weight, node) in strategies {
            let api = "apiVersion: kubescheduler.config.k8s.io/v1\n";
            let text = replace(
                SCENARIO,
                api,
                1,
                &api.replace("v1\n", &format!("{version}\n")),
            );
            let text = replace(&text, "type: MostAllocated", 1, strategy);
            let text = replace(&text, "weight: 15", 1, &format!("weight: {weight}"));
            let expected = format!("  job: {node}\n  service: {node}\n");
            let mut text = replace(&text, "  job: half\n  service: half\n", 1, &expected);
            if version == "v1beta1" {
                let disabled = format!("disabled:  \n        - name: {v1beta1_plugin}\n");
                let usual = "disabled:  \n        - name: NodeResourcesFit\n";
                text = replace(&text, usual, 1, &disabled);
            }
            let report = sim::run(&text).unwrap_or_else(|bad| panic!("{bad}\n{text}"));
            assert_eq!(report.failures, [], "{version} {strategy}");
        }
    }
}
