//! Effective configurations and their conversion to v1.

use engine::scheduling::plugins;

use super::{ConfigVersion, Effective, load, v1, versioned};
use crate::config::to_yaml;

fn effective(text: &str) -> Effective {
    let (configuration, _) = load(text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    Effective::new(&configuration, plugins::ALL).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

/// Files of all versions, those of co-location among them.
fn files() -> Vec<String> {
    let custom = "parallelism: 3\npodMaxBackoffSeconds: 20\nleaderElection: {leaseDuration: 1m, resourceName: x}\n\
                  clientConnection: {qps: 7}\nextenders: [{urlPrefix: http://a, filterVerb: f, httpTimeout: 1s}]\n\
                  profiles:\n- schedulerName: a\n  plugins:\n    score: {disabled: [{name: ImageLocality}, {name: \
                  NodeAffinity}], enabled: [{name: NodeAffinity, weight: 7}]}\n  pluginConfig:\n  - name: \
                  NodeResourcesFit\n    args: {ignoredResourceGroups: [a.b]}\n- schedulerName: b\n";
    let mut files: Vec<String> = ConfigVersion::ALL
        .iter()
        .flat_map(|version| {
            [
                versioned(version.short(), ""),
                versioned(version.short(), custom),
            ]
        })
        .collect();
    files.push(versioned(
        "v1beta1",
        "healthzBindAddress: 0.0.0.0:1\nprofiles:\n- plugins:\n    score: {disabled: [{name: NodeResourcesLeastAllocated}], \
         enabled: [{name: RequestedToCapacityRatio, weight: 3}]}\n  pluginConfig:\n  - name: RequestedToCapacityRatio\n    \
         args: {shape: [{utilization: 0, score: 10}, {utilization: 100, score: 0}], resources: [{name: cpu, weight: \
         2}]}\n",
    ));
    files.push(v1(
        "profiles:\n- plugins: {multiPoint: {disabled: [{name: '*'}]}, queueSort: {enabled: [{name: PrioritySort}]}, bind: \
         {enabled: [{name: DefaultBinder}]}}",
    ));
    let fit = "filter: {enabled: [{name: QoSAwareNodeResourcesFit}]}";
    for off in [
        "",
        ", postFilter: {disabled: [{name: QoSAwarePreemption}]}",
        ", multiPoint: {disabled: [{name: QoSAwareTaintToleration}, {name: QoSAwarePreemption}]}",
    ] {
        files.push(v1(&format!("profiles:\n- plugins: {{{fit}{off}}}\n")));
    }
    files.extend(
        [
            include_str!("../../../testdata/config/koordinator-gpu.yaml"),
            include_str!("../../../testdata/config/koordinator-most-native.yaml"),
            include_str!("../../../testdata/config/koordinator-most-plus.yaml"),
            include_str!("../../../testdata/config/koordinator-least-native.yaml"),
            include_str!("../../../testdata/config/koordinator-least-plus.yaml"),
            include_str!("../../../testdata/config/v1beta3-ignored-group.yaml"),
            include_str!("../../../testdata/config/v1beta3-spread.yaml"),
            include_str!("../../../testdata/config/v1beta3-binpack.yaml"),
            include_str!("../../../testdata/config/v1beta3-custom.yaml"),
            include_str!("../../../testdata/config/v1beta1-spread.yaml"),
            include_str!("../../../testdata/config/v1beta1-binpack.yaml"),
            include_str!("../../../testdata/config/v1beta1-custom.yaml"),
        ]
        .map(str::to_owned),
    );
    files
}

#[test]
fn converted_to_v1_it_means_the_same() {
    for text in files() {
        let (converted, _) = effective(&text).in_v1(plugins::ALL);
        let short = to_yaml(&converted.without_defaults(plugins::ALL));
        assert_eq!(effective(&short), converted, "{text}\nbecame\n{short}");
        let again = effective(&short).in_v1(plugins::ALL);
        assert_eq!(again, (converted, Vec::new()), "{short}");
    }
}

/// What is written out in full is a configuration of the same version with the same meaning.
#[test]
fn written_out_it_means_the_same() {
    for text in files() {
        let whole = effective(&text);
        let written = to_yaml(&whole);
        if text.contains("config.k8s.io/v1beta1") {
            // It has no field for what gates pods.
            continue;
        }
        assert_eq!(effective(&written), whole, "{written}");
    }
}

#[test]
fn a_file_of_defaults_says_nothing() {
    let short = effective(&v1("")).without_defaults(plugins::ALL);
    assert_eq!(
        to_yaml(&short),
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    );
}

/// They are kube-scheduler's defaults, but a scheduler beside it takes others for what is left open.
#[test]
fn names_are_written_where_they_were_given() {
    let named = v1(
        "leaderElection: {resourceName: kube-scheduler}\nprofiles: [{schedulerName: default-scheduler}]\n",
    );
    let open = v1("");
    for (text, want) in [(&named, true), (&open, false)] {
        let whole = effective(text);
        let short = to_yaml(&whole.without_defaults(plugins::ALL));
        for written in [to_yaml(&whole), short] {
            for name in [
                "resourceName: kube-scheduler",
                "schedulerName: default-scheduler",
            ] {
                assert_eq!(written.contains(name), want, "{name}\n{written}");
            }
        }
    }
}

#[test]
fn the_scorers_of_v1beta1() {
    let text = versioned(
        "v1beta1",
        "metricsBindAddress: 0.0.0.0:1\nprofiles:\n- plugins: {score: {enabled: [{name: NodeResourcesMostAllocated, weight: 4}]}}\n",
    );
    let (converted, lost) = effective(&text).in_v1(plugins::ALL);
    assert_eq!(
        lost,
        [
            "metricsBindAddress: removed `0.0.0.0:1`: v1 has no such field; use the flag --bind-address",
            "profiles[0]: removed plugin NodeResourcesMostAllocated with weight 4: in v1 a profile has only one \
             scoringStrategy of NodeResourcesFit",
        ]
    );
    let args = &converted.profiles[0].plugin_config;
    let fit = args
        .iter()
        .find(|config| config.name == "NodeResourcesFit")
        .unwrap();
    assert_eq!(fit.args["scoringStrategy"]["type"], "LeastAllocated");
}

#[test]
fn everything_is_written_out() {
    let whole = to_yaml(&effective(&v1("")));
    for line in [
        "parallelism: 16",
        "  leaseDuration: 15s",
        "  resourceNamespace: kube-system",
        "podMaxBackoffSeconds: 10",
        "      - name: TaintToleration\n        weight: 3",
        "      bindTimeoutSeconds: 600",
        "      hardPodAffinityWeight: 1",
        "      defaultingType: System",
    ] {
        assert!(whole.contains(line), "{line}\n{whole}");
    }
}
