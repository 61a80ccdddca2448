//! The validation part of an `openAPIV3Schema`, read once per definition.
//!
//! [`crate::objects::schema::Schema`] holds field names and merge keys, and serves pruning.

use regex::Regex;
use serde_json::{Number, Value};

use crate::objects::fields::{at, items, text};

#[derive(Debug)]
pub(super) struct ValidationSchema {
    /// Empty where the schema leaves it open.
    pub(super) kind: String,
    pub(super) int_or_string: bool,
    pub(super) nullable: bool,
    pub(super) default: Option<Value>,
    pub(super) allowed: Vec<Value>,
    pub(super) format: String,
    pub(super) pattern: Option<Regex>,
    pub(super) length: Bounds<u64>,
    pub(super) items_count: Bounds<u64>,
    pub(super) properties_count: Bounds<u64>,
    pub(super) range: Bounds<Number>,
    pub(super) exclusive: Bounds<()>,
    pub(super) multiple_of: Option<Number>,
    pub(super) required: Vec<String>,
    pub(super) properties: Vec<(String, ValidationSchema)>,
    pub(super) additional: Option<Box<ValidationSchema>>,
    pub(super) items: Option<Box<ValidationSchema>>,
    pub(super) unique: Unique,
    pub(super) embedded: bool,
    pub(super) all_of: Vec<ValidationSchema>,
    pub(super) any_of: Vec<ValidationSchema>,
    pub(super) one_of: Vec<ValidationSchema>,
    pub(super) not: Option<Box<ValidationSchema>>,
    /// It or a part of it has CEL rules.
    pub(super) has_rules: bool,
}

#[derive(Debug)]
pub(super) struct Bounds<T> {
    pub(super) min: Option<T>,
    pub(super) max: Option<T>,
}

/// What may not occur twice in a list.
#[derive(Debug)]
pub(super) enum Unique {
    Nothing,
    Items,
    Keys(Vec<String>),
}

impl ValidationSchema {
    pub(super) fn parse(schema: &Value) -> Self {
        let count = |min: &str, max: &str| Bounds {
            min: at(schema, min).as_u64(),
            max: at(schema, max).as_u64(),
        };
        let flag = |key: &str| at(schema, key) == &Value::Bool(true);
        let list = |key: &str| {
            items(schema, key)
                .iter()
                .map(ValidationSchema::parse)
                .collect::<Vec<_>>()
        };
        let inner = |key: &str| schema.get(key).filter(|inner| inner.is_object());
        let boxed = |key: &str| inner(key).map(|inner| Box::new(ValidationSchema::parse(inner)));
        let number = |key: &str| at(schema, key).as_number().cloned();
        let properties = at(schema, "properties").as_object().into_iter().flatten();
        let properties: Vec<(String, ValidationSchema)> = properties
            .map(|(name, schema)| (name.clone(), ValidationSchema::parse(schema)))
            .collect();
        let mut shape = Self {
            kind: text(schema, "type").to_owned(),
            int_or_string: flag("x-kubernetes-int-or-string"),
            nullable: flag("nullable"),
            default: schema
                .get("default")
                .filter(|value| !value.is_null())
                .cloned(),
            allowed: items(schema, "enum").to_vec(),
            format: text(schema, "format").to_owned(),
            // An invalid pattern was refused with its definition.
            pattern: at(schema, "pattern")
                .as_str()
                .and_then(|p| Regex::new(p).ok()),
            length: count("minLength", "maxLength"),
            items_count: count("minItems", "maxItems"),
            properties_count: count("minProperties", "maxProperties"),
            range: Bounds {
                min: number("minimum"),
                max: number("maximum"),
            },
            exclusive: Bounds {
                min: flag("exclusiveMinimum").then_some(()),
                max: flag("exclusiveMaximum").then_some(()),
            },
            multiple_of: number("multipleOf"),
            required: strings(items(schema, "required")),
            additional: boxed("additionalProperties"),
            items: boxed("items"),
            unique: match text(schema, "x-kubernetes-list-type") {
                "set" => Unique::Items,
                "map" => Unique::Keys(strings(items(schema, "x-kubernetes-list-map-keys"))),
                _ => Unique::Nothing,
            },
            embedded: flag("x-kubernetes-embedded-resource"),
            all_of: list("allOf"),
            any_of: list("anyOf"),
            one_of: list("oneOf"),
            not: boxed("not"),
            has_rules: !items(schema, "x-kubernetes-validations").is_empty(),
            properties,
        };
        let inner_rules = shape.parts().any(|part| part.has_rules);
        shape.has_rules |= inner_rules;
        shape
    }

    pub(super) fn property(&self, name: &str) -> Option<&ValidationSchema> {
        let mut named = self.properties.iter();
        named
            .find(|(known, _)| known == name)
            .map(|(_, shape)| shape)
    }

    /// What the value of a field must be: declared by name, or as any other field.
    pub(super) fn field(&self, name: &str) -> Option<&ValidationSchema> {
        self.property(name).or(self.additional.as_deref())
    }

    fn parts(&self) -> impl Iterator<Item = &ValidationSchema> {
        let properties = self.properties.iter().map(|(_, shape)| shape);
        properties
            .chain(self.additional.as_deref())
            .chain(self.items.as_deref())
    }
}

fn strings(values: &[Value]) -> Vec<String> {
    values
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}
