//! What the API server fills into a pod: requests from limits, and the defaults of LimitRanges.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::fields::{CONTAINER_LISTS, annotation, list_mut, name};
use super::keys::LIMIT_RANGER;
use super::limit_range::{LimitKind, LimitRange};
use super::resources::{Native, ResourceField, set};

/// Fills them in, as the server does before and after mutating webhooks.
pub(super) fn fill(pod: &mut Value, ranges: &[LimitRange]) {
    let mut notes = Vec::new();
    for (list, prefix) in [
        ("containers", "container"),
        ("initContainers", "init container"),
    ] {
        for container in list_mut(pod, list) {
            fill_container(container, prefix, ranges, &mut notes);
        }
    }
    if !notes.is_empty()
        && let Some(metadata) = pod["metadata"].as_object_mut()
    {
        let annotations = metadata
            .entry("annotations")
            .or_insert_with(|| Map::new().into());
        annotations[LIMIT_RANGER] = format!("LimitRanger plugin set: {}", notes.join("; ")).into();
    }
}

fn fill_container(
    container: &mut Value,
    prefix: &str,
    ranges: &[LimitRange],
    notes: &mut Vec<String>,
) {
    let name = name(container).to_owned();
    if let Some(limits) = container["resources"]["limits"].as_object().cloned() {
        for (resource, quantity) in limits {
            set_missing(container, ResourceField::Requests, &resource, quantity);
        }
    }
    let items = ranges.iter().flat_map(|range| &range.items);
    for item in items.filter(|item| item.kind == LimitKind::Container) {
        let lists = [
            (ResourceField::Requests, &item.default_request),
            (ResourceField::Limits, &item.default),
        ];
        for (kind, defaults) in lists {
            let mut set = Vec::new();
            for (resource, quantity) in defaults {
                if set_missing(container, kind, resource, quantity.as_str().into()) {
                    set.push(resource.as_str());
                }
            }
            if !set.is_empty() {
                let kind = singular(kind);
                notes.push(format!("{} {kind} for {prefix} {name}", set.join(", ")));
            }
        }
    }
}

fn set_missing(
    container: &mut Value,
    kind: ResourceField,
    resource: &str,
    quantity: Value,
) -> bool {
    let is_missing = container["resources"][kind.field()][resource].is_null();
    if is_missing {
        set(container, kind, resource, Some(quantity));
    }
    is_missing
}

/// What the server filled in from a LimitRange, by its annotation on the pod.
pub(super) struct FilledIn<'a>(HashSet<Filled<'a>>);

#[derive(PartialEq, Eq, Hash)]
struct Filled<'a> {
    resource: &'a str,
    /// Such as ` request for container NAME`.
    place: &'a str,
}

impl<'a> FilledIn<'a> {
    /// In one pass: the annotation has a note for each container.
    pub(super) fn of(pod: &'a Value) -> Self {
        let text = annotation(pod, LIMIT_RANGER).unwrap_or_default();
        let notes = text
            .strip_prefix("LimitRanger plugin set: ")
            .unwrap_or(text)
            .split("; ");
        let filled = notes.flat_map(|note| {
            let kinds = [ResourceField::Requests, ResourceField::Limits];
            let starts = kinds
                .into_iter()
                .filter_map(|kind| note.find(&format!(" {} for ", singular(kind))));
            let (resources, place) = note.split_at(starts.min().unwrap_or(note.len()));
            resources
                .split(", ")
                .map(move |resource| Filled { resource, place })
        });
        Self(filled.collect())
    }

    pub(super) fn has(
        &self,
        list: &str,
        container: &str,
        kind: ResourceField,
        native: Native,
    ) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let prefix = match list == CONTAINER_LISTS[0] {
            true => "init container",
            false => "container",
        };
        let place = format!(" {} for {prefix} {container}", singular(kind));
        self.0.contains(&Filled {
            resource: native.name(),
            place: &place,
        })
    }
}

fn singular(kind: ResourceField) -> &'static str {
    match kind {
        ResourceField::Requests => "request",
        ResourceField::Limits => "limit",
    }
}
