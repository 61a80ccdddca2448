//! Required and preferred company, of the pod and of the pods that are there.

use super::*;
use crate::testing::{Lab, PodBuilder, TermBuilder, node, pod, term};

fn plugin(args: &str) -> InterPodAffinity {
    let args = serde_json::from_str(args).unwrap();
    InterPodAffinity::new(args).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// Nodes `n0`, `n1`, .. with labels as `"region=China az=az1"`.
fn lab(args: &str, labels: &[&str]) -> Lab {
    let nodes = labels.iter().enumerate().map(|(i, labels)| {
        let pairs = labels.split_whitespace().map(|pair| pair.split_once('='));
        pairs.fold(node(&format!("n{i}")), |node, pair| {
            let (key, value) = pair.unwrap();
            node.label(key, value)
        })
    });
    nodes.fold(Lab::new(plugin(args)), Lab::node)
}

const NEAR: &str = "UU node(s) didn't match pod affinity rules";
const APART: &str = "U node(s) didn't match pod anti-affinity rules";
const OTHERS: &str = "U node(s) didn't satisfy existing pods anti-affinity rules";

fn foo(name: &str) -> PodBuilder {
    pod(name).label("foo", "bar")
}

#[test]
fn required_affinity() {
    let regions = ["region=China", "region=China az=az1", "region=India"];
    let zones = ["zone=a", "zone=b", ""];
    let with_both = || pod("p").label("foo", "bar").label("service", "s");
    for (case, nodes, placed, wanted, want) in [
        (
            "in a region where one is",
            regions,
            vec![foo("a").on("n0")],
            pod("p").near(term("region", &["foo In bar"])),
            ["ok", "ok", NEAR],
        ),
        (
            "nobody there",
            regions,
            vec![],
            pod("p").near(term("region", &["foo In bar"])),
            [NEAR; 3],
        ),
        (
            "another operator",
            regions,
            vec![foo("a").on("n2")],
            pod("p").near(term("region", &["foo NotIn baz"])),
            [NEAR, NEAR, "ok"],
        ),
        (
            "a pod of another namespace does not count",
            regions,
            vec![foo("a").namespace("other").on("n0")],
            pod("p").near(term("region", &["foo In bar"])),
            [NEAR; 3],
        ),
        (
            "but in a listed one it does",
            regions,
            vec![foo("a").namespace("other").on("n0")],
            pod("p").near(term("region", &["foo In bar"]).namespaces(&["other"])),
            ["ok", "ok", NEAR],
        ),
        (
            "a terminating pod counts",
            regions,
            vec![foo("a").terminating().on("n2")],
            pod("p").near(term("region", &["foo In bar"])),
            [NEAR, NEAR, "ok"],
        ),
        (
            "the first of a group goes where the label is",
            zones,
            vec![],
            foo("p").near(term("zone", &["foo Exists"])),
            ["ok", "ok", NEAR],
        ),
        (
            "one pod must be meant by both terms, and none is: the first of its group",
            zones,
            vec![foo("a").on("n0")],
            with_both()
                .near(term("zone", &["foo Exists"]))
                .near(term("zone", &["service Exists"])),
            ["ok", "ok", NEAR],
        ),
        (
            "the group is elsewhere already",
            zones,
            vec![with_both().on("n1")],
            with_both()
                .near(term("zone", &["foo Exists"]))
                .near(term("zone", &["service Exists"])),
            [NEAR, "ok", NEAR],
        ),
        (
            "two pods do not make one",
            ["region=r zone=z", "region=r zone=z", "region=r"],
            vec![foo("a").on("n0"), pod("b").label("bar", "x").on("n1")],
            foo("p")
                .near(term("region", &["foo Exists"]))
                .near(term("zone", &["bar Exists"])),
            [NEAR; 3],
        ),
        (
            "one pod, two keys",
            ["region=r zone=z", "region=r zone=y", "region=r"],
            vec![foo("a").label("bar", "x").on("n0")],
            foo("p")
                .near(term("region", &["foo Exists"]))
                .near(term("zone", &["bar Exists"])),
            ["ok", NEAR, NEAR],
        ),
        (
            "no selector means nobody, not even itself",
            zones,
            vec![foo("a").on("n0")],
            foo("p").near(term("zone", &[]).with(|term| term.selector = Selector::NOTHING)),
            [NEAR; 3],
        ),
    ] {
        let lab = placed.into_iter().fold(lab("{}", &nodes), Lab::placed);
        assert_eq!(lab.filter(&wanted), want, "{case}");
    }
}

#[test]
fn required_anti_affinity() {
    let nodes = ["zone=a host=0", "zone=a host=1", "zone=b"];
    let avoids = |key: &str| term(key, &["foo Exists"]);
    for (case, placed, wanted, want) in [
        (
            "same host",
            vec![foo("a").on("n0")],
            pod("p").apart(avoids("host")),
            [APART, "ok", "ok"],
        ),
        (
            "same zone",
            vec![foo("a").on("n0")],
            pod("p").apart(avoids("zone")),
            [APART, APART, "ok"],
        ),
        (
            "a key that no node has",
            vec![foo("a").on("n0")],
            pod("p").apart(avoids("rack")),
            ["ok"; 3],
        ),
        (
            "one of two terms",
            vec![foo("a").on("n0"), pod("b").label("x", "y").on("n2")],
            pod("p")
                .apart(avoids("host"))
                .apart(term("zone", &["x Exists"])),
            [APART, "ok", APART],
        ),
        (
            "a placed pod avoids it",
            vec![pod("a").apart(avoids("zone")).on("n1")],
            foo("p"),
            [OTHERS, OTHERS, "ok"],
        ),
        (
            "a placed pod avoids others",
            vec![pod("a").apart(avoids("zone")).on("n1")],
            pod("p"),
            ["ok"; 3],
        ),
        (
            "a placed pod avoids pods of its own namespace",
            vec![pod("a").apart(avoids("zone")).on("n1")],
            foo("p").namespace("other"),
            ["ok"; 3],
        ),
        (
            "its node has no such label",
            vec![pod("a").apart(avoids("host")).on("n2")],
            foo("p"),
            ["ok"; 3],
        ),
        (
            "affinity first, then its own anti-affinity, then that of others",
            vec![
                foo("a").on("n0"),
                foo("b").on("n1"),
                pod("c").apart(avoids("host")).on("n1"),
            ],
            foo("p")
                .near(term("zone", &["foo Exists"]))
                .apart(avoids("host")),
            [APART, APART, NEAR],
        ),
    ] {
        let lab = placed.into_iter().fold(lab("{}", &nodes), Lab::placed);
        assert_eq!(lab.filter(&wanted), want, "{case}");
    }
}

#[test]
fn namespace_selectors() {
    let with = |requirements: &[&str]| {
        term("zone", &["foo Exists"])
            .namespaces(&[])
            .namespace_selector(requirements)
    };
    let lab = || {
        lab("{}", &["zone=a", "zone=b", "zone=c"])
            .namespace("default", &[("team", "red")])
            .namespace("blue", &[("team", "blue")])
            .placed(foo("a").namespace("blue").on("n0"))
            .placed(foo("b").namespace("unknown").on("n1"))
    };
    for (case, requirements, want) in [
        ("one team", vec!["team In blue"], [APART, "ok", "ok"]),
        ("another", vec!["team In red"], ["ok"; 3]),
        (
            "all namespaces, also unknown ones",
            vec![],
            [APART, APART, "ok"],
        ),
        (
            "one that is content with missing labels reaches every namespace",
            vec!["team NotIn blue"],
            [APART, APART, "ok"],
        ),
    ] {
        let wanted = pod("p").apart(with(&requirements));
        assert_eq!(lab().filter(&wanted), want, "{case}");
    }
    for (case, requirements, namespace, want) in [
        ("meant", vec!["team In blue"], "blue", OTHERS),
        ("another team", vec!["team In blue"], "default", "ok"),
        (
            "a namespace without labels",
            vec!["team NotIn blue"],
            "new",
            OTHERS,
        ),
        ("really asked", vec!["team NotIn blue"], "blue", "ok"),
    ] {
        let lab = lab().placed(pod("c").apart(with(&requirements)).on("n2"));
        let verdicts = lab.filter(&foo("p").namespace(namespace));
        assert_eq!(verdicts, ["ok", "ok", want], "{case}");
    }
}

/// Kubernetes stops to look at other pods' terms once no placed pod carries one that matters.
#[test]
fn nominated_pods_matter_unless_the_plugin_skips() {
    let avoids = || term("zone", &["foo Exists"]);
    let before = |lab: Lab| lab.nominated(pod("first").priority(9).apart(avoids()), "n0");
    let lone = before(lab("{}", &["zone=a", "zone=b"]));
    assert_eq!(lone.filter(&foo("p")), ["ok", "ok"], "skipped");
    let elsewhere = lab("{}", &["zone=a", "zone=b"]).placed(pod("c").apart(avoids()).on("n1"));
    assert_eq!(before(elsewhere).filter(&foo("p")), [OTHERS, OTHERS]);
    let own = foo("p").apart(term("zone", &["x Exists"]));
    assert_eq!(lone.filter(&own), [OTHERS, "ok"], "it has terms itself");
}

#[test]
fn a_nominated_pod_is_no_company_before_it_came() {
    let lab = lab("{}", &["zone=a", "zone=b"]).nominated(foo("first").priority(9), "n0");
    let wanted = pod("p").near(term("zone", &["foo Exists"]));
    assert_eq!(lab.filter(&wanted), [NEAR, NEAR]);
}

#[test]
fn pods_that_would_go() {
    let lab = || {
        lab("{}", &["zone=a", "zone=b"])
            .placed(foo("a").on("n0"))
            .placed(pod("b").apart(term("zone", &["foo Exists"])).on("n0"))
    };
    let group = || foo("p").near(term("zone", &["foo Exists"]));
    let avoids = pod("p").apart(term("zone", &["foo Exists"]));
    for (case, wanted, gone, want) in [
        ("it avoids one that stays", &avoids, &["b"][..], APART),
        ("the one it avoids goes", &avoids, &["a"], "ok"),
        ("one that avoids it stays", &group(), &["a"], OTHERS),
        (
            "with its last company it is the first",
            &group(),
            &["a", "b"],
            "ok",
        ),
        ("its company stays", &group(), &["b"], "ok"),
        (
            "all company goes, and it is not its own",
            &pod("p").near(term("zone", &["foo Exists"])),
            &["a"],
            NEAR,
        ),
    ] {
        assert_eq!(lab().filter_without(wanted, "n0", gone), want, "{case}");
    }
}

#[test]
fn selectors_that_do_not_parse() {
    let wrong = pod("p").with(|pod| {
        pod.affinity_errors = vec!["requiredAffinityTerms: a".into(), "preferredX: b".into()];
    });
    assert_eq!(
        lab("{}", &["zone=a"]).filter(&wrong),
        ["UU parsing pod: [requiredAffinityTerms: a, preferredX: b]"]
    );
}

#[test]
fn scores() {
    let near = |weight, key: &str, requirement: &str| {
        pod("p").prefers_near(weight, term(key, &[requirement]))
    };
    let s1 = |name: &str| pod(name).label("security", "S1");
    let seeks = |term: TermBuilder| pod("x").near(term);
    const HARD_0: &str = r#"{"hardPodAffinityWeight":0}"#;
    for (case, args, nodes, placed, wanted, want) in [
        (
            "a region; the third node has none",
            "{}",
            vec!["region=China", "region=India", "az=az1"],
            vec![s1("a").on("n0"), pod("b").label("security", "S2").on("n1")],
            near(5, "region", "security In S1"),
            Some(vec![(5, 100), (0, 0), (0, 0)]),
        ),
        (
            "as often as there are pods",
            "{}",
            vec![
                "region=China",
                "region=India",
                "region=China",
                "region=China",
                "region=India",
            ],
            vec![
                s1("a").on("n0"),
                s1("b").on("n0"),
                s1("c").on("n1"),
                s1("d").on("n2"),
                s1("e").on("n3"),
                s1("f").on("n4"),
            ],
            near(6, "region", "security In S1"),
            Some(vec![(24, 100), (12, 0), (24, 100), (24, 100), (12, 0)]),
        ),
        (
            "two terms",
            "{}",
            vec!["region=China", "region=India", "az=az1"],
            vec![s1("a").on("n0"), pod("b").label("security", "S2").on("n1")],
            pod("p")
                .prefers_near(8, term("region", &["security NotIn S1", "security Exists"]))
                .prefers_near(2, term("region", &["security Exists"])),
            Some(vec![(2, 20), (10, 100), (0, 0)]),
        ),
        (
            "to and from",
            "{}",
            vec!["region=China", "az=az1"],
            vec![
                pod("a")
                    .label("security", "S1")
                    .prefers_near(3, term("region", &["security In S2"]))
                    .on("n0"),
                pod("b")
                    .prefers_apart(5, term("az", &["security In S2"]))
                    .on("n1"),
            ],
            near(5, "region", "security In S1").label("security", "S2"),
            Some(vec![(8, 100), (-5, 0)]),
        ),
        (
            "away",
            "{}",
            vec!["zone=a", "zone=b"],
            vec![s1("a").on("n1")],
            pod("p").prefers_apart(5, term("zone", &["security In S1"])),
            Some(vec![(0, 100), (-5, 0)]),
        ),
        (
            "placed pods that require it",
            "{}",
            vec!["region=China", "region=China", "region=India"],
            vec![
                seeks(term("region", &["security In S1"]))
                    .near(term("region", &["security Exists"]))
                    .on("n0"),
            ],
            s1("p"),
            Some(vec![(2, 100), (2, 100), (0, 0)]),
        ),
        (
            "which do not count without weight",
            HARD_0,
            vec!["region=China", "region=India"],
            vec![seeks(term("region", &["security In S1"])).on("n0")],
            s1("p"),
            None,
        ),
        (
            "equal scores are 0",
            "{}",
            vec!["zone=a", "zone=b"],
            vec![s1("a").on("n0"), s1("b").on("n1")],
            near(5, "zone", "security In S1"),
            Some(vec![(5, 0), (5, 0)]),
        ),
        (
            "entries that cancel out are entries",
            "{}",
            vec!["zone=a", "zone=b"],
            vec![s1("a").on("n0")],
            near(5, "zone", "security In S1").prefers_apart(5, term("zone", &["security Exists"])),
            Some(vec![(0, 0), (0, 0)]),
        ),
        (
            "nobody there",
            "{}",
            vec!["zone=a", "zone=b"],
            vec![],
            near(5, "zone", "security In S1"),
            None,
        ),
        (
            "no node of theirs has the key",
            "{}",
            vec!["zone=a", ""],
            vec![s1("a").on("n1")],
            near(5, "zone", "security In S1"),
            None,
        ),
        (
            "preferences of others, ignored for a pod without",
            r#"{"ignorePreferredTermsOfExistingPods":true}"#,
            vec!["zone=a", "zone=b"],
            vec![
                pod("a")
                    .prefers_near(5, term("zone", &["security In S1"]))
                    .on("n0"),
            ],
            s1("p"),
            None,
        ),
        (
            "but not for a pod with its own",
            r#"{"ignorePreferredTermsOfExistingPods":true}"#,
            vec!["zone=a", "zone=b"],
            vec![
                pod("a")
                    .prefers_near(5, term("zone", &["security In S1"]))
                    .on("n0"),
            ],
            s1("p").prefers_near(1, term("zone", &["x Exists"])),
            Some(vec![(5, 100), (0, 0)]),
        ),
    ] {
        let lab = placed
            .into_iter()
            .enumerate()
            .fold(lab(args, &nodes), |lab, (i, pod)| {
                lab.placed(pod.with(|pod| pod.uid = format!("placed-{i}").into()))
            });
        assert_eq!(lab.scores(&wanted), want, "{case}");
    }
}

#[test]
fn normalising_divides_first() {
    for (raw, want) in [
        (vec![-3, 0, 4], vec![0, 42, 100]),
        (vec![0, 29, 100], vec![0, 28, 100]),
        (vec![0, 57, 58, 100], vec![0, 56, 57, 100]),
        (vec![5, 5, 5], vec![0, 0, 0]),
    ] {
        // The pods that attract so much, each in a zone of its own; the lowest is the zero point.
        let nodes: Vec<String> = (0..raw.len()).map(|i| format!("zone=z{i}")).collect();
        let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
        let lab = raw
            .iter()
            .enumerate()
            .fold(lab("{}", &nodes), |lab, (i, score): (_, &i64)| {
                let seen = term("zone", &["foo Exists"]);
                let placed = pod(&format!("q{i}")).on(&format!("n{i}"));
                lab.placed(if *score < 0 {
                    placed.prefers_apart(-score, seen)
                } else {
                    placed.prefers_near(*score, seen)
                })
            });
        let scores = lab.scores(&foo("p")).unwrap();
        let want: Vec<(i64, i64)> = raw.into_iter().zip(want).collect();
        assert_eq!(scores, want);
    }
}

#[test]
fn arguments() {
    for weight in [-1, 101] {
        let args = format!(r#"{{"hardPodAffinityWeight":{weight}}}"#);
        let errors = InterPodAffinity::new(serde_json::from_str(&args).unwrap()).err();
        let text = format!("Invalid value: {weight}: not in valid range [0, 100]");
        let want = ArgsError::new("hardPodAffinityWeight", text);
        assert_eq!(errors, Some(vec![want]));
    }
}

#[test]
fn hints_of_pods() {
    let sought = || {
        pod("p")
            .near(term("zone", &["foo Exists"]))
            .near(term("host", &["x Exists"]))
    };
    let avoided = || {
        pod("p")
            .apart(term("zone", &["foo Exists"]))
            .apart(term("host", &["x Exists"]))
    };
    let both = || foo("q").label("x", "y").on("n");
    let plain = || pod("q").on("n");
    for (case, wanted, old, new, want) in [
        ("company came", sought(), None, Some(both()), true),
        ("half of it", sought(), None, Some(foo("q").on("n")), false),
        (
            "on no node yet",
            sought(),
            None,
            Some(foo("q").label("x", "y")),
            false,
        ),
        (
            "it became company",
            sought(),
            Some(plain()),
            Some(both()),
            true,
        ),
        (
            "it was company",
            sought(),
            Some(both()),
            Some(both().label("z", "z")),
            false,
        ),
        ("company went", sought(), Some(both()), None, false),
        ("an avoided one went", avoided(), Some(both()), None, true),
        (
            "one of the avoided went",
            avoided(),
            Some(foo("q").on("n")),
            None,
            true,
        ),
        ("another went", avoided(), Some(plain()), None, false),
        (
            "it is no longer avoided",
            avoided(),
            Some(both()),
            Some(plain()),
            true,
        ),
        ("an avoided one came", avoided(), None, Some(both()), false),
        (
            "one that avoids the pod went",
            foo("p"),
            Some(plain().apart(term("zone", &["foo Exists"]))),
            None,
            true,
        ),
        (
            "one that avoids others went",
            pod("p"),
            Some(plain().apart(term("zone", &["foo Exists"]))),
            None,
            false,
        ),
        (
            "the pod itself changed",
            foo("p"),
            Some(foo("p")),
            Some(pod("p")),
            true,
        ),
    ] {
        let lab = lab("{}", &[]);
        assert_eq!(lab.helps_pod(&wanted, old, new), want, "{case}");
    }
}

#[test]
fn hints_of_nodes() {
    let zone = |value: &str| node("n").label("zone", value);
    let sought = || pod("p").near(term("zone", &["foo Exists"]));
    let avoided = || pod("p").apart(term("zone", &["foo Exists"]));
    for (case, wanted, old, new, want) in [
        ("a node with the key", sought(), None, zone("a"), true),
        ("a node without", sought(), None, node("n"), false),
        (
            "the key appeared",
            sought(),
            Some(node("n")),
            zone("a"),
            true,
        ),
        (
            "its value changed",
            sought(),
            Some(zone("a")),
            zone("b"),
            true,
        ),
        ("it went", sought(), Some(zone("a")), node("n"), false),
        (
            "another label",
            sought(),
            Some(zone("a")),
            zone("a").label("x", "y"),
            false,
        ),
        ("any new node", avoided(), None, node("n"), true),
        ("the key went", avoided(), Some(zone("a")), node("n"), true),
        (
            "its value changed",
            avoided(),
            Some(zone("a")),
            zone("b"),
            true,
        ),
        (
            "the key appeared",
            avoided(),
            Some(node("n")),
            zone("a"),
            false,
        ),
        ("refused for others' sake", pod("p"), None, node("n"), true),
    ] {
        let lab = lab("{}", &[]);
        assert_eq!(lab.helps_node(&wanted, old, Some(new)), want, "{case}");
    }
}
