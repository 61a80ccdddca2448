//! Requests for certificates.

use jiff::Timestamp;
use serde_json::Value;

use super::super::kind::Kind;
use super::super::{READ_AND_WRITE, cluster, printer};
use super::{PLAIN, Plain, empty};
use crate::objects::fields::{at, items, number, text};

pub(super) fn kinds() -> Vec<Kind> {
    let rules = Plain {
        status: Some(empty),
        columns: "Name, Age, SignerName, Requestor, RequestedDuration, Condition",
        cells,
        no_effect: Some("no controller signs certificates"),
        ..PLAIN
    };
    let kind = cluster(
        "certificates.k8s.io/v1",
        "certificatesigningrequests",
        "CertificateSigningRequest",
        rules,
    );
    vec![
        kind.short(&["csr"])
            .sub("approval", &READ_AND_WRITE)
            .status(),
    ]
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let duration = match at(object, "spec.expirationSeconds").is_null() {
        true => "<none>".to_owned(),
        false => printer::duration(number(object, "spec.expirationSeconds")),
    };
    let has = |kind: &str| {
        let mut conditions = items(object, "status.conditions").iter();
        conditions.any(|condition| text(condition, "type") == kind)
    };
    let mut condition = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        condition.push_str(",Failed");
    }
    if !text(object, "status.certificate").is_empty() {
        condition.push_str(",Issued");
    }
    vec![
        printer::name(object),
        printer::created(object, now),
        text(object, "spec.signerName").into(),
        text(object, "spec.username").into(),
        duration.into(),
        condition.into(),
    ]
}
