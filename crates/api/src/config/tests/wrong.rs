//! What is refused, and in which words.

use super::{errors, v1, versioned};

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
            "line 4: profiles[0].plugins.score.enabled[0]: plugin \"ImageLocality\" has weight -1: a weight must not be negative",
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
            "line 4: profiles[0].plugins.filter.enabled[0]: plugin NodeLabel is not supported: use NodeAffinity with addedAffinity",
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
    assert!(not_a_map[0].starts_with("line 6: "), "{not_a_map:?}");
}

/// In the words of kube-scheduler, as far as they fit on a line.
#[test]
fn refused_arguments() {
    for (plugin, args, want) in [
        (
            "NodeResourcesFit",
            "{ignoredResourceGroups: [a/b], scoringStrategy: {type: Foo, resources: [{name: cpu, weight: 101}]}}",
            vec![
                "ignoredResourceGroups[0]: Invalid value: \"a/b\": resource group name can't contain '/'",
                "scoringStrategy.type: Unsupported value: \"Foo\": supported values: \"LeastAllocated\", \
                 \"MostAllocated\", \"RequestedToCapacityRatio\"",
                "scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range \
                 (0, 100]",
            ],
        ),
        (
            "NodeResourcesFit",
            "{scoringStrategy: {type: MostAllocated, requestedToCapacityRatio: {}}}",
            vec![
                "scoringStrategy.requestedToCapacityRatio: Forbidden: must be nil when type is not \
                 RequestedToCapacityRatio",
            ],
        ),
        (
            "NodeResourcesBalancedAllocation",
            "{resources: [{name: cpu, weight: 2}, {name: cpu, weight: 1}]}",
            vec![
                "resources[0].weight: Invalid value: 2: must be 1",
                "resources[1].name: Duplicate value: \"cpu\"",
            ],
        ),
        (
            "PodTopologySpread",
            "{defaultingType: List, defaultConstraints: [{maxSkew: 0, topologyKey: '', whenUnsatisfiable: Foo}]}",
            vec![
                "defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)",
                "defaultConstraints[0].topologyKey: Required value: can not be empty",
                "defaultConstraints[0].whenUnsatisfiable: Unsupported value: \"Foo\": supported values: \
                 \"DoNotSchedule\", \"ScheduleAnyway\"",
            ],
        ),
        (
            "DefaultPreemption",
            "{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}",
            vec![
                "minCandidateNodesPercentage: Invalid value: 0: cannot be zero at the same time as \
                 minCandidateNodesAbsolute",
            ],
        ),
        (
            "DynamicResources",
            "{bindingTimeout: 0s}",
            vec!["bindingTimeout: Invalid value: \"0s\": must be at least 1 second"],
        ),
    ] {
        let body = format!("profiles:\n- pluginConfig:\n  - name: {plugin}\n    args: {args}\n");
        let at = "line 6: profiles[0].pluginConfig[0].args.";
        let want: Vec<String> = want.iter().map(|text| format!("{at}{text}")).collect();
        assert_eq!(errors(&v1(&body)), want, "{plugin}");
    }
}
