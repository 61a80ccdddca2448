//! Pods as an API server writes them.

use engine::cluster::PriorityClass;
use engine::model::{AuthorClaims, Name, NumaBinding, PreemptionPolicy, QosClass, QosLevel};

use super::*;

fn parsed(json: &str) -> Result<Pod, ParseError> {
    pod(&serde_json::from_str(json).unwrap())
}

#[test]
fn a_pod_with_everything() {
    let pod = parsed(
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop","uid":"u1","labels":{"app":"web","v":"2"},
        "annotations":{"katalyst.kubewharf.io/qos_level":"reclaimed_cores","tidepool.io/debug-scores":"3"},"creationTimestamp":"2026-01-01T00:00:01Z",
        "ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n"},{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"rs","uid":"r","controller":true}],
        "managedFields":[{"anything":{}}]},
        "spec":{"schedulerName":"default-scheduler","priority":7,"preemptionPolicy":"Never","hostNetwork":true,"hostUsers":false,
        "initContainers":[{"name":"side","image":"i0","restartPolicy":"Always","resources":{"requests":{"cpu":"100m"}},"ports":[{"containerPort":1,"hostPort":81}]},
          {"name":"init","image":"i1","ports":[{"hostPort":82}],"resources":{"requests":{"cpu":0.2}}}],
        "containers":[{"name":"c","image":"i2","resources":{"limits":{"cpu":"9"},"requests":{"cpu":1,"memory":"1Gi","storage":"5"}},
          "ports":[{"containerPort":80,"hostPort":80,"hostIP":"127.0.0.1","protocol":"UDP"},{"containerPort":8080}]}],
        "overhead":{"memory":"1Mi"},"nodeSelector":{"disk":"ssd"},
        "affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":["a"]}]}]},
            "preferredDuringSchedulingIgnoredDuringExecution":[{"weight":5,"preference":{"matchExpressions":[{"key":"size","operator":"Gt","values":["4"]}]}}]},
          "podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"labelSelector":{"matchLabels":{"app":"web"}},"topologyKey":"host"}]},
          "podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":3,"podAffinityTerm":{"labelSelector":{},"namespaceSelector":{},"topologyKey":"zone"}}]}},
        "tolerations":[{"key":"k","operator":"Exists","effect":"NoSchedule"},{"operator":"Exists"}],
        "topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule","labelSelector":{"matchLabels":{"app":"web"}},"matchLabelKeys":["v","absent"],"nodeTaintsPolicy":"Honor"}],
        "schedulingGates":[{"name":"g"}],"resourceClaims":[{"name":"gpu","resourceClaimName":"x"}],
        "volumes":[{"name":"a","persistentVolumeClaim":{"claimName":"data"}},{"name":"b","ephemeral":{"volumeClaimTemplate":{}}},
          {"name":"c","gcePersistentDisk":{"pdName":"pd","readOnly":true}},{"name":"d","image":{"reference":"img"}},{"name":"e","emptyDir":{}}]},
        "status":{"phase":"Pending","nominatedNodeName":"n1","startTime":null,"conditions":null}}"#,
    )
    .unwrap();
    assert_eq!(
        (&*pod.name, &*pod.uid, &**pod.namespace()),
        ("web", "u1", "shop")
    );
    assert_eq!(
        (pod.priority, pod.preemption_policy, pod.qos),
        (7, PreemptionPolicy::Never, QosClass::Lent)
    );
    assert_eq!(pod.open_priority, None, "it is filled in");
    assert_eq!(pod.show_scores, Some(3));
    assert_eq!(pod.created.0, 1_767_225_601_000_000_000);
    assert_eq!(pod.requests.wanted.get(&Resource::Cpu), 1100);
    assert_eq!(
        pod.requests.wanted.get(&Resource::Memory),
        (1 << 30) + (1 << 20)
    );
    let ports: Vec<(&str, &str, i32)> = pod
        .kind
        .ports
        .iter()
        .map(|p| (&*p.ip, &*p.protocol, p.port))
        .collect();
    assert_eq!(
        ports,
        [("0.0.0.0", "TCP", 81), ("127.0.0.1", "UDP", 80)],
        "sidecars first, ordinary init containers not"
    );
    assert_eq!(
        pod.kind.anti_affinity[0].namespaces,
        [Name::from("shop")],
        "its own namespace by default"
    );
    assert!(pod.kind.preferred_affinity[0].term.namespaces.is_empty());
    assert_eq!(
        pod.spread[0].selector.requirements().len(),
        2,
        "keys that the pod has are merged in"
    );
    assert_eq!(
        (pod.spread[0].node_taints, pod.spread[0].node_affinity),
        (Inclusion::Honor, Inclusion::Honor)
    );
    assert_eq!(
        pod.owner.as_ref().map(|owner| &*owner.name),
        Some("rs"),
        "the controller"
    );
    assert_eq!(
        (pod.images.len(), pod.image_volumes.len(), pod.volumes.len()),
        (3, 1, 5)
    );
    assert_eq!(
        pod.kind.disks,
        [Disk::GcePersistentDisk {
            name: "pd".into(),
            read_only: true
        }]
    );
    assert_eq!(pod.kind.claims, [Name::from("data")]);
    assert_eq!(
        pod.needed_features,
        [Name::from("UserNamespacesHostNetworkSupport")]
    );
    assert_eq!(pod.nominated_node.as_deref(), Some("n1"));
    assert!(
        pod.preferred_nodes.is_some() && pod.nodes.pairs.is_some() && pod.nodes.affinity.is_some()
    );
    assert_eq!(
        (
            pod.scheduling_gates.len(),
            pod.resource_claims.len(),
            pod.tolerations.len()
        ),
        (1, 1, 2)
    );
}

#[test]
fn the_least_pod() {
    let pod =
        parsed(r#"{"metadata":{"name":"p"},"spec":{"containers":null},"status":null}"#).unwrap();
    assert_eq!(pod.priority, 0);
    assert_eq!(pod.qos, QosClass::Online);
    assert!(pod.node.is_none() && pod.nodes.is_absent());
}

#[test]
fn a_missing_priority_comes_from_the_class() {
    let open = |class: Option<&str>, preemption_policy| OpenPriority {
        class: class.map(Name::from),
        preemption_policy,
    };
    for (spec, want) in [
        (r#""priorityClassName":"high""#, open(Some("high"), None)),
        (
            r#""priority":null,"preemptionPolicy":"Never""#,
            open(None, Some(PreemptionPolicy::Never)),
        ),
    ] {
        let pod = format!(r#"{{"metadata":{{"name":"p"}},"spec":{{{spec}}}}}"#);
        assert_eq!(parsed(&pod).unwrap().open_priority, Some(want), "{spec}");
    }
    let class =
        r#"{"metadata":{"name":"high"},"value":7,"globalDefault":true,"preemptionPolicy":"Never"}"#;
    let class = crate::parse::priority_class(&serde_json::from_str(class).unwrap());
    let want = PriorityClass {
        name: "high".into(),
        value: 7,
        global_default: true,
        preemption_policy: PreemptionPolicy::Never,
    };
    assert_eq!(class, want);
}

#[test]
fn sizes_in_progress() {
    let pod = parsed(
        r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}],
            "initContainers":[{"name":"i","resources":{"requests":{"cpu":"1"}}}]},
        "status":{"containerStatuses":[{"name":"c","resources":{"requests":{"cpu":"2"}},"allocatedResources":{"cpu":"3"}}],
            "initContainerStatuses":[{"name":"i","resources":{"requests":{"cpu":"9"}}}]}}"#,
    )
    .unwrap();
    let cpu = |amounts: &engine::model::Amounts| amounts.get(&Resource::Cpu);
    assert_eq!(
        (cpu(&pod.requests.placed), cpu(&pod.requests.wanted)),
        (3000, 1000)
    );
}

#[test]
fn what_cannot_be_read_is_named() {
    for (json, want) in [
        (
            r#"{"metadata":{"name":"p","namespace":"ns"},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"lots"}}}]}}"#,
            "pod ns/p: cpu of spec.containers: `lots` is not a quantity: use a number such as 2, 0.5, 500m, 1e3, 128Mi or 1G",
        ),
        (
            r#"{"metadata":{"name":"p"},"spec":{"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"z","whenUnsatisfiable":"Maybe"}]}}"#,
            "pod p: spec.topologySpreadConstraints.whenUnsatisfiable is `Maybe`: use DoNotSchedule or ScheduleAnyway",
        ),
    ] {
        assert_eq!(parsed(json).unwrap_err().to_string(), want);
    }
}

#[test]
fn a_selector_that_does_not_parse_empties_its_group_and_is_remembered() {
    let pod = parsed(
        r#"{"metadata":{"name":"p"},"spec":{"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[
            {"labelSelector":{"matchExpressions":[{"key":"a","operator":"Gt","values":["1"]}]},"topologyKey":"z"},
            {"labelSelector":{},"topologyKey":"z"}]}}}}"#,
    )
    .unwrap();
    assert!(pod.kind.anti_affinity.is_empty());
    assert_eq!(
        pod.affinity_errors,
        ["requiredAntiAffinityTerms: \"Gt\" is not a valid label selector operator"]
    );
}

#[test]
fn words_of_katalyst() {
    const REQUESTS: &str = r#""resources":{"requests":{"cpu":"1"}}"#;
    let annotated = |annotations: &str, container: &str| {
        parsed(&format!(
            r#"{{"metadata":{{"name":"p","labels":{{"katalyst.kubewharf.io/qos_level":"system_cores"}},"annotations":{{{annotations}}}}},
            "spec":{{"containers":[{{"name":"c"{container}}}]}}}}"#
        ))
        .unwrap()
    };
    let level = |value: &str| format!(r#""katalyst.kubewharf.io/qos_level":"{value}""#);
    let binding = |exclusive: &str| {
        format!(
            r#""katalyst.kubewharf.io/memory_enhancement":"{{\"numa_binding\":\"true\",\"numa_exclusive\":\"{exclusive}\"}}""#
        )
    };
    let broken = r#""katalyst.kubewharf.io/memory_enhancement":"{\"numa_binding\":true}""#;
    // (annotations, container, level, numa binding, what the warning names)
    for (annotations, container, want, is_bound, warning) in [
        (String::new(), "", QosLevel::Shared, false, None),
        (
            level("reclaimed_cores"),
            "",
            QosLevel::Reclaimed,
            false,
            None,
        ),
        (
            level("dedicated_cores"),
            "",
            QosLevel::Dedicated,
            false,
            None,
        ),
        (
            level("Reclaimed_Cores"),
            "",
            QosLevel::Shared,
            false,
            Some(
                "`Reclaimed_Cores` is not a QoS level: use system_cores, dedicated_cores, shared_cores or reclaimed_cores",
            ),
        ),
        (
            level(""),
            "",
            QosLevel::Shared,
            false,
            Some("`` is not a QoS level"),
        ),
        (
            binding("false"),
            "",
            QosLevel::Shared,
            true,
            Some("has no effect: it needs katalyst.kubewharf.io/qos_level: dedicated_cores"),
        ),
        (
            format!("{},{}", level("reclaimed_cores"), binding("true")),
            "",
            QosLevel::Reclaimed,
            true,
            Some(
                "numa_binding in annotation katalyst.kubewharf.io/memory_enhancement has no effect",
            ),
        ),
        (
            format!("{},{}", level("dedicated_cores"), binding("true")),
            r#","resources":{"requests":{"kubernetes.io/batch-cpu":"1"}}"#,
            QosLevel::Dedicated,
            true,
            Some("it needs katalyst.kubewharf.io/qos_level: dedicated_cores, and no mid, batch"),
        ),
        (
            format!("{},{}", level("dedicated_cores"), binding("True")),
            "",
            QosLevel::Dedicated,
            true,
            Some("found `True`; use \"true\" or \"false\""),
        ),
        (
            broken.to_owned(),
            "",
            QosLevel::Shared,
            false,
            Some("must be a JSON object of strings"),
        ),
        (
            level("reclaimed_cores"),
            &format!(",{REQUESTS}")[..],
            QosLevel::Reclaimed,
            false,
            Some("a reclaimed_cores pod requests cpu, which uses"),
        ),
        (
            level("reclaimed_cores"),
            r#","resources":{"requests":{"resource.katalyst.kubewharf.io/reclaimed_milicpu":"1"}}"#,
            QosLevel::Reclaimed,
            false,
            Some(
                "requests `resource.katalyst.kubewharf.io/reclaimed_milicpu`, which is not a reclaimed resource",
            ),
        ),
    ] {
        let pod = annotated(&annotations, container);
        assert_eq!(pod.level, want, "{annotations}");
        assert_eq!(pod.enhancements.numa_binding, is_bound, "{annotations}");
        match warning {
            None => assert_eq!(pod.warnings, Vec::<String>::new(), "{annotations}"),
            Some(text) => assert!(
                pod.warnings.len() == 1 && pod.warnings[0].contains(text),
                "{:?}",
                pod.warnings
            ),
        }
    }
}

#[test]
fn zones_are_exclusive_unless_the_pod_says_otherwise() {
    let of = |options: &str, node: &str, zones: &str| {
        let options = options.replace('"', "\\\"");
        parsed(&format!(
            r#"{{"metadata":{{"name":"p","annotations":{{"katalyst.kubewharf.io/qos_level":"dedicated_cores",
            "katalyst.kubewharf.io/memory_enhancement":"{options}","tidepool.io/numa-zones":"{zones}"}}}},
            "spec":{{"nodeName":"{node}","containers":[{{"name":"c"}}]}}}}"#
        ))
        .unwrap()
    };
    for (options, want) in [
        (r#"{"numa_binding":"true"}"#, Some(NumaBinding::Exclusive)),
        (
            r#"{"numa_binding":"true","numa_exclusive":"true"}"#,
            Some(NumaBinding::Exclusive),
        ),
        (
            r#"{"numa_binding":"true","numa_exclusive":"false"}"#,
            Some(NumaBinding::Shared),
        ),
        (r#"{"numa_binding":"false","numa_exclusive":"true"}"#, None),
        (r#"{"numa_exclusive":"true"}"#, None),
        ("{}", None),
    ] {
        assert_eq!(of(options, "", "0").numa_binding(), want, "{options}");
    }
    let on = r#"{"numa_binding":"true"}"#;
    let waits = of(on, "", "1");
    assert_eq!(waits.zones, None, "a pod that waits has no zones");
    // What its author wrote is known, so that the Binding can replace it.
    assert_eq!(waits.claims.zones.unwrap().to_string(), "1");
    assert_eq!(of(on, "", "0-3").claims.zones.unwrap().to_string(), "");
    assert_eq!(of(on, "n", "1").claims, AuthorClaims::default());
    let bound = of(on, "n", "1,0");
    assert_eq!(bound.zones.unwrap().to_string(), "0,1");
    let edited = of(on, "n", "0-3");
    assert_eq!(edited.zones, None);
    let want = "ignoring invalid annotation tidepool.io/numa-zones: `0-3` is not a NUMA zone: use ids from 0 to 63, separated by commas";
    assert_eq!(edited.warnings, [want]);
}

#[test]
fn the_kubelet_may_pin_guaranteed_pods_with_whole_cores() {
    for (class, cpu, want) in [
        ("Guaranteed", "2", true),
        ("Guaranteed", "2000m", true),
        ("Guaranteed", "1500m", false),
        ("Burstable", "2", false),
        ("", "2", false),
    ] {
        let pod = parsed(&format!(
            r#"{{"metadata":{{"name":"p"}},"spec":{{"containers":[{{"name":"c","resources":{{"requests":{{"cpu":"{cpu}"}}}}}}]}},
            "status":{{"qosClass":"{class}"}}}}"#
        ));
        assert_eq!(pod.unwrap().pinned_cores, want, "{class} {cpu}");
    }
}
