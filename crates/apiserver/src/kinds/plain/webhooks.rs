//! Webhook configurations: what makes one invalid.

use serde_json::{Value, json};

use super::super::pod;
use crate::objects::fields::{at, is_empty, items, text};
use crate::objects::names::{dns_1035_label, dns_subdomain};
use crate::objects::status::FieldError;

type FieldErrors = Vec<FieldError>;

const NO_SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
const VERSIONS: &str = "v1, v1beta1";
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];

pub(super) fn check(object: &Value, _old: Option<&Value>, errors: &mut FieldErrors) {
    let mut names: Vec<&str> = Vec::new();
    for (i, webhook) in items(object, "webhooks").iter().enumerate() {
        let field = format!("webhooks[{i}]");
        check_webhook(webhook, &field, errors);
        check_versions(webhook, &format!("{field}.admissionReviewVersions"), errors);
        let name = text(webhook, "name");
        if !name.is_empty() && names.contains(&name) {
            errors.push(FieldError::duplicate(format!("{field}.name"), &json!(name)));
        }
        names.push(name);
    }
}

fn check_webhook(webhook: &Value, path: &str, errors: &mut FieldErrors) {
    let field = |name: &str| format!("{path}.{name}");
    check_name(text(webhook, "name"), &field("name"), errors);
    for (i, rule) in items(webhook, "rules").iter().enumerate() {
        check_rule(rule, &field(&format!("rules[{i}]")), errors);
    }
    one_of(webhook, "failurePolicy", &["Fail", "Ignore"], path, errors);
    one_of(
        webhook,
        "matchPolicy",
        &["Equivalent", "Exact"],
        path,
        errors,
    );
    if at(webhook, "sideEffects").is_null() {
        let detail = format!("must specify one of {}", NO_SIDE_EFFECTS.join(", "));
        errors.push(FieldError::required(field("sideEffects"), &detail));
    }
    one_of(webhook, "sideEffects", &NO_SIDE_EFFECTS, path, errors);
    one_of(
        webhook,
        "reinvocationPolicy",
        &["IfNeeded", "Never"],
        path,
        errors,
    );
    let timeout = at(webhook, "timeoutSeconds");
    if timeout
        .as_i64()
        .is_some_and(|seconds| !(1..=30).contains(&seconds))
    {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.push(FieldError::invalid(
            field("timeoutSeconds"),
            timeout,
            detail,
        ));
    }
    for name in ["namespaceSelector", "objectSelector"] {
        pod::check_label_selector(at(webhook, name), &field(name), errors);
    }
    check_client(at(webhook, "clientConfig"), &field("clientConfig"), errors);
    if !items(webhook, "matchConditions").is_empty() {
        let detail =
            "this cluster does not evaluate CEL expressions; use rules and selectors instead";
        errors.push(FieldError::forbidden(field("matchConditions"), detail));
    }
}

/// The value, if there is one, is one of these.
fn one_of(object: &Value, name: &str, allowed: &[&str], path: &str, errors: &mut FieldErrors) {
    let value = at(object, name);
    if value
        .as_str()
        .is_some_and(|value| !allowed.contains(&value))
    {
        let field = format!("{path}.{name}");
        errors.push(FieldError::not_supported(field, value, allowed));
    }
}

/// A name like `pods.tidepool.io`.
fn check_name(name: &str, field: &str, errors: &mut FieldErrors) {
    if name.is_empty() {
        return errors.push(FieldError::required(field, ""));
    }
    if let Some(problem) = dns_subdomain(name) {
        errors.push(FieldError::invalid(field, &json!(name), &problem));
    }
    if name.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        errors.push(FieldError::invalid(field, &json!(name), detail));
    }
}

fn check_versions(webhook: &Value, field: &str, errors: &mut FieldErrors) {
    let versions = items(webhook, "admissionReviewVersions");
    if versions.is_empty() {
        let detail = format!("must specify one of {VERSIONS}");
        return errors.push(FieldError::required(field, &detail));
    }
    for (i, version) in versions.iter().enumerate() {
        let field = format!("{field}[{i}]");
        if versions[..i].contains(version) {
            errors.push(FieldError::invalid(field, version, "duplicate version"));
        } else if let Some(problem) = dns_1035_label(version.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(field, version, &problem));
        }
    }
    let known = |version: &Value| version == "v1" || version == "v1beta1";
    if !versions.iter().any(known) {
        let detail = format!("must include at least one of {VERSIONS}");
        errors.push(FieldError::invalid(field, &json!(versions), &detail));
    }
}

fn check_rule(rule: &Value, path: &str, errors: &mut FieldErrors) {
    for (name, what) in [
        ("operations", "operations"),
        ("apiGroups", "API groups"),
        ("apiVersions", "API versions"),
    ] {
        let field = format!("{path}.{name}");
        let values = items(rule, name);
        if values.is_empty() {
            errors.push(FieldError::required(&field, ""));
        }
        if values.len() > 1 && values.contains(&json!("*")) {
            let detail = format!("if '*' is present, must not specify other {what}");
            errors.push(FieldError::invalid(&field, &json!(values), &detail));
        }
        for (i, value) in values.iter().enumerate() {
            let field = format!("{field}[{i}]");
            let value_text = value.as_str().unwrap_or_default();
            if name == "operations" && !OPERATIONS.contains(&value_text) {
                errors.push(FieldError::not_supported(field, value, &OPERATIONS));
            } else if name == "apiVersions" && value_text.is_empty() {
                errors.push(FieldError::required(field, ""));
            }
        }
    }
    check_resources(
        items(rule, "resources"),
        &format!("{path}.resources"),
        errors,
    );
    one_of(rule, "scope", &SCOPES, path, errors);
}

fn check_resources(resources: &[Value], path: &str, errors: &mut FieldErrors) {
    if resources.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    // `pods/*` covers every subresource of pods, `*/scale` that of every resource.
    let (mut all_of, mut of_all): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for (i, resource) in resources.iter().enumerate() {
        let field = format!("{path}[{i}]");
        let name = resource.as_str().unwrap_or_default();
        if name.is_empty() {
            errors.push(FieldError::required(field, ""));
            continue;
        }
        let Some((parent, sub)) = name.split_once('/') else {
            continue;
        };
        let mut refuse = |wider: String| {
            let detail = format!("if '{wider}' is present, must not specify {name}");
            errors.push(FieldError::invalid(&field, resource, &detail));
        };
        if all_of.contains(&parent) {
            refuse(format!("{parent}/*"));
        }
        if of_all.contains(&sub) {
            refuse(format!("*/{sub}"));
        }
        if sub == "*" {
            all_of.push(parent);
        }
        if parent == "*" {
            of_all.push(sub);
        }
    }
    let has = |wanted: &str| resources.iter().any(|resource| resource == wanted);
    let whole = |resource: &Value| resource != "*" && !resource.to_string().contains('/');
    let mut refuse = |detail: &str| {
        errors.push(FieldError::invalid(path, &json!(resources), detail));
    };
    if resources.len() > 1 && has("*/*") {
        refuse("if '*/*' is present, must not specify other resources");
    }
    if has("*") && resources.iter().any(whole) {
        refuse("if '*' is present, must not specify other resources without subresources");
    }
}

fn check_client(client: &Value, path: &str, errors: &mut FieldErrors) {
    let (url, service) = (at(client, "url"), at(client, "service"));
    match (url.as_str(), service.is_object()) {
        (Some(url), false) => check_url(url, &format!("{path}.url"), errors),
        (None, true) => check_service(service, &format!("{path}.service"), errors),
        _ => {
            let detail = "exactly one of url or service is required";
            errors.push(FieldError::required(path, detail));
        }
    }
}

fn check_url(url: &str, field: &str, errors: &mut FieldErrors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let parts = UrlParts::split(url);
    let mut refuse = |found: &str, detail: &str| {
        errors.push(FieldError::invalid(field, &json!(found), detail));
    };
    if parts.scheme != "https" {
        let detail = format!("'https' is the only allowed URL scheme{FORM}");
        refuse(parts.scheme, &detail);
    }
    if parts.host.is_empty() {
        refuse("", &format!("host must be specified{FORM}"));
    }
    for (found, detail) in [
        (parts.user, "user information is not permitted in the URL"),
        (parts.fragment, "fragments are not permitted in the URL"),
        (parts.query, "query parameters are not permitted in the URL"),
    ] {
        if let Some(found) = found.filter(|found| !found.is_empty()) {
            refuse(found, detail);
        }
    }
}

/// `scheme://user@host/path?query#fragment`.
struct UrlParts<'a> {
    scheme: &'a str,
    user: Option<&'a str>,
    host: &'a str,
    query: Option<&'a str>,
    fragment: Option<&'a str>,
}

impl<'a> UrlParts<'a> {
    fn split(url: &'a str) -> Self {
        let cut = |text: &'a str, mark: char| match text.split_once(mark) {
            Some((before, after)) => (before, Some(after)),
            None => (text, None),
        };
        let (rest, fragment) = cut(url, '#');
        let (rest, query) = cut(rest, '?');
        let (scheme, rest) = rest.split_once(':').unwrap_or(("", rest));
        let host = rest.strip_prefix("//").unwrap_or_default();
        let host = host.split('/').next().unwrap_or_default();
        let (user, host) = match host.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, host),
        };
        Self {
            scheme,
            user,
            host,
            query,
            fragment,
        }
    }
}

fn check_service(service: &Value, path: &str, errors: &mut FieldErrors) {
    let field = |name: &str| format!("{path}.{name}");
    for name in ["name", "namespace"] {
        if text(service, name).is_empty() {
            errors.push(FieldError::required(field(name), ""));
        }
    }
    let port = at(service, "port");
    if port
        .as_i64()
        .is_some_and(|port| !(1..=65535).contains(&port))
    {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(field("port"), port, detail));
    }
    let url_path = at(service, "path");
    if is_empty(url_path) || url_path == "/" {
        return;
    }
    let mut refuse = |detail: &str| {
        errors.push(FieldError::invalid(field("path"), url_path, detail));
    };
    let written = url_path.as_str().unwrap_or_default();
    if written == "//" {
        return refuse("segment[0] may not be empty");
    }
    if !written.starts_with('/') {
        refuse("must start with a '/'");
    }
    // The real server drops the first character, whatever it is.
    let mut steps = written.chars();
    steps.next();
    let steps = steps.as_str();
    let steps = steps.strip_suffix('/').unwrap_or(steps).split('/');
    for (i, step) in steps.enumerate() {
        match (step, dns_subdomain(step)) {
            ("", _) => refuse(&format!("segment[{i}] may not be empty")),
            (_, Some(problem)) => refuse(&format!("segment[{i}]: {problem}")),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn webhook(change: Value) -> Value {
        let mut webhook = json!({
            "name": "pods.example.io", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://localhost/x"},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
        });
        for (key, value) in change.as_object().unwrap() {
            webhook[key] = value.clone();
        }
        webhook
    }

    fn found(webhooks: &[Value]) -> Vec<String> {
        let mut errors = Vec::new();
        check(&json!({"webhooks": webhooks}), None, &mut errors);
        let text = |error: &FieldError| format!("{}: {}", error.field, error.message);
        errors.iter().map(text).collect()
    }

    #[test]
    fn a_complete_webhook_is_accepted() {
        assert_eq!(found(&[webhook(json!({}))]), Vec::<String>::new());
        let service = json!({"service": {"name": "a", "namespace": "b", "path": "/c/d"}});
        assert_eq!(
            found(&[webhook(json!({"clientConfig": service}))]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn what_cannot_work_is_refused() {
        for (change, want) in [
            (
                json!({"matchConditions": [{"name": "a", "expression": "true"}]}),
                "webhooks[0].matchConditions: Forbidden: this cluster does not evaluate CEL expressions; use rules and selectors instead",
            ),
            (
                json!({"timeoutSeconds": 31}),
                "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
            ),
            (
                json!({"clientConfig": {"url": "http://localhost/x"}}),
                "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
            ),
            (
                json!({"clientConfig": {"url": "https://localhost/x?a=b"}}),
                "webhooks[0].clientConfig.url: Invalid value: \"a=b\": query parameters are not permitted in the URL",
            ),
            (
                json!({"clientConfig": {}}),
                "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
            ),
            (
                json!({"sideEffects": "Some"}),
                "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
            ),
        ] {
            assert_eq!(found(&[webhook(change)]), [want]);
        }
        let twice = found(&[webhook(json!({})), webhook(json!({}))]);
        assert_eq!(
            twice,
            ["webhooks[1].name: Duplicate value: \"pods.example.io\""]
        );
    }
}
