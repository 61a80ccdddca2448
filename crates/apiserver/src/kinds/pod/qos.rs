//! The QoS class of a pod.

use serde_json::Value;

use crate::kinds::quantity::nanos;
use crate::objects::fields::{at, is_empty, items, text};

/// `Guaranteed`, `Burstable` or `BestEffort`; only cpu and memory count, and zero is nothing.
pub(super) fn class(spec: &Value) -> &'static str {
    let pod_level = at(spec, "resources");
    let says_something = !is_empty(at(pod_level, "requests")) || !is_empty(at(pod_level, "limits"));
    if says_something {
        return class_of(std::iter::once(pod_level));
    }
    let containers = items(spec, "containers").iter();
    let all = containers.chain(items(spec, "initContainers"));
    class_of(all.map(|container| at(container, "resources")))
}

fn class_of<'a>(all: impl Iterator<Item = &'a Value>) -> &'static str {
    let mut any = false;
    let mut guaranteed = true;
    for resources in all {
        for resource in ["cpu", "memory"] {
            let request = amount(resources, "requests", resource);
            let limit = amount(resources, "limits", resource);
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && request == limit;
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn amount(resources: &Value, side: &str, resource: &str) -> Option<i128> {
    nanos(text(at(resources, side), resource)).filter(|amount| *amount > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_class_follows_requests_and_limits() {
        let both = |cpu: &str, memory: &str| json!({"cpu": cpu, "memory": memory});
        let full = json!({"resources": {"requests": both("1", "1Gi"), "limits": both("1", "1Gi")}});
        let none = json!({});
        for (case, spec, want) in [
            ("nothing", json!({"containers": [none]}), "BestEffort"),
            (
                "zero is nothing",
                json!({"containers": [{"resources": {"requests": both("0", "0")}}]}),
                "BestEffort",
            ),
            (
                "only a device",
                json!({"containers": [{"resources": {"limits": {"x.io/gpu": "1"}}}]}),
                "BestEffort",
            ),
            ("all equal", json!({"containers": [full]}), "Guaranteed"),
            (
                "equal in other words",
                json!({"containers": [{"resources": {"requests": both("1", "1073741824"), "limits": both("1000m", "1Gi")}}]}),
                "Guaranteed",
            ),
            (
                "a second one without",
                json!({"containers": [full, none]}),
                "Burstable",
            ),
            (
                "an init container without",
                json!({"containers": [full], "initContainers": [none]}),
                "Burstable",
            ),
            (
                "only cpu",
                json!({"containers": [{"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}]}),
                "Burstable",
            ),
            (
                "the pod level alone counts",
                json!({"resources": full["resources"], "containers": [none]}),
                "Guaranteed",
            ),
        ] {
            assert_eq!(class(&spec), want, "{case}");
        }
    }
}
