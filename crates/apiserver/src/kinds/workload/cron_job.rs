//! Cron jobs: jobs at the times of a schedule.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::super::{pod, selector, spec_status};
use super::{check_not_negative, job, schedule};
use crate::kinds::kind::{Column, Rules, Write};
use crate::kinds::printer;
use crate::objects::fields::{at, fill, items, open, text};
use crate::objects::status::FieldError;

/// The controller appends eleven characters to name a job.
const LONGEST_NAME: usize = 52;

pub(in crate::kinds) struct CronJob;

impl Rules for CronJob {
    fn default(&self, object: &mut Value) {
        let Some(fields) = object.as_object_mut() else {
            return;
        };
        let spec = open(fields, "spec");
        fill(spec, "schedule", "");
        fill(spec, "concurrencyPolicy", "Allow");
        fill(spec, "suspend", false);
        fill(spec, "successfulJobsHistoryLimit", 3);
        fill(spec, "failedJobsHistoryLimit", 1);
        let jobs = open(open(spec, "jobTemplate"), "spec");
        job::default_failure_policy(jobs);
        super::default_template(jobs);
        open(fields, "status");
    }

    fn prepare(&self, object: &mut Value, old: Option<&Value>, write: Write<'_>) {
        spec_status::separate_status(object, old, write, |_| json!({}));
        spec_status::count_spec_changes(object, old);
    }

    fn validate(&self, object: &Value, old: Option<&Value>, write: Write<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if write == Write::Subresource("status") {
            return errors;
        }
        check_schedule(object, &mut errors);
        check_not_negative(object, &["spec.startingDeadlineSeconds"], &mut errors);
        let policy = at(object, "spec.concurrencyPolicy");
        let known = ["Allow", "Forbid", "Replace"];
        if !known.contains(&policy.as_str().unwrap_or_default()) {
            let field = "spec.concurrencyPolicy";
            errors.push(FieldError::not_supported(field, policy, &known));
        }
        let counts = [
            "spec.successfulJobsHistoryLimit",
            "spec.failedJobsHistoryLimit",
        ];
        check_not_negative(object, &counts, &mut errors);
        let template = "spec.jobTemplate.spec.template";
        errors.extend(pod::validate_template(at(object, template), template));
        let field = "spec.jobTemplate.spec.template.spec.restartPolicy";
        job::check_restart_policy(at(object, field), field, &mut errors);
        let name = at(object, "metadata.name");
        if old.is_none() && name.as_str().is_some_and(|name| name.len() > LONGEST_NAME) {
            let detail = format!("must be no more than {LONGEST_NAME} characters");
            errors.push(FieldError::invalid("metadata.name", name, &detail));
        }
        errors
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }

    fn zero_fields(&self) -> Vec<(&'static str, Value)> {
        let template = json!({"metadata": {}, "spec": {"containers": null}});
        let jobs = json!({"metadata": {}, "spec": {"template": template}});
        let spec = json!({"schedule": "", "jobTemplate": jobs});
        vec![("spec", spec), ("status", json!({}))]
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns(
            "Name, Schedule, Timezone, Suspend:boolean, Active:integer, Last Schedule, Age, Containers*, Images*, Selector*",
        )
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let template = at(object, "spec.jobTemplate");
        let [containers, images] = super::container_cells(template);
        let last = at(object, "status.lastScheduleTime");
        let last = match last.is_null() {
            true => "<none>".to_owned(),
            false => printer::age(last, now),
        };
        let suspended = at(object, "spec.suspend").as_bool().unwrap_or_default();
        vec![
            printer::name(object),
            text(object, "spec.schedule").into(),
            printer::or_none(text(object, "spec.timeZone")),
            if suspended { "True" } else { "False" }.into(),
            json!(items(object, "status.active").len()),
            last.into(),
            printer::created(object, now),
            containers,
            images,
            selector::cell(at(template, "spec.selector")).into(),
        ]
    }
}

fn check_schedule(object: &Value, errors: &mut Vec<FieldError>) {
    let found = at(object, "spec.schedule");
    match found.as_str().unwrap_or_default() {
        "" => errors.push(FieldError::required("spec.schedule", "")),
        text => {
            let problem = schedule::problem(text);
            errors.extend(problem.map(|it| FieldError::invalid("spec.schedule", found, &it)));
        }
    }
    let zone = at(object, "spec.timeZone");
    // A machine without a database of time zones knows none.
    let known = |name: &str| TimeZone::get(name).is_ok() || jiff::tz::db().is_definitively_empty();
    if let Some(name) = zone.as_str()
        && !known(name)
    {
        let detail = format!("unknown time zone {name}");
        errors.push(FieldError::invalid("spec.timeZone", zone, &detail));
    }
}
