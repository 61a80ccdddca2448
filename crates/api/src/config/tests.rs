use engine::framework::{Entry, Point};
use engine::plugins;
use engine::profile::Profile;

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

/// Everything wrong with a file, or nothing.
fn errors(text: &str) -> Vec<String> {
    match check(text, plugins::ALL) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.0.iter().map(ToString::to_string).collect(),
    }
}

fn warnings(text: &str) -> Vec<String> {
    let warnings = check(text, plugins::ALL).unwrap_or_else(|errors| panic!("{errors}"));
    warnings.iter().map(ToString::to_string).collect()
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

/// Of these names, those that are built in.
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
    for version in Version::ALL {
        let profiles = profiles(&versioned(version.short(), ""));
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

/// What kube-scheduler refuses, in its words.
#[test]
fn refusals() {
    for (body, want) in [
        (
            "parallelism: 0",
            "line 3: parallelism: Invalid value: 0: should be an integer value greater than zero",
        ),
        (
            "percentageOfNodesToScore: 101",
            "line 3: percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
        ),
        (
            "podInitialBackoffSeconds: 0",
            "line 3: podInitialBackoffSeconds: Invalid value: 0: must be greater than 0",
        ),
        (
            "podMaxBackoffSeconds: 0",
            "line 3: podMaxBackoffSeconds: Invalid value: 0: must be greater than or equal to PodInitialBackoffSeconds",
        ),
        (
            "clientConnection: {burst: -1}",
            "line 3: clientConnection.burst: Invalid value: -1: must be non-negative",
        ),
        (
            "leaderElection: {retryPeriod: -1s}",
            "line 3: leaderElection.retryPeriod: Invalid value: \"-1s\": must be greater than zero",
        ),
        (
            "leaderElection: {leaseDuration: 10}",
            "line 3: leaderElection.leaseDuration: time: missing unit in duration \"10\"",
        ),
        (
            "leaderElection: {leaseDuration: 5s}",
            "line 3: leaderElection.leaseDuration: Invalid value: \"5s\": must be greater than `RenewDeadline`, \
             which is 10s",
        ),
        (
            "leaderElection: {renewDeadline: 2s}",
            "line 3: leaderElection.renewDeadline: Invalid value: \"2s\": renewDeadline must be greater than \
             retryPeriod*JitterFactor, which is 2.4s",
        ),
        (
            "leaderElection: {resourceLock: endpoints}",
            "line 3: leaderElection.resourceLock: Invalid value: \"endpoints\": resourceLock value must be \"leases\"",
        ),
        (
            "profiles:\n- {}\n- {schedulerName: a}",
            "line 4: profiles[0].schedulerName: Required value: each of several profiles needs a name",
        ),
        (
            "profiles:\n- {schedulerName: a}\n- {schedulerName: a}",
            "line 5: profiles[1].schedulerName: Duplicate value: \"a\"",
        ),
        (
            "profiles:\n- percentageOfNodesToScore: -1",
            "line 4: profiles[0].percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100]",
        ),
        (
            "profiles:\n- pluginConfig:\n  - name: NodePorts\n  - name: NodePorts",
            "line 6: profiles[0].pluginConfig[1]: Duplicate value: \"NodePorts\"",
        ),
        (
            "profiles:\n- plugins: {filter: {enabled: [{name: EBSLimits}]}}",
            "line 4: profiles[0].plugins.filter.enabled[0]: Invalid value: \"EBSLimits\": was invalid in version \
             \"v1\" (KubeSchedulerConfiguration is version \"kubescheduler.config.k8s.io/v1\")",
        ),
        (
            "profiles:\n- {schedulerName: a}\n- {schedulerName: b, plugins: {queueSort: {disabled: [{name: X}]}}}",
            "line 5: profiles[1].plugins.queueSort: must be the same for all profiles",
        ),
        (
            "profiles:\n- plugins: {score: {enabled: [{name: NodeName}]}}",
            "line 4: profiles[0].plugins.score.enabled[0]: plugin \"NodeName\" does not extend ScorePlugin plugin",
        ),
        (
            "profiles:\n- plugins: {score: {enabled: [{name: ImageLocality}, {name: ImageLocality}]}}",
            "line 4: profiles[0].plugins.score.enabled[1]: plugin \"ImageLocality\" already registered as \
             \"ScorePlugin\"",
        ),
        (
            "profiles:\n- plugins: {queueSort: {disabled: [{name: '*'}]}}",
            "line 4: profiles[0].plugins.queueSort: only one queue sort plugin required for profile with scheduler \
             name \"default-scheduler\", but got 0",
        ),
        (
            "profiles:\n- plugins: {bind: {disabled: [{name: '*'}]}}",
            "line 4: profiles[0].plugins.bind: at least one bind plugin is needed for profile with scheduler name \
             \"default-scheduler\"",
        ),
        (
            "profiles:\n- plugins: {score: {enabled: [{name: ImageLocality, weight: -1}]}}",
            "line 4: profiles[0].plugins.score: plugin \"ImageLocality\" has weight -1: a weight must not be negative",
        ),
        (
            "extenders:\n- {urlPrefix: http://a, prioritizeVerb: p}",
            "line 4: extenders[0].weight: Invalid value: 0: must have a positive weight applied to it",
        ),
        (
            "extenders:\n- {urlPrefix: http://a, managedResources: [{name: cpu}]}",
            "line 4: extenders[0].managedResources[0].name: Invalid value: \"cpu\": is an invalid extended resource name",
        ),
        (
            "extenders:\n- managedResources: [{name: a.b/c}]\n- managedResources: [{name: a.b/c}]",
            "line 5: extenders[1].managedResources[0].name: Invalid value: \"a.b/c\": duplicate extender managed \
             resource name",
        ),
        (
            "extenders:\n- bindVerb: b\n- bindVerb: b",
            "line 3: extenders: Invalid value: \"found 2 extenders implementing bind\": only one extender can \
             implement bind",
        ),
        (
            "extenders:\n- httpTimeout: 5",
            "line 4: extenders[0].httpTimeout: time: missing unit in duration \"5\"",
        ),
    ] {
        assert_eq!(errors(&v1(body)), [want], "{body}");
    }
}

#[test]
fn all_errors_at_once() {
    let found = errors(&v1(
        "parallelism: -1\nprofiles:\n- plugins: {filter: {enabled: [{name: NodeNam}]}}\n",
    ));
    assert_eq!(
        found,
        [
            "line 3: parallelism: Invalid value: -1: should be an integer value greater than zero",
            "line 5: profiles[0].plugins.filter.enabled[0]: plugin \"NodeNam\" does not exist, did you mean `NodeName`?",
        ]
    );
}

#[test]
fn unknown_names_with_their_line_and_the_nearest_name() {
    for (text, want) in [
        (
            v1("profles: []"),
            "line 3: unknown field `profles`, did you mean `profiles`?",
        ),
        (
            v1("profiles:\n- schedulerName: a\n  plugin: {}"),
            "line 5: unknown field `plugin`, did you mean `plugins`?",
        ),
        (
            v1("profiles:\n- plugins:\n    score:\n      enable: []"),
            "line 6: unknown field `enable`, did you mean `enabled`?",
        ),
        (
            v1(
                "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args:\n      ignoredResource: []",
            ),
            "line 7: profiles[0].pluginConfig[0].args: unknown field `ignoredResource`, did you mean `ignoredResources`?",
        ),
        (
            v1(
                "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args:\n      scoringStrategy:\n        \
               tpye: MostAllocated",
            ),
            "line 8: profiles[0].pluginConfig[0].args: unknown field `tpye`, did you mean `type`?",
        ),
        (
            v1("profiles:\n- pluginConfig:\n  - name: NodeResourceFit\n"),
            "line 5: profiles[0].pluginConfig[0]: plugin \"NodeResourceFit\" does not exist, did you mean \
             `NodeResourcesFit`?",
        ),
        (
            v1("parallelism: 1\nparallelism: 2"),
            "line 4: key `parallelism` is given twice",
        ),
        (
            "apiVersion: kubescheduler.config.k8s.io/v1beta4\nkind: KubeSchedulerConfiguration\n"
                .to_owned(),
            "line 1: apiVersion: `kubescheduler.config.k8s.io/v1beta4` is not known, did you mean \
             `kubescheduler.config.k8s.io/v1beta1`?",
        ),
        (
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: Pod\n".to_owned(),
            "line 2: kind: `Pod` is not a scheduler's configuration: use KubeSchedulerConfiguration",
        ),
        (
            versioned(
                "v1beta2",
                "profiles:\n- plugins:\n    multiPoint: {enabled: [{name: NodeName}]}",
            ),
            "line 5: profiles[0].plugins.multiPoint: unknown field in kubescheduler.config.k8s.io/v1beta2: it came \
             with v1beta3",
        ),
        (
            v1("healthzBindAddress: 0.0.0.0:10251"),
            "line 3: healthzBindAddress: unknown field in kubescheduler.config.k8s.io/v1: it went with v1beta3",
        ),
        (
            versioned(
                "v1beta1",
                "profiles:\n- plugins: {filter: {enabled: [{name: NodeLabel}]}}",
            ),
            "line 4: profiles[0]: plugin NodeLabel is not supported: use NodeAffinity with addedAffinity",
        ),
    ] {
        assert_eq!(errors(&text), [want], "{text}");
    }
}

#[test]
fn arguments_are_read_into_the_type_of_the_plugin() {
    let args = |plugin: &str, args: &str| {
        errors(&v1(&format!(
            "profiles:\n- pluginConfig:\n  - name: {plugin}\n    args:\n      {args}\n"
        )))
    };
    let none: Vec<String> = Vec::new();
    assert_eq!(args("NodeName", ""), none);
    assert_eq!(args("InterPodAffinity", "hardPodAffinityWeight: 5"), none);
    assert_eq!(
        args(
            "InterPodAffinity",
            "apiVersion: kubescheduler.config.k8s.io/v1\n      kind: InterPodAffinityArgs\n      hardPodAffinityWeight: 5"
        ),
        none
    );
    for (plugin, given, want) in [
        (
            "InterPodAffinity",
            "hardPodAffinityWeight: 101",
            "line 7: profiles[0].pluginConfig[0].args.hardPodAffinityWeight: Invalid value: 101: not in valid range \
             [0, 100]",
        ),
        (
            "InterPodAffinity",
            "kind: NodeNameArgs",
            "line 7: profiles[0].pluginConfig[0].args.kind: args for plugin InterPodAffinity were not of type \
             InterPodAffinityArgs, got NodeNameArgs",
        ),
        (
            "InterPodAffinity",
            "apiVersion: kubescheduler.config.k8s.io/v1beta3",
            "line 7: profiles[0].pluginConfig[0].args.apiVersion: args for plugin InterPodAffinity are of version \
             kubescheduler.config.k8s.io/v1beta3, but the file is of version kubescheduler.config.k8s.io/v1",
        ),
        (
            "NodeName",
            "x: 1",
            "line 7: profiles[0].pluginConfig[0].args: unknown field `x`",
        ),
    ] {
        assert_eq!(args(plugin, given), [want], "{plugin} {given}");
    }
    let wrong_type = args("InterPodAffinity", "hardPodAffinityWeight: much");
    assert!(
        wrong_type[0].starts_with("line 7: profiles[0].pluginConfig[0].args: "),
        "{wrong_type:?}"
    );
    let not_a_map = args("InterPodAffinity", "- 1");
    assert!(not_a_map[0].starts_with("line 7: "), "{not_a_map:?}");
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
            "line 3: percentageOfNodesToScore: has no effect: every node is scored",
            "line 5: profiles[0].plugins.score.disabled[0]: there is no plugin `ImageLocalit` to disable, did you mean \
             `ImageLocality`?",
            "line 8: profiles[0].pluginConfig[0].args.minCandidateNodesAbsolute: has no effect: every node that may \
             help is looked at",
        ]
    );
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
        "the file has no apiVersion; it is read as kubescheduler.config.k8s.io/v1, the newest"
    );
    let text = "profiles:\n- pluginConfig:\n  - name: InterPodAffinity\n    args:\n      apiVersion: \
                kubescheduler.config.k8s.io/v1beta2\n      kind: InterPodAffinityArgs\n";
    assert_eq!(
        first(text),
        "the file has no apiVersion; it is read as kubescheduler.config.k8s.io/v1beta2, as its args say"
    );
    assert_eq!(load(text).unwrap().0.version, Version::V1beta2);
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

/// The extender's word wins over that of the arguments.
#[test]
fn resources_that_an_extender_manages_are_not_checked() {
    let body = "extenders:\n- managedResources: [{name: a.b/c, ignoredByScheduler: true}]\n";
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
            let verdicts = engine::evaluate::Scan::new(&cluster, &profile, &pod)
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

/// What users of co-location type today. Their QoS plugins are named as missing.
#[test]
fn files_of_co_location() {
    let fit = "QoSAwareNodeResourcesFit";
    let balance = "QoSAwareNodeResourcesBalancedAllocation";
    for (name, text, version, scheduler, missing) in [
        (
            "ignored group",
            include_str!("../../testdata/config/v1beta3-ignored-group.yaml"),
            Version::V1beta3,
            "default-scheduler",
            vec![],
        ),
        (
            "v1beta3 spread",
            include_str!("../../testdata/config/v1beta3-spread.yaml"),
            Version::V1beta3,
            "katalyst-scheduler",
            vec![fit, balance],
        ),
        (
            "v1beta3 binpack",
            include_str!("../../testdata/config/v1beta3-binpack.yaml"),
            Version::V1beta3,
            "katalyst-scheduler",
            vec![fit, balance],
        ),
        (
            "v1beta3 custom",
            include_str!("../../testdata/config/v1beta3-custom.yaml"),
            Version::V1beta3,
            "katalyst-scheduler",
            vec![fit, balance],
        ),
        (
            "v1beta1 spread",
            include_str!("../../testdata/config/v1beta1-spread.yaml"),
            Version::V1beta1,
            "katalyst-scheduler",
            vec![fit, balance],
        ),
        (
            "v1beta1 binpack",
            include_str!("../../testdata/config/v1beta1-binpack.yaml"),
            Version::V1beta1,
            "katalyst-scheduler",
            vec![fit, balance],
        ),
        (
            "v1beta1 custom",
            include_str!("../../testdata/config/v1beta1-custom.yaml"),
            Version::V1beta1,
            "katalyst-scheduler",
            vec![fit, balance],
        ),
    ] {
        let (configuration, warned) =
            load(text).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        assert_eq!(warned, [], "{name}");
        assert_eq!(configuration.version, version, "{name}");
        assert_eq!(
            configuration.profiles[0].scheduler_name, scheduler,
            "{name}"
        );
        let found = match configuration.profiles(plugins::ALL) {
            Ok(_) => Vec::new(),
            Err(errors) => errors.0.into_iter().map(|finding| finding.text).collect(),
        };
        let missing = missing.iter().filter(|name| plugins::find(name).is_none());
        let want = missing.map(|plugin| {
            format!("plugin \"{plugin}\" does not exist: it is missing in this version")
        });
        assert_eq!(found, want.collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn somebody_elses_plugin() {
    use engine::framework::{Catalog, Configure, NoArgs, Plan, Plugin, Points};
    struct Mine;
    impl Plugin for Mine {
        fn prepare(&self, _: &engine::model::Pod, _: &Catalog, _: &mut Plan) {}

        fn events(&self) -> Vec<engine::framework::EventPattern> {
            Vec::new()
        }
    }
    impl Configure for Mine {
        const NAME: &'static str = "Mine";
        const POINTS: Points = Points::of(&[Point::Filter]);
        type Args = NoArgs;

        fn new(_: NoArgs) -> Result<Self, Vec<engine::framework::ArgsError>> {
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
