//! Daemon sets: a pod on every node.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::{selector, spec_status};
use super::{
    check_immutable_selector, check_not_negative, check_runs_forever, check_selector,
    check_template, container_cells,
};
use crate::kinds::kind::{Column, Rules, Write};
use crate::kinds::printer;
use crate::objects::fields::{at, each, fill, number, open, text};
use crate::objects::status::FieldError;

/// Counts changes of the template, from before objects had a generation.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

const COUNTS: [&str; 4] = [
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
];

pub(in crate::kinds) struct DaemonSet;

impl Rules for DaemonSet {
    fn default(&self, object: &mut Value) {
        let Some(fields) = object.as_object_mut() else {
            return;
        };
        fill(
            open(open(fields, "metadata"), "annotations"),
            TEMPLATE_GENERATION,
            "0",
        );
        let spec = open(fields, "spec");
        fill(spec, "revisionHistoryLimit", 10);
        let strategy = open(spec, "updateStrategy");
        fill(strategy, "type", "RollingUpdate");
        if strategy
            .get("type")
            .is_some_and(|kind| kind == "RollingUpdate")
        {
            let rolling = open(strategy, "rollingUpdate");
            fill(rolling, "maxSurge", 0);
            fill(rolling, "maxUnavailable", 1);
        }
        super::default_template(spec);
        let status = open(fields, "status");
        for count in COUNTS {
            fill(status, count, 0);
        }
        for condition in each(status, "conditions") {
            fill(condition, "lastTransitionTime", Value::Null);
        }
    }

    fn prepare(&self, object: &mut Value, old: Option<&Value>, write: Write<'_>) {
        spec_status::separate_status(object, old, write, |_| no_pods());
        spec_status::count_spec_changes(object, old);
        let template = |object| at(object, "spec.template");
        let before = old.map_or(0, template_generation);
        let changed = old.is_none_or(|old| template(object) != template(old));
        let generation = before.saturating_add(i64::from(changed));
        if let Some(fields) = object.as_object_mut() {
            let annotations = open(open(fields, "metadata"), "annotations");
            annotations.insert(
                TEMPLATE_GENERATION.to_owned(),
                json!(generation.to_string()),
            );
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>, write: Write<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if write == Write::Subresource("status") {
            return errors;
        }
        let counts = ["spec.minReadySeconds", "spec.revisionHistoryLimit"];
        check_not_negative(object, &counts, &mut errors);
        check_immutable_selector(object, old, &mut errors);
        // Without a selector only the mismatch is an error.
        let selected = at(object, "spec.selector").is_object()
            && check_selector(object, "daemonset", &mut errors);
        check_template(object, selected, &mut errors);
        check_runs_forever(object, &mut errors);
        let strategy = text(object, "spec.updateStrategy.type");
        let known = ["RollingUpdate", "OnDelete"];
        if !known.contains(&strategy) {
            let shown = json!({"Type": strategy, "RollingUpdate": null});
            errors.push(FieldError::not_supported(
                "spec.updateStrategy",
                &shown,
                &known,
            ));
        }
        errors
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        super::template_warnings(object, old)
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }

    fn zero_fields(&self) -> Vec<(&'static str, Value)> {
        let template = json!({"metadata": {}, "spec": {"containers": null}});
        let spec = json!({"selector": null, "template": template, "updateStrategy": {}});
        vec![("spec", spec), ("status", no_pods())]
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns(
            "Name, Desired:integer, Current:integer, Ready:integer, Up-to-date:integer, Available:integer, Node Selector, Age, Containers*, Images*, Selector*",
        )
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let [containers, images] = container_cells(object);
        let count = |field: &str| json!(number(at(object, "status"), field));
        vec![
            printer::name(object),
            count("desiredNumberScheduled"),
            count("currentNumberScheduled"),
            count("numberReady"),
            count("updatedNumberScheduled"),
            count("numberAvailable"),
            selector::map_cell(at(object, "spec.template.spec.nodeSelector")).into(),
            printer::created(object, now),
            containers,
            images,
            selector::cell(at(object, "spec.selector")).into(),
        ]
    }
}

fn no_pods() -> Value {
    Value::Object(
        COUNTS
            .iter()
            .map(|count| ((*count).to_owned(), json!(0)))
            .collect(),
    )
}

fn template_generation(object: &Value) -> i64 {
    let annotations = at(object, "metadata.annotations");
    let text = annotations.get(TEMPLATE_GENERATION).and_then(Value::as_str);
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_the_template_is_counted_apart() {
        let set = |spec: Value| json!({"metadata": {"name": "d"}, "spec": spec});
        let mut first = set(json!({"template": {"spec": {}}}));
        DaemonSet.prepare(&mut first, None, Write::Create);
        let mut slower = set(json!({"template": {"spec": {}}, "minReadySeconds": 5}));
        DaemonSet.prepare(&mut slower, Some(&first), Write::Update);
        let mut other =
            set(json!({"template": {"spec": {"hostNetwork": true}}, "minReadySeconds": 5}));
        DaemonSet.prepare(&mut other, Some(&slower), Write::Update);
        for (case, object, generation, template) in [
            ("created", &first, 1, "1"),
            ("spec changed", &slower, 2, "1"),
            ("template changed", &other, 3, "2"),
        ] {
            assert_eq!(number(object, "metadata.generation"), generation, "{case}");
            let annotation = &object["metadata"]["annotations"][TEMPLATE_GENERATION];
            assert_eq!(annotation, template, "{case}");
        }
    }
}
