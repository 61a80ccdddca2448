//! Dynamic resource allocation, and classes of volume attributes.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::kind::Kind;
use super::super::{cluster, namespaced, printer};
use super::{PLAIN, Plain, empty};
use crate::objects::fields::{JsonObject, at, each, fill, inside, items, open, text};

const VERSION: &str = "resource.k8s.io/v1";
const NO_EFFECT: Option<&str> = Some("no controller allocates devices");

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        cluster(
            VERSION,
            "deviceclasses",
            "DeviceClass",
            Plain {
                generation: true,
                no_effect: NO_EFFECT,
                ..PLAIN
            },
        )
        .returns_deleted(),
        namespaced(
            VERSION,
            "resourceclaims",
            "ResourceClaim",
            Plain {
                status: Some(empty),
                defaults: |object| default_claim(open(object, "spec")),
                columns: "Name, State, Age",
                cells: claim_cells,
                no_effect: NO_EFFECT,
                ..PLAIN
            },
        )
        .returns_deleted()
        .status(),
        namespaced(
            VERSION,
            "resourceclaimtemplates",
            "ResourceClaimTemplate",
            Plain {
                defaults: |object| default_claim(open(open(object, "spec"), "spec")),
                no_effect: NO_EFFECT,
                ..PLAIN
            },
        )
        .returns_deleted(),
        cluster(
            VERSION,
            "resourceslices",
            "ResourceSlice",
            Plain {
                generation: true,
                columns: "Name, Node, Driver, Pool, Age",
                cells: slice_cells,
                no_effect: NO_EFFECT,
                ..PLAIN
            },
        )
        .returns_deleted(),
        cluster(
            "storage.k8s.io/v1",
            "volumeattributesclasses",
            "VolumeAttributesClass",
            Plain {
                columns: "Name, DriverName, Age",
                cells: |object, now| {
                    let driver = text(object, "driverName");
                    vec![
                        printer::name(object),
                        driver.into(),
                        printer::created(object, now),
                    ]
                },
                no_effect: Some("no controller changes volumes"),
                ..PLAIN
            },
        )
        .short(&["vac"]),
    ]
}

fn default_claim(spec: &mut JsonObject) {
    for request in each(open(spec, "devices"), "requests") {
        if let Some(exactly) = inside(request, "exactly") {
            default_request(exactly);
        }
        each(request, "firstAvailable").for_each(default_request);
    }
}

fn default_request(request: &mut JsonObject) {
    fill(request, "allocationMode", "ExactCount");
    if request["allocationMode"] == "ExactCount" {
        fill(request, "count", 1);
    }
    for toleration in each(request, "tolerations") {
        fill(toleration, "operator", "Equal");
    }
}

fn claim_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut states = Vec::new();
    if !at(object, "metadata.deletionTimestamp").is_null() {
        states.push("deleted");
    }
    if at(object, "status.allocation").is_null() {
        states.push("pending");
    } else {
        states.push("allocated");
    }
    if !items(object, "status.reservedFor").is_empty() {
        states.push("reserved");
    }
    vec![
        printer::name(object),
        json!(states.join(",")),
        printer::created(object, now),
    ]
}

fn slice_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        printer::name(object),
        text(object, "spec.nodeName").into(),
        text(object, "spec.driver").into(),
        text(object, "spec.pool.name").into(),
        printer::created(object, now),
    ]
}
