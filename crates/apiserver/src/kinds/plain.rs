//! Kinds without a file of their own: what the server does with their objects is data, one [`Plain`] per kind.
//!
//! Nothing acts on most of these objects. A kind on which a real cluster acts says so in a warning when an object
//! is created.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::kind::{Column, Kind, Rules, Write};
use super::{printer, spec_status};
use crate::objects::fields::JsonObject;
use crate::objects::names::dns_subdomain;
use crate::objects::status::FieldError;

mod admission;
mod autoscaling;
mod core;
mod devices;
mod flow;
mod network;
mod roles;
mod signing;
mod webhooks;

/// The kinds of every group.
pub(super) fn kinds() -> Vec<Kind> {
    let mut kinds = core::kinds();
    kinds.extend(autoscaling::kinds());
    kinds.extend(signing::kinds());
    kinds.extend(network::kinds());
    kinds.extend(roles::kinds());
    kinds.extend(admission::kinds());
    kinds.extend(devices::kinds());
    kinds.extend(flow::kinds());
    kinds
}

/// The rules of one kind; [`PLAIN`] has the usual ones.
#[derive(Clone, Copy)]
pub(super) struct Plain {
    /// The status of a new object, if users write the spec and controllers the status.
    status: Option<fn() -> Value>,
    /// `metadata.generation` counts changes of everything but metadata and status.
    generation: bool,
    defaults: fn(&mut JsonObject),
    /// Not called for writes of the status.
    check: fn(&Value, Option<&Value>, &mut Vec<FieldError>),
    check_name: fn(&str) -> Option<String>,
    creates_on_update: bool,
    columns: &'static str,
    cells: fn(&Value, Timestamp) -> Vec<Value>,
    /// Why an object has no effect here, for a kind that has one in a real cluster.
    no_effect: Option<&'static str>,
}

pub(super) const PLAIN: Plain = Plain {
    status: None,
    generation: false,
    defaults: |_| {},
    check: |_, _, _| {},
    check_name: dns_subdomain,
    creates_on_update: false,
    columns: "Name, Age",
    cells: |object, now| vec![printer::name(object), printer::created(object, now)],
    no_effect: None,
};

/// The columns of kinds for which the real server has none of its own.
const CREATED_AT: &str = "Name, Created At:date";

fn created_at(object: &Value, _now: Timestamp) -> Vec<Value> {
    let created = crate::objects::fields::at(object, "metadata.creationTimestamp");
    vec![printer::name(object), created.clone()]
}

/// An empty status.
fn empty() -> Value {
    json!({})
}

/// The warning about an object that has no effect.
pub(super) fn no_effect(kind: &str, why: &str) -> String {
    format!("{kind} has no effect in this cluster: {why}")
}

impl Rules for Plain {
    fn default(&self, object: &mut Value) {
        if let Some(fields) = object.as_object_mut() {
            (self.defaults)(fields);
        }
    }

    fn prepare(&self, object: &mut Value, old: Option<&Value>, write: Write<'_>) {
        if let Some(fresh) = self.status {
            // The approval of a CertificateSigningRequest is a condition of its status.
            let write = match write {
                Write::Subresource("approval") => Write::Subresource("status"),
                write => write,
            };
            spec_status::separate_status(object, old, write, |_| fresh());
        }
        if self.generation {
            let changed = old.is_none_or(|old| !same_desired_state(object, old));
            spec_status::count(object, old, changed);
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>, write: Write<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if !matches!(write, Write::Subresource(_)) {
            (self.check)(object, old, &mut errors);
        }
        errors
    }

    fn check_name(&self, name: &str) -> Option<String> {
        (self.check_name)(name)
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        let kind = object.get("kind").and_then(Value::as_str);
        let why = self.no_effect.filter(|_| old.is_none());
        let warning = why.map(|why| no_effect(kind.unwrap_or_default(), why));
        warning.into_iter().collect()
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }

    fn creates_on_update(&self) -> bool {
        self.creates_on_update
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns(self.columns)
    }

    fn has_own_columns(&self) -> bool {
        self.columns != CREATED_AT
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        (self.cells)(object, now)
    }
}

/// Not all of these kinds have a spec.
fn same_desired_state(object: &Value, old: &Value) -> bool {
    let desired = |key: &str| !["metadata", "status"].contains(&key);
    let (Some(object), Some(old)) = (object.as_object(), old.as_object()) else {
        return object == old;
    };
    let keys = object.keys().chain(old.keys());
    keys.filter(|key| desired(key))
        .all(|key| object.get(key) == old.get(key))
}

/// At most so many texts, and how many more there are.
fn first_of(texts: &[String], most: usize) -> String {
    let shown = texts[..texts.len().min(most)].join(",");
    match texts.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_change_of_the_desired_state_counts() {
        let rules = Plain {
            status: Some(empty),
            generation: true,
            ..PLAIN
        };
        let old = json!({"metadata": {"generation": 4}, "webhooks": [1], "status": {"a": 1}});
        for (case, object, want) in [
            (
                "labels",
                json!({"metadata": {"labels": {"a": "b"}}, "webhooks": [1]}),
                4,
            ),
            ("another list", json!({"metadata": {}, "webhooks": [2]}), 5),
            ("no list", json!({"metadata": {}}), 5),
        ] {
            let mut object = object;
            rules.prepare(&mut object, Some(&old), Write::Update);
            assert_eq!(object["metadata"]["generation"], want, "{case}");
            assert_eq!(object["status"], json!({"a": 1}), "{case}");
        }
    }

    #[test]
    fn a_new_object_without_effect_gives_a_warning() {
        let rules = Plain {
            no_effect: Some("nothing looks at it"),
            ..PLAIN
        };
        let object = json!({"kind": "Thing"});
        assert_eq!(
            rules.warnings(&object, None),
            ["Thing has no effect in this cluster: nothing looks at it"]
        );
        assert_eq!(rules.warnings(&object, Some(&object)), Vec::<String>::new());
        assert_eq!(PLAIN.warnings(&object, None), Vec::<String>::new());
    }

    #[test]
    fn long_lists_are_cut() {
        let texts: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).into();
        assert_eq!(first_of(&texts[..3], 3), "a,b,c");
        assert_eq!(first_of(&texts, 3), "a,b,c + 1 more...");
        assert_eq!(first_of(&[], 3), "");
    }
}
