//! HorizontalPodAutoscalers, in two versions: `autoscaling/v2` is stored, `autoscaling/v1` knows a cpu target only.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::kind::{Alias, Kind};
use super::super::{namespaced, printer};
use super::{PLAIN, Plain};
use crate::objects::fields::{JsonObject, at, fill, inside, is_empty, items, open, put, text};

const PLURAL: &str = "horizontalpodautoscalers";
const KIND: &str = "HorizontalPodAutoscaler";
/// Where v1 keeps what only v2 has fields for.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
/// (field in v2, annotation in v1)
const ONLY_IN_V2: [(&str, &str); 4] = [
    ("spec.metrics", METRICS),
    ("spec.behavior", BEHAVIOR),
    ("status.currentMetrics", CURRENT_METRICS),
    ("status.conditions", CONDITIONS),
];
const COLUMNS: &str = "Name, Reference, Targets, MinPods, MaxPods, Replicas, Age";

pub(super) fn kinds() -> Vec<Kind> {
    let rules = Plain {
        status: Some(|| json!({"desiredReplicas": 0, "currentMetrics": null})),
        defaults: default_autoscaler,
        columns: COLUMNS,
        cells,
        no_effect: Some("no controller scales workloads"),
        ..PLAIN
    };
    let older = Plain {
        status: Some(|| json!({"currentReplicas": 0, "desiredReplicas": 0})),
        defaults: |object| fill(open(object, "spec"), "minReplicas", 1),
        cells: |object, now| cells(&to_v2(object.clone()), now),
        ..rules
    };
    let kind = |version, rules| {
        namespaced(version, PLURAL, KIND, rules)
            .short(&["hpa"])
            .in_all()
            .status()
    };
    let alias = Alias {
        group: "autoscaling",
        plural: PLURAL,
        to_stored: to_v2,
        from_stored: to_v1,
    };
    vec![
        kind("autoscaling/v2", rules),
        kind("autoscaling/v1", older).alias(alias),
    ]
}

fn default_autoscaler(object: &mut JsonObject) {
    let spec = open(object, "spec");
    fill(spec, "minReplicas", 1);
    if spec.get("metrics").is_none_or(is_empty) {
        let usage = json!([cpu_target(&json!(80))]);
        spec.insert("metrics".to_owned(), usage);
    }
    let Some(behavior) = inside(spec, "behavior") else {
        return;
    };
    let policy =
        |kind: &str, value: i32| json!({"type": kind, "value": value, "periodSeconds": 15});
    let up = open(behavior, "scaleUp");
    fill(up, "stabilizationWindowSeconds", 0);
    fill(up, "selectPolicy", "Max");
    fill(
        up,
        "policies",
        json!([policy("Pods", 4), policy("Percent", 100)]),
    );
    let down = open(behavior, "scaleDown");
    fill(down, "selectPolicy", "Max");
    fill(down, "policies", json!([policy("Percent", 100)]));
}

/// Average use of cpu in percent of the requests.
fn cpu_target(percent: &Value) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

fn is_cpu_target(metric: &Value) -> bool {
    let resource = at(metric, "resource");
    text(metric, "type") == "Resource"
        && text(resource, "name") == "cpu"
        && text(resource, "target.type") == "Utilization"
}

fn to_v1(object: &Value) -> Value {
    let mut v1 = object.clone();
    let metrics = items(object, "spec.metrics");
    let percent = metrics.iter().find(|metric| is_cpu_target(metric));
    let current = items(object, "status.currentMetrics").iter();
    let used = current
        .filter(|metric| text(metric, "resource.name") == "cpu")
        .map(|metric| at(metric, "resource.current.averageUtilization"))
        .find(|used| !used.is_null());
    let Some(fields) = v1.as_object_mut() else {
        return v1;
    };
    let spec = open(fields, "spec");
    put(
        spec,
        "targetCPUUtilizationPercentage",
        percent.map(|metric| at(metric, "resource.target.averageUtilization")),
    );
    for field in ["metrics", "behavior"] {
        spec.shift_remove(field);
    }
    let status = open(fields, "status");
    fill(status, "currentReplicas", 0);
    put(status, "currentCPUUtilizationPercentage", used);
    for field in ["currentMetrics", "conditions"] {
        status.shift_remove(field);
    }
    for (path, annotation) in ONLY_IN_V2 {
        let mut kept = at(object, path).clone();
        if let (METRICS, Some(list)) = (annotation, kept.as_array_mut()) {
            list.retain(|metric| !is_cpu_target(metric));
        }
        if !is_empty(&kept) {
            let annotations = open(open(fields, "metadata"), "annotations");
            annotations.insert(annotation.to_owned(), kept.to_string().into());
        }
    }
    v1
}

fn to_v2(mut object: Value) -> Value {
    let percent = at(&object, "spec.targetCPUUtilizationPercentage").clone();
    let annotations = at(&object, "metadata.annotations").clone();
    let kept = |annotation: &str| -> Option<Value> {
        serde_json::from_str(annotations.get(annotation)?.as_str()?).ok()
    };
    let Some(fields) = object.as_object_mut() else {
        return object;
    };
    let mut metrics = Vec::new();
    if !percent.is_null() {
        metrics.push(cpu_target(&percent));
    }
    if let Some(Value::Array(others)) = kept(METRICS) {
        metrics.extend(others);
    }
    let spec = open(fields, "spec");
    spec.shift_remove("targetCPUUtilizationPercentage");
    put(spec, "behavior", kept(BEHAVIOR).as_ref());
    spec.insert("metrics".to_owned(), Value::Array(metrics));
    let status = open(fields, "status");
    status.shift_remove("currentCPUUtilizationPercentage");
    if status
        .get("currentReplicas")
        .is_some_and(|count| count == 0)
    {
        status.shift_remove("currentReplicas");
    }
    let current = kept(CURRENT_METRICS).unwrap_or_default();
    status.insert("currentMetrics".to_owned(), current);
    put(status, "conditions", kept(CONDITIONS).as_ref());
    default_autoscaler(fields);
    if let Some(metadata) = inside(fields, "metadata")
        && let Some(annotations) = inside(metadata, "annotations")
    {
        for (_, annotation) in ONLY_IN_V2 {
            annotations.shift_remove(annotation);
        }
        if annotations.is_empty() {
            metadata.shift_remove("annotations");
        }
    }
    object
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let target = at(object, "spec.scaleTargetRef");
    let least = at(object, "spec.minReplicas");
    vec![
        printer::name(object),
        format!("{}/{}", text(target, "kind"), text(target, "name")).into(),
        targets_cell(object).into(),
        match least.as_i64() {
            Some(least) => least.to_string().into(),
            None => json!("<unset>"),
        },
        at(object, "spec.maxReplicas").clone(),
        json!(crate::objects::fields::number(
            object,
            "status.currentReplicas"
        )),
        printer::created(object, now),
    ]
}

/// Use and target of the first two metrics.
fn targets_cell(object: &Value) -> String {
    const SHOWN: usize = 2;
    let metrics = items(object, "spec.metrics");
    if metrics.is_empty() {
        return "<none>".to_owned();
    }
    let current = items(object, "status.currentMetrics");
    let texts: Vec<String> = metrics
        .iter()
        .take(SHOWN)
        .enumerate()
        .map(|(index, metric)| target_text(metric, current.get(index).unwrap_or(&Value::Null)))
        .collect();
    let shown = texts.join(", ");
    match metrics.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}

fn target_text(metric: &Value, current: &Value) -> String {
    let kind = text(metric, "type");
    let source = match kind {
        "ContainerResource" => "containerResource".to_owned(),
        kind => kind.to_lowercase(),
    };
    let (metric, current) = (at(metric, &source), at(current, &source));
    let or_unknown = |value: &Value, unit: &str| match value {
        Value::Null => "<unknown>".to_owned(),
        Value::String(text) => format!("{text}{unit}"),
        other => format!("{other}{unit}"),
    };
    let average = at(metric, "target.averageValue");
    let (used, wanted) = match (average.is_null(), kind) {
        (false, _) => (
            or_unknown(at(current, "current.averageValue"), ""),
            or_unknown(average, ""),
        ),
        (true, "Resource" | "ContainerResource") => (
            or_unknown(at(current, "current.averageUtilization"), "%"),
            match at(metric, "target.averageUtilization") {
                Value::Null => "<auto>".to_owned(),
                percent => format!("{percent}%"),
            },
        ),
        (true, _) => (
            or_unknown(at(current, "current.value"), ""),
            or_unknown(at(metric, "target.value"), ""),
        ),
    };
    match (kind, average.is_null()) {
        ("Resource" | "ContainerResource", _) => {
            format!("{}: {used}/{wanted}", text(metric, "name"))
        }
        ("External" | "Object", false) => format!("{used}/{wanted} (avg)"),
        _ => format!("{used}/{wanted}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v1_keeps_what_only_v2_has() {
        let memory = json!({"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}});
        let mut v2 = json!({
            "metadata": {"name": "a"},
            "spec": {"maxReplicas": 3, "metrics": [cpu_target(&json!(50)), memory], "behavior": {"scaleUp": {}}},
            "status": {"desiredReplicas": 2, "currentMetrics": null},
        });
        default_autoscaler(v2.as_object_mut().unwrap());
        let v1 = to_v1(&v2);
        assert_eq!(v1["spec"]["targetCPUUtilizationPercentage"], 50);
        assert_eq!(v1["spec"].get("metrics"), None);
        assert_eq!(to_v2(v1), v2);
    }

    #[test]
    fn targets_show_use_and_goal() {
        let pods = json!({"type": "Pods", "pods": {"metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": "5"}}});
        let used = json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 33}}});
        let cpu = cpu_target(&json!(80));
        for (metrics, current, want) in [
            (json!([]), json!([]), "<none>"),
            (json!([cpu]), json!([]), "cpu: <unknown>/80%"),
            (json!([cpu]), json!([used]), "cpu: 33%/80%"),
            (
                json!([cpu, pods]),
                json!([used]),
                "cpu: 33%/80%, <unknown>/5",
            ),
            (
                json!([cpu, pods, pods]),
                json!([used]),
                "cpu: 33%/80%, <unknown>/5 + 1 more...",
            ),
        ] {
            let object =
                json!({"spec": {"metrics": metrics}, "status": {"currentMetrics": current}});
            assert_eq!(targets_cell(&object), want);
        }
    }
}
