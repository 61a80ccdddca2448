//! Warnings about pod specs that are valid and probably not intended.

use serde_json::Value;

use super::spec::containers;
use crate::kinds::quantity::{is_whole, nanos};
use crate::objects::fields::{at, items, text};

/// Warnings about the spec at `field`.
pub(in crate::kinds) fn warnings(spec: &Value, field: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    for (i, constraint) in items(spec, "topologySpreadConstraints").iter().enumerate() {
        let path = format!("{field}.topologySpreadConstraints[{i}]");
        warn_of_no_selector(constraint, &path, &mut warnings);
    }
    for side in ["podAffinity", "podAntiAffinity"] {
        let affinity = at(at(spec, "affinity"), side);
        let path = |list: &str, i: usize| format!("{field}.affinity.{side}.{list}[{i}]");
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        for (i, term) in items(affinity, required).iter().enumerate() {
            warn_of_no_selector(term, &path(required, i), &mut warnings);
        }
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        for (i, term) in items(affinity, preferred).iter().enumerate() {
            let path = format!("{}.podAffinityTerm", path(preferred, i));
            warn_of_no_selector(at(term, "podAffinityTerm"), &path, &mut warnings);
        }
    }
    for (list, i, container) in containers(spec) {
        let path = || format!("{field}.{list}[{i}]");
        warn_of_hidden_variables(container, &path, &mut warnings);
        warn_of_fractional_bytes(container, &path, &mut warnings);
    }
    warnings
}

fn warn_of_no_selector(term: &Value, path: &str, warnings: &mut Vec<String>) {
    if at(term, "labelSelector").is_null() {
        let what = "a null labelSelector results in matching no pod";
        warnings.push(format!("{path}.labelSelector: {what}"));
    }
}

fn warn_of_hidden_variables(
    container: &Value,
    path: &dyn Fn() -> String,
    warnings: &mut Vec<String>,
) {
    let variables = items(container, "env");
    for (i, variable) in variables.iter().enumerate() {
        let name = text(variable, "name");
        if variables[..i]
            .iter()
            .any(|other| text(other, "name") == name)
        {
            warnings.push(format!(
                "{}.env[{i}]: hides previous definition of {name:?}, which may be dropped when using apply",
                path()
            ));
        }
    }
}

fn warn_of_fractional_bytes(
    container: &Value,
    path: &dyn Fn() -> String,
    warnings: &mut Vec<String>,
) {
    let resources = at(container, "resources");
    for side in ["limits", "requests"] {
        for name in ["memory", "ephemeral-storage"] {
            // A limit is also the request where none is given.
            let given = at(resources, side).get(name);
            let given = given.or_else(|| at(resources, "limits").get(name));
            if let Some(amount) = given.and_then(Value::as_str)
                && nanos(amount).is_some()
                && !is_whole(amount)
            {
                warnings.push(format!(
                    "{}.resources.{side}[{name}]: fractional byte value {amount:?} is invalid, must be an integer",
                    path()
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn questionable_specs_get_warnings() {
        let container = |part: Value| json!({"containers": [part]});
        for (spec, want) in [
            (
                json!({"topologySpreadConstraints": [{"labelSelector": {}}]}),
                &[][..],
            ),
            (
                json!({"topologySpreadConstraints": [{}]}),
                &[
                    "s.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
                ],
            ),
            (
                json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": {}}]}}}),
                &[
                    "s.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.labelSelector: a null labelSelector results in matching no pod",
                ],
            ),
            (
                container(json!({"env": [{"name": "A"}, {"name": "A"}]})),
                &[
                    "s.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply",
                ],
            ),
            (
                container(json!({"resources": {"limits": {"memory": "1500m", "cpu": "1500m"}}})),
                &[
                    "s.containers[0].resources.limits[memory]: fractional byte value \"1500m\" is invalid, must be an integer",
                    "s.containers[0].resources.requests[memory]: fractional byte value \"1500m\" is invalid, must be an integer",
                ],
            ),
        ] {
            assert_eq!(warnings(&spec, "s"), want, "{spec}");
        }
    }
}
