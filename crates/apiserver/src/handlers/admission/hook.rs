//! The registered webhooks, and which requests they are called for.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::{Admission, Call};
use crate::kinds::kind::{Kind, Lookup};
use crate::objects::fields::{at, is_empty, items, text};
use crate::objects::schema::Schema;
use crate::objects::status::Status;
use crate::resources::registry::ServedKind;
use crate::resources::selector::matches_label_selector;

const GROUP: &str = "admissionregistration.k8s.io";

/// A webhook of a configuration.
pub(super) struct Hook {
    configuration: Arc<Value>,
    position: usize,
    pub(super) mutating: bool,
}

pub(super) fn mutating(call: &Call) -> Vec<Hook> {
    registered(call, "mutatingwebhookconfigurations", true)
}

pub(super) fn validating(call: &Call) -> Vec<Hook> {
    registered(call, "validatingwebhookconfigurations", false)
}

/// By the names of the configurations, then in the order of each list.
fn registered(call: &Call, plural: &str, mutating: bool) -> Vec<Hook> {
    // A broken webhook must not block the removal of its own configuration.
    if call.served.kind.group == GROUP {
        return Vec::new();
    }
    let mut hooks = Vec::new();
    for configuration in call.server.configurations(GROUP, plural) {
        for position in 0..items(&configuration, "webhooks").len() {
            let configuration = Arc::clone(&configuration);
            hooks.push(Hook {
                configuration,
                position,
                mutating,
            });
        }
    }
    hooks
}

/// How a request matches: by its own kind, or by another version of it.
pub(super) struct Matched {
    other: Option<Arc<ServedKind>>,
}

impl Matched {
    pub(super) fn kind<'a>(&'a self, admission: &'a Admission<'_>) -> &'a Kind {
        let served = self.other.as_ref().unwrap_or(&admission.call.served);
        &served.kind
    }

    pub(super) fn is_other(&self) -> bool {
        self.other.is_some()
    }

    pub(super) fn schema<'a>(&'a self, admission: &'a Admission<'_>) -> &'a Schema {
        match &self.other {
            Some(other) => &other.kind.schema,
            None => admission.body.schema,
        }
    }

    /// The object as the webhook sees it.
    pub(super) fn view(&self, admission: &Admission<'_>, object: &Value) -> Value {
        match &self.other {
            Some(other) => admission.call.served.convert(object, other),
            None => object.clone(),
        }
    }

    /// The reverse of [`Matched::view`].
    pub(super) fn original(&self, admission: &Admission<'_>, object: Value) -> Value {
        match &self.other {
            Some(other) => other.convert(&object, &admission.call.served),
            None => object,
        }
    }
}

impl Hook {
    pub(super) fn json(&self) -> &Value {
        &items(&self.configuration, "webhooks")[self.position]
    }

    pub(super) fn name(&self) -> &str {
        text(self.json(), "name")
    }

    pub(super) fn client(&self) -> &Value {
        at(self.json(), "clientConfig")
    }

    pub(super) fn timeout(&self) -> Duration {
        let seconds = at(self.json(), "timeoutSeconds").as_u64();
        Duration::from_secs(seconds.unwrap_or(10))
    }

    pub(super) fn ignores_failures(&self) -> bool {
        text(self.json(), "failurePolicy") == "Ignore"
    }

    pub(super) fn is_reinvocable(&self) -> bool {
        text(self.json(), "reinvocationPolicy") == "IfNeeded"
    }

    /// Whether the webhook must be called, and with which kind.
    pub(super) fn matches(
        &self,
        admission: &Admission<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Option<Matched>, Status> {
        let Some(matched) = self.matches_rules(admission) else {
            return Ok(None);
        };
        let selected = self.selects_namespace(admission, object)?
            && self.selects_object([object, old].into_iter().flatten());
        Ok(selected.then_some(matched))
    }

    fn matches_rules(&self, admission: &Admission<'_>) -> Option<Matched> {
        let served = &admission.call.served;
        let matches = |kind: &Kind| {
            let rules = items(self.json(), "rules").iter();
            rules
                .into_iter()
                .any(|rule| rule_matches(rule, kind, admission))
        };
        if matches(&served.kind) {
            return Some(Matched { other: None });
        }
        if text(self.json(), "matchPolicy") != "Equivalent" {
            return None;
        }
        let registry = admission.call.server.registry();
        let mut others = registry.kinds.iter();
        let other = others.find(|other| {
            other.table == served.table && !Arc::ptr_eq(other, served) && matches(&other.kind)
        })?;
        // A binding or a scale is the same in every version of its object.
        let same_body = admission.body.kind != served.kind.kind;
        let other = (!same_body).then(|| Arc::clone(other));
        Some(Matched { other })
    }

    fn selects_namespace(
        &self,
        admission: &Admission<'_>,
        object: Option<&Value>,
    ) -> Result<bool, Status> {
        let selector = at(self.json(), "namespaceSelector");
        let call = admission.call;
        let is_namespace = is_namespace(&call.served.kind);
        if (!call.served.kind.namespaced && !is_namespace) || selects_everything(selector) {
            return Ok(true);
        }
        let none = Value::Object(Map::new());
        let labels = |object: &Value| match at(object, "metadata.labels") {
            Value::Null => none.clone(),
            labels => labels.clone(),
        };
        if is_namespace
            && admission.subresource.is_empty()
            && let Some(object) = object
        {
            return Ok(matches_label_selector(selector, &labels(object)));
        }
        let name = admission.namespace();
        let namespace = call.server.get("", "namespaces", "", name);
        let namespace = namespace.ok_or_else(|| Status::not_found("", "namespaces", name))?;
        Ok(matches_label_selector(selector, &labels(&namespace)))
    }

    fn selects_object<'a>(&self, mut objects: impl Iterator<Item = &'a Value>) -> bool {
        let selector = at(self.json(), "objectSelector");
        selects_everything(selector)
            || objects.any(|object| matches_label_selector(selector, at(object, "metadata.labels")))
    }
}

impl Admission<'_> {
    /// A namespace is in itself.
    pub(super) fn namespace(&self) -> &str {
        match is_namespace(&self.call.served.kind) {
            true => &self.name,
            false => &self.call.path.namespace,
        }
    }
}

fn is_namespace(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.plural == "namespaces"
}

fn selects_everything(selector: &Value) -> bool {
    is_empty(at(selector, "matchLabels")) && is_empty(at(selector, "matchExpressions"))
}

fn rule_matches(rule: &Value, kind: &Kind, admission: &Admission<'_>) -> bool {
    let names = |field: &str, value: &str| {
        let listed = items(rule, field).iter().filter_map(Value::as_str);
        listed.into_iter().any(|name| name == "*" || name == value)
    };
    let scope = match text(rule, "scope") {
        "Namespaced" => kind.namespaced,
        "Cluster" => !kind.namespaced,
        _ => true,
    };
    scope
        && names("operations", admission.operation.as_str())
        && names("apiGroups", &kind.group)
        && names("apiVersions", &kind.version)
        && items(rule, "resources")
            .iter()
            .filter_map(Value::as_str)
            .any(|resource| {
                let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
                (resource == "*" || resource == kind.plural)
                    && (sub == "*" || sub == admission.subresource)
            })
}
