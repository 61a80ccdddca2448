//! Volumes: a name and one source each.

use serde_json::{Value, json};

use crate::objects::fields::{items, text};
use crate::objects::names::dns_label;
use crate::objects::status::{FieldError, FieldErrors};

/// The required field of a volume source.
const NEEDED: [(&str, &str); 4] = [
    ("hostPath", "path"),
    ("configMap", "name"),
    ("secret", "secretName"),
    ("persistentVolumeClaim", "claimName"),
];

pub(super) fn check(spec: &Value, field: &str, errors: &mut FieldErrors) {
    let volumes = items(spec, "volumes");
    for (i, volume) in volumes.iter().enumerate() {
        let path = || format!("{field}.volumes[{i}]");
        let name = text(volume, "name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{}.name", path()), ""));
        } else if let Some(problem) = dns_label(name) {
            errors.push(FieldError::invalid(
                format!("{}.name", path()),
                &json!(name),
                &problem,
            ));
        }
        if volumes[..i].iter().any(|other| text(other, "name") == name) {
            errors.push(FieldError::duplicate(
                format!("{}.name", path()),
                &json!(name),
            ));
        }
        let sources = volume
            .as_object()
            .into_iter()
            .flat_map(|fields| fields.keys());
        for extra in sources.filter(|key| *key != "name").skip(1) {
            let detail = "may not specify more than 1 volume type";
            errors.push(FieldError::forbidden(format!("{}.{extra}", path()), detail));
        }
        for (source, part) in NEEDED {
            if let Some(found) = volume.get(source)
                && text(found, part).is_empty()
            {
                errors.push(FieldError::required(
                    format!("{}.{source}.{part}", path()),
                    "",
                ));
            }
        }
    }
}

/// A service account token needs a service account.
pub(super) fn check_tokens(spec: &Value, errors: &mut FieldErrors) {
    if !text(spec, "serviceAccountName").is_empty() {
        return;
    }
    for (i, volume) in items(spec, "volumes").iter().enumerate() {
        for (j, source) in items(volume, "projected.sources").iter().enumerate() {
            if source.get("serviceAccountToken").is_some() {
                let field = format!("spec.volumes[{i}].projected.sources[{j}].serviceAccountToken");
                let detail = "must not be specified when serviceAccountName is not set";
                errors.push(FieldError::forbidden(field, detail));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_volumes_are_refused() {
        for (volumes, want) in [
            (json!([{"name": "v", "emptyDir": {}}]), ""),
            (json!([{"emptyDir": {}}]), "volumes[0].name"),
            (json!([{"name": "V", "emptyDir": {}}]), "volumes[0].name"),
            (
                json!([{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]),
                "volumes[1].name",
            ),
            (
                json!([{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]),
                "volumes[0].hostPath",
            ),
            (
                json!([{"name": "v", "secret": {}}]),
                "volumes[0].secret.secretName",
            ),
            (
                json!([{"name": "v", "projected": {"sources": [{"serviceAccountToken": {}}]}}]),
                "volumes[0].projected.sources[0].serviceAccountToken",
            ),
        ] {
            let mut errors = Vec::new();
            let spec = json!({"volumes": volumes});
            check(&spec, "spec", &mut errors);
            check_tokens(&spec, &mut errors);
            let found: Vec<_> = errors
                .iter()
                .map(|e| e.field.trim_start_matches("spec.").to_owned())
                .collect();
            assert_eq!(found.join(" "), want, "{volumes}");
        }
    }
}
