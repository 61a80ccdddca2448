//! The rules of custom objects, taken from their definition.

use jiff::Timestamp;
use serde_json::Value;

use super::json_path::JsonPath;
use super::validation_schema::ValidationSchema;
use super::{defaults, validate};
use crate::kinds::kind::{Column, Name, Rules, ScalePaths, Write};
use crate::kinds::printer;
use crate::objects::fields::{JsonObject, at, items, open, put, text};
use crate::objects::status::FieldError;

pub(super) struct CustomObject {
    shape: ValidationSchema,
    scale: Option<ScalePaths>,
    has_status: bool,
    columns: Vec<(Column, Option<JsonPath>)>,
    selectable: Vec<(Name, JsonPath)>,
    warning: Option<String>,
}

impl CustomObject {
    pub(super) fn new(definition: &Value, version: &Value) -> Self {
        let selectable = items(version, "selectableFields")
            .iter()
            .filter_map(|field| {
                let path = text(field, "jsonPath");
                let name = path.trim_start_matches('.').to_owned();
                Some((Name::from(name), JsonPath::parse(path).ok()?))
            });
        Self {
            shape: ValidationSchema::parse(at(version, "schema.openAPIV3Schema")),
            scale: super::scale::paths(version),
            has_status: at(version, "subresources").get("status").is_some(),
            columns: columns(version),
            selectable: selectable.collect(),
            warning: deprecation(definition, version),
        }
    }
}

fn columns(version: &Value) -> Vec<(Column, Option<JsonPath>)> {
    let declared = items(version, "additionalPrinterColumns");
    if declared.is_empty() {
        let paths = [None, JsonPath::parse(".metadata.creationTimestamp").ok()];
        return printer::columns("Name, Age:date")
            .into_iter()
            .zip(paths)
            .collect();
    }
    let declared = declared.iter().map(|column| {
        let owned = |key: &str| Name::from(text(column, key).to_owned());
        let path = text(column, "jsonPath");
        let description = match text(column, "description") {
            "" => format!("Custom resource definition column (in JSONPath format): {path}").into(),
            description => Name::from(description.to_owned()),
        };
        let column = Column {
            name: owned("name"),
            kind: owned("type"),
            format: owned("format"),
            description,
            priority: at(column, "priority")
                .as_i64()
                .and_then(|p| p.try_into().ok())
                .unwrap_or(0),
        };
        (column, JsonPath::parse(path).ok())
    });
    let name = printer::columns("Name")
        .into_iter()
        .map(|column| (column, None));
    name.chain(declared).collect()
}

fn deprecation(definition: &Value, version: &Value) -> Option<String> {
    if at(version, "deprecated") != &Value::Bool(true) {
        return None;
    }
    let (group, kind) = (
        text(definition, "spec.group"),
        text(definition, "spec.names.kind"),
    );
    Some(match text(version, "deprecationWarning") {
        "" => format!("{group}/{} {kind} is deprecated", text(version, "name")),
        own => own.to_owned(),
    })
}

impl Rules for CustomObject {
    fn default(&self, object: &mut Value) {
        defaults::fill(object, &self.shape);
    }

    fn prepare(&self, object: &mut Value, old: Option<&Value>, write: Write<'_>) {
        let before = old.map(|old| at(old, "metadata.generation").as_i64().unwrap_or_default());
        let has_status = self.has_status;
        let Some(fields) = object.as_object_mut() else {
            return;
        };
        if has_status {
            match (old, write) {
                (None, _) => put(fields, "status", None),
                (Some(old), Write::Subresource("status")) => keep_all_but_status(fields, old),
                (Some(old), _) => put(fields, "status", old.get("status")),
            }
        }
        let changed = old.is_none_or(|old| {
            let counted = |key: &str| key != "metadata" && !(key == "status" && has_status);
            content(fields, counted)
                != old
                    .as_object()
                    .map_or_else(Vec::new, |old| content(old, counted))
        });
        let generation = before.unwrap_or(0).saturating_add(i64::from(changed));
        open(fields, "metadata").insert("generation".to_owned(), generation.into());
    }

    fn validate(&self, object: &Value, old: Option<&Value>, _write: Write<'_>) -> Vec<FieldError> {
        validate::validate(object, old, &self.shape, self.scale.as_ref())
    }

    fn warnings(&self, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        self.warning.iter().cloned().collect()
    }

    fn selectable_fields(&self) -> Vec<Name> {
        self.selectable
            .iter()
            .map(|(name, _)| name.clone())
            .collect()
    }

    fn field(&self, object: &Value, path: &str) -> Option<String> {
        let (_, wanted) = self.selectable.iter().find(|(name, _)| name == path)?;
        Some(wanted.first(object).map(plain).unwrap_or_default())
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn is_custom(&self) -> bool {
        true
    }

    fn columns(&self) -> Vec<Column> {
        self.columns
            .iter()
            .map(|(column, _)| column.clone())
            .collect()
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let cell = |(i, (column, path)): (usize, &(Column, Option<JsonPath>))| match path {
            None if i == 0 => printer::name(object),
            None => Value::Null,
            Some(path) => path
                .first(object)
                .map_or(Value::Null, |value| self::cell(value, &column.kind, now)),
        };
        self.columns.iter().enumerate().map(cell).collect()
    }
}

/// The fields that `counted` accepts, sorted.
fn content(object: &JsonObject, counted: impl Fn(&str) -> bool) -> Vec<(&String, &Value)> {
    let mut content: Vec<_> = object.iter().filter(|(key, _)| counted(key)).collect();
    content.sort_by_key(|(key, _)| *key);
    content
}

/// A write to `status` changes nothing else, not even metadata, except `managedFields`.
fn keep_all_but_status(object: &mut JsonObject, old: &Value) {
    let status = object.shift_remove("status");
    let managed = object
        .get("metadata")
        .and_then(|m| m.get("managedFields"))
        .cloned();
    let Some(old) = old.as_object() else {
        return;
    };
    *object = old.clone();
    put(object, "status", status.as_ref());
    put(open(object, "metadata"), "managedFields", managed.as_ref());
}

/// The value in the type of its column; null if it has another type.
fn cell(value: &Value, kind: &str, now: Timestamp) -> Value {
    match (kind, value) {
        (_, Value::Null) => Value::Null,
        ("integer" | "number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("string", _) => plain(value).into(),
        ("date", Value::String(text)) if text.parse::<Timestamp>().is_ok() => {
            printer::age(value, now).into()
        }
        ("date", _) => "<invalid>".into(),
        _ => Value::Null,
    }
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn custom(version: Value) -> CustomObject {
        CustomObject::new(
            &json!({"spec": {"group": "x.io", "names": {"kind": "Widget"}}}),
            &version,
        )
    }

    #[test]
    fn generation_counts_content() {
        let old = json!({"metadata": {"generation": 4}, "spec": {"a": 1}, "status": {"s": 1}});
        for (case, has_status, change, write, want) in [
            (
                "spec",
                true,
                json!({"spec": {"a": 2}}),
                Write::Update,
                (5, 1),
            ),
            (
                "labels",
                true,
                json!({"metadata": {"labels": {"a": "b"}}}),
                Write::Update,
                (4, 1),
            ),
            (
                "status on the main path",
                true,
                json!({"status": {"s": 2}}),
                Write::Update,
                (4, 1),
            ),
            (
                "status on its path",
                true,
                json!({"status": {"s": 2}, "spec": {"a": 2}}),
                Write::Subresource("status"),
                (4, 2),
            ),
            (
                "status as content",
                false,
                json!({"status": {"s": 2}}),
                Write::Update,
                (5, 2),
            ),
        ] {
            let version = if has_status {
                json!({"subresources": {"status": {}}})
            } else {
                json!({})
            };
            let mut object = old.clone();
            for (key, value) in change.as_object().unwrap() {
                object[key] = value.clone();
            }
            custom(version).prepare(&mut object, Some(&old), write);
            assert_eq!(
                (&object["metadata"]["generation"], &object["status"]["s"]),
                (&json!(want.0), &json!(want.1)),
                "{case}"
            );
        }
    }

    #[test]
    fn the_status_path_keeps_metadata() {
        let old = json!({"metadata": {"generation": 1, "labels": {"a": "b"}}, "spec": {}});
        let mut sent =
            json!({"metadata": {"labels": {"c": "d"}, "managedFields": [1]}, "status": {"s": 1}});
        custom(json!({"subresources": {"status": {}}})).prepare(
            &mut sent,
            Some(&old),
            Write::Subresource("status"),
        );
        assert_eq!(
            sent,
            json!({"metadata": {"generation": 1, "labels": {"a": "b"}, "managedFields": [1]}, "spec": {}, "status": {"s": 1}})
        );
    }

    #[test]
    fn a_new_object_has_no_status_yet() {
        let mut object = json!({"metadata": {}, "status": {"s": 1}});
        custom(json!({"subresources": {"status": {}}})).prepare(&mut object, None, Write::Create);
        assert_eq!(object, json!({"metadata": {"generation": 1}}));
    }

    #[test]
    fn cells_keep_the_type_of_their_column() {
        let now: Timestamp = "2030-01-01T00:01:00Z".parse().unwrap();
        let column = |name: &str, kind: &str, path: &str| json!({"name": name, "type": kind, "jsonPath": path});
        let widgets = custom(json!({"additionalPrinterColumns": [
            column("Count", "integer", ".spec.n"), column("Text", "string", ".spec.n"), column("Object", "string", ".spec.o"),
            column("Flag", "boolean", ".spec.f"), column("When", "date", ".spec.t"), column("Never", "date", ".spec.never"),
            column("Wrong", "integer", ".spec.f"),
        ]}));
        let object = json!({"metadata": {"name": "w"}, "spec": {"n": 3, "o": {"deep": 5}, "f": true, "t": "2030-01-01T00:00:00Z"}});
        assert_eq!(
            widgets.cells(&object, now),
            [
                json!("w"),
                json!(3),
                json!("3"),
                json!("{\"deep\":5}"),
                json!(true),
                json!("60s"),
                Value::Null,
                Value::Null
            ]
        );
        let plain = custom(json!({}));
        let names: Vec<_> = plain
            .columns()
            .iter()
            .map(|c| format!("{} {}", c.name, c.kind))
            .collect();
        assert_eq!(names, ["Name string", "Age date"]);
        assert_eq!(
            plain.cells(
                &json!({"metadata": {"name": "w", "creationTimestamp": "2030-01-01T00:00:30Z"}}),
                now
            ),
            [json!("w"), json!("30s")]
        );
    }

    #[test]
    fn declared_fields_can_be_selected() {
        let widgets = custom(json!({"selectableFields": [{"jsonPath": ".spec.color"}]}));
        assert_eq!(
            widgets
                .field(&json!({"spec": {"color": "red"}}), "spec.color")
                .as_deref(),
            Some("red")
        );
        assert_eq!(widgets.field(&json!({}), "spec.color").as_deref(), Some(""));
        assert_eq!(widgets.field(&json!({}), "spec.size"), None);
    }
}
