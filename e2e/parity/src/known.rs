//! Differences that stay: faults of others that the engine does not copy.
//!
//! Each has a case that shows it, which every run evaluates first, and a matcher for that shape alone, so that nothing else
//! can hide behind it.

mod katalyst;
mod zones;

use serde_json::Value;

use super::generate::Case;

pub(crate) use katalyst::KATALYST;
pub(crate) use zones::ZONES;

pub(crate) struct Known {
    pub(crate) name: &'static str,
    case: Example,
    /// Whether the fault explains every one of these differences.
    matches: fn(&Case, &[String]) -> bool,
}

/// A case that shows a difference.
pub(crate) enum Example {
    Text(&'static str),
    Built(fn() -> Case),
}

pub(crate) const KUBE: &[Known] = &[Known {
    // kube-scheduler keeps the ports of a node as a set. Two pods of one node can only share a port if another scheduler
    // bound them. Taking one of them away, in a dry run of preemption, then frees the port that the other still has.
    name: "a port that two pods use is freed when one of them goes",
    case: Example::Text(include_str!("known/port-used-twice.json")),
    matches: port_used_twice,
}];

pub(crate) const KOORDINATOR: &[Known] = &[
    Known {
        // Its sum of a pod's requests takes the largest of init containers and the rest, also for those that go on
        // running beside the rest.
        name: "sidecars do not add to the requests of a pod",
        case: Example::Text(include_str!("known/koordinator-sidecar.json")),
        matches: sidecar,
    },
    Known {
        // The API server rounds amounts to thousandths, so that only generated pods differ.
        name: "less than a thousandth of a core is rounded up in every container, not once for the pod",
        case: Example::Text(include_str!("known/koordinator-rounding.json")),
        matches: rounding,
    },
    Known {
        // It reads a feature gate that Kubernetes no longer has.
        name: "a pod with overhead makes the scorer panic",
        case: Example::Text(include_str!("known/koordinator-overhead.json")),
        matches: overhead,
    },
];

impl Known {
    pub(crate) fn explains(&self, case: &Case, differences: &[String]) -> bool {
        (self.matches)(case, differences)
    }

    pub(crate) fn case(&self) -> serde_json::Result<Case> {
        match self.case {
            Example::Text(text) => serde_json::from_str(text).map(Case),
            Example::Built(build) => Ok(build()),
        }
    }
}

fn sidecar(case: &Case, differences: &[String]) -> bool {
    let mut init = list(&case.0["pod"]["spec"], "initContainers");
    init.any(|container| container["restartPolicy"] == "Always")
        && differences.iter().all(|line| is_about_plus(line))
}

/// Several containers of the pod request so many billionths of a core that they are no thousandths.
fn rounding(case: &Case, differences: &[String]) -> bool {
    let spec = &case.0["pod"]["spec"];
    let all = list(spec, "containers").chain(list(spec, "initContainers"));
    let fine = all.filter(|container| {
        let cpu = container["resources"]["requests"]["cpu"].as_str();
        cpu.is_some_and(|cpu| cpu.ends_with(['n', 'u']))
    });
    fine.count() > 1 && differences.iter().all(|line| is_about_plus(line))
}

fn is_about_plus(line: &str) -> bool {
    let place = line.split(':').next().unwrap_or_default();
    place.starts_with("cycle.scores[NodeResourcesFitPlus].") || place.starts_with("cycle.totals[")
}

fn overhead(case: &Case, differences: &[String]) -> bool {
    // Whatever came of it on our side, nothing is left to compare it with.
    let panic = r#", theirs "panic: feature \"PodOverhead\" is not registered"#;
    let panics = |line: &String| line.starts_with("cycle.failure: ") && line.contains(panic);
    !case.0["pod"]["spec"]["overhead"].is_null() && differences.iter().any(panics)
}

fn port_used_twice(case: &Case, differences: &[String]) -> bool {
    let mut named = 0;
    differences.iter().all(|line| {
        let place = line.split(':').next().unwrap_or_default();
        let Some(place) = place.strip_prefix("cycle.preemption.") else {
            return place == "cycle.message";
        };
        let node = ["candidates[", "unhelpful["]
            .iter()
            .find_map(|list| place.strip_prefix(list)?.split(']').next());
        match node {
            Some(node) => {
                named += 1;
                shares_a_port_with_a_victim(&case.0, node)
            }
            None => place == "selected" || place.starts_with("tied"),
        }
    }) && named > 0
}

fn shares_a_port_with_a_victim(case: &Value, node: &str) -> bool {
    let on_node: Vec<&Value> = list(case, "pods")
        .filter(|pod| pod["spec"]["nodeName"] == node)
        .collect();
    let is_victim = |pod: &Value| priority(pod) < priority(&case["pod"]);
    let mut victims = on_node.iter().filter(|pod| is_victim(pod));
    victims.any(|victim| {
        let ports = ports(victim);
        on_node
            .iter()
            .filter(|other| !std::ptr::eq(**other, *victim))
            .any(|other| self::ports(other).iter().any(|port| ports.contains(port)))
    })
}

fn priority(pod: &Value) -> i64 {
    pod["spec"]["priority"].as_i64().unwrap_or(0)
}

/// Address, protocol and number of every port that a pod takes from its node.
fn ports(pod: &Value) -> Vec<(&str, &str, i64)> {
    let spec = &pod["spec"];
    let sidecars = list(spec, "initContainers").filter(|c| c["restartPolicy"] == "Always");
    let ports = list(spec, "containers").chain(sidecars);
    let ports = ports.flat_map(|container| list(container, "ports"));
    ports
        .filter_map(|port| {
            let number = port["hostPort"].as_i64().filter(|number| *number > 0)?;
            let of = |key: &str, default| {
                port[key]
                    .as_str()
                    .filter(|t| !t.is_empty())
                    .unwrap_or(default)
            };
            Some((of("hostIP", "0.0.0.0"), of("protocol", "TCP"), number))
        })
        .collect()
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value[key].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lines: &[&str]) -> Vec<String> {
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_the_nodes_where_a_victim_shares_its_port_are_excused() {
        let case = KUBE[0].case().unwrap();
        let of = |node: &str| format!("cycle.preemption.unhelpful[{node}].code: ours 1, theirs 2");
        for (differences, want) in [
            (lines(&[&of("n1"), "cycle.message: ours a, theirs b"]), true),
            (lines(&[&of("n1"), &of("n2")]), false),
            (lines(&["cycle.message: ours a, theirs b"]), false),
            (
                lines(&[&of("n1"), "cycle.totals[0]: ours 1, theirs 2"]),
                false,
            ),
        ] {
            let explained = KUBE[0].explains(&case, &differences);
            assert_eq!(explained, want, "{differences:?}");
        }
    }
}
