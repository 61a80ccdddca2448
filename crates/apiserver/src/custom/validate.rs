//! Checks an object against its schema, with the messages of the real server.

use std::cmp::Ordering;

use serde_json::{Number, Value, json};

use super::validation_schema::{Unique, ValidationSchema};
use super::{formats, scale};
use crate::kinds::kind::ScalePaths;
use crate::objects::status::{FieldError, FieldReason};

/// Errors after which the real server does not evaluate CEL rules, and reports that.
const STOPS_RULES: [FieldReason; 5] = [
    FieldReason::Required,
    FieldReason::NotSupported,
    FieldReason::TypeInvalid,
    FieldReason::TooLong,
    FieldReason::TooMany,
];

/// Checks a single value, such as a default; the paths of fields start at it.
pub(super) fn validate_part(value: &Value, shape: &ValidationSchema) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check(value, None, shape, "", &mut errors);
    errors
}

/// Checks an object. Errors that `old` already had are not reported again.
pub(super) fn validate(
    object: &Value,
    old: Option<&Value>,
    shape: &ValidationSchema,
    scale: Option<&ScalePaths>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let fields = object.as_object().into_iter().flatten();
    for (name, value) in fields {
        if let Some(part) = shape
            .property(name)
            .filter(|_| !["metadata", "kind", "apiVersion"].contains(&name.as_str()))
        {
            check(
                value,
                old.and_then(|old| old.get(name)),
                part,
                name,
                &mut errors,
            );
        }
    }
    check_required(object, shape, "", &mut errors);
    check_combinations(object, shape, "", &mut errors);
    if let Some(paths) = scale {
        scale::check(object, paths, &mut errors);
    }
    let unchecked = errors
        .iter()
        .any(|error| STOPS_RULES.contains(&error.reason));
    if unchecked && shape.has_rules {
        let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
        errors.push(FieldError::invalid("<nil>", &Value::Null, detail));
    }
    errors
}

fn check(
    value: &Value,
    old: Option<&Value>,
    shape: &ValidationSchema,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if old == Some(value) || (value.is_null() && shape.nullable) {
        return;
    }
    if let Some(expected) = wrong_type(value, shape) {
        let found = type_of(value);
        let message = format!(
            "Invalid value: \"{found}\": {path} in body must be of type {expected}: \"{found}\""
        );
        errors.push(FieldError::new(path, FieldReason::TypeInvalid, message));
        if expected == "integer" && value.is_number() {
            let detail =
                format!("Checked value must be of type integer (default format) in {path}");
            errors.push(FieldError::invalid("<nil>", &json!(""), &detail));
        }
    } else {
        match value {
            Value::String(text) => check_text(text, value, shape, path, errors),
            Value::Number(number) => check_number(number, value, shape, path, errors),
            Value::Array(list) => check_list(list, old, shape, path, errors),
            Value::Object(_) => check_object(value, old, shape, path, errors),
            Value::Null | Value::Bool(_) => {}
        }
    }
    if !shape.allowed.is_empty() && !shape.allowed.contains(value) {
        let words: Vec<String> = shape.allowed.iter().map(plain).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        errors.push(FieldError::not_supported(path, value, &words));
    }
    check_combinations(value, shape, path, errors);
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::Number(number) if is_whole(number) => "integer",
        Value::Number(_) => "number",
    }
}

fn is_whole(number: &Number) -> bool {
    !number.is_f64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn wrong_type<'a>(value: &Value, shape: &'a ValidationSchema) -> Option<&'a str> {
    let found = type_of(value);
    if shape.int_or_string {
        return (!["integer", "string"].contains(&found)).then_some("integer,string");
    }
    match shape.kind.as_str() {
        "" => None,
        "number" if found == "integer" => None,
        kind => (kind != found).then_some(kind),
    }
}

/// Only the first error of a string is reported.
fn check_text(
    text: &str,
    value: &Value,
    shape: &ValidationSchema,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let length = text.chars().count() as u64;
    if let Some(max) = shape.length.max.filter(|max| length > *max) {
        let message = format!("Too long: may not be more than {max} bytes");
        errors.push(FieldError::new(path, FieldReason::TooLong, message));
    } else if let Some(min) = shape.length.min.filter(|min| length < *min) {
        let detail = format!("{path} in body should be at least {min} chars long");
        errors.push(FieldError::invalid(path, value, &detail));
    } else if let Some(pattern) = shape
        .pattern
        .as_ref()
        .filter(|pattern| !pattern.is_match(text))
    {
        let detail = format!("{path} in body should match '{}'", pattern.as_str());
        errors.push(FieldError::invalid(path, value, &detail));
    }
    if !formats::matches(&shape.format, text) {
        let message = format!(
            "Invalid value: {value}: {path} in body must be of type {}: {value}",
            shape.format
        );
        errors.push(FieldError::new(path, FieldReason::TypeInvalid, message));
    }
}

fn check_number(
    number: &Number,
    value: &Value,
    shape: &ValidationSchema,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    match &shape.multiple_of {
        // The real server cuts the factor when the value is whole, and then stumbles over it.
        Some(step) if number.is_i64() && step.as_f64().is_some_and(|step| step < 1.0) => {
            let detail = format!("factor MultipleOf declared for {path} must be positive: 0");
            errors.push(FieldError::invalid(path, &json!(0), &detail));
        }
        Some(step) if !is_multiple(number, step) => {
            let detail = format!("{path} in body should be a multiple of {step}");
            errors.push(FieldError::invalid(path, value, &detail));
        }
        _ => {}
    }
    let mut refuse = |detail: String| errors.push(FieldError::invalid(path, value, &detail));
    if let Some(max) = &shape.range.max {
        match (compare(number, max), shape.exclusive.max) {
            (Ordering::Greater, None) => refuse(format!(
                "{path} in body should be less than or equal to {max}"
            )),
            (Ordering::Greater | Ordering::Equal, Some(())) => {
                refuse(format!("{path} in body should be less than {max}"))
            }
            _ => {}
        }
    }
    if let Some(min) = &shape.range.min {
        match (compare(number, min), shape.exclusive.min) {
            (Ordering::Less, None) => refuse(format!(
                "{path} in body should be greater than or equal to {min}"
            )),
            (Ordering::Less | Ordering::Equal, Some(())) => {
                refuse(format!("{path} in body should be greater than {min}"))
            }
            _ => {}
        }
    }
    let fits = match shape.format.as_str() {
        "int32" => number
            .as_i64()
            .is_some_and(|number| i32::try_from(number).is_ok()),
        "int64" => number.is_i64() || is_whole(number) && !number.is_u64(),
        _ => true,
    };
    if !fits && shape.kind == "integer" {
        let detail = format!(
            "Checked value must be of type integer with format {} in {path}",
            shape.format
        );
        errors.push(FieldError::invalid("<nil>", &json!(""), &detail));
    }
}

fn compare(a: &Number, b: &Number) -> Ordering {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => a
            .as_f64()
            .partial_cmp(&b.as_f64())
            .unwrap_or(Ordering::Equal),
    }
}

fn is_multiple(number: &Number, step: &Number) -> bool {
    match (number.as_i64(), step.as_i64()) {
        (Some(number), Some(step)) if step != 0 => number.checked_rem(step) == Some(0),
        _ => match (number.as_f64(), step.as_f64()) {
            (Some(number), Some(step)) if step != 0.0 => (number / step).fract() == 0.0,
            _ => true,
        },
    }
}

fn check_list(
    list: &[Value],
    old: Option<&Value>,
    shape: &ValidationSchema,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let old = old.and_then(Value::as_array);
    if let Some(part) = &shape.items {
        for (i, item) in list.iter().enumerate() {
            let before = old.and_then(|old| old.iter().find(|before| *before == item));
            check(item, before, part, &format!("{path}[{i}]"), errors);
        }
    }
    let count = list.len() as u64;
    if let Some(max) = shape.items_count.max.filter(|max| count > *max) {
        errors.push(too_many(path, count, max));
    }
    if let Some(min) = shape.items_count.min.filter(|min| count < *min) {
        let detail = format!("{path} in body should have at least {min} items");
        errors.push(FieldError::invalid(path, &json!(count), &detail));
    }
    check_unique(list, shape, path, errors);
}

fn too_many(path: &str, count: u64, max: u64) -> FieldError {
    let message = format!("Too many: {count}: must have at most {max} items");
    FieldError::new(path, FieldReason::TooMany, message)
}

fn check_unique(
    list: &[Value],
    shape: &ValidationSchema,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let identity = |item: &Value| match &shape.unique {
        Unique::Nothing => None,
        Unique::Items => Some(item.clone()),
        Unique::Keys(keys) => {
            let part = |key: &String| Some((key.clone(), item.get(key)?.clone()));
            Some(Value::Object(keys.iter().filter_map(part).collect()))
        }
    };
    let mut seen = std::collections::HashSet::new();
    for (i, item) in list.iter().enumerate() {
        let Some(identity) = identity(item) else {
            return;
        };
        if !seen.insert(identity.to_string()) {
            errors.push(FieldError::duplicate(format!("{path}[{i}]"), &identity));
        }
    }
}

fn check_object(
    value: &Value,
    old: Option<&Value>,
    shape: &ValidationSchema,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let fields = value.as_object().into_iter().flatten();
    for (name, field) in fields {
        if shape.embedded && name == "metadata" {
            continue;
        }
        // A required `null` is a missing value, and is reported once.
        if field.is_null() && shape.required.contains(name) {
            continue;
        }
        if let Some(part) = shape.field(name) {
            let before = old.and_then(|old| old.get(name));
            check(field, before, part, &format!("{path}.{name}"), errors);
        }
    }
    let count = value.as_object().map_or(0, |fields| fields.len()) as u64;
    if let Some(max) = shape.properties_count.max.filter(|max| count > *max) {
        errors.push(too_many(path, count, max));
    }
    if let Some(min) = shape.properties_count.min.filter(|min| count < *min) {
        let detail = format!("{path} in body should have at least {min} properties");
        errors.push(FieldError::invalid(path, &json!(count), &detail));
    }
    check_required(value, shape, path, errors);
}

fn check_required(
    value: &Value,
    shape: &ValidationSchema,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let embedded: &[&str] = if shape.embedded {
        &["apiVersion", "kind"]
    } else {
        &[]
    };
    let names = shape
        .required
        .iter()
        .map(String::as_str)
        .chain(embedded.iter().copied());
    for name in names {
        let nullable = shape.property(name).is_some_and(|part| part.nullable);
        if value
            .get(name)
            .is_none_or(|value| value.is_null() && !nullable)
        {
            let field = if path.is_empty() {
                name.to_owned()
            } else {
                format!("{path}.{name}")
            };
            errors.push(FieldError::required(field, ""));
        }
    }
}

fn check_combinations(
    value: &Value,
    shape: &ValidationSchema,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let errors_of = |part: &ValidationSchema| {
        let mut found = Vec::new();
        check(value, None, part, path, &mut found);
        found
    };
    let mut refuse = |text: String, mut more: Vec<FieldError>| {
        errors.push(FieldError::invalid(
            "<nil>",
            &json!(""),
            &format!("\"{path}\" {text}"),
        ));
        errors.append(&mut more);
    };
    let failures: Vec<Vec<FieldError>> = shape.any_of.iter().map(errors_of).collect();
    if !failures.is_empty() && failures.iter().all(|found| !found.is_empty()) {
        let first = failures.into_iter().next().unwrap_or_default();
        refuse(
            "must validate at least one schema (anyOf)".to_owned(),
            first,
        );
    }
    let failures: Vec<Vec<FieldError>> = shape.one_of.iter().map(errors_of).collect();
    let valid = failures.iter().filter(|found| found.is_empty()).count();
    let one = "must validate one and only one schema (oneOf).";
    match valid {
        _ if failures.is_empty() => {}
        0 => refuse(
            format!("{one} Found none valid"),
            failures.into_iter().next().unwrap_or_default(),
        ),
        1 => {}
        many => refuse(format!("{one} Found {many} valid alternatives"), Vec::new()),
    }
    for part in &shape.all_of {
        let found = errors_of(part);
        if !found.is_empty() {
            refuse("must validate all the schemas (allOf)".to_owned(), found);
        }
    }
    if let Some(part) = &shape.not
        && errors_of(part).is_empty()
    {
        refuse("must not validate the schema (not)".to_owned(), Vec::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(spec: Value, schema: Value) -> Vec<String> {
        let shape =
            ValidationSchema::parse(&json!({"type": "object", "properties": {"spec": schema}}));
        let errors = validate(&json!({"spec": spec}), None, &shape, None);
        errors
            .iter()
            .map(|e| format!("{}: {}", e.field, e.message))
            .collect()
    }

    #[test]
    fn each_rule_has_its_message() {
        let object =
            |name: &str, schema: Value| json!({"type": "object", "properties": {name: schema}});
        for (spec, schema, want) in [
            (
                json!({}),
                json!({"type": "object", "required": ["a"]}),
                "spec.a: Required value",
            ),
            (
                json!({"a": null}),
                json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}),
                "spec.a: Required value",
            ),
            (
                json!({"a": "green"}),
                object("a", json!({"type": "string", "enum": ["red", "blue"]})),
                "spec.a: Unsupported value: \"green\": supported values: \"red\", \"blue\"",
            ),
            (
                json!({"a": 3}),
                object("a", json!({"type": "integer", "enum": [1, 2]})),
                "spec.a: Unsupported value: 3: supported values: \"1\", \"2\"",
            ),
            (
                json!({"a": 11}),
                object("a", json!({"type": "integer", "maximum": 10})),
                "spec.a: Invalid value: 11: spec.a in body should be less than or equal to 10",
            ),
            (
                json!({"a": 0}),
                object("a", json!({"type": "integer", "minimum": 1})),
                "spec.a: Invalid value: 0: spec.a in body should be greater than or equal to 1",
            ),
            (
                json!({"a": 0}),
                object(
                    "a",
                    json!({"type": "number", "minimum": 0, "exclusiveMinimum": true}),
                ),
                "spec.a: Invalid value: 0: spec.a in body should be greater than 0",
            ),
            (
                json!({"a": 0.3}),
                object("a", json!({"type": "number", "multipleOf": 0.5})),
                "spec.a: Invalid value: 0.3: spec.a in body should be a multiple of 0.5",
            ),
            (
                json!({"a": "x"}),
                object("a", json!({"type": "integer"})),
                "spec.a: Invalid value: \"string\": spec.a in body must be of type integer: \"string\"",
            ),
            (
                json!({"a": true}),
                object("a", json!({"x-kubernetes-int-or-string": true})),
                "spec.a: Invalid value: \"boolean\": spec.a in body must be of type integer,string: \"boolean\"",
            ),
            (
                json!({"a": "A"}),
                object("a", json!({"type": "string", "pattern": "^[a-z]+$"})),
                "spec.a: Invalid value: \"A\": spec.a in body should match '^[a-z]+$'",
            ),
            (
                json!({"a": "abcde"}),
                object("a", json!({"type": "string", "maxLength": 4})),
                "spec.a: Too long: may not be more than 4 bytes",
            ),
            (
                json!({"a": "a"}),
                object(
                    "a",
                    json!({"type": "string", "minLength": 2, "pattern": "^b$"}),
                ),
                "spec.a: Invalid value: \"a\": spec.a in body should be at least 2 chars long",
            ),
            (
                json!({"a": "x"}),
                object("a", json!({"type": "string", "format": "ipv4"})),
                "spec.a: Invalid value: \"x\": spec.a in body must be of type ipv4: \"x\"",
            ),
            (
                json!({"a": 3_000_000_000_u64}),
                object("a", json!({"type": "integer", "format": "int32"})),
                "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec.a",
            ),
            (
                json!({"a": [1]}),
                object("a", json!({"type": "array", "minItems": 2})),
                "spec.a: Invalid value: 1: spec.a in body should have at least 2 items",
            ),
            (
                json!({"a": [1, 2]}),
                object("a", json!({"type": "array", "maxItems": 1})),
                "spec.a: Too many: 2: must have at most 1 items",
            ),
            (
                json!({"a": ["x", "x"]}),
                object(
                    "a",
                    json!({"type": "array", "x-kubernetes-list-type": "set"}),
                ),
                "spec.a[1]: Duplicate value: \"x\"",
            ),
            (
                json!({"a": [{"n": "x", "v": 1}, {"n": "x"}]}),
                object(
                    "a",
                    json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"]}),
                ),
                "spec.a[1]: Duplicate value: {\"n\":\"x\"}",
            ),
            (
                json!({"a": {"b": "c"}}),
                object(
                    "a",
                    json!({"type": "object", "additionalProperties": {"type": "integer"}}),
                ),
                "spec.a.b: Invalid value: \"string\": spec.a.b in body must be of type integer: \"string\"",
            ),
            (
                json!({"a": "x"}),
                object("a", json!({"type": "string", "not": {"enum": ["x"]}})),
                "<nil>: Invalid value: \"\": \"spec.a\" must not validate the schema (not)",
            ),
        ] {
            assert_eq!(messages(spec, schema), [want]);
        }
    }

    #[test]
    fn alternatives_report_the_errors_of_their_first_schema() {
        let one = json!({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
        assert_eq!(
            messages(json!({}), one.clone()),
            [
                "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found none valid",
                "spec.a: Required value"
            ]
        );
        assert_eq!(
            messages(json!({"a": 1, "b": 2}), one.clone()),
            [
                "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found 2 valid alternatives"
            ]
        );
        assert_eq!(messages(json!({"a": 1}), one), [""; 0]);
        let any = json!({"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 2}]});
        assert_eq!(messages(json!(3), any.clone()).len(), 2);
        assert_eq!(messages(json!(1), any), [""; 0]);
    }

    #[test]
    fn skipped_cel_rules_are_reported() {
        let schema = json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "maximum": 3, "x-kubernetes-validations": [{"rule": "self > 0"}]}}});
        assert_eq!(
            messages(json!({}), schema.clone()).len(),
            2,
            "a missing value stops them"
        );
        assert_eq!(
            messages(json!({"a": 4}), schema).len(),
            1,
            "a large value does not"
        );
    }

    #[test]
    fn unchanged_invalid_values_may_stay() {
        let shape = ValidationSchema::parse(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "integer", "maximum": 3}, "b": {"type": "string"}}}}}),
        );
        let old = json!({"spec": {"a": 9, "b": "x"}});
        let new = json!({"spec": {"a": 9, "b": "y"}});
        assert_eq!(validate(&new, Some(&old), &shape, None), []);
        assert_eq!(
            validate(&json!({"spec": {"a": 8}}), Some(&old), &shape, None).len(),
            1
        );
    }
}
