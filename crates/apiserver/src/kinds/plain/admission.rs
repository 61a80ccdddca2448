//! What extends the server itself: webhooks, admission policies and other API servers.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::kind::Kind;
use super::super::{cluster, printer};
use super::{PLAIN, Plain, empty, webhooks};
use crate::objects::fields::{JsonObject, at, each, fill, inside, items, open, text};
use crate::objects::names::path_segment;

const VERSION: &str = "admissionregistration.k8s.io/v1";

pub(super) fn kinds() -> Vec<Kind> {
    let validating = Plain {
        generation: true,
        defaults: |object| each(object, "webhooks").for_each(default_webhook),
        columns: "Name, Webhooks:integer, Age",
        cells: |object, now| {
            let count = items(object, "webhooks").len();
            vec![
                printer::name(object),
                json!(count),
                printer::created(object, now),
            ]
        },
        check: webhooks::check,
        ..PLAIN
    };
    let mutating = Plain {
        defaults: |object| {
            for webhook in each(object, "webhooks") {
                default_webhook(webhook);
                fill(webhook, "reinvocationPolicy", "Never");
            }
        },
        ..validating
    };
    let policy = Plain {
        generation: true,
        defaults: default_policy,
        columns: "Name, Mutations:integer, ParamKind, Age",
        cells: |object, now| policy_cells(object, "spec.mutations", now),
        no_effect: Some("admission policies are not evaluated"),
        ..PLAIN
    };
    let validating_policy = Plain {
        status: Some(empty),
        columns: "Name, Validations:integer, ParamKind, Age",
        cells: |object, now| policy_cells(object, "spec.validations", now),
        ..policy
    };
    let binding = Plain {
        defaults: default_binding,
        columns: "Name, PolicyName, ParamRef, Age",
        cells: binding_cells,
        ..policy
    };
    let api_service = Plain {
        status: Some(empty),
        defaults: default_api_service,
        check_name: path_segment,
        columns: "Name, Service, Available, Age",
        cells: api_service_cells,
        no_effect: Some("requests are not forwarded to other servers"),
        ..PLAIN
    };
    let kind = |plural, kind, rules| cluster(VERSION, plural, kind, rules);
    let kinds = vec![
        kind(
            "mutatingadmissionpolicies",
            "MutatingAdmissionPolicy",
            policy,
        ),
        kind(
            "mutatingadmissionpolicybindings",
            "MutatingAdmissionPolicyBinding",
            binding,
        ),
        kind(
            "mutatingwebhookconfigurations",
            "MutatingWebhookConfiguration",
            mutating,
        ),
        kind(
            "validatingadmissionpolicies",
            "ValidatingAdmissionPolicy",
            validating_policy,
        )
        .status(),
        kind(
            "validatingadmissionpolicybindings",
            "ValidatingAdmissionPolicyBinding",
            binding,
        ),
        kind(
            "validatingwebhookconfigurations",
            "ValidatingWebhookConfiguration",
            validating,
        ),
        cluster(
            "apiregistration.k8s.io/v1",
            "apiservices",
            "APIService",
            api_service,
        )
        .status(),
    ];
    let in_category = |mut kind: Kind| {
        kind.categories = vec!["api-extensions".into()];
        kind
    };
    kinds.into_iter().map(in_category).collect()
}

fn default_webhook(webhook: &mut JsonObject) {
    if let Some(client) = inside(webhook, "clientConfig")
        && let Some(service) = inside(client, "service")
    {
        fill(service, "port", 443);
    }
    each(webhook, "rules").for_each(|rule| fill(rule, "scope", "*"));
    fill(webhook, "failurePolicy", "Fail");
    fill(webhook, "matchPolicy", "Equivalent");
    open(webhook, "namespaceSelector");
    open(webhook, "objectSelector");
    fill(webhook, "timeoutSeconds", 10);
}

fn default_matches(matches: &mut JsonObject) {
    open(matches, "namespaceSelector");
    open(matches, "objectSelector");
    for rules in ["resourceRules", "excludeResourceRules"] {
        each(matches, rules).for_each(|rule| fill(rule, "scope", "*"));
    }
    fill(matches, "matchPolicy", "Equivalent");
}

fn default_policy(object: &mut JsonObject) {
    let spec = open(object, "spec");
    fill(spec, "failurePolicy", "Fail");
    if let Some(matches) = inside(spec, "matchConstraints") {
        default_matches(matches);
    }
}

fn default_binding(object: &mut JsonObject) {
    if let Some(matches) = inside(open(object, "spec"), "matchResources") {
        default_matches(matches);
    }
}

fn policy_cells(object: &Value, expressions: &str, now: Timestamp) -> Vec<Value> {
    let parameters = at(object, "spec.paramKind");
    let parameters = match (text(parameters, "apiVersion"), text(parameters, "kind")) {
        ("", "") => "<unset>".to_owned(),
        (version, kind) => format!("{version}/{kind}"),
    };
    vec![
        printer::name(object),
        json!(items(object, expressions).len()),
        parameters.into(),
        printer::created(object, now),
    ]
}

fn binding_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let parameters = at(object, "spec.paramRef");
    let namespace = match text(parameters, "namespace") {
        "" => "*",
        namespace => namespace,
    };
    let parameters = match text(parameters, "name") {
        "" => "<unset>".to_owned(),
        name => format!("{namespace}/{name}"),
    };
    vec![
        printer::name(object),
        text(object, "spec.policyName").into(),
        parameters.into(),
        printer::created(object, now),
    ]
}

fn default_api_service(object: &mut JsonObject) {
    if let Some(service) = inside(open(object, "spec"), "service") {
        fill(service, "port", 443);
    }
}

fn api_service_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let service = at(object, "spec.service");
    let service = match text(service, "name") {
        "" => "Local".to_owned(),
        name => format!("{}/{name}", text(service, "namespace")),
    };
    let available = items(object, "status.conditions")
        .iter()
        .find(|condition| text(condition, "type") == "Available")
        .map_or("Unknown".to_owned(), |condition| {
            let status = text(condition, "status");
            match (status, text(condition, "reason")) {
                ("True", _) | (_, "") => status.to_owned(),
                (status, reason) => format!("{status} ({reason})"),
            }
        });
    vec![
        printer::name(object),
        service.into(),
        available.into(),
        printer::created(object, now),
    ]
}
