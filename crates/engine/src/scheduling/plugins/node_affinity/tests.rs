//! Required and preferred nodes, of pods and of the configuration.

use super::*;
use crate::model::{FieldRequirement, NodeTerm};
use crate::testing::{Lab, NodeBuilder, PodBuilder, node, pod, requirement};

fn plugin(args: &str) -> NodeAffinity {
    let args = serde_json::from_str(args).unwrap();
    NodeAffinity::new(args).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// Expressions as `"zone In a b"`; `"metadata.name In n1"` is a requirement on the field.
fn term(expressions: &[&str]) -> NodeTerm {
    let (mut labels, mut fields) = (Vec::new(), Vec::new());
    for expression in expressions {
        match expression.strip_prefix("metadata.name ") {
            None => labels.push(requirement(expression)),
            Some(rest) => {
                let mut words = rest.split(' ');
                fields.push(FieldRequirement {
                    key: "metadata.name".into(),
                    operator: Operator::parse(words.next().unwrap()),
                    values: words.map(Name::from).collect(),
                });
            }
        }
    }
    NodeTerm::new(labels, fields)
}

fn requiring(terms: &[&[&str]]) -> PodBuilder {
    let terms = terms.iter().map(|expressions| term(expressions)).collect();
    pod("p").with(|pod| pod.nodes.affinity = Some(NodeSelector { terms }))
}

fn preferring(terms: &[(i64, &[&str])]) -> PodBuilder {
    let terms = terms.iter().map(|(weight, expressions)| PreferredNodeTerm {
        weight: *weight,
        term: term(expressions),
    });
    let terms = terms.collect();
    pod("p").with(|pod| pod.preferred_nodes = Some(terms))
}

fn labelled(name: &str, labels: &[(&str, &str)]) -> NodeBuilder {
    labels
        .iter()
        .fold(node(name), |node, (key, value)| node.label(key, value))
}

const NO: &str = "UU node(s) didn't match Pod's node affinity/selector";
const NOT_ENFORCED: &str = "UU node(s) didn't match scheduler-enforced node affinity";

#[test]
fn required_nodes() {
    let lab = || {
        Lab::new(plugin("{}"))
            .node(labelled("n1", &[("zone", "a"), ("size", "8")]))
            .node(node("n2"))
    };
    let elsewhere = "UU node(s) didn't satisfy plugin(s) [NodeAffinity]";
    for (case, pod, want) in [
        ("nothing", pod("p"), ["ok", "ok"]),
        ("selector", pod("p").node_selector("zone", "a"), ["ok", NO]),
        (
            "another value",
            pod("p").node_selector("zone", "b"),
            [NO, NO],
        ),
        ("a term", requiring(&[&["zone In a b"]]), ["ok", NO]),
        (
            "all of a term",
            requiring(&[&["zone In a", "size Gt 8"]]),
            [NO, NO],
        ),
        (
            "one of the terms",
            requiring(&[&["size Gt 8"], &["zone DoesNotExist"]]),
            [NO, "ok"],
        ),
        ("no terms", requiring(&[]), [NO, NO]),
        ("an empty term", requiring(&[&[]]), [NO, NO]),
        (
            "a term that does not parse never matches",
            requiring(&[&["size Gt x"], &["zone Exists"]]),
            ["ok", NO],
        ),
        (
            "selector and affinity",
            requiring(&[&["size Gt 7"]]).node_selector("zone", "b"),
            [NO, NO],
        ),
        (
            "a name",
            requiring(&[&["metadata.name In n1"]]),
            ["ok", elsewhere],
        ),
        (
            "a name and a label it lacks",
            requiring(&[&["metadata.name In n2", "zone Exists"]]),
            [elsewhere, NO],
        ),
        (
            "two names in one list: only narrowing takes it",
            requiring(&[&["metadata.name In n1 n2"]]),
            [NO, NO],
        ),
        (
            "another term is about labels",
            requiring(&[&["metadata.name In n2"], &["zone Exists"]]),
            ["ok", "ok"],
        ),
        (
            "not this name",
            requiring(&[&["metadata.name NotIn n1"]]),
            [NO, "ok"],
        ),
        (
            "two names at once",
            requiring(&[&["metadata.name In n1", "metadata.name In n2"]]),
            ["UU pod affinity terms conflict"; 2],
        ),
        (
            "a name that no node has",
            requiring(&[&["metadata.name In n3"]]),
            [elsewhere; 2],
        ),
    ] {
        assert_eq!(lab().filter(&pod), want, "{case}");
    }
}

#[test]
fn required_by_the_configuration() {
    let args = r#"{"addedAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":["a"]}]}]}}}"#;
    let lab = Lab::new(plugin(args))
        .node(labelled("n1", &[("zone", "a")]))
        .node(labelled("n2", &[("zone", "a"), ("disk", "ssd")]))
        .node(labelled("n3", &[("disk", "ssd")]));
    let ssd = pod("p").node_selector("disk", "ssd");
    assert_eq!(lab.filter(&pod("p")), ["ok", "ok", NOT_ENFORCED]);
    assert_eq!(lab.filter(&ssd), [NO, "ok", NOT_ENFORCED]);
    for (case, new, want) in [
        (
            "both match",
            labelled("n", &[("zone", "a"), ("disk", "ssd")]),
            true,
        ),
        ("only the pod's", labelled("n", &[("disk", "ssd")]), false),
        ("only the other", labelled("n", &[("zone", "a")]), false),
    ] {
        assert_eq!(lab.helps_node(&ssd, None, Some(new)), want, "{case}");
    }
    let (old, new) = (
        labelled("n", &[("disk", "ssd")]),
        labelled("n", &[("disk", "ssd"), ("zone", "a")]),
    );
    assert!(
        lab.helps_node(&ssd, Some(old), Some(new)),
        "enforced affinity matches now"
    );
}

#[test]
fn preferences() {
    const KEY: &str = r#"{"addedAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":
        [{"weight":3,"preference":{"matchExpressions":[{"key":"key","operator":"In","values":["value"]}]}}]}}"#;
    let foo = || labelled("foo", &[("foo", "bar")]);
    let key = || labelled("key", &[("key", "value")]);
    let az = || labelled("az", &[("az", "az1")]);
    let all = || labelled("all", &[("foo", "bar"), ("key", "value"), ("az", "az1")]);
    let likes_foo = || preferring(&[(2, &["foo In bar"])]);
    for (case, args, nodes, pod, want) in [
        (
            "one term",
            "{}",
            vec![foo(), key(), az()],
            likes_foo(),
            vec![(2, 100), (0, 0), (0, 0)],
        ),
        (
            "weights add up",
            "{}",
            vec![foo(), all(), key()],
            preferring(&[
                (2, &["foo In bar"]),
                (4, &["key In value"]),
                (5, &["foo In bar", "key In value", "az In az1"]),
            ]),
            vec![(2, 18), (11, 100), (4, 36)],
        ),
        (
            "with the configuration's",
            KEY,
            vec![foo(), key(), all()],
            likes_foo(),
            vec![(2, 40), (3, 60), (5, 100)],
        ),
        (
            "the configuration's alone",
            KEY,
            vec![key(), foo()],
            pod("p"),
            vec![(3, 100), (0, 0)],
        ),
        (
            "nothing matches",
            "{}",
            vec![key(), az()],
            likes_foo(),
            vec![(0, 0), (0, 0)],
        ),
        (
            "terms without effect",
            "{}",
            vec![foo(), key()],
            preferring(&[(0, &["foo In bar"]), (7, &[])]),
            vec![(0, 0), (0, 0)],
        ),
        (
            "weight 0 excuses a term that does not parse",
            "{}",
            vec![foo()],
            preferring(&[(0, &["foo Gt bar"])]),
            vec![(0, 0)],
        ),
    ] {
        let lab = nodes.into_iter().fold(Lab::new(plugin(args)), Lab::node);
        assert_eq!(lab.scores(&pod), Some(want), "{case}");
    }
    let lab = Lab::new(plugin("{}")).node(foo());
    assert_eq!(lab.scores(&pod("p")), None, "no preferences at all");
}

#[test]
fn preferences_that_do_not_parse_abort_the_comparison() {
    let pod = preferring(&[
        (1, &["foo Gt bar"]),
        (0, &["foo Gt baz"]),
        (1, &["foo Exists", "key In"]),
    ]);
    let lab = Lab::new(plugin("{}")).node(node("n"));
    assert_eq!(lab.filter(&pod), ["ok"]);
    assert_eq!(
        lab.failure(&pod).as_deref(),
        Some(
            "running PreScore plugin \"NodeAffinity\": [[0].matchExpressions[0].values[0]: Invalid value: \"bar\": for 'Gt', 'Lt' operators, \
             the value must be an integer, [2].matchExpressions[1].values: Invalid value: null: \
             for 'in', 'notin' operators, values set can't be empty]"
        )
    );
}

#[test]
fn hints() {
    let lab = Lab::new(plugin("{}"));
    let ssd = || labelled("n", &[("disk", "ssd")]);
    for (case, old, new, want) in [
        ("a node that matches", None, ssd(), true),
        ("a node that does not", None, node("n"), false),
        ("it matches now", Some(node("n")), ssd(), true),
        (
            "it matched before",
            Some(ssd()),
            ssd().label("a", "b"),
            false,
        ),
        ("it no longer matches", Some(ssd()), node("n"), false),
    ] {
        let wants = pod("p").node_selector("disk", "ssd");
        assert_eq!(lab.helps_node(&wants, old, Some(new)), want, "{case}");
    }
}

#[test]
fn arguments_are_checked() {
    let args = r#"{"addedAffinity":{
        "requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[
            {"matchExpressions":[{"key":"a","operator":"In"},{"key":"a","operator":"Foo"}]},
            {"matchFields":[{"key":"metadata.name","operator":"In","values":["a","b"]}]}]},
        "preferredDuringSchedulingIgnoredDuringExecution":[
            {"weight":0,"preference":{"matchExpressions":[{"key":"a","operator":"Gt"}]}},
            {"weight":1,"preference":{"matchFields":[{"key":"metadata.name","operator":"Exists"}]}}]}}"#;
    let errors = NodeAffinity::new(serde_json::from_str(args).unwrap())
        .err()
        .unwrap();
    let required = "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let preferred = "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution";
    let operators = r#""In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt""#;
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            format!(
                "{required}[0].matchExpressions[0].values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"
            ),
            format!(
                "{required}[0].matchExpressions[1].operator: Unsupported value: \"Foo\": supported values: {operators}"
            ),
            format!(
                "{required}[1].matchFields[0].values: Invalid value: [\"a\",\"b\"]: must have one element"
            ),
            format!(
                "{preferred}[1].matchFields[0].operator: Unsupported value: \"Exists\": supported values: \"In\", \"NotIn\""
            ),
        ]
    );
}

#[test]
fn an_explanation_names_what_does_not_match() {
    let lab = Lab::new(plugin("{}")).node(labelled("n", &[("zone", "a"), ("size", "8")]));
    let no = "node(s) didn't match Pod's node affinity/selector: ";
    for (case, pod, want) in [
        (
            "the first pair of the node selector",
            pod("p").node_selector("disk", "ssd"),
            "disk=ssd",
        ),
        (
            "the first requirement of a term",
            requiring(&[&["zone In a b", "size Gt 9"]]),
            "size Gt 9",
        ),
        (
            "one of each term",
            requiring(&[&["zone NotIn a"], &["disk Exists"], &["zone In b c"]]),
            "zone NotIn [a] or disk Exists or zone In [b, c]",
        ),
        (
            "a field",
            requiring(&[&["zone Exists", "metadata.name NotIn n"]]),
            "metadata.name NotIn [n]",
        ),
        (
            "no requirement",
            requiring(&[&[]]),
            "a term without requirements",
        ),
        ("no term", requiring(&[]), "no terms"),
        (
            "a term that cannot be read",
            requiring(&[&["metadata.name NotIn n m"]]),
            "an invalid term (matchFields[0].values: Invalid value: [\"n\",\"m\"]: must have one element)",
        ),
    ] {
        assert_eq!(lab.explain(&pod), [[no, want].concat()], "{case}");
    }
    let lab = lab.node(node("m"));
    let only_m = requiring(&[&["metadata.name In m"]]);
    let left_out = "not one of the nodes that NodeAffinity allows";
    assert_eq!(lab.explain(&only_m), [left_out, ""]);
}
