//! Errors and their messages.

use super::{errors, v1, versioned, warnings};

/// What kube-scheduler notices later than here, or not at all.
#[test]
fn refusals_of_our_own() {
    for (body, want) in [
        (
            "leaderElection: {renewDeadline: 2s}",
            "line 3: leaderElection.renewDeadline: Invalid value: \"2s\": renewDeadline must be greater than \
             retryPeriod*JitterFactor, which is 2.4s",
        ),
        (
            "profiles:\n- plugins: {score: {enabled: [{name: ImageLocality, weight: -1}]}}",
            "line 4: profiles[0].plugins.score.enabled[0]: plugin \"ImageLocality\" has weight -1: a weight must not be negative",
        ),
        (
            "profiles:\n- plugins: {score: {enabled: [{weight: 1}]}}",
            "line 4: profiles[0].plugins.score.enabled[0]: Required value: name of the plugin",
        ),
        (
            "profiles:\n- pluginConfig: [{args: {}}]",
            "line 4: profiles[0].pluginConfig[0]: Required value: name of the plugin",
        ),
        (
            "profiles:\n- pluginConfig:\n  - name: PodTopologySpread\n    args: {defaultingType: List, defaultConstraints: \
             [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, nodeTaintsPolicy: Foo}]}",
            "line 6: profiles[0].pluginConfig[0].args.defaultConstraints[0].nodeTaintsPolicy: Unsupported value: \"Foo\": \
             supported values: \"Honor\", \"Ignore\"",
        ),
    ] {
        assert_eq!(errors(&v1(body)), [want], "{body}");
    }
}

#[test]
fn invalid_extenders() {
    let url = "must be a URL that verbs can be added to, such as https://host:8888/scheduler";
    for given in [
        "not a url",
        "",
        "ftp://x/y",
        "http://",
        "x",
        "http://a/?b=c",
    ] {
        let text = v1(&format!(
            "extenders:\n- filterVerb: f\n  urlPrefix: '{given}'\n"
        ));
        let want = format!("line 5: extenders[0].urlPrefix: Invalid value: \"{given}\": {url}");
        assert_eq!(errors(&text), [want]);
    }
    let verb = "must be the path part of a URL";
    for (field, given) in [
        ("filterVerb", "f ilter"),
        ("bindVerb", "b?x"),
        ("preemptVerb", "p#"),
    ] {
        let text = v1(&format!(
            "extenders:\n- urlPrefix: https://a/b/\n  {field}: '{given}'\n"
        ));
        let want = format!("line 5: extenders[0].{field}: Invalid value: \"{given}\": {verb}");
        assert_eq!(errors(&text), [want]);
    }
    let good = "extenders:\n- {urlPrefix: 'http://[::1]:80/a', filterVerb: v1/filter}\n";
    assert_eq!(errors(&v1(good)), [""; 0]);
}

#[test]
fn addresses_of_older_versions() {
    let address = "must be a valid socket address format, (e.g. 0.0.0.0:10254 or [::]:10254)";
    let port = "must be between 1 and 65535, inclusive";
    let ip = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    for (given, want) in [
        ("0.0.0.0:10251", vec![]),
        ("'[::]:0'", vec![]),
        ("''", vec![]),
        ("localhost", vec![address]),
        ("localhost:99999", vec![port, ip]),
    ] {
        for field in ["healthzBindAddress", "metricsBindAddress"] {
            let want: Vec<String> = want
                .iter()
                .map(|fault| format!("line 3: {field}: Invalid value: \"{given}\": {fault}"))
                .collect();
            let text = versioned("v1beta2", &format!("{field}: {given}"));
            assert_eq!(errors(&text), want, "{given}");
        }
    }
}

/// Found in one go, whatever kind of error it is; and what follows from another error is not said.
#[test]
fn wrong_types() {
    let found = errors(&v1(
        "parallelism: \"4\"\nprofiles:\n- schedulerName: 5\n  plugins:\n    score:\n      enabled:\n      \
                            - name: ImageLocality\n        weight: \"3\"\n      - TaintToleration\n  pluginConfig:\n  - name: \
                            InterPodAffinity\n    args: {hardPodAffinityWeight: much, ignorePreferredTermsOfExistingPods: 1, \
                            foo: 1}\n  - name: NodeResourcesFit\n    args: 7\npercentageOfNodesToScore: 101\n",
    ));
    let args = "profiles[0].pluginConfig[0].args";
    let text = "only text (numbers, and true and false, in quotes) is allowed";
    assert_eq!(
        found,
        [
            "line 3: parallelism: found the text \"4\": only a whole number is allowed".to_owned(),
            format!("line 5: profiles[0].schedulerName: found the number 5: {text}"),
            "line 10: profiles[0].plugins.score.enabled[0].weight: found the text \"3\": only a whole number is allowed"
                .to_owned(),
            "line 11: profiles[0].plugins.score.enabled[1]: found the text \"TaintToleration\": only a map of fields is \
             allowed"
                .to_owned(),
            "line 17: percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]".to_owned(),
            "line 16: profiles[0].pluginConfig[1].args: found the number 7: only a map of fields is allowed".to_owned(),
            format!("line 14: {args}.hardPodAffinityWeight: found the text \"much\": only a whole number is allowed"),
            format!("line 14: {args}.ignorePreferredTermsOfExistingPods: found the number 1: only true or false is allowed"),
            format!(
                "line 14: {args}.foo: unknown field `foo`; known: hardPodAffinityWeight, \
                 ignorePreferredTermsOfExistingPods"
            ),
        ]
    );
}

#[test]
fn retired_names_with_arguments() {
    let body = |plugin: &str| {
        versioned(
            "v1beta1",
            &format!(
                "profiles:\n- pluginConfig:\n  - name: {plugin}\n    args: {{presentLabels: [a]}}\n  plugins: {{score: {{enabled: [{{name: {plugin}}}]}}}}\n"
            ),
        )
    };
    for (plugin, instead) in [
        ("NodeLabel", "use NodeAffinity with addedAffinity"),
        (
            "ServiceAffinity",
            "use pod affinity or topology spread constraints",
        ),
    ] {
        assert_eq!(
            errors(&body(plugin)),
            [format!(
                "line 7: profiles[0].plugins.score.enabled[0]: plugin {plugin} is not supported: {instead}"
            )]
        );
    }
    let neutral = warnings(&body("SelectorSpread"));
    assert!(
        neutral[0].contains("plugin SelectorSpread has no effect"),
        "{neutral:?}"
    );
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
            "line 5: profiles[0].plugins.filter.enabled[0]: FilterPlugin \"NodeNam\" does not exist, did you mean `NodeName`?",
        ]
    );
}

#[test]
fn unknown_names_with_their_line_and_the_nearest_name() {
    for (text, want) in [
        (
            "piVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
                .to_owned(),
            "line 1: piVersion: unknown field `piVersion`, did you mean `apiVersion`?",
        ),
        (
            v1("profles: []"),
            "line 3: profles: unknown field `profles`, did you mean `profiles`?",
        ),
        (
            v1("profiles:\n- schedulerName: a\n  plugin: {}"),
            "line 5: profiles[0].plugin: unknown field `plugin`, did you mean `plugins`?",
        ),
        (
            v1("profiles:\n- plugins:\n    score:\n      enable: []"),
            "line 6: profiles[0].plugins.score.enable: unknown field `enable`, did you mean `enabled`?",
        ),
        (
            v1(
                "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args:\n      ignoredResource: []",
            ),
            "line 7: profiles[0].pluginConfig[0].args.ignoredResource: unknown field `ignoredResource`, did you mean `ignoredResources`?",
        ),
        (
            v1(
                "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args:\n      scoringStrategy:\n        \
               tpye: MostAllocated",
            ),
            "line 8: profiles[0].pluginConfig[0].args.scoringStrategy.tpye: unknown field `tpye`, did you mean `type`?",
        ),
        (
            v1("profiles:\n- pluginConfig:\n  - name: NodeResourceFit\n"),
            "line 5: profiles[0].pluginConfig[0]: plugin \"NodeResourceFit\" does not exist, did you mean \
             `NodeResourcesFit`?",
        ),
        (
            v1("parallelism: 1\nparallelism: 2"),
            "line 4: parallelism: duplicate key `parallelism`",
        ),
        (
            "apiVersion: kubescheduler.config.k8s.io/v1beta4\nkind: KubeSchedulerConfiguration\n"
                .to_owned(),
            "line 1: apiVersion: unknown version `kubescheduler.config.k8s.io/v1beta4`, did you mean \
             `kubescheduler.config.k8s.io/v1beta1`?",
        ),
        (
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: Pod\n".to_owned(),
            "line 2: kind: unknown kind `Pod`: use KubeSchedulerConfiguration",
        ),
        (
            versioned(
                "v1beta2",
                "profiles:\n- plugins:\n    multiPoint: {enabled: [{name: NodeName}]}",
            ),
            "line 5: profiles[0].plugins.multiPoint: unknown field in kubescheduler.config.k8s.io/v1beta2: it was \
             added in v1beta3",
        ),
        (
            v1("healthzBindAddress: 0.0.0.0:10251"),
            "line 3: healthzBindAddress: unknown field in kubescheduler.config.k8s.io/v1: it was removed in v1beta3",
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
            "line 7: profiles[0].pluginConfig[0].args.x: unknown field `x`",
        ),
    ] {
        assert_eq!(args(plugin, given), [want], "{plugin} {given}");
    }
    assert_eq!(
        args("InterPodAffinity", "- 1"),
        ["line 6: profiles[0].pluginConfig[0].args: found a list: only a map of fields is allowed"]
    );
}
