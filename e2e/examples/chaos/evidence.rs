//! The evidence of a run: the history in etcd as changes of a few kinds, and the audit log.

use std::path::Path;

use anyhow::{Context, Result};
use e2e::etcd::Revision;
use serde_json::Value;

use crate::cluster::{GROUP, RECLAIMED};
use crate::replicas::{LEASE_NAME, LEASE_NAMESPACE};

/// One change in etcd that the checker looks at. Amounts are in thousandths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HistoryEvent {
    Pod(StoredPod),
    PodDeleted(String),
    Node {
        name: String,
        cpu: i64,
        pods: i64,
        group: String,
    },
    Report {
        node: String,
        amount: i64,
    },
    Lease {
        holder: String,
        renewed: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct StoredPod {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Empty until it is bound.
    pub(crate) node: String,
    pub(crate) group: String,
    pub(crate) priority: i64,
    pub(crate) cpu: i64,
    pub(crate) reclaimed: i64,
}

/// A write of a scheduler that the API server received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuditedWrite {
    /// The number that the proxy gave it.
    pub(crate) id: u64,
    pub(crate) verb: String,
    /// With its subresource.
    pub(crate) resource: String,
    pub(crate) name: String,
    pub(crate) code: u64,
    /// The uid in the body of a bind.
    pub(crate) uid: Option<String>,
}

/// The changes that matter, with their revisions.
pub(crate) fn history(revisions: &[Revision]) -> Result<Vec<(u64, HistoryEvent)>> {
    let events = revisions.iter().filter_map(|revision| {
        let event = event(revision).transpose()?;
        Some(event.map(|event| (revision.revision, event)))
    });
    events.collect()
}

fn event(revision: &Revision) -> Result<Option<HistoryEvent>> {
    let Some(key) = revision.key.strip_prefix("/registry/") else {
        return Ok(None);
    };
    let lease = format!("leases/{LEASE_NAMESPACE}/{LEASE_NAME}");
    let (kind, name) = key.rsplit_once('/').unwrap_or_default();
    let is_known = matches!(
        kind,
        "pods/default" | "minions" | "node.katalyst.kubewharf.io/customnoderesources"
    );
    if !is_known && key != lease {
        return Ok(None);
    }
    let Some(bytes) = &revision.value else {
        let deleted = (kind == "pods/default").then(|| HistoryEvent::PodDeleted(name.to_owned()));
        return Ok(deleted);
    };
    let value: Value = serde_json::from_slice(bytes)
        .with_context(|| format!("the value of {key} in etcd is no JSON"))?;
    let name = name.to_owned();
    Ok(Some(match kind {
        "pods/default" => HistoryEvent::Pod(stored_pod(&value)),
        "minions" => HistoryEvent::Node {
            name,
            cpu: quantity(&value["status"]["allocatable"]["cpu"]),
            pods: quantity(&value["status"]["allocatable"]["pods"]) / 1_000,
            group: text(&value["metadata"]["labels"][GROUP]),
        },
        "node.katalyst.kubewharf.io/customnoderesources" => HistoryEvent::Report {
            node: name,
            amount: quantity(&value["status"]["resources"]["allocatable"][RECLAIMED]),
        },
        _ => HistoryEvent::Lease {
            holder: text(&value["spec"]["holderIdentity"]),
            renewed: text(&value["spec"]["renewTime"]),
        },
    }))
}

pub(crate) fn stored_pod(pod: &Value) -> StoredPod {
    let requests = &pod["spec"]["containers"][0]["resources"]["requests"];
    StoredPod {
        name: text(&pod["metadata"]["name"]),
        uid: text(&pod["metadata"]["uid"]),
        node: text(&pod["spec"]["nodeName"]),
        group: text(&pod["spec"]["nodeSelector"][GROUP]),
        priority: pod["spec"]["priority"].as_i64().unwrap_or(0),
        cpu: quantity(&requests["cpu"]),
        reclaimed: quantity(&requests[RECLAIMED]),
    }
}

/// The writes about pods in an audit log.
pub(crate) fn audited(log: &Path) -> Result<Vec<AuditedWrite>> {
    let log = std::fs::read_to_string(log)
        .with_context(|| format!("cannot read the audit log {}", log.display()))?;
    let mut writes = Vec::new();
    for line in log.lines() {
        // A server that was killed did not finish its last line.
        let event: Value = serde_json::from_str(line).unwrap_or_default();
        writes.extend(audited_write(&event));
    }
    Ok(writes)
}

fn audited_write(event: &Value) -> Option<AuditedWrite> {
    let object = &event["objectRef"];
    if object["resource"] != "pods" || matches!(event["verb"].as_str()?, "get" | "list" | "watch") {
        return None;
    }
    let id = event["userAgent"].as_str()?.strip_prefix("chaos/")?;
    let resource = match object["subresource"].as_str() {
        Some(sub) => format!("pods/{sub}"),
        None => "pods".to_owned(),
    };
    let body = &event["requestObject"];
    Some(AuditedWrite {
        id: id.parse().ok()?,
        verb: text(&event["verb"]),
        // A request that ended before it was read has no body.
        uid: (resource == "pods/binding" && !body.is_null())
            .then(|| text(&body["metadata"]["uid"])),
        resource,
        name: text(&object["name"]),
        code: event["responseStatus"]["code"].as_u64().unwrap_or(0),
    })
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A quantity in thousandths; 0 if there is none.
pub(crate) fn quantity(value: &Value) -> i64 {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "m" => 1,
        "k" => 1_000_000,
        "Ki" => 1_024_000,
        "Mi" => 1_048_576_000,
        "Gi" => 1_073_741_824_000,
        _ => 1_000,
    };
    digits.parse::<i64>().map_or(0, |number| number * unit)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_are_thousandths() {
        for (text, want) in [
            (json!("500m"), 500),
            (json!("4"), 4_000),
            (json!(30), 30_000),
            (json!("2k"), 2_000_000),
            (json!("1Ki"), 1_024_000),
            (Value::Null, 0),
        ] {
            assert_eq!(quantity(&text), want, "{text}");
        }
    }

    #[test]
    fn only_writes_about_pods_that_passed_the_proxy_are_read() {
        let bind = json!({"verb": "create", "userAgent": "chaos/12", "responseStatus": {"code": 201},
            "objectRef": {"resource": "pods", "subresource": "binding", "name": "p"},
            "requestObject": {"metadata": {"uid": "u"}}});
        let write = audited_write(&bind).unwrap();
        assert_eq!((write.id, write.code), (12, 201));
        assert_eq!(write.resource, "pods/binding");
        assert_eq!(write.uid.as_deref(), Some("u"));
        let mut other = bind.clone();
        other["userAgent"] = json!("kubectl");
        assert_eq!(audited_write(&other), None);
        let mut read = bind;
        read["verb"] = json!("get");
        assert_eq!(audited_write(&read), None);
    }

    #[test]
    fn a_deleted_key_is_a_deleted_pod() {
        let revision = |key: &str| Revision {
            revision: 7,
            key: key.to_owned(),
            value: None,
        };
        let deleted = [
            revision("/registry/pods/default/p"),
            revision("/registry/events/x/y"),
        ];
        let want = vec![(7, HistoryEvent::PodDeleted("p".to_owned()))];
        assert_eq!(history(&deleted).unwrap(), want);
    }
}
