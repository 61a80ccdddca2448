//! Whether a schema is "structural", so that objects can be pruned and defaulted.

use regex::Regex;
use serde_json::{Value, json};

use super::validate;
use super::validation_schema::ValidationSchema;
use crate::objects::fields::{at, is_empty, items, text};
use crate::objects::status::{FieldError, FieldErrors};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const LIST_TYPES: [&str; 3] = ["atomic", "set", "map"];
/// Fields that alternatives (`allOf`, `anyOf`, ...) may not have: they belong to the structure.
const STRUCTURE: [&str; 6] = [
    "type",
    "default",
    "nullable",
    "description",
    "title",
    "additionalProperties",
];

/// Checks the whole schema at `field`.
pub(super) fn check(schema: &Value, field: &str, errors: &mut FieldErrors) {
    let known = errors.len();
    check_supported(schema, field, errors);
    // With these fields a schema has no structure that could be checked.
    if errors.len() > known {
        return;
    }
    match text(schema, "type") {
        "" => {
            let detail = "must not be empty at the root";
            errors.push(FieldError::required(format!("{field}.type"), detail));
        }
        "object" => {}
        _ => {
            let detail = "must be object at the root";
            errors.push(FieldError::invalid(
                format!("{field}.type"),
                at(schema, "type"),
                detail,
            ));
        }
    }
    if schema.get("additionalProperties").is_some() {
        let detail = "must not be used at the root";
        errors.push(FieldError::forbidden(
            format!("{field}.additionalProperties"),
            detail,
        ));
    }
    let metadata = at(schema, "properties.metadata");
    let named = at(metadata, "properties").as_object().into_iter().flatten();
    if named
        .map(|(name, _)| name.as_str())
        .any(|name| !["name", "generateName"].contains(&name))
    {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(
            format!("{field}.properties[metadata]"),
            detail,
        ));
    }
    check_node(schema, field, errors);
}

/// JSON Schema has more fields than definitions may use, at any depth.
fn check_supported(schema: &Value, field: &str, errors: &mut FieldErrors) {
    if !schema.is_object() {
        return;
    }
    for key in [
        "id",
        "additionalItems",
        "patternProperties",
        "definitions",
        "dependencies",
        "$ref",
    ] {
        let found = at(schema, key);
        if !found.is_null() && (key == "$ref" || !is_empty(found)) {
            let detail = format!("{key} is not supported");
            errors.push(FieldError::forbidden(format!("{field}.{key}"), &detail));
        }
    }
    for key in ["additionalProperties", "items", "not"] {
        check_supported(at(schema, key), &format!("{field}.{key}"), errors);
    }
    let properties = at(schema, "properties").as_object().into_iter().flatten();
    for (name, part) in properties {
        check_supported(part, &format!("{field}.properties[{name}]"), errors);
    }
    for list in ["allOf", "oneOf", "anyOf"] {
        for (i, part) in items(schema, list).iter().enumerate() {
            check_supported(part, &format!("{field}.{list}[{i}]"), errors);
        }
    }
}

/// A schema below the root must have a type, unless it allows two or anything.
fn check_part(schema: &Value, field: &str, of: &str, errors: &mut FieldErrors) {
    let open = [
        "x-kubernetes-int-or-string",
        "x-kubernetes-preserve-unknown-fields",
    ]
    .iter()
    .any(|flag| schema.get(*flag) == Some(&Value::Bool(true)));
    if text(schema, "type").is_empty() && !open {
        let detail = format!("must not be empty for specified {of}");
        errors.push(FieldError::required(format!("{field}.type"), &detail));
    }
    check_node(schema, field, errors);
}

fn check_node(schema: &Value, field: &str, errors: &mut FieldErrors) {
    let kind = at(schema, "type");
    if !is_empty(kind) && !TYPES.contains(&kind.as_str().unwrap_or_default()) {
        errors.push(FieldError::not_supported(
            format!("{field}.type"),
            kind,
            &TYPES,
        ));
    }
    let properties = at(schema, "properties").as_object();
    let additional = at(schema, "additionalProperties");
    if properties.is_some_and(|properties| !properties.is_empty()) && additional.is_object() {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(
            format!("{field}.additionalProperties"),
            detail,
        ));
    }
    for (name, part) in properties.into_iter().flatten() {
        check_part(
            part,
            &format!("{field}.properties[{name}]"),
            "object fields",
            errors,
        );
    }
    if additional.is_object() {
        check_part(
            additional,
            &format!("{field}.additionalProperties"),
            "object fields",
            errors,
        );
    }
    if text(schema, "type") == "array" {
        check_array(schema, field, errors);
    }
    if let Some(pattern) = at(schema, "pattern").as_str()
        && let Err(problem) = Regex::new(pattern)
    {
        let why = problem.to_string();
        let why = why
            .lines()
            .last()
            .unwrap_or_default()
            .trim_start_matches("error: ");
        let detail = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(FieldError::invalid(
            format!("{field}.pattern"),
            &json!(pattern),
            &detail,
        ));
    }
    if at(schema, "x-kubernetes-embedded-resource") == &Value::Bool(true)
        && is_empty(at(schema, "properties"))
        && at(schema, "x-kubernetes-preserve-unknown-fields") != &Value::Bool(true)
    {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(format!("{field}.properties"), detail));
    }
    for (i, rule) in items(schema, "x-kubernetes-validations").iter().enumerate() {
        if text(rule, "rule").trim().is_empty() {
            let field = format!("{field}.x-kubernetes-validations[{i}].rule");
            errors.push(FieldError::required(field, "rule is not specified"));
        }
    }
    check_alternatives(schema, field, errors);
    check_default(schema, field, errors);
}

fn check_array(schema: &Value, field: &str, errors: &mut FieldErrors) {
    let item = at(schema, "items");
    if !item.is_object() {
        errors.push(FieldError::required(
            format!("{field}.items"),
            "must be specified",
        ));
    } else {
        check_part(item, &format!("{field}.items"), "array items", errors);
    }
    if at(schema, "uniqueItems") == &Value::Bool(true) {
        let detail =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(
            format!("{field}.uniqueItems"),
            detail,
        ));
    }
    let kind = at(schema, "x-kubernetes-list-type");
    match kind.as_str().unwrap_or_default() {
        "map" => check_map_keys(schema, field, errors),
        "set"
            if text(item, "type") == "object"
                && text(item, "x-kubernetes-map-type") != "atomic" =>
        {
            let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
            let found = at(item, "x-kubernetes-map-type");
            errors.push(FieldError::invalid(
                format!("{field}.items.x-kubernetes-map-type"),
                found,
                detail,
            ));
        }
        "" => {}
        known if LIST_TYPES.contains(&known) => {}
        _ => errors.push(FieldError::not_supported(
            format!("{field}.x-kubernetes-list-type"),
            kind,
            &LIST_TYPES,
        )),
    }
}

fn check_map_keys(schema: &Value, field: &str, errors: &mut FieldErrors) {
    let keys = items(schema, "x-kubernetes-list-map-keys");
    let keys_field = format!("{field}.x-kubernetes-list-map-keys");
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(keys_field, detail));
        return;
    }
    let item = at(schema, "items");
    let properties = at(item, "properties");
    let names = keys.iter().filter_map(Value::as_str);
    if names.clone().any(|name| properties.get(name).is_none()) {
        let detail = "entries must all be names of item properties";
        errors.push(FieldError::invalid(keys_field, &json!(keys), detail));
        return;
    }
    for name in names {
        let required = items(item, "required")
            .iter()
            .any(|required| required == name);
        if !required && properties[name].get("default").is_none() {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(
                format!("{field}.items.properties[{name}].default"),
                detail,
            ));
        }
    }
}

fn check_alternatives(schema: &Value, field: &str, errors: &mut FieldErrors) {
    let mut alternatives: Vec<(String, &Value)> = Vec::new();
    for list in ["allOf", "anyOf", "oneOf"] {
        let parts = items(schema, list).iter().enumerate();
        alternatives.extend(parts.map(|(i, part)| (format!("{field}.{list}[{i}]"), part)));
    }
    alternatives.extend(schema.get("not").map(|part| (format!("{field}.not"), part)));
    // Two types side by side are the written form of int-or-string.
    let two_types = at(schema, "x-kubernetes-int-or-string") == &Value::Bool(true);
    for (field, part) in alternatives {
        for key in STRUCTURE {
            if part.get(key).is_some() && !(two_types && key == "type") {
                errors.push(FieldError::forbidden(
                    format!("{field}.{key}"),
                    "must be empty to be structural",
                ));
            }
        }
    }
}

/// A default must match its schema.
fn check_default(schema: &Value, field: &str, errors: &mut FieldErrors) {
    let Some(default) = schema.get("default").filter(|default| !default.is_null()) else {
        return;
    };
    let mut shape = ValidationSchema::parse(schema);
    shape.default = None;
    let mut value = default.clone();
    super::defaults::fill(&mut value, &shape);
    for mut error in validate::validate_part(&value, &shape) {
        error.field = format!("{field}.default{}", error.field);
        errors.push(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_that_are_not_structural_are_refused() {
        let with = |part: Value| json!({"type": "object", "properties": {"a": part}});
        for (schema, want) in [
            (
                json!({}),
                "type: Required value: must not be empty at the root",
            ),
            (
                json!({"type": "string"}),
                "type: Invalid value: \"string\": must be object at the root",
            ),
            (
                json!({"type": "object", "additionalProperties": false}),
                "additionalProperties: Forbidden: must not be used at the root",
            ),
            (
                with(json!({})),
                "properties[a].type: Required value: must not be empty for specified object fields",
            ),
            (
                with(json!({"type": "foo"})),
                "properties[a].type: Unsupported value: \"foo\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
            ),
            (
                with(json!({"type": "array"})),
                "properties[a].items: Required value: must be specified",
            ),
            (
                with(json!({"type": "array", "items": {}})),
                "properties[a].items.type: Required value: must not be empty for specified array items",
            ),
            (
                with(
                    json!({"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
                ),
                "properties[a].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ),
            (
                json!({"type": "object", "$ref": "#/x"}),
                "$ref: Forbidden: $ref is not supported",
            ),
            (
                with(json!({"$ref": ""})),
                "properties[a].$ref: Forbidden: $ref is not supported",
            ),
            (
                with(json!({"type": "array", "items": {"$ref": "#/x"}})),
                "properties[a].items.$ref: Forbidden: $ref is not supported",
            ),
            (
                with(
                    json!({"type": "string", "anyOf": [{"minLength": 1}, {"not": {"$ref": "#/x"}}]}),
                ),
                "properties[a].anyOf[1].not.$ref: Forbidden: $ref is not supported",
            ),
            (
                with(json!({"type": "object", "additionalProperties": {"$ref": "#/x"}})),
                "properties[a].additionalProperties.$ref: Forbidden: $ref is not supported",
            ),
            (
                with(json!({"type": "string", "definitions": {"x": {"type": "string"}}})),
                "properties[a].definitions: Forbidden: definitions is not supported",
            ),
            (
                json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
                "properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
            ),
            (
                with(json!({"type": "integer", "default": "x"})),
                "properties[a].default: Invalid value: \"string\":  in body must be of type integer: \"string\"",
            ),
            (
                with(json!({"type": "integer", "maximum": 3, "default": 5})),
                "properties[a].default: Invalid value: 5:  in body should be less than or equal to 3",
            ),
            (
                with(
                    json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}),
                ),
                "properties[a].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
            ),
            (
                with(
                    json!({"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}),
                ),
                "properties[a].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ),
            (
                with(json!({"type": "object", "oneOf": [{"type": "object"}]})),
                "properties[a].oneOf[0].type: Forbidden: must be empty to be structural",
            ),
            (
                with(json!({"type": "string", "x-kubernetes-validations": [{"rule": ""}]})),
                "properties[a].x-kubernetes-validations[0].rule: Required value: rule is not specified",
            ),
        ] {
            let mut errors = Vec::new();
            check(&schema, "s", &mut errors);
            let found: Vec<_> = errors
                .iter()
                .map(|e| format!("{}: {}", e.field, e.message))
                .collect();
            assert_eq!(found, [format!("s.{want}")]);
        }
    }

    #[test]
    fn usual_schemas_pass() {
        for schema in [
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
            json!({"type": "object", "properties": {"a": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}}}),
            json!({"type": "object", "properties": {"a": {"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 1}}}}}),
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}}}}),
        ] {
            let mut errors = Vec::new();
            check(&schema, "s", &mut errors);
            assert_eq!(errors, [], "{schema}");
        }
    }
}
