//! The `resize` subresource: cpu and memory of containers that run.

use serde_json::{Value, json};

use crate::objects::fields::{at, each, items, put, text};
use crate::objects::status::FieldError;

use super::{qos, validate};

/// Everything but the resources of the containers comes from the stored pod.
pub(super) fn keep_all_but_resources(pod: &mut Value, old: &Value) {
    let sent = std::mem::replace(pod, old.clone());
    let Some(spec) = pod
        .as_object_mut()
        .and_then(|pod| crate::objects::fields::inside(pod, "spec"))
    else {
        return;
    };
    put(spec, "resources", at(&sent, "spec").get("resources"));
    for list in ["containers", "initContainers"] {
        let wanted = items(at(&sent, "spec"), list);
        for container in each(spec, list) {
            let name = container.get("name").cloned().unwrap_or_default();
            if let Some(sent) = wanted.iter().find(|sent| sent.get("name") == Some(&name)) {
                put(container, "resources", sent.get("resources"));
            }
        }
    }
    // The version is the client's: it names the version that the change is based on.
    let version = at(&sent, "metadata").get("resourceVersion");
    if let Some(metadata) = pod
        .as_object_mut()
        .and_then(|pod| crate::objects::fields::inside(pod, "metadata"))
    {
        put(metadata, "resourceVersion", version);
    }
}

pub(super) fn check(pod: &Value, old: &Value) -> Vec<FieldError> {
    let (spec, old_spec) = (at(pod, "spec"), at(old, "spec"));
    let mut errors = validate::validate_pod(pod);
    let before = qos::class(old_spec);
    if qos::class(spec) != before {
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.push(FieldError::invalid("spec", &json!(before), detail));
    }
    let mut other_resources = false;
    for list in ["containers", "initContainers"] {
        for (i, (now, before)) in items(spec, list)
            .iter()
            .zip(items(old_spec, list))
            .enumerate()
        {
            for side in ["requests", "limits"] {
                let (now, before) = (
                    at(now, "resources").get(side),
                    at(before, "resources").get(side),
                );
                if before.is_some() && now.is_none() {
                    let field = format!("spec.{list}[{i}].resources.{side}");
                    errors.push(FieldError::forbidden(
                        field,
                        &format!("resource {side} cannot be removed"),
                    ));
                }
                other_resources |= beyond_cpu_and_memory(now) != beyond_cpu_and_memory(before);
            }
        }
    }
    if other_resources {
        errors.push(FieldError::forbidden(
            "spec",
            "only cpu and memory resources are mutable",
        ));
    }
    errors
}

fn beyond_cpu_and_memory(resources: Option<&Value>) -> Vec<(&str, &str)> {
    let all = resources.and_then(Value::as_object).into_iter().flatten();
    all.filter(|(name, _)| !["cpu", "memory"].contains(&name.as_str()))
        .map(|(name, amount)| (name.as_str(), text(amount, "")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(image: &str, resources: Value) -> Value {
        json!({"metadata": {"labels": {"from": image}}, "spec": {"containers": [{"name": "c", "image": image, "resources": resources}]}})
    }

    #[test]
    fn a_resize_changes_only_resources() {
        let old = pod("old", json!({"requests": {"cpu": "1"}}));
        let mut sent = pod("new", json!({"requests": {"cpu": "2"}}));
        keep_all_but_resources(&mut sent, &old);
        assert_eq!(sent, pod("old", json!({"requests": {"cpu": "2"}})));
    }

    #[test]
    fn invalid_resizes_are_refused() {
        let old = pod(
            "i",
            json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}),
        );
        for (case, resources, want) in [
            (
                "more of it",
                json!({"requests": {"cpu": "2"}, "limits": {"cpu": "3"}}),
                None,
            ),
            (
                "another class",
                json!({"requests": {"cpu": "2", "memory": "1"}, "limits": {"cpu": "2", "memory": "1"}}),
                Some("spec"),
            ),
            (
                "another resource",
                json!({"requests": {"cpu": "1", "x.io/g": "1"}, "limits": {"cpu": "2", "x.io/g": "1"}}),
                Some("spec"),
            ),
            (
                "no limit",
                json!({"requests": {"cpu": "1"}}),
                Some("spec.containers[0].resources.limits"),
            ),
            (
                "too much",
                json!({"requests": {"cpu": "9"}, "limits": {"cpu": "2"}}),
                Some("spec.containers[0].resources.requests"),
            ),
        ] {
            let errors = check(&pod("i", resources), &old);
            assert_eq!(errors.first().map(|e| e.field.as_str()), want, "{case}");
        }
    }
}
