//! Whether the amounts of a LimitRange contradict each other.

use super::*;

const TYPES: [&str; 3] = ["Container", "Pod", "PersistentVolumeClaim"];

pub(in crate::kinds) fn check(object: &Value, _old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, limit) in items(object, "spec.limits").iter().enumerate() {
        let field = |name: &str| format!("spec.limits[{i}].{name}");
        let kind = text(limit, "type");
        if !TYPES.contains(&kind) && !kind.contains('/') {
            let detail = "must be a standard limit type or fully qualified";
            errors.push(FieldError::invalid(field("type"), &json!(kind), detail));
        }
        if seen.contains(&kind) {
            errors.push(FieldError::duplicate(field("type"), &json!(kind)));
        }
        seen.push(kind);
        if kind == "Pod" {
            for name in ["default", "defaultRequest"] {
                if !is_empty(at(limit, name)) {
                    let detail = "may not be specified when `type` is 'Pod'";
                    errors.push(FieldError::forbidden(field(name), detail));
                }
            }
        }
        let storage = |name: &str| at(limit, name).get("storage").is_some();
        if kind == "PersistentVolumeClaim" && !storage("min") && !storage("max") {
            let detail =
                "either minimum or maximum storage value is required, but neither was provided";
            errors.push(FieldError::required(field("limits"), detail));
        }
        check_amounts(limit, kind, &field, errors);
    }
}

fn check_amounts(
    limit: &Value,
    kind: &str,
    field: &dyn Fn(&str) -> String,
    errors: &mut Vec<FieldError>,
) {
    const FIELDS: [&str; 5] = [
        "max",
        "min",
        "default",
        "defaultRequest",
        "maxLimitRequestRatio",
    ];
    let mut resources: Vec<&String> = Vec::new();
    for name in FIELDS {
        for (resource, _) in at(limit, name).as_object().into_iter().flatten() {
            if !resources.contains(&resource) {
                resources.push(resource);
            }
        }
    }
    for resource in resources {
        let given = |name: &str| {
            let amount = at(limit, name).get(resource)?.as_str()?;
            let ignored = kind == "Pod" && name.starts_with("default");
            (!ignored).then_some((nanos(amount)?, amount))
        };
        let place = |name: &str| format!("{}[{resource}]", field(name));
        // (smaller, larger, the field with the error, the value that it shows, their names)
        for (smaller, larger, at_field, shown, low, high) in [
            ("min", "max", "min", "min", "min value", "max value"),
            (
                "min",
                "defaultRequest",
                "defaultRequest",
                "defaultRequest",
                "min value",
                "default request value",
            ),
            (
                "defaultRequest",
                "max",
                "defaultRequest",
                "defaultRequest",
                "default request value",
                "max value",
            ),
            (
                "defaultRequest",
                "default",
                "defaultRequest",
                "defaultRequest",
                "default request value",
                "default limit value",
            ),
            (
                "min",
                "default",
                "default",
                "min",
                "min value",
                "default value",
            ),
            (
                "default",
                "max",
                "default",
                "max",
                "default value",
                "max value",
            ),
        ] {
            let (Some((a, low_text)), Some((b, high_text))) = (given(smaller), given(larger))
            else {
                continue;
            };
            if a > b {
                let detail = format!("{low} {low_text} is greater than {high} {high_text}");
                let shown = given(shown).map_or("", |(_, text)| text);
                errors.push(FieldError::invalid(place(at_field), &json!(shown), &detail));
            }
        }
        let Some((ratio, ratio_text)) = given("maxLimitRequestRatio") else {
            continue;
        };
        let mut refuse = |detail: String| {
            let field = place("maxLimitRequestRatio");
            errors.push(FieldError::invalid(field, &json!(ratio_text), &detail));
        };
        if ratio < ONE {
            refuse(format!("ratio {ratio_text} is less than 1"));
        }
        if let (Some((least, _)), Some((most, _))) = (given("min"), given("max")) {
            let possible = most as f64 / least as f64;
            if ratio as f64 / ONE as f64 > possible {
                refuse(format!(
                    "ratio {ratio_text} is greater than max/min = {possible:.6}"
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictions_are_refused() {
        for (limit, want) in [
            (
                json!({"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}),
                "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1",
            ),
            (
                json!({"type": "Pod", "default": {"cpu": "1"}}),
                "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
            ),
            (
                json!({"type": "Pod", "maxLimitRequestRatio": {"cpu": "500m"}}),
                "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1",
            ),
            (
                json!({"type": "PersistentVolumeClaim"}),
                "spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided",
            ),
        ] {
            let mut errors = Vec::new();
            check(&json!({"spec": {"limits": [limit]}}), None, &mut errors);
            let texts: Vec<String> = errors
                .iter()
                .map(|error| format!("{}: {}", error.field, error.message))
                .collect();
            assert_eq!(texts, [want]);
        }
    }
}
