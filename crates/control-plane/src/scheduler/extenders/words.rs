//! Answers of extenders. Their keys are read whatever the case, as Go reads them.

use engine::extender::{Answer, Said};
use engine::model::Name;
use serde_json::Value;

/// A field by its name; `null` if it is not there.
fn field<'a>(object: &'a Value, name: &str) -> &'a Value {
    let fields = object.as_object().into_iter().flatten();
    let mut found = fields.filter(|(key, _)| key.eq_ignore_ascii_case(name));
    found.next().map_or(&Value::Null, |(_, value)| value)
}

/// What the extender complains of, if anything.
pub(super) fn complaint(answer: &Value) -> Result<(), String> {
    match field(answer, "Error").as_str() {
        None | Some("") => Ok(()),
        Some(text) => Err(text.to_owned()),
    }
}

fn names(values: &Value) -> Option<Vec<Name>> {
    let values = values.as_array()?.iter();
    Some(values.filter_map(Value::as_str).map(Name::from).collect())
}

fn messages(object: &Value) -> Vec<(Name, String)> {
    let entries = object.as_object().into_iter().flatten();
    entries
        .map(|(node, text)| {
            let text = text.as_str().unwrap_or_default();
            (Name::from(node.as_str()), text.to_owned())
        })
        .collect()
}

/// Names are for those who keep the nodes themselves; whoever is shown whole nodes answers with whole nodes.
pub(super) fn filtered(answer: &Value, node_cache_capable: bool) -> Answer {
    complaint(answer)?;
    let whole = || {
        let items = field(field(answer, "Nodes"), "items").as_array();
        let items = items.into_iter().flatten();
        let names = items.filter_map(|node| node["metadata"]["name"].as_str());
        names.map(Name::from).collect()
    };
    let names = names(field(answer, "NodeNames")).filter(|_| node_cache_capable);
    Ok(Said::Filter {
        nodes: names.unwrap_or_else(whole),
        failed: messages(field(answer, "FailedNodes")),
        unresolvable: messages(field(answer, "FailedAndUnresolvableNodes")),
    })
}

pub(super) fn prioritized(answer: &Value) -> Answer {
    let scores = answer.as_array().ok_or("its scores are no list")?.iter();
    let score = |score: &Value| {
        let host = field(score, "Host").as_str()?;
        Some((
            Name::from(host),
            field(score, "Score").as_i64().unwrap_or(0),
        ))
    };
    Ok(Said::Prioritize(scores.filter_map(score).collect()))
}

pub(super) fn preempted(answer: &Value) -> Answer {
    let nodes = field(answer, "NodeNameToMetaVictims").as_object();
    let nodes = nodes.into_iter().flatten().map(|(node, victims)| {
        let pods = field(victims, "Pods").as_array().into_iter().flatten();
        let uids = pods.filter_map(|pod| field(pod, "UID").as_str());
        let violations = field(victims, "NumPDBViolations").as_u64().unwrap_or(0);
        (
            Name::from(node.as_str()),
            uids.map(Name::from).collect(),
            usize::try_from(violations).unwrap_or(usize::MAX),
        )
    });
    Ok(Said::Preempt(nodes.collect()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_of_any_case() {
        let filter = |nodes: &[&str], failed: &[(&str, &str)]| Said::Filter {
            nodes: nodes.iter().map(|it| Name::from(*it)).collect(),
            failed: failed
                .iter()
                .map(|(n, t)| (Name::from(*n), (*t).to_owned()))
                .collect(),
            unresolvable: vec![],
        };
        for (case, capable, answer, want) in [
            (
                "names",
                true,
                json!({"NodeNames": ["a"], "FailedNodes": {"b": "no"}, "Error": ""}),
                Ok(filter(&["a"], &[("b", "no")])),
            ),
            (
                "whole nodes, lower case",
                false,
                json!({"nodes": {"items": [{"metadata": {"name": "a"}}]}, "nodenames": null}),
                Ok(filter(&["a"], &[])),
            ),
            (
                "names from one that was shown whole nodes",
                false,
                json!({"NodeNames": ["b"], "Nodes": {"items": [{"metadata": {"name": "a"}}]}}),
                Ok(filter(&["a"], &[])),
            ),
            (
                "whole nodes from one that was shown names",
                true,
                json!({"Nodes": {"items": [{"metadata": {"name": "a"}}]}}),
                Ok(filter(&["a"], &[])),
            ),
            ("nothing", true, json!({}), Ok(filter(&[], &[]))),
            (
                "a complaint",
                true,
                json!({"error": "broken"}),
                Err("broken".to_owned()),
            ),
        ] {
            assert_eq!(filtered(&answer, capable), want, "{case}");
        }
        assert_eq!(
            prioritized(&json!([{"Host": "a", "Score": 7}, {"host": "b", "score": 1}])),
            Ok(Said::Prioritize(vec![("a".into(), 7), ("b".into(), 1)]))
        );
        assert!(prioritized(&json!({})).is_err());
        let victims = json!({"NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "u"}], "NumPDBViolations": 2}}});
        assert_eq!(
            preempted(&victims),
            Ok(Said::Preempt(vec![("n".into(), vec!["u".into()], 2)]))
        );
    }
}
