mod effective;
mod kube;
mod source;
mod wrong;

use engine::scheduling::framework::{ConfigVersion, Entry, Point};
use engine::scheduling::plugins;
use engine::scheduling::profile::Profile;

use super::*;

/// A v1 file; the body begins at line 3.
fn v1(body: &str) -> String {
    versioned("v1", body)
}

fn versioned(version: &str, body: &str) -> String {
    format!(
        "apiVersion: kubescheduler.config.k8s.io/{version}\nkind: KubeSchedulerConfiguration\n{body}"
    )
}

/// Everything wrong with a file.
fn errors(text: &str) -> Vec<String> {
    let errors = check(text, plugins::ALL).errors;
    errors.iter().map(ToString::to_string).collect()
}

/// What is said about a good file.
fn warnings(text: &str) -> Vec<String> {
    let found = check(text, plugins::ALL);
    assert_eq!(found.errors, []);
    found.warnings.iter().map(ToString::to_string).collect()
}

fn profiles(text: &str) -> Vec<Profile> {
    let (configuration, _) = load(text).unwrap_or_else(|errors| panic!("{errors}"));
    let built = configuration.profiles(plugins::ALL);
    built.unwrap_or_else(|errors| panic!("{errors}")).0
}

fn at(profile: &Profile, point: Point) -> Vec<&'static str> {
    let order = profile.at(point).iter();
    order.map(|index| profile.plugins()[*index].name).collect()
}

/// Names with weights, as they score.
fn weights(profile: &Profile) -> Vec<(&'static str, i64)> {
    let order = profile.at(Point::Score).iter();
    order
        .map(|index| {
            (
                profile.plugins()[*index].name,
                profile.plugins()[*index].weight,
            )
        })
        .collect()
}

#[test]
fn defaults_of_v1_at_every_point() {
    let (configuration, warned) = load(&v1("")).unwrap();
    assert_eq!(warned, []);
    let election = &configuration.leader_election;
    assert_eq!(
        (
            election.leader_elect,
            election.lease_duration.as_secs(),
            &election.resource_name[..]
        ),
        (true, 15, "kube-scheduler")
    );
    assert_eq!(
        configuration.profiles[0].scheduler_name,
        "default-scheduler"
    );
    let (profiles, _) = configuration.profiles(plugins::ALL).unwrap();
    for (point, want) in [
        (
            Point::PreEnqueue,
            "SchedulingGates DynamicResources DefaultPreemption",
        ),
        (Point::QueueSort, "PrioritySort"),
        (
            Point::PreFilter,
            "NodeAffinity NodePorts NodeResourcesFit VolumeRestrictions NodeVolumeLimits VolumeBinding VolumeZone \
             PodTopologySpread InterPodAffinity DynamicResources NodeDeclaredFeatures",
        ),
        (
            Point::Filter,
            "NodeUnschedulable NodeName TaintToleration NodeAffinity NodePorts NodeResourcesFit VolumeRestrictions \
             NodeVolumeLimits VolumeBinding VolumeZone PodTopologySpread InterPodAffinity DynamicResources \
             NodeDeclaredFeatures",
        ),
        (Point::PostFilter, "DynamicResources DefaultPreemption"),
        (
            Point::PreScore,
            "TaintToleration NodeAffinity NodeResourcesFit VolumeBinding PodTopologySpread InterPodAffinity \
             NodeResourcesBalancedAllocation",
        ),
        (Point::Reserve, "VolumeBinding DynamicResources"),
        (Point::PreBind, "VolumeBinding DynamicResources"),
        (Point::Bind, "DefaultBinder"),
        (Point::Permit, ""),
        (Point::PostBind, ""),
    ] {
        assert_eq!(at(&profiles[0], point), present(want), "{point:?}");
    }
}

/// The names of built-in plugins among these.
fn present(names: &'static str) -> Vec<&'static str> {
    names
        .split_whitespace()
        .filter(|name| plugins::find(name).is_some())
        .collect()
}

#[test]
fn weights_of_their_days() {
    for (version, want) in [
        (
            "v1",
            "TaintToleration 3, NodeAffinity 2, NodeResourcesFit 1, VolumeBinding 1, PodTopologySpread 2, \
             InterPodAffinity 2, DynamicResources 2, NodeResourcesBalancedAllocation 1, ImageLocality 1",
        ),
        (
            "v1beta3",
            "TaintToleration 3, NodeAffinity 2, NodeResourcesFit 1, VolumeBinding 1, PodTopologySpread 2, \
             InterPodAffinity 2, NodeResourcesBalancedAllocation 1, ImageLocality 1",
        ),
        (
            "v1beta2",
            "NodeResourcesBalancedAllocation 1, ImageLocality 1, InterPodAffinity 1, NodeResourcesFit 1, \
             NodeAffinity 1, PodTopologySpread 2, TaintToleration 1",
        ),
        (
            "v1beta1",
            "NodeResourcesBalancedAllocation 1, ImageLocality 1, InterPodAffinity 1, NodeResourcesLeastAllocated 1, \
             NodeAffinity 1, NodePreferAvoidPods 10000, PodTopologySpread 2, TaintToleration 1",
        ),
    ] {
        let profiles = profiles(&versioned(version, ""));
        let found = weights(&profiles[0])
            .into_iter()
            .map(|(name, weight)| format!("{name} {weight}"));
        let want = want
            .split(", ")
            .filter(|pair| plugins::find(pair.split(' ').next().unwrap()).is_some());
        assert_eq!(
            found.collect::<Vec<_>>(),
            want.collect::<Vec<_>>(),
            "{version}"
        );
    }
}

#[test]
fn every_version_holds_back_gated_pods_and_binds() {
    for version in ConfigVersion::ALL {
        let profiles = profiles(&versioned(version.short(), ""));
        for point in [Point::PreFilter, Point::Filter] {
            let has_claims = at(&profiles[0], point).contains(&"DynamicResources");
            assert!(has_claims, "{version} {point:?}");
        }
        assert!(waits_for_devices(&profiles[0]), "{version}");
        assert!(
            at(&profiles[0], Point::PreEnqueue).contains(&"SchedulingGates"),
            "{version}"
        );
        assert_eq!(
            at(&profiles[0], Point::Bind),
            ["DefaultBinder"],
            "{version}"
        );
        assert_eq!(
            at(&profiles[0], Point::QueueSort),
            ["PrioritySort"],
            "{version}"
        );
    }
}

/// Nothing here allocates devices, so a pod that claims some must not be bound.
fn waits_for_devices(profile: &Profile) -> bool {
    use engine::scheduling::evaluate::Cursor;
    use engine::scheduling::preemption::SearchScope;
    use engine::scheduling::scheduler::{Cycle, CycleResult};
    use engine::testing::{node, pod};
    let mut cluster = engine::cluster::Cluster::new();
    cluster.set_node(node("n").allocatable("cpu=4 memory=4Gi pods=10").build());
    let pod = pod("p")
        .with(|pod| pod.resource_claims = vec!["gpu".into()])
        .build();
    let hooks = engine::scheduling::hooks::Hooks::default();
    let now = engine::model::Timestamp(0);
    let mut cycle = Cycle::new(&cluster, profile, &pod, &hooks, now);
    let result = cycle.run(Cursor::default(), SearchScope::Best);
    matches!(result, Ok(CycleResult::NoNode { .. }))
}

#[test]
fn merging() {
    // (plugins of the profile, the beginning of the score list)
    for (body, want) in [
        // A new weight keeps a plugin where it is among those at all points.
        (
            "multiPoint: {enabled: [{name: NodeAffinity, weight: 7}]}",
            vec![
                ("TaintToleration", 3),
                ("NodeAffinity", 7),
                ("NodeResourcesFit", 1),
            ],
        ),
        // Named at the point itself it goes first.
        (
            "score: {enabled: [{name: NodeAffinity, weight: 7}]}",
            vec![
                ("NodeAffinity", 7),
                ("TaintToleration", 3),
                ("NodeResourcesFit", 1),
            ],
        ),
        (
            "score: {disabled: [{name: TaintToleration}]}",
            vec![("NodeAffinity", 2), ("NodeResourcesFit", 1)],
        ),
        (
            "score: {disabled: [{name: '*'}], enabled: [{name: ImageLocality}, {name: NodeAffinity, weight: 5}]}",
            vec![("ImageLocality", 1), ("NodeAffinity", 5)],
        ),
        // Off and on at the same point is on, after all others.
        (
            "score: {disabled: [{name: NodeAffinity}], enabled: [{name: NodeAffinity}]}",
            vec![("TaintToleration", 3), ("NodeResourcesFit", 1)],
        ),
        (
            "multiPoint: {disabled: [{name: '*'}], enabled: [{name: ImageLocality, weight: 4}]}\n    queueSort: \
             {enabled: [{name: PrioritySort}]}\n    bind: {enabled: [{name: DefaultBinder}]}",
            vec![("ImageLocality", 4)],
        ),
        // Off everywhere, and on at one point with its own weight.
        (
            "multiPoint: {disabled: [{name: NodeAffinity}]}\n    score: {enabled: [{name: NodeAffinity, weight: 9}]}",
            vec![("TaintToleration", 3), ("NodeResourcesFit", 1)],
        ),
    ] {
        let profiles = profiles(&v1(&format!("profiles:\n- plugins:\n    {body}\n")));
        let mut found = weights(&profiles[0]);
        let last = *found.last().unwrap();
        found.truncate(want.len());
        assert_eq!(found, want, "{body}");
        if body.ends_with("weight: 9}]}") {
            assert_eq!(last, ("NodeAffinity", 9));
            assert!(!at(&profiles[0], Point::Filter).contains(&"NodeAffinity"));
        }
    }
}

#[test]
fn a_default_plugin_enabled_again() {
    let body = "profiles:\n- plugins:\n    score:\n      enabled:\n      - name: ImageLocality\n        weight: 5\n";
    let twice = "line 7: profiles[0].plugins.score.enabled[0]: plugin \"ImageLocality\" already registered as \
                 \"ScorePlugin\"";
    assert_eq!(errors(&versioned("v1beta1", body)), [twice]);
    for version in ["v1beta2", "v1beta3", "v1"] {
        let profiles = profiles(&versioned(version, body));
        assert!(
            weights(&profiles[0]).contains(&("ImageLocality", 5)),
            "{version}"
        );
    }
}

#[test]
fn warnings_say_what_has_no_effect() {
    assert_eq!(
        warnings(&v1("percentageOfNodesToScore: 50\nprofiles:\n- plugins: {score: {disabled: [{name: ImageLocalit}]}}\n  \
             pluginConfig:\n  - name: DefaultPreemption\n    args: {minCandidateNodesAbsolute: 5}"))
        .into_iter()
        .filter(|warning| !warning.contains("not built in"))
        .collect::<Vec<_>>(),
        [
            "line 3: percentageOfNodesToScore: has no effect: the scheduler scores every node",
            "line 5: profiles[0].plugins.score.disabled[0]: unknown plugin `ImageLocalit` is disabled, did you mean \
             `ImageLocality`?",
            "line 8: profiles[0].pluginConfig[0].args.minCandidateNodesAbsolute: has no effect: preemption \
             considers every node",
        ]
    );
    assert_eq!(
        warnings(&v1("clientConnection:\n  qps: 500\n  burst: 1000")),
        [
            "line 4: clientConnection.qps: has no effect: the scheduler does not limit its requests to the API server",
            "line 5: clientConnection.burst: has no effect: the scheduler does not limit its requests to the API server",
        ]
    );
    // `config show` prints the defaults.
    let defaults = warnings(&v1("clientConnection: {qps: 50, burst: 100}"));
    assert_eq!(defaults, [""; 0]);
    let neutral = warnings(&versioned(
        "v1beta1",
        "profiles:\n- plugins: {score: {enabled: [{name: SelectorSpread}]}}",
    ));
    assert!(
        neutral
            .iter()
            .any(|warning| warning.contains("plugin SelectorSpread has no effect")),
        "{neutral:?}"
    );
}

#[test]
fn a_file_without_a_version() {
    let first = |text: &str| warnings(text)[0].clone();
    assert_eq!(
        first("profiles: []"),
        "the file has no apiVersion: using kubescheduler.config.k8s.io/v1, the newest version"
    );
    let text = "profiles:\n- pluginConfig:\n  - name: InterPodAffinity\n    args:\n      apiVersion: \
                kubescheduler.config.k8s.io/v1beta2\n      kind: InterPodAffinityArgs\n";
    assert_eq!(
        first(text),
        "the file has no apiVersion: using kubescheduler.config.k8s.io/v1beta2, the version of its args"
    );
    assert_eq!(load(text).unwrap().0.version, ConfigVersion::V1beta2);
}

#[test]
fn extenders_come_in_the_order_of_the_engine() {
    let text = v1(
        "extenders:\n- {urlPrefix: http://a, ignorable: true, filterVerb: f}\n- {urlPrefix: http://b, \
                   prioritizeVerb: p, weight: 2, httpTimeout: 100ms, managedResources: [{name: a.b/c, \
                   ignoredByScheduler: true}]}\n",
    );
    let (configuration, _) = load(&text).unwrap();
    let settings = configuration.settings();
    let urls: Vec<&str> = settings
        .extenders
        .iter()
        .map(|extender| &extender.url[..])
        .collect();
    assert_eq!(urls, ["http://b", "http://a"]);
    assert_eq!(settings.extenders[0].weight, Some(2));
    assert_eq!(configuration.extenders[0].timeout().as_millis(), 100);
    assert_eq!(configuration.extenders[1].timeout().as_secs(), 5);
    assert!(configuration.profiles(plugins::ALL).is_ok());
}

/// The resources of extenders replace those of the arguments.
#[test]
fn resources_that_an_extender_manages_are_not_checked() {
    let body = "extenders:\n- urlPrefix: http://a\n  managedResources: [{name: a.b/c, ignoredByScheduler: true}]\n";
    let with_args = "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args: {ignoredResources: [x.y/z]}\n";
    for (text, c, z) in [
        (v1(body), true, false),
        (v1(&format!("{body}{with_args}")), true, false),
        (v1(with_args), false, true),
        (v1(""), false, false),
    ] {
        let profile = profiles(&text).remove(0);
        let fits = |request: &str| {
            use engine::testing::{node, pod};
            let mut cluster = engine::cluster::Cluster::new();
            cluster.set_node(node("n").allocatable("cpu=4 memory=4Gi pods=10").build());
            let pod = pod("p").container(request).build();
            let verdicts = engine::scheduling::evaluate::Scan::new(&cluster, &profile, &pod)
                .verdicts()
                .unwrap();
            verdicts[0].rejection.is_none()
        };
        assert_eq!((fits("a.b/c=1"), fits("x.y/z=1")), (c, z), "{text}");
    }
}

#[test]
fn spread_by_a_list_needs_no_word_in_v1beta1() {
    let body = "profiles:\n- pluginConfig:\n  - name: PodTopologySpread\n    args:\n      defaultConstraints:\n      - \
                {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}\n";
    assert_eq!(errors(&versioned("v1beta1", body)), Vec::<String>::new());
    assert_eq!(
        errors(&v1(body)),
        [
            "line 6: profiles[0].pluginConfig[0].args.defaultingType: Invalid value: \"System\": when \
          .defaultConstraints are not empty"
        ]
    );
}

/// What users of co-location type, in every version that has it.
#[test]
fn files_of_co_location() {
    let on = |profile: &engine::scheduling::profile::Profile, point, name: &str| {
        at(profile, point).contains(&name)
    };
    let mut seen = 0;
    for (name, text, still) in [
        (
            "spread",
            include_str!("../../testdata/config/v1beta3-spread.yaml"),
            None,
        ),
        (
            "binpack",
            include_str!("../../testdata/config/v1beta3-binpack.yaml"),
            None,
        ),
        (
            "custom",
            include_str!("../../testdata/config/v1beta3-custom.yaml"),
            None,
        ),
        (
            "spread",
            include_str!("../../testdata/config/v1beta1-spread.yaml"),
            None,
        ),
        (
            "binpack",
            include_str!("../../testdata/config/v1beta1-binpack.yaml"),
            Some("NodeResourcesMostAllocated"),
        ),
        (
            "custom",
            include_str!("../../testdata/config/v1beta1-custom.yaml"),
            Some("RequestedToCapacityRatio"),
        ),
    ] {
        let own = if text.contains("v1beta1") {
            "v1beta1"
        } else {
            "v1beta3"
        };
        let forms: &[&str] = match own {
            "v1beta3" => &["v1beta2", "v1beta3", "v1"],
            _ => &["v1beta1"],
        };
        for version in forms {
            seen += 1;
            let text = text.replace(own, version);
            let case = format!("{version} {name}");
            let (configuration, warned) =
                load(&text).unwrap_or_else(|errors| panic!("{case}: {errors}"));
            assert_eq!(warned, [], "{case}");
            let profiles = configuration.profiles(plugins::ALL);
            let (profiles, warnings) = profiles.unwrap_or_else(|errors| panic!("{case}: {errors}"));
            let profile = &profiles[0];
            assert_eq!(&*profile.scheduler_name, "katalyst-scheduler", "{case}");
            for point in [Point::Filter, Point::Score] {
                assert!(on(profile, point, "QoSAwareNodeResourcesFit"), "{case}");
                assert!(on(profile, point, "QoSAwareTaintToleration"), "{case}");
            }
            assert!(
                on(profile, Point::PostFilter, "QoSAwarePreemption"),
                "{case}"
            );
            assert!(
                on(profile, Point::PreEnqueue, "QoSAwarePreemption"),
                "{case}"
            );
            assert!(
                !on(profile, Point::PostFilter, "DefaultPreemption"),
                "{case}"
            );
            let weight = |name: &str| weights(profile).into_iter().find(|it| it.0 == name);
            assert_eq!(
                [
                    "QoSAwareNodeResourcesFit",
                    "QoSAwareNodeResourcesBalancedAllocation"
                ]
                .map(|name| weight(name).map(|it| it.1)),
                [Some(if name == "spread" { 4 } else { 15 }), Some(1)],
                "{case}"
            );
            assert!(!on(profile, Point::Score, "NodeResourcesFit"), "{case}");
            assert!(on(profile, Point::Filter, "NodeResourcesFit"), "{case}");
            assert_eq!(
                on(profile, Point::Score, "NodeResourcesLeastAllocated"),
                still.is_some(),
                "{case}"
            );
            let said: Vec<String> = warnings.iter().map(ToString::to_string).collect();
            let idle: Vec<&String> = said
                .iter()
                .filter(|text| text.contains("is not enabled here"))
                .collect();
            match still {
                None => assert!(idle.is_empty(), "{case}: {said:?}"),
                Some(plugin) => assert!(
                    idle.len() == 1
                        && idle[0].ends_with(&format!(
                            "disabling `{plugin}` has no effect: it is not enabled here; \
                             NodeResourcesLeastAllocated still scores"
                        )),
                    "{case}: {said:?}"
                ),
            }
        }
    }
    assert_eq!(seen, 12);
}

#[test]
fn companions_can_be_disabled_by_name() {
    let body = |more: &str| {
        v1(&format!(
            "profiles:\n- plugins:\n    filter: {{enabled: [{{name: QoSAwareNodeResourcesFit}}]}}\n{more}"
        ))
    };
    let profile = |text: &str| {
        let (configuration, _) = load(text).unwrap();
        let (mut profiles, _) = configuration.profiles(plugins::ALL).unwrap();
        profiles.remove(0)
    };
    let on = |text: &str, point, name: &str| at(&profile(text), point).contains(&name);
    let plain = body("");
    assert!(on(&plain, Point::Filter, "QoSAwareTaintToleration"));
    assert!(on(&plain, Point::PostFilter, "QoSAwarePreemption"));
    let filters = profile(&plain);
    let filters = at(&filters, Point::Filter);
    let place = |name: &str| filters.iter().position(|known| *known == name);
    assert!(place("NodeResourceTopology") < place("NodeResourcesFit"));
    let zones = [Point::Filter, Point::Score, Point::Reserve, Point::PreBind];
    let off = body("    multiPoint: {disabled: [{name: NodeResourceTopology}]}\n");
    for point in zones {
        assert!(on(&plain, point, "NodeResourceTopology"), "{point:?}");
        assert!(!on(&off, point, "NodeResourceTopology"), "{point:?}");
    }
    let off = body("    postFilter: {disabled: [{name: QoSAwarePreemption}]}\n");
    assert!(on(&off, Point::PostFilter, "DefaultPreemption"));
    assert!(!on(&off, Point::PostFilter, "QoSAwarePreemption"));
    let other = body("    postFilter: {disabled: [{name: DefaultPreemption}]}\n");
    assert!(!on(&other, Point::PostFilter, "DefaultPreemption"));
    assert!(on(&other, Point::PostFilter, "QoSAwarePreemption"));
    assert!(on(&other, Point::PreEnqueue, "QoSAwarePreemption"));
    let off = body("    multiPoint: {disabled: [{name: QoSAwareTaintToleration}]}\n");
    assert!(!on(&off, Point::Filter, "QoSAwareTaintToleration"));
    assert!(!on(&off, Point::Score, "QoSAwareTaintToleration"));
    let none = body("    postFilter: {disabled: [{name: \"*\"}]}\n");
    assert_eq!(at(&profile(&none), Point::PostFilter), Vec::<&str>::new());
    assert!(!on(&v1(""), Point::Filter, "QoSAwareTaintToleration"));
}

/// NodeResourcesFit ignores reclaimed resources where another plugin checks them, or where its arguments say so.
#[test]
fn reclaimed_resources_and_the_native_fit() {
    use engine::cluster::{Cluster, Update};
    use engine::testing::{node, pod};
    const NEW: &str = "resource.katalyst.kubewharf.io/reclaimed_memory=1";
    const OLD: &str = "katalyst.kubewharf.io/reclaimed_memory=1";
    let qos = "profiles:\n- plugins: {filter: {enabled: [{name: QoSAwareNodeResourcesFit}]}}\n";
    let args = "  pluginConfig: [{name: NodeResourcesFit, args: {ignoredResourceGroups: [a.b]}}]\n";
    let group = "profiles:\n- pluginConfig: [{name: NodeResourcesFit, args: {ignoredResourceGroups: [katalyst.kubewharf.io]}}]\n";
    let today = group.replace("katalyst", "resource.katalyst");
    // (case, configuration, the plugin that refuses: new name, old name, another group)
    for (case, body, new, old, other) in [
        (
            "nothing said",
            String::new(),
            Some("NodeResourcesFit"),
            Some("NodeResourcesFit"),
            Some("NodeResourcesFit"),
        ),
        (
            "the design's group is both",
            group.to_owned(),
            None,
            None,
            Some("NodeResourcesFit"),
        ),
        (
            "today's group is itself",
            today,
            None,
            Some("NodeResourcesFit"),
            Some("NodeResourcesFit"),
        ),
        (
            "lent is no matter of it",
            qos.to_owned(),
            Some("QoSAwareNodeResourcesFit"),
            Some("QoSAwareNodeResourcesFit"),
            Some("NodeResourcesFit"),
        ),
        (
            "in addition to its arguments",
            format!("{qos}{args}"),
            Some("QoSAwareNodeResourcesFit"),
            Some("QoSAwareNodeResourcesFit"),
            None,
        ),
    ] {
        let (configuration, _) = load(&v1(&body)).unwrap();
        let (profiles, _) = configuration.profiles(plugins::ALL).unwrap();
        let mut cluster = Cluster::new();
        cluster.apply(Update::from(node("n").build())).unwrap();
        let refused = |request: &str| {
            let pod = pod("p").container(request).build();
            let mut scan = engine::scheduling::evaluate::Scan::new(&cluster, &profiles[0], &pod);
            scan.verdicts().unwrap()[0].plugin
        };
        assert_eq!(
            (refused(NEW), refused(OLD), refused("a.b/c=1")),
            (new, old, other),
            "{case}"
        );
    }
}

#[test]
fn a_custom_plugin() {
    use engine::scheduling::framework::{Catalog, Configure, NoArgs, Plan, Plugin, Points};
    struct Mine;
    impl Plugin for Mine {
        fn prepare(&self, _: &engine::model::Pod, _: &Catalog, _: &mut Plan) {}

        fn events(&self) -> Vec<engine::scheduling::framework::EventPattern> {
            Vec::new()
        }
    }
    impl Configure for Mine {
        const NAME: &'static str = "Mine";
        const POINTS: Points = Points::of(&[Point::Filter]);
        type Args = NoArgs;

        fn new(_: NoArgs) -> Result<Self, Vec<engine::scheduling::framework::ArgsError>> {
            Ok(Self)
        }
    }
    let mut all = plugins::ALL.to_vec();
    all.push(Entry::of::<Mine>());
    let (configuration, _) = load(&v1(
        "profiles:\n- plugins: {multiPoint: {enabled: [{name: Mine}]}}",
    ))
    .unwrap();
    let (profiles, _) = configuration.profiles(&all).unwrap();
    assert_eq!(at(&profiles[0], Point::Filter).last(), Some(&"Mine"));
}

#[test]
fn random_text_never_panics() {
    let whole = include_str!("../../testdata/config/v1beta3-custom.yaml");
    for cut in (0..whole.len()).step_by(7) {
        let _ = check(&whole[..cut], plugins::ALL);
        let mangled: String = whole
            .chars()
            .enumerate()
            .filter(|(i, _)| i % 97 != cut % 97)
            .map(|(_, c)| c)
            .collect();
        let _ = check(&mangled, plugins::ALL);
    }
    for text in [
        "",
        "[]",
        "1",
        "null",
        "a: &x [*x]",
        "profiles: 1",
        "profiles: [1]",
        "profiles: [{plugins: 1}]",
        "\u{0}",
        "{",
    ] {
        let _ = check(text, plugins::ALL);
    }
}

/// Rules about single plugins belong to their entries.
#[test]
fn the_code_names_no_plugin() {
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = vec![source.join("config.rs")];
    for folder in ["config", "config/effective"] {
        let entries = std::fs::read_dir(source.join(folder)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        files.extend(paths.filter(|path| path.is_file() && !path.ends_with("tests.rs")));
    }
    assert!(files.len() > 10, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        for (line, entry) in code.flat_map(|line| {
            let known = plugins::ALL.iter().chain(plugins::retired::RETIRED);
            known.map(move |entry| (line, entry))
        }) {
            assert!(!line.contains(entry.name), "{}: {line}", file.display());
        }
    }
}
