//! Keeps the served custom kinds in step with the stored CustomResourceDefinitions.
//!
//! In the real server controllers do this a moment after the write; here it is part of it.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::custom::{self, CLEANUP_FINALIZER};
use crate::fields::{at, open, put, text};
use crate::handlers;
use crate::managed_fields::{self, Writer};
use crate::registry::Served;
use crate::server::Server;
use crate::store::Raced;
use crate::store::object::{Change, Object};

const GROUP: &str = "apiextensions.k8s.io";
const PLURAL: &str = "customresourcedefinitions";

/// Whether a write of this kind can change what is served.
pub(crate) fn concerns(server: &Server, served: &Served) -> bool {
    let kind = &served.kind;
    (kind.group == GROUP && kind.plural == PLURAL)
        || (served.custom && server.is_closing(&kind.group, &kind.plural))
}

/// Judges names, ends what is being deleted and serves what is established.
pub(crate) fn refresh(server: &Arc<Server>) {
    let registry = server.registry();
    let Some(served) = registry.find_resource(GROUP, PLURAL) else {
        return;
    };
    // Two at once could leave the older view of the kinds.
    let _one_at_a_time = server.lock_definitions();
    // Each round changes at least one definition for good, so this ends.
    while step(server, served) {}
    let definitions = stored(server, served);
    let kinds = definitions
        .iter()
        .flat_map(|(_, definition)| custom::kinds(definition));
    server.set_custom_kinds(kinds.collect());
    let closing = definitions
        .iter()
        .filter(|(_, definition)| is_closing(definition));
    let closing = closing.map(|(_, definition)| identity(definition));
    server.set_closing(closing.collect());
}

fn stored(server: &Server, served: &Served) -> Vec<(Arc<Object>, Value)> {
    let snapshot = server.store.scan(served.table, "", "");
    let values = snapshot.objects.into_iter();
    values
        .map(|object| (Arc::clone(&object), served.value(&object)))
        .collect()
}

fn identity(definition: &Value) -> (String, String) {
    let (group, plural) = (
        text(definition, "spec.group"),
        text(definition, "spec.names.plural"),
    );
    (group.to_owned(), plural.to_owned())
}

fn is_closing(definition: &Value) -> bool {
    !at(definition, "metadata.deletionTimestamp").is_null()
}

/// One change that the definitions need; whether there was one.
fn step(server: &Arc<Server>, served: &Arc<Served>) -> bool {
    let definitions = stored(server, served);
    let now = Timestamp::now();
    let time = handlers::format_time(now);
    for (current, definition) in &definitions {
        if is_closing(definition) {
            if end(server, served, current, definition) {
                return true;
            }
            continue;
        }
        let all = definitions.iter().map(|(_, definition)| definition);
        if let Some(status) = custom::judge(definition, all, &time) {
            let mut judged = definition.clone();
            judged["status"] = status;
            let writer = Writer {
                manager: handlers::SERVER,
                api_version: &served.api_version,
                subresource: "status",
                has_status: true,
                now,
            };
            managed_fields::update(&served.kind.schema, Some(definition), &mut judged, &writer);
            let draft = served.draft(Change::Modified, &judged);
            // A definition that changed meanwhile is judged again in the next round.
            return match server.store.replace(served.table, current, draft) {
                Ok(_) | Err(Raced) => true,
            };
        }
    }
    false
}

/// Deletes the objects of a definition on its way out, and the definition when none is left.
fn end(
    server: &Arc<Server>,
    served: &Arc<Served>,
    current: &Arc<Object>,
    definition: &Value,
) -> bool {
    let finalizers = at(definition, "metadata.finalizers").as_array();
    let others: Vec<Value> = finalizers
        .into_iter()
        .flatten()
        .filter(|finalizer| *finalizer != CLEANUP_FINALIZER)
        .cloned()
        .collect();
    if finalizers.is_none_or(|all| all.len() == others.len()) {
        return false;
    }
    let (group, plural) = identity(definition);
    let registry = server.registry();
    if let Some(objects) = registry
        .find_resource(&group, &plural)
        .filter(|kind| kind.custom)
        && !handlers::delete_all(server, objects)
    {
        // Some wait for their own finalizers; the last one's removal comes back here.
        return false;
    }
    if others.is_empty() {
        return match server.store.remove(served.table, current) {
            Ok(_) | Err(Raced) => true,
        };
    }
    let mut rest = definition.clone();
    if let Some(fields) = rest.as_object_mut() {
        put(
            open(fields, "metadata"),
            "finalizers",
            Some(&Value::Array(others)),
        );
    }
    let draft = served.draft(Change::Modified, &rest);
    match server.store.replace(served.table, current, draft) {
        Ok(_) | Err(Raced) => true,
    }
}
