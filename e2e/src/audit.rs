//! The requests of a test, from the audit log of the API server.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// The audit policy: every request of this group, once it is over. Watches are over when they end.
/// With the bodies of binds, if they are wanted.
pub(crate) fn policy(group: &str, binds: bool) -> Value {
    let mut rules = vec![json!({"level": "Metadata", "userGroups": [group]})];
    if binds {
        let resources = json!([{"group": "", "resources": ["pods/binding"]}]);
        let rule = json!({"level": "Request", "userGroups": [group], "resources": resources});
        rules.insert(0, rule);
    }
    json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": rules,
    })
}

/// One request that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub user: String,
    pub verb: String,
    /// Empty for the core group.
    pub group: String,
    /// With its subresource: `pods/binding`.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    /// 0 if there was no answer, because the client did not wait for it any more.
    pub code: u64,
    /// Why it failed.
    pub message: String,
    /// When it came.
    pub received: jiff::Timestamp,
    /// When it was over.
    pub completed: jiff::Timestamp,
}

impl Request {
    pub fn is_write(&self) -> bool {
        !matches!(&self.verb[..], "get" | "list" | "watch")
    }

    /// The API server did what was asked for. 101 begins a connection of another protocol, such as that of port-forward. That an
    /// object does not exist is an answer, too.
    pub fn succeeded(&self) -> bool {
        matches!(self.code, 101 | 200..=299) || (self.verb == "get" && self.code == 404)
    }

    /// RBAC or an admission policy refused it. A policy answers with 422 if it gives no reason, or fails itself.
    pub fn is_denied(&self) -> bool {
        matches!(self.code, 401 | 403) || self.message.contains("ValidatingAdmissionPolicy")
    }
}

/// All requests in a log, oldest first.
pub(crate) fn read(log: &Path) -> Result<Vec<Request>> {
    let text = std::fs::read_to_string(log)
        .with_context(|| format!("cannot read the audit log {}", log.display()))?;
    // The last line may be on its way.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(request).collect()
}

fn request(line: &str) -> Result<Request> {
    let event: Value =
        serde_json::from_str(line).with_context(|| format!("no audit event: {line}"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &event["objectRef"];
    let mut resource = text(&object["resource"]);
    if let Some(sub) = object["subresource"].as_str() {
        resource += &format!("/{sub}");
    }
    let time = |field: &str| {
        let text = text(&event[field]);
        let parsed = text.parse();
        parsed.with_context(|| format!("no time: {text}"))
    };
    Ok(Request {
        user: text(&event["user"]["username"]),
        verb: text(&event["verb"]),
        group: text(&object["apiGroup"]),
        resource,
        namespace: text(&object["namespace"]),
        name: text(&object["name"]),
        code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
        message: text(&event["responseStatus"]["message"]),
        received: time("requestReceivedTimestamp")?,
        completed: time("stageTimestamp")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_policies_refuse_is_denied_and_only_what_the_server_did_succeeded() {
        let policy = "leases is forbidden: ValidatingAdmissionPolicy 'tidepool-gate' with binding 'tidepool-gate' denied request: no";
        for (case, verb, code, message, succeeded, is_denied) in [
            ("a read", "get", 200, "", true, false),
            ("a read of nothing", "get", 404, "gone", true, false),
            ("a new object", "create", 201, "", true, false),
            ("port-forward", "create", 101, "", true, false),
            ("a change of nothing", "patch", 404, "gone", false, false),
            ("no answer", "get", 0, "", false, false),
            ("no permission", "get", 403, "forbidden", false, true),
            ("a policy with a reason", "patch", 403, policy, false, true),
            ("a policy without one", "patch", 422, policy, false, true),
            ("invalid", "patch", 422, "spec is invalid", false, false),
            ("an old version", "update", 409, "conflict", false, false),
        ] {
            let line = json!({
                "verb": verb, "user": {"username": "u"}, "objectRef": {"resource": "leases"},
                "responseStatus": {"code": code, "message": message},
                "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z",
                "stageTimestamp": "2026-01-01T00:00:00.000000Z",
            });
            let found = request(&line.to_string()).unwrap();
            let found = (found.succeeded(), found.is_denied());
            assert_eq!(found, (succeeded, is_denied), "{case}");
        }
    }
}
