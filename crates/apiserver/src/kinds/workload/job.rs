//! Jobs: pods that run to completion, selected by a label that only one job has.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::{selector, spec_status};
use super::{check_not_negative, check_template, container_cells};
use crate::kinds::kind::{Column, Name, Rules, Write};
use crate::kinds::printer;
use crate::objects::fields::{
    JsonObject, at, each, fill, inside, is_empty, items, number, open, put, text,
};
use crate::objects::status::FieldError;

const UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
const NAME_LABEL: &str = "batch.kubernetes.io/job-name";
/// The names of both labels before labels of Kubernetes had a prefix.
const OLD_UID_LABEL: &str = "controller-uid";
const OLD_NAME_LABEL: &str = "job-name";
const DELETE_WARNING: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

pub(in crate::kinds) struct Job;

impl Rules for Job {
    fn default(&self, object: &mut Value) {
        let labels = at(object, "spec.template.metadata.labels").clone();
        let Some(fields) = object.as_object_mut() else {
            return;
        };
        if !is_empty(&labels) {
            fill(open(fields, "metadata"), "labels", labels);
        }
        let spec = open(fields, "spec");
        if !spec.contains_key("parallelism") {
            fill(spec, "completions", 1);
        }
        fill(spec, "parallelism", 1);
        let per_index = spec.contains_key("backoffLimitPerIndex");
        fill(spec, "backoffLimit", if per_index { i32::MAX } else { 6 });
        fill(spec, "manualSelector", false);
        fill(spec, "completionMode", "NonIndexed");
        fill(spec, "suspend", false);
        let replacement = match spec.contains_key("podFailurePolicy") {
            true => "Failed",
            false => "TerminatingOrFailed",
        };
        fill(spec, "podReplacementPolicy", replacement);
        default_failure_policy(spec);
        super::default_template(spec);
        for condition in each(open(fields, "status"), "conditions") {
            fill(condition, "lastProbeTime", Value::Null);
            fill(condition, "lastTransitionTime", Value::Null);
        }
    }

    fn prepare(&self, object: &mut Value, old: Option<&Value>, write: Write<'_>) {
        if old.is_none() {
            select_own_pods(object);
        }
        spec_status::separate_status(object, old, write, |_| json!({}));
        spec_status::count_spec_changes(object, old);
    }

    fn validate(&self, object: &Value, old: Option<&Value>, write: Write<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if write == Write::Subresource("status") {
            return errors;
        }
        let counts = [
            "spec.parallelism",
            "spec.completions",
            "spec.activeDeadlineSeconds",
            "spec.backoffLimit",
            "spec.ttlSecondsAfterFinished",
        ];
        check_not_negative(object, &counts, &mut errors);
        let mode = at(object, "spec.completionMode");
        let modes = ["NonIndexed", "Indexed"];
        if !modes.contains(&mode.as_str().unwrap_or_default()) {
            errors.push(FieldError::not_supported(
                "spec.completionMode",
                mode,
                &modes,
            ));
        }
        let wanted = at(object, "spec.selector");
        let generated = json!({"matchLabels": {UID_LABEL: at(object, "metadata.uid")}});
        if at(object, "spec.manualSelector") == &Value::Bool(false) && *wanted != generated {
            errors.push(FieldError::invalid(
                "spec.selector",
                wanted,
                "`selector` not auto-generated",
            ));
        }
        let selected = selector::matches(wanted, at(object, "spec.template.metadata.labels"));
        check_template(object, selected, &mut errors);
        let field = "spec.template.spec.restartPolicy";
        check_restart_policy(at(object, field), field, &mut errors);
        if let Some(old) = old {
            check_update(object, old, &mut errors);
        }
        errors
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        super::template_warnings(object, old)
    }

    fn selectable_fields(&self) -> Vec<Name> {
        super::super::names(&["status.successful"])
    }

    fn field(&self, object: &Value, path: &str) -> Option<String> {
        (path == "status.successful").then(|| number(object, "status.succeeded").to_string())
    }

    fn unknown_field(&self, path: &str) -> String {
        format!("field label {path:?} not supported for Job")
    }

    fn orphans_by_default(&self) -> bool {
        true
    }

    fn delete_warnings(&self) -> Vec<String> {
        vec![DELETE_WARNING.to_owned()]
    }

    fn zero_fields(&self) -> Vec<(&'static str, Value)> {
        let template = json!({"metadata": {}, "spec": {"containers": null}});
        vec![
            ("spec", json!({"template": template})),
            ("status", json!({})),
        ]
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns(
            "Name, Status, Completions, Duration, Age, Containers*, Images*, Selector*",
        )
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let [containers, images] = container_cells(object);
        vec![
            printer::name(object),
            status_cell(object).into(),
            completions_cell(object).into(),
            duration_cell(object, now).into(),
            printer::created(object, now),
            containers,
            images,
            selector::cell(at(object, "spec.selector")).into(),
        ]
    }
}

pub(super) fn default_failure_policy(spec: &mut JsonObject) {
    if let Some(policy) = inside(spec, "podFailurePolicy") {
        for rule in each(policy, "rules") {
            for condition in each(rule, "onPodConditions") {
                fill(condition, "status", "True");
            }
        }
    }
}

/// The pods of a job must be able to end.
pub(super) fn check_restart_policy(policy: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let allowed = ["OnFailure", "Never"];
    if policy == "Always" {
        let detail = "valid values: \"OnFailure\", \"Never\"";
        errors.push(FieldError::required(field, detail));
    } else if !allowed.contains(&policy.as_str().unwrap_or_default()) {
        errors.push(FieldError::not_supported(field, policy, &allowed));
    }
}

/// Labels the job and its pods with the job's uid, and selects by it.
fn select_own_pods(object: &mut Value) {
    if at(object, "spec.manualSelector") == &Value::Bool(true) {
        return;
    }
    let uid = at(object, "metadata.uid").clone();
    let name = at(object, "metadata.name").clone();
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    let label = |labels: &mut JsonObject| {
        for (key, value) in [
            (UID_LABEL, &uid),
            (NAME_LABEL, &name),
            (OLD_UID_LABEL, &uid),
            (OLD_NAME_LABEL, &name),
        ] {
            labels.insert(key.to_owned(), value.clone());
        }
    };
    label(open(open(fields, "metadata"), "labels"));
    let spec = open(fields, "spec");
    label(open(open(open(spec, "template"), "metadata"), "labels"));
    open(open(spec, "selector"), "matchLabels").insert(UID_LABEL.to_owned(), uid);
}

fn check_update(object: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let mut keep = |field: &str, now: &Value, before: &Value| {
        if now != before {
            errors.push(FieldError::invalid(field, now, "field is immutable"));
        }
    };
    if text(object, "spec.completionMode") != "Indexed" {
        keep(
            "spec.completions",
            at(object, "spec.completions"),
            at(old, "spec.completions"),
        );
    }
    for field in [
        "spec.selector",
        "spec.completionMode",
        "spec.podFailurePolicy",
        "spec.backoffLimitPerIndex",
    ] {
        keep(field, at(object, field), at(old, field));
    }
    let (now, before) = (at(object, "spec.template"), at(old, "spec.template"));
    // The scheduling directives of a job that has not started may still change.
    let waiting =
        at(old, "spec.suspend") == &Value::Bool(true) && at(old, "status.startTime").is_null();
    if waiting {
        let fixed = with_scheduling_of(now, before);
        if fixed != *before {
            keep("spec.template", now, before);
        }
    } else {
        keep("spec.template", now, before);
    }
}

/// The template, but labels, placement and resources as in `before`.
fn with_scheduling_of(template: &Value, before: &Value) -> Value {
    let mut template = template.clone();
    let Some(fields) = template.as_object_mut() else {
        return template;
    };
    put(fields, "metadata", before.get("metadata"));
    if let Some(spec) = inside(fields, "spec") {
        let before = at(before, "spec");
        for field in ["nodeSelector", "affinity", "tolerations", "schedulingGates"] {
            put(spec, field, before.get(field));
        }
        for list in ["containers", "initContainers"] {
            for (container, before) in each(spec, list).zip(items(before, list)) {
                put(container, "resources", before.get("resources"));
            }
        }
    }
    template
}

fn status_cell(job: &Value) -> &'static str {
    let is = |kind: &str| {
        items(job, "status.conditions")
            .iter()
            .any(|condition| text(condition, "type") == kind && text(condition, "status") == "True")
    };
    let first = |states: &[&'static str]| states.iter().copied().find(|state| is(state));
    // The end beats what leads to it.
    if let Some(ended) = first(&["Complete", "Failed"]) {
        return ended;
    }
    if !at(job, "metadata.deletionTimestamp").is_null() {
        return "Terminating";
    }
    first(&["Suspended", "FailureTarget", "SuccessCriteriaMet"]).unwrap_or("Running")
}

fn completions_cell(job: &Value) -> String {
    let succeeded = number(job, "status.succeeded");
    match (
        at(job, "spec.completions").as_i64(),
        number(job, "spec.parallelism"),
    ) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{succeeded}/1 of {parallel}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

fn duration_cell(job: &Value, now: Timestamp) -> String {
    let time = |path: &str| text(job, path).parse::<Timestamp>().ok();
    match (time("status.startTime"), time("status.completionTime")) {
        (None, _) => String::new(),
        (Some(start), end) => printer::duration(end.unwrap_or(now).as_second() - start.as_second()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(change: Value) -> Value {
        let mut object = json!({
            "metadata": {"name": "j", "uid": "u"},
            "spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
        });
        for (key, value) in change.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        Job.default(&mut object);
        Job.prepare(&mut object, None, Write::Create);
        object
    }

    #[test]
    fn a_job_finds_its_pods_by_its_uid() {
        let made = job(json!({}));
        let labels = json!({"a": "b", UID_LABEL: "u", NAME_LABEL: "j", OLD_UID_LABEL: "u", OLD_NAME_LABEL: "j"});
        assert_eq!(made["metadata"]["labels"], labels);
        assert_eq!(made["spec"]["template"]["metadata"]["labels"], labels);
        assert_eq!(
            made["spec"]["selector"],
            json!({"matchLabels": {UID_LABEL: "u"}})
        );
        let manual = job(json!({"manualSelector": true, "selector": {"matchLabels": {"a": "b"}}}));
        assert_eq!(manual["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(Job.validate(&manual, None, Write::Create), []);
    }

    #[test]
    fn counts_default_together() {
        for (case, change, completions, parallelism, backoff) in [
            ("neither", json!({}), json!(1), 1, 6),
            ("a work queue", json!({"parallelism": 3}), Value::Null, 3, 6),
            ("a count", json!({"completions": 3}), json!(3), 1, 6),
            (
                "retries per index",
                json!({"completions": 3, "backoffLimitPerIndex": 2}),
                json!(3),
                1,
                i32::MAX,
            ),
        ] {
            let spec = &job(change)["spec"];
            assert_eq!(spec["completions"], completions, "{case}");
            assert_eq!(
                (&spec["parallelism"], &spec["backoffLimit"]),
                (&json!(parallelism), &json!(backoff)),
                "{case}"
            );
        }
    }

    #[test]
    fn invalid_jobs_are_refused() {
        let always = json!({"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}});
        for (case, object, want) in [
            ("nothing", job(json!({})), None),
            (
                "pods that never end",
                job(always),
                Some("spec.template.spec.restartPolicy"),
            ),
            (
                "a selector of its own",
                job(json!({"selector": {"matchLabels": {"a": "b"}}})),
                Some("spec.selector"),
            ),
            (
                "a negative count",
                job(json!({"completions": -1})),
                Some("spec.completions"),
            ),
            (
                "another mode",
                job(json!({"completionMode": "X"})),
                Some("spec.completionMode"),
            ),
        ] {
            let errors = Job.validate(&object, None, Write::Create);
            assert_eq!(errors.first().map(|e| e.field.as_str()), want, "{case}");
        }
    }

    #[test]
    fn a_template_is_fixed_unless_the_job_waits() {
        let relabelled = |mut object: Value| {
            object["spec"]["template"]["metadata"]["labels"]["new"] = json!("x");
            object
        };
        for (case, suspended, want) in [
            ("running", false, Some("spec.template")),
            ("suspended", true, None),
        ] {
            let old = job(json!({"suspend": suspended}));
            let errors = Job.validate(&relabelled(old.clone()), Some(&old), Write::Update);
            assert_eq!(errors.first().map(|e| e.field.as_str()), want, "{case}");
        }
        let old = job(json!({"suspend": true}));
        let mut image = old.clone();
        image["spec"]["template"]["spec"]["containers"][0]["image"] = json!("other");
        assert_eq!(
            Job.validate(&image, Some(&old), Write::Update)[0].field,
            "spec.template"
        );
    }

    #[test]
    fn cells_show_the_progress() {
        let now: Timestamp = "2030-01-01T00:45:00Z".parse().unwrap();
        let condition = |kind: &str| json!({"type": kind, "status": "True"});
        for (case, spec, status, want) in [
            (
                "new",
                json!({"completions": 1}),
                json!({}),
                ("Running", "0/1", ""),
            ),
            (
                "a queue",
                json!({"parallelism": 3}),
                json!({"succeeded": 2}),
                ("Running", "2/1 of 3", ""),
            ),
            (
                "at work",
                json!({"completions": 1}),
                json!({"startTime": "2030-01-01T00:00:00Z"}),
                ("Running", "0/1", "45m"),
            ),
            (
                "done",
                json!({"completions": 1}),
                json!({"succeeded": 1, "startTime": "2030-01-01T00:00:00Z", "completionTime": "2030-01-01T00:01:05Z", "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]}),
                ("Complete", "1/1", "65s"),
            ),
            (
                "failing",
                json!({"completions": 1}),
                json!({"conditions": [condition("FailureTarget")]}),
                ("FailureTarget", "0/1", ""),
            ),
            (
                "waiting",
                json!({"completions": 1}),
                json!({"conditions": [condition("Suspended")]}),
                ("Suspended", "0/1", ""),
            ),
        ] {
            let job = json!({"spec": spec, "status": status});
            assert_eq!(
                (
                    status_cell(&job),
                    &*completions_cell(&job),
                    &*duration_cell(&job, now)
                ),
                want,
                "{case}"
            );
        }
    }
}
