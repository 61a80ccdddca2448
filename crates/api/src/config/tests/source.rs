//! Configurations inside ConfigMaps.

use super::{check, load};
use engine::scheduling::plugins;

const MAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: scheduler-config
data:
  other: |
    a: b
  koord-scheduler-config: |
    apiVersion: kubescheduler.config.k8s.io/v1
    kind: KubeSchedulerConfiguration
    parallelism: -1
    profiles:
    - schedulerName: 5
";

fn errors(text: &str) -> Vec<String> {
    let errors = check(text, plugins::ALL).errors;
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn a_config_map_with_the_lines_of_the_file() {
    assert_eq!(
        errors(MAP),
        [
            "line 13: profiles[0].schedulerName: found the number 5: only text (numbers, and true and false, in quotes) \
             is allowed",
            "line 11: parallelism: Invalid value: -1: should be an integer value greater than zero",
        ]
    );
    let good = MAP.replace("-1", "1").replace(": 5", ": koord-scheduler");
    let (configuration, _) = load(&good).unwrap();
    assert_eq!(configuration.profiles[0].scheduler_name, "koord-scheduler");
    // Not line by line in the file: the line of the key is the best that there is.
    let quoted =
        "kind: ConfigMap\ndata:\n  x: \"kind: KubeSchedulerConfiguration\\nparallelism: -1\\n\"\n";
    assert_eq!(
        errors(quoted),
        ["line 3: parallelism: Invalid value: -1: should be an integer value greater than zero"]
    );
    let broken = MAP.replace("    parallelism: -1", "   parallelism: -1");
    assert!(
        errors(&broken)[0].starts_with("line 1"),
        "{:?}",
        errors(&broken)
    );
}

#[test]
fn config_maps_without_a_configuration() {
    for (text, want) in [
        (
            "kind: ConfigMap\n",
            "line 1: data: the ConfigMap has no `data`: it must contain a KubeSchedulerConfiguration",
        ),
        (
            "kind: ConfigMap\ndata: {a: x, b: z}\n",
            "line 2: data: found no KubeSchedulerConfiguration among the values of the ConfigMap (a, b)",
        ),
        (
            "kind: ConfigMap\ndata:\n  a: 'kind: KubeSchedulerConfiguration'\n  b: 'kind: KubeSchedulerConfiguration'\n",
            "line 2: data: found several scheduler configurations in the ConfigMap (a, b): only one is allowed",
        ),
    ] {
        assert_eq!(errors(text), [want], "{text}");
    }
}

/// As the design document of the two plugins prints them; only the indentation is corrected.
#[test]
fn files_of_koordinator() {
    let both = "NodeResourcesFit also scores nodes by the same resources: to use only NodeResourcesFitPlus, disable \
                NodeResourcesFit under score";
    for (text, want) in [
        (
            include_str!("../../../testdata/config/koordinator-gpu.yaml"),
            vec![
                "the file has no apiVersion: using kubescheduler.config.k8s.io/v1beta2, the version of its args".to_owned(),
            ],
        ),
        (
            include_str!("../../../testdata/config/koordinator-most-native.yaml"),
            vec![],
        ),
        (
            include_str!("../../../testdata/config/koordinator-least-native.yaml"),
            vec![],
        ),
        (
            include_str!("../../../testdata/config/koordinator-most-plus.yaml"),
            vec![format!("line 27: profiles[0].plugins.score.enabled[0]: {both}")],
        ),
        (
            include_str!("../../../testdata/config/koordinator-least-plus.yaml"),
            vec![format!("line 27: profiles[0].plugins.score.enabled[0]: {both}")],
        ),
    ] {
        let found = check(text, plugins::ALL);
        assert_eq!(found.errors, [], "{text}");
        let found: Vec<String> = found.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(found, want, "{text}");
    }
}

/// Koordinator's own kinds, and what users paste into files of other versions.
#[test]
fn kinds_of_koordinators_arguments() {
    let body = |head: &str| {
        format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- pluginConfig:\n  - \
             name: NodeResourcesFitPlus\n    args: {{{head}resources: {{cpu: {{type: Foo, weight: 0}}, a: {{}}}}}}\n"
        )
    };
    for head in [
        "",
        "kind: NodeResourcesFitPlusArgs, ",
        "apiVersion: kubescheduler.config.k8s.io/v1beta2, kind: ResourceTypesArgs, ",
    ] {
        let found = errors(&body(head));
        assert_eq!(found.len(), 5, "{found:?}");
        let first = "line 6: profiles[0].pluginConfig[0].args.resources.a: Invalid value: \"a\": is not the name of a resource";
        assert!(found[0].starts_with(first), "{found:?}");
    }
    let found = errors(&body("kind: Foo, "));
    assert_eq!(
        found,
        [
            "line 6: profiles[0].pluginConfig[0].args.kind: args for plugin NodeResourcesFitPlus were not of type \
             NodeResourcesFitPlusArgs, got Foo"
        ]
    );
}
